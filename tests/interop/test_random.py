"""Random numbers in accelerated functions: the numbers that NumPy's generators give, in the order of the function."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from numpy.random import standard_normal

from fuser import accelerate
from fuser.errors import UnsupportedError

RNG = np.random.default_rng(7)
HOLDER = types.SimpleNamespace(legacy=np.random.RandomState(3), draw=RNG.normal)


def draws(x, rng, scale):
    """One of each way to reach a generator, and of each kind of draw."""
    first = rng.random(len(x), dtype=np.float32)
    rng.shuffle(x)
    noisy = rng.normal(x, scale), rng.uniform(-scale, x[:, None], (len(x), 2)), rng.exponential(scale, size=4)
    known = rng.normal(2.0, size=3), rng.exponential(2.0, 3), rng.permutation(5)
    picked = rng.choice(x, 3, replace=False), rng.choice(6, 2, p=np.full(6, 1 / 6)), rng.permutation(x)
    whole = RNG.integers(0, 5, (2, 2)), RNG.integers(9), RNG.random() + 1
    legacy = HOLDER.legacy.rand(2) + np.random.randn(2), HOLDER.draw(2.0, 1.0, 3), standard_normal(2)
    out = np.empty_like(x)
    rng.standard_normal(out=out)
    return first, noisy, known, picked, whole, legacy, out, np.random.default_rng(3).random(2)


def _thrice(function: Any) -> Any:
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state
    HOLDER.legacy.seed(3)
    np.random.seed(5)
    rng, x = np.random.default_rng(1), np.arange(300.0)
    results = [function(x, rng, 2.0) for _ in range(3)]
    return results, x, rng.random(), RNG.random(), np.random.rand(), HOLDER.legacy.rand()


def test_the_stream_is_numpys():
    ours, theirs = _thrice(accelerate(draws)), _thrice(draws)
    np.testing.assert_equal(ours, theirs)
    for found, wanted in zip(ours[0][0], theirs[0][0]):
        assert type(found) is type(wanted)
        assert [type(v) for v in found] == [type(v) for v in wanted]


def test_a_call_that_numpy_answers_draws_once():
    def inverse(x, rng):
        return 1 / x + rng.random(3)  # divided by zero: an event

    ours, theirs = np.random.default_rng(0), np.random.default_rng(0)
    with np.errstate(divide="ignore"):
        wanted = inverse(np.zeros(3), theirs)
    accelerated = accelerate(inverse)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.testing.assert_array_equal(accelerated(np.zeros(3), ours), wanted)
    assert ours.random() == theirs.random()


def test_generators_of_one_class_share_a_program():
    accelerated = accelerate(lambda rng: rng.random(3) * 2)
    for seed in (1, 2):
        found = accelerated(np.random.default_rng(seed))
        np.testing.assert_array_equal(found, np.random.default_rng(seed).random(3) * 2)
    (signature,) = accelerated._entries.values()
    assert signature.traces == 1


def test_what_is_refused():
    x, rng = np.arange(3.0), np.random.default_rng(0)
    with pytest.raises(UnsupportedError, match=r"rng\.poisson with computed parameters cannot be traced"):
        accelerate(lambda x, rng: rng.poisson(x), fallback="error")(x, rng)
    with pytest.raises(UnsupportedError, match="give it a seed"):
        accelerate(lambda x: x + np.random.default_rng().random(3), fallback="error")(x)


def test_the_stream_is_seeded_in_the_function():
    from numpy.random import seed

    def walks(x, count):
        np.random.seed(count)
        first = np.random.randn(count) + x[:count]
        seed(count + 1)
        HOLDER.legacy.seed(9)
        return first.cumsum(), np.random.rand(2), np.random.randint(0, 9, 3) * x[:3], HOLDER.legacy.normal(size=2)

    accelerated, x = accelerate(walks), np.arange(9.0)
    for count in (4, 4, 5, 4):
        ours, after = accelerated(x, count), np.random.rand()
        np.testing.assert_equal(ours, walks(x, count))
        assert np.random.rand() == after
    assert "compiled whole" in accelerated.explain()
