"""Sums of which only some are read: where the choice goes, what stays, and the kernels that leave rows out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser import lax
from fuser.backends.c.schedules.guards import guards
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.types import ArrayType
from fuser.kernel.lower import lower
from fuser.partition.group import Kind
from fuser.passes.dce import drop_dead
from fuser.passes.reductions.demanded_elements import drop_undemanded
from fuser.trace.stage import stage

RNG = np.random.default_rng(0)
A = RNG.normal(size=(70, 90)).astype(np.float32)
X = RNG.normal(size=90).astype(np.float32)
PLACES = np.arange(70, dtype=np.int32)
K = np.int32(33)


def skipped(function: Callable[..., Any], *arrays: Any) -> Graph:
    """The rewritten graph, once it has been found to give the same results, nans among them."""
    arrays = tuple(map(np.asarray, arrays))
    graph = stage(lambda *args: [function(*args)], [ArrayType(a.shape, a.dtype) for a in arrays])
    result = drop_dead(drop_undemanded(graph))
    with np.errstate(all="ignore"):
        (found,), (expected,) = evaluate(result, arrays), evaluate(graph, arrays)
    np.testing.assert_array_equal(found, expected)
    return result


def choices(graph: Graph) -> int:
    """How many reductions and products are read by choices alone."""
    reductions = [e.outvars[0] for e in graph.eqns if e.primitive.name in ("dot_general", "reduce_sum", "reduce_max")]
    users = [[e.primitive.name for e in graph.eqns if v in e.invars] for v in reductions]
    return sum(names == ["select_n"] for names in users)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, x, i, k: jnp.where(i >= k, 1.0 - a @ x, 0.0),
        lambda a, x, i, k: jnp.where(i >= k, jnp.exp(-(a @ x)) * 2.0, jnp.nan),
        lambda a, x, i, k: jnp.where(i >= k, jnp.max(a, axis=1) / 2.0, 0.0),
        lambda a, x, i, k: (s := 1.0 - a @ x, jnp.where(i >= k, s / s[k], 0.0))[1],
        lambda a, x, i, k: (s := 1.0 - a @ x, jnp.where(i >= k, s * 2.0, 0.0) + jnp.where(i < 3, s * s, 1.0))[1],
        lambda a, x, i, k: (s := a @ x + 1.0, m := jnp.where(i >= k, s, 0.0), m * s[k + 90])[2],
    ],
)
def test_choices_go_to_the_sum(function: Callable[..., Any]) -> None:
    bad = A.copy()
    bad[5] = np.nan
    for k in (0, 33, 69):
        assert choices(skipped(function, bad, X, PLACES, np.int32(k))) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda a, x, i, k: (s := 1.0 - a @ x, jnp.where(i >= k, s, 0.0) + jnp.sum(s))[1],  # all are read elsewhere
        lambda a, x, i, k: (s := a @ x, jnp.where(s > 0.0, 1.0 - s, 0.0))[1],  # the sum decides
        lambda a, x, i, k: jnp.where(k > 3, 1.0 - a @ x, 0.0),  # one choice for all
        lambda a, x, i, k: (s := a @ x, jnp.where(i >= k, 1.0 - s, 0.0) + jnp.where(i >= k, 1.0 - s, 0.0)[::-1] + s)[1],
        lambda a, x, i, k: (s := 1.0 - a[:, :8] @ x[:8], jnp.where(i >= k, s + 1.0, 0.0))[1],  # short sums
    ],
)
def test_sums_that_stay(function: Callable[..., Any]) -> None:
    assert choices(skipped(function, A, X, PLACES, K)) == 0


def test_it_is_done_once() -> None:
    graph = skipped(lambda a, x, i, k: jnp.where(i >= k, 1.0 - a @ x, 0.0), A, X, PLACES, K)
    assert len(drop_undemanded(graph).eqns) == len(graph.eqns)


def factor(a: Any) -> Any:
    places = jnp.arange(len(a))

    def step(k: Any, low: Any) -> Any:
        column = a[:, k] - low @ low[k]
        column = jnp.where(places >= k, column / jnp.sqrt(column[k]), 0.0)
        return lax.dynamic_update_index_in_dim(low, column, k, 1)

    return lax.fori_loop(0, len(a), step, jnp.zeros_like(a))


@pytest.mark.parametrize("n", [100, 150])
def test_a_factorisation_leaves_rows_out(n: int) -> None:
    a = RNG.normal(size=(n, n))
    a = (a @ a.T / n + np.eye(n)).astype(np.float32)
    jitted = fuser.jit(factor, backend="c")
    (loop,) = [g for g in jitted.lower(a).plan.groups if g.kind is Kind.CONTROL]
    kernels = [lower(g) for g in loop.bodies[0].groups if g.kind is Kind.REDUCTION]
    assert [len(guards(kernel)) for kernel in kernels] == [1]
    np.testing.assert_allclose(jitted(a), np.linalg.cholesky(a.astype(np.float64)), atol=2e-5)


def test_rows_left_out_do_not_spoil_others() -> None:
    """A reduction of several stages, and a nan in a row that is left out."""
    bad = np.where(np.arange(70)[:, None] % 2 == 1, A, np.nan).astype(np.float32)
    odd = PLACES % 2 == 1
    for function in (
        lambda a, odd: jnp.where(odd, jnp.sum(a, axis=1), -1.0),
        lambda a, odd: jnp.where(odd, jnp.max(a, axis=1) + jnp.sum(a, axis=1), -1.0),
        lambda a, odd: jnp.where(odd, jnp.argmax(a, axis=1).astype(jnp.float32), -1.0),
        lambda a, odd: (t := jnp.where(odd, jnp.sum(a, axis=1), 0.0), a * t[:, None])[1],
    ):
        found = np.asarray(fuser.jit(function, backend="c")(bad, odd))
        wanted = np.asarray(fuser.jit(function, backend="reference")(bad, odd))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(70, 40), (3000, 45), (20, 2500)])
@pytest.mark.parametrize("first, last", [(0, 0), (0, 7), (19, 40), (33, 34), (0, 2500)])
def test_columns_left_out_do_not_spoil_others(shape: tuple[int, int], first: int, last: int) -> None:
    rng = np.random.default_rng(1)
    places = np.arange(shape[1])
    chosen = (places >= first) & (places < last)
    a = np.where(chosen, rng.normal(size=shape), np.nan).astype(np.float32)
    x = rng.normal(size=shape[0]).astype(np.float32)
    for function in (
        lambda a, x, chosen: jnp.where(chosen, x @ a, -1.0),
        lambda a, x, chosen: (t := jnp.where(chosen, x @ a, 0.5), a + x[:, None] * t)[1],
        lambda a, x, chosen: (t := jnp.max(a, axis=0), jnp.where(chosen, t + 1.0, 0.5) * jnp.where(chosen, t, 0.5))[1],
    ):
        found = np.asarray(fuser.jit(function, backend="c")(a, x, chosen))
        wanted = np.asarray(fuser.jit(function, backend="reference")(a, x, chosen))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
