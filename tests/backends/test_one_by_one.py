"""Elements that are read one by one, in groups that are stored as vectors and what groups leave, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp

RNG = np.random.default_rng(5)
EXTENTS = (0, 1, 7, 8, 9, 31, 64, 1023, 1024, 1033, 2500)
DTYPES = (np.bool_, np.uint8, np.int16, np.int32, np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extent", EXTENTS)
def test_tables(extent: int, dtype: Any) -> None:
    table = RNG.integers(0, 100, 300).astype(dtype)
    for places in (RNG.integers(0, 256, extent).astype(np.uint8), RNG.integers(0, 300, extent).astype(np.int32)):
        with fuser.enable_x64():
            found = fuser.jit(lambda t, i: (t[i], t[i] == t[0]), backend="c")(table, places)
        np.testing.assert_array_equal(np.asarray(found[0]), table[places])
        np.testing.assert_array_equal(np.asarray(found[1]), table[places] == table[0])


@pytest.mark.parametrize("extent", EXTENTS[1:])
def test_results_over_the_places_they_are_read_at(extent: int) -> None:
    table = RNG.standard_normal(300).astype(np.float32)
    places = RNG.integers(0, 300, extent).astype(np.int32)
    found = fuser.jit(lambda i, t: t[i], donate_argnums=0, backend="c")(fnp.array(places), table)
    np.testing.assert_array_equal(np.asarray(found), table[places])


@pytest.mark.parametrize("extent", EXTENTS[1:])
def test_places_of_places_and_work_around_them(extent: int) -> None:
    first, second = RNG.integers(0, 50, 300).astype(np.int32), RNG.standard_normal(50).astype(np.float32)
    places, x = RNG.integers(0, 300, extent).astype(np.int32), RNG.standard_normal(extent).astype(np.float32)

    def program(a: Any, b: Any, i: Any, x: Any) -> Any:
        return fnp.exp(b[a[i]]) * x, x[::-1] + b[i % 50]

    found = fuser.jit(program, backend="c")(first, second, places, x)
    np.testing.assert_allclose(np.asarray(found[0]), np.exp(second[first[places]]) * x, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(found[1]), x[::-1] + second[places % 50], rtol=1e-6)
