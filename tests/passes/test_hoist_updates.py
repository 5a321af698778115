"""Loops that write elements of a carry, several in a step or within branches: no array is a result of a branch, and none is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import jit, lax
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ops.control import cond_p
from fuser.partition.in_place_updates import updates_in_place
from fuser.passes import run

X = np.random.default_rng(0).normal(size=1000).astype(np.float32)


def over(body: Callable[..., Any]) -> Callable[..., Any]:
    """The loop of seven such steps."""
    return lambda x: lax.fori_loop(0, 7, body, x)


def two_writes(i: Any, x: Any) -> Any:
    return x.at[i].set(x[i + 1]).at[i + 1].set(x[i]).at[2 * i].add(1.5)


def reads_between(i: Any, x: Any) -> Any:
    x = x.at[i].set(x[i + 1] * 2)
    return x.at[i + 2].set(x[i] + x[i + 1]).at[3].multiply(x[i])


def rows(i: Any, x: Any) -> Any:
    table = x.reshape(100, 10)
    return table.at[i].set(table[i + 1]).at[i + 1].set(table[i]).reshape(-1)


def outside(i: Any, x: Any) -> Any:
    return x.at[i + 998].set(3.0).at[i].set(2.0)


def swaps_windows(i: Any, x: Any) -> Any:
    first, second = lax.dynamic_slice(x, (i,), (30,)), lax.dynamic_slice(x, (i + 20,), (30,))
    return lax.dynamic_update_slice(lax.dynamic_update_slice(x, second, (i,)), first, (i + 20,))


def swaps_slices(i: Any, x: Any) -> Any:
    first, second = x[3:40], x[50:87]
    return lax.dynamic_update_slice(lax.dynamic_update_slice(x, second, (3,)), first, (50,))


def if_larger(i: Any, x: Any) -> Any:
    return lax.cond(
        x[i] > x[i + 1], lambda x: x.at[i].set(x[i + 1]).at[i + 1].set(x[i]), lambda x: x, x
    )  # a step of bubble sort


def either_way(i: Any, x: Any) -> Any:
    return lax.cond(x[i] > 0, lambda x: x.at[i].set(1.0).at[i + 3].add(2.0), lambda x: x.at[2 * i].set(-1.0), x)


def nested(i: Any, x: Any) -> Any:
    inner = lambda x: lax.cond(x[i] > 1, lambda x: x.at[i + 1].set(0.5), lambda x: x.at[i].multiply(2.0), x)
    return lax.cond(x[i] > 0, inner, lambda x: x, x)


def three_ways(i: Any, x: Any) -> Any:
    return lax.switch(i % 3, [lambda x: x.at[i].set(9.0), lambda x: x, lambda x: x.at[i + 900].set(x[i - 1])], x)


def write_then_choice(i: Any, x: Any) -> Any:
    x = x.at[i].set(x[i] * 2)
    return lax.cond(x[i] > 1, lambda x: x.at[i].set(x[i] - 1), lambda x: x, x)


def write_then_choices(i: Any, x: Any) -> Any:
    x = x.at[i].set(x[i + 1])
    x = lax.cond(x[i] > 0, lambda x: x.at[i].set(x[i + 2]).at[i + 1].add(x[i]), lambda x: x, x)
    return lax.cond(x[i + 1] > 0, lambda x: x.at[i + 2].set(x[i] + x[i + 1]), lambda x: x.at[i].multiply(3.0), x)


def writes_within_a_choice(i: Any, x: Any) -> Any:
    inner = lambda x: lax.cond(x[i] > 1, lambda x: x.at[i].set(1.0), lambda x: x, x)
    return lax.cond(x[i + 1] > 0, lambda x: inner(x.at[i].set(x[i + 1] * 2)), lambda x: x, x)


def window_then_choice(i: Any, x: Any) -> Any:
    x = lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i + 3,), (5,)) * 2, (i,))
    return lax.cond(x[i + 2] > 0, lambda x: x.at[i + 2].set(-x[i + 4]), lambda x: x.at[i + 1].set(x[i]), x)


CASES = (
    write_then_choice,
    write_then_choices,
    writes_within_a_choice,
    window_then_choice,
    two_writes,
    reads_between,
    rows,
    outside,
    swaps_windows,
    swaps_slices,
    if_larger,
    either_way,
    nested,
    three_ways,
)


@pytest.mark.parametrize("body", CASES)
def test_results_are_those_of_the_graph_before_the_passes(body: Callable[..., Any]) -> None:
    function = over(body)
    graph = jit(function).trace(X).graph
    [wanted] = evaluate(graph, (X,))
    [found] = evaluate(run(graph), (X,))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.asarray(jit(function)(X)), wanted, rtol=1e-6, atol=1e-6)


def _loop_of(graph: Graph) -> Any:
    [eqn] = [eqn for eqn in graph.eqns if eqn.primitive.control is not None]
    return eqn


@pytest.mark.parametrize(
    ("body", "writes"),
    [
        (two_writes, 3),
        (reads_between, 3),
        (swaps_windows, 2),
        (if_larger, 2),
        (either_way, 2),
        (nested, 1),
        (three_ways, 1),
        (write_then_choice, 2),
        (write_then_choices, 4),
        (writes_within_a_choice, 2),
        (window_then_choice, 2),
    ],
)
def test_elements_are_written_in_place(body: Callable[..., Any], writes: int) -> None:
    loop = _loop_of(run(jit(over(body)).trace(X).graph))
    assert len(updates_in_place(loop).updates) == writes
    inner = loop.params["jaxpr"].eqns
    assert all(v.aval.size < X.size for eqn in inner if eqn.primitive is cond_p for v in eqn.outvars)


def test_branches_that_write_other_windows_stay() -> None:
    def body(i: Any, x: Any) -> Any:
        wide = lambda x: lax.dynamic_update_slice(x, fnp.zeros(5, x.dtype), (i,))
        return lax.cond(x[i] > 0, lambda x: x.at[i].set(1.0), wide, x)

    test_results_are_those_of_the_graph_before_the_passes(body)
    assert updates_in_place(_loop_of(run(jit(over(body)).trace(X).graph))).updates == ()


def test_a_choice_of_a_number_for_an_array_that_is_known() -> None:
    def body(i: Any, x: Any) -> Any:
        return lax.dynamic_update_slice(x, fnp.where(i < 50, fnp.float32(2.0), x[:1]), (i,))

    test_results_are_those_of_the_graph_before_the_passes(body)
