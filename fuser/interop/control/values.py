"""Variables of a function as values that a loop carries or branches agree on: their leaves, and the kind of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fuser.interop.control.exits import PREFIX, RESULT
from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.selected import Selected
from fuser.interop.numpy.times import TimeArray
from fuser.interop.numpy.traced import Either, EitherInteger, TracedArray
from fuser.ir.types import ALL_DTYPES, ArrayType
from fuser.trace import tree

_NUMBERS = (bool, int, float, complex)
_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)
MOST_EXACT = 1 << 53  # up to which every int is a float64


class Differs(Exception):
    """A variable is of another kind after an iteration, or in another branch."""


class Kind(NamedTuple):
    """What all values of one leaf have in common."""

    shape: tuple[int, ...]
    dtype: np.dtype
    scalar: bool = True
    weak: type | None = None
    order: Any = None

    @property
    def aval(self) -> ArrayType:
        return ArrayType(self.shape, self.dtype)

    def array(self, context: Context, value: Any, guard: str = "") -> TracedArray:
        """The array of the traced function for a value of this kind."""
        return TracedArray(
            context, value, scalar=self.scalar, weak=self.weak, order=self.order, guard="" if self.scalar else guard
        )


def kind_of(leaf: Any, name: str) -> Kind:
    """The kind of a number or array; Differs where memory is laid out as no loop could keep it, UnsupportedError for anything else."""
    if isinstance(leaf, Selected):
        raise untraceable(f"{name} has a number of elements that depends on values, which a loop cannot carry")
    if type(leaf) is TracedArray:
        if leaf.scalar:
            return Kind((), leaf.dtype, True, leaf.weak)
        if leaf._base is not None or not (leaf.contiguous or leaf.order is not None):
            raise Differs(name)
        return Kind(leaf.shape, leaf.dtype, False, None, leaf.order)
    if type(leaf) in _NUMBERS and -(2**63) <= (leaf if type(leaf) is int else 0) < 2**63:
        return Kind((), np.asarray(leaf).dtype, True, type(leaf))
    if isinstance(leaf, np.generic) and leaf.dtype in ALL_DTYPES:
        return Kind((), leaf.dtype)
    raise untraceable(f"{name} is a {type(leaf).__name__} that differs between iterations or branches")


def leaves_of(value: Any, name: str) -> tuple[list[Any], Any]:
    """The leaves of a variable's value, and its structure."""
    try:
        return tree.flatten_as_filled(value)
    except (TypeError, ValueError):
        raise untraceable(f"{name} is a {type(value).__name__} that differs between iterations or branches") from None


def same(a: Any, b: Any) -> bool:
    """Whether two values of a variable surely are the same."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in (*_NUMBERS, str, bytes):
        return a == b and repr(a) == repr(b)
    if type(a) is tuple:
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is TimeArray:
        return a.dtype == b.dtype and same(a.ticks, b.ticks)
    if type(a) is TracedArray:
        return a.scalar and b.scalar and a.weak is b.weak and a.known and b.known and same(a.value[()], b.value[()])
    return issubclass(type(a), np.generic) and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def lifted(context: Context, leaf: Any, kind: Kind) -> Any:
    """A leaf as primitives take it."""
    if isinstance(leaf, TracedArray):
        return leaf.lifted(kind.dtype)
    return context.lift(np.asarray(leaf, kind.dtype), kind.dtype)


def is_exact(leaf: Any) -> bool:
    """Whether a leaf is an int that is known, and that a float64 holds."""
    return type(leaf) is int and abs(leaf) <= MOST_EXACT


def agreed(a: Kind, b: Kind, name: str, either: bool = True, exact: bool = False) -> Kind:
    """The kind that both have; Differs where they have none in common. With `either`, Python's numbers and NumPy's have,
    and if `exact`, ints that a float64 holds and floats.
    """
    if a == b:
        return a
    if either and exact and {a.dtype, b.dtype} == {_INT, _FLOAT} and a.scalar and b.scalar:
        return Kind((), _FLOAT, True, EitherInteger)
    alike = a.scalar and b.scalar and a.dtype == b.dtype
    if alike and name.startswith(PREFIX) and name != RESULT:
        return a._replace(weak=None)
    if alike and either:
        return a._replace(weak=EitherInteger if EitherInteger in (a.weak, b.weak) else Either)
    raise Differs(name)
