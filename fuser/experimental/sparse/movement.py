"""BCOO arrays moved: broadcast, concatenated, reshaped, sliced, reversed, gathered and summed over dimensions."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.api.shapes import ShapeDtypeStruct
from fuser.experimental.sparse.base import beside, columns, within
from fuser.experimental.sparse.bcoo import (
    BCOO,
    bcoo_sum_duplicates,
    bcoo_transpose,
    bcoo_update_layout,
    full_batches,
)
from fuser.transforms.vmap import vmap


def _groups(mat: BCOO, dims: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """What belongs to the batch, sparse and dense dimensions."""
    first, second = mat.n_batch, mat.n_batch + mat.n_sparse
    return list(dims[:first]), list(dims[first:second]), list(dims[second:])


def _bounded(mat: BCOO) -> BCOO:
    """No more stored elements than there are in the sparse dimensions."""
    most = math.prod(mat.sparse_shape)
    return bcoo_sum_duplicates(mat, nse=most) if mat.nse > most else mat


def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """`mat`, whose dimension k is dimension broadcast_dimensions[k] of the result, repeated along all others."""
    shape, places = tuple(shape), [int(d) for d in broadcast_dimensions]
    if len(places) != mat.ndim:
        raise ValueError(f"bcoo_broadcast_in_dim takes {mat.ndim} broadcast_dimensions, got {places}")
    if any(n not in (1, shape[d]) for n, d in zip(mat.shape, places)):
        raise ValueError(f"a BCOO array of shape {mat.shape} does not broadcast to {shape} along {places}")
    batch, sparse, dense = _groups(mat, places)
    if max(batch, default=-1) > min(sparse, default=len(shape)) or max(sparse, default=-1) > min(
        dense, default=len(shape)
    ):
        raise ValueError("Cannot mix batch, sparse and dense dimensions during broadcast_in_dim")
    n_batch = 1 + max(batch) if batch else 0
    n_dense = len(shape) - min(dense) if dense else 0
    second = len(shape) - n_dense
    repeats = [
        1 if d in sparse and mat.shape[places.index(d)] == shape[d] else shape[d] for d in range(n_batch, second)
    ]
    count = math.prod(repeats)
    own = shape[:n_batch]
    data = fnp.broadcast_to(_placed(mat.data, [*batch, n_batch, *(d - second + n_batch + 1 for d in dense)], n_batch + 1 + n_dense),
                            (*own, mat.nse, *shape[second:]))  # fmt: skip
    indices = fnp.broadcast_to(
        _placed(mat.indices, [*batch, n_batch, n_batch + 1], n_batch + 2), (*own, mat.nse, mat.n_sparse)
    )
    found = []
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in repeats), indexing="ij"), -1).reshape(count, len(repeats))
    inside = within(indices, mat.sparse_shape)[..., None]
    for k, d in enumerate(range(n_batch, second)):
        repeated = fnp.asarray(grid[:, k], indices.dtype)
        if d in sparse and repeats[k] == 1 and mat.shape[places.index(d)] == shape[d]:
            column = fnp.broadcast_to(indices[..., sparse.index(d), None], (*own, mat.nse, count))
        else:
            column = fnp.where(inside, repeated, shape[d])
        found.append(column.reshape(*own, mat.nse * count).astype(indices.dtype))
    at = n_batch
    data = fnp.repeat(data, count, at) if count != 1 else data
    rows = fnp.stack(found, -1) if found else fnp.zeros((*own, mat.nse * count, 0), indices.dtype)
    return BCOO((data, rows), shape=shape, unique_indices=mat.unique_indices)


def _placed(x: Any, places: Sequence[int], rank: int) -> Any:
    """`x` with its dimensions at these places, and extents of 1 elsewhere."""
    extents = [1] * rank
    for n, d in zip(x.shape, places):
        extents[d] = n
    return x.reshape(extents)


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Arrays of one layout behind one another along a dimension."""
    operands, dimension = list(operands), operator.index(dimension)
    if not operands or not all(isinstance(o, BCOO) for o in operands):
        raise ValueError("bcoo_concatenate: operands must be BCOO arrays, and there must be some")
    first = operands[0]
    if len({(o.n_batch, o.n_sparse, o.n_dense) for o in operands}) > 1:
        raise ValueError("bcoo_concatenate requires inputs to have matching batch/sparse/dense dimensions.")
    others = {(*o.shape[:dimension], *o.shape[dimension + 1 :]) for o in operands}
    if len(others) > 1:
        raise ValueError(
            f"bcoo_concatenate: shapes {[o.shape for o in operands]} differ outside of dimension {dimension}"
        )
    extents = [o.shape[dimension] for o in operands]
    shape = (*first.shape[:dimension], sum(extents), *first.shape[dimension + 1 :])
    n_batch = first.n_batch
    if dimension < n_batch:
        nse = max(o.nse for o in operands)
        padded = [full_batches(_padded(o, nse)) for o in operands]
        data, indices = (fnp.concatenate([p[k] for p in padded], dimension) for k in (0, 1))
        return BCOO((data, indices), shape=shape)
    if dimension >= n_batch + first.n_sparse:
        buffers = [o._bufs for o in operands]
        starts = np.cumsum([0, *extents[:-1]])
        dense = dimension - first.n_sparse + 1
        parts = [_widened(d, dense, int(s), shape[dimension]) for (d, _), s in zip(buffers, starts)]
        found = [i for _, i in buffers]
    else:
        starts = np.cumsum([0, *extents[:-1]])
        parts, found = [o.data for o in operands], []
        for o, start in zip(operands, starts):
            moved = o.indices.at[..., dimension - n_batch].add(int(start))
            limits = fnp.asarray(list(shape[n_batch : n_batch + o.n_sparse]), moved.dtype)
            found.append(fnp.where(within(o.indices, o.sparse_shape)[..., None], moved, limits))
    parts, found = _same_batches(parts, n_batch), _same_batches(found, n_batch)
    return BCOO((fnp.concatenate(parts, n_batch), fnp.concatenate(found, n_batch)), shape=shape)


def _same_batches(buffers: Sequence[Any], n_batch: int) -> list[Any]:
    batch = np.broadcast_shapes(*(b.shape[:n_batch] for b in buffers))
    return [fnp.broadcast_to(b, (*batch, *b.shape[n_batch:])) for b in buffers]


def _padded(mat: BCOO, nse: int) -> BCOO:
    """More stored elements, which are padding."""
    more = nse - mat.nse
    if not more:
        return mat
    n = mat.n_batch
    data = fnp.pad(mat.data, [(0, 0)] * n + [(0, more)] + [(0, 0)] * mat.n_dense)
    limits = fnp.asarray(list(mat.sparse_shape), mat.indices.dtype)
    padding = fnp.broadcast_to(limits, (*mat.indices.shape[:n], more, mat.n_sparse))
    return BCOO((data, fnp.concatenate([mat.indices, padding], n)), shape=mat.shape)


def _widened(data: Any, dim: int, start: int, size: int) -> Any:
    """Zeros around, along a dense dimension."""
    widths = [(0, 0)] * data.ndim
    widths[dim] = (start, size - start - data.shape[dim])
    return fnp.pad(data, widths)


def bcoo_reshape(
    mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, sharding: Any = None
) -> BCOO:
    """The same elements in another shape, read in the order of `dimensions`; NotImplementedError across the kinds of dimensions."""
    new_sizes = tuple(map(operator.index, new_sizes))
    if math.prod(new_sizes) != mat.size:
        raise TypeError(f"cannot reshape array of shape {mat.shape} into shape {new_sizes}")
    if dimensions is not None and tuple(dimensions) != tuple(range(mat.ndim)):
        mat = bcoo_transpose(mat, permutation=dimensions)
    batch, sparse, dense = (math.prod(g) for g in _groups(mat, mat.shape))
    first = _split_at(new_sizes, batch, mat.n_batch)
    second = len(new_sizes) - _split_at(new_sizes[::-1], dense, mat.n_dense)
    if first is None or second is None or first > second or math.prod(new_sizes[first:second]) != sparse:
        raise NotImplementedError(
            f"reshape of a BCOO array of shape {mat.shape} (n_batch={mat.n_batch}, n_dense={mat.n_dense}) to {new_sizes} joins batch, sparse "
            "and dense dimensions; change them first with update_layout"
        )
    data, indices = full_batches(mat)
    new_sparse = new_sizes[first:second]
    data = data.reshape(*new_sizes[:first], mat.nse, *new_sizes[second:])
    limits = fnp.asarray(list(new_sparse), indices.dtype)
    if mat.sparse_shape and new_sparse:
        flat = fnp.ravel_multi_index(columns(indices), mat.sparse_shape, mode="clip")
        moved = fnp.stack(fnp.unravel_index(flat, new_sparse), -1).astype(indices.dtype)
        indices = fnp.where(within(indices, mat.sparse_shape)[..., None], moved, limits)
    else:
        zero = fnp.zeros((*indices.shape[:-1], len(new_sparse)), indices.dtype)
        indices = fnp.where(within(indices, mat.sparse_shape)[..., None], zero, limits)
    return BCOO((data, indices.reshape(*new_sizes[:first], mat.nse, len(new_sparse))), shape=new_sizes)


def _split_at(sizes: Sequence[int], size: int, count: int) -> Any:
    """How many leading extents have this product, as near to `count` as may be; None for none."""
    found = [k for k in range(len(sizes) + 1) if math.prod(sizes[:k]) == size]
    if count == 0 and size == 1:
        return 0
    return min(found, key=lambda k: abs(k - count)) if found else None


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """Reversed along some dimensions."""
    n_batch = operand.n_batch
    batch, sparse, dense = ([d for d in dimensions if d in group] for group in _groups(operand, range(operand.ndim)))
    data, indices = operand._bufs
    data = fnp.flip(data, [*batch, *(d - operand.n_sparse + 1 for d in dense)]) if batch or dense else data
    indices = fnp.flip(indices, batch) if batch else indices
    inside = within(indices, operand.sparse_shape)
    for d in sparse:
        k, n = d - n_batch, operand.shape[d]
        indices = indices.at[..., k].set(fnp.where(inside, n - 1 - indices[..., k], n))
    return BCOO((data, indices), shape=operand.shape, unique_indices=operand.unique_indices)


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """Without some dimensions of extent 1; ValueError for others."""
    dims = sorted({operator.index(d) % arr.ndim for d in dimensions})
    if any(arr.shape[d] != 1 for d in dims):
        raise ValueError(
            f"cannot select an axis to squeeze out which has size not equal to one, got shape={arr.shape} and dimensions={tuple(dims)}"
        )
    batch, sparse, dense = ([d for d in dims if d in g] for g in _groups(arr, range(arr.ndim)))
    data = arr.data
    if sparse:
        data = fnp.where(beside(within(arr.indices, arr.sparse_shape), data), data, 0)
    kept = np.array([k for k in range(arr.n_sparse) if k + arr.n_batch not in sparse], int)
    data = fnp.squeeze(data, (*batch, *(d - arr.n_sparse + 1 for d in dense)))
    indices = fnp.squeeze(arr.indices[..., kept], tuple(batch))
    shape = tuple(n for d, n in enumerate(arr.shape) if d not in dims)
    return BCOO((data, indices), shape=shape, indices_sorted=arr.indices_sorted, unique_indices=arr.unique_indices)


def bcoo_slice(
    mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> BCOO:
    """The elements from `start_indices` up to `limit_indices`, every strides[d]-th along dimension d."""
    if not isinstance(mat, BCOO):
        raise TypeError(f"bcoo_slice: input should be BCOO array, got type(mat)={type(mat)}")
    starts, limits = list(map(operator.index, start_indices)), list(map(operator.index, limit_indices))
    steps = [1] * mat.ndim if strides is None else list(map(operator.index, strides))
    if not len(starts) == len(limits) == len(steps) == mat.ndim:
        raise ValueError(f"bcoo_slice: indices must have size mat.ndim={mat.ndim}")
    if any(s <= 0 for s in steps):
        raise ValueError(f"strides must be a sequence of positive integers; got {steps}")
    if not all(0 <= a <= b <= n for a, b, n in zip(starts, limits, mat.shape)):
        raise ValueError(
            f"bcoo_slice: invalid indices. Got start_indices={starts}, limit_indices={limits} and shape={mat.shape}"
        )
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(starts, limits, steps))
    slices = list(map(slice, starts, limits, steps))
    data, indices = mat._bufs
    for d in range(mat.n_batch):
        cut = (slice(None),) * d
        data = data[(*cut, slices[d])] if data.shape[d] == mat.shape[d] else data
        indices = indices[(*cut, slices[d])] if indices.shape[d] == mat.shape[d] else indices
    _, _, dense = _groups(mat, slices)
    data = data[(*[slice(None)] * (mat.n_batch + 1), *dense)]
    if not mat.n_sparse:
        return BCOO((data, indices), shape=shape)
    _, starts, _ = _groups(mat, starts)
    return _cut(mat, data, indices, starts, _groups(mat, steps)[1], shape)


def _cut(
    mat: BCOO, data: Any, indices: Any, starts: Sequence[Any], steps: Sequence[int], shape: tuple[int, ...]
) -> BCOO:
    """The stored elements from `starts` on, each `steps` apart, with other ones made padding."""
    sizes = shape[mat.n_batch : mat.n_batch + mat.n_sparse]
    inside = within(indices, mat.sparse_shape)
    moved = []
    for k, (start, step, size) in enumerate(zip(starts, steps, sizes)):
        offset = indices[..., k] - fnp.asarray(start, indices.dtype)
        inside = inside & (offset >= 0) & (offset % step == 0) & (offset < size * step)
        moved.append(offset // step)
    limits = fnp.asarray(list(sizes), indices.dtype)
    rows = fnp.where(inside[..., None], fnp.stack(moved, -1), limits)
    data = fnp.where(beside(inside, data), data, 0)
    return _bounded(BCOO((data, rows), shape=shape))


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """The elements of extents `slice_sizes` from `start_indices` on, which may be traced; a start too far is moved back."""
    if not isinstance(mat, BCOO):
        raise TypeError(f"bcoo_dynamic_slice: input should be BCOO array, got type(mat)={type(mat)}")
    shape = tuple(map(operator.index, slice_sizes))
    if not len(start_indices) == len(shape) == mat.ndim:
        raise ValueError(f"bcoo_dynamic_slice: indices must have size mat.ndim={mat.ndim}")
    if not all(0 <= n <= m for n, m in zip(shape, mat.shape)):
        raise TypeError(
            f"slice_sizes must be less than or equal to operand shape, got slice_sizes {shape} for operand shape {mat.shape}"
        )
    starts = []
    for start, n, size in zip(map(fnp.asarray, start_indices), mat.shape, shape):
        starts.append(fnp.clip(fnp.where(start < 0, start + n, start), 0, n - size))
    batch, sparse, dense = _groups(mat, starts)
    data, indices = mat._bufs
    from fuser import lax

    for d, start in enumerate(batch):
        data = lax.dynamic_slice_in_dim(data, start, shape[d], d) if data.shape[d] == mat.shape[d] else data
        indices = lax.dynamic_slice_in_dim(indices, start, shape[d], d) if indices.shape[d] == mat.shape[d] else indices
    for k, start in enumerate(dense):
        at = mat.n_batch + 1 + k
        data = lax.dynamic_slice_in_dim(data, start, shape[mat.n_batch + mat.n_sparse + k], at)
    if not mat.n_sparse:
        return BCOO((data, indices), shape=shape)
    return _cut(mat, data, indices, sparse, [1] * mat.n_sparse, shape)


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int], out_sharding: Any = None) -> BCOO:
    """The sum over some dimensions."""
    dims = {operator.index(a) % mat.ndim for a in axes}
    n_batch = mat.n_batch
    batch, sparse, dense = ([d for d in g if d in dims] for g in _groups(mat, range(mat.ndim)))
    data, indices = mat._bufs
    if dense:
        data = data.sum(tuple(d - mat.n_sparse + 1 for d in dense), dtype=data.dtype)
    if sparse:
        data = fnp.where(beside(within(indices, mat.sparse_shape), data), data, 0)
        kept = np.array([k for k in range(mat.n_sparse) if k + n_batch not in sparse], int)
        indices = indices[..., kept]
    for d in reversed(batch):
        n = mat.shape[d]
        if indices.shape[d] == 1:
            data = data.sum(d, dtype=data.dtype) * (n if data.shape[d] == 1 and n != 1 else 1)
            indices = fnp.squeeze(indices, d)
            continue
        n_batch_now = indices.ndim - 2
        data, indices = (fnp.broadcast_to(x, (*x.shape[:d], n, *x.shape[d + 1 :])) for x in (data, indices))
        data, indices = (fnp.moveaxis(x, d, n_batch_now - 1) for x in (data, indices))
        merged = lambda x, at=n_batch_now - 1: x.reshape(
            *x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :]
        )
        data, indices = merged(data), merged(indices)
    shape = tuple(n for d, n in enumerate(mat.shape) if d not in dims)
    return _bounded(BCOO((data, indices), shape=shape))


def bcoo_gather(
    operand: BCOO,
    start_indices: Any,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> BCOO:
    """As lax.gather, of a BCOO array; NotImplementedError for modes but "promise_in_bounds"."""
    from fuser import lax

    if mode is not None and lax.GatherScatterMode.from_any(mode) != lax.GatherScatterMode.PROMISE_IN_BOUNDS:
        raise NotImplementedError(f"bcoo_gather: {mode=} not yet supported.")
    dnums = dimension_numbers
    expected = _gathered_shape(operand, start_indices, dnums, slice_sizes)
    sizes = list(operand.shape)
    starts: list[Any] = [fnp.zeros((), start_indices.dtype)] * operand.ndim
    axes: list[int | None] = [None] * operand.ndim
    for i, j in enumerate(dnums.start_index_map):
        starts[j], axes[j], sizes[j] = start_indices[..., i].ravel(), 0, slice_sizes[j]

    def one(*at: Any) -> Any:
        return bcoo_squeeze(bcoo_dynamic_slice(operand, at, sizes), dimensions=dnums.collapsed_slice_dims)._bufs

    shape = tuple(n for d, n in enumerate(sizes) if d not in dnums.collapsed_slice_dims)
    if all(a is None for a in axes):
        data, indices = (x[None] for x in one(*starts))
    else:
        data, indices = vmap(one, in_axes=tuple(axes))(*starts)
    lead = start_indices.shape[:-1]
    data, indices = (x.reshape(*lead, *x.shape[1:]) for x in (data, indices))
    found = BCOO((data, indices), shape=(*lead, *shape))
    if not found.ndim:
        return found
    others = [d for d in range(len(expected)) if d not in dnums.offset_dims]
    permutation = [0] * found.ndim
    for source, target in enumerate([*others, *dnums.offset_dims]):
        permutation[target] = source
    if set(permutation[: len(others)]) != set(range(len(others))):
        found = bcoo_update_layout(found, n_batch=0)
    return bcoo_transpose(found, permutation=permutation)


def _gathered_shape(operand: BCOO, start_indices: Any, dnums: Any, slice_sizes: Sequence[int]) -> tuple[int, ...]:
    from fuser import lax
    from fuser.api.abstract import eval_shape

    like = ShapeDtypeStruct(operand.shape, operand.dtype), ShapeDtypeStruct(start_indices.shape, start_indices.dtype)
    return tuple(eval_shape(lambda x, i: lax.gather(x, i, dnums, tuple(slice_sizes)), *like).shape)
