"""Rows of bools and narrow integers that are read into 32 bits before they are reduced."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.c.function import symbols

EXTENTS = (15, 16, 17, 31, 40, 48, 63, 64, 65, 80, 100, 127, 256, 300, 1001, 5000)
ROWS = 67


def softmax(x: Any, m: Any) -> Any:
    y = fnp.where(m, x, -fnp.inf)
    e = fnp.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def softmax_in_doubles(x: Any, m: Any) -> Any:
    e = np.where(m, np.exp(x), 0)
    return e / e.sum(1, keepdims=True)


MASKED = {
    "softmax": (softmax, softmax_in_doubles),
    "sum": (lambda x, m: fnp.where(m, x, 0).sum(1), lambda x, m: np.where(m, x, 0).sum(1)),
    "product": (lambda x, m: (x * m).sum(1), lambda x, m: (x * m).sum(1)),
    "mean": (lambda x, m: x.mean(1, where=m), lambda x, m: x.mean(1, where=m)),
    "variance": (lambda x, m: x.var(1, where=m), lambda x, m: x.var(1, where=m)),
    "largest": (
        lambda x, m: fnp.exp(x).max(1, where=m, initial=-1),
        lambda x, m: np.exp(x).max(1, where=m, initial=-1),
    ),
    "one mask": (lambda x, m: fnp.where(m[3], fnp.exp(x), 0).sum(1), lambda x, m: np.where(m[3], np.exp(x), 0).sum(1)),
    "two masks": (
        lambda x, m: fnp.where(m & ~m[5], fnp.exp(x), x).sum(1),
        lambda x, m: np.where(m & ~m[5], np.exp(x), x).sum(1),
    ),
}


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("name", MASKED)
def test_masked_rows_of_every_length(name: str, extent: int) -> None:
    rng = np.random.default_rng(extent)
    x, m = rng.standard_normal((ROWS, extent)).astype(np.float32), rng.random((ROWS, extent)) < 0.6
    m[:, 0] = True
    function, oracle = MASKED[name]
    found = np.asarray(fuser.jit(function, backend="c")(x, m))
    np.testing.assert_allclose(found, oracle(x.astype(np.float64), m), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("place", (0, 63, 95, 96, 99))
def test_nan_that_is_chosen_is_largest_and_one_that_is_not_is_nothing(place: int) -> None:
    x, m = np.full((4, 100), -5, np.float32), np.ones((4, 100), bool)
    x[1:3, place], m[1, place] = np.nan, False
    m[3] = False
    found = np.asarray(fuser.jit(softmax, backend="c")(x, m))
    np.testing.assert_allclose(found[0], np.full(100, 0.01), rtol=1e-6)
    np.testing.assert_allclose(found[1], np.where(m[1], 1 / 99, 0), rtol=1e-6)
    assert np.isnan(found[2:]).all()


@pytest.mark.parametrize("dtype", (np.int8, np.uint8, np.int16, np.uint16))
@pytest.mark.parametrize("extent", (40, 65, 100, 300))
def test_rows_of_narrow_integers(dtype: Any, extent: int) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(extent).integers(info.min, info.max + 1, (ROWS, extent)).astype(dtype)
    x[:, -1], x[:, 0] = info.min, info.max

    def normalised(x: Any) -> Any:
        f = x.astype(np.float32) / 64
        return (f - f.mean(1, keepdims=True)) / (f.std(1, keepdims=True) + 1)

    found = np.asarray(fuser.jit(normalised, backend="c")(x))
    f = x.astype(np.float64) / 64
    np.testing.assert_allclose(
        found, (f - f.mean(1, keepdims=True)) / (f.std(1, keepdims=True) + 1), rtol=1e-4, atol=1e-5
    )


def test_rows_are_widened_where_it_pays() -> None:
    """Sums and functions of maths under a mask; not rows of bytes alone, nor extremes, which gcc's vectors of bytes take at once."""
    x, m = np.ones((200, 100), np.float32), np.ones((200, 300), bool)

    def wide(function: Any, *args: Any) -> bool:
        (source,) = fuser.jit(function, backend="c").lower(*args).sources
        return "widen_bool_to_int32" in source.text

    m = m[:, :100].copy()
    assert wide(softmax, x, m)
    assert wide(lambda x, m: fnp.where(m, x, 0).sum(1), x, m)
    assert wide(softmax, x[:, :40].copy(), m[:, :40].copy())
    assert not wide(lambda m: m.sum(1), m)
    assert not wide(lambda x, m: x.max(1, where=m, initial=0), x, m)
    assert not wide(lambda x: fnp.exp(x).sum(1), x)


def test_the_last_row_is_read_to_its_end_alone() -> None:
    """What a row of bools leaves over is read under a mask: the array may end where readable memory does."""
    size = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * size)
    rows = size // 100
    bools = np.frombuffer(memory, bool)[size - rows * 100 : size].reshape(rows, 100)
    bools[:] = np.arange(100) % 3 == 0
    x = np.ones((rows, 100), np.float32)
    libc, second = ctypes.CDLL(None, use_errno=True), bools.ctypes.data + rows * 100
    assert libc.mprotect(ctypes.c_void_p(second), ctypes.c_size_t(size), 0) == 0
    found = np.asarray(fuser.jit(lambda x, m: fnp.where(m, x, 0).sum(1), backend="c")(x, bools))
    np.testing.assert_array_equal(found, np.full(rows, 34.0))
    assert libc.mprotect(ctypes.c_void_p(second), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_pieces_of_one_row_have_wide_rows_of_their_own() -> None:
    """Rotations of rows and columns, written out: masks of bools are read into wide rows in several pieces of a row."""

    def rotated(xnp: Any, a: Any, put: Any) -> Any:
        for i in range(5):
            for j in range(i + 1, 5):
                angle = 0.5 * xnp.arctan2(2 * a[i, j], a[i, i] - a[j, j])
                c, s = xnp.cos(angle), xnp.sin(angle)
                x, y = a[i] + 0, a[j] + 0
                a = put(put(a, (i,), c * x + s * y), (j,), c * y - s * x)
                x, y = a[:, i] + 0, a[:, j] + 0
                a = put(put(a, (slice(None), i), c * x + s * y), (slice(None), j), c * y - s * x)
        return a

    def put(a: Any, index: Any, value: Any) -> Any:
        a = a.copy()
        a[index] = value
        return a

    x = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    found = fuser.jit(lambda a: rotated(fnp, a, lambda a, index, value: a.at[index].set(value)), backend="c")(x)
    np.testing.assert_allclose(found, rotated(np, x.astype(np.float64), put), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize("extent", (16, 40, 64, 65, 77, 300, 1001, 5000))
def test_rows_of_halves_have_the_bits_that_a_loop_gives_them(dtype: str, extent: int) -> None:
    """Infinities, nan with digits of its own, subnormal numbers and ties among them: each result is rounded once, to even."""
    bits = np.random.default_rng(extent).integers(0, 1 << 16, (ROWS, extent)).astype(np.uint16)
    x = bits.view(fnp.dtype(dtype))
    top, half = lambda x: x.max(1, keepdims=True), np.float32(0.50048828125)

    def rounded(x: Any) -> Any:
        f = x.astype("float32")
        return (f * half).astype(dtype), (f + top(x).astype("float32") * 0).astype(dtype), f.sum(1)

    def alone(x: Any) -> Any:
        return (x.astype("float32") * half).astype(dtype)

    together, large, _ = fuser.jit(rounded, backend="c")(x)
    expected = np.asarray(fuser.jit(alone, backend="reference")(x))
    nan = np.isnan(expected.astype(np.float32))
    found = np.asarray(together)
    np.testing.assert_array_equal(found.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])
    assert np.isnan(found.astype(np.float32)[nan]).all()
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float32)
        want = (wide + wide.max(1, keepdims=True) * 0).astype(x.dtype)
    np.testing.assert_array_equal(np.asarray(large).astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_rows_of_halves_are_converted_once(dtype: str) -> None:
    """As normalised rows are: three sweeps that each would convert, and a store that would round."""
    x = np.random.default_rng(0).standard_normal((ROWS, 200)).astype(np.float32)

    def normalised(x: Any) -> Any:
        f = x.astype("float32")
        d = f - f.mean(1, keepdims=True)
        return (d / (fnp.sqrt((d * d).mean(1, keepdims=True)) + 1e-5)).astype(x.dtype)

    halves = x.astype(fnp.dtype(dtype))
    (source,) = fuser.jit(normalised, backend="c").lower(halves).sources
    assert not {f"{dtype}_load", f"{dtype}_round"} & set(symbols(source.code.parts))
    found = np.asarray(fuser.jit(normalised, backend="c")(halves)).astype(np.float64)
    exact = halves.astype(np.float64)
    exact -= exact.mean(1, keepdims=True)
    exact /= np.sqrt((exact * exact).mean(1, keepdims=True)) + 1e-5
    np.testing.assert_allclose(found, exact, rtol=2 ** (-7 if dtype == "bfloat16" else -10), atol=1e-6)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_a_donated_row_of_halves_is_overwritten_once_it_is_read(dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, 77)).astype(np.float32).astype(fnp.dtype(dtype))

    def scaled(x: Any) -> Any:
        f = x.astype("float32")
        return (f - f.max(1, keepdims=True) + f.min(1, keepdims=True)).astype(x.dtype)

    expected = np.asarray(fuser.jit(scaled, backend="reference")(x))
    given = fnp.array(x)
    found = np.asarray(fuser.jit(scaled, donate_argnums=0, backend="c")(given))
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))
