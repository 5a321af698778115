"""Products on the processor's matrix unit: int8, uint8 and bfloat16, of every shape and layout, against NumPy."""

from __future__ import annotations

import ctypes
import re

import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.lax
import fuser.numpy as fnp
from fuser import config
from fuser.backends.c.library.on_demand import gemm_text
from fuser.runtime import toolchain

KINDS = {"int8": "amx_int8", "uint8": "amx_int8", "bfloat16": "amx_bf16"}
SHAPES = [(16, 16, 64), (33, 17, 65), (5, 1000, 7), (100, 77, 301), (700, 40, 513), (40, 3000, 2100), (1025, 130, 66)]
LAYOUTS = ["rows", "columns", "apart"]


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    if layout == "apart":
        wide = np.full((2 * x.shape[0], 3 * x.shape[1]), 77, x.dtype)
        wide[::2, ::3] = x
        return wide[::2, ::3]
    return np.asfortranarray(x) if layout == "columns" else x


def operand(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    if kind == "bfloat16":
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    ends = np.iinfo(kind)
    return rng.integers(ends.min, ends.max, shape, kind, endpoint=True)


def compiled(kind: str, out: str, unit: bool = True) -> ctypes.CDLL:
    """gemm as this processor has it, with or without its matrix unit."""
    if unit and KINDS[kind] not in toolchain.processor().split():
        pytest.skip("this processor has no matrix unit")
    text = gemm_text(np.dtype(kind), np.dtype(out))
    return toolchain.load_shared(toolchain.compile_shared(text if unit else without_unit(text)).path)


def without_unit(text: str) -> str:
    return re.sub(r"#define TILE_DOT .*\n", "", text, count=1)


def product(library: ctypes.CDLL, a: np.ndarray, b: np.ndarray, out: str) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    result = np.full((m, n + 3), 77, out)  # what lies beyond the columns stays
    strides = [s // x.itemsize for x in (a, b) for s in x.strides]
    numbers = (m, n, k, *strides, n + 3, 0, 0)
    pointers = (ctypes.c_void_p * 3)(a.ctypes.data, b.ctypes.data, result.ctypes.data)
    library.gemm(pointers, (ctypes.c_int64 * len(numbers))(*numbers))
    assert np.all(result[:, n:] == 77)
    return result[:, :n]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS)
def test_every_shape_and_layout(kind: str, first: str, second: str) -> None:
    """Integers are exact and wrap around; sums of bfloat16 are of float32."""
    out = "float32" if kind == "bfloat16" else "int32"
    library, rng = compiled(kind, out), np.random.default_rng(0)
    for m, n, k in SHAPES:
        a, b = (operand(rng, kind, shape) for shape in ((m, k), (k, n)))
        found = product(library, laid_out(a, first), laid_out(b, second), out)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        if out == "int32":
            np.testing.assert_array_equal(found, exact.astype(np.int64).astype(np.int32))
        else:
            bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
            assert np.all(np.abs(found - exact) <= 1e-6 * bound)


@pytest.mark.parametrize("kind", KINDS)
def test_the_unit_takes_these_products(kind: str) -> None:
    """Both ways give the same integers; sums of bfloat16 go along blocks of 32 on the unit, and element by element without."""
    out = "float32" if kind == "bfloat16" else "int32"
    rng = np.random.default_rng(0)
    a, b = (operand(rng, kind, shape) for shape in ((64, 640), (640, 96)))
    unit, other = (product(compiled(kind, out, has), a, b, out) for has in (True, False))
    if out == "int32":
        np.testing.assert_array_equal(unit, other)
    else:
        assert np.any(unit != other)
        np.testing.assert_allclose(unit, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(300, 200, 500), (40, 3000, 700), (3000, 40, 700), (7, 900, 900)], ids=str)
def test_bits_do_not_depend_on_threads_layouts_and_epilogues(kind: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = operand(rng, kind, (m, k)), operand(rng, kind, (k, n))
    wide = fnp.float32 if kind == "bfloat16" else fnp.int32
    plain = fuser.jit(lambda a, b: fnp.matmul(a, b, preferred_element_type=wide), backend="c")
    turned = fuser.jit(lambda a, b: fnp.matmul(a, b.T, preferred_element_type=wide), backend="c")
    after = fuser.jit(lambda a, b: fnp.abs(fnp.matmul(a, b, preferred_element_type=wide)) + 1, backend="c")
    expected, before = np.asarray(plain(a, b)), config.threads
    for count in (1, 2, 5):
        config.update("threads", count)
        np.testing.assert_array_equal(np.asarray(plain(a, b)), expected)
        np.testing.assert_array_equal(np.asarray(turned(a, np.ascontiguousarray(b.T))), expected)
        np.testing.assert_array_equal(np.asarray(after(a, b)), np.abs(expected) + 1)
    config.update("threads", before)


@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
@pytest.mark.parametrize("numbers", [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")], ids=str)
@pytest.mark.parametrize("strides, dilation, channels", [((1, 1), 1, 64), ((2, 1), 1, 3), ((1, 1), 2, 17)])
def test_convolutions_read_windows_where_they_lie(kind, numbers, strides, dilation, channels) -> None:
    """As convolutions of int32, or of float32, which no matrix unit has."""
    rng = np.random.default_rng(0)
    image, kernel = (2, channels, 19, 23), (40, channels, 3, 3)
    if numbers[0] == "NHWC":
        image, kernel = (2, 19, 23, channels), (3, 3, channels, 40)
    x, w = operand(rng, kind, image), operand(rng, kind, kernel)
    wide = np.float32 if kind == "bfloat16" else np.int32

    @fuser.jit(backend="c")
    def convolved(x, w):
        dilated = (dilation, dilation)
        return fuser.lax.conv_general_dilated(
            x, w, strides, "SAME", None, dilated, dimension_numbers=numbers, preferred_element_type=wide
        )

    np.testing.assert_allclose(convolved(x, w), convolved(x.astype(wide), w.astype(wide)), rtol=1e-4, atol=1e-3)


def test_batches() -> None:
    rng = np.random.default_rng(0)
    a, b = operand(rng, "int8", (11, 3, 40, 70)), operand(rng, "int8", (11, 3, 70, 50))
    found = np.asarray(fuser.jit(lambda a, b: fnp.matmul(a, b, preferred_element_type=fnp.int32), backend="c")(a, b))
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


def test_nan_and_infinity_go_through() -> None:
    a, b = np.zeros((40, 70), ml_dtypes.bfloat16), np.ones((70, 50), ml_dtypes.bfloat16)
    b[35, 25], a[20, 0], a[39, 69] = np.inf, np.nan, np.inf
    found = np.asarray(fuser.jit(fnp.matmul, backend="c")(a, b)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))
