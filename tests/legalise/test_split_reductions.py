"""Reductions on both sides of an axis that stays: which axes go first, and results against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.c.target import TARGET
from fuser.legalise.split_reductions import with_split_reductions
from fuser.ops.reduce import reduce_sum_p

RNG = np.random.default_rng(0)


def reduced_axes(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32") -> list[tuple[int, ...]]:
    """The axes of each sum that `x.sum(axes)` becomes."""
    graph = fuser.jit(lambda x: x.sum(axes)).trace(fuser.ShapeDtypeStruct(shape, dtype)).graph
    found = with_split_reductions(graph, TARGET)
    return [tuple(eqn.params["axes"]) for eqn in found.eqns if eqn.primitive is reduce_sum_p]


@pytest.mark.parametrize(
    "shape, axes, expected",
    [
        ((300, 200, 9), (0, 2), [(0,), (1,)]),  # short runs: blocks are added to each other
        ((20, 30, 40, 10), (1, 3), [(1,), (2,)]),
        ((50, 6, 20, 7), (1, 3), [(1,), (2,)]),
        ((416, 27, 136), (0, 2), [(0,), (1,)]),
        ((64, 3, 1000), (0, 2), [(2,), (0,)]),  # few runs, each of which is long
        ((4000, 5, 3), (0, 2), [(0,), (1,)]),  # blocks of one vector
        ((3000, 2, 3), (0, 2), [(2,), (0,)]),  # blocks of less: runs become numbers first
        ((2, 3000, 9, 10), (1, 3), [(1,), (2,)]),
        ((10, 2, 3), (0, 2), [(0, 2)]),  # what is soon done
        ((300, 200, 1), (0, 2), [(0, 2)]),
        ((300, 200), (0,), [(0,)]),
        ((300, 20, 9), (1, 2), [(1, 2)]),
    ],
)
def test_which_axes_go_first(shape: tuple[int, ...], axes: tuple[int, ...], expected: list[tuple[int, ...]]) -> None:
    assert reduced_axes(shape, axes) == expected


@pytest.mark.parametrize("shape, split", [((300, 20, 9), True), ((4000, 5, 3), False), ((3000, 2, 3), False)])
def test_short_runs_that_others_read_are_split_in_wide_blocks_alone(shape: tuple[int, ...], split: bool) -> None:
    """A kernel that does both has the operand in its cache, and lanes with accumulators of their own take short rows."""
    graph = fuser.jit(lambda x: (x.sum((0, 2)), x * 2)).trace(fuser.ShapeDtypeStruct(shape, "float32")).graph
    found = with_split_reductions(graph, TARGET)
    assert sum(eqn.primitive is reduce_sum_p for eqn in found.eqns) == 1 + split


PROGRAMS: dict[str, Callable[[Any, Any, tuple[int, ...]], Any]] = {
    "sum": lambda xp, x, axes: x.sum(axes),
    "mean of squares": lambda xp, x, axes: (x * x).mean(axes),
    "max": lambda xp, x, axes: x.max(axes),
    "any": lambda xp, x, axes: (x > 3.5).any(axes),
    "var": lambda xp, x, axes: x.var(axes),
    "centred": lambda xp, x, axes: x - x.mean(axes, keepdims=True),
    "kept": lambda xp, x, axes: x.sum(axes, keepdims=True),
}


@pytest.mark.parametrize("shape, axes", [((300, 20, 9), (0, 2)), ((5, 30, 40, 10), (1, 3)), ((7, 6, 20, 3, 7), (1, 4))])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    found = fuser.jit(lambda x: PROGRAMS[name](fnp, x, axes))(x)
    expected = PROGRAMS[name](np, x.astype(np.float64) if name != "any" else x, axes)
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-5, atol=2e-5)
