"""NumPy's Fourier transforms in accelerated functions: values, dtypes, strides, errors and what NumPy warns of."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import fuser

CALLS: list[Callable[[np.ndarray], np.ndarray]] = [
    np.fft.fft,
    np.fft.rfft,
    np.fft.fft2,
    np.fft.rfftn,
    lambda x: np.fft.irfft(np.fft.rfft(x), x.shape[-1]),
    lambda x: np.fft.ifftn(np.fft.fftn(x)),
    lambda x: np.fft.fft(x, 100),
    lambda x: np.fft.rfft(x, 300, norm="ortho"),
    lambda x: np.fft.fft(x, axis=0),
    lambda x: np.fft.fft2(x, (32, 32), norm="forward"),
    lambda x: np.fft.fftn(x, axes=(1, 0)),
    lambda x: np.fft.hfft(x),
    lambda x: np.fft.fft(x.T),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int16", "float16"])
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_as_numpy(number: int, dtype: str) -> None:
    rng = np.random.default_rng(number)
    x = (rng.normal(size=(48, 128)) * 8).astype(dtype)
    try:
        wanted = CALLS[number](x)
    except TypeError as error:
        with pytest.raises(TypeError) as found:
            fuser.accelerate(CALLS[number])(x)
        assert str(found.value) == str(error)
        return
    result = fuser.accelerate(CALLS[number], measure=False)(x)
    assert (result.dtype, result.shape, result.strides) == (wanted.dtype, wanted.shape, wanted.strides)
    eps = float(np.finfo(wanted.dtype).eps)
    np.testing.assert_allclose(result, wanted, rtol=0, atol=32 * eps * float(np.abs(wanted).max()))


def test_it_is_one_program() -> None:
    f = fuser.accelerate(lambda x: np.abs(np.fft.rfft(x)) ** 2, measure=False)
    f(np.ones(256))
    assert "compiled whole" in f.explain()


@pytest.mark.parametrize("value", [1e308, np.inf, np.nan])
def test_infinities_and_warnings_are_numpys(value: float) -> None:
    f = fuser.accelerate(lambda x: np.fft.fft(x), measure=False)
    x = np.ones(128)
    x[3:9] = value
    told, results = [], []
    for function in (np.fft.fft, f):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results.append(function(x))
        told.append([str(warning.message) for warning in caught])
    np.testing.assert_array_equal(*results)
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "function, shape",
    [
        (np.fft.irfft, (8, 1)),
        (np.fft.irfft2, (8, 1)),
        (np.fft.irfftn, (1,)),
        (np.fft.fft, (8, 0)),
        (lambda x: np.fft.fft(x, axis=3), (4, 8)),
        (lambda x: np.fft.rfftn(x, axes=(2, 3)), (4, 8)),
        (lambda x: np.fft.fft(x, 0), (4, 8)),
    ],
)
def test_what_numpy_refuses_is_refused(function: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    with pytest.raises(Exception, match=r".") as wanted:
        function(x)
    with pytest.raises(type(wanted.value)):
        fuser.accelerate(function, measure=False)(x)
