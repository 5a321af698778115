"""Loop parallelisation: which scans are written out, and that results stay those of the graph before the pass."""

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import jit, lax
from fuser.ir.evaluate import evaluate
from fuser.ir.primitive import Fusion
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.passes import run
from fuser.passes.loops.parallelise import LARGE

X = np.random.default_rng(0).normal(size=(12, 10)).astype(np.float32)
V = X[:, 0].copy()


def optimised(function, *args):
    """The graph after the passes; its results are those of the graph before them."""
    graph = jit(function).trace(*args).graph
    after = run(graph)
    for new, old in zip(evaluate(after, args), evaluate(graph, args)):
        np.testing.assert_allclose(new, old, rtol=2e-5, atol=1e-5)
    for new, old in zip(_leaves(jit(function)(*args)), evaluate(graph, args)):
        np.testing.assert_allclose(np.asarray(new), old, rtol=2e-5, atol=1e-5)
    return after


def _leaves(value):
    return [leaf for v in value for leaf in _leaves(v)] if isinstance(value, tuple) else [value]


def loops(graph):
    return [eqn for eqn in graph.eqns if eqn.primitive.fusion is Fusion.CONTROL]


def fill(length, of, reverse=False):
    """A scan that writes `of(x, i)` at row i of zeros."""

    def program(x):
        def step(total, i):
            return lax.dynamic_update_slice(total, of(x, i)[None], (i, 0)), None

        return lax.scan(step, fnp.zeros((12, 10), x.dtype), fnp.arange(length), reverse=reverse)[0]

    return program


def pairs(x):
    """Each iteration writes two rows, the last ones first, and reads windows of three that overlap."""

    def step(total, i):
        rows = lax.dynamic_slice(x, (2 * i, 0), (3, 10))
        return lax.dynamic_update_slice(total, rows[:2] * rows[1:], (8 - 2 * i, 0)), rows.sum()

    return lax.scan(step, fnp.ones((11, 10), x.dtype), fnp.arange(5))


def counted(x):
    return lax.fori_loop(2, 9, lambda i, out: out.at[i].set(x[i] * i), x)


def added(x):
    return lax.fori_loop(0, 12, lambda i, out: out.at[i].add(x[11 - i] * 2), x)


def scaled(x):
    return lax.fori_loop(0, 12, lambda i, out: out.at[i].multiply(x[i].sum()), x)


def strided(x):
    return lax.fori_loop(0, 4, lambda i, out: lax.dynamic_update_slice(out, x[3 * i][None], (i, 0)), x)


def small_counter(x):
    """Wraps around."""
    count = np.int8(120)
    return lax.scan(lambda c, _: (c + np.int8(3), c * np.int8(2)), count, None, length=12)


def two_arrays(x):
    def step(carry, i):
        a, b = carry
        return (a.at[i].set(x[i]), lax.dynamic_update_slice(b, x[i, :1], (11 - i,))), None

    return lax.scan(step, (fnp.zeros_like(x), fnp.zeros(12, x.dtype)), fnp.arange(12))[0]


def nested(x):
    def row(total, i):
        def column(total, j):
            patch = lax.dynamic_slice(x, (i, j), (3, 4))
            return lax.dynamic_update_slice(total, (patch * patch).sum()[None, None], (i, j)), None

        return lax.scan(column, total, fnp.arange(7))[0], None

    return lax.scan(row, fnp.zeros((10, 7), x.dtype), fnp.arange(10))[0]


def mapped(x):
    return lax.map(lambda row: fnp.cumsum(row) / row.max(), x)


def inner_loop(x):
    return lax.map(lambda row: lax.scan(lambda s, v: (s * 0.5 + v, s), fnp.float32(0), row)[1], x)


INDEPENDENT = [
    fill(12, lambda x, i: x[i] * 2),
    fill(12, lambda x, i: fnp.sin(x[11 - i]) + i, reverse=True),
    fill(5, lambda x, i: x[2 * i] @ x.T @ x),
    pairs,
    counted,
    added,
    scaled,
    strided,
    two_arrays,
    nested,
    mapped,
]


@pytest.mark.parametrize("program", INDEPENDENT, ids=lambda f: f.__name__)
def test_independent_iterations_are_written_out(program):
    graph = optimised(program, X)
    assert not loops(graph)
    moved = [e for e in graph.eqns if e.primitive in (dynamic_slice_p, dynamic_update_slice_p)]
    assert all(not v.aval.shape and hasattr(v, "val") for e in moved for v in e.invars[2:]), "known places"


def test_an_inner_recurrence_runs_for_all_rows_at_once():
    (loop,) = loops(optimised(inner_loop, X))
    assert loop.params["length"] == 10 and loop.outvars[-1].aval.shape == (10, 12)


def neighbours(x):
    """Reads what the iteration before has written."""
    return lax.fori_loop(1, 12, lambda i, out: out.at[i].set(out[i - 1] * 0.5 + x[i]), x)


def overlapping(x):
    return lax.fori_loop(0, 8, lambda i, out: lax.dynamic_update_slice(out, x[:3] * i, (i, 0)), x)


def pushed_inside(x):
    """The last windows do not fit: they are moved inside, onto others'."""
    return lax.fori_loop(0, 8, lambda i, out: lax.dynamic_update_slice(out, x[:2] * i, (2 * i, 0)), x)


def whole_read(x):
    return lax.fori_loop(0, 12, lambda i, out: out.at[i].set(x[i] + out.sum()), x)


def recurrence(x):
    return lax.scan(lambda s, row: (fnp.tanh(s + row), s.sum()), x[0], x)


def chosen(x):
    """Batched, both branches would run for each row."""
    return lax.map(lambda row: lax.cond(row[0] > 0, fnp.sort, lambda r: r * 2, row), x)


def unbounded(x):
    return lax.map(lambda v: lax.while_loop(lambda w: w < 1, lambda w: w * 2, fnp.abs(v) + 1e-3), x[:, 0])


def known_later(x, start):
    return lax.fori_loop(0, 3, lambda i, out: lax.dynamic_update_slice(out, x[:1], (start * i, 0)), x)


@pytest.mark.parametrize(
    "program",
    [small_counter, neighbours, overlapping, pushed_inside, whole_read, recurrence, chosen, unbounded],
    ids=lambda f: f.__name__,
)
def test_iterations_that_need_each_other_stay_a_loop(program):
    assert loops(optimised(program, X))


def test_a_place_that_only_the_run_decides_stays_a_loop():
    assert loops(optimised(known_later, X, np.int32(2)))


def test_large_iterations_stay_a_loop():
    rows = np.ones((4, LARGE + 1), np.float32)
    assert loops(optimised(lambda x: lax.map(lambda row: fnp.cumsum(fnp.sort(row)), x), rows))


def test_a_place_that_does_not_move_takes_the_last_iteration():
    program = lambda x: lax.fori_loop(0, 5, lambda i, out: lax.dynamic_update_slice(out, x[:1] * i, (3, 0)), x)
    optimised(program, X)


def test_gradients_of_filled_arrays():
    import jax
    import jax.numpy as jnp

    def of(np_, lax_):
        def program(x):
            out = lax_.fori_loop(0, 12, lambda i, out: out.at[i].set(np_.sin(x[i]) * i), np_.zeros_like(x))
            return (out * x).sum()

        return program

    from fuser import grad

    found = jit(grad(of(fnp, lax)))(X)
    np.testing.assert_allclose(np.asarray(found), jax.grad(of(jnp, jax.lax))(X), rtol=1e-4, atol=1e-5)
