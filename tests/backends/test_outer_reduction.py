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
