"""`jit(f)` made anew finds the programs of an earlier one: for the same function, options and settings, while f lives."""

import gc
import weakref

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.api import program_cache
from fuser.config import config

X = np.arange(3, dtype=np.float32)


def counted():
    """A function, and a list that grows by one each time it runs."""
    runs = []

    def function(x, power=2):
        runs.append(x)
        return x**power

    return function, runs


def test_jit_of_the_same_function_traces_once():
    function, runs = counted()
    for _ in range(3):
        np.testing.assert_array_equal(fuser.jit(function)(X), X**2)
    assert len(runs) == 1
    fuser.jit(function)(X[:2])
    assert len(runs) == 2


def test_jit_under_transforms_traces_once():
    function, runs = counted()
    for _ in range(3):
        found = fuser.grad(lambda x: fuser.jit(function)(x).sum())(X)
        np.testing.assert_array_equal(found, 2 * X)
    assert len(runs) == 1


def test_options_and_static_values_are_told_apart():
    function, _ = counted()
    for power in (2, 3, 2):
        np.testing.assert_allclose(fuser.jit(function, static_argnames="power")(X, power=power), X**power, rtol=1e-6)
    kept = fnp.asarray(X)
    fuser.jit(function)(kept)
    fuser.jit(function, donate_argnums=0)(fnp.asarray(X))
    np.testing.assert_array_equal(kept, X)
    found = fuser.jit(lambda x: fuser.jit(function, inline=True)(x) + fuser.jit(function)(x))(X)
    np.testing.assert_array_equal(found, 2 * X**2)


def test_settings_are_told_apart():
    function, runs = counted()
    fuser.jit(function)(X)
    with config.using(backend="reference"):
        fuser.jit(function)(X)
    assert len(runs) == 2
    fuser.jit(function)(X)
    with config.using(fuel=0):
        fuser.jit(function)(X)
    assert len(runs) == 3


def test_jit_and_accelerate_are_told_apart():
    def function(x):
        return x + 1

    assert isinstance(fuser.jit(function)(X), fuser.Array)
    assert isinstance(fuser.accelerate(function)(X), np.ndarray)
    assert isinstance(fuser.jit(function)(X), fuser.Array)


def test_clear_cache_forgets_the_function():
    function, runs = counted()
    jitted = fuser.jit(function)
    jitted(X)
    jitted.clear_cache()
    fuser.jit(function)(X)
    assert len(runs) == 2
    fuser.clear_caches()
    fuser.jit(function)(X)
    assert len(runs) == 3


def test_a_traced_constant_is_no_other_traces():
    def outer(x):
        def inner(y):
            return x * y

        return fuser.jit(inner)(x) + fuser.jit(inner)(2 * x)

    np.testing.assert_array_equal(fuser.grad(lambda x: outer(x).sum())(X), 6 * X)
    np.testing.assert_array_equal(fuser.vmap(outer)(X), 3 * X**2)


def test_programs_go_with_their_function():
    def made():
        constant = fnp.ones(8)

        def function(x):
            return x + constant.sum()

        fuser.jit(function)(X)
        fuser.grad(lambda x: fuser.jit(function)(x).sum())(X)
        return weakref.ref(function)

    gone = made()
    gc.collect()
    assert gone() is None


def test_functions_are_bounded(monkeypatch):
    monkeypatch.setattr(program_cache, "MOST_FUNCTIONS", 2)
    monkeypatch.setattr(program_cache, "MOST_PROGRAMS", 2)
    functions = [counted()[0] for _ in range(4)]
    for function in functions:
        for size in range(1, 4):
            fuser.jit(function)(X[:size])
    assert len(program_cache._PROGRAMS) <= 2
    assert all(len(known) <= 2 for known in program_cache._PROGRAMS.values())
