"""Matrix products of the C backend against NumPy in float64, for all dtypes, shapes with ragged edges, and strides."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp

SHAPES = [
    ((3, 4), (4, 5)),
    ((130, 70), (70, 61)),
    ((1, 300), (300, 77)),
    ((77, 300), (300,)),
    ((300,), (300,)),
    ((5, 33, 17), (5, 17, 9)),
    ((200, 500), (500, 300)),
    ((2, 3, 0), (2, 0, 4)),
    ((100, 3), (3, 100)),
]
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.uint8, np.int64]
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-13, np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products(dtype, shapes):
    rng = np.random.default_rng(0)
    a, b = ((rng.standard_normal(s) * 3).astype(dtype) for s in shapes)
    with fuser.config.using(enable_x64=True):
        result = np.asarray(fuser.jit(fnp.matmul, backend="c")(a, b))
    assert result.dtype == dtype
    if dtype in TOLERANCE:
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        assert np.all(np.abs(result.astype(np.float64) - exact) <= TOLERANCE[dtype] * bound)
    else:
        np.testing.assert_array_equal(result, (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype))


def test_strided_operands_are_not_copied_first():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((70, 130)).astype(np.float32), rng.standard_normal((61, 70)).astype(np.float32)
    f = fuser.jit(lambda x, y: x.T @ y.T, backend="c")
    assert len(f.lower(a, b).plan.groups) == 1
    np.testing.assert_allclose(f(a, b), a.T @ b.T, rtol=1e-4, atol=1e-4)


def test_the_same_bits_for_the_same_product():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((300, 700)).astype(np.float32), rng.standard_normal((700, 200)).astype(np.float32)
    f = fuser.jit(fnp.matmul, backend="c")
    first = np.asarray(f(a, b))
    for _ in range(5):
        np.testing.assert_array_equal(first, f(a, b))
