"""Reductions across rows: how many rows are reduced at once."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp

X = np.random.default_rng(0).standard_normal((400, 320)).astype(np.float32)


def text_of(function) -> str:
    [source] = fuser.jit(function).lower(X).sources
    return source.text


@pytest.mark.parametrize("name", ["tanh", "exp", "sin"])
def test_rows_with_functions_of_maths_are_reduced_one_at_a_time(name: str) -> None:
    """Eight copies of a polynomial have more constants than registers hold, and are eight times the code."""
    function = lambda x: fnp.max(getattr(fnp, name)(x), axis=0)
    assert text_of(function).count(f"{name}_f32(") == 1
    expected = getattr(np, name)(X.astype(np.float64)).max(0)
    np.testing.assert_allclose(fuser.jit(function)(X), expected, rtol=1e-6)


def test_cheap_rows_are_reduced_eight_at_a_time() -> None:
    function = lambda x: fnp.max(x * x, axis=0)
    assert text_of(function).count(" * v") == 9  # of eight rows, and of what is left over
    np.testing.assert_allclose(fuser.jit(function)(X), (X.astype(np.float64) ** 2).max(0), rtol=1e-6)


def test_several_reductions_of_eight_rows_are_held_in_registers() -> None:
    """What they have so far is read and written once for eight rows, not after each."""
    function = lambda x: (x.max(0), x.min(0), (x > 1).any(0), fnp.prod(x * 0.1 + 1, axis=0))
    assert text_of(function).count("_held = ") == 4 * (1 + 8)  # as they begin, and with each row
    found = fuser.jit(function)(X)
    for mine, wanted in zip(found, (X.max(0), X.min(0), (X > 1).any(0))):
        np.testing.assert_array_equal(mine, wanted)
    np.testing.assert_allclose(found[3], np.prod(X.astype(np.float64) * 0.1 + 1, axis=0), rtol=400 * 2**-23)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_stays_in_every_column(name: str, dtype: str) -> None:
    """Of the first row, of one among eight, and of what is left over."""
    x = X.astype(dtype)
    x[[0, 11, 399], [3, 4, 5]] = np.nan
    x[200, 4], x[:, 6] = np.inf, -np.inf
    with fuser.enable_x64():
        np.testing.assert_array_equal(np.asarray(fuser.jit(lambda x: getattr(x, name)(0))(x)), getattr(x, name)(0))
