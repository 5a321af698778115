"""Values that are never negative: what is known to be one, what is not, and powers of them without a logarithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser import lax
from fuser.ir.graph import Graph
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import ArrayType
from fuser.passes.analysis.sign import never_negative
from fuser.trace.stage import stage

X = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-30, -1e30], np.float32)


def known(function: Callable[..., Any]) -> bool:
    """What is said of the result; all of its elements bear it out where it is said."""
    graph: Graph = stage(lambda x: [function(x)], [ArrayType(X.shape, X.dtype)])
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        rewriter.keep(eqn)
    said = never_negative(graph.outvars[0], rewriter)
    with np.errstate(all="ignore"):
        result = np.asarray(fuser.jit(function, backend="reference")(X))
    assert not said or not np.signbit(result[result == result]).any()
    return said


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x,
        lambda x: jnp.abs(x) + 0.25,
        lambda x: jnp.sum(x * x) + jnp.exp(x),
        lambda x: (jnp.sqrt(x * x) * 2.0).reshape(3, 3).T.reshape(-1),
        lambda x: jnp.maximum(jnp.square(x), 0.0) / (1.0 + jnp.abs(x)),
        lambda x: jnp.broadcast_to(jnp.max(jnp.abs(x)), x.shape),
    ],
)
def test_never_negative(function: Callable[..., Any]) -> None:
    assert known(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: x * x - 1.0,
        lambda x: -(x * x),
        lambda x: x * x * -0.0,
        lambda x: jnp.maximum(x, x * x),
        lambda x: jnp.log(x * x),
        lambda x: x * jnp.abs(x),
        lambda x: jnp.sqrt(x),  # -0.0 stays
    ],
)
def test_perhaps_negative(function: Callable[..., Any]) -> None:
    assert not known(function)


def powers(function: Callable[..., Any], x: np.ndarray) -> int:
    """How many powers are left in the program, once its numbers are found to be right."""
    jitted = fuser.jit(function, backend="c")
    with np.errstate(all="ignore"):
        wide = function_in_numpy(function, x)
    np.testing.assert_allclose(jitted(x), wide, rtol=1e-6)
    return sum(name == "pow" for group in jitted.lower(x).plan.groups for name in group.ops)


def function_in_numpy(function: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    with fuser.config.using(enable_x64=True):
        return np.asarray(fuser.jit(function, backend="reference")(x.astype(np.float64))).astype(np.float32)


@pytest.mark.parametrize("power", [0.5, -0.5, 1.5, -1.5])
def test_powers_by_halves(power: float) -> None:
    x = np.abs(np.random.default_rng(0).normal(size=5000)).astype(np.float32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-20, 1e19, 3e-8, -5.0], np.float32)
    with np.errstate(all="ignore"):
        x = np.concatenate([x, edges])
        assert powers(lambda x: (x * x + 0.25) ** power, x) == 0
        assert powers(lambda x: jnp.abs(x) ** power, x) == 0
        assert powers(lambda x: x**power, np.abs(x)) == 1
        assert powers(lambda x: jnp.abs(x) ** (2 * power + 0.25), x) == 1
    found = np.asarray(fuser.jit(lambda x: x**power, backend="c")(np.float32([-np.inf, -1.0])))
    np.testing.assert_array_equal(found, [np.inf if power > 0 else 0.0, np.nan])


def test_gradients_go_through() -> None:
    distance = lambda x: jnp.sum((x * x + 0.5) ** -1.5)
    x = np.float32([0.5, -2.0, 3.0])
    expected = -3.0 * x * (x * x + 0.5) ** -2.5
    np.testing.assert_allclose(fuser.jit(fuser.grad(distance), backend="c")(x), expected, rtol=1e-5)


def test_inside_loops() -> None:
    program = lambda x: lax.fori_loop(0, 3, lambda _, x: x * (jnp.sum(x * x) + 0.5) ** -1.5, x)
    x = np.float32([0.5, -2.0, 3.0])
    exact = x.astype(np.float64)
    for _ in range(3):
        exact = exact * (np.sum(exact * exact) + 0.5) ** -1.5
    np.testing.assert_allclose(fuser.jit(program, backend="c")(x), exact, rtol=1e-5)
