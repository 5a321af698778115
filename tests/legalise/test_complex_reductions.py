"""Products and running sums of complex numbers: no step runs in NumPy, also in loops; results against NumPy in complex128."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.lax as lax
import fuser.numpy as fnp

RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: str = "complex64") -> np.ndarray:
    values = np.exp(1j * RNG.uniform(0, 2 * np.pi, shape)) * RNG.uniform(0.9, 1.1, shape)
    return values.astype(dtype)


def explained(function: Any, *arguments: Any) -> str:
    return fuser.jit(function).lower(*arguments).plan.explain()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "shape, axes",
    [
        ((1,), 0),
        ((2,), 0),
        ((9,), 0),
        ((33, 7), 0),
        ((33, 7), 1),
        ((5, 6, 7), (0, 2)),
        ((5, 6, 7), None),
        ((0, 3), 0),
        ((3, 0), 0),
    ],
)
def test_products(shape: tuple[int, ...], axes: Any, dtype: str) -> None:
    x = drawn(*shape, dtype=dtype)
    with fuser.config.using(enable_x64=True):
        found = np.asarray(fuser.jit(lambda x: fnp.prod(x, axes))(x))
        assert x.size == 0 or "a library call" not in explained(lambda x: fnp.prod(x, axes), x)
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == "complex64" else 1e-13
    np.testing.assert_allclose(found, np.prod(x.astype("complex128"), axes), rtol=tolerance)


@pytest.mark.parametrize("axis, reverse", [(0, False), (1, False), (1, True)])
def test_running_sums(axis: int, reverse: bool) -> None:
    x = drawn(40, 50)
    function = lambda x: lax.cumsum(x, axis=axis, reverse=reverse)
    expected = np.flip(np.cumsum(np.flip(x.astype("complex128"), axis), axis), axis) if reverse else np.cumsum(x, axis)
    np.testing.assert_allclose(np.asarray(fuser.jit(function)(x)), expected, rtol=1e-4, atol=1e-4)
    assert "a library call" not in explained(function, x)


def test_a_product_in_a_loop_calls_no_python() -> None:
    """Weierstrass's iteration for all roots of a polynomial, which divides by a product in each step."""
    coefficients = np.array([1, 0, 0, -1], np.complex64)

    def roots(c: Any) -> Any:
        def step(_: Any, z: Any) -> Any:
            apart = z[:, None] - z[None] + fnp.eye(3, dtype=z.dtype)
            return z - fnp.polyval(c, z) / fnp.prod(apart, 1)

        return lax.fori_loop(0, 40, step, ((0.4 + 0.9j) ** fnp.arange(3)).astype("complex64"))

    found = np.asarray(fuser.jit(roots)(coefficients))
    np.testing.assert_allclose(found**3, np.ones(3), atol=1e-5)
    assert "a library call" not in explained(roots, coefficients)
