"""What loop kernels compute once for each lane before their iterations: in several vector loops where it is much."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.backends.c.schedules import loop_prologue
from fuser.ir.index import ZERO
from fuser.ir.scalar import Scalar, apply
from fuser.kernel.kernel import Access
from fuser.kernel.operands import operands

RNG = np.random.default_rng(0)
F32 = np.dtype("float32")
PLACE = Access(0, ZERO)


def test_few_nodes_are_one_run() -> None:
    leaf = Scalar("index", (), F32, attr=ZERO)
    nodes = [leaf, apply("exp", leaf)]
    assert loop_prologue.runs(nodes, nodes[1:]) == [nodes]


@pytest.mark.parametrize("count", [100, 1000])
def test_values_that_share_no_dear_node_are_in_runs_of_bounded_length(count: int) -> None:
    position = Scalar("index", (), F32, attr=ZERO)
    test = apply("neg", position)  # cheap: each run has its own
    nodes, ends = [position, test], []
    for _ in range(count):
        loaded = Scalar("load", (test,), F32, attr=PLACE)
        nodes += [loaded, apply("exp", loaded)]
        ends.append(nodes[-1])
    found = loop_prologue.runs(nodes, ends)
    assert len(found) == -(-2 * count // (loop_prologue.MOST_NODES - 2))
    assert all(len(run) <= loop_prologue.MOST_NODES for run in found)
    assert [node for run in found for node in run if node in set(ends)] == ends
    for run in found:
        assert all(operand in run[:number] for number, node in enumerate(run) for operand in operands(node))


def test_values_that_share_a_dear_node_are_in_one_run() -> None:
    nodes = [Scalar("load", (), F32, attr=PLACE)]
    nodes.append(apply("exp", nodes[0]))
    ends = [apply("add", nodes[1], Scalar("load", (), F32, attr=PLACE)) for _ in range(loop_prologue.MOST_NODES)]
    nodes += [node for end in ends for node in (end.args[1], end)]
    assert loop_prologue.runs(nodes, ends) == [nodes]


def test_a_cheap_value_that_is_wanted_has_a_place() -> None:
    position = Scalar("index", (), F32, attr=ZERO)
    wanted = apply("neg", position)
    loads = [Scalar("load", (), F32, attr=PLACE) for _ in range(loop_prologue.MOST_NODES)]
    found = loop_prologue.runs([position, wanted, *loads], [wanted, *loads])
    assert sum(wanted in run for run in found) == 1
    assert {node for run in found for node in run} == {position, wanted, *loads}


def steered(xp: Any, scan: Any, vmap: Any) -> Any:
    """A population of networks, their weights drawn apart from two halves, each of which steers its own state."""

    def run(weights: Any, start: Any) -> Any:
        first, second = weights[:40].reshape(4, 10), weights[40:]

        def body(state: Any, _: Any) -> Any:
            force = xp.tanh(xp.tanh(state @ first) @ second)
            return state + 0.1 * xp.stack([state[1], force, state[3], -force]), force

        return scan(body, start, None, length=12)

    return lambda mean, noise, start: vmap(run)(xp.concatenate([mean + noise, mean - noise]), start)


@pytest.mark.parametrize("population", [24, 64, 150])
def test_a_population_of_networks(population: int) -> None:
    mean, noise = (RNG.standard_normal(shape).astype(F32) for shape in ((50,), (population, 50)))
    start = RNG.standard_normal((2 * population, 4)).astype(F32)
    args = mean, 0.1 * noise, start
    found = fuser.jit(steered(fnp, lax.scan, fuser.vmap))(*args)
    with jax.enable_x64(True):
        expected = steered(jnp, jax.lax.scan, jax.vmap)(*(a.astype(np.float64) for a in args))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a, float), b, rtol=2e-4, atol=2e-5)
