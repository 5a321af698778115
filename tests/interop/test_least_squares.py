"""Least squares with many equations: the triangular factor of blocks of rows gives what LAPACK gives, to rounding."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fuser.interop import accelerate
from fuser.interop.numpy import host_kernels
from fuser.interop.numpy.substitutes import faster
from tests.interop.oracle import agree

lstsq = faster(np.linalg.lstsq)


def _close(found, wanted):
    """Solution, residuals, rank and singular values; by the size of the largest, as errors are."""
    for mine, theirs in zip(found, wanted, strict=True):
        assert type(mine) is type(theirs)
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-11 * np.abs(theirs).max(initial=0))


@pytest.mark.parametrize("rows, columns, sides", [(20_000, 1, None), (4_099, 5, None), (1_037, 17, 3), (4_097, 8, 32)])
@pytest.mark.parametrize("layout", ["C", "F", "apart"])
def test_systems_of_full_rank(rows, columns, sides, layout):
    random = np.random.default_rng(rows)
    a = random.standard_normal((rows, columns)) + np.arange(columns)
    b = random.standard_normal(rows if sides is None else (rows, sides))
    a = np.repeat(a, 2, axis=1)[:, ::2] if layout == "apart" else np.asarray(a, order=layout)
    assert host_kernels.tall_factor(a, b.reshape(rows, -1)) is not None
    _close(lstsq(a, b, rcond=None), np.linalg.lstsq(a, b, rcond=None))


@pytest.mark.parametrize("rcond", [None, -1, 1e-3, 0.5, 2.0])
def test_rank_is_decided_as_lapack_decides_it(rcond):
    random = np.random.default_rng(5)
    a = random.standard_normal((6_000, 4)) * [1, 1e-2, 1e-5, 1]
    a[:, 3] = a[:, 0] + (1e-9 * a[:, 3] if rcond != -1 else 0.3 * a[:, 3])
    b = random.standard_normal((6_000, 2))
    found, wanted = lstsq(a, b, rcond), np.linalg.lstsq(a, b, rcond)
    assert found[2] == wanted[2] and found[1].shape == wanted[1].shape
    # a condition of 1e9 makes a rounding of 2e-16 a change of that size, times b's
    np.testing.assert_allclose(a @ found[0], a @ wanted[0], atol=1e-6)
    np.testing.assert_allclose(found[3], wanted[3], rtol=1e-6, atol=1e-12)


def test_what_numpy_answers():
    random = np.random.default_rng(6)
    a, b = random.standard_normal((5_000, 4)), random.standard_normal(5_000)
    for scale in (1e-200, 1e200):
        _close(lstsq(a * scale, b, None), np.linalg.lstsq(a * scale, b, None))
    _close(
        lstsq(a.astype(np.float32), b.astype(np.float32), None),
        np.linalg.lstsq(a.astype(np.float32), b.astype(np.float32), None),
    )
    hollow = a.copy()
    hollow[:, 2] = 0
    _close(lstsq(hollow, b, None), np.linalg.lstsq(hollow, b, None))
    a[7, 1] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match="did not converge"):
        lstsq(a, b, None)


@pytest.mark.parametrize("size", [40, 20_001])
def test_polynomials_that_are_fitted(size):
    t = np.linspace(-1, 2, size)
    y = np.sin(3 * t)
    agree(lambda t, y: np.polyfit(t, y, 3), t, y, tolerance=1e-9)
    agree(lambda t, y: np.polyfit(t, np.stack([y, y * t], axis=1), 2), t, y, tolerance=1e-9)
    agree(lambda t, y: np.polyfit(t, y, 4, w=1 + t * t), t, y, tolerance=1e-9)
    agree(lambda n, y: y - np.polyval(np.polyfit(np.arange(len(y)), y, 1), np.arange(n)), size, y, tolerance=1e-9)


def test_a_fit_that_numpy_warns_of():
    def fitted(x, y):
        return np.polyfit(x, y, 2)

    f = accelerate(fitted)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = f(np.ones(30), np.arange(30.0))
        assert [w.category for w in caught] == [np.exceptions.RankWarning]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_allclose(found, fitted(np.ones(30), np.arange(30.0)))
