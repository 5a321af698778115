"""Sorts by digits on processors: keys that the highest digits tell apart, nearly, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config


def _spread(random, n):
    return random.integers(-(1 << 62), 1 << 62, n)


def _alike_above(random, n):
    """Few values of the high digits, many of the low ones: insertion would take a square of moves."""
    return (random.integers(0, 4, n) << 56) + random.integers(0, 1 << 20, n)


def _descending_below(random, n):
    """Low digits against the order, under equal high digits."""
    return (random.integers(0, 2, n) << 60) + np.arange(n)[::-1]


def _two_digits(random, n):
    return (random.integers(0, 256, n) << 40) + (random.integers(0, 256, n) << 8)


def _repeated(random, n):
    return random.integers(0, 7, n) << 33


KEYS = [_spread, _alike_above, _descending_below, _two_digits, _repeated]


@pytest.mark.parametrize("n", [25, 600, 5_000, 70_000])
@pytest.mark.parametrize("keys", KEYS)
def test_sorts_by_digits_are_stable(keys, n):
    x = keys(np.random.default_rng(n), n).astype(np.int64)
    with config.using(enable_x64=True):
        ordered, order = fuser.jit(lambda x: (fnp.sort(x), fnp.argsort(x)))(x)
    np.testing.assert_array_equal(ordered, np.sort(x))
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [300, 70_000])
def test_floats_with_zeros_of_both_signs_and_nans_are_sorted(dtype, n):
    random = np.random.default_rng(7)
    x = (random.standard_normal(n) * 10.0 ** random.integers(-30, 30, n)).astype(dtype)
    x[random.integers(0, n, n // 5)] = 0.0
    x[random.integers(0, n, n // 9)] = -0.0
    x[random.integers(0, n, n // 9)] = np.nan
    x[0], x[1] = np.inf, -np.inf
    with config.using(enable_x64=True):
        ordered, order = fuser.jit(lambda x: (fnp.sort(x), fnp.argsort(x)))(x)
    np.testing.assert_array_equal(ordered, np.sort(x, kind="stable"))
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))
