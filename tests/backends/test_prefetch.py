"""Rows that are asked for ahead: which kernels do it, and that pieces of rows give what whole rows give."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.c.schedules.prefetch import PIECE


def matrix(rows: int, cols: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(3).standard_normal((rows, cols)).astype(dtype)


def asks(function, *arguments) -> bool:
    return any("__builtin_prefetch" in s.text for s in fuser.jit(function).lower(*arguments).sources)


def test_which_kernels_ask() -> None:
    """Those that run along large rows several times, and write none."""
    variance = lambda x: fnp.var(x, axis=1)
    assert asks(variance, matrix(300, 5000))
    assert asks(lambda x: fuser.nn.logsumexp(x, axis=-1), matrix(300, 5000))
    assert asks(lambda x: fuser.nn.logsumexp(x, axis=-1), matrix(300, 8000))
    assert not asks(variance, matrix(300, 8000)), "the nearest cache holds no two rows"
    assert asks(lambda x: fnp.var(x, axis=2), matrix(300, 5000).reshape(20, 15, 5000))
    assert not asks(lambda x: fnp.sum(x, axis=1), matrix(300, 5000)), "one run"
    assert not asks(fuser.nn.softmax, matrix(300, 5000)), "rows are written too"
    assert not asks(variance, matrix(100, 5000)), "all of it stays in a cache"
    assert not asks(variance, matrix(20_000, 70)), "short rows"
    assert not asks(variance, matrix(20, 100_000)), "a row is more than the core's caches hold"
    assert not asks(lambda x: fnp.var(x, axis=0), matrix(300, 5000)), "columns"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("cols", [5 * PIECE, 5 * PIECE + 1, 6 * PIECE - 1, 5 * PIECE + 517])
def test_pieces_of_rows(cols: int, dtype: str) -> None:
    x = matrix(420, cols, dtype)
    function = fuser.jit(lambda x: (fnp.var(x, axis=1, dtype=np.float32), fuser.nn.logsumexp(x, axis=1)))
    assert asks(function, x)
    variance, total = function(x)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(variance, exact.var(axis=1), rtol=1e-5)
    tolerance = 1e-5 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(np.float64(total), np.log(np.exp(exact).sum(axis=1)), rtol=tolerance)


def test_rows_of_two_axes_and_of_another_array() -> None:
    """The row after the last one of an axis lies elsewhere, or nowhere; what is asked for in vain does no harm."""
    x, y = matrix(30 * 14, 3000).reshape(30, 14, 3000), matrix(30 * 14, 3000).reshape(30, 14, 3000)[::-1].copy()
    function = lambda np, x, y: np.var(x[:, 1:] * y[:, 1:], axis=2)
    assert asks(lambda x, y: function(fnp, x, y), x, y)
    ours = fuser.jit(lambda x, y: function(fnp, x, y))(x, y)
    np.testing.assert_allclose(ours, function(np, x.astype(np.float64), y.astype(np.float64)), rtol=1e-5)
