"""Reductions over axes on both sides of one that stays: when they are two steps, and that results stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.ir.primitive import Fusion

X = np.random.default_rng(0).normal(size=(60, 70, 32)).astype(np.float32)


def reductions(function: Any, *args: Any) -> list[Any]:
    return [e for e in fuser.jit(function).lower(*args).plan.graph.eqns if e.primitive.fusion is Fusion.REDUCE]


PROGRAMS = {
    "sum": lambda np_, x: x.sum((0, 2)),
    "max": lambda np_, x: x.max((0, 2)),
    "all": lambda np_, x: (x > -9).all((0, 2)),
    "mean of squares": lambda np_, x: (x * x).mean((0, 2)),
    "of two arrays": lambda np_, x: (x + np_.flip(x, 0)).sum((0, 2)),
    "var": lambda np_, x: x.var((0, 2)),
    "normalised": lambda np_, x: (x - x.mean((0, 2), keepdims=True)) / x.std((0, 2), keepdims=True),
    "four axes": lambda np_, x: x.reshape(30, 2, 70, 32).sum((1, 3)),
    "inner runs of one": lambda np_, x: x.reshape(60, 70, 32, 1).sum((0, 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str) -> None:
    expected = PROGRAMS[name](np, X.astype(np.float64))
    found = np.asarray(fuser.jit(lambda x: PROGRAMS[name](fnp, x))(X))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_short_runs_far_apart_are_read_in_the_order_of_memory() -> None:
    wide = np.ones((64, 500, 40), np.float32)  # blocks of runs that the nearest cache does not hold the sums of
    first, second = reductions(lambda x: x.sum((0, 2)), wide)
    assert first.params["axes"] == (2,) and second.params["axes"] == (0,)


def test_blocks_of_short_runs_are_added_to_each_other() -> None:
    first, second = reductions(lambda x: x.sum((0, 2)), X)
    assert first.params["axes"] == (0,) and second.params["axes"] == (1,)


def test_small_arrays_and_one_sided_axes_stay_one_reduction() -> None:
    assert len(reductions(lambda x: x.sum((0, 2)), X[:2, :3])) == 1
    assert len(reductions(lambda x: x.sum((1, 2)), X)) == 1
    assert len(reductions(lambda x: x.sum((0, 1)), X)) == 1


def test_a_kernel_that_reads_long_runs_again_stays_one() -> None:
    wide = np.ones((20, 30, 3_000), np.float32)
    assert len(reductions(lambda x: x - x.sum((0, 2), keepdims=True), wide)) == 1


@pytest.mark.parametrize(
    ("height", "width", "steps"), [(2, 2, 1), (2, 4, 1), (4, 2, 1), (4, 4, 2), (2, 8, 2), (5, 5, 2)]
)
def test_pools_of_few_elements_are_reduced_as_they_lie(height: int, width: int, steps: int) -> None:
    x = np.random.default_rng(1).normal(size=(60 * height, 80 * width)).astype(np.float32)
    pool = lambda x: x.reshape(60, height, 80, width).mean((1, 3))
    assert len(reductions(pool, x)) == steps
    np.testing.assert_allclose(fuser.jit(pool)(x), pool(x.astype(np.float64)), rtol=1e-5, atol=1e-6)
