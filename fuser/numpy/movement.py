"""Movement of elements: reshaping, transposing, joining, splitting, flipping, repeating. No arithmetic on values.

Each function becomes the fewest movement primitives, which cost nothing inside a kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.dim import Dim, as_extent
from fuser.lax.values import as_value, axes_given, axes_of, axis_of, convert, literal
from fuser.lax.values import broadcast_to as _broadcast
from fuser.numpy import maths as M
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import _shape, asarray, common_arrays
from fuser.ops import movement as V
from fuser.ops.dynamic import dynamic_slice_p
from fuser.trace.core import Tracer, bind


def reshape(
    a: Any,
    shape: Any = None,
    order: str = "C",
    *,
    newshape: Any = None,
    copy: bool | None = None,
    out_sharding: Any = None,
) -> Any:
    """The elements of `a` in another shape; one extent may be -1. `order` "F" counts the first dimension fastest."""
    x = as_value(a, "reshape")
    wanted = _resolve(x, shape if newshape is None else newshape)
    if order == "F":
        reversed_dims = tuple(range(x.ndim))[::-1]
        flipped = _reshape(transpose(x, reversed_dims), wanted[::-1])
        return transpose(flipped, tuple(range(len(wanted)))[::-1])
    if order != "C":
        raise NotImplementedError(f'reshape takes order "C" or "F", got {order!r}')
    return _reshape(x, wanted)


def _reshape(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else bind(V.reshape_p, x, new_sizes=shape, dimensions=None)


def _resolve(x: Any, shape: Any) -> tuple[int, ...]:
    extents = (
        (as_extent(shape),)
        if isinstance(shape, int) or (not isinstance(shape, (tuple, list)) and np.ndim(shape) == 0)
        else tuple(as_extent(e) for e in shape)
    )
    unknown = [d for d, e in enumerate(extents) if e == -1]
    if len(unknown) > 1:
        raise TypeRuleError(f"reshape takes at most one -1, got {extents}")
    if unknown:
        rest = -math.prod(extents)
        if rest == 0 or x.size % rest:
            raise TypeRuleError(
                f"reshape from shape {x.shape} ({x.size} elements) to {extents}: {x.size} is not divisible by {rest}"
            )
        extents = tuple(x.size // rest if e == -1 else e for e in extents)
    if math.prod(extents) != x.size or any(e < 0 for e in extents):
        raise TypeRuleError(
            f"reshape from shape {x.shape} ({x.size} elements) to {extents} ({math.prod(extents)} elements) changes the number of elements"
        )
    return extents


def ravel(a: Any, order: str = "C", *, out_sharding: Any = None) -> Any:
    """The elements in one dimension."""
    return reshape(a, (as_value(a, "ravel").size,), order)


def transpose(a: Any, axes: Any = None) -> Any:
    """The dimensions reordered: reversed, or as `axes` says."""
    x = as_value(a, "transpose")
    order = tuple(range(x.ndim))[::-1] if axes is None else tuple(axis_of(d, x.ndim, "transpose") for d in axes)
    return x if order == tuple(range(x.ndim)) else bind(V.transpose_p, x, permutation=order)


def permute_dims(a: Any, /, axes: Any) -> Any:
    """The array with its dimensions in the order `axes`: the Array API's transpose."""
    return transpose(a, axes)


def matrix_transpose(x: Any, /) -> Any:
    """The last two dimensions swapped."""
    x = as_value(x, "matrix_transpose")
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose takes at least 2 dimensions, got shape {x.shape}")
    return swapaxes(x, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two dimensions swapped."""
    x = as_value(a, "swapaxes")
    order = list(range(x.ndim))
    i, j = axis_of(axis1, x.ndim, "swapaxes"), axis_of(axis2, x.ndim, "swapaxes")
    order[i], order[j] = j, i
    return transpose(x, order)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Dimensions moved to new places; the others keep their order."""
    x = as_value(a, "moveaxis")
    sources, positions = axes_of(source, x.ndim, "moveaxis"), axes_of(destination, x.ndim, "moveaxis")
    if len(sources) != len(positions):
        raise ValueError(f"moveaxis needs as many destinations as sources, got {source} and {destination}")
    order = [d for d in range(x.ndim) if d not in sources]
    for position, d in sorted(zip(positions, sources)):
        order.insert(position, d)
    return transpose(x, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Dimension `axis` moved before dimension `start`."""
    x = as_value(a, "rollaxis")
    axis = axis_of(axis, x.ndim, "rollaxis")
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - 1 if start > axis else start)


def squeeze(a: Any, axis: Any = None) -> Any:
    """Without the dimensions of extent 1: all of them, or those of `axis`."""
    x = as_value(a, "squeeze")
    axes = tuple(d for d, e in enumerate(x.shape) if e == 1) if axis is None else axes_of(axis, x.ndim, "squeeze")
    for d in axes:
        if x.shape[d] != 1:
            raise ValueError(
                "cannot select an axis to squeeze out which has size not equal to one, got "
                f"axis {d} of extent {x.shape[d]} in shape={x.shape}"
            )
    return bind(V.squeeze_p, x, dimensions=tuple(sorted(axes))) if axes else x


def expand_dims(a: Any, axis: Any) -> Any:
    """With new dimensions of extent 1 at the places `axis` of the result."""
    x = as_value(a, "expand_dims")
    given = axes_given(axis)
    positions = axes_of(given, x.ndim + len(given), "expand_dims")
    kept = tuple(d for d in range(x.ndim + len(positions)) if d not in positions)
    extents = iter(x.shape)
    shape = tuple(1 if d in positions else next(extents) for d in range(x.ndim + len(positions)))
    return bind(V.broadcast_in_dim_p, x, shape=shape, broadcast_dimensions=kept)


def broadcast_to(array: Any, shape: Any, *, out_sharding: None = None) -> Any:
    """The array repeated along new leading dimensions and along those of extent 1."""
    x, shape = as_value(array, "broadcast_to"), _shape(shape)
    if len(shape) < x.ndim:
        raise ValueError(f"Cannot broadcast to shape with fewer dimensions: arr_shape={x.shape} {shape=}")
    if any(e not in (1, w) for e, w in zip(x.shape[::-1], shape[::-1])):
        raise ValueError(
            f"Incompatible shapes for broadcasting: broadcast_to cannot make {shape} of {x.shape}; extents must be equal or 1"
        )
    return _broadcast(x, shape)


def atleast_1d(*arys: Any) -> Any:
    """Each array with at least 1 dimension."""
    return _at_least(1, arys)


def atleast_2d(*arys: Any) -> Any:
    """Each array with at least 2 dimensions; a vector becomes a row."""
    return _at_least(2, arys)


def atleast_3d(*arys: Any) -> Any:
    """Each array with at least 3 dimensions; a vector stands in the middle, a matrix in front."""
    return _at_least(3, arys)


def _at_least(rank: int, arrays: Sequence[Any]) -> Any:
    positions = {(1, 0): (0,), (2, 0): (0, 1), (2, 1): (0,), (3, 0): (0, 1, 2), (3, 1): (0, 2), (3, 2): (2,)}
    values = [asarray(a) for a in arrays]
    results = [v if v.ndim >= rank else expand_dims(v, positions[rank, v.ndim]) for v in values]
    return results[0] if len(results) == 1 else results


# Joining and splitting.


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    """The arrays one after the other along `axis` (None: flattened), in their common dtype."""
    values = common_arrays("concatenate", arrays)
    if dtype is not None:
        values = [asarray(v, dtype) for v in values]
    if axis is None:
        values, axis = [ravel(v) for v in values], 0
    if not values[0].ndim:
        raise ValueError("concatenate takes arrays of at least 1 dimension; use stack for scalars")
    axis = axis_of(axis, values[0].ndim, "concatenate")
    return values[0] if len(values) == 1 else bind(V.concatenate_p, *values, dimension=axis)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """`concatenate` as the Array API names it."""
    return concatenate(arrays, axis)


def stack(arrays: Any, axis: int = 0, out: None = None, dtype: Any = None) -> Any:
    """Arrays of one shape along a new dimension."""
    values = common_arrays("stack", arrays)
    shapes = {v.shape for v in values}
    if len(shapes) > 1:
        raise ValueError(f"stack needs equal shapes, got {' and '.join(str(v.shape) for v in values)}")
    axis = axis_of(axis, values[0].ndim + 1, "stack")
    return concatenate([expand_dims(v, axis) for v in values], axis, dtype)


def hstack(tup: Any, dtype: Any = None) -> Any:
    """The arrays side by side: along dimension 1, or 0 for vectors."""
    values = [atleast_1d(a) for a in tup]
    return concatenate(values, 0 if values[0].ndim == 1 else 1, dtype)


def vstack(tup: Any, dtype: Any = None) -> Any:
    """The arrays on top of each other; vectors become rows."""
    return concatenate([atleast_2d(a) for a in tup], 0, dtype)


def dstack(tup: Any, dtype: Any = None) -> Any:
    """The arrays behind each other, along dimension 2."""
    return concatenate([atleast_3d(a) for a in tup], 2, dtype)


def column_stack(tup: Any) -> Any:
    """The arrays side by side; vectors become columns."""
    values = [asarray(a) for a in tup]
    return concatenate([atleast_2d(v).T if v.ndim < 2 else v for v in values], 1)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """`values` behind `arr`, flattened without `axis`."""
    return concatenate([ravel(arr), ravel(values)] if axis is None else [arr, values], axis or 0)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts along `axis`: so many equal ones, or cut at the given positions."""
    x = as_value(ary, "split")
    axis = axis_of(axis, x.ndim, "split")
    extent = x.shape[axis]
    if not isinstance(indices_or_sections, (tuple, list)) and np.ndim(indices_or_sections) == 0:
        parts = as_extent(indices_or_sections)
        if parts <= 0 or extent % parts:
            raise ValueError(
                f"split needs parts of equal extent, got {extent} elements for {parts} parts; use array_split"
            )
        sizes = [extent // parts] * parts
    else:
        sizes = _sizes_between(indices_or_sections, extent)
    return list(bind(V.split_p, x, sizes=tuple(sizes), axis=axis)) if len(sizes) > 1 else [x]


def _sizes_between(positions: Any, extent: int) -> list[int]:
    cuts = [as_extent(p) for p in positions]
    cuts = [min(max(c + extent if c < 0 else c, 0), extent) for c in cuts]
    edges = [0, *cuts, extent]
    if edges != sorted(edges):
        raise TypeRuleError(f"split needs ascending positions, got {[as_extent(p) for p in positions]}")
    return [max(b - a, 0) for a, b in itertools.pairwise(edges)]


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """As `split`, with the first parts one longer where they are not equal."""
    x = as_value(ary, "array_split")
    if np.ndim(indices_or_sections):
        return split(x, indices_or_sections, axis)
    parts, extent = as_extent(indices_or_sections), x.shape[axis_of(axis, x.ndim, "array_split")]
    if parts <= 0:
        raise ValueError(f"array_split takes a number of parts > 0, got {parts}")
    small, longer = divmod(extent, parts)
    sizes = [small + (i < longer) for i in range(parts)]
    return split(x, [*itertools.accumulate(sizes)][:-1], axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along dimension 1, or 0 for a vector."""
    return split(ary, indices_or_sections, 0 if as_value(ary).ndim == 1 else 1)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along dimension 0."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along dimension 2."""
    return split(ary, indices_or_sections, 2)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along `axis`, without it."""
    x = as_value(x, "unstack")
    axis = axis_of(axis, x.ndim, "unstack")
    return tuple(squeeze(part, axis) for part in split(x, x.shape[axis], axis)) if x.shape[axis] else ()


# Flipping and repeating.


def flip(m: Any, axis: Any = None) -> Any:
    """The elements in reverse order along `axis` (None: along all)."""
    x = as_value(m, "flip")
    axes = axes_of(axis, x.ndim, "flip")
    return bind(V.rev_p, x, dimensions=axes) if axes else x


def fliplr(m: Any) -> Any:
    """Columns in reverse order."""
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """Rows in reverse order."""
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Turned by k quarters in the plane of two dimensions, from the first towards the second."""
    x = as_value(m, "rot90")
    first, second = axes_of(tuple(axes), x.ndim, "rot90")
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return flip(x, (first, second))
    return swapaxes(flip(x, second), first, second) if k == 1 else flip(swapaxes(x, first, second), second)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved by `shift` along `axis`, those pushed out coming back in at the other end."""
    x = as_value(a, "roll")
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = [axis_of(d, x.ndim, "roll") for d in axes_given(axis)]
    if isinstance(shift, Tracer) or (isinstance(shift, (tuple, list)) and any(isinstance(s, Tracer) for s in shift)):
        return _rolled(x, asarray(shift), axes)
    if any(type(x.shape[d]) is Dim for d in axes) or any(
        type(s) is Dim for s in np.atleast_1d(np.array(shift, object))
    ):
        return _rolled(x, asarray(shift), axes)
    shifts = np.asarray(shift)
    if shifts.ndim > 1:
        raise ValueError(f"roll: 'shift' and 'axis' must be scalars or 1D arrays, got a shift of shape {shifts.shape}")
    for d, s in zip(*np.broadcast_arrays(axes, shifts.astype(np.int64))):
        extent = x.shape[d]
        if extent and s % extent:
            back, front = split(x, [int(extent - s % extent)], d)
            x = concatenate([front, back], d)
    return x


def _rolled(x: Any, shift: Any, axes: list[int]) -> Any:
    """`roll` by a traced shift: a slice of the array beside itself."""
    if shift.ndim > 1:
        raise ValueError(f"roll: 'shift' and 'axis' must be scalars or 1D arrays, got a shift of shape {shift.shape}")
    (count,) = np.broadcast_shapes(shift.shape, (len(axes),))
    integer = np.dtype("int32")
    for number, d in enumerate(np.broadcast_to(axes, (count,))):
        extent = x.shape[d]
        if not extent:
            continue
        amount = convert(shift if not shift.shape else shift[number if shift.shape[0] > 1 else 0], integer)
        twice = concatenate([x, x], int(d))
        starts = [literal(0, integer)] * x.ndim
        starts[d] = U.subtract(extent, M.remainder(amount, extent))
        x = bind(dynamic_slice_p, twice, *starts, slice_sizes=x.shape)
    return x


def tile(A: Any, reps: Any) -> Any:
    """The array repeated `reps` times along each dimension."""
    x = as_value(A, "tile") if not isinstance(A, (list, tuple)) else asarray(A)
    times = tuple(as_extent(r) for r in reps) if np.ndim(reps) else (as_extent(reps),)
    rank = max(x.ndim, len(times))
    shape = (1,) * (rank - x.ndim) + x.shape
    times = (1,) * (rank - len(times)) + times
    spread = reshape(x, tuple(e for extent in shape for e in (1, extent)))
    return reshape(
        _broadcast(spread, tuple(e for t, extent in zip(times, shape) for e in (t, extent))),
        tuple(t * e for t, e in zip(times, shape)),
    )


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding: Any = None
) -> Any:
    """Each element (or slice along `axis`) repeated; counts that are traced need `total_repeat_length`."""
    x = as_value(a, "repeat")
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_of(axis, x.ndim, "repeat")
    if np.ndim(repeats) == 0 and isinstance(repeats, (int, np.integer)) and total_repeat_length is None:
        times = as_extent(repeats)
        spread = expand_dims(x, axis + 1)
        wide = _broadcast(spread, (*spread.shape[: axis + 1], times, *spread.shape[axis + 2 :]))
        return reshape(wide, (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))
    from fuser.numpy.selection import repeat_positions, take

    return take(x, repeat_positions(repeats, x.shape[axis], total_repeat_length), axis=axis)


def resize(a: Any, new_shape: Any) -> Any:
    """The elements in a new shape, repeated or cut to fill it."""
    x, shape = ravel(a), _shape(new_shape)
    size = math.prod(shape)
    if not x.size or not size:
        from fuser.numpy.creation import zeros_like

        return zeros_like(x, shape=shape)
    repeated = tile(x, -(-size // x.size))
    return reshape(split(repeated, [size])[0], shape)
