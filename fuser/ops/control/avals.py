"""Types of control flow: what a body takes and gives, and the types of stacked arrays and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fuser.errors import TypeRuleError
from fuser.ir.types import ArrayType

Params = dict[str, Any]
Samples = Iterator[tuple[tuple[Any, ...], Params]]


def same(found: Sequence[ArrayType], expected: Sequence[ArrayType]) -> bool:
    """Whether shapes and dtypes agree; weak types are nobody's concern once a graph exists."""
    return [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in expected]


def require(what: str, found: Sequence[ArrayType], expected: Sequence[ArrayType]) -> None:
    if not same(found, expected):
        raise TypeRuleError(f"{what} takes ({', '.join(map(str, expected))}), got ({', '.join(map(str, found))})")


def row_type(aval: ArrayType) -> ArrayType:
    """The type of one step's part of a stacked array."""
    return aval.without(0)


def stacked(aval: ArrayType, length: int) -> ArrayType:
    """The type of `length` values of a type, along a new leading dimension."""
    return aval.along(0, length)
