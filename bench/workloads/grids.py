"""Simulation workloads: a 2-D stencil, the forces of an n-body system, and the Mandelbrot set with an unrolled loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import MATRIX, Workload

ITERATIONS = 20
SOFTENING = 0.01


def stencil(np: Any, u: Any) -> Any:
    """One explicit step of the heat equation on the inner points."""
    middle = u[1:-1, 1:-1]
    return middle + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * middle)


def _stencil_numba() -> Callable[..., Any]:
    import numba

    step, four = np.float32(0.1), np.float32(4.0)

    @numba.njit(parallel=True)
    def run(u):  # type: ignore[no-untyped-def]
        out = np.empty((u.shape[0] - 2, u.shape[1] - 2), u.dtype)
        for i in numba.prange(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
                out[i - 1, j - 1] = u[i, j] + step * (around - four * u[i, j])
        return out

    return run


def _stencil_numexpr(evaluate: Callable[..., Any], u: Any) -> Any:
    parts = {"m": u[1:-1, 1:-1], "n": u[:-2, 1:-1], "s": u[2:, 1:-1], "w": u[1:-1, :-2], "e": u[1:-1, 2:]}
    return evaluate("m + step * (n + s + w + e - four * m)", step=0.1, four=4.0, **parts)


def _bodies(random: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return *random.standard_normal((3, n)), random.uniform(0.5, 1.5, n) / n


def nbody(np: Any, x: Any, y: Any, z: Any, mass: Any) -> Any:
    """The acceleration of each body by all others."""
    dx = x[None, :] - x[:, None]
    dy = y[None, :] - y[:, None]
    dz = z[None, :] - z[:, None]
    inverse = 1.0 / np.sqrt(dx * dx + dy * dy + dz * dz + SOFTENING)
    weight = mass[None, :] * inverse * inverse * inverse
    return np.sum(dx * weight, axis=1), np.sum(dy * weight, axis=1), np.sum(dz * weight, axis=1)


def _nbody_torch(x: Any, y: Any, z: Any, mass: Any) -> Any:
    dx = x[None, :] - x[:, None]
    dy = y[None, :] - y[:, None]
    dz = z[None, :] - z[:, None]
    inverse = (dx * dx + dy * dy + dz * dz + SOFTENING).rsqrt()
    weight = mass[None, :] * inverse * inverse * inverse
    return (dx * weight).sum(1), (dy * weight).sum(1), (dz * weight).sum(1)


def _nbody_numba() -> Callable[..., Any]:
    import numba

    softening, zero, one = np.float32(SOFTENING), np.float32(0.0), np.float32(1.0)

    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def run(x, y, z, mass):  # type: ignore[no-untyped-def]
        ax, ay, az = np.empty_like(x), np.empty_like(x), np.empty_like(x)
        for i in numba.prange(x.size):
            sx, sy, sz = zero, zero, zero
            for j in range(x.size):
                dx, dy, dz = x[j] - x[i], y[j] - y[i], z[j] - z[i]
                inverse = one / math.sqrt(dx * dx + dy * dy + dz * dz + softening)
                weight = mass[j] * inverse * inverse * inverse
                sx += dx * weight
                sy += dy * weight
                sz += dz * weight
            ax[i], ay[i], az[i] = sx, sy, sz
        return ax, ay, az

    return run


def plane(random: np.random.Generator, height: int, width: int) -> tuple[np.ndarray, ...]:
    """Real and imaginary parts of points around the Mandelbrot set, float64[height, width]."""
    real, imaginary = np.meshgrid(np.linspace(-2.0, 0.6, width), np.linspace(-1.2, 1.2, height))
    return real, imaginary


def mandelbrot(np: Any, real: Any, imaginary: Any) -> Any:
    """In how many of 20 iterations of z² + c the value stayed within radius 2, the loop written out by tracing."""
    x, y, count = real, imaginary, np.zeros_like(real)
    for _ in range(ITERATIONS):
        count = count + (x * x + y * y < 4.0)
        x, y = x * x - y * y + real, 2.0 * x * y + imaginary
    return count


def mandelbrot_numba(iterations: int = ITERATIONS) -> Callable[..., Any]:
    """As one writes it with a loop of one's own: a point that has left stops."""
    import numba

    two, four = np.float32(2.0), np.float32(4.0)

    @numba.njit(parallel=True)
    def run(real, imaginary):  # type: ignore[no-untyped-def]
        out = np.empty_like(real)
        for i in numba.prange(real.shape[0]):
            for j in range(real.shape[1]):
                a, b = real[i, j], imaginary[i, j]
                x, y, count = a, b, 0
                while count < iterations and x * x + y * y < four:
                    x, y = x * x - y * y + a, two * x * y + b
                    count += 1
                out[i, j] = count
        return out

    return run


WORKLOADS = (
    Workload(
        "stencil",
        "one step of the heat equation on a 2-D grid",
        MATRIX,
        lambda random, n, m: (random.standard_normal((n, m)),),
        stencil,
        flops=lambda n, m: 7 * (n - 2) * (m - 2),
        numba=_stencil_numba,
        numexpr=_stencil_numexpr,
    ),
    Workload(
        "nbody",
        "the forces between all pairs of bodies",
        {"tiny": (64,), "small": (256,), "medium": (1024,), "full": (2048,), "large": (8192,)},
        _bodies,
        nbody,
        flops=lambda n: 20 * n * n,
        torch=_nbody_torch,
        numba=_nbody_numba,
        dtypes=("float32", "float64"),
        slack=4.0,
    ),
    Workload(
        "mandelbrot",
        f"{ITERATIONS} unrolled iterations at each point of the plane",
        {"tiny": (33, 65), "small": (256, 256), "medium": (1024, 1024), "full": (2048, 2048), "large": (4096, 4096)},
        plane,
        mandelbrot,
        flops=lambda n, m: 11 * ITERATIONS * n * m,
        numba=mandelbrot_numba,
        rows=2,
        dtypes=("float32", "float64"),
        outliers=2e-3,
    ),
)
