"""What differentiation passes between rules: symbolic zeros, and the places that a transpose is to fill.

`Zero` is a tangent or cotangent that is known to be zero; `Undefined` stands for the operand of a linear equation whose
cotangent is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.dim import Dim
from fuser.ir.primitive import REGISTRY
from fuser.ir.references import AbstractRef
from fuser.ir.types import ArrayType, float0, is_inexact
from fuser.runtime.array import Array
from fuser.runtime.reference import Ref
from fuser.trace.core import Tracer, bind, type_of
from fuser.trace.hoisting import number


class Zero:
    """A tangent or cotangent of zeros for a value of type `aval`."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Zero({self.aval})"


class Undefined:
    """An operand without a value: the linear one, whose cotangent a transpose rule returns."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Undefined({self.aval})"


def as_array(value: Any) -> Any:
    """Tracers and Arrays as they are, NumPy values as Arrays."""
    return value if isinstance(value, (Array, Tracer)) or type(value) is Ref else number(Array(np.asarray(value)))


def full(aval: ArrayType, value: Any) -> Any:
    """An array of this type with one value everywhere."""
    if type(value) is Dim:
        found = value.__jax_array__()
        result: Any = bind(REGISTRY["convert_element_type"], found, new_dtype=aval.dtype, weak_type=aval.weak_type)
    else:
        result = number(Array(np.asarray(value).astype(aval.dtype), aval.weak_type))
    if aval.shape:
        result = bind(REGISTRY["broadcast_in_dim"], result, shape=aval.shape, broadcast_dimensions=())
    return bind(REGISTRY["pvary"], result, axes=tuple(sorted(aval.vma, key=str))) if aval.vma else result


def zeros(aval: ArrayType) -> Any:
    """Zeros of this type; float0 for a type without derivative."""
    if not differentiable(aval):
        return np.zeros(aval.shape, float0)
    return full(aval, 0)


def instantiate(tangent: Any) -> Any:
    """The tangent as an array, also where it is a symbolic zero."""
    return zeros(tangent.aval) if type(tangent) is Zero else tangent


def differentiable(aval: ArrayType) -> bool:
    """Whether values of this type have tangents: floats and complex numbers do."""
    return type(aval) is not AbstractRef and is_inexact(aval.dtype)


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents of one type."""
    if type(x) is Zero:
        return y
    if type(y) is Zero:
        return x
    return bind(REGISTRY["add"], x, y)


def zero_like(value: Any) -> Zero:
    """A symbolic zero for a value."""
    return Zero(type_of(value))


def all_zero(tangents: Sequence[Any]) -> bool:
    return all(type(t) is Zero for t in tangents)
