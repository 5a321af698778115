"""SciPy's filters along one dimension are operations of the program, with SciPy's results."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.ndimage
import scipy.signal

from fuser.interop import accelerate
from tests.interop.oracle import agree

rng = np.random.default_rng(11)
MODES = ["reflect", "mirror", "nearest", "wrap", "constant"]


def _whole(function, *args):
    agree(function, *args, backend="c", tolerance=1e-6 if args[0].dtype == np.float32 else 1e-13)
    assert "numpy_call" not in str(accelerate(function).trace(*args).graph)


WEIGHTS = [[0.5, 1.0, -2.0, 1.0, 0.5], [1, 0, -1], [0.25, 0.5, 1.0, 0.75, 3.0], [2.0]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [4, 9, 40])  # shorter and longer than four times the reach
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_each_way_to_go_on_beyond_the_ends(mode, length, weights):
    x = rng.normal(size=(3, length))
    _whole(lambda x: scipy.ndimage.correlate1d(x * 2, weights, mode=mode, cval=1.5), x)
    _whole(lambda x: scipy.ndimage.convolve1d(x, weights, axis=1, mode=mode) + 1, x)
    _whole(lambda x: scipy.ndimage.uniform_filter1d(x, 3, mode=mode), x)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(50,), (30, 41), (12, 9, 20)])
def test_gaussian_filters(shape, dtype):
    x = rng.normal(size=shape).astype(dtype)
    _whole(lambda x: scipy.ndimage.gaussian_filter(x + 1, 1.0), x)
    _whole(lambda x: scipy.ndimage.gaussian_filter(x, 0.8, mode="wrap", truncate=3.0), x)
    _whole(lambda x: scipy.ndimage.gaussian_filter1d(x, 1.2, axis=0, mode="constant", cval=2.0), x)
    _whole(lambda x: scipy.ndimage.gaussian_filter(x, [0.7] * x.ndim, radius=2, axes=range(x.ndim)), x)


@pytest.mark.parametrize("mode", ["interp", "mirror", "nearest", "wrap", "constant"])
@pytest.mark.parametrize("derivative", [0, 1, 2])
def test_savitzky_and_golays_filter(mode, derivative):
    x = np.cumsum(rng.normal(size=(2, 60)), axis=1)
    _whole(lambda x: scipy.signal.savgol_filter(x, 7, 3, deriv=derivative, delta=0.5, mode=mode), x)
    _whole(lambda x: scipy.signal.savgol_filter(x.T, 5, 2, axis=0, mode=mode), x)
    _whole(
        lambda x: scipy.signal.savgol_filter(x.astype(np.float32), 9, 2, deriv=derivative, mode=mode), x.astype("f4")
    )


@pytest.mark.parametrize("b, a", [([0.1], [1, -0.9]), ([0.1, 0.2, 0.3], [2.0, -0.9]), ([3], [1, 0.2, 0.3, 0.1])])
def test_recursive_filters(b, a):
    x = rng.normal(size=(4, 60))
    _whole(lambda x: scipy.signal.lfilter(b, a, x * 2), x)
    _whole(lambda x: scipy.signal.lfilter(b, a, x, axis=0) + 1, x)
    _whole(lambda x: scipy.signal.lfilter([x[0, 0], 0.5], [2.0, x[0, 1] / 9], x[1]), x)
    agree(lambda x: scipy.signal.lfilter(b, a, x.astype(np.float32)), x, backend="c", tolerance=1e-13)
    agree(lambda x: scipy.signal.lfilter(b, a, (x * 9).astype(int)), x, backend="c", tolerance=1e-13)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: scipy.signal.lfilter([1.0, 2.0], [x[0, 0], 1.0], x),
        lambda x: scipy.signal.lfilter(np.float32([1.0, 2.0]), np.float32([2.0, 1.0]), x.astype(np.float32)),
        lambda x: scipy.signal.lfilter([1.0], np.ones(12), x / 1e3),
        lambda x: scipy.signal.lfilter([1.0], [1.0, 0.5], x[0], zi=[0.5])[0],
        lambda x: scipy.ndimage.gaussian_filter((100 * x).astype(int), 1.0),
        lambda x: scipy.ndimage.correlate1d(x, [1.0, 2.0]),
        lambda x: scipy.ndimage.correlate1d(x, [1.0, 2.0, 1.0], origin=1),
        lambda x: scipy.ndimage.gaussian_filter(x, 1.0, order=1),
        lambda x: scipy.ndimage.correlate1d(x[:, :2], np.ones(7) / 7),
        lambda x: scipy.ndimage.gaussian_filter(x, 0.0),
    ],
)
def test_what_scipy_answers(function):
    agree(function, rng.normal(size=(6, 20)), backend="c", tolerance=1e-5)


def test_errors_are_scipys():
    x = np.ones((4, 30))
    for wrong in (
        lambda x: scipy.ndimage.gaussian_filter(x, [1.0, 2.0, 3.0]),
        lambda x: scipy.ndimage.correlate1d(x, [1.0, 2.0, 1.0], mode="mirrored"),
        lambda x: scipy.signal.savgol_filter(x, 5, 9),
        lambda x: scipy.signal.lfilter([1.0], [0.0, 1.0], x),
        lambda x: scipy.signal.savgol_filter(x, 31, 2),
    ):
        with pytest.raises((ValueError, RuntimeError)) as wanted:
            wrong(x)
        with pytest.raises(type(wanted.value)) as found:
            accelerate(wrong)(x)
        assert str(found.value) == str(wanted.value)
