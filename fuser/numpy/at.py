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
from fuser.ir.types import is_complex, short_dtype
from fuser.lax.layouts import sharded
from fuser.lax.values import as_value, broadcast_to, concrete, convert, literal, promote
from fuser.numpy import ufuncs as U
from fuser.numpy.indexing import Plan, parse, plan_of, take_index
from fuser.ops import elementwise as E
from fuser.ops import indexing as I
from fuser.ops import movement as V
from fuser.ops import scatter as W
from fuser.trace.core import EVALUATION, bind, using


class IndexUpdateHelper:
    """What `x.at` is: index it to say which elements an update is for."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)

    def __repr__(self) -> str:
        return f"IndexUpdateHelper({self.array!r})"


def scatter(
    primitive: Primitive, x: Any, index: Any, value: Any, mode: Any, sorted: bool, unique: bool, wrap: bool = True
) -> Any:
    """`x` with `value` written (or combined) at `index`."""
    value = _value(x, value)
    if not _safe(value.dtype, value.weak_type, x.dtype):
        warnings.warn(
            f"a value of dtype {value.dtype.name} is cut to the array's {x.dtype.name}; convert it with astype",
            FutureWarning,
            stacklevel=4,
        )
    plan = plan_of(parse(index, x.shape, wrap), x.shape)
    if 0 in plan.result_shape or 0 in x.shape:
        return x
    operand, update = promote("scatter", x, value)
    return _back(_bound(primitive, operand, update, plan, mode, sorted, unique), x)


def _bound(primitive: Primitive, operand: Any, update: Any, plan: Plan, mode: Any, sorted: bool, unique: bool) -> Any:
    """The scatter of a plan; operand and update have one dtype."""
    shape = operand.shape
    update = _aligned(update, plan)
    if plan.fresh:
        operand = bind(V.reshape_p, operand, new_sizes=(1,) * len(plan.fresh) + shape, dimensions=None)
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
    return bind(V.reshape_p, result, new_sizes=shape, dimensions=None) if plan.fresh else result


def _applied(function: Callable[[Any], Any], x: Any, plan: Plan, mode: Any, unique: bool) -> Any:
    """`x` with `function` applied to each element as often as the plan names it."""
    once = unique or plan.unique
    integer = np.dtype("int32")
    most: Any = None
    if not once and concrete(plan.indices):  # known while tracing: the loop gets a static length, and a derivative
        with using(EVALUATION):
            times = _times(x.shape, plan, mode, False)
        most = int(np.asarray(times).max())
        once = most <= 1
    else:
        times = _times(x.shape, plan, mode, once)

    def step(number: Any, value: Any) -> Any:
        return bind(E.select_n_p, U.less(number, times), value, _elementwise(function, value))

    if once:
        return step(literal(0, integer), x)
    from fuser.lax.control import fori_loop
    from fuser.numpy.reductions import max

    return fori_loop(literal(0, integer), most if most is not None else max(times), step, x)


def _times(shape: tuple[int, ...], plan: Plan, mode: Any, unique: bool) -> Any:
    """How often the plan names each element of an array of `shape`."""
    none, one = (literal(n, np.dtype("int32")) for n in (0, 1))
    return _bound(W.scatter_add_p, broadcast_to(none, shape), one, plan, mode, unique, unique)


def _elementwise(function: Callable[[Any], Any], x: Any) -> Any:
    """`function`, which takes one element, on each element of `x`."""
    from fuser.transforms.vmap import vmap

    for _ in x.shape:
        function = vmap(function)
    result = as_value(function(x), "apply")
    if result.shape != x.shape or result.dtype != x.dtype:
        raise TypeError(
            f"at[...].apply takes a function from {short_dtype(x.dtype)}[] to {short_dtype(x.dtype)}[], as it is applied to one "
            f"element at a time; for {x.dtype.name}{list(x.shape)} it gives {result.dtype.name}{list(result.shape)}"
        )
    return convert(result, x.dtype, x.weak_type)


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
        out_sharding: None = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        x = self.array
        return scatter(
            primitive, x, self.index, values, mode, indices_are_sorted, unique_indices, wrap_negative_indices
        )

    method.__name__, method.__doc__ = name, text
    return sharded(method)


class IndexUpdateRef:
    """What `x.at[index]` is: its methods give new arrays.

    `mode` says what happens to indices out of bounds; with `wrap_negative_indices=False` negative ones are out of bounds.
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"IndexUpdateRef({self.array!r}, {self.index!r})"

    @sharded
    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        fill_value: Any = None,
        out_sharding: None = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """`x[index]` with `mode` for indices out of bounds ("clip", "fill") and the value that "fill" gives."""
        return take_index(self.array, self.index, mode, fill_value, wrap_negative_indices)

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
        """x / y in floating point, where y has `values` at the index (those of repeated indices multiplied), else 1."""
        return U.divide(self.array, IndexUpdateRef(_ones(self.array), self.index).mul(values, **options))

    def power(self, values: Any, **options: Any) -> Any:
        """x ** y, where y has `values` at the index (those of repeated indices multiplied), else 1."""
        return U.power(self.array, IndexUpdateRef(_ones(self.array), self.index).mul(values, **options))

    def apply(
        self,
        func: Callable[[Any], Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """`x` with `func`, which takes one element, applied to x[index]; as often as an element is named."""
        x = self.array
        plan = plan_of(parse(self.index, x.shape, wrap_negative_indices), x.shape)
        return x if 0 in plan.result_shape or 0 in x.shape else _applied(func, x, plan, mode, unique_indices)


def _ones(x: Any) -> Any:
    return broadcast_to(literal(1, x.dtype, x.weak_type), x.shape)
