"""Scientific code on matrices: statistics, triangular and Toeplitz systems, shortest paths.

The mathematics of well-known kernels of scientific benchmark suites. What NumPy does on a shrinking part of a matrix,
JAX and fuser, whose loops have fixed shapes, do on the whole matrix behind a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import Workload
from bench.workloads.factors import proportional


def covariance(np: Any, data: Any) -> Any:
    """The covariance of the columns."""
    centred = data - np.mean(data, axis=0)
    return centred.T @ centred / (len(data) - 1.0)


def correlation(np: Any, data: Any) -> Any:
    """The correlation of the columns; a column that hardly varies counts as one of variance 1."""
    deviation = np.std(data, axis=0)
    deviation = np.where(deviation <= 0.1, 1.0, deviation)
    scaled = (data - np.mean(data, axis=0)) / (len(data) ** 0.5 * deviation)
    return scaled.T @ scaled


def forward_substitution(np: Any, low: Any, right: Any) -> Any:
    """The solution of a lower triangular system, row by row."""
    x = np.zeros_like(right)
    for i in range(len(right)):
        x[i] = (right[i] - low[i, :i] @ x[:i]) / low[i, i]
    return x


def _forward_substitution_program(library: Any, low: Any, right: Any) -> Any:
    np, lax = library.numpy, library.lax

    def step(i: Any, x: Any) -> Any:
        row = lax.dynamic_index_in_dim(low, i, 0, keepdims=False)
        return lax.dynamic_update_index_in_dim(x, (right[i] - row @ x) / row[i], i, 0)

    return lax.fori_loop(0, len(right), step, np.zeros_like(right))


def _forward_substitution_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(fastmath={"reassoc", "contract"})
    def run(low, right):  # type: ignore[no-untyped-def]
        x = np.zeros_like(right)
        for i in range(len(right)):
            total = right[i]
            for j in range(i):
                total -= low[i, j] * x[j]
            x[i] = total / low[i, i]
        return x

    return run


def _lower(random: np.random.Generator, n: int) -> np.ndarray:
    return np.tril(random.uniform(-1.0, 1.0, (n, n)) / n, -1) + np.diag(random.uniform(1.0, 2.0, n))


def triangular_solve(np: Any, low: Any, right: Any) -> Any:
    """Many right-hand sides of one lower triangular system, row by row."""
    return forward_substitution(np, low, right)


def _triangular_solve_program(library: Any, low: Any, right: Any) -> Any:
    return library.lax.linalg.triangular_solve(low, right, left_side=True, lower=True)


def durbin(np: Any, r: Any) -> Any:
    """The solution of the Yule-Walker equations of an autocorrelation, order by order."""
    y = np.zeros_like(r)
    alpha, beta = -r[0], r[0] * 0.0 + 1.0
    y[0] = -r[0]
    for k in range(1, len(r)):
        beta = beta * (1.0 - alpha * alpha)
        alpha = -(r[k] + r[k - 1 :: -1] @ y[:k]) / beta
        y[:k] += alpha * y[k - 1 :: -1]
        y[k] = alpha
    return y


def _durbin_program(library: Any, r: Any) -> Any:
    np, lax = library.numpy, library.lax
    count = len(r)
    places = np.arange(count)
    reverse = np.concatenate([np.flip(r), np.zeros_like(r)])  # from count - k on: r[k - 1], r[k - 2], ..., r[0], 0, ...

    def step(k: Any, state: Any) -> Any:
        y, alpha, beta = state
        beta = beta * (1.0 - alpha * alpha)
        alpha = -(r[k] + lax.dynamic_slice(reverse, (count - k,), (count,)) @ y) / beta
        turned = lax.dynamic_slice(np.concatenate([np.flip(y), np.zeros_like(y)]), (count - k,), (count,))
        return np.where(places == k, alpha, y + alpha * turned), alpha, beta

    start = (np.where(places == 0, -r[0], 0.0), -r[0], np.ones_like(r[0]))
    return lax.fori_loop(1, count, step, start)[0]


def floyd_warshall(np: Any, distance: Any) -> Any:
    """The lengths of the shortest paths between all pairs of points."""
    path = distance.copy()
    for k in range(len(path)):
        path = np.minimum(path, path[:, k, None] + path[None, k, :])
    return path


def _floyd_warshall_program(library: Any, distance: Any) -> Any:
    lax, np = library.lax, library.numpy

    def step(k: Any, path: Any) -> Any:
        column = lax.dynamic_index_in_dim(path, k, 1)
        return np.minimum(path, column + lax.dynamic_index_in_dim(path, k, 0))

    return lax.fori_loop(0, len(distance), step, distance)


def _floyd_warshall_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True)
    def run(distance):  # type: ignore[no-untyped-def]
        path = distance.copy()
        for k in range(len(path)):
            for i in numba.prange(len(path)):
                for j in range(len(path)):
                    path[i, j] = min(path[i, j], path[i, k] + path[k, j])
        return path

    return run


_FLOATS = ("float32", "float64")

_TABLES = {"tiny": (15, 12), "small": (200, 150), "medium": (500, 400), "full": (1400, 1200), "large": (2800, 2400)}
WORKLOADS = (
    Workload(
        "covariance",
        "the covariance matrix of the columns of a table",
        _TABLES,
        lambda random, n, m: (random.standard_normal((n, m)) + 1.0,),
        covariance,
        flops=lambda n, m: 2 * n * m * m,
        dtypes=_FLOATS,
        slack=4.0,
    ),
    Workload(
        "correlation",
        "the correlation matrix of the columns of a table",
        _TABLES,
        lambda random, n, m: (random.standard_normal((n, m)) + 1.0,),
        correlation,
        flops=lambda n, m: 2 * n * m * m,
        dtypes=_FLOATS,
        slack=4.0,
        numpy_alone=True,
    ),
    Workload(
        "forward_substitution",
        "a lower triangular system row by row",
        proportional(2000),
        lambda random, n: (_lower(random, n), random.standard_normal(n)),
        forward_substitution,
        flops=lambda n: n * n,
        program=_forward_substitution_program,
        numba=_forward_substitution_numba,
        dtypes=_FLOATS,
        slack=10.0,
        iterations=2000,
        numpy_alone=True,
    ),
    Workload(
        "triangular_solve",
        "many right-hand sides of a lower triangular system",
        proportional(800, 200),
        lambda random, n, m: (_lower(random, n), random.standard_normal((n, m))),
        triangular_solve,
        flops=lambda n, m: n * n * m,
        program=_triangular_solve_program,
        dtypes=_FLOATS,
        slack=10.0,
        numpy_alone=True,
    ),
    Workload(
        "durbin",
        "the Yule-Walker equations order by order",
        proportional(1000),
        lambda random, n: (0.5 ** np.arange(1.0, n + 1.0) * random.uniform(0.5, 1.0, n),),
        durbin,
        flops=lambda n: 2 * n * n,
        program=_durbin_program,
        dtypes=_FLOATS,
        slack=10.0,
        iterations=1000,
        numpy_alone=True,
    ),
    Workload(
        "floyd_warshall",
        "the shortest paths between all pairs of points",
        proportional(500),
        lambda random, n: (random.uniform(1.0, 1000.0, (n, n)) * (1.0 - np.eye(n)),),
        floyd_warshall,
        flops=lambda n: 2 * n**3,
        program=_floyd_warshall_program,
        numba=_floyd_warshall_numba,
        dtypes=_FLOATS,
        iterations=500,
        numpy_alone=True,
    ),
)
