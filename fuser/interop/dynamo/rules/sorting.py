"""Sorted values with their positions, and searches in them. Equal values keep their order; nan comes after all others."""

from __future__ import annotations

from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.interop.dynamo.rules.table import Refused, operand, rule
from fuser.lax.values import convert

_I64 = np.dtype(np.int64)


def _sorted(x: Any, dim: int, descending: bool = False) -> tuple[Any, Any]:
    """Values in order along a dimension, and where they were. The descending order is the ascending one of the mirrored array."""
    if not x.shape:
        return x, fnp.zeros((), _I64)
    dim %= len(x.shape)
    places = lax.broadcasted_iota(_I64, x.shape, dim)
    keys, places = (fnp.flip(v, dim) if descending else v for v in (_sortable(x), places))
    _, places = lax.sort((keys, places), dimension=dim, num_keys=1, is_stable=True)
    places = fnp.flip(places, dim) if descending else places
    return fnp.take_along_axis(x, places, axis=dim, mode="clip"), places


def _sortable(x: Any) -> Any:
    return convert(x, np.dtype(np.uint8)) if x.dtype.kind == "b" else x


@rule("sort")
def _sort(dtype: np.dtype, x: Any, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(x, dim, descending)


@rule("sort.stable")
def _sort_stable(dtype: np.dtype, x: Any, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(x, dim, descending)


@rule("topk")
def _top_k(dtype: np.dtype, x: Any, count: int, dim: int = -1, largest: bool = True, ordered: bool = True) -> Any:
    if not x.shape:
        return x, fnp.zeros((), _I64)
    if largest and dtype.kind != "b":
        return lax.top_k(x, count, axis=dim)
    return tuple(lax.slice_in_dim(v, 0, count, axis=dim) for v in _sorted(x, dim, largest))


def _ranked(x: Any, rank: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """The value of a rank (an array may give one for each row) along a dimension, and where it is."""
    values, places = _sorted(x, dim)
    if not x.shape:
        return values, places
    rank = fnp.expand_dims(rank, dim) if getattr(rank, "shape", ()) else fnp.full((1,) * len(x.shape), rank, _I64)
    wanted = fnp.broadcast_to(rank, tuple(1 if d == dim % len(x.shape) else e for d, e in enumerate(x.shape)))
    found = [fnp.take_along_axis(v, wanted, axis=dim, mode="clip") for v in (values, places)]
    return tuple(v if keepdim else fnp.squeeze(v, dim) for v in found)  # type: ignore[return-value]


@rule("kthvalue")
def _kthvalue(dtype: np.dtype, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _ranked(x, k - 1, dim, keepdim)


@rule("median.dim")
def _median(dtype: np.dtype, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower of two in the middle; the first nan where there is one."""
    if not x.shape:
        return _sorted(x, 0)
    extent = x.shape[dim]
    numbers = fnp.sum(fnp.equal(x, x), axis=dim, dtype=_I64)
    return _ranked(x, fnp.where(fnp.equal(numbers, extent), (extent - 1) // 2, numbers), dim, keepdim)


@rule("nanmedian.dim")
def _nanmedian(dtype: np.dtype, x: Any, dim: int, keepdim: bool = False) -> Any:
    if not x.shape:
        return _sorted(x, 0)
    numbers = fnp.sum(fnp.equal(x, x), axis=dim, dtype=_I64)
    return _ranked(x, fnp.right_shift(fnp.maximum(fnp.subtract(numbers, 1), 0), 1), dim, keepdim)


rule("median")(lambda dtype, x: _median(dtype, fnp.ravel(x), 0)[0])
rule("nanmedian")(lambda dtype, x: _nanmedian(dtype, fnp.ravel(x), 0)[0])


def _search(dtype: np.dtype, rows: Any, x: Any, right: bool, side: str | None = None) -> Any:
    side = side or ("right" if right else "left")
    both = np.dtype(np.result_type(rows.dtype, x.dtype)) if rows.dtype != x.dtype else rows.dtype
    rows, x = operand(rows, both), operand(x, both)
    search = lambda row, values: fnp.searchsorted(row, values, side=side)
    if len(rows.shape) == 1:
        return search(rows, x)
    flat = (fnp.reshape(v, (-1, v.shape[-1])) for v in (rows, x))
    return fnp.reshape(fuser.vmap(search)(*flat), x.shape)


@rule("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    dtype: np.dtype, rows: Any, x: Any, *, out_int32: bool = False, right: bool = False, side: Any = None, sorter: Any = None
) -> Any:  # fmt: skip
    if sorter is not None:
        raise Refused("a search in the order of another array")
    return _search(dtype, rows, x if hasattr(x, "shape") else operand(x, rows.dtype), right, side)


@rule("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(dtype: np.dtype, x: Any, rows: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return _search(dtype, rows, x if hasattr(x, "shape") else operand(x, rows.dtype), right)
