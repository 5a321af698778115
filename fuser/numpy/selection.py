"""Choosing elements by positions or conditions: take, take_along_axis, select, and the positions that `repeat` needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.ir.dim import as_extent
from fuser.ir.extents import common_shape
from fuser.lax.values import as_value, axis_of, broadcast_to, concrete, convert, literal, promote, wrapped_index
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import asarray, full_like, iota
from fuser.numpy.indexing import Entry, gathered
from fuser.ops import indexing as I
from fuser.trace.core import Tracer, bind

_MODES = {
    None: I.GatherScatterMode.FILL_OR_DROP,
    "fill": I.GatherScatterMode.FILL_OR_DROP,
    "clip": I.GatherScatterMode.CLIP,
}


def take(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str | None = None, unique_indices: bool = False,
    indices_are_sorted: bool = False, fill_value: Any = None,
) -> Any:  # fmt: skip
    """The elements (or slices along `axis`) at `indices`; out of bounds it reads nan or the extreme integer, or as `mode` says."""
    x = as_value(a, "take")
    positions = asarray(indices) if isinstance(indices, (list, tuple)) else as_value(indices, "take")
    if axis is None:
        x, axis = V.ravel(x), 0
    axis = axis_of(axis, x.ndim, "take")
    extent = x.shape[axis]
    if positions.dtype.kind not in "iu":
        raise TypeRuleError(f"take needs integer indices, got {positions.dtype.name}; convert them first")
    if not extent:
        if positions.size:
            raise IndexError("take cannot read from an axis of extent 0")
        return x
    if mode == "wrap":
        positions, chosen = M.remainder(positions, extent), I.GatherScatterMode.PROMISE_IN_BOUNDS
    elif mode in _MODES:
        chosen = _MODES[mode]
        if mode != "clip":
            positions = wrapped_index(positions, extent)
    else:
        raise ValueError(f"take knows the modes fill, clip and wrap, got {mode!r}")
    kind = "array" if np.ndim(positions) else "scalar"
    entries = [Entry(kind, d, positions) if d == axis else Entry("slice", d, (0, e, 1)) for d, e in enumerate(x.shape)]
    return gathered(x, entries, chosen, fill_value)


def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: Any = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Any:
    """The elements at `indices` along `axis`, position by position; the other dimensions match or broadcast.

    Negative indices count from the end unless `wrap_negative_indices` is False, as it is by default with mode
    "promise_in_bounds": there they are out of bounds.
    """
    if wrap_negative_indices is None:
        wrap_negative_indices = mode != "promise_in_bounds"
    x, positions = as_value(arr, "take_along_axis"), as_value(indices, "take_along_axis")
    if positions.dtype.kind not in "iu":
        raise TypeError(
            f"take_along_axis indices must be of integer type, got {positions.dtype.name}; convert them first"
        )
    if axis is None:
        if positions.ndim != 1:
            raise ValueError(
                f"take_along_axis with axis=None needs indices of 1 dimension, got shape {positions.shape}"
            )
        x, axis = V.ravel(x), 0
    if x.ndim != positions.ndim:
        raise ValueError(
            f"take_along_axis needs as many dimensions in the array and the indices, got {x.ndim} and {positions.ndim}"
        )
    axis = axis_of(axis, x.ndim, "take_along_axis")
    rest = common_shape(*(tuple(1 if d == axis else e for d, e in enumerate(s)) for s in (x.shape, positions.shape)))
    positions = broadcast_to(positions, tuple(positions.shape[axis] if d == axis else e for d, e in enumerate(rest)))
    x = broadcast_to(x, tuple(x.shape[axis] if d == axis else e for d, e in enumerate(rest)))
    if not x.shape[axis]:
        return full_like(x, 0, shape=positions.shape)
    return _gather_along(x, positions, axis, mode, fill_value, wrap_negative_indices)


def _gather_along(x: Any, positions: Any, axis: int, mode: Any, fill_value: Any, wrap: bool = True) -> Any:
    others = tuple(d for d in range(x.ndim) if d != axis)
    numbers = I.GatherDimensionNumbers((), (axis,), (axis,), others, others)
    positions = asarray(wrapped_index(positions, x.shape[axis], wrap))
    return bind(
        I.gather_p,
        x,
        V.expand_dims(positions, positions.ndim),
        dimension_numbers=numbers,
        slice_sizes=(1,) * x.ndim,
        indices_are_sorted=False,
        unique_indices=False,
        mode=I.GatherScatterMode.from_any(mode),
        fill_value=fill_value,
    )


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *, mode: str | None = None
) -> Any:
    """A new array with `values` at `indices` along `axis`; arrays are immutable, so `inplace` must be False."""
    if inplace:
        raise ValueError("put_along_axis cannot change an immutable array; pass inplace=False and use the result")
    x, positions = as_value(arr), as_value(indices)
    if axis is None:
        return V.reshape(V.ravel(x).at[positions].set(V.ravel(values), mode=mode), x.shape)
    axis = axis_of(axis, x.ndim, "put_along_axis")
    shape = tuple(positions.shape[d] if d == axis else e for d, e in enumerate(x.shape))
    index = tuple(broadcast_to(positions, shape) if d == axis else iota(shape, d) for d in range(x.ndim))
    return x.at[index].set(broadcast_to(as_value(values), shape), mode=mode)


def repeat_positions(repeats: Any, extent: int, total: int | None) -> Any:
    """For each element of the result of `repeat`, the element of the operand that it is."""
    counts = as_value(np.asarray(repeats) if isinstance(repeats, (list, tuple)) else repeats, "repeat")
    counts = broadcast_to(V.ravel(counts), (extent,))
    if total is None:
        if not concrete(counts):
            raise (
                counts._refuse("repeat without total_repeat_length")
                if isinstance(counts, Tracer)
                else TypeError("repeat needs counts")
            )
        return np.repeat(np.arange(extent, dtype=np.int32), np.asarray(counts))
    from fuser.numpy.reductions import cumsum

    ends = cumsum(counts)
    marks = (
        broadcast_to(literal(0, np.dtype("int32")), (total,)).at[ends[:-1]].add(1)
        if extent > 1
        else iota((total,), 0) * 0
    )
    return cumsum(marks)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """At each position the choice of the first condition that holds, else `default`."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"select needs as many choices as conditions and at least one, got {len(choicelist)} and {len(condlist)}"
        )
    *choices, result = promote("select", *choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choices)):
        result = M.where(condition, choice, result)
    return result


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """At each position the function (or value) of the last condition that holds; one more function serves the rest, else 0."""
    x = as_value(x, "piecewise")
    conditions = [asarray(c) for c in condlist] if isinstance(condlist, (list, tuple)) else [asarray(condlist)]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ValueError(
            f"piecewise with {len(conditions)} conditions needs {len(conditions)} or {len(conditions) + 1} functions, got {len(funclist)}"
        )
    default = funclist[-1] if len(funclist) > len(conditions) else 0
    result = _apply(default, x, args, kw)
    for condition, function in zip(conditions, funclist):
        result = M.where(condition, _apply(function, x, args, kw), result)
    return result


def _apply(function: Any, x: Any, args: Any, kw: Any) -> Any:
    value = function(x, *args, **kw) if callable(function) else function
    return convert(broadcast_to(asarray(value), x.shape), x.dtype)


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """At each position the element of the array that `a` numbers; "clip" and "wrap" bring numbers into range."""
    positions = as_value(a, "choose")
    options = [asarray(c) for c in choices]
    if mode == "clip":
        positions = M.clip(positions, 0, len(options) - 1)
    elif mode == "wrap":
        positions = M.remainder(positions, len(options))
    elif mode != "raise":
        raise ValueError(f"mode={mode!r} not understood. Must be 'raise', 'wrap', or 'clip'")
    elif isinstance(positions, Tracer):
        hint = "The error occurred because jnp.choose was jit-compiled with mode='raise'. Use mode='wrap' or mode='clip' instead."
        raise positions._refuse("choose", hint)
    elif positions.size and not (np.asarray(positions).min() >= 0 and np.asarray(positions).max() < len(options)):
        raise ValueError(f"invalid entry in choice array: choose got a number outside 0 … {len(options) - 1}")
    values = promote("choose", *options)
    result = values[-1]
    for number in range(len(values) - 2, -1, -1):
        result = M.where(U.equal(positions, number), values[number], result)
    return broadcast_to(result, common_shape(positions.shape, *(v.shape for v in values)))


def compress(
    condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0, out: None = None
) -> Any:
    """The slices along `axis` where `condition` holds; its values must be known unless `size` is given."""
    from fuser.numpy.sets import nonzero

    x = as_value(a, "compress")
    if axis is None:
        x, axis = V.ravel(x), 0
    (positions,) = nonzero(
        as_value(condition) if not isinstance(condition, (list, tuple)) else asarray(condition),
        size=size,
        fill_value=x.shape[axis],
    )
    return take(x, positions, axis=axis, mode="fill", fill_value=fill_value)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The elements where `condition` holds, in one dimension."""
    return compress(V.ravel(condition), V.ravel(arr), size=size, fill_value=fill_value)


def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Positions in a flattened array as one position a dimension of `shape`; out of bounds they clip."""
    positions = as_value(indices, "unravel_index")
    several = isinstance(shape, (tuple, list)) or np.ndim(shape) > 0
    extents = tuple(as_extent(e) for e in shape) if several else (as_extent(shape),)
    total = math.prod(extents)
    positions = M.clip(M.where(U.less(positions, 0), U.add(positions, total), positions), 0, total - 1)
    result = []
    for extent in reversed(extents):
        result.append(M.remainder(positions, extent))
        positions = M.floor_divide(positions, extent)
    return tuple(reversed(result))


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise", order: str = "C", *, dtype: Any = None
) -> Any:
    """One position a dimension as positions in the flattened array, of `dtype` where given.

    "clip" and "wrap" bring positions into range, "ignore" takes them as they are, and "raise", for known ones, is a ValueError.
    """
    if order not in ("C", "F"):
        raise ValueError(f'ravel_multi_index takes order "C" or "F", got {order!r}')
    pairs = list(zip((as_value(i) for i in multi_index), dims))
    if dtype is not None:
        wanted = dtypes.requested(dtype, "ravel_multi_index")
        pairs = [(convert(positions, wanted), extent) for positions, extent in pairs]
    total: Any = 0
    for positions, extent in pairs if order == "C" else reversed(pairs):
        if mode == "ignore":
            pass
        elif mode == "clip":
            positions = M.clip(positions, 0, extent - 1)
        elif mode == "wrap":
            positions = M.remainder(positions, extent)
        elif isinstance(positions, Tracer):
            raise positions._refuse('ravel_multi_index with mode="raise"')
        elif np.any((np.asarray(positions) < 0) | (np.asarray(positions) >= extent)):
            raise ValueError(
                f"invalid entry in coordinates array: ravel_multi_index takes indices from 0 to {extent - 1} here, or another mode"
            )
        total = U.add(U.multiply(total, extent), positions)
    return total
