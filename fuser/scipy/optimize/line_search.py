"""A step along a direction that satisfies the strong Wolfe conditions.

Nocedal & Wright, "Numerical optimization" (1999), algorithms 3.5 (bracketing) and 3.6 (zoom).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fuser import dtypes
from fuser import numpy as fnp
from fuser.lax.control import while_loop
from fuser.trace import tree
from fuser.transforms.grad import value_and_grad

CUBIC_MARGIN, QUADRATIC_MARGIN = 0.2, 0.1  # of the interval, how close to its ends an interpolated step may lie
MOST_ZOOMS = 30


class Point(NamedTuple):
    """A step with the function's value and slope there."""

    step: Any
    value: Any
    slope: Any


class Search(NamedTuple):
    """What a line search found; `status` 0: a step, 1: no step in the interval, 3: out of iterations."""

    failed: Any
    nfev: Any
    ngev: Any
    step: Any
    value: Any
    gradient: Any
    status: Any


class _Zoom(NamedTuple):
    done: Any
    failed: Any
    count: Any
    low: Point
    high: Point
    step_before: Any
    value_before: Any
    best: Point
    gradient: Any


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """Of two structures, each leaf by the condition."""
    return tree.map(lambda a, b: fnp.where(condition, a, b), yes, no)


def _cubic_minimum(low: Point, high: Point, step: Any, value: Any) -> Any:
    """Where the cubic through three points, with the slope at the first, is least."""
    db, dc = high.step - low.step, step - low.step
    rb, rc = high.value - low.value - low.slope * db, value - low.value - low.slope * dc
    scale = (db * dc) ** 2 * (db - dc)
    a = (dc**2 * rb - db**2 * rc) / scale
    b = (-(dc**3) * rb + db**3 * rc) / scale
    return low.step + (-b + fnp.sqrt(b * b - 3.0 * a * low.slope)) / (3.0 * a)


def _quadratic_minimum(low: Point, high: Point) -> Any:
    """Where the parabola through two points, with the slope at the first, is least."""
    width = high.step - low.step
    bend = (high.value - low.value - low.slope * width) / width**2
    return low.step - low.slope / (2.0 * bend)


def _between(x: Any, state: _Zoom, margin: float) -> Any:
    width = state.high.step - state.low.step
    first, last = fnp.minimum(state.low.step, state.high.step), fnp.maximum(state.low.step, state.high.step)
    return (x > first + margin * width) & (x < last - margin * width)


def _zoom(at: Any, too_high: Any, flat: Any, gradient: Any, low: Point, high: Point, wanted: Any) -> _Zoom:
    """Algorithm 3.6: a step between two, found by cubic or quadratic interpolation or by bisection, where it is `wanted`.

    `at` gives a step's point and gradient; `too_high` and `flat` are the Wolfe conditions.
    """
    real = low.step.dtype
    least = 1e-10 if dtypes.finfo(real).bits == 64 else 1e-5

    def body(state: _Zoom) -> _Zoom:
        low, high = state.low, state.high
        failed = state.failed | (high.step - low.step <= least)
        cubic = _cubic_minimum(low, high, state.step_before, state.value_before)
        quadratic = _quadratic_minimum(low, high)
        by_cubic = (state.count > 0) & _between(cubic, state, CUBIC_MARGIN)
        by_quadratic = ~by_cubic & _between(quadratic, state, QUADRATIC_MARGIN)
        middle = (low.step + high.step) / 2.0
        new, slope = at(fnp.where(by_cubic, cubic, fnp.where(by_quadratic, quadratic, middle)))
        to_high = too_high(new) | (new.value >= low.value)
        found = flat(new) & ~to_high
        beyond = (new.slope * (high.step - low.step) >= 0.0) & ~to_high & ~found
        to_low = ~to_high & ~found
        # What is dropped from the interval is remembered for the cubic.
        dropped = choose(to_high | beyond, (high.step, high.value), (low.step, low.value))
        before = choose(to_high | to_low, dropped, (state.step_before, state.value_before))
        return _Zoom(
            state.done | found,
            failed | (state.count + 1 >= MOST_ZOOMS),
            state.count + 1,
            choose(to_low, new, low),
            choose(to_high, new, choose(beyond, low, high)),
            before[0],
            before[1],
            choose(found, new, state.best),
            choose(found, slope, state.gradient),
        )

    no = fnp.asarray(False)
    between = (low.step + high.step) / 2.0, (low.value + high.value) / 2.0
    best = Point(fnp.ones((), real), low.value, low.slope)
    begin = _Zoom(no, no, fnp.asarray(0), low, high, between[0], between[1], best, gradient)
    return while_loop(lambda s: ~s.done & wanted & ~s.failed, body, begin)


def line_search(
    function: Callable[..., Any], x: Any, direction: Any, value: Any, gradient: Any, value_before: Any = None,
    c1: float = 1e-4, c2: float = 0.9, maxiter: int = 20,
) -> Search:  # fmt: skip
    """A step from `x`, where the function has this value and gradient, along a direction of descent."""
    dot = lambda a, b: fnp.real(fnp.dot(a, b))

    def at(step: Any) -> tuple[Point, Any]:
        step = fnp.asarray(step, np.real(np.zeros((), direction.dtype)).dtype)
        found, slope = value_and_grad(function)(x + step.astype(direction.dtype) * direction)
        return Point(step, found, dot(slope, direction)), slope

    real = np.real(np.zeros((), direction.dtype)).dtype
    start = Point(fnp.zeros((), real), value, dot(gradient, direction))
    first: Any = fnp.ones((), real)
    if value_before is not None:
        guess = 1.01 * 2 * (start.value - value_before) / start.slope
        first = fnp.where(guess > 1, 1.0, guess).astype(real)
    too_high = lambda p: p.value > start.value + c1 * p.step * start.slope
    flat = lambda p: fnp.abs(p.slope) <= -c2 * start.slope

    zoom = functools.partial(_zoom, at, too_high, flat, gradient)

    def body(state: Any) -> Any:
        done, failed, i, before, best, slope, evaluations = state
        new, new_slope = at(fnp.where(i == 1, first, before.step * 2.0))
        rising = too_high(new) | ((new.value >= before.value) & (i > 1))
        found = flat(new) & ~rising
        turned = (new.slope >= 0.0) & ~rising & ~found
        inner, outer = zoom(before, new, rising), zoom(new, before, turned)
        best, slope = choose(rising, (inner.best, inner.gradient), (best, slope))
        best, slope = choose(found, (new, new_slope), (best, slope))
        best, slope = choose(turned, (outer.best, outer.gradient), (best, slope))
        done = done | rising | found | turned
        failed = failed | (rising & inner.failed) | (turned & outer.failed)
        return done, failed, i + 1, new, best, slope, evaluations + 1 + inner.count + outer.count

    no = fnp.asarray(False)
    begin = no, no, fnp.asarray(1), start, start, gradient, fnp.asarray(0)
    done, failed, i, _, best, slope, evaluations = while_loop(lambda s: ~s[0] & (s[2] <= maxiter) & ~s[1], body, begin)
    status = fnp.where(failed, 1, fnp.where(i > maxiter, 3, 0))
    step = best.step
    if dtypes.finfo(real).bits != 64:
        step = fnp.where(fnp.abs(step) < 1e-8, fnp.sign(step) * 1e-8, step)
    return Search(failed | ~done, evaluations, evaluations, step, best.value, slope, status)
