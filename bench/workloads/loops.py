"""Workloads with a loop: many lanes with one each (a plane, an ensemble, roots), one small vector, one number.

JAX and fuser run `program` with `lax`; NumPy and torch run the loop in Python, numba as loops by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import Workload
from bench.workloads.grids import mandelbrot_numba, plane

ITERATIONS = 200  # of z² + c
STEPS, STEP = 1000, 0.01  # of the Runge-Kutta method
PREY, EATEN, FED, DEATHS = 1.1, 0.4, 0.1, 0.4
MOST_TRIES = 50


def _escape(np: Any, state: Any, real: Any, imaginary: Any) -> Any:
    """One iteration; a point that has left stays where it is."""
    x, y, count = state
    inside = x * x + y * y < 4.0
    return (
        np.where(inside, x * x - y * y + real, x),
        np.where(inside, 2.0 * x * y + imaginary, y),
        np.where(inside, count + 1.0, count),
    )


def mandelbrot_loop(np: Any, real: Any, imaginary: Any) -> Any:
    """In how many of 200 iterations of z² + c the value stayed within radius 2."""
    state = (real, imaginary, np.zeros_like(real))
    for _ in range(ITERATIONS):
        state = _escape(np, state, real, imaginary)
    return state[2]


def _mandelbrot_program(library: Any, real: Any, imaginary: Any) -> Any:
    np = library.numpy
    state = (real, imaginary, np.zeros_like(real))
    return library.lax.fori_loop(0, ITERATIONS, lambda _, s: _escape(np, s, real, imaginary), state)[2]


def _rates(x: Any, y: Any) -> Any:
    """How fast prey and predators grow."""
    return PREY * x - EATEN * x * y, FED * x * y - DEATHS * y


def _runge_kutta(state: Any) -> Any:
    x, y = state
    a, b = _rates(x, y)
    c, d = _rates(x + 0.5 * STEP * a, y + 0.5 * STEP * b)
    e, f = _rates(x + 0.5 * STEP * c, y + 0.5 * STEP * d)
    g, h = _rates(x + STEP * e, y + STEP * f)
    return x + STEP / 6.0 * (a + 2.0 * c + 2.0 * e + g), y + STEP / 6.0 * (b + 2.0 * d + 2.0 * f + h)


def lotka_volterra(np: Any, prey: Any, predators: Any) -> Any:
    """Prey and predators after 1000 steps of the Runge-Kutta method, from each of many beginnings."""
    state = (prey, predators)
    for _ in range(STEPS):
        state = _runge_kutta(state)
    return state


def _lotka_volterra_program(library: Any, prey: Any, predators: Any) -> Any:
    return library.lax.fori_loop(0, STEPS, lambda _, state: _runge_kutta(state), (prey, predators))


def _lotka_volterra_numba() -> Callable[..., Any]:
    import numba

    growth, eaten, fed, deaths = (np.float32(rate) for rate in (PREY, EATEN, FED, DEATHS))
    whole, half, sixth, two = (np.float32(part) for part in (STEP, 0.5 * STEP, STEP / 6.0, 2.0))

    @numba.njit(inline="always")
    def rates(x, y):  # type: ignore[no-untyped-def]
        return growth * x - eaten * x * y, fed * x * y - deaths * y

    @numba.njit(parallel=True, fastmath={"contract"})
    def run(prey, predators):  # type: ignore[no-untyped-def]
        xs, ys = np.empty_like(prey), np.empty_like(predators)
        for i in numba.prange(prey.size):
            x, y = prey[i], predators[i]
            for _ in range(STEPS):
                a, b = rates(x, y)
                c, d = rates(x + half * a, y + half * b)
                e, f = rates(x + half * c, y + half * d)
                g, h = rates(x + whole * e, y + whole * f)
                x, y = x + sixth * (a + two * c + two * e + g), y + sixth * (b + two * d + two * f + h)
            xs[i], ys[i] = x, y
        return xs, ys

    return run


def newton_roots(np: Any, targets: Any) -> Any:
    """The solution of x³ + x = a for each a by Newton's method; each element stops by itself."""
    x, tries, going = targets + 1.0, 0, np.ones(targets.shape, bool)
    while tries < MOST_TRIES and bool(going.any()):
        change = _change(x, targets)
        going = going & (np.abs(change) > 1e-5 * (1.0 + np.abs(x)))
        x, tries = np.where(going, x - change, x), tries + 1
    return x


def _change(x: Any, target: Any) -> Any:
    return (x * x * x + x - target) / (3.0 * x * x + 1.0)


def _newton_program(library: Any, targets: Any) -> Any:
    def root(target: Any) -> Any:
        def going(state: Any) -> Any:
            x, tries = state
            return (abs(_change(x, target)) > 1e-5 * (1.0 + abs(x))) & (tries < MOST_TRIES)

        return library.lax.while_loop(going, lambda s: (s[0] - _change(s[0], target), s[1] + 1), (target + 1.0, 0))[0]

    return library.vmap(root)(targets)


def _newton_torch(targets: Any) -> Any:
    import torch

    return newton_roots(_TorchNames(torch), targets)


class _TorchNames:
    """torch with NumPy's `ones` of a shape and dtype."""

    def __init__(self, torch: Any) -> None:
        self.abs, self.where = torch.abs, torch.where
        self.ones = lambda shape, kind: torch.ones(shape, dtype=torch.bool)


def _newton_numba() -> Callable[..., Any]:
    import numba

    one, three, small = np.float32(1.0), np.float32(3.0), np.float32(1e-5)

    @numba.njit(parallel=True)
    def run(targets):  # type: ignore[no-untyped-def]
        out = np.empty_like(targets)
        for i in numba.prange(targets.size):
            a, x = targets[i], targets[i] + one
            for _ in range(MOST_TRIES):
                change = (x * x * x + x - a) / (three * x * x + one)
                if not abs(change) > small * (one + abs(x)):
                    break
                x -= change
            out[i] = x
        return out

    return run


def _recurrence(random: np.random.Generator, steps: int) -> tuple[np.ndarray, ...]:
    return random.standard_normal((steps, 8)), random.standard_normal((8, 8)) / 8**0.5, np.zeros(8)


def scan_of_eight(np: Any, inputs: Any, matrix: Any, state: Any) -> Any:
    """The last state of h = tanh(W h + x), and the first number of each state."""
    rows = []
    for x in inputs:
        state = np.tanh(matrix @ state + x)
        rows.append(state[0])
    return state, np.stack(rows)


def _scan_program(library: Any, inputs: Any, matrix: Any, state: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = library.numpy.tanh(matrix @ h + x)
        return h, h[0]

    return library.lax.scan(step, state, inputs)


def _scan_numba() -> Callable[..., Any]:
    import numba

    @numba.njit
    def run(inputs, matrix, state):  # type: ignore[no-untyped-def]
        h, new, out = state.copy(), state.copy(), np.empty(len(inputs), inputs.dtype)
        for t in range(len(inputs)):
            for i in range(8):
                total = inputs[t, i]
                for j in range(8):
                    total += matrix[i, j] * h[j]
                new[i] = math.tanh(total)
            h, new = new, h
            out[t] = h[0]
        return h, out

    return run


def scalar_while(np: Any, start: Any, limit: Any) -> Any:
    """x = 0.999 x + 0.5, one step after the other, as often as `limit` says."""
    x, count = start[0], 0
    while count < int(limit[0]):
        x, count = x * 0.999 + 0.5, count + 1
    return np.stack([x])


def _while_program(library: Any, start: Any, limit: Any) -> Any:
    end = limit[0]
    x, _ = library.lax.while_loop(lambda s: s[1] < end, lambda s: (s[0] * 0.999 + 0.5, s[1] + 1), (start[0], 0))
    return library.numpy.stack([x])


def _while_numba() -> Callable[..., Any]:
    import numba

    factor, more = np.float32(0.999), np.float32(0.5)

    @numba.njit
    def run(start, limit):  # type: ignore[no-untyped-def]
        out, x, count = start.copy(), start[0], 0
        while count < limit[0]:
            x = x * factor + more
            count += 1
        out[0] = x
        return out

    return run


_ENSEMBLE = {"tiny": (100,), "small": (1000,), "medium": (10_000,), "full": (100_000,), "large": (1_000_000,)}

WORKLOADS = (
    Workload(
        "mandelbrot_loop",
        f"{ITERATIONS} iterations at each point of the plane, by fori_loop",
        {"tiny": (13, 35), "small": (64, 64), "medium": (256, 256), "full": (1024, 1024), "large": (4096, 4096)},
        plane,
        mandelbrot_loop,
        flops=lambda n, m: 11 * ITERATIONS * n * m,
        program=_mandelbrot_program,
        numba=lambda: mandelbrot_numba(ITERATIONS),
        rows=2,
        dtypes=("float32", "float64"),
        outliers=2e-2,
        iterations=ITERATIONS,
    ),
    Workload(
        "lotka_volterra",
        f"{STEPS} Runge-Kutta steps of an ensemble of populations, by fori_loop",
        _ENSEMBLE,
        lambda random, n: (random.uniform(1.0, 10.0, n), random.uniform(1.0, 10.0, n)),
        lotka_volterra,
        flops=lambda n: 56 * STEPS * n,
        program=_lotka_volterra_program,
        numba=_lotka_volterra_numba,
        rows=2,
        dtypes=("float32", "float64"),
        slack=40.0,
        iterations=STEPS,
    ),
    Workload(
        "newton_roots",
        "Newton's method for each element, by a while loop under vmap",
        {"tiny": (100,), "small": (10_000,), "medium": (100_000,), "full": (1_000_000,), "large": (1 << 24,)},
        lambda random, n: (random.uniform(0.0, 1000.0, n),),
        newton_roots,
        flops=lambda n: 9 * 12 * n,
        program=_newton_program,
        torch=_newton_torch,
        numba=_newton_numba,
        dtypes=("float32", "float64"),
        slack=4.0,
        iterations=MOST_TRIES,
    ),
    Workload(
        "scan_of_eight",
        "a recurrent network of eight numbers, by scan",
        {"tiny": (50,), "small": (1000,), "medium": (3000,), "full": (10_000,), "large": (100_000,)},
        _recurrence,
        scan_of_eight,
        flops=lambda n: 144 * n,
        program=_scan_program,
        numba=_scan_numba,
        dtypes=("float32", "float64"),
        slack=40.0,
        iterations=10_000,
    ),
    Workload(
        "scalar_while",
        "one number, one step after the other, by a while loop",
        {"tiny": (50,), "small": (1000,), "medium": (10_000,), "full": (100_000,), "large": (1_000_000,)},
        lambda random, n: (np.array([1.0]), np.array([n], np.int32)),
        scalar_while,
        flops=lambda n: 2 * n,
        program=_while_program,
        numba=_while_numba,
        dtypes=("float32", "float64"),
        slack=40.0,
        iterations=100_000,
    ),
)
