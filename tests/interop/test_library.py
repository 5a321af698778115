"""Functions that run in NumPy between compiled kernels: values, warnings and errors are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import scipy.special
from numpy.polynomial import chebyshev
from scipy import signal
from scipy.signal import savgol_filter

import fuser.numpy as fnp
from fuser.interop import accelerate
from fuser.interop.numpy import library
from fuser.ir.types import ArrayType
from fuser.runtime import blas_threads
from tests.interop.test_events import as_numpy, events

rng = np.random.default_rng(0)
A = rng.normal(size=(4, 4)) + 4 * np.eye(4)
V = rng.normal(size=4)
STACK = A + rng.normal(size=(3, 4, 4)) * 0.1

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "solve": lambda a, v: np.linalg.solve(a * 2, v) + 1,
    "inv": lambda a, v: np.linalg.inv(a) @ v,
    "det": lambda a, v: np.linalg.det(a) * 2,
    "qr": lambda a, v: np.linalg.qr(a)[1] @ v,
    "eigh": lambda a, v: np.linalg.eigh(a @ a.T).eigenvalues + v,
    "svd": lambda a, v: np.linalg.svd(a),
    "singular values": lambda a, v: np.linalg.svd(a, compute_uv=False).sum() + v,
    "cholesky": lambda a, v: np.linalg.cholesky(a @ a.T),
    "slogdet": lambda a, v: np.linalg.slogdet(a),
    "spectral norm": lambda a, v: np.linalg.norm(a, 2) + np.linalg.norm(a, "nuc"),
    "stack of matrices": lambda a, v: np.linalg.inv(a[None] + np.zeros((3, 1, 1))),
    "pinv and powers": lambda a, v: np.linalg.pinv(a[:3]) @ np.linalg.matrix_power(a, 3)[:3],
    "fft": lambda a, v: np.abs(np.fft.fft(v)) ** 2,
    "rfft": lambda a, v: np.fft.irfft(np.fft.rfft(a, axis=0), axis=0),
    "fft2": lambda a, v: np.fft.fftshift(np.fft.fft2(a).real),
    "lexsort": lambda a, v: np.lexsort((v, a[0])),
    "partition": lambda a, v: np.partition(v * 2, 2),
    "block": lambda a, v: np.block([[a, a], [a, a * 2]]),
    "histogram": lambda a, v: np.histogram(a * 2, 5),
    "density": lambda a, v: np.histogram(a, 5, (-1, 1), density=True)[0] + V[0],
    "weights": lambda a, v: np.cov(a, aweights=np.abs(v)),
    "gradient": lambda a, v: np.gradient(v, edge_order=2),
    "least squares": lambda a, v: np.linalg.lstsq(a, v, rcond=None)[0] + np.polyfit(v, a[0], 2)[0],
    "reduceat": lambda a, v: np.add.reduceat(a.ravel() * 2, [0, 3, 5]) + np.bitwise_xor.reduce((v > 0).astype(int)),
    "a ufunc without a kernel": lambda a, v: np.spacing(a) + v,
    "median of a long row": lambda a, v: np.median(np.tile(v, 300)) + np.quantile(np.tile(v, 300), [0.1, v[0] * 0]),
    "long sorts": lambda a, v: np.sort(np.tile(v, 300))[np.argsort(np.tile(v, 300), kind="stable")],
    "gaussian_filter": lambda a, v: scipy.ndimage.gaussian_filter(a * 2, 1.0) + v,
    "lfilter": lambda a, v: signal.lfilter([v[0]], [1.0, -0.5], a) + 1,
    "filter of windows": lambda a, v: savgol_filter(a, 3, 1).sum(axis=0) + scipy.special.bei(v),
    "nanmedian": lambda a, v: np.nanmedian(a, axis=0) + v,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_run_in_numpy_between_kernels(name: str) -> None:
    for a in (A, np.asfortranarray(A)):
        assert events(as_numpy(FUNCTIONS[name], a, V)) == 0


TRACED: dict[str, Callable[[Any, Any], Any]] = {
    "special functions": lambda a, v: scipy.special.erf(a) + scipy.special.gammaln(v**2 + 1) + scipy.special.ndtr(v),
    "infinities of special functions": lambda a, v: scipy.special.gammaln(v * 0),
    "Bessel functions": lambda a, v: scipy.special.j0(9 * a) * scipy.special.j1(v),
    "polynomials": lambda a, v: chebyshev.chebval(a, v) + np.polynomial.legendre.legval(v, [1.0, 2.0, 3.0]),
    "bincount": lambda a, v: np.bincount((np.abs(a.ravel()) * 2).astype(int), minlength=32),
    "weighted bincount": lambda a, v: (
        np.bincount(np.arange(4) // 2, weights=v, minlength=5) + np.bincount([1, 1], v[:2], 5)
    ),
    "histogram": lambda a, v: np.histogram(a, 7, (-1, 5)),
    "histogram of edges": lambda a, v: np.histogram(a, [-1.0, 0, 0.5, 5]),
    "ends of a histogram": lambda a, v: np.histogram(np.round(a * 10) / 10, 60, (-1, 5))[0],
    "windows": lambda a, v: np.lib.stride_tricks.sliding_window_view(a, (2, 3)).mean(axis=(2, 3)) + v[:2],
    "windows along an axis": lambda a, v: np.lib.stride_tricks.sliding_window_view(a, 3, axis=0).max(axis=-1) + v,
    "linspace": lambda a, v: np.linspace(v[0], v[1], 9) + np.linspace(1.0, 2.0, 9),
}


@pytest.mark.parametrize("name", TRACED)
def test_functions_are_traced_without_steps_in_numpy(name: str) -> None:
    assert events(as_numpy(TRACED[name], A, V)) == 0
    plan = accelerate(TRACED[name]).lower(A, V).plan
    assert not any("numpy_call" in group.name for group in plan.groups)


def test_values_beyond_minlength_are_left_to_numpy() -> None:
    count = accelerate(lambda x: np.bincount(x, minlength=3))
    np.testing.assert_array_equal(count(np.array([0, 2, 2])), [1, 0, 2])
    np.testing.assert_array_equal(count(np.array([0, 5, 2])), [1, 0, 1, 0, 0, 1])


def test_compiled_programs_call_numpy() -> None:
    assert events(as_numpy(FUNCTIONS["qr"], A, V, backend="c")) == 0
    plan = accelerate(FUNCTIONS["qr"]).lower(A, V).plan
    assert any("numpy_call" in group.name for group in plan.groups)


@pytest.mark.parametrize(
    "function",
    [np.linalg.inv, np.linalg.cholesky, lambda a: np.linalg.solve(a, a) + 1],
    ids=["inv", "cholesky", "solve"],
)
def test_errors_of_theirs_are_numpys(function: Callable[[Any], Any]) -> None:
    as_numpy(function, -np.ones((3, 3)) * 0)
    as_numpy(function, np.array([[np.nan, 1.0], [1.0, 1.0]]))


def test_functions_that_use_fuser_numpy_beside_numpys_arrays() -> None:
    def ordered(x, w):
        order = fnp.argsort(x)
        y = np.zeros_like(x)
        y[order] = w
        return x[order], fnp.cumsum(w[order]), y

    random = np.random.default_rng(0)
    x, w = random.standard_normal(50).astype(np.float32), random.random(50).astype(np.float32)
    order = np.argsort(x)
    y = np.zeros_like(x)
    y[order] = w
    for got, want in zip(accelerate(ordered)(x, w), (x[order], np.cumsum(w[order]), y), strict=True):
        np.testing.assert_allclose(got, want, 1e-6)


def test_steps_on_matrices_that_are_not_large_have_one_thread_of_lapack():
    limit = blas_threads.setter("numpy.linalg._umath_linalg")
    if limit is None:
        pytest.skip("NumPy's LAPACK does not say how many threads it has")
    before, seen = limit(3), []

    def step(a: np.ndarray) -> np.ndarray:
        seen.append(limit(1))
        return a

    try:
        library._evaluate(np.eye(10), function=lambda a: a, types=(ArrayType((10, 10), np.dtype(np.float64)),))
        assert limit(2) == 3  # and what it was then is forgotten
        for size in (10, 400):
            library._evaluate(np.eye(size), function=step, types=(ArrayType((size, size), np.dtype(np.float64)),))
            assert limit(2) == (2 if size == 10 else 1)  # given back; what the step itself set stays
    finally:
        limit(before)
    assert seen == [1, 2]
