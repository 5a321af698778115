"""Sums and running sums in NumPy whose error is that of pairwise summation along every axis.

NumPy itself adds in pairs only along what is innermost in memory, and its running sums take one element after the other.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

BLOCK = 16  # rows that are added one after the other
RUN = 64  # elements of a running sum that are


def pairwise_sum(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The sum over `axes` in the type of `x`."""
    x = np.asarray(x, order="C")
    inner = _innermost(x.ndim, axes)
    x = np.add.reduce(x, axis=inner, dtype=x.dtype) if inner else x
    for axis in sorted(set(axes) - set(inner), reverse=True):
        x = _sum_of_rows(x, axis)
    return np.asarray(x)


def in_one_step(x: Any, axes: tuple[int, ...]) -> bool:
    """Whether `pairwise_sum` of a dense array of this shape is one call of NumPy's."""
    return bool(axes) and len(_innermost(len(x.shape), axes)) == len(axes)


@functools.cache
def _innermost(ndim: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the axes after which only axes of the sum follow."""
    return tuple(d for d in axes if all(e in axes for e in range(d, ndim)))


def _sum_of_rows(x: np.ndarray, axis: int) -> np.ndarray:
    """The sum along an axis that is not the innermost: of blocks, then of blocks of their sums."""
    while x.shape[axis] > 2 * BLOCK:
        whole, rest = _blocks(x, axis, BLOCK)
        sums = [np.add.reduce(whole, axis=axis + 1)]
        if rest.shape[axis]:
            sums.append(np.add.reduce(rest, axis=axis, keepdims=True))
        x = np.concatenate(sums, axis)
    return np.asarray(np.add.reduce(x, axis=axis))


def running_sum(x: np.ndarray, axis: int) -> np.ndarray:
    """The running sum along `axis` in the type of `x`."""
    if x.shape[axis] <= 2 * RUN:
        return np.add.accumulate(x, axis=axis)
    whole, rest = _blocks(x, axis, RUN)
    out = np.empty(x.shape, x.dtype)
    inside, after = _blocks(out, axis, RUN)
    np.add.accumulate(whole, axis=axis + 1, out=inside)
    before = running_sum(inside.take(-1, axis + 1), axis)  # the sum of all blocks up to each
    first = (slice(None),) * axis
    inside[(*first, slice(1, None))] += np.expand_dims(before[(*first, slice(None, -1))], axis + 1)
    np.add.accumulate(rest, axis=axis, out=after)
    after += before[(*first, slice(-1, None))]
    return out


def _blocks(x: np.ndarray, axis: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Views of the whole blocks along an axis, which becomes two, and of what is left."""
    count = x.shape[axis] // length
    first = (slice(None),) * axis
    whole, rest = x[(*first, slice(None, count * length))], x[(*first, slice(count * length, None))]
    shape = (*x.shape[:axis], count, length, *x.shape[axis + 1 :])
    step = x.strides[axis]
    strides = (*x.strides[:axis], length * step, step, *x.strides[axis + 1 :])
    return np.lib.stride_tricks.as_strided(whole, shape, strides), rest
