"""Loop distribution: which scans are cut in two, what is left in the loop, and that results are those of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.ir.graph import Graph
from fuser.ir.primitive import Fusion
from fuser.passes import run

jax = pytest.importorskip("jax")
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def network(np_: Any, lax: Any, reverse: bool = False) -> Callable[..., Any]:
    """A recurrent network whose outputs are a product of each state with a matrix."""

    def function(rows: Any, inside: Any, out: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            new = np_.tanh(state @ inside + row)
            return new, (np_.exp(new @ out) + state.sum(), row * 2)

        return lax.scan(step, np_.zeros(rows.shape[1:], rows.dtype), rows, reverse=reverse)

    return function


def envelope(np_: Any, lax: Any) -> Callable[..., Any]:
    """The gain of a compressor: a power of a state that has one number, for two channels."""

    def step(level: Any, frame: Any) -> Any:
        most = np_.abs(frame).max()
        level = np_.where(most > level, 0.9 * level + 0.1 * most, 0.999 * level)
        return level, frame * (level + 1) ** -0.7

    return lambda frames: lax.scan(step, np_.float32(0.25), frames)


def loops(graph: Graph) -> list[Graph]:
    return [eqn.params["jaxpr"] for eqn in graph.eqns if eqn.primitive.fusion is Fusion.CONTROL]


def dots(graph: Graph) -> int:
    return sum(eqn.primitive.fusion is Fusion.DOT for eqn in graph.eqns)


def checked(make: Callable[..., Any], *args: Any) -> Graph:
    """The graph after the passes; what kernels give is what JAX gives."""
    found = fuser.tree.leaves(fuser.jit(make(fnp, lax))(*args))
    expected = jax.tree.leaves(jax.jit(make(jax.numpy, jax.lax))(*args))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=3e-5, atol=3e-5)
    return run(fuser.jit(make(fnp, lax)).trace(*args).graph)


@pytest.mark.parametrize("reverse", (False, True))
def test_outputs_of_a_network_are_one_product_after_the_loop(reverse: bool) -> None:
    make = lambda np_, lax: network(np_, lax, reverse)
    graph = checked(make, normal(100, 2, 48), normal(48, 48) / 9, normal(48, 40) / 9)
    (body,) = loops(graph)
    assert dots(body) == 1 and dots(graph) == 1


def test_many_rows_share_the_matrix_in_each_iteration() -> None:
    graph = checked(network, normal(100, 32, 48), normal(48, 48) / 9, normal(48, 40) / 9)
    (body,) = loops(graph)
    assert dots(body) == 2


def test_gradients_of_a_network() -> None:
    rows, inside, out = normal(100, 2, 48), normal(48, 48) / 9, normal(48, 40) / 9

    def loss(np_: Any, lax: Any) -> Callable[..., Any]:
        return lambda *args: sum((part**2).mean() for part in network(np_, lax)(*args)[1])

    ours = fuser.jit(fuser.grad(loss(fnp, lax), (0, 1, 2)))(rows, inside, out)
    theirs = jax.jit(jax.grad(loss(jax.numpy, jax.lax), (0, 1, 2)))(rows, inside, out)
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_powers_of_a_few_numbers_run_in_vectors_after_the_loop() -> None:
    (body,) = loops(checked(envelope, normal(300, 2)))
    assert "pow" not in {eqn.primitive.name for eqn in body.eqns}


@pytest.mark.parametrize("channels", (1, 64))
def test_what_fills_vectors_or_runs_alone_stays(channels: int) -> None:
    (body,) = loops(checked(envelope, normal(300, channels)))
    assert "pow" in {eqn.primitive.name for eqn in body.eqns}


def test_what_the_recurrence_leaves_time_for_stays() -> None:
    """A sine of three numbers is done while a chain of divisions waits for itself."""

    def make(np_: Any, lax: Any) -> Callable[..., Any]:
        def step(x: Any, row: Any) -> Any:
            x = 1 / (2 + row / (1 + x / (3 + x)))
            return x, np_.sin(x)

        return lambda rows: lax.scan(step, np_.ones(3, np_.float32), rows)

    (body,) = loops(checked(make, normal(100, 3) ** 2))
    assert "sin" in {eqn.primitive.name for eqn in body.eqns}
