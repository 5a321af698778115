"""Loops whose lanes are few: strips of one quotient, vectors under a mask, and states that all lanes share, against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.kernel.schedule import Schedule

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def recurrence(xp: Any, scan: Any) -> Any:
    """One state a row of a batch, whose rows lie apart in memory: positions along all lanes are divided."""
    return lambda x, y: scan(lambda c, v: ((d := xp.tanh(c * 0.9 + v)), d), y, x.swapaxes(0, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    "rows, columns", [(16, 16), (8, 12), (5, 10), (10, 40), (30, 7), (64, 4), (50, 3), (7, 33), (2, 63), (9, 70)]
)
def test_batches_of_short_rows(rows: int, columns: int, dtype: str) -> None:
    with fuser.config.using(enable_x64=dtype == "float64"), jax.enable_x64(dtype == "float64"):
        x, y = normal(rows, 9, columns, dtype=dtype), normal(rows, columns, dtype=dtype)
        found, expected = fuser.jit(recurrence(fnp, lax.scan))(x, y), jax.jit(recurrence(jnp, jax.lax.scan))(x, y)
        tolerance = {"float16": 2e-2, "float32": 2e-6, "float64": 1e-14}[dtype]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=tolerance, atol=tolerance)


def schedules(function: Any, *args: Any) -> list[Schedule]:
    return [s for source in fuser.jit(function).lower(*args).sources for s in source.schedules.values()]


def test_lanes_of_short_rows_run_in_strips_and_under_masks() -> None:
    (schedule,) = schedules(recurrence(fnp, lax.scan), normal(8, 9, 12), normal(8, 12))
    assert (schedule.strip_mining, schedule.masking, schedule.blocking) == (12, 16, 60)
    (schedule,) = schedules(recurrence(fnp, lax.scan), normal(16, 9, 16), normal(16, 16))
    assert (schedule.strip_mining, schedule.masking, schedule.blocking) == (16, None, 64)


def forward(l: Any, lax: Any, nn: Any) -> Any:
    """The forward pass of a hidden Markov model, whose ten states all read each other, with each step's states besides."""

    def run(x: Any, a: Any) -> Any:
        def step(s: Any, o: Any) -> Any:
            t = nn.logsumexp(s[:, None] + a, 0) + o
            return t, t

        return lax.scan(step, x[0], x)

    return run


@pytest.mark.parametrize("states", [4, 6, 10, 17])
def test_states_that_all_lanes_share_are_computed_once(states: int) -> None:
    x, a = normal(20, states), normal(states, states)
    program = forward(fnp, lax, fuser.nn)
    found, expected = fuser.jit(program)(x, a), jax.jit(forward(jnp, jax.lax, jax.nn))(x, a)
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=3e-6)
    assert schedules(program, x, a)[-1].blocking == states


@pytest.mark.parametrize("lanes", [3, 7, 13, 33, 50])
def test_lanes_that_stop_by_themselves_under_a_mask(lanes: int) -> None:
    def program(lib: Any, xp: Any) -> Any:
        def one(a: Any) -> Any:
            body = lambda s: (s[0] * 0.9 - 0.01 * xp.sin(s[0]), s[1] + 1)
            return lib.lax.while_loop(lambda s: s[0] > 0.1, body, (a, 0))

        return lib.vmap(one)

    x = np.abs(normal(lanes)) * 5
    found, expected = fuser.jit(program(fuser, fnp))(x), jax.jit(program(jax, jnp))(x)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-6)


@pytest.mark.parametrize("lanes", [64, 100, 2048, 2111, 4095])
def test_blocks_of_lanes_that_read_long_runs(lanes: int) -> None:
    def program(l: Any, scan: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            a, b = c
            a, b = a * 0.9 + v * b, l.exp(-abs(a)) + b * 0.5
            return (a, b), a + b

        return lambda x, y: scan(step, (y, y * 0.5), x, reverse=True)

    x, y = normal(20, lanes), normal(lanes)
    found, expected = fuser.jit(program(fnp, lax.scan))(x, y), jax.jit(program(jnp, jax.lax.scan))(x, y)
    for f, e in zip(fuser.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(f, e, rtol=2e-5, atol=1e-5)  # sums of terms of several units
    (schedule,) = schedules(program(fnp, lax.scan), x, y)
    assert schedule.blocking == (256 if lanes >= 2048 else 64)


@pytest.mark.parametrize(("states", "masking"), [(24, 16), (40, 16), (48, None)])
def test_states_with_many_functions_run_in_whole_vectors(states: int, masking: int | None) -> None:
    """Sums of exponentials of all states for each: what is left after the whole vectors runs under a mask."""

    def best(scan: Any, logsumexp: Any) -> Any:
        return lambda steps, weights: scan(
            lambda s, e: (logsumexp(s[:, None] + weights, axis=0) + e, None), steps[0], steps[1:]
        )[0]

    steps, weights = normal(30, states), normal(states, states)
    mine = fuser.jit(best(lax.scan, fuser.nn.logsumexp))
    lowered = mine.lower(steps, weights)
    (schedule,) = [s for source in lowered.sources for s in source.schedules.values() if s.blocking == states]
    assert schedule.masking == masking
    state = steps[0].astype(np.float64)
    for e in steps[1:].astype(np.float64):
        state = np.log(np.exp(state[:, None] + weights.astype(np.float64)).sum(0)) + e
    np.testing.assert_allclose(mine(steps, weights), state, rtol=2e-6 * len(steps))


@pytest.mark.parametrize("batch, channels, states", [(4, 32, 16), (3, 5, 8), (2, 7, 20), (1, 33, 4)])
def test_factors_that_several_lanes_share(batch: int, channels: int, states: int) -> None:
    """Positions are divided by the number of states and by that of all lanes of a batch: strips of the shorter have neither."""

    def scan(lib: Any, xp: Any) -> Any:
        join = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])
        return lambda a, b: lib.associative_scan(join, (a[..., None] * xp.ones(states, a.dtype), b), axis=1)[1]

    factors, inputs = np.abs(normal(batch, 40, channels)), normal(batch, 40, channels, states)
    factors = factors / (1 + factors)
    found, expected = fuser.jit(scan(lax, fnp))(factors, inputs), jax.jit(scan(jax.lax, jnp))(factors, inputs)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-5, atol=2e-5)
    if batch > 1:
        assert states in {s.strip_mining for s in schedules(scan(lax, fnp), factors, inputs)}


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
    mean, noise = (normal(*shape) for shape in ((50,), (population, 50)))
    start = normal(2 * population, 4)
    args = mean, 0.1 * noise, start
    found = fuser.jit(steered(fnp, lax.scan, fuser.vmap))(*args)
    with jax.enable_x64(True):
        expected = steered(jnp, jax.lax.scan, jax.vmap)(*(a.astype(np.float64) for a in args))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a, float), b, rtol=2e-4, atol=2e-5)
