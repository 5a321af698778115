"""Scalars of loops that only counters decide are counters or numbers; what else they may be stays. Values against JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.ir.primitive import Control

X = np.random.default_rng(0).standard_normal((9, 9)).astype(np.float32)


def row_at(library: Any, x: Any, start: int = 0, stop: int = 9) -> Any:
    """Index wrapped where it is negative, and clamped."""
    step = lambda k, c: library.numpy.tanh(c + library.lax.dynamic_index_in_dim(x, k, 0, keepdims=False) @ x)
    return library.lax.fori_loop(start, stop, step, x[0])


def downwards(library: Any, x: Any) -> Any:
    step = lambda k, c: (c * 0.5 + x[8 - k], library.numpy.where(k >= 0, c.sum(), k))
    return library.lax.scan(lambda c, k: step(k, c), x[0], library.numpy.arange(9))


def evens(library: Any, x: Any) -> Any:
    """Two counters of different steps, one of which is the other's double in all iterations; the carries are results."""

    def step(c: Any, _: Any) -> Any:
        k, two_k, total = c
        return (k + 1, two_k + 2, total + x[k] * (2 * k - two_k + 1)), two_k

    return library.lax.scan(step, (0, 0, x[0]), None, length=9)


def body(function: Callable[..., Any], *args: Any) -> Any:
    graph = fuser.jit(lambda x: function(fuser, x, *args)).lower(X).graph
    (loop,) = [eqn for eqn in graph.eqns if eqn.primitive.control is Control.SCAN]
    return loop.params["jaxpr"]


@pytest.mark.parametrize("function", [row_at, downwards, evens])
def test_values_are_jax(function: Callable[..., Any]) -> None:
    found = fuser.tree_util.tree_leaves(fuser.jit(lambda x: function(fuser, x))(X))
    expected = jax.tree_util.tree_leaves(jax.jit(lambda x: function(jax, x))(X))
    for a, b in zip(found, expected, strict=True):
        assert np.asarray(a).dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def scalars(graph: Any) -> list[str]:
    """The integer operations of a body that make single numbers."""
    return [
        e.primitive.name for e in graph.eqns if e.outvars[0].aval.shape == () and e.outvars[0].aval.dtype.kind in "ib"
    ]


def test_indices_that_lie_inside_are_the_counter() -> None:
    assert scalars(body(row_at)) == ["add"]


@pytest.mark.parametrize("bounds", [(-3, 5), (2, 14)])
def test_indices_that_need_it_are_wrapped_or_clamped(bounds: tuple[int, int]) -> None:
    assert ("select_n" in scalars(body(row_at, *bounds))) == (bounds[0] < 0)  # slices clamp their starts themselves
    found = fuser.jit(lambda x: row_at(fuser, x, *bounds))(X)
    np.testing.assert_allclose(found, jax.jit(lambda x: row_at(jax, x, *bounds))(X), rtol=2e-5, atol=1e-5)


def test_a_double_is_the_other_counter_and_their_difference_a_number() -> None:
    assert scalars(body(evens)) == ["add", "add"]


def test_loops_of_unknown_start_keep_their_tests() -> None:
    graph = (
        fuser.jit(lambda x, n: fuser.lax.fori_loop(n, n + 4, lambda k, c: fnp.sin(c) + x[k], x[0])).lower(X, 3).graph
    )
    (loop,) = [eqn for eqn in graph.eqns if eqn.primitive.control in (Control.SCAN, Control.WHILE)]
    inner = loop.params.get("jaxpr") or loop.params["body_jaxpr"]
    assert "select_n" in scalars(inner)
