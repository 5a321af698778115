"""searchsorted, digitize and interp against NumPy and JAX: ties, nan in table and values, every size about powers of two."""

from __future__ import annotations

import jax.numpy
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp

SIZES = [1, 2, 3, 8, 33]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_places_in_tables_of_all_sizes(dtype, side):
    """One program for all sizes; tables with runs of equals, values before, at, between and after them."""
    rng = np.random.default_rng(0)
    tables = [np.sort(rng.integers(0, 3 + size // 2, size)).astype(dtype) for size in SIZES]
    values = np.arange(60).astype(dtype) / (2 if dtype == "float32" else 1)
    values = values.astype(dtype)
    if dtype == "float32":
        values[:6] = [np.nan, np.inf, -np.inf, -0.0, 0.0, -1.0]
        for table in tables[1::2]:
            table[-1] = np.nan
    found = fuser.jit(lambda tables, v: [fnp.searchsorted(t, v, side) for t in tables])(tables, values)
    for table, places in zip(tables, found, strict=True):
        expected = np.asarray(jax.numpy.searchsorted(table, values, side))
        np.testing.assert_array_equal(places, expected)
        np.testing.assert_array_equal(places, np.searchsorted(table, values, side))
        assert np.asarray(places).dtype == expected.dtype


def test_interpolation_and_bins():
    rng = np.random.default_rng(1)
    edges, heights = np.sort(rng.random(37)).astype(np.float32), rng.random(37).astype(np.float32)
    x = np.concatenate([rng.uniform(-0.2, 1.2, 500), edges, [np.inf, -np.inf]]).astype(np.float32)
    found = fuser.jit(lambda x, e, h: (fnp.interp(x, e, h), fnp.digitize(x, e), fnp.digitize(x, e[::-1], True)))(
        x, edges, heights
    )
    np.testing.assert_allclose(found[0], jax.numpy.interp(x, edges, heights), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], np.digitize(x, edges))
    np.testing.assert_array_equal(found[2], np.digitize(x, edges[::-1], True))
