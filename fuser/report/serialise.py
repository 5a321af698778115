"""The report as JSON, and back: `from_json(to_json(profile)) == profile`.

The schema is the dataclasses of `data.py` under a format name and a version, which rises when a field changes its
meaning. Each kernel also carries its `derived` figures for other programs to read; reading recomputes them.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

from fuser.report.data import KernelProfile, ProgramProfile

FORMAT = "fuser-profile"
VERSION = 3
DERIVED = "derived"


def to_json(profile: ProgramProfile) -> str:
    """The profile as ASCII JSON."""
    body = dataclasses.asdict(profile)
    for entry, kernel in zip(body["kernels"], profile.kernels):
        entry[DERIVED] = derived(kernel, profile)
    return json.dumps({"format": FORMAT, "version": VERSION, "profile": body}, indent=1, allow_nan=False)


def derived(kernel: KernelProfile, profile: ProgramProfile) -> dict[str, Any]:
    """What follows from a kernel's figures and its machine's: rates, fractions, and which limit it meets."""
    return {
        "achieved_bandwidth": kernel.achieved_bandwidth,
        "achieved_flops": kernel.achieved_flops,
        "fraction_of_bandwidth": kernel.fraction_of_bandwidth(profile.machine),
        "arithmetic_intensity": kernel.arithmetic_intensity,
        "limit": kernel.limit(profile.machine),
        "limit_seconds": kernel.limit_seconds(profile.machine),
    }


def from_json(text: str) -> ProgramProfile:
    """The profile that `to_json` wrote; ValueError when the text is none, or of a newer version."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"this is no fuser profile: {error}; expected the output of ProgramProfile.to_json()"
        ) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(
            f'this is no fuser profile: it lacks "format": "{FORMAT}"; expected the output of ProgramProfile.to_json()'
        )
    version = document.get("version")
    if version != VERSION:
        raise ValueError(f"this profile has version {version}, and this fuser reads version {VERSION}; profile again")
    return _read(ProgramProfile, document.get("profile"), "profile")


def _read(kind: Any, value: Any, where: str) -> Any:
    """`value` as the annotated type `kind`; `where` is its path, for errors."""
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, value, where)
    if typing.get_origin(kind) is tuple:
        return _read_tuple(typing.get_args(kind), value, where)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where} of a profile must be {kind.__name__}, found {value!r}")
    return value


def _read_record(kind: Any, value: Any, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    if not isinstance(value, dict):
        raise ValueError(f"{where} of a profile must be a record of {kind.__name__}, found {value!r}")
    given = set(value) - {DERIVED}
    if given != set(hints):
        odd = ", ".join(sorted(given ^ set(hints)))
        raise ValueError(f"{where} of a profile has missing or unknown fields: {odd}")
    return kind(**{name: _read(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})


def _read_tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where} of a profile must be a list, found {value!r}")
    if kinds[1:] == (Ellipsis,):
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{where} of a profile must have {len(kinds)} entries, found {len(value)}")
    return tuple(_read(kind, entry, f"{where}[{index}]") for index, (kind, entry) in enumerate(zip(kinds, value)))
