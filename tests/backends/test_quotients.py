"""Integer quotients and remainders by way of floats, by constants and alone, against NumPy in whole numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import lax

DTYPES = tuple(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))


def numbers(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Dividends and divisors of all sizes, and the neighbours of multiples, where rounding would tell."""
    random, info = np.random.default_rng(7), np.iinfo(dtype)
    any_of = lambda low, high, count: random.integers(low, high, count, dtype, endpoint=True)
    a = np.concatenate([any_of(info.min, info.max, 4000), any_of(0, 100, 4000)])
    b = np.concatenate([any_of(info.min, info.max, 2000), any_of(0, 100, 6000)])
    divisor = any_of(1, int(info.max**0.5), 4000)
    multiple = any_of(1, int(info.max**0.5) - 1, 4000) * divisor
    edges = np.array([info.min, info.min, info.max, info.max, 0, 1], dtype)
    by = np.array([info.max, 1, 1, info.max, 0, 0], dtype)
    if info.min < 0:
        edges, by = np.append(edges, [info.min, 5]).astype(dtype), np.append(by, [-1, -1]).astype(dtype)
    if info.bits == 64:  # where doubles are coarser than what is left
        divisor[:64] = info.max >> random.integers(0, 63, 64, dtype)
        multiple[:64] = info.max // divisor[:64] * divisor[:64]
    near = [multiple, multiple + dtype.type(1), multiple - dtype.type(1)]
    return np.concatenate([a, *near, edges]), np.concatenate([b, divisor, divisor, divisor, by])


def truncated(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounded towards zero, as XLA has them: -1 and the dividend for divisors of 0."""
    x, y = a.astype(object), b.astype(object)
    q = np.array([-1 if d == 0 else abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1) for n, d in zip(x, y)], object)
    r = np.array([n if d == 0 else abs(n) % abs(d) * (-1 if n < 0 else 1) for n, d in zip(x, y)], object)
    wrap = (1 << 8 * a.dtype.itemsize) - 1
    as_dtype = lambda v: np.array([int(n) & wrap for n in v], f"uint{8 * a.dtype.itemsize}").view(a.dtype)
    return as_dtype(q), as_dtype(r)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quotients_are_exact(dtype: np.dtype) -> None:
    a, b = numbers(dtype)
    with fuser.enable_x64():
        found = fuser.jit(lambda a, b: (lax.div(a, b), lax.rem(a, b)))(a, b)
        constant = fuser.jit(lambda a: (lax.div(a, a.dtype.type(100)), lax.rem(a, a.dtype.type(100))))(a)
    for got, expected in zip(found, truncated(a, b)):
        np.testing.assert_array_equal(got, expected)
    for got, expected in zip(constant, truncated(a, np.full_like(a, 100))):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_remainders_by_constants_are_exact(dtype: np.dtype) -> None:
    """Also those by 0, by -1 of the least number, and by the largest."""
    a, _ = numbers(dtype)
    info = np.iinfo(dtype)
    with fuser.enable_x64():
        for by in (0, 1, 3, 26, info.max, *((-1, -7, info.min) if info.min else ())):
            divisor = dtype.type(by)
            found = fuser.jit(functools.partial(lambda by, a: lax.rem(a, by), divisor))(a)
            np.testing.assert_array_equal(found, truncated(a, np.full_like(a, by))[1])


@pytest.mark.parametrize("dtype", (np.int32, np.uint32))
def test_one_number_alone_is_divided_as_it_is(dtype: Any) -> None:
    def powers(m: Any) -> Any:
        return lax.fori_loop(0, 50, lambda i, x: (x * x + i.astype(dtype)) % m, fuser.numpy.asarray(dtype(12345)))

    x, m = 12345, 65521
    for i in range(50):
        x = (int(dtype(x * x + i) if dtype is np.uint32 else np.int64(x * x + i).astype(np.int32))) % m
    jitted = fuser.jit(powers)
    with np.errstate(over="ignore"):
        assert int(jitted(dtype(m))) == x
    (source,) = [s for s in jitted.lower(dtype(m)).sources if "remainder" in s.text]
    assert "remainder_int32_alone(" in source.text or "remainder_uint32_alone(" in source.text
