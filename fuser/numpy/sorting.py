"""Sorting and searching: sort, argsort, lexsort, partition, searchsorted, digitize, top positions, quantiles and the median."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.ir.dim import Dim
from fuser.ir.types import is_complex, is_inexact
from fuser.lax.small_dtypes import bind_wide
from fuser.lax.values import as_value, axes_of, axis_of, convert, literal, promote
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import asarray, iota, ones_like, zeros
from fuser.numpy.indexing import take_index
from fuser.ops.cumulative import cumsum_p
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.sorting import sort_p
from fuser.trace.core import bind, type_of


def _flat(x: Any, axis: int | None, function: str) -> tuple[Any, int]:
    return (V.ravel(x), 0) if axis is None else (x, axis_of(axis, x.ndim, function))


def sort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """The elements in ascending order along `axis` (None: flattened); nan comes last. Derivatives move with the elements."""
    x, axis = _flat(as_value(a, "sort"), axis, "sort")
    (result,) = bind_wide(sort_p, x, dimension=axis, is_stable=stable, num_keys=1)
    return V.flip(result, axis) if descending else result


def argsort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Any:
    """The positions, of `dtype` where given, that sort the elements along `axis`; equal ones keep their order."""
    x, axis = _flat(as_value(a, "argsort"), axis, "argsort")
    wanted = dtypes.canonical(int) if dtype is None else dtypes.requested(dtype, "argsort")
    positions = iota(x.shape, axis, wanted)
    if not descending:
        return bind_wide(sort_p, x, positions, dimension=axis, is_stable=stable, num_keys=1)[1]
    last = x.shape[axis] - 1
    backwards = bind_wide(
        sort_p, V.flip(x, axis), U.subtract(last, positions), dimension=axis, is_stable=stable, num_keys=1
    )[1]
    return V.flip(backwards, axis)


def lexsort(keys: Any, axis: int = -1) -> Any:
    """The positions that sort by the last key, then the one before it, and so on."""
    arrays = [asarray(k) for k in keys]
    if not arrays:
        raise TypeError("lexsort needs at least one key")
    if not arrays[0].ndim:
        return as_value(np.int32(0))
    axis = axis_of(axis, arrays[0].ndim, "lexsort")
    positions = iota(arrays[0].shape, axis, dtypes.canonical(int))
    return bind_wide(sort_p, *reversed(arrays), positions, dimension=axis, is_stable=True, num_keys=len(arrays))[-1]


def sort_complex(a: Any) -> Any:
    """The elements sorted, as complex numbers."""
    x = sort(a)
    wide = x.dtype in (np.dtype("float64"), np.dtype("complex128"), np.dtype("int64"), np.dtype("uint64"))
    return convert(x, dtypes.canonical(np.complex128 if wide else np.complex64))


def partition(a: Any, kth: int, axis: int = -1) -> Any:
    """The elements with the kth in its sorted position, smaller ones before it: here, all sorted."""
    x, axis = _flat(as_value(a, "partition"), axis, "partition")
    axis_of(kth, x.shape[axis], "partition")
    return sort(x, axis)


def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    """The positions of `partition`."""
    x, axis = _flat(as_value(a, "argpartition"), axis, "argpartition")
    axis_of(kth, x.shape[axis], "argpartition")
    return argsort(x, axis)


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Any:
    """For each value of `v` the position in the sorted vector `a` that keeps it sorted: before equals, or after ("right")."""
    if side not in ("left", "right"):
        raise ValueError(f'searchsorted takes side "left" or "right", got {side!r}')
    _check_method(method)
    table, values = promote("searchsorted", asarray(a), asarray(v))
    if table.ndim != 1:
        raise ValueError(f"searchsorted needs a vector to search, got shape {table.shape}")
    if sorter is not None:
        from fuser.numpy.selection import take

        table = take(table, sorter)
    extent = table.shape[0]
    dtype = np.dtype("int32") if extent <= np.iinfo(np.int32).max else dtypes.requested("int64", "searchsorted")
    if extent > np.iinfo(dtype).max:
        raise OverflowError(f"Python integer {extent} out of bounds for {dtype}: searchsorted gives positions up to it")
    if type(extent) is Dim:
        return _position_in(table, values, side)
    if not extent:
        return zeros(values.shape, dtype)
    low, left = zeros(values.shape, dtype), extent
    while (
        left
    ):  # the position lies in low … low + left; where fewer are left of it, elements before it are asked once more
        half, left = (left + 1) // 2, left // 2
        element = take_index(table, U.add(low, half - 1), "clip", wrap=False)
        low = U.add(low, M.where(_before(element, values, side), np.int32(half), np.int32(0)))
    return low


def _position_in(table: Any, values: Any, side: str) -> Any:
    """`searchsorted` in a table of symbolic extent: the same search, as a loop that ends when nothing is left."""
    from fuser.lax.control import while_loop

    def narrower(state: Any) -> Any:
        low, left = state
        half = (left + 1) // 2
        element = take_index(table, U.add(low, U.subtract(half, 1)), "clip", wrap=False)
        return U.add(low, M.where(_before(element, values, side), half, 0)), left // 2

    start = zeros(values.shape, np.int32), literal(table.shape[0], np.dtype("int32"))
    return while_loop(lambda state: state[1] > 0, narrower, start)[0]


_METHODS = ("compare_all", "scan", "scan_unrolled", "sort")


def _check_method(method: str) -> None:
    if method not in _METHODS:
        raise ValueError(f"invalid argument {method=}, expected one of {list(_METHODS)}")


def _before(element: Any, value: Any, side: str) -> Any:
    """Whether `element` stands before the position of `value`; nan is greater than every number."""
    less = U.less(element, value) if side == "left" else U.less_equal(element, value)
    if not is_inexact(element.dtype):
        return less
    if side == "left":
        return U.logical_or(less, U.logical_and(M.isnan(value), U.logical_not(M.isnan(element))))
    return U.logical_or(less, M.isnan(value))


def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Any:
    """For each value the number of its bin, 0 below the first edge; `bins` ascend or descend."""
    if method is not None:
        _check_method(method)
    edges = asarray(bins)
    if edges.ndim != 1:
        raise ValueError(f"digitize needs a vector of edges, got shape {edges.shape}")
    side = "left" if right else "right"
    if not edges.shape[0]:
        return zeros(asarray(x).shape, dtypes.canonical(int))
    ascending = searchsorted(edges, x, side)
    descending = U.subtract(edges.shape[0], searchsorted(V.flip(edges), x, side))
    return M.where(U.greater_equal(edges[-1], edges[0]), ascending, descending)


# Quantiles.


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """The q-quantiles along `axis`; nan where an element is nan.

    Methods: linear, lower, higher, nearest, midpoint, inverted_cdf. `weights`, which the last alone takes, have the shape of
    `a` or of its `axis`; nan where one is negative.
    """
    x, q = (U.inexact_operand("quantile", v if not isinstance(v, (list, tuple)) else asarray(v)) for v in (a, q))
    return _quantile(x, convert(q, x.dtype), axis, method, keepdims, squash_nan=False, weights=weights)


def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """The quantiles of what is not nan."""
    x, q = (U.inexact_operand("nanquantile", v if not isinstance(v, (list, tuple)) else asarray(v)) for v in (a, q))
    return _quantile(x, convert(q, x.dtype), axis, method, keepdims, squash_nan=True, weights=weights)


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    out_sharding: Any = None,
) -> Any:
    """The q-th percentiles along `axis`."""
    return quantile(a, U.divide(asarray(q), 100), axis, method=method, keepdims=keepdims, weights=weights)


def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """The percentiles of what is not nan."""
    return nanquantile(a, U.divide(asarray(q), 100), axis, method=method, keepdims=keepdims, weights=weights)


def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """The middle value along `axis`, or the mean of the middle two."""
    found = quantile(a, 0.5, axis, keepdims=keepdims, method="midpoint")
    return convert(found, found.dtype)  # never weak, as JAX has it


def nanmedian(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """The median of what is not nan."""
    found = nanquantile(a, 0.5, axis, keepdims=keepdims, method="midpoint")
    return convert(found, found.dtype)


METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def _quantile(x: Any, q: Any, axis: Any, method: str, keepdims: bool, squash_nan: bool, weights: Any) -> Any:
    if method not in METHODS:
        raise ValueError(f"method can only be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    if is_complex(x.dtype):
        raise ValueError("quantile does not support complex input, as the operation is poorly defined.")
    if q.ndim > 1:
        raise ValueError(f"quantile takes one level or a vector of them, got shape {q.shape}")
    shape, axes = x.shape, axes_of(axis, x.ndim, "quantile")
    if weights is not None:
        weights = _weights_of(weights, x, axis, axes, method)
    kept = tuple(d for d in range(x.ndim) if d not in axes)
    outer, size = tuple(shape[d] for d in kept), math.prod(shape[d] for d in axes)
    if not size and 0 not in outer:
        raise TypeRuleError(f"quantiles over no elements have no value, got {type_of(x)} over the axes {axes}")
    rows = lambda v: V.reshape(V.transpose(v, (*kept, *axes)), (*outer, size))
    if 0 in outer:
        result = V.broadcast_to(literal(0, x.dtype), (*q.shape, *outer))
    elif method == "inverted_cdf":
        given = ones_like(x) if weights is None else weights
        result = _at_weight(rows(x), q, rows(given), squash_nan)
    else:
        result = _at_levels(sort(rows(x), -1), q, method, squash_nan)
    return V.reshape(result, _kept_shape(q, shape, axes, axis)) if keepdims else result


def _weights_of(weights: Any, x: Any, axis: Any, axes: tuple[int, ...], method: str) -> Any:
    """The weights in the dtype and the shape of `x`."""
    given = asarray(weights)
    if is_complex(given.dtype):
        raise ValueError("Weights cannot be complex types.")
    if method != "inverted_cdf":
        raise NotImplementedError(f"{method} doesn't support weights. Only method 'inverted_cdf' supports weights.")
    given = convert(given, x.dtype)
    if given.shape == x.shape:
        return given
    if axis is None:
        raise ValueError("Weights shape must match 'a' shape when axis is None.")
    wanted = tuple(x.shape[d] for d in axes)
    if given.shape != wanted:
        raise ValueError(f"Weights shape {given.shape} must match reduction axes {wanted}")
    return bind(broadcast_in_dim_p, given, shape=x.shape, broadcast_dimensions=axes)


def _at_levels(x: Any, q: Any, method: str, squash_nan: bool) -> Any:
    """The quantiles of sorted rows, by the position that a level has in each."""
    missing = M.isnan(x)
    count: Any = x.shape[-1]
    if squash_nan:
        count = R.sum(U.logical_not(missing), -1, dtype=x.dtype)
        count = V.expand_dims(count, 0) if q.ndim else count
    elif x.shape[-1]:
        x = M.where(V.expand_dims(R.any(missing, -1), -1), np.nan, x)
    levels = V.reshape(q, (*q.shape, *(1,) * (x.ndim - 1)))
    return _at_level(x, U.multiply(levels, U.subtract(count, 1)), count, method, x.ndim - 1, q.ndim)


def _at_weight(x: Any, q: Any, weights: Any, squash_nan: bool) -> Any:
    """The first element of each row, in order, up to which a level of the row's weight lies; nan weighs nothing."""
    x, weights = bind_wide(sort_p, x, weights, dimension=x.ndim - 1, is_stable=True, num_keys=1)
    missing, bad = M.isnan(x), U.logical_or(U.less(weights, 0), M.isnan(weights))
    heap = bind(cumsum_p, M.where(U.logical_or(missing, bad), 0, weights), axis=x.ndim - 1, reverse=False)
    wanted = U.multiply(V.reshape(q, (*q.shape, *(1,) * x.ndim)), heap[..., -1:])
    below = R.sum(U.less(heap, wanted), -1, dtype=np.int32)
    count = R.sum(U.logical_not(missing), -1, dtype=np.int32) if squash_nan else x.shape[-1]
    result = _element(x, M.clip(below, 0, U.subtract(count, 1)), x.ndim - 1, q.ndim)
    lost = (R.all if squash_nan else R.any)(missing, -1)
    return M.where(U.logical_or(R.any(bad, -1), lost), np.nan, result)


def _kept_shape(q: Any, shape: tuple[int, ...], axes: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    """The shape of quantiles with `keepdims`; a number over all its axes becomes a vector of one, as in JAX."""
    kept = (1,) if axis is None and not shape else tuple(1 if d in axes else e for d, e in enumerate(shape))
    return (*q.shape, *kept)


def _at_level(x: Any, position: Any, count: Any, method: str, rank: int, levels: int) -> Any:
    below, above = U.floor(position), U.ceil(position)
    weight = U.subtract(position, below)
    last = U.subtract(count, 1)
    low, high = (_element(x, M.clip(p, 0, last), rank, levels) for p in (below, above))
    if method == "linear":
        return U.add(U.multiply(low, U.subtract(1, weight)), U.multiply(high, weight))
    if method == "lower":
        return low
    if method == "higher":
        return high
    if method == "nearest":
        return M.where(U.less_equal(weight, 0.5), low, high)
    return U.multiply(U.add(low, high), 0.5)


def _element(x: Any, position: Any, rank: int, levels: int) -> Any:
    """The elements of the last dimension at `position`, of shape (levels…, kept…)."""
    from fuser.numpy.selection import take_along_axis

    positions = convert(position, np.dtype("int32"))
    shape = (*positions.shape[:levels], *x.shape[:rank])
    positions = V.broadcast_to(positions, shape)
    if levels:
        positions = V.moveaxis(positions, 0, -1)
        return V.moveaxis(take_along_axis(x, positions, -1, mode="clip"), -1, 0)
    return V.squeeze(take_along_axis(x, V.expand_dims(positions, rank), -1, mode="clip"), -1)


def top_k(x: Any, k: int, axis: int = -1) -> Sequence[Any]:
    """The k greatest elements along `axis`, greatest first, and their positions."""
    from fuser.ops.sorting import top_k_p

    x = as_value(x, "top_k")
    axis = axis_of(axis, x.ndim, "top_k")
    moved = V.moveaxis(x, axis, -1)
    values, positions = bind_wide(top_k_p, moved, k=operator.index(k), axis=moved.ndim - 1)
    return [V.moveaxis(values, -1, axis), V.moveaxis(positions, -1, axis)]
