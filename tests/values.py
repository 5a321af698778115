"""Values that find mistakes: nan, infinities, both zeros, subnormals, integer edges; and comparison to the bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fuser.ir.types import BOOL, KEY, SMALL, SMALL_INTEGERS, is_complex


def special(dtype: np.dtype) -> np.ndarray:
    """The edges of a dtype, and a few plain values between them."""
    dtype = np.dtype(dtype)
    if dtype == BOOL:
        return np.array([False, True])
    if dtype == KEY:
        return np.array(tuples(*[special(np.dtype("uint32"))] * 2), np.uint32).T.copy().view(KEY)[:, 0]
    if dtype in SMALL_INTEGERS:
        info = ml_dtypes.iinfo(dtype)
        return np.arange(int(info.min), int(info.max) + 1).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        edges = [
            info.min,
            info.min + 1,
            info.max,
            info.max - 1,
            info.max // 2 + 1,
            0,
            1,
            2,
            3,
            7,
            8,
            dtype.itemsize * 8,
        ]
        if dtype.kind == "i":
            edges += [-1, -2, -3, -7, -8]
        return np.array([int(e) for e in edges], dtype)
    if is_complex(dtype):
        part = special(np.dtype(f"float{dtype.itemsize * 4}"))
        part = part[np.abs(np.nan_to_num(part, nan=1, posinf=1, neginf=1)) < 100]
        with np.errstate(all="ignore"):
            return (part[:, None] + 0 * 1j).astype(dtype).ravel() if part.size == 0 else _pairs(part, dtype)
    info = ml_dtypes.finfo(dtype)
    tiny, least, top = float(info.smallest_normal), float(info.smallest_subnormal), float(info.max)
    eps = float(info.eps)
    numbers = [
        0.0,
        0.5,
        1.0,
        1.0 + eps,
        1.5,
        2.0,
        2.5,
        3.0,
        0.1,
        7.25,
        10.0,
        100.0,
        tiny,
        least,
        least * 5,
        top,
        top / 3,
        eps,
        0.75,
        13.5,
    ]
    numbers += [-n for n in numbers]
    if dtype not in SMALL:
        numbers += [np.inf, -np.inf, np.nan]
    with np.errstate(all="ignore"):
        return np.array(numbers).astype(dtype)


def _pairs(part: np.ndarray, dtype: np.dtype) -> np.ndarray:
    result = np.empty((part.size, part.size), dtype)
    result.real, result.imag = part[:, None], part[None, :]
    return result.ravel()


def tuples(*arrays: np.ndarray) -> list[np.ndarray]:
    """Every combination of the arrays' elements, as flat arrays of equal length."""
    return [np.ascontiguousarray(g.ravel()) for g in np.meshgrid(*arrays, indexing="ij")]


def filled(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> np.ndarray:
    """An array of `shape` with special values and random ones among them."""
    rng = np.random.default_rng(seed)
    pool = special(dtype)
    return np.ascontiguousarray(pool[rng.integers(0, pool.size, shape)]).reshape(shape)


def ordinal(x: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order, so that neighbours differ by 1; both zeros are 0."""
    bits = x.view(np.dtype(f"int{x.dtype.itemsize * 8}")).astype(np.int64)
    least = -(2 ** (x.dtype.itemsize * 8 - 1))
    return np.where(bits < 0, least - bits, bits)


def ulps_apart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How many representable values lie between each pair, as floats; nan against nan is 0, nan against a number inf."""
    a, b = ordinal(x), ordinal(y)
    with np.errstate(over="ignore"):
        near = np.abs(a - b).astype(np.float64)
    distance = np.where((a < 0) == (b < 0), near, np.abs(a.astype(np.float64)) + np.abs(b.astype(np.float64)))
    nan_x, nan_y = np.isnan(x.astype(np.float64)), np.isnan(y.astype(np.float64))
    return np.where(nan_x & nan_y, 0, np.where(nan_x | nan_y, np.inf, distance))


def same_bits(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where two arrays agree: equal, with the sign of zero, nan equal to nan."""
    if is_complex(x.dtype):
        return same_bits(x.real, y.real) & same_bits(x.imag, y.imag)
    if x.dtype.kind in "iub" or x.dtype == KEY:
        return x == y
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    return ((wide_x == wide_y) & (np.signbit(wide_x) == np.signbit(wide_y))) | (np.isnan(wide_x) & np.isnan(wide_y))
