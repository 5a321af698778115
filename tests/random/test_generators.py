"""Generators beside Threefry: their keys and bits are JAX's, in every transform, and bits fuse into what uses them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fuser
from fuser import lax, random
from fuser.config import config

NAMES = ("rbg", "unsafe_rbg")


def equal(ours: Any, theirs: Any) -> None:
    if jax.dtypes.issubdtype(getattr(theirs, "dtype", None), jax.dtypes.prng_key):
        ours, theirs = random.key_data(ours), jax.random.key_data(theirs)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def both(name: str, seed: int = 3) -> tuple[Any, Any]:
    return random.key(seed, impl=name), jax.random.key(seed, impl=name)


@pytest.mark.parametrize("name", NAMES)
def test_keys(name: str) -> None:
    ours, theirs = both(name)
    assert str(ours.dtype.names[0]) in str(theirs.dtype) and repr(ours) == repr(theirs) and str(ours) == str(theirs)
    equal(ours, theirs)
    equal(random.split(ours, (2, 3)), jax.random.split(theirs, (2, 3)))
    equal(random.fold_in(ours, 7), jax.random.fold_in(theirs, 7))
    equal(random.PRNGKey(5, impl=name), jax.random.PRNGKey(5, impl=name))
    assert random.key_impl(ours) == name and random.key_dtype(name) == ours.dtype
    equal(random.wrap_key_data(random.key_data(ours), impl=name), theirs)
    assert bool(fuser.numpy.all(random.split(ours, 3) == random.split(ours, 3)))
    assert fuser.dtypes.issubdtype(ours.dtype, fuser.dtypes.prng_key)


@pytest.mark.parametrize("name", ("threefry2x32", *NAMES))
def test_the_older_layout(name: str) -> None:
    ours, theirs = both(name)
    with fuser.threefry_partitionable(False), jax.threefry_partitionable(False):
        found = []
        for module, key in ((fuser, ours), (jax, theirs)):
            random_of, halves = module.random, []
            for shape in ((), (5,), (2, 3), (4, 4), (0,)):
                halves += [random_of.key_data(random_of.split(key, shape)), random_of.uniform(key, shape)]
                halves += [random_of.bits(key, shape, dtype) for dtype in ("uint8", "uint16", "uint32")]
            halves.append(random_of.key_data(random_of.fold_in(key, 9)))
            halves.append(module.vmap(lambda k, module=module: module.random.uniform(k, (3,)))(random_of.split(key, 4)))
            halves.append(module.jit(lambda k, module=module: module.random.randint(k, (7,), 0, 100))(key))
            with module.enable_x64(True):
                halves.append(random_of.bits(key, (3, 3), "uint64"))
            found.append(halves)
        for one, other in zip(*found, strict=True):
            equal(one, other)
    draw = fuser.jit(lambda k: random.bits(k, (6,)))
    newer = draw(ours)
    with fuser.threefry_partitionable(False):
        assert np.any(np.asarray(draw(ours)) != np.asarray(newer)) == (name == "threefry2x32")


@pytest.mark.parametrize("name", NAMES)
def test_numbers(name: str) -> None:
    ours, theirs = both(name)
    for dtype in ("uint8", "uint16", "uint32"):
        equal(random.bits(ours, (3, 5), dtype), jax.random.bits(theirs, (3, 5), dtype))
    for module, key, found in ((fuser, ours, []), (jax, theirs, [])):
        step = lambda c, _, module=module: (module.random.split(c)[0], module.random.uniform(c, (2,)))
        found.append(module.jit(lambda k, module=module, step=step: module.lax.scan(step, k, None, length=3)[1])(key))
        found.append(module.vmap(lambda k, module=module: module.random.bits(k, (3,)))(module.random.split(key, 4)))
        found.append(module.random.randint(key, (5,), 0, 10))
        if module is fuser:
            mine = found
    for a, b in zip(mine, found):
        equal(a, b)


def test_default_generator() -> None:
    with config.using(default_prng_impl="rbg"), jax.default_prng_impl("rbg"):
        equal(random.PRNGKey(1), jax.random.PRNGKey(1))
        equal(random.bits(random.PRNGKey(1), (3,)), jax.random.bits(jax.random.PRNGKey(1), (3,)))
        assert random.key_impl(random.key(1)) == "rbg"
    with pytest.raises(ValueError, match="unrecognized PRNG implementation"):
        random.key(0, impl="middle_square")
    with pytest.raises(TypeError, match="keys"):
        random.key(0, impl="rbg") + 1


def test_rng_bit_generator() -> None:
    for words in ((1, 2, 3, 4), (1, 2, 2**32 - 1, 2**32 - 1)):  # the second counter overflows into the key's words
        key = np.array(words, np.uint32)
        for dtype, shape in (("uint8", (3, 2)), ("uint16", (5,)), ("uint32", (9,)), ("uint32", (0,))):
            wanted = jax.lax.rng_bit_generator(key, shape, dtype)
            draw = lambda k, dtype=dtype, shape=shape: lax.rng_bit_generator(k, shape, dtype)
            for found in (draw(key), fuser.jit(draw)(key)):
                for a, b in zip(found, wanted):
                    equal(a, b)
    keys = np.arange(8, dtype=np.uint32).reshape(2, 4)  # the first of a batch draws for all
    wanted = jax.vmap(lambda k: jax.lax.rng_bit_generator(k, (3,), "uint32"))(keys)
    for a, b in zip(fuser.vmap(lambda k: lax.rng_bit_generator(k, (3,), "uint32"))(keys), wanted):
        equal(a, b)
    with config.using(enable_x64=True), jax.enable_x64(True):
        key = np.array([1, 2], np.uint64)
        for a, b in zip(lax.rng_bit_generator(key, (3,), "uint64"), jax.lax.rng_bit_generator(key, (3,), "uint64")):
            equal(a, b)
    with pytest.raises(ValueError, match=r"u32\[4\]"):
        lax.rng_bit_generator(np.zeros(3, np.uint32), (2,))
    with pytest.raises(TypeError, match="unsupported dtype"):
        lax.rng_bit_generator(np.zeros(4, np.uint32), (2,), "int32")


def test_bits_are_kernels() -> None:
    """The words of a key are taken by a library call; the numbers are drawn in kernels."""
    plan = fuser.jit(lambda k: random.uniform(k, (100,)) * 2).lower(random.key(0, impl="rbg")).plan
    assert [g.name for g in plan.groups if g.kind.name == "LIBRARY"] == ["k0_random_unwrap"]
