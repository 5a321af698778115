"""Sparse arrays made: empty ones, diagonals and random ones; and what is dense already."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser import random
from fuser.experimental.sparse.base import JAXSparse
from fuser.experimental.sparse.bcoo import BCOO
from fuser.experimental.sparse.bcsr import BCSR
from fuser.experimental.sparse.matrices import COO, CSC, CSR
from fuser.transforms.vmap import VMAPPABLE, Vmappable, vmap

FORMATS: dict[str, Any] = {"bcsr": BCSR, "bcoo": BCOO, "coo": COO, "csr": CSR, "csc": CSC}


def _format(name: str, function: str) -> Any:
    if name not in FORMATS or not hasattr(FORMATS[name], function):
        raise ValueError(f"sparse_format={name!r} not recognized; must be one of {list(FORMATS)}")
    return FORMATS[name]


def empty(
    shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", **kwds: Any
) -> Any:
    """An array of zeros that stores none, in one of the formats "bcoo", "bcsr", "coo", "csr" and "csc"."""
    return _format(sparse_format, "_empty")._empty(tuple(shape), dtype=dtype, index_dtype=index_dtype, **kwds)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> Any:
    """A sparse (N, M) matrix with ones on its k-th diagonal."""
    N, M, k = map(operator.index, (N, N if M is None else M, k))
    return _format(sparse_format, "_eye")._eye(N=N, M=M, k=k, dtype=dtype, index_dtype=index_dtype, **kwds)


def todense(arr: Any) -> Any:
    """A sparse array with its zeros; others as they are."""
    return arr.todense() if isinstance(arr, JAXSparse) else fnp.asarray(arr)


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = fnp.float64,
    indices_dtype: Any = None,
    nse: int | float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable[..., Any] = random.uniform,
    **kwds: Any,
) -> BCOO:
    """A random BCOO array: `nse` stored elements, or this part of all in the sparse dimensions, with data of `generator`."""
    shape = tuple(map(operator.index, shape))
    n_sparse = len(shape) - n_batch - n_dense
    if n_batch < 0 or n_sparse < 0 or n_dense < 0:
        raise ValueError(f"Invalid parameters: {shape=} {n_batch=} {n_dense=}")
    sparse = shape[n_batch : n_batch + n_sparse]
    total = math.prod(sparse)
    if not 0 <= nse < (np.inf if isinstance(nse, int) else 1.0 + 1e-9) or (
        unique_indices and isinstance(nse, int) and nse > total
    ):
        raise ValueError(f"got {nse=}, expected to be between 0 and {total}")
    count = int(np.ceil(nse * total)) if isinstance(nse, float) and nse <= 1 else int(nse)
    dtype_of = np.int32 if indices_dtype is None else indices_dtype
    for_data, for_indices = random.split(key)
    batch = shape[:n_batch]

    def one(key: Any) -> Any:
        if not n_sparse:
            return fnp.zeros((count, 0), dtype_of)
        flat = random.choice(key, total, (count,), replace=not unique_indices)
        flat = fnp.sort(flat) if sorted_indices else flat
        return fnp.stack(fnp.unravel_index(flat, sparse), -1).astype(dtype_of)

    keys = random.split(for_indices, math.prod(batch))
    indices = (
        vmap(one)(keys).reshape(*batch, count, n_sparse)
        if math.prod(batch)
        else fnp.zeros((*batch, count, n_sparse), dtype_of)
    )
    data = generator(for_data, shape=(*batch, count, *shape[n_batch + n_sparse :]), dtype=dtype, **kwds)
    return BCOO((data, indices), shape=shape, indices_sorted=sorted_indices, unique_indices=unique_indices)


# Under vmap a batch dimension of each buffer is mapped over, and the shape inside has one less.


def _whole(mat: Any, axis: int) -> Any:
    if axis >= mat.n_batch:
        raise ValueError(
            f"Cannot map in_axis={axis} for {type(mat).__name__} array with n_batch={mat.n_batch}. in_axes for batched "
            f"{type(mat).__name__} operations must correspond to a batch dimension."
        )
    n = mat.shape[axis]
    wide = [fnp.broadcast_to(b, (*b.shape[:axis], n, *b.shape[axis + 1 :])) for b in mat._bufs]
    return type(mat)(tuple(wide), **mat._info._asdict())


def _element(mat: Any, axis: int) -> Any:
    info = mat._info._asdict() | {"shape": (*mat.shape[:axis], *mat.shape[axis + 1 :])}
    return type(mat).tree_unflatten(info, mat._bufs)


def _all_lanes(size: int, mat: Any, axis: int) -> Any:
    if axis > mat.n_batch:
        raise ValueError(
            f"vmap: cannot add out_axis={axis} for {type(mat).__name__} array with n_batch={mat.n_batch}: it becomes a batch dimension"
        )
    info = mat._info._asdict() | {"shape": (*mat.shape[:axis], size, *mat.shape[axis:])}
    return type(mat).tree_unflatten(info, mat._bufs)


for _class in (BCOO, BCSR):
    VMAPPABLE[_class] = Vmappable(_whole, _element, _all_lanes)
