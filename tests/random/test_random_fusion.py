"""Random numbers in programs: how many kernels they become, that sizes and seeds compile nothing new, and transforms."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax, random
from fuser.config import config
from fuser.partition.group import Kind

SEED = 11
MATRIX = np.array([[2, 0.5], [0.5, 1]], np.float32)


def kinds(function: Any, *args: Any) -> list[Kind]:
    return [group.kind for group in fuser.jit(function).lower(*args).plan.groups]


def option_price(key: Any, spot: Any = 100.0, m: Any = random, xp: Any = fnp) -> Any:
    z = m.normal(key, (4096,))
    return xp.maximum(spot * xp.exp(0.2 * z - 0.02) - 105.0, 0.0).mean()


def test_numbers_fuse_into_what_uses_them() -> None:
    key = random.key(SEED)
    one = [
        lambda k: random.normal(k, (1000, 1000)).sum(),
        lambda k: random.uniform(k, (100, 7)) * 2 + 1,
        lambda k: option_price(k),
        lambda k: option_price(random.fold_in(random.split(k, 4)[2], 3)),
        lambda k: random.normal(random.split(k)[0], (50,)) + random.normal(random.split(k)[1], (50,)),
        lambda k: fnp.where(random.bernoulli(k, 0.9, (20, 30)), 1.0, 0.0).sum(0),
        lambda k: random.categorical(k, fnp.zeros((20, 30))),
        lambda k: fnp.exp(random.normal(k)),
        lambda k: fuser.vmap(lambda own: random.uniform(own, (5,)))(random.split(k, 8)).sum(),
        lambda k: random.gamma(k, 2.5, (100,)),  # with its loop inside
        lambda k: random.t(k, 3.0, (100,)),
    ]
    for number, function in enumerate(one):
        assert len(kinds(function, key)) == 1, number
        assert len(kinds(function, random.PRNGKey(SEED))) == 1, number


def test_dropout_is_one_kernel_with_its_neighbours() -> None:
    def layer(key: Any, x: Any) -> Any:
        kept = random.bernoulli(key, 0.8, x.shape)
        return fnp.where(kept, fnp.tanh(x) / 0.8, 0.0)

    x = np.ones((64, 32), np.float32)
    assert kinds(layer, random.key(0), x) == [Kind.ELEMENTWISE]


def test_drawn_numbers_that_are_broadcast_are_drawn_once() -> None:
    """A row of normal numbers under a matrix is computed before it: to draw it again for each row would cost more."""
    x = np.ones((500, 400), np.float32)
    assert len(kinds(lambda k, x: x * random.normal(k, (400,)), random.key(0), x)) == 2


def test_another_size_or_seed_compiles_nothing() -> None:
    for function in (
        lambda k, n: random.normal(k, (n,)),
        lambda k, n: random.uniform(random.split(k)[0], (n, 3)).sum(1),
        lambda k, n: random.bits(random.fold_in(k, n), (n,)),
    ):
        texts = set()
        for n, seed in ((40, 0), (1000, 1), (77, 2)):
            lowered = fuser.jit(function, static_argnums=1).lower(random.key(seed), n)
            texts.add("\n".join(source.text for source in lowered.sources))
        assert len(texts) == 1


def test_tracing_a_draw_is_cheap() -> None:
    """The generator is one equation, not its hundred operations."""
    assert len(fuser.make_jaxpr(lambda k: random.bits(k, (10,)))(random.key(0)).eqns) == 1
    assert len(fuser.make_jaxpr(lambda k: random.normal(k, (10,)))(random.key(0)).eqns) < 12
    assert len(fuser.make_jaxpr(lambda k: random.split(k)[0])(random.key(0)).eqns) <= 3


BACKENDS = ("reference", "c")


def jitted(backend: str, function: Any, *args: Any) -> np.ndarray:
    with config.using(backend=backend):
        return np.asarray(fuser.jit(function)(*args))


def test_vmap_over_keys_equals_a_loop() -> None:
    keys, theirs = random.split(random.key(SEED), 6), jax.random.split(jax.random.key(SEED), 6)
    functions = [
        lambda m, k: m.bits(k, (3,)),
        lambda m, k: m.uniform(k, (2, 3)),
        lambda m, k: m.uniform(m.split(k)[1], ()),
        lambda m, k: m.uniform(m.fold_in(k, 5), (4,)),
        lambda m, k: m.key_data(m.split(k, 3)),
        lambda m, k: m.bernoulli(k, 0.5, (5,)),
        lambda m, k: m.randint(k, (5,), 0, 10),
        lambda m, k: m.permutation(k, 7),
        lambda m, k: m.choice(k, 9, (3,), False),
    ]
    for function in functions:
        each = np.stack([np.asarray(function(random, k)) for k in keys])
        batched = lambda k, function=function: fuser.vmap(lambda own: function(random, own))(k)
        assert np.array_equal(np.asarray(batched(keys)), each)
        assert np.array_equal(each, np.asarray(jax.vmap(lambda k, function=function: function(jax.random, k))(theirs)))
        for backend in BACKENDS:
            assert np.array_equal(jitted(backend, batched, keys), each)


def test_vmap_in_other_ways() -> None:
    """Nested, over another axis, over what is folded in, over old-style keys, over a seed."""
    grid, theirs = random.split(random.key(SEED), (3, 4)), jax.random.split(jax.random.key(SEED), (3, 4))

    def draw(m: Any, vmap: Any, k: Any) -> Any:
        return vmap(vmap(lambda own: m.uniform(own, (2,))), in_axes=1, out_axes=1)(k)

    want = np.asarray(draw(jax.random, jax.vmap, theirs))
    for backend in BACKENDS:
        assert np.array_equal(jitted(backend, lambda k: draw(random, fuser.vmap, k), grid), want)

    def folded(m: Any, vmap: Any, k: Any) -> Any:
        return vmap(lambda i: m.uniform(m.fold_in(k, i), (2,)))(np.arange(5, dtype=np.uint32))

    want = np.asarray(folded(jax.random, jax.vmap, jax.random.key(1)))
    for key in (random.key(1), random.PRNGKey(1)):
        for backend in BACKENDS:
            assert np.array_equal(jitted(backend, lambda k: folded(random, fuser.vmap, k), key), want)
    words = np.asarray(jax.random.split(jax.random.PRNGKey(2), 4))
    want = np.asarray(jax.vmap(lambda k: jax.random.uniform(k, (3,)))(words))
    assert np.array_equal(np.asarray(fuser.vmap(lambda k: random.uniform(k, (3,)))(words)), want)
    seeds = np.arange(4, dtype=np.int32)
    want = np.asarray(jax.vmap(lambda s: jax.random.uniform(jax.random.key(s)))(seeds))
    assert np.array_equal(np.asarray(fuser.vmap(lambda s: random.uniform(random.key(s)))(seeds)), want)


def test_rejection_under_vmap_runs_each_lane_as_under_a_loop() -> None:
    keys, theirs = random.split(random.key(SEED), 4), jax.random.split(jax.random.key(SEED), 4)
    for function in (
        lambda m, k: m.gamma(k, 0.7, (3,)),
        lambda m, k: m.poisson(k, np.array([2.0, 40.0], np.float32)),
    ):
        want = np.asarray(jax.vmap(lambda k, function=function: function(jax.random, k))(theirs))
        batched = lambda k, function=function: fuser.vmap(lambda own: function(random, own))(k)
        for backend in BACKENDS:
            assert jitted(backend, batched, keys) == pytest.approx(want, rel=2e-5)


def test_keys_in_control_flow() -> None:
    """A key carried through scan, fori_loop and while_loop, chosen by cond, and keys that are scanned over."""

    def walk(m: Any, l: Any, xp: Any, key: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            k, x = carry
            k, own = m.split(k)
            x = x + m.uniform(own, (3,)) - 0.5
            return (k, x), x.sum()

        (k, x), sums = l.scan(step, (key, xp.zeros(3)), None, length=5)
        looped = l.fori_loop(0, 4, lambda i, x: x + m.uniform(m.fold_in(key, i), (3,)), xp.zeros(3))
        _, counted = l.while_loop(
            lambda s: s[1] < 3.0, lambda s: (m.split(s[0])[0], s[1] + m.uniform(s[0])), (key, xp.float32(0))
        )
        chosen = l.cond(x[0] > 0, lambda k: m.fold_in(k, 1), lambda k: m.split(k)[1], k)
        _, drawn = l.scan(lambda c, k: (c, m.uniform(k)), 0, m.split(key, 4))
        return xp.concatenate([x, sums, looped, counted[None], m.uniform(chosen, (2,)), drawn])

    want = np.asarray(walk(jax.random, jax.lax, jnp, jax.random.key(SEED)))
    ours = lambda k: walk(random, lax, fnp, k)
    assert np.asarray(ours(random.key(SEED))) == pytest.approx(want, abs=1e-6)
    for backend in BACKENDS:
        assert jitted(backend, ours, random.key(SEED)) == pytest.approx(want, abs=1e-6)


def test_derivatives_pass_by_random_numbers() -> None:
    """Numbers drawn are constants of differentiation; parameters of distributions are not."""
    key, theirs = random.key(SEED), jax.random.key(SEED)
    delta = fuser.grad(lambda s: option_price(key, s))(100.0)
    want = jax.grad(lambda s: option_price(theirs, s, jax.random, jnp))(100.0)
    assert np.asarray(delta) == pytest.approx(np.asarray(want), rel=1e-5)
    assert np.asarray(fuser.jit(fuser.grad(lambda s: option_price(key, s)))(100.0)) == pytest.approx(
        np.asarray(want), rel=1e-5
    )
    functions = [
        lambda m, k, x: m.uniform(k, (5,), minval=x, maxval=2 * x).sum(),
        lambda m, k, x: m.truncated_normal(k, -x, x, (5,)).sum(),
        lambda m, k, x: m.pareto(k, x, (5,)).sum(),
        lambda m, k, x: m.triangular(k, -x, 0.0, x, (5,)).sum(),
        lambda m, k, x: m.lognormal(k, x, (5,)).sum(),
        lambda m, k, x: m.weibull_min(k, x, x, (5,)).sum(),
        lambda m, k, x: (x * m.bernoulli(k, 0.5, (5,))).sum(),
        lambda m, k, x: m.gamma(k, x, (5,)).sum(),
        lambda m, k, x: m.loggamma(k, x / 2, (5,)).sum(),
        lambda m, k, x: m.multivariate_normal(k, x * np.ones(2, np.float32), x * MATRIX, (5,)).sum(),
    ]
    for function in functions:
        want = np.asarray(jax.grad(lambda x, function=function: function(jax.random, theirs, x))(1.5))
        got = np.asarray(fuser.grad(lambda x, function=function: function(random, key, x))(1.5))
        assert got == pytest.approx(want, rel=2e-4)


INTERPRETED = """
import os
os.environ |= {"TRITON_INTERPRET": "1"}
import numpy as np
import fuser
from fuser import config, random

def programs():
    key = random.key(3)
    yield lambda k: random.bits(k, (70,)), key
    yield lambda k: random.bits(k, (5, 7), "uint8"), key
    yield lambda k: random.bits(k, (9,), "uint64"), key
    yield lambda k: random.uniform(k, (70,), minval=-3.3, maxval=7.7), key
    yield lambda k: random.uniform(random.fold_in(random.split(k, 3)[1], 5), (4, 9)), key
    yield lambda k: random.key_data(random.split(k, (2, 3))), key
    yield lambda k: random.uniform(k, (4,)), random.PRNGKey(3)
    yield lambda k: random.randint(k, (20,), 0, 9), key
    yield lambda k: random.bernoulli(k, 0.4, (20, 3)).sum(0), key
    yield lambda k: fuser.vmap(lambda own: random.bits(own, (3,)))(k), random.split(key, 4)
    yield lambda s: random.key_data(random.key(s)), np.int32(-5)
    yield lambda k: random.bits(random.split(k, 6)[4], (3,)), key

config.update("enable_x64", True)
for number, (function, argument) in enumerate(programs()):
    with config.using(backend="reference"):
        want = np.asarray(fuser.jit(function)(argument))
    with config.using(backend="triton"):
        got = np.asarray(fuser.jit(function)(argument))
    same = np.allclose if number == 3 else np.array_equal  # the interpreter rounds twice where a GPU rounds once
    assert got.dtype == want.dtype and same(got, want), number
    keys = None
with config.using(backend="triton"):
    keys = fuser.jit(lambda k: random.split(k, 3))(random.key(3))
    again = fuser.jit(lambda k: random.uniform(k[2], (4,)))(keys)
assert keys.dtype == random.key_dtype()
assert np.array_equal(np.asarray(again), np.asarray(random.uniform(random.split(random.key(3), 3)[2], (4,))))
print("agree")
"""


def test_on_the_triton_interpreter() -> None:
    """In a process of its own, since Triton reads TRITON_INTERPRET when it is imported."""
    done = subprocess.run([sys.executable, "-c", INTERPRETED], capture_output=True, text=True)
    assert done.stdout.strip() == "agree", done.stderr[-3000:]
