"""Movement and creation of `fuser.lax`: shapes are given in full, and every dimension by its number."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.ir.dim import as_extent
from fuser.ir.types import ArrayType
from fuser.lax.layouts import like_it
from fuser.lax.values import as_value, axes_of, axis_of, convert, strict
from fuser.lax.values import broadcast_shapes as _broadcast_shapes
from fuser.lax.values import broadcast_to as _broadcast_to
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.trace.core import bind, type_of


def _extents(shape: Any) -> tuple[int, ...]:
    return tuple(as_extent(e) for e in shape)


def broadcast(operand: Any, sizes: Sequence[int], *, out_sharding: None = None) -> Any:
    """The operand repeated along new leading dimensions."""
    x = as_value(operand, "broadcast")
    return _broadcast_to(x, (*_extents(sizes), *x.shape))


def broadcast_in_dim(
    operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int], *, out_sharding: None = None
) -> Any:
    """The operand's dimensions put at `broadcast_dimensions` of `shape`, and repeated along the others."""
    x, shape, dims = as_value(operand, "broadcast_in_dim"), _extents(shape), _extents(broadcast_dimensions)
    if x.shape == shape and dims == tuple(range(len(shape))):
        return x
    order = sorted(range(len(dims)), key=dims.__getitem__)
    if len(dims) == x.ndim and order != list(range(len(dims))):  # dimensions in another order are moved first
        x, dims = transpose(x, order), tuple(sorted(dims))
    return bind(V.broadcast_in_dim_p, x, shape=shape, broadcast_dimensions=dims)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that all shapes broadcast to."""
    return _broadcast_shapes(*shapes)


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """The array with leading dimensions of extent 1, up to `rank`."""
    x = as_value(x, "broadcast_to_rank")
    return expand_dims(x, range(rank - x.ndim))


def reshape(
    operand: Any, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, *, out_sharding: None = None
) -> Any:
    """The elements in another shape; `dimensions` is an order in which they are read."""
    x, shape = as_value(operand, "reshape"), _extents(new_sizes)
    if dimensions is not None and tuple(dimensions) != tuple(range(x.ndim)):
        x = transpose(x, dimensions)
    return x if x.shape == shape else bind(V.reshape_p, x, new_sizes=shape, dimensions=None)


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """New dimensions of extent 1 at these positions of the result."""
    x = as_value(array, "expand_dims")
    positions = axes_of(tuple(dimensions), x.ndim + len(tuple(dimensions)), "expand_dims")
    rank = x.ndim + len(positions)
    kept = tuple(d for d in range(rank) if d not in positions)
    extents = iter(x.shape)
    return broadcast_in_dim(x, tuple(1 if d in positions else next(extents) for d in range(rank)), kept)


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    """Without these dimensions, which have extent 1."""
    x = as_value(array, "squeeze")
    if dimensions is None:
        raise TypeError("squeeze takes its dimensions as a sequence of integers, got None; see fuser.numpy.squeeze")
    axes = tuple(sorted(axes_of(tuple(dimensions), x.ndim, "squeeze")))
    if any(x.shape[d] != 1 for d in axes):
        raise TypeRuleError(
            "cannot select an axis to squeeze out which has size not equal to one, got "
            f"shape={tuple(x.shape)} and dimensions={axes}"
        )
    return bind(V.squeeze_p, x, dimensions=axes) if axes else x


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """The dimensions start … stop - 1 made one."""
    x = as_value(operand, "collapse")
    low, high, _ = builtins.slice(start_dimension, stop_dimension).indices(x.ndim)
    if high < low:
        raise TypeRuleError(f"collapse needs start <= stop, got {start_dimension} and {stop_dimension}")
    return reshape(x, (*x.shape[:low], math.prod(x.shape[low:high]), *x.shape[high:]))


def transpose(operand: Any, permutation: Sequence[int]) -> Any:
    """The dimensions in another order."""
    x, order = as_value(operand, "transpose"), _extents(permutation)
    return x if order == tuple(range(x.ndim)) else bind(V.transpose_p, x, permutation=order)


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """The elements in reverse order along these dimensions."""
    x = as_value(operand, "rev")
    return bind(V.rev_p, x, dimensions=_extents(dimensions)) if len(tuple(dimensions)) else x


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    """The operands, of one dtype, one after the other."""
    values = [as_value(o, "concatenate") for o in operands]
    if not values:
        raise TypeRuleError("concatenate needs at least one operand")
    return values[0] if len(values) == 1 else bind(V.concatenate_p, *values, dimension=as_extent(dimension))


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """The operand with (low, high, interior) elements of padding a dimension; negative ones cut."""
    x, value = strict("pad", operand, padding_value)
    return bind(V.pad_p, x, value, padding_config=tuple(_extents(c) for c in padding_config))


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Any]:
    """The operand cut along `axis` into parts of these sizes, which must add up to its extent (ValueError)."""
    x, extents = as_value(operand, "split"), _extents(sizes)
    position = axis_of(axis, x.ndim, "split")
    if sum(extents) != x.shape[position] and all(e >= 0 for e in extents):
        raise ValueError(
            f"Sum of sizes {sum(extents)} must be equal to dimension {position} of the operand shape {x.shape}"
        )
    return list(bind(V.split_p, x, sizes=extents, axis=position))


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """The operand repeated so often along each dimension."""
    x, times = as_value(operand, "tile"), _extents(reps)
    if len(times) != x.ndim:
        raise TypeRuleError(f"tile of {type_of(x)} needs {x.ndim} repetitions, got {times}")
    spread = reshape(x, tuple(e for extent in x.shape for e in (1, extent)))
    wide = _broadcast_to(spread, tuple(e for t, extent in zip(times, x.shape) for e in (t, extent)))
    return reshape(wide, tuple(t * e for t, e in zip(times, x.shape)))


# Creation.


def iota(dtype: Any, size: int) -> Any:
    """0, 1, …, size - 1."""
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int, *, out_sharding: None = None) -> Any:
    """The index along one dimension, at every position of `shape`."""
    shape = _extents(shape)
    return bind(V.iota_p, dtype=dtypes.canonical(dtype), shape=shape, dimension=axis_of(dimension, len(shape), "iota"))


def full(shape: Sequence[int], fill_value: Any, dtype: Any = None, *, sharding: None = None) -> Any:
    """An array filled with one number."""
    if np.ndim(fill_value):
        raise TypeRuleError(f"full takes a scalar, got shape {np.shape(fill_value)}; use broadcast_in_dim")
    value = as_value(fill_value, "full")
    wanted = value.dtype if dtype is None else dtypes.requested(dtype, "full")
    return _broadcast_to(convert(value, wanted, dtype is None and value.weak_type), _extents(shape))


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, shape: Sequence[int] | None = None, sharding: None = None
) -> Any:
    """An array filled with one number, with the shape and dtype of `x` unless given."""
    like = x if isinstance(x, ArrayType) else as_value(x, "full_like")
    weak = dtype is None and like.weak_type
    wanted = like.dtype if dtype is None else dtypes.requested(dtype, "full_like")
    result = _broadcast_to(
        convert(as_value(fill_value, "full_like"), wanted, weak), like.shape if shape is None else _extents(shape)
    )
    return like_it(result, x) if shape is None else result


def empty(shape: Sequence[int], dtype: Any, *, out_sharding: None = None) -> Any:
    """An array of zeros."""
    return full(shape, 0, dtype)


def copy(x: Any) -> Any:
    """An array with memory of its own."""
    return bind(E.copy_p, as_value(x, "copy"))
