"""Slices, gathers and scatters of `fuser.lax`. Start indices that are traced clamp; negative ones count from the end."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.ir.dim import as_extent
from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType
from fuser.lax.movement import concatenate, expand_dims, reshape, squeeze
from fuser.lax.values import VALUES, as_value, axis_of, broadcast_to, convert, literal, wrapped_index
from fuser.ops import dynamic as D
from fuser.ops import indexing as I
from fuser.ops import movement as V
from fuser.ops import scatter as W
from fuser.ops.indexing import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from fuser.trace.core import bind, type_of

__all__ = ["GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers"]


def slice(
    operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Any:
    """The elements start:limit:stride of every dimension."""
    x = as_value(operand, "slice")
    starts, limits = (tuple(as_extent(i) for i in indices) for indices in (start_indices, limit_indices))
    steps = None if strides is None else tuple(as_extent(s) for s in strides)
    if starts == (0,) * x.ndim and limits == x.shape and (steps is None or all(s == 1 for s in steps)):
        return x
    return bind(V.slice_p, x, start_indices=starts, limit_indices=limits, strides=steps)


def slice_in_dim(operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0) -> Any:
    """The elements start:limit:stride of one dimension; None and negative bounds as in Python."""
    x = as_value(operand, "slice_in_dim")
    axis = axis_of(axis, x.ndim, "slice_in_dim")
    extent = x.shape[axis]
    low = 0 if start_index is None else start_index + extent if start_index < 0 else start_index
    high = extent if limit_index is None else limit_index + extent if limit_index < 0 else limit_index
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], limits[axis], strides[axis] = low, high, stride
    return slice(x, starts, limits, strides if stride != 1 else None)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """The slice at one static position of a dimension."""
    x = as_value(operand, "index_in_dim")
    axis = axis_of(axis, x.ndim, "index_in_dim")
    if not -x.shape[axis] <= index < x.shape[axis]:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {x.shape[axis]}")
    position = index % x.shape[axis]
    result = slice_in_dim(x, position, position + 1, 1, axis)
    return result if keepdims else squeeze(result, (axis,))


def _starts(function: str, x: Any, indices: Any) -> list[Any]:
    """Start indices as integer scalars of one dtype, negative ones made positive; unsigned ones stay as they are."""
    if isinstance(indices, (*VALUES, np.ndarray)):
        vector = as_value(indices, function)
        if vector.ndim != 1:
            raise TypeRuleError(f"{function} needs start indices in one dimension, got {type_of(vector)}")
        indices = [squeeze(slice_in_dim(vector, d, d + 1), (0,)) for d in range(vector.shape[0])]
    strong = {dtypes.canonical(i.dtype) for i in indices if hasattr(i, "dtype") and not getattr(i, "weak_type", False)}
    if len(strong) > 1:
        given = ", ".join(sorted(d.name for d in strong))
        raise TypeRuleError(f"index arguments to {function} must be integers of the same type, got: {given}")
    if len(indices) != x.ndim:
        raise TypeRuleError(f"{function} of {type_of(x)} needs {x.ndim} start indices, got {len(indices)}")
    if len(strong) == 1 and (dtype := min(strong)).kind == "u":
        return [_unsigned(function, i, extent, dtype) for i, extent in zip(indices, x.shape)]
    values = [_start(function, i, extent) for i, extent in zip(indices, x.shape)]
    wide = any(v.dtype.itemsize == 8 for v in values)
    return [convert(v, np.dtype("int64" if wide else "int32")) for v in values]


def _unsigned(function: str, index: Any, extent: int, dtype: np.dtype) -> Any:
    """A start beside unsigned ones; ints of Python may be negative, and then count from the end."""
    if not isinstance(index, int):
        return convert(_rank_zero(function, index), dtype)
    return literal(builtins.max(index + extent if index < 0 else index, 0), dtype)


def _start(function: str, index: Any, extent: int) -> Any:
    if isinstance(index, (int, np.integer)):
        position = as_extent(index)
        return literal(builtins.max(position + extent if position < 0 else position, 0), np.dtype("int32"))
    return as_value(wrapped_index(_rank_zero(function, index), extent))


def _rank_zero(function: str, index: Any) -> Any:
    value = as_value(index, function)
    if value.dtype.kind not in "iu" or value.ndim:
        raise TypeRuleError(
            f"{function} needs integer start indices of rank 0, got {ArrayType(value.shape, value.dtype)}"
        )
    return value


def dynamic_slice(
    operand: Any,
    start_indices: Any,
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Any:
    """A window of `slice_sizes` at computed start indices, moved inside where it would reach out."""
    x = as_value(operand, "dynamic_slice")
    starts = _starts("dynamic_slice", x, start_indices)
    return bind(D.dynamic_slice_p, x, *starts, slice_sizes=tuple(as_extent(s) for s in slice_sizes))


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True
) -> Any:
    """A window of one dimension at a computed start."""
    x = as_value(operand, "dynamic_slice_in_dim")
    axis = axis_of(axis, x.ndim, "dynamic_slice_in_dim")
    starts = [start_index if d == axis else 0 for d in range(x.ndim)]
    return dynamic_slice(x, starts, tuple(slice_size if d == axis else e for d, e in enumerate(x.shape)))


def dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True
) -> Any:
    """The slice at one computed position of a dimension."""
    x = as_value(operand, "dynamic_index_in_dim")
    result = dynamic_slice_in_dim(x, index, 1, axis)
    return result if keepdims else squeeze(result, (axis_of(axis, x.ndim),))


def dynamic_update_slice(
    operand: Any, update: Any, start_indices: Any, *, allow_negative_indices: bool | Sequence[bool] = True
) -> Any:
    """The operand with a window at computed start indices replaced."""
    x, new = as_value(operand, "dynamic_update_slice"), as_value(update, "dynamic_update_slice")
    return bind(D.dynamic_update_slice_p, x, new, *_starts("dynamic_update_slice", x, start_indices))


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Any:
    """The operand with a window of one dimension replaced."""
    x = as_value(operand, "dynamic_update_slice_in_dim")
    axis = axis_of(axis, x.ndim, "dynamic_update_slice_in_dim")
    return dynamic_update_slice(x, update, [start_index if d == axis else 0 for d in range(x.ndim)])


def dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Any:
    """The operand with the slice at one computed position of a dimension replaced."""
    x, new = as_value(operand, "dynamic_update_index_in_dim"), as_value(update, "dynamic_update_index_in_dim")
    axis = axis_of(axis, x.ndim, "dynamic_update_index_in_dim")
    return dynamic_update_slice_in_dim(x, new if new.ndim == x.ndim else expand_dims(new, (axis,)), index, axis)


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Any:
    """Windows of the operand at computed start indices; see `GatherDimensionNumbers` and `GatherScatterMode`."""
    chosen = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)
    return bind(
        I.gather_p,
        as_value(operand, "gather"),
        as_value(start_indices, "gather"),
        dimension_numbers=GatherDimensionNumbers(*(tuple(d) for d in dimension_numbers)),
        slice_sizes=tuple(as_extent(s) for s in slice_sizes),
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        mode=chosen,
        fill_value=fill_value if chosen is GatherScatterMode.FILL_OR_DROP else None,
    )


def _scatter(primitive: Primitive, text: str) -> Callable[..., Any]:
    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
    ) -> Any:
        return bind(
            primitive,
            as_value(operand, primitive.name),
            as_value(scatter_indices, primitive.name),
            as_value(updates, primitive.name),
            dimension_numbers=ScatterDimensionNumbers(*(tuple(d) for d in dimension_numbers)),
            indices_are_sorted=bool(indices_are_sorted),
            unique_indices=bool(unique_indices),
            mode=GatherScatterMode.from_any(mode),
            update_jaxpr=None,
            update_consts=(),
        )

    function.__name__ = function.__qualname__ = primitive.name.replace("-", "_")
    function.__doc__ = text
    return function


scatter = _scatter(
    W.scatter_p, "The operand with windows replaced by updates; of several updates of one element the last stays."
)
scatter_add = _scatter(W.scatter_add_p, "The operand with updates added.")
scatter_mul = _scatter(W.scatter_mul_p, "The operand multiplied by updates.")
scatter_min = _scatter(W.scatter_min_p, "The operand brought down to updates.")
scatter_max = _scatter(W.scatter_max_p, "The operand brought up to updates.")


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Any:
    """The operand with `func`, a function of one element, applied to the windows at computed indices, as often as they name it.

    `update_shape` is the shape that updates of `scatter` would have there.
    """
    from fuser.numpy.at import repeated

    x, shape = as_value(operand, "scatter_apply"), tuple(as_extent(e) for e in update_shape)
    none, one = (literal(n, np.dtype("int32")) for n in (0, 1))
    options = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
    times = scatter_add(
        broadcast_to(none, x.shape), scatter_indices, broadcast_to(one, shape), dimension_numbers, **options
    )
    return repeated(func, x, times, unique_indices)


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    """The slices of `src` at vectors of indices into `axes`, stacked along a first dimension."""
    x = as_value(src, "index_take")
    columns = [as_value(wrapped_index(as_value(i, "index_take"), x.shape[d])) for i, d in zip(idxs, axes)]
    indices = concatenate([reshape(c, (c.shape[0], 1)) for c in columns], 1)
    sizes = tuple(1 if d in axes else e for d, e in enumerate(x.shape))
    numbers = GatherDimensionNumbers(tuple(range(1, x.ndim - len(axes) + 1)), tuple(axes), tuple(axes))
    return gather(x, indices, numbers, sizes, mode=GatherScatterMode.CLIP)
