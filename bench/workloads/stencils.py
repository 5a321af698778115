"""Scientific code on grids, one formula at each point: Jacobi, heat in 3-D, red-black Gauss-Seidel, a filter.

The mathematics of well-known kernels of scientific benchmark suites. NumPy assigns in place, as its users do; JAX and
fuser run `program`, with `fori_loop` and `scan`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import Workload

JACOBI_STEPS = 100
HEAT_STEPS = 50
RED_BLACK_STEPS, RELAXATION = 100, 1.5
FILTER = 5


def jacobi_2d(np: Any, u: Any) -> Any:
    """Each inner point the mean of itself and its four neighbours, 100 times."""
    u = u.copy()
    for _ in range(JACOBI_STEPS):
        u[1:-1, 1:-1] = _mean_of_five(u)
    return u


def _mean_of_five(u: Any) -> Any:
    return 0.2 * (u[1:-1, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + u[2:, 1:-1] + u[:-2, 1:-1])


def _jacobi_program(library: Any, u: Any) -> Any:
    return library.lax.fori_loop(0, JACOBI_STEPS, lambda _, u: u.at[1:-1, 1:-1].set(_mean_of_five(u)), u)


def _jacobi_numba() -> Callable[..., Any]:
    import numba

    fifth = np.float32(0.2)

    @numba.njit(parallel=True)
    def run(u):  # type: ignore[no-untyped-def]
        old, new = u.copy(), u.copy()
        for _ in range(JACOBI_STEPS):
            for i in numba.prange(1, u.shape[0] - 1):
                for j in range(1, u.shape[1] - 1):
                    new[i, j] = fifth * (old[i, j] + old[i, j - 1] + old[i, j + 1] + old[i + 1, j] + old[i - 1, j])
            old, new = new, old
        return old

    return run


def heat_3d(np: Any, u: Any) -> Any:
    """50 explicit steps of the heat equation inside a cube."""
    u = u.copy()
    for _ in range(HEAT_STEPS):
        u[1:-1, 1:-1, 1:-1] = _heated(u)
    return u


def _heated(u: Any) -> Any:
    middle = u[1:-1, 1:-1, 1:-1]
    return (
        0.125 * (u[2:, 1:-1, 1:-1] - 2.0 * middle + u[:-2, 1:-1, 1:-1])
        + 0.125 * (u[1:-1, 2:, 1:-1] - 2.0 * middle + u[1:-1, :-2, 1:-1])
        + 0.125 * (u[1:-1, 1:-1, 2:] - 2.0 * middle + u[1:-1, 1:-1, :-2])
        + middle
    )


def _heat_program(library: Any, u: Any) -> Any:
    return library.lax.fori_loop(0, HEAT_STEPS, lambda _, u: u.at[1:-1, 1:-1, 1:-1].set(_heated(u)), u)


def _heat_numba() -> Callable[..., Any]:
    import numba

    eighth, two = np.float32(0.125), np.float32(2.0)

    @numba.njit(parallel=True)
    def run(u):  # type: ignore[no-untyped-def]
        old, new = u.copy(), u.copy()
        for _ in range(HEAT_STEPS):
            for i in numba.prange(1, u.shape[0] - 1):
                for j in range(1, u.shape[1] - 1):
                    for k in range(1, u.shape[2] - 1):
                        middle = old[i, j, k]
                        new[i, j, k] = (
                            eighth * (old[i + 1, j, k] - two * middle + old[i - 1, j, k])
                            + eighth * (old[i, j + 1, k] - two * middle + old[i, j - 1, k])
                            + eighth * (old[i, j, k + 1] - two * middle + old[i, j, k - 1])
                            + middle
                        )
            old, new = new, old
        return old

    return run


def red_black(np: Any, u: Any, source: Any) -> Any:
    """Poisson's equation by 100 red-black sweeps with over-relaxation: the even points, then the odd ones."""
    u = u.copy()
    even, odd = _colours(np, u)
    for _ in range(RED_BLACK_STEPS):
        for colour in (even, odd):
            u[1:-1, 1:-1] = _relaxed(np, u, source, colour)
    return u


def _colours(np: Any, u: Any) -> tuple[Any, Any]:
    rows, columns = (np.arange(1, extent - 1) for extent in u.shape)
    even = (rows[:, None] + columns[None, :]) % 2 == 0
    return even, ~even


def _relaxed(np: Any, u: Any, source: Any, colour: Any) -> Any:
    middle = u[1:-1, 1:-1]
    around = 0.25 * (u[1:-1, :-2] + u[1:-1, 2:] + u[2:, 1:-1] + u[:-2, 1:-1] - source[1:-1, 1:-1])
    return np.where(colour, middle + RELAXATION * (around - middle), middle)


def _red_black_program(library: Any, u: Any, source: Any) -> Any:
    np = library.numpy
    even, odd = _colours(np, u)

    def sweep(_: Any, u: Any) -> Any:
        u = u.at[1:-1, 1:-1].set(_relaxed(np, u, source, even))
        return u.at[1:-1, 1:-1].set(_relaxed(np, u, source, odd))

    return library.lax.fori_loop(0, RED_BLACK_STEPS, sweep, u)


def convolution(np: Any, image: Any, weights: Any) -> Any:
    """An image convolved with a 5 × 5 filter, where they overlap wholly: the sum of 25 shifted images."""
    height, width = (extent - FILTER + 1 for extent in image.shape)
    total = image[:height, :width] * weights[0, 0]
    for i in range(FILTER):
        for j in range(FILTER):
            if i or j:
                total = total + image[i : i + height, j : j + width] * weights[i, j]
    return total


def _convolution_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True, fastmath={"contract"})
    def run(image, weights):  # type: ignore[no-untyped-def]
        out = np.zeros((image.shape[0] - FILTER + 1, image.shape[1] - FILTER + 1), image.dtype)
        for i in numba.prange(out.shape[0]):
            for a in range(FILTER):
                for b in range(FILTER):
                    for j in range(out.shape[1]):
                        out[i, j] += image[i + a, j + b] * weights[a, b]
        return out

    return run


def _square(n: int) -> Callable[..., tuple[np.ndarray, ...]]:
    """`n` random square grids."""
    return lambda random, extent: tuple(random.standard_normal((n, extent, extent)))


_FLOATS = ("float32", "float64")

WORKLOADS = (
    Workload(
        "jacobi_2d",
        f"{JACOBI_STEPS} Jacobi sweeps over a plane",
        {"tiny": (12,), "small": (150,), "medium": (350,), "full": (700,), "large": (2800,)},
        _square(1),
        jacobi_2d,
        flops=lambda n: 5 * JACOBI_STEPS * (n - 2) ** 2,
        program=_jacobi_program,
        numba=_jacobi_numba,
        dtypes=_FLOATS,
        slack=4.0,
        iterations=JACOBI_STEPS,
        numpy_alone=True,
    ),
    Workload(
        "heat_3d",
        f"{HEAT_STEPS} steps of the heat equation in a cube",
        {"tiny": (7,), "small": (25,), "medium": (40,), "full": (70,), "large": (120,)},
        lambda random, n: (random.standard_normal((n, n, n)),),
        heat_3d,
        flops=lambda n: 15 * HEAT_STEPS * (n - 2) ** 3,
        program=_heat_program,
        numba=_heat_numba,
        dtypes=_FLOATS,
        slack=4.0,
        iterations=HEAT_STEPS,
        numpy_alone=True,
    ),
    Workload(
        "red_black",
        f"{RED_BLACK_STEPS} red-black Gauss-Seidel sweeps with over-relaxation",
        {"tiny": (12,), "small": (64,), "medium": (256,), "full": (512,), "large": (2048,)},
        _square(2),
        red_black,
        flops=lambda n: 16 * RED_BLACK_STEPS * (n - 2) ** 2,
        program=_red_black_program,
        dtypes=_FLOATS,
        slack=10.0,
        iterations=RED_BLACK_STEPS,
        numpy_alone=True,
    ),
    Workload(
        "convolution",
        f"an image convolved with a {FILTER} × {FILTER} filter",
        {"tiny": (16, 19), "small": (128, 128), "medium": (512, 512), "full": (2048, 2048), "large": (8192, 8192)},
        lambda random, n, m: (random.standard_normal((n, m)), random.standard_normal((FILTER, FILTER))),
        convolution,
        flops=lambda n, m: 2 * FILTER * FILTER * n * m,
        numba=_convolution_numba,
        dtypes=_FLOATS,
        slack=4.0,
    ),
)
