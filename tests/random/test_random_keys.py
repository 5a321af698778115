"""Keys: made, split, folded, wrapped and moved about as in JAX; and what is refused, in words."""

from __future__ import annotations

import pickle
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import dtypes, lax, random
from fuser.config import config
from fuser.ir.types import KEY
from tests.random.agreement import precision


def words(keys: Any) -> np.ndarray:
    return np.asarray(random.key_data(keys))


def same(ours: Any, theirs: Any) -> None:
    assert ours.shape == theirs.shape
    if ours.dtype == KEY:
        ours, theirs = random.key_data(ours), jax.random.key_data(theirs)
    assert np.array_equal(np.asarray(ours), np.asarray(theirs)) and ours.dtype == theirs.dtype


SEEDS = (
    0,
    1,
    42,
    -1,
    -(2**31),
    2**31 - 1,
    2**31,
    2**32 + 5,
    2**63 - 1,
    np.int8(-3),
    np.uint32(2**32 - 1),
    np.int64(2**40),
)


@pytest.mark.parametrize("x64", [False, True])
def test_seeds(x64: bool) -> None:
    with precision(x64):
        for seed in SEEDS:
            same(random.key(seed), jax.random.key(seed))
            same(random.PRNGKey(seed), jax.random.PRNGKey(seed))
        seeds = np.arange(-3, 4, dtype=np.int32)
        for backend in ("reference", "c"):
            with config.using(backend=backend):
                keys = fuser.jit(fuser.vmap(random.key))(seeds)
                same(keys, jax.vmap(jax.random.key)(seeds))
                same(fuser.jit(lambda: random.split(random.key(3)))(), jax.random.split(jax.random.key(3)))


@pytest.mark.parametrize("num", [1, 2, 5, (2, 3), (), 0, (0, 2)])
@pytest.mark.parametrize("make", ["key", "PRNGKey"])
def test_split(num: Any, make: str) -> None:
    ours, theirs = getattr(random, make)(9), getattr(jax.random, make)(9)
    want = jax.random.split(theirs, num)
    same(random.split(ours, num), want)
    for backend in ("reference", "c"):
        with config.using(backend=backend):
            same(fuser.jit(lambda k: random.split(k, num))(ours), want)


@pytest.mark.parametrize("make", ["key", "PRNGKey"])
def test_fold_in_and_clone(make: str) -> None:
    ours, theirs = getattr(random, make)(9), getattr(jax.random, make)(9)
    for data in (0, 1, 2**31, np.uint32(2**32 - 1), np.int8(-2)):
        same(random.fold_in(ours, data), jax.random.fold_in(theirs, data))
        same(fuser.jit(random.fold_in)(ours, np.asarray(data, np.uint32)), jax.random.fold_in(theirs, data))
    same(random.clone(ours), theirs)


def test_a_key_is_an_array_with_a_dtype_of_its_own() -> None:
    key = random.key(42)
    assert repr(key) == "Array((), dtype=key<fry>) overlaying:\n[ 0 42]"
    assert (key.shape, key.ndim, key.size, key.dtype) == ((), 0, 1, random.key_dtype())
    assert dtypes.issubdtype(key.dtype, dtypes.prng_key) and dtypes.issubdtype(key.dtype, dtypes.extended)
    assert not dtypes.issubdtype(key.dtype, np.number) and not dtypes.issubdtype(np.uint32, dtypes.prng_key)
    assert random.key_impl(key) == jax.random.key_impl(jax.random.key(42)) == "threefry2x32"
    assert "key<fry>[]" in str(fuser.make_jaxpr(random.split)(key))
    assert bool(key == random.wrap_key_data(random.key_data(key))) and not bool(key == random.key(43))
    again = pickle.loads(pickle.dumps(key))
    assert again.dtype == KEY and (words(again) == [0, 42]).all()
    for impl in ({"impl": "threefry2x32"}, {"dtype": "threefry2x32"}, {"dtype": key.dtype}):
        assert bool(random.key(42, **impl) == key)


def test_keys_move_like_other_elements() -> None:
    """Indexing, reshaping, joining and selecting keys: the words come along; jitted and one operation after the other."""
    theirs, ours = jax.random.split(jax.random.key(1), (4, 3)), random.split(random.key(1), (4, 3))
    functions = [
        lambda xp, lax, k: k[1],
        lambda xp, lax, k: k[1:3, ::2],
        lambda xp, lax, k: k[:, 1],
        lambda xp, lax, k: k.reshape(2, 6),
        lambda xp, lax, k: k.T,
        lambda xp, lax, k: k.ravel()[xp.array([5, 0, 11])],
        lambda xp, lax, k: xp.concatenate([k, k[:1]], axis=0),
        lambda xp, lax, k: xp.stack([k[0], k[3]]),
        lambda xp, lax, k: xp.broadcast_to(k[0], (2, 3)),
        lambda xp, lax, k: xp.where(xp.arange(3) > 0, k[0], k[1]),
        lambda xp, lax, k: lax.dynamic_slice(k, (1, 0), (2, 3)),
        lambda xp, lax, k: lax.dynamic_index_in_dim(k, 2, 0, keepdims=False),
        lambda xp, lax, k: k[0] == k[0].at[1].set(k[1, 1]),
    ]
    for number, function in enumerate(functions):
        want = function(jnp, jax.lax, theirs)
        same(function(fnp, lax, ours), want)
        for backend in ("reference", "c"):
            with config.using(backend=backend):
                got = fuser.jit(lambda k, function=function: function(fnp, lax, k))(ours)
                assert got.dtype == (KEY if number < 12 else np.bool_)
                same(got, want)


def test_both_forms_of_a_key_give_the_same_numbers() -> None:
    new, old = random.key(5), random.PRNGKey(5)
    assert (words(new) == np.asarray(old)).all() and old.dtype == np.uint32
    assert np.array_equal(np.asarray(random.normal(new, (5,))), np.asarray(random.normal(old, (5,))))
    assert np.array_equal(np.asarray(random.normal(new, (5,))), np.asarray(random.normal(np.asarray(old), (5,))))
    drawn = fuser.jit(lambda k: random.uniform(random.split(k)[0], (4,)))
    assert np.array_equal(np.asarray(drawn(new)), np.asarray(drawn(old)))


def test_a_key_of_a_closure_is_an_input_of_the_kernel() -> None:
    """Not a number in its text, so that another seed compiles nothing."""
    texts = []
    for seed in (3, 4):
        key = random.key(seed)
        texts.append(fuser.jit(lambda key=key: random.uniform(key, (100,))).lower().as_text())
    assert texts[0] == texts[1]


REFUSED = [
    (lambda k: k + 1, TypeError, r"an array of keys \(key<fry>\) is no array of numbers"),
    (lambda k: k + k, TypeError, r"add does not accept dtype .*got key<fry>\[\]"),
    (lambda k: fnp.add(k, fnp.ones(3)), TypeError, r"an array of keys \(key<fry>\) is no array of numbers"),
    (lambda k: fnp.sin(k), TypeError, r"keys are no numbers: key<fry>\[\] cannot be converted to f32"),
    (lambda k: k.astype(np.float32), TypeError, r"keys are no numbers"),
    (lambda k: np.asarray(k), TypeError, r"cannot be converted to a NumPy array. Use fuser.random.key_data"),
    (lambda k: bool(k), TypeError, r"key array cannot be converted to boolean"),
    (lambda k: random.normal(random.split(k), (3,)), ValueError,
     r"normal accepts a single key, but was given a key array of shape \(2,\) != \(\). Use fuser.vmap"),
    (lambda k: random.split(random.split(k)), ValueError, r"split accepts a single key"),
    (lambda k: random.key(k), TypeError, r"key accepts a scalar seed, but was given a PRNG key"),
    (lambda k: random.key(np.arange(3)), TypeError, r"key accepts a scalar seed, but was given an array of shape \(3,\)"),
    (lambda k: random.key(1.5), TypeError, r"PRNG key seed must be an integer; got 1.5"),
    (lambda k: random.key(1, impl="pcg"), ValueError, r'unrecognized PRNG implementation "pcg"'),
    (lambda k: random.key(1, impl="threefry2x32", dtype="threefry2x32"), ValueError, r"Cannot specify both"),
    (lambda k: random.normal(3), TypeError, r"unexpected PRNG key type <class 'int'>: normal takes a key; .*key\(0\)"),
    (lambda k: random.normal(np.zeros(3, np.uint32)), TypeError, r"expected key data of dtype uint32 .* got u32\[3\]"),
    (lambda k: random.normal(np.zeros(2, np.int32)), TypeError, r"expected key data of dtype uint32 .* got i32\[2\]"),
    (lambda k: random.fold_in(k, np.arange(2)), TypeError, r"fold_in accepts a scalar, but was given an array of shape \(2,\)"),
    (lambda k: random.normal(k, 3.5), TypeError, r"Shapes must be 1D sequences of concrete values of integer type, got 3.5"),
    (lambda k: random.uniform(k, (3,), np.int32), ValueError, r"dtype argument to `uniform` must be a float dtype, got int32"),
    (lambda k: random.bits(k, (3,), np.int32), ValueError, r"dtype argument to `bits` must be an unsigned int dtype, got int32"),
    (lambda k: random.randint(k, (3,), 0, 1, np.float32), TypeError, r"randint only accepts integer dtypes, got float32"),
    (lambda k: random.randint(k, (3,), np.zeros(2, int), 1), ValueError, r"randint cannot broadcast shapes"),
    (lambda k: random.truncated_normal(k, np.zeros((2, 3), np.float32), 1.0, (3,)), ValueError,
     r"truncated_normal parameter shapes must be broadcast-compatible with shape argument"),
    (lambda k: random.bernoulli(k, 1), TypeError, r"bernoulli probability `p` must have a floating dtype, got int32"),
    (lambda k: random.bernoulli(k, mode="middle"), ValueError, r"got mode='middle', expected 'high' or 'low'"),
    (lambda k: random.gumbel(k, mode="middle"), ValueError, r"Must provide valid mode for gumbel got: middle"),
    (lambda k: random.permutation(k, 1.5), TypeError, r"x must be an integer or at least 1-dimensional"),
    (lambda k: random.choice(k, 5, 3), TypeError, r"must be a sequence, got 3"),
    (lambda k: random.choice(k, [1, 2], (3,)), TypeError, r"choice requires ndarray or scalar arguments"),
    (lambda k: random.choice(k, 3, (4,), replace=False), ValueError, r"Cannot take a larger sample \(size 4\)"),
    (lambda k: random.choice(k, 3, (4,), p=np.ones(2)), ValueError, r"p must be None or a 1D vector"),
    (lambda k: random.choice(k, 0, (4,)), ValueError, r"a must be greater than 0 unless no samples are taken"),
    (lambda k: random.categorical(k, np.zeros(3, np.float32), shape=(5,), replace=False), ValueError,
     r"Number of samples without replacement \(5\) cannot exceed number of categories \(3\)"),
    (lambda k: random.multivariate_normal(k, np.zeros(2), np.eye(3)), ValueError, r"requires cov.shape == \(..., n, n\) for n=2"),
    (lambda k: random.multivariate_normal(k, np.zeros(2), np.eye(2), method="lu"), ValueError, r"method must be one of"),
    (lambda k: random.dirichlet(k, 1.0), ValueError, r"dirichlet requires alpha.ndim >= 1"),
    (lambda k: random.pareto(k, np.complex64(1)), ValueError, r"In arguments to pareto, cannot safely cast"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals(number: int) -> None:
    function, error, message = REFUSED[number]
    with pytest.raises(error) as caught:
        function(random.key(0))
    assert re.search(message, str(caught.value)), str(caught.value)


JAX_REFUSES = [
    lambda m: m.key(1.5),
    lambda m: m.key(np.arange(3)),
    lambda m: m.normal(m.split(m.key(0)), (3,)),
    lambda m: m.normal(m.key(0), 3.5),
    lambda m: m.normal(np.zeros(3, np.uint32)),
    lambda m: m.uniform(m.key(0), (3,), np.int32),
    lambda m: m.bits(m.key(0), (3,), np.int32),
    lambda m: m.randint(m.key(0), (3,), 0, 1, np.float32),
    lambda m: m.bernoulli(m.key(0), 1),
    lambda m: m.choice(m.key(0), [1, 2], (3,)),
    lambda m: m.choice(m.key(0), 3, (4,), replace=False),
    lambda m: m.permutation(m.key(0), 1.5),
    lambda m: m.truncated_normal(m.key(0), np.zeros((2, 3), np.float32), 1.0, (3,)),
    lambda m: m.pareto(m.key(0), np.complex64(1)),
    lambda m: m.key(0) + 1,
]


@pytest.mark.parametrize("number", range(len(JAX_REFUSES)))
def test_jax_raises_the_same_kind_of_error(number: int) -> None:
    with pytest.raises(Exception) as theirs:
        JAX_REFUSES[number](jax.random)
    kind = TypeError if isinstance(theirs.value, TypeError) else ValueError
    with pytest.raises(kind):
        JAX_REFUSES[number](random)


def test_keys_have_their_generator_and_their_words() -> None:
    for impl, words in (("threefry2x32", 2), ("rbg", 4)):
        keys = random.split(random.key(3, impl=impl), 2)
        assert keys._impl.name == impl and keys._impl.key_shape == (words,)
        assert keys._base_array.shape == (2, words) and keys._base_array.dtype == np.uint32
        assert keys._base_array.unsafe_buffer_pointer() == keys.unsafe_buffer_pointer()
        same = keys._impl.split(random.key_data(keys[0]), (3,))
        np.testing.assert_array_equal(np.asarray(same), np.asarray(random.key_data(random.split(keys[0], 3))))
        same = keys._impl.random_bits(random.key_data(keys[0]), 32, (5,))
        np.testing.assert_array_equal(np.asarray(same), np.asarray(random.bits(keys[0], (5,))))
        keys.delete()
        assert keys._base_array.is_deleted()
    with pytest.raises(AttributeError, match="_impl is an attribute of arrays of keys"):
        getattr(fnp.ones(2), "_impl")  # noqa: B009


@pytest.mark.parametrize("index", [np.array([0, 2]), np.array([2, 0]), np.array([1]), 1, slice(0, 3, 2)])
def test_keys_are_set_under_jit(index: Any) -> None:
    keys, key = random.split(random.key(1), 3), random.key(7)
    expected = np.array(random.key_data(keys))
    expected[index] = np.asarray(random.key_data(key))
    update = lambda keys, key: keys.at[index].set(key)
    for f in (update, fuser.jit(update)):
        np.testing.assert_array_equal(np.asarray(random.key_data(f(keys, key))), expected)


def test_the_type_of_a_key_is_that_of_a_function_of_it() -> None:
    described = fuser.ShapeDtypeStruct.like(random.key(0))
    assert fuser.eval_shape(lambda x: x, described) == described
