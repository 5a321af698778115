"""Scientific code that factors matrices: Gram-Schmidt, LU without and with pivoting, Cholesky.

What NumPy does on a shrinking part of a matrix, JAX and fuser, whose loops have fixed shapes, do on the whole matrix
behind a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import Workload

_LONGEST = {"tiny": 12, "small": 100, "medium": 200, "full": 400, "large": 1000}


def gram_schmidt(np: Any, a: Any) -> Any:
    """An orthonormal basis of the columns and the triangular factor, by the modified process of Gram and Schmidt."""
    a, q, r = a.copy(), np.zeros_like(a), np.zeros((a.shape[1], a.shape[1]), a.dtype)
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(a[:, k] @ a[:, k])
        q[:, k] = a[:, k] / r[k, k]
        r[k, k + 1 :] = q[:, k] @ a[:, k + 1 :]
        a[:, k + 1 :] -= np.outer(q[:, k], r[k, k + 1 :])
    return q, r


def _gram_schmidt_program(library: Any, a: Any) -> Any:
    np, lax = library.numpy, library.lax
    count = a.shape[1]
    columns = np.arange(count)

    def step(k: Any, state: Any) -> Any:
        a, q, r = state
        column = lax.dynamic_index_in_dim(a, k, 1, keepdims=False)
        norm = np.sqrt(column @ column)
        column = column / norm
        row = np.where(columns > k, column @ a, 0.0)
        a = a - np.outer(column, row)
        q = lax.dynamic_update_index_in_dim(q, column, k, 1)
        return a, q, lax.dynamic_update_index_in_dim(r, np.where(columns == k, norm, row), k, 0)

    return lax.fori_loop(0, count, step, (a, np.zeros_like(a), np.zeros((count, count), a.dtype)))[1:]


def lu(np: Any, a: Any) -> Any:
    """Both triangular factors in one matrix, without pivoting."""
    a = a.copy()
    for k in range(len(a) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a


def _lu_program(library: Any, a: Any) -> Any:
    np, lax = library.numpy, library.lax
    places = np.arange(len(a))

    def step(k: Any, a: Any) -> Any:
        column = lax.dynamic_index_in_dim(a, k, 1, keepdims=False)
        row = lax.dynamic_index_in_dim(a, k, 0, keepdims=False)
        factors = np.where(places > k, column / row[k], 0.0)
        a = lax.dynamic_update_index_in_dim(a, np.where(places > k, factors, column), k, 1)
        return a - np.outer(factors, np.where(places > k, row, 0.0))

    return lax.fori_loop(0, len(a) - 1, step, a)


def _lu_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True)
    def run(a):  # type: ignore[no-untyped-def]
        a = a.copy()
        for k in range(len(a) - 1):
            for i in numba.prange(k + 1, len(a)):
                a[i, k] /= a[k, k]
                for j in range(k + 1, len(a)):
                    a[i, j] -= a[i, k] * a[k, j]
        return a

    return run


def _dominant(random: np.random.Generator, n: int) -> np.ndarray:
    return random.uniform(-1.0, 1.0, (n, n)) / n + np.eye(n)


def lu_pivot(np: Any, a: Any) -> Any:
    """Both triangular factors in one matrix, and the order of the rows, by partial pivoting."""
    a, order = a.copy(), np.arange(len(a), dtype=np.int32)
    for k in range(len(a) - 1):
        best = k + np.argmax(np.abs(a[k:, k]))
        a[[k, best]], order[[k, best]] = a[[best, k]], order[[best, k]]
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, order


def _lu_pivot_program(library: Any, a: Any) -> Any:
    np, lax = library.numpy, library.lax
    places = np.arange(len(a), dtype=np.int32)

    def swapped(x: Any, k: Any, best: Any) -> Any:
        first, second = (lax.dynamic_index_in_dim(x, n, 0, keepdims=False) for n in (k, best))
        x = lax.dynamic_update_index_in_dim(x, second, k, 0)
        return lax.dynamic_update_index_in_dim(x, first, best, 0)

    def step(k: Any, state: Any) -> Any:
        a, order = state
        column = lax.dynamic_index_in_dim(a, k, 1, keepdims=False)
        best = np.argmax(np.where(places >= k, np.abs(column), -1.0))
        a, order = swapped(a, k, best), swapped(order, k, best)
        column = lax.dynamic_index_in_dim(a, k, 1, keepdims=False)
        row = lax.dynamic_index_in_dim(a, k, 0, keepdims=False)
        factors = np.where(places > k, column / row[k], 0.0)
        a = lax.dynamic_update_index_in_dim(a, np.where(places > k, factors, column), k, 1)
        return a - np.outer(factors, np.where(places > k, row, 0.0)), order

    return lax.fori_loop(0, len(a) - 1, step, (a, places))


def cholesky(np: Any, a: Any) -> Any:
    """The lower triangular factor, column by column."""
    low = np.zeros_like(a)
    for k in range(len(a)):
        column = a[k:, k] - low[k:, :k] @ low[k, :k]
        low[k:, k] = column / np.sqrt(column[0])
    return low


def _cholesky_program(library: Any, a: Any) -> Any:
    np, lax = library.numpy, library.lax
    places = np.arange(len(a))

    def step(k: Any, low: Any) -> Any:
        row = lax.dynamic_index_in_dim(low, k, 0, keepdims=False)
        column = lax.dynamic_index_in_dim(a, k, 1, keepdims=False) - low @ row
        column = np.where(places >= k, column / np.sqrt(column[k]), 0.0)
        return lax.dynamic_update_index_in_dim(low, column, k, 1)

    return lax.fori_loop(0, len(a), step, np.zeros_like(a))


def _positive(random: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    a = random.standard_normal((n, n))
    return (a @ a.T / n + np.eye(n),)


def proportional(full: int, *more: int) -> dict[str, tuple[int, ...]]:
    """Extents in proportion to the one at full size; `more` dimensions are the same at all sizes."""
    return {size: (max(12, extent * full // 400), *more) for size, extent in _LONGEST.items()}


_FLOATS = ("float32", "float64")

WORKLOADS = (
    Workload(
        "gram_schmidt",
        "orthonormal columns by the modified Gram-Schmidt process",
        {"tiny": (15, 12), "small": (70, 60), "medium": (220, 180), "full": (240, 200), "large": (600, 500)},
        lambda random, n, m: (random.standard_normal((n, m)),),
        gram_schmidt,
        flops=lambda n, m: 2 * n * m * m,
        program=_gram_schmidt_program,
        dtypes=_FLOATS,
        slack=100.0,
        iterations=200,
        numpy_alone=True,
    ),
    Workload(
        "lu",
        "an LU factorisation without pivoting",
        proportional(400),
        lambda random, n: (_dominant(random, n),),
        lu,
        flops=lambda n: 2 * n**3 // 3,
        program=_lu_program,
        numba=_lu_numba,
        dtypes=_FLOATS,
        slack=10.0,
        iterations=400,
        numpy_alone=True,
    ),
    Workload(
        "lu_pivot",
        "an LU factorisation with partial pivoting",
        proportional(400),
        lambda random, n: (random.standard_normal((n, n)),),
        lu_pivot,
        flops=lambda n: 2 * n**3 // 3,
        program=_lu_pivot_program,
        dtypes=_FLOATS,
        slack=1000.0,
        iterations=400,
        numpy_alone=True,
    ),
    Workload(
        "cholesky",
        "a Cholesky factorisation column by column",
        proportional(400),
        _positive,
        cholesky,
        flops=lambda n: n**3 // 3,
        program=_cholesky_program,
        dtypes=_FLOATS,
        slack=10.0,
        iterations=400,
        numpy_alone=True,
    ),
)
