"""A saved function as bytes: what it says in JSON, then the elements of its arrays.

    bytes   0 ..  7   b"\\x93fuser\\r\\n"
            8 .. 11   the version of the format, little-endian as all numbers
           12 .. 19   the length of the JSON in bytes
           20 .. 51   SHA-256 of all that follows
           52 ..      the JSON, in UTF-8, then the arrays without gaps

The digest tells damage from a foreign file; it is no signature. `UPGRADES` say how JSON of an older version becomes that of
the next, so that old files keep loading.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any

from fuser.export.decode import Damaged, expect

MAGIC = b"\x93fuser\r\n"
VERSION = 1
_HEAD = struct.Struct("<8sIQ32s")

# By version, what makes JSON of the next version of it.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def write(said: dict[str, Any], contents: bytes) -> bytes:
    """The file that says `said` and holds `contents`."""
    text = json.dumps(said, separators=(",", ":"), allow_nan=False).encode()
    return _HEAD.pack(MAGIC, VERSION, len(text), hashlib.sha256(text + contents).digest()) + text + contents


def read(data: bytes) -> tuple[dict[str, Any], bytes]:
    """What a file says, as of this version, and the elements of its arrays. Damaged where it is no such file."""
    expect(len(data) >= _HEAD.size, f"{len(data)} bytes are less than a header")
    magic, version, length, digest = _HEAD.unpack_from(data)
    expect(magic == MAGIC, "the first bytes are not those of a saved function")
    expect(version <= VERSION, f"it has format {version}, and this version of fuser reads formats up to {VERSION}")
    body = data[_HEAD.size :]
    expect(length <= len(body), "it ends too early")
    expect(hashlib.sha256(body).digest() == digest, "its digest is not that of what it holds")
    said = json.loads(body[:length])
    expect(type(said) is dict, "what it says is no object")
    for step in range(version, VERSION):
        expect(step in UPGRADES, f"format {version} is unknown")
        said = UPGRADES[step](said)
    return said, body[length:]


def refusal(error: BaseException) -> str:
    """What was wrong with a file, from whatever reading it raised."""
    words = str(error) if isinstance(error, Damaged) else f"{type(error).__name__}: {error}"
    return words[:300]
