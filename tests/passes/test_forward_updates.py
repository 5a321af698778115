"""Slices of updated arrays: written by slices of what was there and what was put there, with the same elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as jnp
from fuser import lax
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.types import ArrayType
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.partition.group import Kind
from fuser.passes.dce import drop_dead
from fuser.passes.indexing.forward_updates import forward_updates
from fuser.trace.stage import stage

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 16)).astype(np.float32)
PLACES = st.tuples(*[st.integers(-3, 20)] * 4)


def through(function: Callable[..., Any], *arrays: Any) -> Graph:
    """The rewritten graph, once it has been found to give the same results."""
    arrays = tuple(map(np.asarray, arrays))
    graph = stage(lambda *args: [function(*args)], [ArrayType(a.shape, a.dtype) for a in arrays])
    result = drop_dead(forward_updates(graph))
    (found,), (expected,) = evaluate(result, arrays), evaluate(graph, arrays)
    np.testing.assert_array_equal(found, expected)
    return result


def whole(graph: Graph, shape: tuple[int, ...] = X.shape) -> list[str]:
    """The names of equations that make arrays as large as the one that was updated."""
    return [eqn.primitive.name for eqn in graph.eqns if eqn.outvars[0].aval.shape == shape]


WINDOWS = {
    "a row of updated rows": ((1, 16), (1, 16)),
    "a column of updated rows": ((1, 16), (9, 1)),
    "an element of updated columns": ((9, 1), (1, 1)),
    "a row of an updated element": ((1, 1), (1, 16)),
    "columns of an updated row": ((1, 16), (9, 2)),
    "part of a row of an updated part": ((1, 5), (1, 16)),
    "a row of updated columns": ((9, 3), (1, 16)),
    "a block of an updated block": ((3, 6), (3, 5)),
    "a block of a smaller one": ((2, 3), (4, 4)),
    "part of a row of an updated block": ((2, 7), (1, 12)),
    "a column's part of an updated row": ((1, 16), (5, 1)),
    "rows that overlap": ((1, 16), (1, 9)),
}


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=25, deadline=None)
@given(PLACES, st.integers(0, 20))
def test_windows_are_read_through(name: str, places: tuple[int, ...], second: int) -> None:
    """Also where the two places are the same number, out of bounds, or one of several updates."""
    written, read = WINDOWS[name]
    new = RNG.normal(size=written).astype(np.float32)

    def program(x: Any, new: Any, *at: Any) -> Any:
        x = lax.dynamic_update_slice(x, new, at[:2])
        x = lax.dynamic_update_slice(x, new + new, (at[4], at[3]))
        return lax.dynamic_slice(x, at[2:4], read)

    assert not whole(through(program, X, new, *map(np.int32, (*places, second))))


def test_what_was_written_at_the_same_place_is_read() -> None:
    zero = np.int32(0)
    program = lambda x, row, k: dynamic_slice_p.bind(
        dynamic_update_slice_p.bind(x, row, k, zero), k, zero, slice_sizes=(1, 16)
    )
    graph = through(program, X, X[:1], np.int32(11))
    assert [eqn.primitive.name for eqn in graph.eqns] == []


@pytest.mark.parametrize(
    "program",
    [
        lambda x, k: lax.dynamic_slice(lax.dynamic_update_slice(x, x[:1], (k, 0)), (0, k), (9, 8)),  # a large window
        lambda x, k: lax.dynamic_slice(lax.dynamic_update_slice(x, x[:4], (k, 0)), (1, k), (3, 2)),  # of a large update
        lambda x, k: dynamic_slice_p.bind(  # places whose difference their integers may not hold
            dynamic_update_slice_p.bind(x, x[:2], k.astype(np.int8), np.int8(0)),
            np.int8(2),
            np.int8(0),
            slice_sizes=(1, 16),
        ),
    ],
)
def test_other_windows_stay(program: Callable[..., Any]) -> None:
    assert "dynamic_update_slice" in whole(through(program, X, np.int32(3)))


def test_narrow_places_and_long_dimensions() -> None:
    x = np.arange(300.0, dtype=np.float32)
    program = lambda x, i, j: lax.dynamic_slice(lax.dynamic_update_slice(x, x[7:8], (i,)), (j,), (1,))
    for i, j in ((127, 127), (-128, 0), (5, 6)):
        through(program, x, np.int8(i), np.int8(j))


def _rows_and_columns(lax: Any, k: Any, a: Any) -> Any:
    """A rotation of two rows, then of two columns, as of Jacobi's for eigenvalues."""
    i = k % (a.shape[0] - 1)
    x, y = a[i], a[i + 1]
    a = a.at[i].set(0.6 * x + 0.8 * y).at[i + 1].set(0.6 * y - 0.8 * x)
    x, y = a[:, i], a[:, i + 1]
    return a.at[:, i].set(0.6 * x + 0.8 * y).at[:, i + 1].set(0.6 * y - 0.8 * x)


def _row_and_column(lax: Any, k: Any, a: Any) -> Any:
    a = a.at[k % 7].multiply(0.6)
    return a.at[:, (k * 3) % 5].add(0.5 * a[k % 7, 2])


def _blocks(lax: Any, k: Any, a: Any) -> Any:
    """Blocks that overlap those that were written before, and part of a static plane."""
    block = lax.dynamic_slice(a, (k % 30, k % 20), (4, 4))
    a = lax.dynamic_update_slice(a, 0.5 * block @ block.T, (k % 30, k % 20))
    block = lax.dynamic_slice(a, (k % 30 + 2, k % 20 + 1), (4, 4))
    a = lax.dynamic_update_slice(a, 0.9 * block, (k % 17, k % 33))
    return a.at[k % 40, 3].add(a[:, 7][k % 23])


def test_short_arrays_are_written_in_place_too() -> None:
    run = fuser.jit(
        lambda a: lax.fori_loop(0, 99, lambda k, a: a.at[7 * k % 100].set(a[3 * k % 100] * 0.5), a), backend="c"
    )
    a = np.arange(100, dtype=np.float32)
    expected = a.copy()
    for k in range(99):
        expected[7 * k % 100] = expected[3 * k % 100] * np.float32(0.5)
    np.testing.assert_array_equal(run(a), expected)
    (group,) = (g for g in run.lower(a).plan.groups if g.kind is Kind.CONTROL)
    assert group.buffers is not None and 1 not in group.buffers.updated.moving


@pytest.mark.parametrize("step", [_rows_and_columns, _row_and_column, _blocks])
def test_rows_and_columns_that_a_loop_writes_in_turn_are_written_in_place(step: Callable[..., Any]) -> None:
    """No iteration makes an array as large as the matrix: XLA writes rows and columns in place, too."""
    jax = pytest.importorskip("jax")
    a = RNG.normal(size=(40, 40)).astype(np.float32)
    run = fuser.jit(lambda a: lax.fori_loop(0, 100, lambda k, a: step(lax, k, a), a), backend="c")
    expected = jax.lax.fori_loop(0, 100, lambda k, a: step(jax.lax, k, a), a)
    np.testing.assert_allclose(run(a), expected, 1e-4, 1e-4)
    (loop,) = (eqn for eqn in run.lower(a).graph.eqns if eqn.primitive.name == "scan")
    assert set(whole(loop.params["jaxpr"], a.shape)) == {"dynamic_update_slice"}
    (group,) = (g for g in run.lower(a).plan.groups if g.kind is Kind.CONTROL)
    assert group.buffers is not None and 1 not in group.buffers.updated.moving


@pytest.mark.parametrize("column", [0, 3, 15, 199])
def test_static_windows_are_read_through(column: int) -> None:
    """Of arrays updated at a computed place; a place that its integers do not hold stays as it is."""
    x = RNG.normal(size=(9, 200)).astype(np.float32)

    def program(x: Any, row: Any) -> Any:
        updated = dynamic_update_slice_p.bind(x, x[3:4] * 2, row, np.int8(0))
        return updated[2, column : column + 1] + updated[:, column]

    for row in (0, 2, 8, 100):
        graph = through(program, x, np.int8(row))
        assert (whole(graph, x.shape) == []) == (column < 128)


def test_a_loop_that_swaps_rows_and_reads_a_column_writes_the_matrix_once() -> None:
    def step(k: Any, a: Any) -> Any:
        best = jnp.argmax(jnp.abs(a[:, k]))
        first, second = a[k], a[best]
        a = lax.dynamic_update_index_in_dim(a, second, k, 0)
        a = lax.dynamic_update_index_in_dim(a, first, best, 0)
        return a * 0.5 + jnp.outer(a[:, k], a[k])

    program = lambda a: lax.fori_loop(0, 5, step, a)
    a = RNG.normal(size=(70, 70)).astype(np.float32)
    jitted = fuser.jit(program, backend="c")
    (loop,) = [g for g in jitted.lower(a).plan.groups if g.kind is Kind.CONTROL]
    writes = [v for g in loop.bodies[0].groups for v in g.graph.outvars if v.aval.shape == a.shape]
    assert len(writes) == 1, loop.bodies[0]
    exact = a.astype(np.float64)
    for k in range(5):
        best = int(np.argmax(np.abs(exact[:, k])))
        exact[[k, best]] = exact[[best, k]]
        exact = exact * 0.5 + np.outer(exact[:, k], exact[k])
    np.testing.assert_allclose(jitted(a), exact, rtol=1e-4, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(PLACES, PLACES, st.integers(1, 3))
def test_slices_beside_and_inside_updates_are_read_through(places: Any, window: Any, stride: int) -> None:
    """Two updates at known places, also out of bounds, and a slice that lies beside, inside or across them."""
    rows, columns = sorted((window[0] % 9, window[1] % 9)), sorted((window[2] % 16, window[3] % 16))

    def function(x: Any, a: Any, b: Any) -> Any:
        x = lax.dynamic_update_slice(x, a, (places[0], places[1]))
        x = lax.dynamic_update_slice(x, b, (places[2], places[3]))
        return lax.slice(x, (rows[0], columns[0]), (rows[1] + 1, columns[1] + 1), (1, stride))

    through(function, X, -X[:2, :3], 2 * X[:3, :5])


def test_a_slice_beside_an_update_needs_no_update() -> None:
    graph = through(lambda x, a: lax.dynamic_update_slice(x, a, (0, 0))[5:7], X, X[:2])
    assert whole(graph) == []
    graph = through(lambda x, a: lax.dynamic_update_slice(x, a, (0, 0))[1:2, ::2], X, X[:2])
    assert whole(graph) == []


def test_an_element_read_of_a_computed_array_that_is_handed_out_keeps_no_other_array() -> None:
    """A field, a source in it and a probe (finite differences in time): the field and its source are one kernel."""
    jax = pytest.importorskip("jax")

    def program(lib: Any, np_: Any) -> Callable[..., Any]:
        def step(field: Any, t: Any) -> Any:
            field = field.at[1:-1, 1:-1].add(0.5 * (field[1:-1, 2:] - field[:-2, 1:-1]))
            field = field.at[100, 100].add(np_.sin(t))
            return field, field[120, 100]

        return lambda field: lib.scan(step, field, np_.arange(20.0))

    field = RNG.normal(size=(200, 200)).astype(np.float32)
    run = fuser.jit(program(lax, jnp), backend="c")
    for found, want in zip(run(field), jax.jit(program(jax.lax, jax.numpy))(field), strict=True):
        np.testing.assert_allclose(found, want, 1e-5, 1e-5)
    (loop,) = (g for g in run.lower(field).plan.groups if g.kind is Kind.CONTROL)
    writes = [v for g in loop.bodies[0].groups for v in g.graph.outvars if v.aval.shape == field.shape]
    assert len(writes) == 1, loop.bodies[0]
