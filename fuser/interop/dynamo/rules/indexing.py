"""Gathers and scatters. An index out of range is an IndexError of the program, as it is torch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.interop.dynamo.rules.table import Refused, check_indices, operand, rule


@rule("embedding")
def _embedding(dtype: np.dtype, weight: Any, indices: Any, *unused: Any, **more: Any) -> Any:
    return fnp.take(weight, check_indices(indices, weight.shape[0], "embedding"), axis=0, mode="clip")


@rule("index_select")
def _index_select(dtype: np.dtype, x: Any, dim: int, indices: Any) -> Any:
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


@rule("index.Tensor")
def _index(dtype: np.dtype, x: Any, indices: Sequence[Any]) -> Any:
    return x.at[_positions(x, indices, "index")].get(mode="clip")


@rule("index_put", "_unsafe_index_put")
def _index_put(dtype: np.dtype, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    where = x.at[_positions(x, indices, "index_put")]
    if not accumulate and any(i is not None and i.shape for i in indices):
        raise Refused("which of several values for one element is kept is torch's to say")
    values = operand(values, dtype)
    return where.add(values) if accumulate else where.set(values)
