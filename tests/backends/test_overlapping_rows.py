"""Rows whose largest, smallest, all or any is taken: of what is left after their whole vectors, one more that overlaps the last."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.c.function import Variable
from fuser.backends.c.schedules import masking

EXTENTS = (15, 16, 17, 31, 50, 63, 64, 65, 100, 196, 1001)
DTYPES = (np.float32, np.float64, np.int8, np.uint16, np.int64, ml_dtypes.bfloat16, np.float16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extent", EXTENTS)
def test_extremes_of_rows_of_every_length(dtype: Any, extent: int) -> None:
    x = np.random.default_rng(extent).integers(0, 100, (23, extent)).astype(dtype)
    x[np.arange(23), np.arange(23) % extent] = 101  # the largest at each place, the last ones too
    x[np.arange(23), -1 - np.arange(23) % extent] = 102
    for function in (lambda x: x.max(1), lambda x: x.min(1), lambda x: (x + x).max(1), lambda x: (x.max(1), x.min(1))):
        with fuser.enable_x64():
            found = fuser.jit(function, backend="c")(x)
            wanted = fuser.jit(function, backend="reference")(x)
        for a, b in zip(np.atleast_2d(found), np.atleast_2d(wanted), strict=True):
            np.testing.assert_array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))


@pytest.mark.parametrize("place", (0, 15, 16, 47, 48, 49, 52))
def test_nan_anywhere_in_a_row_is_its_largest(place: int) -> None:
    x = np.zeros((5, 53), np.float32)
    x[2, place] = np.nan
    found = np.asarray(fuser.jit(lambda x: fnp.max(fnp.exp(x), axis=1))(x))
    np.testing.assert_array_equal(np.isnan(found), [False, False, True, False, False])


@pytest.mark.parametrize("extent", EXTENTS)
def test_all_and_any_of_tests(extent: int) -> None:
    x = np.ones((extent + 1, extent), np.float32)
    x[np.arange(extent), np.arange(extent)] = -1
    found = fuser.jit(lambda x: ((x > 0).all(1), (x < 0).any(1)))(x)
    np.testing.assert_array_equal(found[0], (x > 0).all(1))
    np.testing.assert_array_equal(found[1], (x < 0).any(1))


@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.int16))
@pytest.mark.parametrize("extent", EXTENTS)
def test_rows_that_are_stored_beside_one_reduction_of_all(extent: int, dtype: Any) -> None:
    """Elements of the last vector are stored twice; what is stored of them does not depend on that."""
    x = np.random.default_rng(extent).integers(-50, 50, (200, 3, extent + 1)).astype(dtype)
    for largest in (100, 0):
        x[-1, -1, -1] = largest
        with fuser.enable_x64():
            function = fuser.jit(lambda x: (x[..., 1:] - x[..., :-1], (x[..., 1:] > 60).any(), x[..., 1:].max()))
            difference, found, most = map(np.asarray, function(x))
        np.testing.assert_array_equal(difference, np.diff(x, axis=-1))
        assert found == (x[..., 1:] > 60).any()
        assert most == x[..., 1:].max()


@pytest.mark.parametrize("extent", EXTENTS)
def test_rows_that_are_read_again_after_their_extreme(extent: int) -> None:
    """Softmax keeps rows of exponentials for its last sweep: they lie in the result, whose last vector is under a mask."""
    x = np.random.default_rng(extent).standard_normal((23, extent)).astype(np.float32) * 10
    x[3, extent // 2] = np.nan
    x[5, -1] = -np.inf
    found = np.asarray(
        fuser.jit(
            lambda x: fnp.exp(x - x.max(1, keepdims=True)) / fnp.exp(x - x.max(1, keepdims=True)).sum(1)[:, None]
        )(x)
    )
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("dtype", (np.float32, ml_dtypes.bfloat16))
def test_several_extremes_of_one_row_one_after_the_other(dtype: Any) -> None:
    """Each is of what is left without half of the one before: three runs over the row, of which two overlap."""
    x = np.random.default_rng(5335).standard_normal(80).astype(dtype)

    def left(x: Any) -> tuple[Any, Any]:
        first = x - x.max(keepdims=True) * 0.5
        second = first - first.max(keepdims=True) * 0.5
        return first, (second - second.max(keepdims=True) * 0.5) ** 2

    for found, wanted in zip(fuser.jit(left)(x), left(x.astype(np.float64)), strict=True):
        np.testing.assert_allclose(
            np.asarray(found, np.float64), wanted, rtol=1e-5 if dtype == np.float32 else 0.1, atol=1e-2
        )


def test_what_stands_for_elements_beyond_a_row_is_no_constant() -> None:
    """gcc 12 takes a choice of a masked load or a constant for the load, whose other lanes are what a register held before."""
    counter = Variable("x", "int64_t")
    _, outside = masking.tested(counter, "100")
    assert counter in outside


@pytest.mark.parametrize("extent", EXTENTS)
def test_rows_that_wait_in_their_result_are_not_taken_up_twice(extent: int) -> None:
    """The gradient of a cross entropy keeps its exponentials where the result will be, and reads them once."""
    random = np.random.default_rng(extent)
    x = random.standard_normal((33, extent)).astype(np.float32)
    labels = random.integers(0, extent, 33).astype(np.int32)

    def loss(x: Any) -> Any:
        return -fnp.mean(fnp.take_along_axis(fuser.nn.log_softmax(x, axis=-1), labels[:, None], axis=-1))

    found = np.asarray(fuser.jit(fuser.value_and_grad(loss), backend="c")(x)[1])
    e = np.exp(x.astype(np.float64))
    expected = (e / e.sum(1, keepdims=True) - (np.arange(extent) == labels[:, None])) / 33
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-7)
