"""Public functions outside of traces: replays give what the functions themselves give, and go where they may."""

import copy
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import nn, random
from fuser.config import config
from fuser.ir.primitive import REGISTRY, Primitive
from fuser.lax import replayed as replays
from fuser.lax.replayed import Replayed
from fuser.runtime.core import native
from fuser.trace.core import type_of

pytestmark = pytest.mark.skipif(native is None, reason="replays are the native core's")
LINE = np.linspace(-3, 3, 24, dtype=np.float32)
CALLS = {
    "mean": lambda x: fnp.mean(x, axis=1, keepdims=True),
    "std": lambda x: fnp.std(x, axis=0, ddof=1),
    "softplus": lambda x: nn.softplus(x),
    "clip": lambda x: fnp.clip(x, -1.0, 1.0),
    "take": lambda x: fnp.take(x, fnp.asarray([2, 0, 9]), axis=0),
    "matmul": lambda x: fnp.matmul(x, x.T),
    "transpose": lambda x: fnp.transpose(x),
    "max": lambda x: x.max(axis=-1),
    "power": lambda x: x**2 + fnp.abs(x) ** 0.5,
    "split": lambda x: fnp.split(x, 2),
    "frexp": lambda x: fnp.frexp(x),
    "convert": lambda x: (x * 1e10).astype(np.int32),
    "nan": lambda x: fnp.astype(fnp.sqrt(x), np.int8),
    "sorted": lambda x: (fnp.sort(x, axis=0), fnp.argsort(-x, axis=1)),
    "shift": lambda x: fnp.right_shift(x.astype(np.int32), 40),
    "signs of zero": lambda x: fnp.maximum(x * 0, -(x * 0)),
}


def _leaves(result):
    return [(np.asarray(r), r.weak_type) for r in fuser.tree.leaves(result)]


@pytest.mark.parametrize("name", CALLS)
def test_a_replay_gives_the_bits_of_the_function(name):
    x = fnp.asarray(LINE.reshape(6, 4))
    with config.using(disable_jit=True):  # never recorded
        wanted = _leaves(CALLS[name](x))
    for _ in range(3):
        found = _leaves(CALLS[name](x))
        assert len(found) == len(wanted)
        for (a, weak), (b, wanted_weak) in zip(found, wanted):
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()
            assert weak == wanted_weak


def test_the_second_call_records_and_the_third_asks_no_python():
    def function(x, n):
        calls.append(n)
        return x + n

    calls = []
    add = Replayed(function)
    x = fnp.asarray(LINE)
    for _ in range(4):
        np.testing.assert_array_equal(add(x, 2), LINE + 2)
    assert calls == [2, 2]
    assert add._known_calls() == 1
    np.testing.assert_array_equal(add(x, 3), LINE + 3)  # `n` is static
    assert calls == [2, 2, 3]


def test_what_looks_at_values_runs_as_it_is():
    x = fnp.asarray([1, 1, 2])
    for values in ([1, 1, 2], [3, 4, 5]):
        for _ in range(3):
            np.testing.assert_array_equal(fnp.unique(fnp.asarray(values)), np.unique(values))
            np.testing.assert_array_equal(fnp.repeat(x, fnp.asarray(values)), np.repeat([1, 1, 2], values))
    for _ in range(3):
        assert fnp.power(fnp.asarray(2.0), fnp.asarray(3)).weak_type == fnp.asarray(2.0).weak_type
        with pytest.raises(ValueError, match="shape"):
            fnp.add(fnp.zeros(3), fnp.zeros(4))


def test_warnings_and_checks_are_at_every_call():
    x = fnp.asarray(LINE)
    for _ in range(3):
        with pytest.warns(UserWarning, match="float64"):
            fnp.sum(x, dtype="float64")
    fnp.log(x), fnp.log(x)
    with config.using(debug_nans=True), pytest.raises(FloatingPointError):
        fnp.log(x)
    with np.errstate(all="raise"):
        assert np.isnan(np.asarray(fnp.log(x))).any()


def test_results_have_memory_of_their_own():
    given = LINE.copy()
    x = fnp.asarray(LINE)
    for _ in range(3):
        flat, same = fnp.ravel(given), fnp.ravel(x)
        given[0] += 1
        assert flat[0] == given[0] - 1
        same.delete()
        assert x[0] == LINE[0]


def test_replays_are_functions_to_python():
    assert fnp.mean.__name__ == "mean" and fnp.mean.__doc__
    assert copy.deepcopy(fnp.mean) is fnp.mean
    assert pickle.loads(pickle.dumps(fnp.mean)) is fnp.mean
    fuser.clear_caches()
    assert fnp.mean._known_calls() == 0


def test_under_transforms_the_function_itself_is_traced():
    x = fnp.asarray(LINE)
    fnp.mean(x), fnp.mean(x)
    np.testing.assert_allclose(fuser.grad(fnp.mean)(x), np.full(24, 1 / 24), rtol=1e-6)
    np.testing.assert_allclose(fuser.vmap(fnp.mean)(x.reshape(6, 4)), LINE.reshape(6, 4).mean(1), rtol=1e-5)
    assert fuser.jit(fnp.mean)(x) == pytest.approx(LINE.mean(), abs=1e-6)


def test_draws_depend_on_the_key():
    keys = random.split(random.key(1), 3)
    drawn = [np.asarray(random.normal(k, (5,))) for k in keys for _ in range(2)]
    assert len({d.tobytes() for d in drawn}) == 3


def test_wide_arrays_of_numpy_are_replayed_as_narrow_ones() -> None:
    x, places, wide = fnp.arange(9.0), np.array([4, 0, 8]), np.linspace(0, 1, 9)
    theirs = jnp.arange(9.0)
    for function in (
        lambda m, v: m.take(v, places),
        lambda m, v: m.sin(wide),
        lambda m, v: m.add(v, wide),
        lambda m, v: m.mean(wide),
        lambda m, v: m.concatenate([v, wide]),
        lambda m, v: m.delete(v, places),
        lambda m, v: m.repeat(v, np.arange(9)),
        lambda m, v: m.maximum(places, 2),
    ):
        want = np.asarray(function(jnp, theirs))
        for _ in range(3):
            found = function(fnp, x)
            assert found.dtype == want.dtype and found.weak_type is False
            np.testing.assert_allclose(np.asarray(found), want, rtol=1e-6)
    before = len(fnp.take._met)
    fnp.take(x, np.array([1, 2, 3]))
    assert len(fnp.take._met) == before, "the recording for 32 bits serves"


PLANNED = [p for p in REGISTRY.values() if p.planned]


@pytest.mark.parametrize("primitive", PLANNED, ids=str)
def test_rules_planned_for_types_give_the_bits_of_evaluation(primitive: Primitive) -> None:
    planned = 0
    for args, params in primitive.samples():
        arrays = [np.asarray(a, order="C") for a in args]
        plan = primitive.planned(*map(type_of, arrays), **params)
        if plan:
            planned += 1
            [wanted, found] = (np.asarray(f) for f in (primitive.eval(*arrays, **params), plan(*arrays)))
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            assert found.tobytes() == wanted.tobytes()
    assert planned


@pytest.mark.parametrize(
    "function",
    [nn.silu, nn.gelu, nn.softmax, nn.log_softmax, nn.sigmoid, nn.standardize, fuser.scipy.special.logsumexp],
    ids=lambda f: f.__name__,
)
def test_functions_of_many_operations_give_the_bits_of_jit(function):
    x = np.linspace(-3, 3, 60, dtype=np.float32).reshape(4, 15)
    for value in (x, x[:3, :7]):
        np.testing.assert_array_equal(function(value), fuser.jit(function)(value))


@pytest.mark.parametrize("name", ["normal", "uniform", "bernoulli", "exponential", "gumbel", "categorical", "bits"])
def test_draws_give_the_bits_of_jit(name):
    key, function = fuser.random.key(3), getattr(fuser.random, name)
    others = (fnp.zeros((3, 4)),) if name == "categorical" else (0.25, (3, 5)) if name == "bernoulli" else ((3, 5),)
    wanted = fuser.jit(lambda key: function(key, *others))(key)
    np.testing.assert_array_equal(function(key, *others), wanted)


def test_bounds_of_uniform_are_operands():
    key, before = fuser.random.key(3), len(fuser.random.uniform._met)
    for low in np.linspace(0, 1, 9):
        found = fuser.random.uniform(key, (7,), minval=float(low), maxval=2.0)
        assert (np.asarray(found) >= np.float32(low)).all()
    assert len(fuser.random.uniform._met) <= before + 1


def test_lengths_that_grow_are_not_all_compiled(monkeypatch):
    monkeypatch.setattr(replays, "COMPILED_AT_ONCE", 3)
    function = replays.replayed(lambda x: fnp.exp(x) * 2 + 1, compiled=True)
    compiled = []
    monkeypatch.setattr(
        replays.Replayed,
        "compiler",
        staticmethod(lambda *args, old=replays.Replayed.compiler: compiled.append(1) or old(*args)),
    )
    for size in range(1, 9):
        np.testing.assert_allclose(function(np.ones(size, np.float32)), np.full(size, 2 * np.e + 1), rtol=1e-6)
    assert len(compiled) == 3
    function(np.ones(8, np.float32))
    assert len(compiled) == 4


NUMBERS = (
    2.5,
    3,
    True,
    1.5 - 2j,
    np.float32(0.7),
    np.int8(5),
    np.float64(0.3),
    np.array(2.0),
    np.bool_(True),
    np.float16(1.5),
)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: f"{type(n).__name__}-{n}")
@pytest.mark.parametrize("name", ["exp", "sin", "add", "maximum", "where", "sum", "logaddexp"])
def test_calls_on_numbers_alone_are_recorded_too(name, number):
    def call(m):
        function = getattr(m, name)
        if name == "where":
            return function(True, number, 1)
        return function(number, 2) if name in ("add", "maximum", "logaddexp") else function(number)

    wanted = call(jnp)
    before = getattr(fnp, name)._known_calls()
    for _ in range(3):
        found = call(fnp)
        assert (found.dtype, found.weak_type, found.shape) == (wanted.dtype, wanted.weak_type, wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-6 if found.dtype.itemsize >= 4 else 1e-3)
    assert getattr(fnp, name)._known_calls() >= max(before, 1)


def test_numbers_that_adapt_to_short_floats_are_rounded_once():
    import ml_dtypes

    short = ml_dtypes.bfloat16(1)
    for _ in range(3):
        assert fnp.add(short, 1.00390625 + 1e-9) == jnp.add(short, 1.00390625 + 1e-9)
