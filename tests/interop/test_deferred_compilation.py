"""Compilation that waits until calls have taken a share of what it takes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import fuser
from fuser.interop import deferred_compilation, segments


def eliminated(a):
    """Elimination without pivots: each step another shape, so that the loop is unrolled."""
    a = a.copy()
    for k in range(len(a) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a


def system(n):
    return np.random.default_rng(0).random((n, n)) + n * np.eye(n)


def test_calls_run_in_numpy_while_compiling_would_take_longer(monkeypatch):
    monkeypatch.setattr(deferred_compilation, "SECONDS_AN_OPERATION", 10.0)
    fast, a = fuser.accelerate(eliminated, measure=True), system(6)
    for _ in range(5):
        assert np.array_equal(fast(a), eliminated(a))
    assert "as compiling takes about" in fast.explain() and fast.measuring


def test_compilation_waits_for_two_estimates_and_then_is_measured(monkeypatch):
    monkeypatch.setattr(deferred_compilation, "SECONDS_AN_OPERATION", 1.0)
    monkeypatch.setattr(deferred_compilation, "SECONDS_A_CHARACTER", 1.0)
    notes: dict[str, object] = {}
    cache = SimpleNamespace(get_json=notes.get, put_json=notes.__setitem__)
    monkeypatch.setattr(deferred_compilation, "default_cache", lambda: cache)
    fast, a = fuser.accelerate(eliminated, measure=True), system(6)
    fast(a)
    [entry] = fast._signatures()
    first = entry.programs[0]
    assert isinstance(first, deferred_compilation.Deferred)
    entry.spent = first.seconds
    assert np.allclose(fast(a), eliminated(a))
    second = entry.programs[0]
    assert isinstance(second, deferred_compilation.Deferred) and second is not first
    entry.spent = second.seconds
    assert np.allclose(fast(a), eliminated(a))
    assert not isinstance(entry.programs[0], deferred_compilation.Deferred)
    assert entry.how == "compiled whole" and fast.measuring and notes
    again = fuser.accelerate(eliminated, measure=True)  # whose text was compiled before
    again(a)
    [entry] = again._signatures()
    entry.spent = entry.programs[0].seconds
    again(a)
    assert entry.how == "compiled whole"


def test_new_signatures_wait_once_a_function_has_spent_its_seconds(monkeypatch):
    monkeypatch.setattr(deferred_compilation, "FREE_SECONDS", 0.0)
    fast, x = fuser.accelerate(lambda x, n: x[:n] * 2 + n, measure=True), np.arange(9.0)
    for n in range(1, 6):
        assert np.array_equal(fast(x, n), x[:n] * 2 + n)
    first, second, *others = fast._signatures()
    assert "being timed" in first.explain()
    assert all(type(entry.programs[0]) is deferred_compilation.Deferred for entry in (second, *others))
    second.spent = second.programs[0].seconds
    assert np.array_equal(fast(x, 2), x[:2] * 2 + 2)
    assert "being timed" in second.explain() and "until calls have taken" in others[0].explain()


def test_signatures_that_wait_run_in_segments_or_raise_as_others_do(monkeypatch):
    monkeypatch.setattr(deferred_compilation, "FREE_SECONDS", 0.0)
    fast = fuser.accelerate(lambda x, n: len(np.unique(x)) + n, measure=True)
    for n in (1, 2):
        assert fast(np.ones(5), n) == 1 + n
    entry = fast._signatures()[1]
    entry.spent = entry.programs[0].seconds
    assert fast(np.ones(5), 2) == 3
    assert "in segments" in entry.explain()


def test_functions_that_are_not_measured_are_compiled_at_once(monkeypatch):
    monkeypatch.setattr(deferred_compilation, "SECONDS_AN_OPERATION", 10.0)
    fast, a = fuser.accelerate(eliminated, measure=False), system(6)
    assert np.allclose(fast(a), eliminated(a))
    assert fast.explain().endswith("compiled whole")


def test_short_functions_do_not_wait():
    fast = fuser.accelerate(lambda x: x * 2 + 1, measure=True)
    fast(np.ones(4))
    assert "being timed beside NumPy" in fast.explain()


def test_segments_are_compiled_as_far_as_calls_have_paid_for_it(monkeypatch):
    monkeypatch.setattr(segments, "LEAST_SECONDS", -1e9)
    monkeypatch.setattr(segments, "FEWEST_ELEMENTS", 1)

    def halves(x):
        found = x[x > 0.5]
        return float(found.sum()) + len(found)

    fast, x = fuser.accelerate(halves, measure=True), np.linspace(0, 1, 100)
    for _ in range(6):
        assert fast(x) == halves(x)
    assert "0 segments compiled" in fast.explain()


def test_a_call_with_many_short_segments_stops_recording(monkeypatch):
    monkeypatch.setattr(segments, "MOST_IN_VAIN", 3)

    def relaxed(x):
        steps = 0
        while float(np.abs(x).max()) > 1e-3:
            x = np.array([v / 2 for v in x])
            steps += 1
        return x, steps

    fast, x = fuser.accelerate(relaxed, measure=False), np.linspace(1, 2, 5)
    for _ in range(3):
        found, wanted = fast(x), relaxed(x)
        assert np.array_equal(found[0], wanted[0]) and found[1] == wanted[1] and type(found[0]) is np.ndarray
