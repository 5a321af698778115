"""Functions of samples: the commonest value, ranks, and the standard error of the mean."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fuser import dtypes, lax
from fuser import numpy as fnp
from fuser.ir.dim import minimum
from fuser.lax.values import as_value, axis_of

__all__ = ["mode", "rankdata", "sem"]


class ModeResult(NamedTuple):
    """The commonest values along an axis, and how often they occur."""

    mode: Any
    count: Any


def _nan_policy(function: str, policy: str) -> None:
    if policy not in ("propagate", "omit", "raise"):
        raise ValueError(f"Illegal nan_policy value {policy!r}; expected one of {{'propagate', 'omit', 'raise'}}")
    if policy == "omit":
        raise NotImplementedError(f"Logic for `nan_policy` of {policy} is not implemented")
    if policy == "raise":
        raise NotImplementedError(
            "In order to best JIT compile `mode`, we cannot know whether `x` contains nans. "
            "Please check if nans exist in `x` outside of the function."
        )


def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The commonest value along `axis` (of all elements for None), the least of those, and its count.

    nans count as equal. NotImplementedError for a `nan_policy` other than "propagate", ValueError for no policy.
    """
    _nan_policy("mode", nan_policy)
    x = as_value(a, "mode")
    if axis is not None:
        axis = axis_of(axis, x.ndim, "mode")
    if not x.size:
        return _mode_of_nothing(x, axis, keepdims)
    moved = fnp.ravel(x) if axis is None else fnp.moveaxis(x, axis, -1)
    ordered = fnp.sort(moved, axis=-1)
    same = ordered[..., 1:] == ordered[..., :-1]
    if dtypes.issubdtype(x.dtype, np.inexact):
        same = same | (fnp.isnan(ordered[..., 1:]) & fnp.isnan(ordered[..., :-1]))
    extent = ordered.shape[-1]
    positions = fnp.arange(extent)
    first = fnp.concatenate([fnp.ones((*same.shape[:-1], 1), bool), ~same], -1)
    starts = lax.cummax(fnp.where(first, positions, 0), first.ndim - 1)
    lengths = positions - starts + 1  # at the last element of a run, the run's
    best = fnp.argmax(lengths, axis=-1)
    value = fnp.take_along_axis(ordered, best[..., None], -1)[..., 0]
    count = fnp.max(lengths, axis=-1)
    if keepdims:
        shape = tuple(1 if axis is None or d == axis else e for d, e in enumerate(x.shape))
        return ModeResult(fnp.reshape(value, shape), fnp.reshape(count, shape))
    return ModeResult(value, count)


def _mode_of_nothing(x: Any, axis: int | None, keepdims: bool) -> ModeResult:
    """Nan and 0 for axes without elements."""
    dtype = dtypes.canonical(float) if axis is None else x.dtype
    if axis is None:
        shape: tuple[int, ...] = (1,) * x.ndim if keepdims else ()
        return ModeResult(fnp.full(shape, np.nan, dtype), fnp.zeros(shape, dtype))
    shape = tuple(1 if d == axis else e for d, e in enumerate(x.shape) if keepdims or d != axis)
    return ModeResult(fnp.full(shape, np.nan, dtype), fnp.zeros(shape, dtype))


def rankdata(a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Any:
    """The ranks from 1 of the elements along `axis` (of all, as a vector, for None), as the default float; nan beside a nan.

    Equal elements share the average, "min" or "max" of their ranks, get the same rank and no gap ("dense"), or keep their
    order ("ordinal"). ValueError for another method.
    """
    _nan_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"unknown method '{method}'")
    x = as_value(a, "rankdata")
    if axis is None:
        return _ranks(fnp.ravel(x), method)
    return fnp.apply_along_axis(lambda row: _ranks(row, method), axis_of(axis, x.ndim, "rankdata"), x)


def _ranks(x: Any, method: str) -> Any:
    found = _ranks_of_numbers(x, method)
    return fnp.where(fnp.any(fnp.isnan(x)), np.nan, found) if dtypes.issubdtype(x.dtype, np.inexact) else found


def _ranks_of_numbers(x: Any, method: str) -> Any:
    order = fnp.argsort(x)
    place = fnp.zeros(x.size, order.dtype).at[order].set(fnp.arange(x.size, dtype=order.dtype), unique_indices=True)
    if method == "ordinal":
        return (place + 1).astype(dtypes.canonical(float))
    ordered = x[order]
    first = fnp.concatenate([fnp.ones(minimum(x.size, 1), bool), ordered[1:] != ordered[:-1]])
    dense = fnp.cumsum(first)[place]
    if method == "dense":
        return dense.astype(dtypes.canonical(float))
    starts = fnp.nonzero(first, size=x.size + 1, fill_value=x.size)[0]
    if method == "max":
        return starts[dense].astype(dtypes.canonical(float))
    if method == "min":
        return (starts[dense - 1] + 1).astype(dtypes.canonical(float))
    return 0.5 * (starts[dense] + starts[dense - 1] + 1).astype(dtypes.canonical(float))


def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Any:
    """The standard error of the mean along `axis`: the standard deviation with `ddof` over √n.

    With nan_policy="omit" nans are left out of both. ValueError for another than these two.
    """
    x = as_value(a, "sem")
    if nan_policy == "omit":
        count = fnp.sum(~fnp.isnan(x), axis, keepdims=keepdims)
        return fnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / fnp.sqrt(count)
    if nan_policy != "propagate":
        raise ValueError(f"{nan_policy} is not supported; nan_policy is 'propagate' or 'omit'")
    size = x.size if axis is None else x.shape[axis_of(axis, x.ndim, "sem")]
    return fnp.std(x, axis, ddof=ddof, keepdims=keepdims) / float(math.sqrt(size))
