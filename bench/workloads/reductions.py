"""Reductions whose result is small: the squares of each column, and a whole vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import MATRIX, VECTOR, Workload

WIDE = ("float32", "float64")  # a sum of millions has no float16 result


def column_sum(np: Any, x: Any) -> Any:
    return np.sum(x * x, axis=0)


def _column_sum_torch(x: Any) -> Any:
    import torch

    return torch.sum(x * x, 0)


def _column_sum_numba() -> Callable[..., Any]:
    """Threads own blocks of rows, each with its own partial sums, so that memory is read in order."""
    import numba

    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def run(x):  # type: ignore[no-untyped-def]
        blocks = numba.get_num_threads()
        partial = np.zeros((blocks, x.shape[1]), x.dtype)
        for block in numba.prange(blocks):
            for i in range(block * x.shape[0] // blocks, (block + 1) * x.shape[0] // blocks):
                for j in range(x.shape[1]):
                    partial[block, j] += x[i, j] * x[i, j]
        return partial.sum(0)

    return run


def full_sum(np: Any, x: Any) -> Any:
    return np.sum(x)


def _full_sum_torch(x: Any) -> Any:
    return x.sum()


def _full_sum_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def run(x):  # type: ignore[no-untyped-def]
        total = np.float32(0.0)
        for i in numba.prange(x.size):
            total += x[i]
        return np.float32(total)

    return run


WORKLOADS = (
    Workload(
        "column_sum",
        "the sum of the squares of each column of a matrix",
        MATRIX,
        lambda random, n, m: (random.standard_normal((n, m)),),
        column_sum,
        flops=lambda n, m: 2 * n * m,
        torch=_column_sum_torch,
        numba=_column_sum_numba,
        dtypes=WIDE,
        slack=4.0,
    ),
    Workload(
        "full_sum",
        "the sum of all elements",
        VECTOR,
        lambda random, n: (random.uniform(0.0, 1.0, n),),
        full_sum,
        flops=lambda n: n,
        torch=_full_sum_torch,
        numba=_full_sum_numba,
        dtypes=WIDE,
        slack=10.0,
    ),
)
