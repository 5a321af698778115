"""The pass that gives gathers and scatters the forms that fuse: what it rewrites, what it leaves, and equal results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.primitive import Fusion
from fuser.ir.types import ArrayType
from fuser.passes.dce import drop_dead
from fuser.passes.indexing.canonicalize import canonicalize_indexing
from fuser.trace.stage import stage

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 32)).astype(np.float32)
V = RNG.normal(size=(16,)).astype(np.float32)
PLACES = RNG.integers(-40, 40, 16).astype(np.int32)
ONE = np.int32(5)


def names(graph: Graph) -> list[str]:
    return [eqn.primitive.name for eqn in graph.eqns]


def eased(function: Callable[..., Any], *arrays: Any) -> Graph:
    """The rewritten graph, once it has been found to give the same results."""
    arrays = tuple(map(np.asarray, arrays))
    graph = stage(lambda *args: [function(*args)], [ArrayType(a.shape, a.dtype) for a in arrays])
    result = drop_dead(canonicalize_indexing(graph))
    with np.errstate(all="ignore"):
        (found,), (expected,) = evaluate(result, arrays), evaluate(graph, arrays)
    np.testing.assert_array_equal(found, expected)
    return result


@pytest.mark.parametrize("mode", ["clip", "fill", "drop"])
@pytest.mark.parametrize("update", ["set", "add", "mul", "min", "max"])
def test_scatters_of_one_window_a_row_become_selections(update: str, mode: str) -> None:
    method = lambda ref, value: getattr(ref, update)(value, mode=mode)
    for program, arrays in (
        (lambda x, v, i: method(x.at[i, 3], v[0]), (X, V, ONE)),
        (lambda x, v, i: method(x.at[i], v[0]), (X, V, PLACES[0])),
        (lambda x, v: method(x.at[3, 99], v[0]), (X, V)),
        (lambda x, v, i: method(x.at[:, i], v), (X, V, ONE)),
        (lambda x, v, i: fuser.vmap(lambda row, a, k: method(row.at[k], a))(x, v, i), (X, V, PLACES)),
    ):
        assert not [n for n in names(eased(program, *arrays)) if n.startswith("scatter")]


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("update", ["set", "add", "max"])
def test_scatters_of_one_window_become_updates_of_a_slice(update: str, mode: str) -> None:
    method = lambda ref, value: getattr(ref, update)(value, mode=mode)
    for program, arrays in (
        (lambda x, v: method(x.at[2:5], v[:3, None]), (X, V)),
        (lambda x, v: method(x.at[1, 3:9], v[:6]), (X, V)),
        (lambda x, v: method(x.at[:, 4:20], v[:, None]), (X, V)),
        (lambda x, v, i: method(x.at[i, 3:9], v[:6]), (X, V, ONE)),
        (lambda x, v, i: method(x.at[i, 3:9], v[:6]), (X, V, np.int32(99))),
    ):
        assert not [n for n in names(eased(program, *arrays)) if n.startswith("scatter")]


def test_an_index_that_counts_is_a_row_of_its_own() -> None:
    graph = eased(lambda x, v, i: x.at[fnp.arange(16), i].add(v), X, V, PLACES)
    kept = [n for n in names(drop_dead(fuser.passes.run(graph))) if n.startswith("scatter")]
    assert not kept
    transposed = fuser.passes.run(graph_of(lambda x, v, i: x.at[i, fnp.arange(16)].add(v), X.T, V, PLACES))
    assert not [n for n in names(transposed) if n.startswith("scatter")]


def graph_of(function: Callable[..., Any], *arrays: Any) -> Graph:
    return stage(lambda *args: [function(*args)], [ArrayType(a.shape, a.dtype) for a in arrays])


def test_scatters_that_may_meet_stay() -> None:
    graph = eased(lambda x, v, i: x.at[i].add(v[:, None]), X, V, PLACES)
    assert "scatter-add" in names(graph)
    counted_too_far = eased(lambda x, v, i: x.at[fnp.arange(8) + 1, i[:8]].add(v[:8]), X, V, PLACES)
    assert "scatter-add" in names(counted_too_far)


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_a_gather_computes_only_what_it_reads(mode: str) -> None:
    def program(x: Any, v: Any, i: Any) -> Any:
        y = fnp.exp(x - v[:, None]) * 2 + fnp.cos(v)[:, None]
        return fnp.take_along_axis(y, i[:, None], 1, mode=mode)

    graph = eased(program, X, V, PLACES)
    gathers = [e for e in graph.eqns if e.primitive.name == "gather"]
    assert [g.invars[0] for g in gathers] == [graph.invars[0]]
    assert all(e.outvars[0].aval.size <= 16 for e in graph.eqns if e.primitive.name == "exp")


def test_a_gather_of_most_of_a_value_stays() -> None:
    program = lambda x, v, i: fnp.take_along_axis(fnp.exp(x), fnp.argsort(x, axis=1), 1)
    graph = eased(program, X, V, PLACES)
    (gather,) = [e for e in graph.eqns if e.primitive.name == "gather"]
    assert gather.invars[0] not in graph.invars


def test_reshapes_of_reordered_elements_come_after_elementwise_work() -> None:
    x = np.arange(12 * 10, dtype=np.float32).reshape(12, 10)
    program = lambda x: fnp.tanh(fnp.reshape(x.T, (-1,)) * 2) + fnp.reshape(fnp.sin(x.T), (120,))
    graph = fuser.jit(program).lower(x).graph
    shapes = {eqn.outvars[0].aval.shape for eqn in graph.eqns if eqn.primitive.fusion is Fusion.ELEMENTWISE}
    assert shapes == {(10, 12)}, graph
    expected = np.tanh(x.T.reshape(-1) * 2) + np.sin(x.T).reshape(120)
    np.testing.assert_allclose(np.asarray(fuser.jit(program)(x)), expected, atol=1e-5)


def test_dense_reshapes_stay_where_they_are() -> None:
    x = np.ones((12, 10), np.float32)
    graph = fuser.jit(lambda x: fnp.reshape(x * 2, (120,)) + 1).lower(x).graph
    assert {e.outvars[0].aval.shape for e in graph.eqns if e.primitive.fusion is Fusion.ELEMENTWISE} <= {
        (12, 10),
        (120,),
    }


def test_a_flattened_transpose_is_copied_in_the_shape_of_the_transpose() -> None:
    x = np.arange(12 * 10, dtype=np.float32).reshape(12, 10)
    plan = fuser.jit(lambda x: fnp.reshape(x.T, (4, 30))).lower(x).plan
    (group,) = plan.groups
    assert [axis.extent for axis in group.parallel] == [10, 12]
    np.testing.assert_array_equal(np.asarray(fuser.jit(lambda x: fnp.reshape(x.T, (4, 30)))(x)), x.T.reshape(4, 30))
