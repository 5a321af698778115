"""Matrix products of the C backend against NumPy in float64, for all dtypes, shapes with ragged edges, and strides."""

from __future__ import annotations

import ctypes

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
    ((64, 40, 40), (64, 40, 40)),
    ((3, 100, 40), (3, 40, 100)),
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


@pytest.mark.parametrize(
    "shape", [(256, 784, 512), (700, 300, 40), (20, 40, 900), (15, 400, 33), (512, 256, 10)], ids=str
)
@pytest.mark.parametrize("transposed", ["nn", "tn", "nt", "tt"])
def test_products_of_transposed_operands(shape, transposed):
    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    a = rng.standard_normal((inner, rows) if transposed[0] == "t" else (rows, inner)).astype(np.float32)
    b = rng.standard_normal((columns, inner) if transposed[1] == "t" else (inner, columns)).astype(np.float32)
    turn = lambda x, y: (x.T if transposed[0] == "t" else x, y.T if transposed[1] == "t" else y)
    result = np.asarray(fuser.jit(lambda x, y: fnp.matmul(*turn(x, y)), backend="c")(a, b))
    x, y = (each.astype(np.float64) for each in turn(a, b))
    assert np.all(np.abs(result - x @ y) <= 1e-5 * (np.abs(x) @ np.abs(y)))


@pytest.mark.parametrize("shape", [(256, 300, 512), (13, 300, 700), (1024, 300, 300)], ids=str)
def test_results_do_not_depend_on_the_number_of_threads(shape):
    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, inner), (inner, columns)))
    f = fuser.jit(fnp.matmul, backend="c")
    threads = ctypes.CDLL("libgomp.so.1")
    before, results = threads.omp_get_max_threads(), []
    for count in (1, 2, 5):
        threads.omp_set_num_threads(count)
        results.append(np.asarray(f(a, b)))
    threads.omp_set_num_threads(before)
    assert all(np.array_equal(results[0], other) for other in results[1:])
