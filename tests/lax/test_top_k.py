"""top_k beside JAX: few and many, orders that are hard on it, ties, signed zeros and nan, along any axis."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fuser
from fuser import lax

RNG = np.random.default_rng(0)
ODD = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-42, -1.0], np.float32)


def rows(kind: str, n: int) -> np.ndarray:
    x = RNG.standard_normal((5, n)).astype(np.float32)
    made = {
        "any": x,
        "ascending": np.sort(x, -1),
        "descending": -np.sort(x, -1),
        "ties": np.round(x),
        "odd": RNG.choice(ODD, (5, n)),
    }
    return made[kind]


@pytest.mark.parametrize("kind", ["any", "ascending", "descending", "ties", "odd"])
def test_rows(kind: str) -> None:
    for n in (33, 300, 1001):
        x = rows(kind, n)
        for k in (0, 1, 5, 32, 33):
            found, expected = fuser.jit(lambda x: lax.top_k(x, k))(x), jax.lax.top_k(x, k)  # noqa: B023
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_array_equal(np.asarray(a).view(np.int32), np.asarray(b).view(np.int32))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "float16"])
def test_dtypes_and_axes(dtype: str) -> None:
    x = RNG.integers(0, 100, (40, 7, 6)).astype(dtype)
    for axis in range(3):
        found = fuser.jit(lambda x: lax.top_k(x, 4, axis=axis))(x)  # noqa: B023
        expected = jax.lax.top_k(np.moveaxis(x, axis, -1), 4)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.moveaxis(np.asarray(a), axis, -1), b)


def test_one_long_row_by_all_threads() -> None:
    x = RNG.standard_normal(200_000).astype(np.float32)
    for k in (3, 32, 100):
        found, expected = fuser.jit(lambda x: lax.top_k(x, k))(x), jax.lax.top_k(x, k)  # noqa: B023
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
