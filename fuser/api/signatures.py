"""Signatures of jitted functions in words: what a cache key says, and how two of them differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fuser.config import TRACED
from fuser.ir.names import described, printable
from fuser.ir.types import ArrayType
from fuser.trace import tree

if TYPE_CHECKING:
    from fuser.api.jitted import Jitted

CONTEXT = ("enable_x64", *TRACED)  # settings
SETTINGS = (*CONTEXT, "structure")
STATIC = "static "


def signature(jitted: Jitted, key: tuple[Any, ...]) -> dict[str, str]:
    """What a cache key says, by the name of each part: arguments by their path, static ones, and the settings."""
    structure, static, x64, traced, *rest = key
    types, placed = rest[: structure.num_leaves], rest[structure.num_leaves :]
    arguments = tree.unflatten(structure, range(structure.num_leaves))
    parts = {jitted._path(n, arguments): str(ArrayType(*found)) for n, found in enumerate(types)}
    for n, lying in (each for arguments_that_lie in placed for each in arguments_that_lie):
        parts[jitted._path(n, arguments)] += f" as {_lying(lying)}"
    parts |= {f"{STATIC}{_parameter(jitted, where)}": described(typed.value) for where, typed in static}
    words = lambda value: value if value and isinstance(value, str) else described(value)
    settings = {name: words(value) for name, value in zip(CONTEXT, (x64, *traced))}
    return parts | settings | {"structure": printable(structure, 2000)}


def _lying(sharding: Any) -> str:
    mesh = getattr(sharding, "mesh", None)
    return str(sharding) if mesh is None else f"{sharding.spec} over {dict(mesh.shape)}"


def because(earlier: Sequence[dict[str, str]], found: dict[str, str]) -> tuple[str, ...]:
    """Why this signature needed a compilation: how it differs from the earlier one that is nearest to it."""
    differences = [_differences(known, found) for known in reversed(earlier)]
    return min(differences, key=len) if differences else ("the first call",)


def arguments_in_words(found: dict[str, str]) -> str:
    """`x=f32[3], static n=4`."""
    return ", ".join(f"{name}={value}" for name, value in found.items() if name not in SETTINGS)


def _parameter(jitted: Jitted, where: int | str) -> str:
    names = jitted.function.__code__.co_varnames if hasattr(jitted.function, "__code__") else ()
    return printable(names[where] if isinstance(where, int) and where < len(names) else where)


def _differences(known: dict[str, str], found: dict[str, str]) -> tuple[str, ...]:
    """How a signature differs from an earlier one, a phrase a difference."""
    if known["structure"] != found["structure"]:
        return (f"the arguments are arranged as {found['structure']}, before as {known['structure']}",)
    changed = ((name, known.get(name), value) for name, value in found.items())
    return tuple(
        f"the tracing context differs: {name} is now {value} and before {old}"
        if name in CONTEXT
        else f"{name} is {value}, before {old}"
        for name, old, value in changed
        if old != value
    )
