"""Functions whose result's shape depends on values: nonzero, unique, set operations, bincount, histogram.

They need known values, or a static `size` (`length` for bincount) that fixes the shape while tracing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import ConcretizationTypeError
from fuser.ir.source import current_source
from fuser.lax.values import as_value, convert, promote
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import array, asarray, iota, linspace, zeros
from fuser.numpy.sorting import searchsorted
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
    index_dtype = dtypes.canonicalize_dtype(int)
    if size is None:
        return tuple(Array(p.astype(index_dtype)) for p in np.nonzero(known(x, "nonzero")))
    flat = V.ravel(x)
    counts = R.cumsum(convert(flat, index_dtype))
    total = counts[-1] if flat.size else zeros((), index_dtype)
    places = searchsorted(counts, U.add(iota((size,), 0, index_dtype), 1)) if flat.size else zeros((size,), index_dtype)
    valid = U.less(iota((size,), 0, index_dtype), total)
    fills = fill_value if isinstance(fill_value, tuple) else (0 if fill_value is None else fill_value,) * x.ndim
    result = []
    for extent, fill in zip(reversed(x.shape), reversed(fills)):
        result.append(M.where(valid, M.remainder(places, max(extent, 1)), convert(asarray(fill), index_dtype)))
        places = M.floor_divide(places, max(extent, 1))
    return tuple(reversed(result))


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of the nonzero elements of the flattened array."""
    return nonzero(V.ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of the nonzero elements, a row each."""
    x = asarray(a)
    if not x.ndim:
        rows = int(bool(known(x, "argwhere"))) if size is None else size
        return zeros((rows, 0), dtypes.canonicalize_dtype(int))
    return V.stack(nonzero(x, size=size, fill_value=fill_value), 1)


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None, *,
    equal_nan: bool = True, size: int | None = None, fill_value: Any = None, sorted: bool = True,
) -> Any:  # fmt: skip
    """The distinct elements in order, with their first positions, the inverse and counts as asked; values must be known."""
    x = known(ar, "unique", "use sort")
    values, index, inverse, counts = np.unique(x, True, True, True, axis=axis, equal_nan=equal_nan)
    inverse = inverse.reshape(x.shape if axis is None else -1)
    if size is not None:
        values, index, counts = _sized(values, index, counts, size, fill_value, axis or 0)
    index_dtype = dtypes.canonicalize_dtype(int)
    extra = [(return_index, index), (return_inverse, inverse), (return_counts, counts)]
    chosen = [array(v.astype(index_dtype)) for wanted, v in extra if wanted]
    return (array(values), *chosen) if chosen else array(values)


def _sized(
    values: np.ndarray, index: np.ndarray, counts: np.ndarray, size: int, fill: Any, axis: int
) -> tuple[np.ndarray, ...]:
    rows = np.moveaxis(values, axis, 0)[:size]
    missing = size - len(rows)
    if missing > 0:
        value = rows[:1] if fill is None else np.broadcast_to(np.asarray(fill, rows.dtype), (1, *rows.shape[1:]))
        rows = np.concatenate([rows, np.repeat(value, missing, 0)])
        index = np.concatenate([index, np.repeat(index[:1], missing)])
        counts = np.concatenate([counts, np.zeros(missing, counts.dtype)])
    return np.moveaxis(rows, 0, axis), index[:size], counts[:size]


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements in order."""
    return unique(x, size=size, fill_value=fill_value, equal_nan=False)


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Any:
    """Whether each element is among `test_elements`."""
    x, tests = promote("isin", asarray(element), asarray(test_elements))
    if not tests.size:
        found = U.not_equal(x, x) if not invert else U.equal(x, x)
        return M.where(found, invert, invert)
    found = R.any(U.equal(V.expand_dims(x, x.ndim), V.ravel(tests)), -1)
    return U.logical_not(found) if invert else found


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements of both."""
    return unique(V.concatenate([ar1, ar2], None), size=size, fill_value=fill_value)


def _set_operation(name: str, function: Any, text: str) -> Any:
    def operation(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
        first, second = promote(name, asarray(ar1), asarray(ar2))
        return array(function(known(first, name, "use isin"), known(second, name, "use isin"), assume_unique))

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = text
    return operation


intersect1d = _set_operation("intersect1d", np.intersect1d, "The distinct elements in both; values must be known.")
setdiff1d = _set_operation(
    "setdiff1d", np.setdiff1d, "The distinct elements of the first that are not in the second; values must be known."
)
setxor1d = _set_operation(
    "setxor1d", np.setxor1d, "The distinct elements in exactly one of both; values must be known."
)


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """How often each integer occurs (or the sum of its weights), for 0 … length-1; without `length`, values must be known."""
    x = as_value(x, "bincount")
    if x.dtype.kind not in "iub" or x.ndim != 1:
        raise TypeError(f"bincount takes a vector of integers, got {x.dtype.name} of shape {x.shape}")
    if length is None:
        values = known(x, "bincount", "give length=")
        length = max(minlength, int(values.max(initial=-1)) + 1, 0)
    amounts = asarray(1 if weights is None else weights)
    dtype = amounts.dtype if weights is not None else dtypes.canonicalize_dtype(int)
    return (
        zeros((length,), dtype).at[M.clip(convert(x, np.dtype("int32")), 0)].add(convert(amounts, dtype), mode="drop")
    )


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of equal bins between the extremes (or within `range`), or the given ones."""
    x = V.ravel(U.inexact_operand("histogram", a))
    if np.ndim(bins) == 1 or isinstance(bins, (list, tuple)):
        return asarray(bins)
    if not isinstance(bins, (int, np.integer)):
        raise NotImplementedError(f"histogram takes a number of bins or their edges, got {bins!r}")
    low, high = (
        (asarray(r) for r in range)
        if range is not None
        else ((R.min(x), R.max(x)) if x.size else (asarray(0.0), asarray(1.0)))
    )
    low, high = convert(low, x.dtype), convert(high, x.dtype)
    flat = U.equal(low, high)
    return linspace(M.where(flat, low - 0.5, low), M.where(flat, high + 0.5, high), int(bins) + 1)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, Any]:
    """How many elements (or how much weight) each bin holds, and the edges; the last bin includes its right edge."""
    x = V.ravel(U.inexact_operand("histogram", a))
    edges = histogram_bin_edges(x, bins, range, weights)
    edges, x = promote("histogram", edges, x)
    amounts = (
        U.multiply(V.ravel(asarray(weights)), 1) if weights is not None else M.where(M.isnan(x), 1, 1).astype(x.dtype)
    )
    inside = U.logical_and(U.greater_equal(x, edges[0]), U.less_equal(x, edges[-1]))
    place = U.subtract(searchsorted(edges, x, "right"), 1)
    place = M.where(U.equal(x, edges[-1]), edges.shape[0] - 2, place)
    counts = (
        zeros((edges.shape[0] - 1,), amounts.dtype).at[M.where(inside, place, edges.shape[0])].add(amounts, mode="drop")
    )
    if density:
        counts = U.divide(U.divide(counts, edges[1:] - edges[:-1]), R.sum(counts))
    return counts, edges


def trim_zeros(filt: Any, trim: Any = "fb") -> Any:
    """A vector without its zeros in front ("f") and at the back ("b"); values must be known."""
    return array(np.trim_zeros(known(filt, "trim_zeros", "slice it"), trim))
