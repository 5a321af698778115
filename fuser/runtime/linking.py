"""Which libraries an object file needs: none, where it calls nothing but what every process has.

In: object files. Out: the linker's command where it can do without libraries. Reading those of C and maths, and the compiler's
driver around the linker, take longer than to compile a small kernel's loop.
"""

from __future__ import annotations

import os
import pathlib
import struct
from collections.abc import Sequence

# What the loader finds in the C library or in itself, whatever library asks, with one meaning in each of its versions.
EVERYWHERE = frozenset(
    (
        "_GLOBAL_OFFSET_TABLE_",
        "__tls_get_addr",
        "clock_gettime",
        "memcmp",
        "memcpy",
        "memmove",
        "memset",
        "sched_yield",
    )
)
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_SYMBOL_TABLE, _UNDEFINED, _LOCAL = 2, 0, 0


def without_libraries(linker: str, objects: Sequence[str], target: str) -> list[str] | None:
    """How the linker makes the library `target` of these files alone; None where they need others, or are of another format."""
    known = [_symbols(pathlib.Path(path).read_bytes()) for path in objects]
    defined, wanted = set[str](), set[str]()
    for found in known:
        if found is None:
            return None
        defined |= found[0]
        wanted |= found[1]
    if wanted - defined - EVERYWHERE:
        return None
    return [linker, "-shared", "--eh-frame-hdr", "--hash-style=gnu", "-o", target, *map(os.fspath, objects)]


def _symbols(data: bytes) -> tuple[set[str], set[str]] | None:
    """The global names that an object file defines, and those that it asks for (System V ABI, "Symbol Table")."""
    if not data.startswith(_ELF64_LITTLE):
        return None
    (table,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * number) for number in range(count)]
    defined, wanted = set[str](), set[str]()
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind == _SYMBOL_TABLE:
            names = data[sections[link][4] :][: sections[link][5]]
            for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", data[offset : offset + length]):
                if info >> 4 != _LOCAL:
                    found = names[name : names.index(b"\0", name)].decode()
                    (wanted if section == _UNDEFINED else defined).add(found)
    return defined, wanted
