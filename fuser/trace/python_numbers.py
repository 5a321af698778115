"""Which Arrays stand for a number of Python's, so that Python functions outside of traces get and give the number itself.

Transforms and functions with rules work on Arrays; a rule that computes with numbers, or looks something up by one, sees numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from fuser.runtime.array import Array

_NUMBERS = (bool, int, float, complex)
_known: dict[int, tuple[Any, Any]] = {}  # by identity of the Array: a reference that ends with it, and the number


def standing_for(number: Any, value: Any) -> Any:
    """`value`, remembered as what stands for `number` where that is Python's and this an Array."""
    if type(number) in _NUMBERS and type(value) is Array:
        key = id(value)
        _known[key] = weakref.ref(value, lambda _: _known.pop(key, None)), number
    return value


def as_given(value: Any) -> Any:
    """The number that an Array stands for; other values as they are."""
    known = _known.get(id(value)) if _known else None
    return value if known is None or known[0]() is not value else known[1]


def all_as_given(values: Sequence[Any]) -> list[Any]:
    """`as_given` of each."""
    return [as_given(v) for v in values] if _known else list(values)
