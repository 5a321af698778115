"""Gathers and scatters. An index out of range is an IndexError of the program, as it is torch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser import lax
from fuser.interop.dynamo.rules.table import Refused, check, check_indices, operand, rule, wide
from fuser.ir.types import kind_of
from fuser.lax.values import broadcast_to, literal


@rule("embedding")
def _embedding(dtype: np.dtype, weight: Any, indices: Any, *unused: Any, **more: Any) -> Any:
    return fnp.take(weight, check_indices(indices, weight.shape[0], "embedding"), axis=0, mode="clip")


@rule("index_select")
def _index_select(dtype: np.dtype, x: Any, dim: int, indices: Any) -> Any:
    if not x.shape:
        return fnp.reshape(_index_select(dtype, fnp.reshape(x, (1,)), 0, fnp.reshape(indices, (1,))), ())
    return fnp.take(x, check_indices(indices, x.shape[dim], "index_select"), axis=dim, mode="clip")


@rule("gather")
def _gather(dtype: np.dtype, x: Any, dim: int, indices: Any, sparse_grad: bool = False) -> Any:
    dim %= max(len(x.shape), 1)
    if not x.shape or any(i > e for d, (i, e) in enumerate(zip(indices.shape, x.shape)) if d != dim):
        raise Refused("gather of a scalar")
    kept = x[tuple(slice(None) if d == dim else slice(0, e) for d, e in enumerate(indices.shape))]
    positions = check_indices(indices, x.shape[dim], "gather")
    return fnp.take_along_axis(kept, positions, axis=dim, mode="clip")


def _positions(x: Any, indices: Sequence[Any], what: str) -> tuple[Any, ...]:
    if any(i is not None and i.dtype.kind == "b" for i in indices):
        raise Refused("a mask as index, whose count of elements is not known")
    return tuple(slice(None) if i is None else check_indices(i, extent, what) for i, extent in zip(indices, x.shape))


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index(dtype: np.dtype, x: Any, indices: Sequence[Any]) -> Any:
    return x.at[_positions(x, indices, "index")].get(mode="clip")


@rule("index_put", "_unsafe_index_put")
def _index_put(dtype: np.dtype, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """Of several values for one element the last is kept (undefined in torch)."""
    values, [first, *others] = operand(values, dtype), indices
    if (
        first is not None
        and first.dtype.kind == "b"
        and not others
        and len(values.shape) <= len(x.shape) - len(first.shape)
    ):
        mask = fnp.reshape(first, (*first.shape, *(1,) * (len(x.shape) - len(first.shape))))
        return fnp.where(mask, fnp.add(x, values) if accumulate else values, x)
    where = x.at[_positions(x, indices, "index_put")]
    if accumulate and dtype.kind == "b":
        raise Refused("a sum of truth values")
    return where.add(values) if accumulate else where.set(values)


@rule("put")
def _put(dtype: np.dtype, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Elements changed that are counted as if the array had one dimension."""
    flat = _index_put(dtype, fnp.ravel(x), [fnp.ravel(indices)], fnp.ravel(values), accumulate)
    return fnp.reshape(flat, x.shape)


@rule("masked_scatter")
def _masked_scatter(dtype: np.dtype, x: Any, mask: Any, source: Any) -> Any:
    mask = broadcast_to(mask, tuple(x.shape))
    if not source.size:
        raise Refused("elements taken from nothing")
    place = fnp.subtract(fnp.cumsum(fnp.ravel(mask), dtype=np.int64), 1)
    check(fnp.greater_equal(place, source.size), "masked_scatter: the mask has more elements than the source")
    taken = fnp.take(fnp.ravel(source), fnp.maximum(place, 0), mode="clip")
    return fnp.where(mask, fnp.reshape(taken, x.shape), x)


@rule("masked_scatter_backward")
def _masked_scatter_backward(dtype: np.dtype, grad: Any, mask: Any, shape: Sequence[int]) -> Any:
    mask, size = fnp.ravel(broadcast_to(mask, tuple(grad.shape))), math.prod(shape)
    place = fnp.where(mask, fnp.subtract(fnp.cumsum(mask, dtype=np.int64), 1), size)
    return fnp.reshape(fnp.zeros((size,), dtype).at[place].add(fnp.ravel(grad), mode="drop"), tuple(shape))


# Scatters: `dim` is replaced by computed positions, the other dimensions are walked together.


def _places(x: Any, dim: int, indices: Any, what: str) -> tuple[Any, tuple[Any, ...]]:
    """The array (a scalar as one element) and the index of the elements that a scatter changes."""
    if not x.shape:
        x = fnp.reshape(x, (1,))
    indices = indices if indices.shape else fnp.reshape(indices, (1,))
    dim %= len(x.shape)
    positions = check_indices(indices, x.shape[dim], what)
    return x, tuple(
        positions if d == dim else lax.broadcasted_iota(np.int64, indices.shape, d) for d in range(len(x.shape))
    )


def _scattered(
    dtype: np.dtype, x: Any, dim: int, indices: Any, source: Any, reduce: str = "set", include_self: bool = True
) -> Any:
    """torch's scatters. Of several values for one element the last is kept where none is reduced (undefined in torch)."""
    shape = x.shape
    if not indices.size:
        return x
    x, where = _places(x, dim, indices, "scatter")
    extents = where[0].shape
    values = operand(source, dtype)
    if values.shape:
        values = values[tuple(slice(0, e) for e in extents)]
    method = _METHODS[reduce]
    mean = reduce == "mean"
    if mean and kind_of(dtype) != "f":
        raise Refused("means of integers")
    if dtype.kind == "b" and method != "set":
        raise Refused("a reduction of truth values")
    own = wide(dtype)
    start, values = (operand(v, own) for v in (x, values)) if method != "set" else (x, values)
    touched = None
    if not include_self:
        touched = fnp.zeros(x.shape, bool).at[where].set(True)
        start = fnp.where(touched, literal(_identity(reduce, own), own), start)
    found = getattr(start.at[where], method)(fnp.broadcast_to(values, extents))
    if mean:
        count = fnp.full(x.shape, float(include_self), own).at[where].add(fnp.ones(extents, own))
        found = fnp.divide(found, fnp.maximum(count, literal(1, own)))
    return fnp.reshape(found, shape)


_METHODS = {
    "set": "set", "sum": "add", "add": "add", "mean": "add", "prod": "multiply", "multiply": "multiply", "amax": "max", "amin": "min"
}  # fmt: skip


def _identity(reduce: str, dtype: np.dtype) -> Any:
    if reduce in ("amax", "amin"):
        if dtype.kind in "iu":
            return np.iinfo(dtype).min if reduce == "amax" else np.iinfo(dtype).max
        return -np.inf if reduce == "amax" else np.inf
    return 1 if reduce == "prod" else 0


rule("scatter.src", "scatter.value")(_scattered)
rule("scatter_add")(lambda dtype, x, dim, indices, source: _scattered(dtype, x, dim, indices, source, "add"))
rule("scatter.reduce", "scatter.value_reduce")(
    lambda dtype, x, dim, indices, source, *, reduce: _scattered(dtype, x, dim, indices, source, reduce)
)
rule("scatter_reduce.two")(
    lambda dtype, x, dim, indices, source, reduce, include_self=True: _scattered(
        dtype, x, dim, indices, source, reduce, include_self
    )
)


@rule("index_reduce")
def _index_reduce(
    dtype: np.dtype, x: Any, dim: int, indices: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    if len(x.shape) > 1:
        along = fnp.reshape(indices, tuple(-1 if d == dim % len(x.shape) else 1 for d in range(len(x.shape))))
        indices = broadcast_to(along, tuple(source.shape))
    return _scattered(dtype, x, dim, indices, source, reduce, include_self)
