"""Ordinary differential equations, with jax.experimental.ode's name: `odeint`, differentiable by the adjoint equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.api.jitted import jit
from fuser.flatten_util import ravel_pytree
from fuser.ir.types import float0, is_inexact
from fuser.lax.values import as_value
from fuser.trace import tree
from fuser.trace.core import type_of
from fuser.transforms.closures import closure_convert
from fuser.transforms.custom_vjp import custom_vjp
from fuser.transforms.linear import vjp
from fuser.transforms.vmap import vmap

__all__ = [
    "abs2", "fit_4th_order_polynomial", "initial_step_size", "interp_fit_dopri", "mean_error_ratio", "odeint", "optimal_step_size",
    "ravel_first_arg", "runge_kutta_step",
]  # fmt: skip

Dynamics = Callable[..., Any]

# Dormand and Prince, "A family of embedded Runge-Kutta formulae" (1980), RK5(4)7M: nodes, stages, solution, error estimate.
_NODES = np.array([1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
_STAGES = np.array([
    [1 / 5, 0, 0, 0, 0, 0, 0],
    [3 / 40, 9 / 40, 0, 0, 0, 0, 0],
    [44 / 45, -56 / 15, 32 / 9, 0, 0, 0, 0],
    [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729, 0, 0, 0],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656, 0, 0],
    [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0],
])  # fmt: skip
_SOLUTION = np.array([35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0])
# Against the embedded solution of Shampine, "Some practical Runge-Kutta formulas" (1986).
_ERROR = _SOLUTION - np.array([1951 / 21600, 0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60])
# The solution at the middle of a step: Shampine, "Some practical Runge-Kutta formulas" (1986).
_MIDDLE = 0.5 * np.array([
    6025192743 / 30085553152, 0, 51252292925 / 65400821598, -2691868925 / 45128329728, 187940372067 / 1594534317056,
    -1776094331 / 19743644256, 11237099 / 235043384,
])  # fmt: skip


def odeint(
    func: Dynamics, y0: Any, t: Any, *args: Any, rtol: float = 1.4e-8, atol: float = 1.4e-8, mxstep: float = np.inf, hmax: float = np.inf
) -> Any:  # fmt: skip
    """The solution of dy/dt = func(y, t, *args) with y(t[0]) = y0, at the times t: the tree of y0 with a leading dimension.

    `func` gives a tree like y0; `args` are arrays, trees of them, or numbers (TypeError for others). Times increase. Steps adapt
    so that each one's error stays below atol + rtol·|y|; at most `mxstep` between two times, none longer than `hmax`. Reverse
    derivatives solve the adjoint equation backwards: Chen et al., "Neural ordinary differential equations" (2018), appendix B.
    """
    for leaf in tree.leaves(args):
        try:
            as_value(leaf, "odeint")
        except TypeError:
            raise TypeError(f"The contents of odeint *args must be arrays or scalars, but got\n{leaf}.") from None
    start = fnp.asarray(t)
    converted, consts = closure_convert(func, y0, start[0], *args)
    flat0, unravel = ravel_pytree(y0)
    operands, structure = tree.flatten((args, tuple(consts)))
    solver = _solver(converted, y0, unravel, structure, rtol, atol, mxstep, hmax)
    return vmap(unravel)(solver(flat0, start, *[as_value(o, "odeint") for o in operands]))


def _solver(
    converted: Dynamics,
    y0: Any,
    unravel: Callable[[Any], Any],
    structure: Any,
    rtol: float,
    atol: float,
    mxstep: float,
    hmax: float,
) -> Any:
    """The solver of these dynamics, the same one from call to call, so that a second call compiles nothing: the function
    that closure_convert made, which is the same for the same function, keeps its solvers."""
    leaves, y_structure = tree.flatten(y0)
    key = (y_structure, tuple(type_of(as_value(leaf)) for leaf in leaves), structure, rtol, atol, mxstep, hmax)
    solvers = converted.__dict__.setdefault("solvers", {})
    if key not in solvers:

        def dynamics(y: Any, t: Any, *operands: Any) -> Any:
            args, consts = tree.unflatten(structure, operands)
            return ravel_pytree(converted(unravel(y), t, *args, *consts))[0]

        solvers[key] = _differentiable(dynamics, rtol, atol, mxstep, hmax)
    return solvers[key]


def _differentiable(dynamics: Dynamics, rtol: float, atol: float, mxstep: float, hmax: float) -> Any:
    settings = {"rtol": rtol, "atol": atol, "mxstep": mxstep, "hmax": hmax}

    @custom_vjp
    @jit
    def solution(y0: Any, t: Any, *operands: Any) -> Any:
        return _solve(dynamics, y0, t, *operands, **settings)

    def forward(y0: Any, t: Any, *operands: Any) -> Any:
        operands = tuple(map(as_value, operands))
        ys = solution(y0, t, *operands)  # itself, so that second derivatives find its rule
        return ys, (ys, t, operands)

    @jit
    def adjoint(ys: Any, t: Any, operands: Any, cotangents: Any) -> Any:
        again = lambda augmented, *rest: _differentiable(augmented, rtol, atol, mxstep, hmax)(*rest)
        return _adjoint(dynamics, again, ys, t, operands, cotangents)

    def backward(residuals: Any, cotangents: Any) -> Any:
        ys, t, operands = residuals
        y_bar, t_bar, moved_bar = adjoint(ys, t, operands, cotangents)
        found: list[Any] = [np.zeros(o.shape, float0) for o in operands]
        for n, bar in zip(_moving(operands), moved_bar):
            found[n] = bar
        return (y_bar, t_bar, *found)

    solution.defvjp(forward, backward)
    return solution


def _moving(operands: Any) -> list[int]:
    """Which operands have a derivative."""
    return [n for n, o in enumerate(operands) if is_inexact(o.dtype)]


def _adjoint(dynamics: Dynamics, solve: Callable[..., Any], ys: Any, t: Any, operands: Any, cotangents: Any) -> Any:
    """Cotangents of y0, of the times and of the moving operands, by the augmented equation from each time back to the one before."""
    moving = _moving(operands)

    def of_moving(y: Any, t: Any, *moved: Any) -> Any:
        whole = list(operands)
        for n, value in zip(moving, moved):
            whole[n] = value
        return dynamics(y, t, *whole)

    moved = [operands[n] for n in moving]
    zero = (ys[-1], cotangents[-1], fnp.zeros((), t.dtype), [fnp.zeros_like(m) for m in moved])
    _, unravel = ravel_pytree(zero)

    def augmented(state: Any, time: Any, *moved: Any) -> Any:
        y, y_bar, _, _ = unravel(state)
        slope, pull = vjp(of_moving, y, -time, *moved)
        y_dot, t_dot, *rest = pull(y_bar)
        return ravel_pytree((-slope, y_dot, t_dot, rest))[0]

    def back(carry: Any, number: Any) -> Any:
        y_bar, t0_bar, moved_bar = carry
        slope = of_moving(ys[number], t[number], *moved)
        t_bar = fnp.dot(slope, cotangents[number]).astype(t.dtype)
        state, _ = ravel_pytree((ys[number], y_bar, t0_bar - t_bar, moved_bar))
        times = fnp.stack([-t[number], -t[number - 1]])
        _, y_bar, t0_bar, moved_bar = unravel(solve(augmented, state, times, *moved)[1])
        return (y_bar + cotangents[number - 1], t0_bar, moved_bar), t_bar

    start = (cotangents[-1], zero[2], zero[3])
    (y_bar, t0_bar, moved_bar), t_bars = lax.scan(back, start, fnp.arange(t.shape[0] - 1, 0, -1))
    return y_bar, fnp.concatenate([t0_bar[None], fnp.flip(t_bars)]), moved_bar


# The solver.


def _solve(
    dynamics: Dynamics, y0: Any, t: Any, *operands: Any, rtol: float, atol: float, mxstep: float, hmax: float
) -> Any:
    """Solutions (times, n) by Dormand and Prince's pair of orders 5 and 4, interpolated within its steps."""
    f = lambda y, time: dynamics(y, time, *operands).astype(y0.dtype)
    dtype = t.dtype if is_inexact(t.dtype) else np.zeros((), y0.dtype).real.dtype
    t = t.astype(dtype)
    slope = f(y0, t[0])
    step = fnp.clip(_first_step(f, y0, t[0], slope, rtol, atol).astype(dtype), 0.0, hmax)
    state = (y0, slope, t[0], step, t[0], fnp.stack([y0] * 5))

    def reach(state: Any, target: Any) -> Any:
        def unfinished(carry: Any) -> Any:
            count, (_, _, time, step, _, _) = carry
            return (time < target) & (count < mxstep) & (step > 0)

        def advance(carry: Any) -> Any:
            count, (y, slope, time, step, last, curve) = carry
            following, new_slope, error, stages = _step(f, y, slope, time, step)
            ratio = _error_ratio(error, rtol, atol, y, following)
            fitted = _curve(y, following, stages, step)
            new_step = fnp.clip(optimal_step_size(step, ratio), 0.0, hmax).astype(step.dtype)
            accepted = ratio <= 1.0
            taken = (following, new_slope, time + step, new_step, time, fitted)
            kept = (y, slope, time, new_step, last, curve)
            return count + 1, tuple(fnp.where(accepted, a, b) for a, b in zip(taken, kept))

        _, state = lax.while_loop(unfinished, advance, (0, state))
        _, _, time, _, last, curve = state
        part = ((target - last) / fnp.where(time == last, 1, time - last)).astype(y0.dtype)
        return state, fnp.polyval(curve, part)

    _, rows = lax.scan(reach, state, t[1:])
    return fnp.concatenate([y0[None], rows])


def _step(f: Any, y: Any, slope: Any, time: Any, step: Any) -> tuple[Any, Any, Any, Any]:
    """(the solution after the step, its slope, the estimated error, the slopes of all stages)."""
    stages = [slope]
    h = step.astype(y.dtype)
    for node, weights in zip(_NODES, _STAGES):
        stages.append(f(y + h * _combined(weights, stages), time + step * node))
    return y + h * _combined(_SOLUTION, stages), stages[-1], h * _combined(_ERROR, stages), fnp.stack(stages)


def _combined(weights: np.ndarray, stages: Any) -> Any:
    return sum(stages[n] * float(w) for n, w in enumerate(weights[: len(stages)]) if w)


def _curve(y: Any, following: Any, stages: Any, step: Any) -> Any:
    """The quartic (5, n), highest power first, through both ends with their slopes and the middle of a step, on [0, 1]."""
    middle = y + step.astype(y.dtype) * _combined(_MIDDLE, stages)
    return fnp.stack(fit_4th_order_polynomial(y, following, middle, stages[0], stages[-1], step))


def _error_ratio(error: Any, rtol: float, atol: float, y: Any, following: Any) -> Any:
    """The root of the mean squared error in units of what is tolerated."""
    bound = atol + rtol * fnp.maximum(fnp.abs(y), fnp.abs(following))
    return fnp.sqrt(fnp.mean(fnp.square(fnp.abs(error / bound))))


def _first_step(f: Any, y: Any, time: Any, slope: Any, rtol: float, atol: float, order: int = 4) -> Any:
    """Hairer, Nørsett and Wanner, "Solving ordinary differential equations I", II.4."""
    scale = atol + fnp.abs(y) * rtol
    size, speed = fnp.linalg.norm(y / scale), fnp.linalg.norm(slope / scale)
    first = fnp.where((size < 1e-5) | (speed < 1e-5), 1e-6, 0.01 * size / fnp.where(speed == 0, 1, speed))
    ahead = f(y + first.astype(y.dtype) * slope, (time + first).astype(time.dtype))
    bend = fnp.linalg.norm((ahead - slope) / scale) / first
    second = fnp.where(
        (speed <= 1e-15) & (bend <= 1e-15),
        fnp.maximum(1e-6, first * 1e-3),
        (0.01 / fnp.maximum(fnp.maximum(speed, bend), 1e-30)) ** (1.0 / (order + 1.0)),
    )
    return fnp.minimum(100.0 * first, second)


# The solver's parts under JAX's names.


def abs2(x: Any) -> Any:
    """The squared absolute value, elementwise, real."""
    return x.real**2 + x.imag**2 if fnp.iscomplexobj(x) else x**2


def fit_4th_order_polynomial(y0: Any, y1: Any, y_mid: Any, dy0: Any, dy1: Any, dt: Any) -> tuple[Any, ...]:
    """Coefficients, highest power first, of the quartic on [0, 1] through three values, with the slopes dy0 and dy1 at its ends."""
    h = dt.astype(y0.dtype)
    first, last = h * dy0, h * dy1
    a = -2 * first + 2 * last - 8 * y0 - 8 * y1 + 16 * y_mid
    b = 5 * first - 3 * last + 18 * y0 + 14 * y1 - 32 * y_mid
    return a, b, -4 * first + last - 11 * y0 - 5 * y1 + 16 * y_mid, first, y0


def interp_fit_dopri(y0: Any, y1: Any, k: Any, dt: Any) -> Any:
    """The quartic (5, n) between the ends of a step with the slopes k (7, n) of its stages."""
    return _curve(y0, y1, k, dt)


def initial_step_size(fun: Any, t0: Any, y0: Any, order: int, rtol: float, atol: float, f0: Any) -> Any:
    """The first step of a method of this order: Hairer, Nørsett and Wanner, II.4."""
    return _first_step(fun, y0, fnp.asarray(t0, fnp.result_type(y0.dtype)), f0, rtol, atol, order)


def runge_kutta_step(func: Any, y0: Any, f0: Any, t0: Any, dt: Any) -> tuple[Any, Any, Any, Any]:
    """(y1, its slope, the estimated error, the slopes of all stages) of one step of Dormand and Prince's pair."""
    return _step(func, y0, f0, t0, fnp.asarray(dt))


def mean_error_ratio(error_estimate: Any, rtol: float, atol: float, y0: Any, y1: Any) -> Any:
    """The root of the mean squared error in units of what is tolerated."""
    return _error_ratio(error_estimate, rtol, atol, y0, y1)


def optimal_step_size(
    last_step: Any,
    mean_error_ratio: Any,
    safety: float = 0.9,
    ifactor: float = 10.0,
    dfactor: float = 0.2,
    order: float = 5.0,
) -> Any:
    """The step after one with this error, between dfactor (1 after an accepted one) and ifactor times as long."""
    ratio = fnp.asarray(mean_error_ratio)
    least = fnp.where(ratio < 1, 1.0, dfactor)
    factor = fnp.minimum(ifactor, fnp.maximum(fnp.where(ratio == 0, 1, ratio) ** (-1.0 / order) * safety, least))
    return fnp.where(ratio == 0, last_step * ifactor, last_step * factor)


def ravel_first_arg(f: Any, unravel: Callable[[Any], Any], debug_info: Any = None) -> Any:
    """`f`, whose first argument is given as a vector and whose result becomes one."""
    return lambda y, *args: ravel_pytree(f(unravel(y), *args))[0]
