"""`x.at[index].set(value)` and its relatives: updates of some elements that give a new array, by scatters.

Indices out of bounds are dropped unless `mode` says otherwise; a value is promoted for the arithmetic and the result
has the dtype of `x`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.ir.primitive import Primitive
from fuser.ir.types import BOOL, is_complex
from fuser.lax.values import as_value, broadcast_to, convert, literal, promote
from fuser.numpy import ufuncs as U
from fuser.numpy.indexing import Plan, parse, plan_of, take_index
from fuser.ops import indexing as I
from fuser.ops import movement as V
from fuser.ops import scatter as W
from fuser.trace.core import bind


class IndexUpdateHelper:
    """What `x.at` is: index it to say which elements an update is for."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)

    def __repr__(self) -> str:
        return f"IndexUpdateHelper({self.array!r})"


def scatter(primitive: Primitive, x: Any, index: Any, value: Any, mode: Any, sorted: bool, unique: bool) -> Any:
    """`x` with `value` written (or folded in) at `index`."""
    value = _value(x, value)
    if not _safe(value.dtype, value.weak_type, x.dtype):
        warnings.warn(
            f"a value of dtype {value.dtype.name} is cut to the array's {x.dtype.name}; convert it with astype",
            FutureWarning,
            stacklevel=4,
        )
    entries = parse(index, x.shape)
    plan = plan_of(entries, x.shape)
    if 0 in plan.result_shape or 0 in x.shape:
        return x
    operand, update = promote("scatter", x, value)
    update = _aligned(update, plan)
    if plan.fresh:
        operand = bind(V.reshape_p, operand, new_sizes=(1,) * len(plan.fresh) + x.shape, dimensions=None)
    result = bind(
        primitive,
        operand,
        plan.indices,
        update,
        dimension_numbers=I.ScatterDimensionNumbers(*plan.numbers),
        indices_are_sorted=sorted or plan.unique,
        unique_indices=unique or plan.unique,
        mode=I.GatherScatterMode.from_any(mode),
        update_jaxpr=None,
        update_consts=(),
    )
    if plan.fresh:
        result = bind(V.reshape_p, result, new_sizes=x.shape, dimensions=None)
    return _back(result, x)


def _value(x: Any, value: Any) -> Any:
    if type(value) is int and x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        if info.min <= value <= info.max:
            return literal(value, x.dtype)
    from fuser.numpy.creation import asarray

    return asarray(value)


def _safe(dtype: np.dtype, weak: bool, target: np.dtype) -> bool:
    if weak:
        return dtypes.result_of((dtype, True), (target, False))[0] == target or dtype.kind in "biu"
    return bool(
        dtypes.result_of((dtype, False), (target, False))[0] == target or (dtype.kind in "iu" and target.kind in "iu")
    )


def _aligned(update: Any, plan: Plan) -> Any:
    shape = plan.result_shape
    if len(update.shape) > len(shape) or any(e not in (1, w) for e, w in zip(update.shape[::-1], shape[::-1])):
        raise ValueError(
            f"a value of shape {update.shape} does not broadcast to the shape {shape} of the indexed elements"
        )
    update = broadcast_to(update, shape)
    if plan.new:
        update = bind(V.squeeze_p, update, dimensions=plan.new)
    return bind(V.rev_p, update, dimensions=plan.reversed) if plan.reversed else update


def _back(result: Any, x: Any) -> Any:
    if is_complex(result.dtype) and not is_complex(x.dtype):
        from fuser.numpy.maths import real

        result = real(result)
    return convert(result, x.dtype, x.weak_type)


def _update(name: str, primitive: Primitive, text: str) -> Callable[..., Any]:
    def method(
        self: IndexUpdateRef,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        **unused: Any,
    ) -> Any:
        return scatter(primitive, self.array, self.index, values, mode, indices_are_sorted, unique_indices)

    method.__name__, method.__doc__ = name, text
    return method


class IndexUpdateRef:
    """What `x.at[index]` is: its methods give new arrays."""

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"IndexUpdateRef({self.array!r}, {self.index!r})"

    def get(self, *, mode: Any = None, fill_value: Any = None, **unused: Any) -> Any:
        """`x[index]` with `mode` for indices out of bounds ("clip", "fill") and the value that "fill" gives."""
        return take_index(self.array, self.index, mode, fill_value)

    set = _update("set", W.scatter_p, "`x` with x[index] = values.")
    add = _update("add", W.scatter_add_p, "`x` with x[index] += values; repeated indices add up.")
    multiply = mul = _update("multiply", W.scatter_mul_p, "`x` with x[index] *= values; repeated indices multiply.")
    min = _update("min", W.scatter_min_p, "`x` with x[index] = minimum(x[index], values).")
    max = _update("max", W.scatter_max_p, "`x` with x[index] = maximum(x[index], values).")

    def subtract(self, values: Any, **options: Any) -> Any:
        """`x` with x[index] -= values."""
        return self.add(U.negative(values), **options)

    sub = subtract

    def divide(self, values: Any, **options: Any) -> Any:
        """`x` with x[index] /= values."""
        quotient = U.divide(self.array, IndexUpdateRef(_ones(self.array), self.index).mul(values, **options))
        return _back(quotient, self.array)

    def power(self, values: Any, **options: Any) -> Any:
        """`x` with x[index] **= values."""
        return _back(
            U.power(self.array, IndexUpdateRef(_ones(self.array), self.index).mul(values, **options)), self.array
        )

    def apply(
        self,
        func: Callable[[Any], Any],
        *,
        mode: Any = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        **unused: Any,
    ) -> Any:
        """`x` with x[index] = func(x[index]); an element that is named twice is taken once."""
        current = take_index(self.array, self.index, "clip" if mode is None else mode)
        value = as_value(func(current))
        return scatter(
            W.scatter_p,
            self.array,
            self.index,
            convert(value, self.array.dtype),
            mode,
            indices_are_sorted,
            unique_indices,
        )


def _ones(x: Any) -> Any:
    if x.dtype == BOOL:
        raise TypeError("at[...].divide and power take numbers, got bools")
    return broadcast_to(literal(1, x.dtype), x.shape)
