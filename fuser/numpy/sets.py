"""Functions whose result's shape depends on values: nonzero, unique, set operations, bincount, histogram.

They need known values, or a static `size` (`length` for bincount) that fixes the shape while tracing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser import dtypes
from fuser.errors import ConcretizationTypeError
from fuser.ir.dim import as_extent, known_at_least
from fuser.ir.source import current_source
from fuser.ir.types import BOOL, is_complex, is_inexact
from fuser.lax.small_dtypes import bind_wide
from fuser.lax.values import as_value, axis_of, broadcast_to, convert, literal, promote, promote_inexact
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import array, asarray, iota, linspace, zeros
from fuser.numpy.indexing import take_index
from fuser.numpy.sorting import lexsort, searchsorted, sort
from fuser.ops.sorting import sort_p
from fuser.runtime.array import Array
from fuser.trace.core import Tracer


def known(x: Any, function: str, way_out: str = "give size=") -> np.ndarray:
    """The values of `x` on the host; an error for a traced array, because the result's shape depends on them."""
    x = as_value(x, function)
    if isinstance(x, Tracer):
        raise ConcretizationTypeError(
            f"{function} of a traced {x.aval} has a shape that depends on its values ({current_source().short}); {way_out}, or call it outside of jit"
        )
    return np.asarray(x)


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Any, ...]:
    """The positions of the nonzero elements, one array a dimension; padded or cut to `size` with `fill_value` (0)."""
    x = U.truth(asarray(a), "nonzero")
    if not x.ndim:
        raise ValueError("nonzero takes arrays of at least 1 dimension; use atleast_1d")
    index_dtype = dtypes.canonical(int)
    if size is None:
        return tuple(Array(p.astype(index_dtype)) for p in np.nonzero(known(x, "nonzero")))
    flat = V.ravel(x)
    counts = R.cumsum(convert(flat, index_dtype))
    total = counts[-1] if flat.size else zeros((), index_dtype)
    positions = (
        searchsorted(counts, U.add(iota((size,), 0, index_dtype), 1)) if flat.size else zeros((size,), index_dtype)
    )
    valid = U.less(iota((size,), 0, index_dtype), total)
    fills = fill_value if isinstance(fill_value, tuple) else (0 if fill_value is None else fill_value,) * x.ndim
    result = []
    for extent, fill in zip(reversed(x.shape), reversed(fills)):
        result.append(M.where(valid, M.remainder(positions, max(extent, 1)), convert(asarray(fill), index_dtype)))
        positions = M.floor_divide(positions, max(extent, 1))
    return tuple(reversed(result))


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of the nonzero elements of the flattened array."""
    return nonzero(V.ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of the nonzero elements, a row each."""
    x = asarray(a)
    if not x.ndim:
        rows = int(bool(known(x, "argwhere"))) if size is None else size
        return zeros((rows, 0), dtypes.canonical(int))
    return V.stack(nonzero(x, size=size, fill_value=fill_value), 1)


class UniqueAllResult(NamedTuple):
    """What `unique_all` gives."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` gives."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` gives."""

    values: Any
    inverse_indices: Any


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None, *,
    equal_nan: bool = True, size: int | None = None, fill_value: Any = None, sorted: bool = True,
) -> Any:  # fmt: skip
    """The distinct elements (or slices along `axis`) in order, with first positions, the inverse and counts as asked.

    Values must be known unless `size` fixes how many there are: fewer are cut off, more are `fill_value` (the least one).
    """
    x = asarray(ar)
    if size is None:
        known(x, "unique", "give size=, or use sort")
    shape = x.shape
    x, axis = (V.ravel(x), 0) if axis is None else (x, axis_of(axis, x.ndim, "unique"))
    found = _unique(x, axis, equal_nan, None if size is None else as_extent(size), fill_value)
    inverse = V.reshape(found.inverse_indices, shape) if x.ndim == 1 and len(shape) != 1 else found.inverse_indices
    extra = [(return_index, found.indices), (return_inverse, inverse), (return_counts, found.counts)]
    chosen = [value for wanted, value in extra if wanted]
    return (found.values, *chosen) if chosen else found.values


def _unique(x: Any, axis: int, equal_nan: bool, size: int | None, fill_value: Any = None) -> UniqueAllResult:
    """The distinct slices along `axis`: by sorting, and a mask of those that differ from the one before."""
    extent = x.shape[axis]
    if extent == 0 and size and fill_value is None:
        raise ValueError("unique of no elements needs fill_value= where size= asks for some")
    integer = dtypes.canonical(int)
    rows, first, order = _sorted_rows(V.moveaxis(x, axis, 0), equal_nan)
    if not rows.size:
        values = _filled(rows, size, fill_value) if size is not None and fill_value is not None else rows
        counts = convert(asarray([extent] if extent else np.zeros(0, np.int32)), integer)
        return UniqueAllResult(V.moveaxis(values, 0, axis), order, zeros((extent,), integer), counts)
    if size is None:
        positions = asarray(np.flatnonzero(known(first, "unique")).astype(integer))
        bounds = V.append(positions, convert(asarray(extent), integer))
    else:
        positions = nonzero(first, size=size)[0]
        starts = nonzero(first, size=size + 1)[0]
        bounds = starts.at[1:].set(M.where(starts[1:], starts[1:], extent))
    values = rows[positions]
    if size is not None and fill_value is not None:
        valid = U.less(iota((size, *(1,) * (rows.ndim - 1)), 0, integer), R.sum(first))
        values = M.where(valid, values, convert(asarray(fill_value), rows.dtype))
    inverse = zeros((extent,), integer).at[order].set(U.subtract(R.cumsum(first), 1), unique_indices=True)
    counts = U.subtract(bounds[1:], bounds[:-1])
    return UniqueAllResult(V.moveaxis(values, 0, axis), order[positions], inverse, counts)


def _sorted_rows(rows: Any, equal_nan: bool) -> tuple[Any, Any, Any]:
    """The rows in order, whether each is the first of its value, and the positions that they come from."""
    if is_complex(rows.dtype):
        rows = M.where(M.isnan(rows), literal(complex(np.nan, 0), rows.dtype), rows)
    width = int(np.prod(rows.shape[1:], dtype=np.int64))
    if not width:
        return rows[:1], zeros((1,), BOOL), zeros((1,), dtypes.canonical(int))
    flat = V.reshape(rows, (rows.shape[0], width))
    order = lexsort([flat[:, k] for k in reversed(range(width))])
    rows = rows[order]
    if not rows.size:
        return rows, zeros((0,), BOOL), order
    after, before = rows[1:], rows[:-1]
    differs = U.not_equal(after, before)
    if equal_nan and is_inexact(rows.dtype):
        differs = U.logical_and(differs, U.logical_not(U.logical_and(M.isnan(after), M.isnan(before))))
    differs = R.any(differs, axis=tuple(range(1, rows.ndim)))
    return rows, V.concatenate([np.ones(1, bool), differs]), order


def _filled(rows: Any, size: int, fill_value: Any) -> Any:
    """`size` rows of one value, of the kind of `rows`."""
    return broadcast_to(convert(asarray(fill_value), rows.dtype), (size, *rows.shape[1:]))


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAllResult:
    """The distinct elements in order, their first positions, the inverse and the counts; each nan is distinct."""
    return UniqueAllResult(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCountsResult:
    """The distinct elements in order and how often each occurs; each nan is distinct."""
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverseResult:
    """The distinct elements in order and, for each element, the position of its value among them; each nan is distinct."""
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements in order; each nan is distinct."""
    return unique(x, size=size, fill_value=fill_value, equal_nan=False)


# Sets.


FEW = 128  # elements that each is compared with


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Any:
    """Whether each element is among `test_elements`.

    `method` "compare_all" compares each with each, in memory of all pairs outside of programs; "binary_search" and "sort" look
    it up among the sorted ones; "auto" is the first for few, and the second else. ValueError for others.
    """
    if method not in ("auto", "compare_all", "binary_search", "sort"):
        raise ValueError(
            f"{method=} is not implemented; options are 'compare_all', 'binary_search', 'sort', and 'auto'"
        )
    x, tests = promote("isin", asarray(element), V.ravel(asarray(test_elements)))
    if not tests.size:
        return broadcast_to(literal(invert, BOOL), x.shape)
    if method == "compare_all" or (method == "auto" and known_at_least(FEW, tests.size)):
        found = R.any(U.equal(V.expand_dims(x, x.ndim), tests), -1)
    else:
        table = sort(tests)
        found = U.equal(take_index(table, U.minimum(searchsorted(table, x), tests.size - 1), "clip", wrap=False), x)
    return U.logical_not(found) if invert else found


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements of both; see `unique` for `size`."""
    return unique(V.concatenate([asarray(ar1), asarray(ar2)], None), size=size, fill_value=fill_value)


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """The distinct elements of the first that are not in the second, in its dtype; padded with `fill_value` (0) to `size`."""
    x, other = V.ravel(asarray(ar1)), V.ravel(asarray(ar2))
    if size is None:
        known(x, "setdiff1d")
    fill = convert(asarray(0 if fill_value is None else fill_value), x.dtype)
    if not x.size:
        return broadcast_to(fill, (size or 0,))
    distinct = x if assume_unique else unique(x, size=None if size is None else x.size)
    kept = isin(distinct, other, invert=True)
    if size is None:
        return distinct[np.flatnonzero(known(kept, "setdiff1d"))]
    if not assume_unique:  # `unique` pads with the first
        count = U.subtract(x.size + 1, R.sum(U.equal(distinct, distinct[0])))
        kept = U.logical_and(kept, U.less(iota((x.size,), 0), count))
    valid = U.less(iota((size,), 0), R.sum(kept))
    return M.where(valid, distinct[nonzero(kept, size=size)[0]], fill)


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """The distinct elements in exactly one of both; see `intersect1d` for `size`."""
    first, second = promote("setxor1d", V.ravel(asarray(ar1)), V.ravel(asarray(ar2)))
    values, valid, _, _ = _merged("setxor1d", first, second, assume_unique, size)
    if not values.size:
        return values if size is None else broadcast_to(_fill(values, fill_value), (size,))
    differs = U.not_equal(values[1:], values[:-1])
    edge = np.ones(1, bool)
    alone = U.logical_and(V.concatenate([edge, differs]), V.concatenate([differs, edge]))
    if valid is not None:  # the last one that is valid has no equal behind it
        last = U.logical_not(V.concatenate([valid[1:], ~edge]))
        before = V.concatenate([edge, differs])
        alone = U.logical_and(valid, U.logical_or(alone, U.logical_and(last, before)))
    return _chosen("setxor1d", values, alone, size, fill_value)[0]


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """The distinct elements in both, and their first positions in each if asked.

    With `size`, padded with `fill_value` (the least of the result), and positions with the extents of the arrays.
    """
    first, second = promote("intersect1d", V.ravel(asarray(ar1)), V.ravel(asarray(ar2)))
    values, valid, order, firsts = _merged("intersect1d", first, second, assume_unique, size)
    if not values.size:
        common = values if size is None else broadcast_to(_fill(values, fill_value), (size,))
        none = zeros(common.shape, dtypes.canonical(int))
        return (common, none, none) if return_indices else common
    twice = U.equal(values[1:], values[:-1])
    if valid is not None:
        twice = U.logical_and(twice, valid[1:])
    common, places, present = _chosen("intersect1d", values[:-1], twice, size, fill_value)
    if not return_indices:
        return common
    positions = []
    for place, extent, offset, own in (
        (places, first.size, 0, firsts[0]),
        (U.add(places, 1), second.size, firsts[2], firsts[1]),
    ):
        position = U.subtract(order.at[place].get(mode="clip"), offset)
        position = position if own is None else own.at[position].get(mode="clip")
        positions.append(M.where(present, position, extent))
    return (common, *positions)


def _merged(function: str, first: Any, second: Any, assume_unique: bool, size: int | None) -> Any:
    """The distinct elements of both in order: values, which are valid (None: all), where they come from, and (first
    positions in each array, and where the second's begin)."""
    if size is None:
        known(first, function)
        known(second, function)
    firsts: Any = (None, None, first.size)
    valid = None
    if not assume_unique and first.size and second.size:
        one, two = (
            _unique(v, 0, True, None if size is None else v.size, None if size is None else 0) for v in (first, second)
        )
        firsts = (one.indices, two.indices, one.values.size)
        if size is not None:  # padding stands behind the values of each
            valid = V.concatenate([U.greater(one.counts, 0), U.greater(two.counts, 0)])
        first, second = one.values, two.values
    elif not assume_unique:
        one = _unique(V.concatenate([first, second]), 0, True, None)
        return one.values, None, one.indices, firsts
    values = V.concatenate([first, second])
    positions = iota(values.shape, 0, dtypes.canonical(int))
    if valid is None:
        values, order = bind_wide(sort_p, values, positions, dimension=0, is_stable=True, num_keys=1)
        return values, None, order, firsts
    last, values, order = bind_wide(
        sort_p, U.logical_not(valid), values, positions, dimension=0, is_stable=True, num_keys=2
    )
    return values, U.logical_not(last), order, firsts


def _chosen(function: str, values: Any, mask: Any, size: int | None, fill_value: Any) -> tuple[Any, Any, Any]:
    """The values where the mask holds, their places, and which of them are no padding."""
    if size is None:
        positions = asarray(np.flatnonzero(known(mask, function)))
        return values[positions], positions, True
    positions = nonzero(mask, size=size)[0]
    present = U.less(iota((size,), 0), R.sum(mask))
    found = values.at[positions].get(mode="clip") if values.size else zeros((size,), values.dtype)
    if fill_value is None:  # the least of the result, or of the array where there is none
        fill = R.min(M.where(present, found, R.max(M.where(present, found, 0)))) if size else 0
    else:
        fill = _fill(values, fill_value)
    return M.where(present, found, fill), positions, present


def _fill(values: Any, fill_value: Any) -> Any:
    return convert(asarray(0 if fill_value is None else fill_value), values.dtype)


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None, out_sharding: Any = None
) -> Any:
    """How often each integer occurs (or the sum of its weights), for 0 … length-1; without `length`, values must be known."""
    x = as_value(x, "bincount")
    if x.dtype.kind not in "iub":
        raise TypeError(f"bincount takes a vector of integers, got {x.dtype.name} of shape {x.shape}")
    if x.ndim != 1:
        raise ValueError(
            f"only 1-dimensional input supported: bincount takes a vector of integers, got shape {x.shape}"
        )
    if length is None:
        values = known(x, "bincount", "give length=")
        length = max(minlength, int(values.max(initial=-1)) + 1, 0)
    amounts = asarray(1 if weights is None else weights)
    dtype = amounts.dtype if weights is not None else dtypes.canonical(int)
    return (
        zeros((length,), dtype).at[M.clip(convert(x, np.dtype("int32")), 0)].add(convert(amounts, dtype), mode="drop")
    )


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of equal bins between the extremes (or within `range`), or the given ones, in floating point as `a`."""
    x = asarray(a)
    dtype = dtypes.inexact_of(x.dtype)
    if np.ndim(bins) == 1 or isinstance(bins, (list, tuple)):
        return convert(asarray(bins), dtype)
    if not isinstance(bins, (int, np.integer)):
        raise NotImplementedError(f"histogram takes a number of bins or their edges, got {bins!r}")
    if range is None:
        range = (R.min(x), R.max(x)) if x.size else (0.0, 1.0)
    low, high = (convert(asarray(r), dtype) for r in range)
    flat = U.equal(low, high)
    return linspace(M.where(flat, low - 0.5, low), M.where(flat, high + 0.5, high), int(bins) + 1, dtype=dtype)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, Any]:
    """How many elements (or how much weight) each bin holds, and the edges; the last bin includes its right edge."""
    if weights is None:
        x = U.inexact_operand("histogram", asarray(a))
        amounts: Any = literal(1, x.dtype)
    else:
        x, amounts = promote_inexact("histogram", asarray(a), asarray(weights))
        if x.shape != amounts.shape:
            raise ValueError(f"histogram needs a weight for each element, got shapes {x.shape} and {amounts.shape}")
    x, amounts = V.ravel(x), V.ravel(broadcast_to(amounts, x.shape))
    edges = histogram_bin_edges(x, bins, range, weights)
    inside = U.logical_and(U.greater_equal(x, edges[0]), U.less_equal(x, edges[-1]))
    position = U.subtract(searchsorted(edges, x, "right"), 1)
    position = M.where(U.equal(x, edges[-1]), edges.shape[0] - 2, position)
    counts = (
        zeros((edges.shape[0] - 1,), amounts.dtype)
        .at[M.where(inside, position, edges.shape[0])]
        .add(amounts, mode="drop")
    )
    if density:
        counts = U.divide(U.divide(counts, edges[1:] - edges[:-1]), R.sum(counts))
    return counts, edges


def trim_zeros(filt: Any, trim: str = "fb", axis: int | Sequence[int] | None = None) -> Any:
    """The array without its border of zeros in front ("f") and at the back ("b"), along all axes or those given; values must
    be known."""
    return array(np.trim_zeros(known(filt, "trim_zeros", "slice it"), trim, axis=axis))  # type: ignore[arg-type]
