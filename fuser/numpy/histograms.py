"""Histograms in several dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.lax.values import as_value, promote_inexact
from fuser.numpy import linear as L
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy.creation import asarray
from fuser.numpy.selection import ravel_multi_index
from fuser.numpy.sets import bincount, histogram_bin_edges
from fuser.numpy.sorting import searchsorted

__all__ = ["histogram2d", "histogramdd"]


def histogramdd(
    sample: Any, bins: Any = 10, range: Sequence[Any] | None = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, list[Any]]:
    """How many of the points `sample` (n, d) each bin holds, d dimensions of bins, and the edges along each.

    `bins` and `range` as in `histogram`, for all dimensions or one for each. With `density` the integral is 1. ValueError for
    another number of dimensions.
    """
    points = as_value(sample, "histogramdd") if not isinstance(sample, (list, tuple)) else asarray(sample)
    (points,) = promote_inexact("histogramdd", points)
    dims = points.shape[1]
    if range is not None and (len(range) != dims or any(r is not None and np.shape(r)[:1] != (2,) for r in range)):
        raise ValueError(
            f"For sample.shape={points.shape}, range must be a sequence of {dims} pairs or Nones; got range={range}"
        )
    each = [bins] * dims if np.ndim(bins) == 0 and not isinstance(bins, (list, tuple)) else list(bins)
    if len(each) != dims:
        raise ValueError("should be a bin for each dimension.")
    edges, positions = [], []
    for d, own in enumerate(each):
        bounds = histogram_bin_edges(points[:, d], own, None if range is None else range[d])
        position = searchsorted(bounds, points[:, d], side="right")
        position = M.where(points[:, d] == bounds[-1], position - 1, position)
        edges.append(bounds)
        positions.append(position)
    shape = tuple(len(e) + 1 for e in edges)
    amounts = None if weights is None else asarray(weights)
    flat = ravel_multi_index(tuple(positions), shape, mode="clip")
    counts = V.reshape(bincount(flat, amounts, length=math.prod(shape)), shape)
    counts = counts[(slice(1, -1),) * dims]
    if density:
        widths = [e[1:] - e[:-1] for e in edges]
        volume = widths[0]
        for width in widths[1:]:
            volume = L.outer(volume, width) if volume.ndim == 1 else volume[..., None] * width
        counts = counts.astype(points.dtype)
        counts = counts / R.sum(counts) / volume
    return counts, edges


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Sequence[Any] | None = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, Any, Any]:
    """`histogramdd` of points with coordinates x (n,) and y (n,): counts, and the edges along x and along y."""
    first, second = asarray(x), asarray(y)
    sample = V.stack(promote_inexact("histogram2d", first, second), 1)
    if not isinstance(bins, (int, np.integer)) and not (
        (isinstance(bins, (list, tuple)) and len(bins) in (1, 2) and np.ndim(bins[0]) == 1) or len(bins) == 2
    ):
        bins = [bins, bins]
    counts, (rows, columns) = histogramdd(sample, bins, range, weights, density)
    return counts, rows, columns
