"""Scientific code on several fields or several steps: alternating directions, Maxwell's equations, a lid-driven cavity.

The mathematics of well-known kernels of scientific benchmark suites. NumPy assigns in place, as its users do; JAX and
fuser run `program`, with `fori_loop` and `scan`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import Workload

ADI_STEPS = 10
FIELD_STEPS = 60
CAVITY_STEPS, PRESSURE_STEPS = 10, 20
CAVITY_STEP, VISCOSITY = 1e-3, 0.1


def adi(np: Any, u: Any) -> Any:
    """Diffusion by alternating directions: a tridiagonal system along each column, then one along each row."""
    for _ in range(ADI_STEPS):
        u = _alternate(np, _solve_rows, u)
    return u


def _alternate(np: Any, solve: Callable[..., Any], u: Any) -> Any:
    """One of 10 steps up to time 0.01 of the inner points of a square whose rim is 1."""
    space, time = 1.0 / (len(u) + 1), 0.01 / ADI_STEPS
    first, second = 2.0 * time / space**2, time / space**2
    a, b, d, e = -first / 2.0, 1.0 + first, -second / 2.0, 1.0 + second
    half = solve(np, _explicit(np, u, d), a, b)
    return solve(np, _explicit(np, half.T, a), d, e).T


def _explicit(np: Any, u: Any, factor: float) -> Any:
    """The other direction's part of the right-hand side, row by row."""
    wide = np.pad(u, ((0, 0), (1, 1)), constant_values=1.0)
    return -factor * wide[:, :-2] + (1.0 + 2.0 * factor) * u - factor * wide[:, 2:]


def _eliminate(p: Any, q: Any, right: Any, a: float, b: float) -> tuple[Any, Any]:
    return -a / (a * p + b), (right - a * q) / (a * p + b)


def _solve_rows(np: Any, right: Any, a: float, b: float) -> Any:
    """The systems a x[j-1] + b x[j] + a x[j+1] = right[j], with 1 before the first and after the last row."""
    ps, qs, x = np.empty_like(right), np.empty_like(right), np.empty_like(right)
    p, q = np.zeros_like(right[0]), np.ones_like(right[0])
    for j in range(len(right)):
        ps[j], qs[j] = p, q = _eliminate(p, q, right[j], a, b)
    row = np.ones_like(right[0])
    for j in range(len(right) - 1, -1, -1):
        x[j] = row = ps[j] * row + qs[j]
    return x


def _adi_program(library: Any, u: Any) -> Any:
    def solve(np: Any, right: Any, a: float, b: float) -> Any:
        def forward(state: Any, row: Any) -> Any:
            following = _eliminate(*state, row, a, b)
            return following, following

        def backward(row: Any, factors: Any) -> Any:
            row = factors[0] * row + factors[1]
            return row, row

        _, factors = library.lax.scan(forward, (np.zeros_like(right[0]), np.ones_like(right[0])), right)
        return library.lax.scan(backward, np.ones_like(right[0]), factors, reverse=True)[1]

    return library.lax.fori_loop(0, ADI_STEPS, lambda _, u: _alternate(library.numpy, solve, u), u)


def fdtd_2d(np: Any, ex: Any, ey: Any, hz: Any, pulse: Any) -> Any:
    """60 steps of Maxwell's equations in a plane, driven along one edge."""
    state = (ex.copy(), ey.copy(), hz.copy())
    for value in pulse:
        ex, ey, hz = state
        ey[0, :] = value
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return state


def _fdtd_program(library: Any, ex: Any, ey: Any, hz: Any, pulse: Any) -> Any:
    def step(state: Any, value: Any) -> Any:
        ex, ey, hz = state
        ey = ey.at[0, :].set(value)
        ey = ey.at[1:, :].add(-0.5 * (hz[1:, :] - hz[:-1, :]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        hz = hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))
        return (ex, ey, hz), None

    return library.lax.scan(step, (ex, ey, hz), pulse)[0]


def cavity(np: Any, u: Any, v: Any, p: Any) -> Any:
    """Flow under a moving lid: 10 steps of the Navier-Stokes equations, each with 20 sweeps for the pressure."""
    u, v, p = u.copy(), v.copy(), p.copy()
    space = 2.0 / (len(u) - 1)
    for _ in range(CAVITY_STEPS):
        source = _divergence(u, v, space)
        for _ in range(PRESSURE_STEPS):
            p[1:-1, 1:-1] = _pressure(p, source)
            p[:, -1], p[0, :], p[:, 0], p[-1, :] = p[:, -2], p[1, :], p[:, 1], 0.0
        u[1:-1, 1:-1], v[1:-1, 1:-1] = _velocities(u, v, p, space)
        u[-1, :] = 1.0
    return u, v, p


def _divergence(u: Any, v: Any, space: float) -> Any:
    """What drives the pressure, times the square of the mesh, on the inner points."""
    du_dx, dv_dy = (u[1:-1, 2:] - u[1:-1, :-2]) / (2.0 * space), (v[2:, 1:-1] - v[:-2, 1:-1]) / (2.0 * space)
    du_dy, dv_dx = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2.0 * space), (v[1:-1, 2:] - v[1:-1, :-2]) / (2.0 * space)
    return space**2 * ((du_dx + dv_dy) / CAVITY_STEP - du_dx**2 - 2.0 * du_dy * dv_dx - dv_dy**2)


def _pressure(p: Any, source: Any) -> Any:
    return 0.25 * (p[1:-1, 2:] + p[1:-1, :-2] + p[2:, 1:-1] + p[:-2, 1:-1] - source)


def _velocities(u: Any, v: Any, p: Any, space: float) -> tuple[Any, Any]:
    """The velocities at the inner points one step later."""
    along, across = CAVITY_STEP / space, CAVITY_STEP / (2.0 * space)
    mu, mv = u[1:-1, 1:-1], v[1:-1, 1:-1]

    def moved(w: Any, slope: Any) -> Any:
        middle = w[1:-1, 1:-1]
        carried = mu * along * (middle - w[1:-1, :-2]) + mv * along * (middle - w[:-2, 1:-1])
        spread = w[1:-1, 2:] + w[1:-1, :-2] + w[2:, 1:-1] + w[:-2, 1:-1] - 4.0 * middle
        return middle - carried - across * slope + VISCOSITY * CAVITY_STEP / space**2 * spread

    return moved(u, p[1:-1, 2:] - p[1:-1, :-2]), moved(v, p[2:, 1:-1] - p[:-2, 1:-1])


def _cavity_program(library: Any, u: Any, v: Any, p: Any) -> Any:
    space = 2.0 / (len(u) - 1)

    def sweep(p: Any, source: Any) -> Any:
        p = p.at[1:-1, 1:-1].set(_pressure(p, source))
        p = p.at[:, -1].set(p[:, -2])
        p = p.at[0, :].set(p[1, :])
        p = p.at[:, 0].set(p[:, 1])
        return p.at[-1, :].set(0.0)

    def step(_: Any, state: Any) -> Any:
        u, v, p = state
        source = _divergence(u, v, space)
        p = library.lax.fori_loop(0, PRESSURE_STEPS, lambda _, p: sweep(p, source), p)
        inner_u, inner_v = _velocities(u, v, p, space)
        return u.at[1:-1, 1:-1].set(inner_u).at[-1, :].set(1.0), v.at[1:-1, 1:-1].set(inner_v), p

    return library.lax.fori_loop(0, CAVITY_STEPS, step, (u, v, p))


_FLOATS = ("float32", "float64")

WORKLOADS = (
    Workload(
        "adi",
        f"{ADI_STEPS} steps of diffusion by alternating directions",
        {"tiny": (10,), "small": (60,), "medium": (100,), "full": (200,), "large": (500,)},
        lambda random, n: (random.standard_normal((n, n)),),
        adi,
        flops=lambda n: 30 * ADI_STEPS * n * n,
        program=_adi_program,
        dtypes=_FLOATS,
        slack=400.0,
        iterations=ADI_STEPS,
        numpy_alone=True,
    ),
    Workload(
        "fdtd_2d",
        f"{FIELD_STEPS} steps of Maxwell's equations in a plane",
        {"tiny": (10, 12), "small": (100, 120), "medium": (200, 220), "full": (400, 450), "large": (1000, 1200)},
        lambda random, n, m: (*random.standard_normal((3, n, m)), np.arange(float(FIELD_STEPS))),
        fdtd_2d,
        flops=lambda n, m: 11 * FIELD_STEPS * n * m,
        program=_fdtd_program,
        dtypes=_FLOATS,
        floor=10.0,
        slack=10.0,
        iterations=FIELD_STEPS,
        numpy_alone=True,
    ),
    Workload(
        "cavity",
        f"flow under a moving lid, {CAVITY_STEPS} steps with {PRESSURE_STEPS} sweeps each",
        {"tiny": (11,), "small": (41,), "medium": (61,), "full": (101,), "large": (401,)},
        lambda random, n: tuple(0.01 * random.standard_normal((3, n, n))),
        cavity,
        flops=lambda n: CAVITY_STEPS * (5 * PRESSURE_STEPS + 50) * n * n,
        program=_cavity_program,
        dtypes=_FLOATS,
        slack=400.0,
        iterations=CAVITY_STEPS,
        numpy_alone=True,
    ),
)
