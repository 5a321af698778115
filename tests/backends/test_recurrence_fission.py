"""Loops that run alone, whose functions of maths have loops with vectors of their own: beside the reference backend, at lengths around a block's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.backends.c.schedules.recurrence_fission import FEWEST, STEPS

LONG = FEWEST * STEPS
X = np.random.default_rng(0).standard_normal(10 * STEPS + 77).astype(np.float32)
TABLE = np.linspace(-1, 1, 16, dtype=np.float32)


def compressor(x: Any) -> Any:
    """A recurrence with a choice, and a power of what it gives."""

    def step(level: Any, x: Any) -> Any:
        level = fnp.where(abs(x) > level, 0.1 * abs(x) + 0.9 * level, 0.01 * abs(x) + 0.99 * level)
        return level, x * fnp.where(level > 0.5, (0.5 / level) ** 0.75, 1.0)

    return lax.scan(step, fnp.float32(0), x)


def likelihood(x: Any) -> Any:
    """A variance that others wait for, its logarithm, and a sum that takes that up."""

    def step(carry: Any, x: Any) -> Any:
        variance, total = carry
        following = 0.1 + 0.2 * x * x + 0.7 * variance
        return (following, total - 0.5 * (fnp.log(variance) + x * x / variance)), total

    return lax.scan(step, (fnp.float32(1), fnp.float32(0)), x)


def of_elements(x: Any) -> Any:
    """Functions of elements alone, which a recurrence takes up."""
    return lax.scan(lambda c, x: ((c := 0.9 * c + fnp.exp(-x * x)), c * 2), fnp.float32(0), x)


def of_the_step_before(x: Any) -> Any:
    """A function of the carry as it was before the step, and a test of it."""
    return lax.scan(lambda c, x: (0.5 * c + x, (fnp.sin(c), (c > 0) | (x > 1))), fnp.float32(0.5), x)


def read_at_places(x: Any) -> Any:
    """A table read at places that a recurrence of integers gives."""

    def step(c: Any, x: Any) -> Any:
        c = (c * 5 + 3 + (x > 0)) % 16
        return c, fnp.tanh(fnp.take(TABLE, c) + x)

    return lax.scan(step, fnp.int32(1), x)


def backwards(x: Any) -> Any:
    return lax.scan(lambda c, x: ((c := 0.3 * c + x), fnp.exp(c)), fnp.float32(0), x, reverse=True)


def counted(x: Any) -> Any:
    """What depends on the number of the step."""
    return lax.scan(lambda c, t: ((c := 0.3 * c + t % 7), fnp.sin(c + t)), fnp.float32(0), fnp.arange(len(x)))


FUNCTIONS = (compressor, likelihood, of_elements, of_the_step_before, read_at_places, backwards, counted)


def fissions(function: Any, x: np.ndarray) -> list[int]:
    sources = fuser.jit(function, backend="c").lower(x).sources
    found = [schedule for source in sources for schedule in source.schedules.values()]
    return [schedule.fission for schedule in found if schedule.blocking == STEPS]


@pytest.mark.parametrize("length", (LONG, LONG + 1, len(X)))
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_loop_alone_agrees_with_the_reference(function: Any, length: int) -> None:
    x = X[:length]
    if function is not of_elements:  # which the planner may take out of the loop before
        assert fissions(function, x)
    got = fuser.tree_util.tree_leaves(fuser.jit(function, backend="c")(x))
    want = fuser.tree_util.tree_leaves(fuser.jit(function, backend="reference")(x))
    for a, b in zip(got, want, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("function", (compressor, backwards))
def test_short_loops_and_cheap_ones_stay_one(function: Any) -> None:
    assert not fissions(function, X[: LONG - 1])
    assert not fissions(lambda x: lax.scan(lambda c, x: (0.5 * c + x, c - x), fnp.float32(0), x), X)
    chained = lambda x: lax.scan(lambda c, x: ((c := fnp.tanh(c + x)), c), fnp.float32(0), x)
    assert not fissions(chained, X)  # its function of maths is the recurrence
