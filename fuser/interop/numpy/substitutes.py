"""Functions of NumPy that are answered in other ways than its own where those are faster: the same results, types and errors.

In: ndarrays, as NumPy's function takes them. What a substitute has no way for (few elements, options, nans), NumPy answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop.numpy import host_kernels

MOST_LEVELS = 6  # quantiles of one call: each is a pass, and NumPy partitions once for all
SUBSTITUTES: dict[Callable[..., Any], Callable[..., Any]] = {}


def faster(function: Callable[..., Any]) -> Callable[..., Any]:
    """What answers calls of `function`: a substitute, or itself."""
    try:
        return SUBSTITUTES.get(function, function)
    except TypeError:  # it cannot be hashed
        return function


def item(array: Any, index: Any) -> Any:
    """`array[index]`."""
    if type(index) is np.ndarray and type(array) is np.ndarray and index.dtype == np.bool_:
        found = host_kernels.selected(array, index)
        if found is not None:
            return found
    return array[index]


def _substitutes(function: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have a function that gives None where NumPy is to answer stand for NumPy's."""

    def register(attempt: Callable[..., Any]) -> Callable[..., Any]:
        positional = attempt.__code__.co_argcount

        def substitute(*args: Any, **kwargs: Any) -> Any:
            known = 0 < len(args) <= positional
            large = known and type(args[0]) is np.ndarray and args[0].size >= host_kernels.FEWEST
            found = attempt(*args, **kwargs) if large else None
            return function(*args, **kwargs) if found is None else found

        SUBSTITUTES[function] = substitute
        return attempt

    return register


# Order statistics.


def _as_row(a: np.ndarray, axis: Any, options: dict[str, Any]) -> np.ndarray | None:
    """All elements in one dimension, where a selection from all of them is asked for, and nothing else."""
    if options or not (axis is None or (a.ndim == 1 and type(axis) is int and axis in (0, -1))):
        return None
    return a.reshape(-1) if a.flags.c_contiguous else a.T.reshape(-1) if a.flags.f_contiguous else None


@_substitutes(np.median)
def _median(a: np.ndarray, axis: Any = None, **options: Any) -> Any:
    row = _as_row(a, axis, _given(options, keepdims=False))
    if row is None:
        return None
    found = host_kernels.neighbours(row, [(row.size - 1) // 2])
    return None if found is None else np.mean(found[0][: 2 - row.size % 2])


def _given(options: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """The options that differ from what they are by default."""
    return {k: v for k, v in options.items() if not (k in defaults and v is defaults[k])}


def _of_levels(a: np.ndarray, q: Any, divisor: int, axis: Any, options: dict[str, Any]) -> Any:
    """Quantiles by linear interpolation between neighbours, as NumPy interpolates (Hyndman and Fan, 1996, type 7)."""
    method = options.pop("method", "linear")
    row = _as_row(a, axis, _given(options, keepdims=False)) if method == "linear" else None
    levels = np.true_divide(q, divisor, out=...) if divisor != 1 else np.asarray(q)
    if row is None or levels.dtype.kind != "f" or not 0 < levels.size <= MOST_LEVELS:
        return None
    if not ((levels >= 0) & (levels <= 1)).all():
        return None
    virtual = (row.size - 1) * levels
    below = np.floor(virtual)
    found = host_kernels.neighbours(row, [int(k) for k in below.ravel()])
    if found is None:
        return None
    low, high = (np.array(side, row.dtype).reshape(levels.shape) for side in zip(*found))
    weight: Any = (virtual - below).astype(virtual.dtype)
    if type(q) in (int, float):
        weight = float(weight)
    difference = high - low
    result = np.asarray(low + difference * weight)
    np.subtract(high, difference * (1 - weight), out=result, where=np.asarray(weight) >= 0.5, casting="unsafe")
    return result[()]


@_substitutes(np.quantile)
def _quantile(a: np.ndarray, q: Any, axis: Any = None, **options: Any) -> Any:
    return _of_levels(a, q, 1, axis, options)


@_substitutes(np.percentile)
def _percentile(a: np.ndarray, q: Any, axis: Any = None, **options: Any) -> Any:
    return _of_levels(a, q, 100, axis, options)


# Stream compaction.


@_substitutes(np.flatnonzero)
def _flatnonzero(a: np.ndarray) -> Any:
    return host_kernels.positions(a)


@_substitutes(np.where)
@_substitutes(np.nonzero)
def _nonzero(a: np.ndarray) -> Any:
    found = host_kernels.positions(a) if a.ndim == 1 else None
    return None if found is None else (found,)


# Histograms whose outer edges are the extremes.


@_substitutes(np.histogram)
def _histogram(a: np.ndarray, bins: Any = 10, range: Any = None, **options: Any) -> Any:
    plain = range is None and not _given(options, weights=None, density=options.get("density") or None)
    plain = plain and not options.get("density") and type(bins) is int
    if not plain or a.dtype.kind != "f" or not a.flags.c_contiguous or bins < 1:
        return None
    low, high = a.min(), a.max()
    if not (np.isfinite(low) and np.isfinite(high) and low < high and np.isfinite(high - low)):
        return None
    edges = np.histogram_bin_edges(np.array([low, high], a.dtype), bins)
    counts = host_kernels.counts(a, edges)
    return None if counts is None else (counts, edges)


# Distinct integers, by counting.


@_substitutes(np.unique)
def _unique(a: np.ndarray, **options: Any) -> Any:
    wanted = _given(options, return_index=False, return_inverse=False, return_counts=False, axis=None, equal_nan=True)
    if a.dtype.kind not in "iu" or not wanted.keys() <= {"return_inverse", "return_counts"}:
        return None
    low, high = int(a.min()), int(a.max())
    if high - low >= a.size or not -(1 << 62) < low <= high < 1 << 62:
        return None
    offsets = a.ravel().astype(np.intp) - low
    counts = np.bincount(offsets)
    present = np.flatnonzero(counts)
    results: list[Any] = [(present + low).astype(a.dtype)]
    if wanted.get("return_inverse"):
        ranks = np.cumsum(counts > 0) - 1
        results.append(ranks[offsets].reshape(a.shape))
    if wanted.get("return_counts"):
        results.append(counts[present])
    return tuple(results) if len(results) > 1 else results[0]


# Least squares with many more equations than unknowns: by the triangular factor of both sides.


@_substitutes(np.linalg.lstsq)
def _lstsq(a: np.ndarray, b: Any, rcond: Any = None) -> Any:
    if a.ndim != 2 or type(b) is not np.ndarray or b.ndim not in (1, 2) or len(a) != len(b) or not a.size or not b.size:
        return None
    rows, n = a.shape
    factor = host_kernels.tall_factor(a, b.reshape(rows, -1))
    if factor is None:
        return None
    left, values, right = np.linalg.svd(factor[:n, :n])
    epsilon = float(np.finfo(np.float64).eps)
    limit = rows * epsilon if rcond is None else rcond if 0 < rcond < 1 else epsilon  # as LAPACK's dgelsd takes it
    rank = int((values > limit * values[0]).sum())
    solution = right[:rank].T @ ((left[:, :rank].T @ factor[:n, n:]) / values[:rank, None])
    residuals = (factor[n:, n:] ** 2).sum(axis=0) if rank == n else np.empty(0)
    return solution.reshape(n, *b.shape[1:]), residuals, np.int32(rank), values
