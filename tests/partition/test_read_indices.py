"""Values read at constant distances: how often they are computed, which kernels become one for them, and the numbers, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
import fuser.scipy.special as special
from fuser.config import config

ROWS, COLUMNS = 70, 131


def total_variation(np: Any, u: Any) -> Any:
    east, south = np.roll(u, -1, 1) - u, np.roll(u, -1, 0) - u
    length = np.sqrt(east * east + south * south + 1e-3)
    p, q = east / length, south / length
    return u + 0.05 * (p - np.roll(p, 1, 1) + q - np.roll(q, 1, 0))


def rusanov(np: Any, h: Any, flow: Any) -> Any:
    """A step of the shallow water equations: two updates that take in fluxes, which take in speeds."""
    velocity = flow / h
    speed = np.abs(velocity) + np.sqrt(9.81 * h)
    most = np.maximum(speed[:, 1:], speed[:, :-1])
    pressure = flow * velocity + 4.905 * h * h
    updates = []
    for value, inner in ((h, flow), (flow, pressure)):
        flux = 0.5 * (inner[:, 1:] + inner[:, :-1]) - 0.5 * most * (value[:, 1:] - value[:, :-1])
        updates.append(value[:, 1:-1] - 0.1 * (flux[:, 1:] - flux[:, :-1]))
    return tuple(updates)


def godunov(np: Any, u: Any) -> Any:
    left, right = u[1:], u[:-1]
    flux = 0.5 * (left * left + right * right) - np.maximum(np.abs(left), np.abs(right)) * np.sqrt(left + right)
    return u[1:-1] - 0.1 * (flux[1:] - flux[:-1])


def limited(np: Any, u: Any) -> Any:
    step = u[1:] - u[:-1]
    slope = np.where(step[1:] * step[:-1] > 0, np.minimum(np.abs(step[1:]), np.abs(step[:-1])) / (u[1:-1] + 1), 0.0)
    left, right = u[1:-1] + 0.5 * slope, u[1:-1] - 0.5 * slope
    flux = np.sqrt(left[:-1] ** 2 + right[1:] ** 2)
    return u[2:-2] - 0.1 * (flux[1:] - flux[:-1])


PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {
    "total variation": (total_variation, 1),
    "Rusanov's fluxes": (rusanov, 2),
    "Godunov's step": (godunov, 1),
    "limited slopes": (limited, 1),
}


def fields(count: int, rows: int = ROWS, columns: int = COLUMNS, dtype: str = "float32") -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [(random.random((rows, columns)) + 0.5).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", [(ROWS, 1027), (520, COLUMNS)])
def test_one_kernel_of_a_stencil_of_stencils(name: str, shape: tuple[int, int]) -> None:
    function, count = PROGRAMS[name]
    arguments = fields(count, *shape)
    compiled = fuser.jit(lambda *a: function(fnp, *a)).lower(*arguments).compile()
    assert len(compiled.plan.kernels) == 1, compiled.plan.explain()
    with config.using(fuel=0):
        apart = fuser.jit(lambda *a: function(fnp, *a))(*arguments)
    found = compiled(*arguments)
    wanted = function(np, *(a.astype(np.float64) for a in arguments))
    for one, each, exact in zip(fuser.tree.leaves(found), fuser.tree.leaves(apart), fuser.tree.leaves(wanted)):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(each))
        np.testing.assert_allclose(np.asarray(one), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 20), (1, 5000), (5000, 8), (ROWS, 67)])
def test_shapes_beside_those_with_windows(shape: tuple[int, int]) -> None:
    """Rows too short for values that are kept, arrays too small, and single rows: the same numbers, whatever the plan."""
    for function, count in PROGRAMS.values():
        if shape[0] < 5 and function is not rusanov:
            continue
        arguments = fields(count, *shape)
        found = fuser.jit(lambda *a, f=function: f(fnp, *a))(*arguments)
        wanted = function(np, *(a.astype(np.float64) for a in arguments))
        for one, exact in zip(fuser.tree.leaves(found), fuser.tree.leaves(wanted)):
            np.testing.assert_allclose(np.asarray(one), exact, rtol=1e-4, atol=1e-5)


def kernels(function: Callable[..., Any], *arguments: Any) -> int:
    return len(fuser.jit(function).lower(*arguments).plan.kernels)


def test_a_place_that_is_read_twice_is_computed_once() -> None:
    """Five reads at two places take no more than two."""
    x = np.ones(4000, np.float32)

    def reads(x: Any) -> Any:
        y = x * x + x
        left, right = y[1:], y[:-1]
        return (left + right) * (left - right) * fnp.maximum(left, right) + left

    assert kernels(reads, x) == 1
    np.testing.assert_array_equal(np.asarray(fuser.jit(reads)(x)), np.full(3999, 2, np.float32))


def test_stencils_of_one_array_share_a_kernel() -> None:
    """Differences along both axes of the same places read the array once."""
    (u,) = fields(1)
    both = lambda u: (u[1:-1, 2:] - u[1:-1, :-2], u[2:, 1:-1] - u[:-2, 1:-1])
    assert kernels(both, u) == 1
    for one, each in zip(fuser.jit(both)(u), both(u)):
        np.testing.assert_array_equal(np.asarray(one), each)


def test_what_is_read_in_another_order_is_stored() -> None:
    (u,) = fields(1, 600, 600)

    def turned(u: Any) -> Any:
        y = fnp.tanh(fnp.log(u)) * special.erf(u)
        return y[::-1] + y[:, ::-1]

    assert kernels(turned, u) > 1


def test_independent_readers_of_other_shapes_stay_apart() -> None:
    """A value that kernels of different extents read is stored."""
    (u,) = fields(1)
    assert kernels(lambda u: (fnp.tanh(u)[1:] * 2, fnp.tanh(u)[:-2] * 3), u) == 3
