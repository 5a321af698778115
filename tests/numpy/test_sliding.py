"""Convolution and correlation beside NumPy and JAX: lengths of both forms, dtypes, what is not finite, derivatives, kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.numpy.sliding import TOGETHER, WRITTEN_OUT
from fuser.partition.group import Kind

RNG = np.random.default_rng(0)
MODES = ("full", "same", "valid")
LENGTHS = ((1, 1), (7, 1), (40, 3), (3, 40), (100, WRITTEN_OUT), (100, WRITTEN_OUT + 1), (70, 8 * TOGETHER), (90, 90))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_both_agree_with_numpy(lengths: tuple[int, int]) -> None:
    a, v = (RNG.standard_normal(n).astype(np.float32) for n in lengths)

    @fuser.jit
    def found(a: object, v: object) -> list[object]:
        return [f(a, v, mode) for f in (fnp.convolve, fnp.correlate) for mode in MODES]

    expected = [f(a, v, mode) for f in (np.convolve, np.correlate) for mode in MODES]
    for x, y in zip(found(a, v), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5 * max(lengths) ** 0.5)


@pytest.mark.parametrize("dtype", ["float16", "int32", "uint8", "bool", "complex64", "float64"])
def test_accelerate_has_numpys_dtypes(dtype: str) -> None:
    draw = lambda n: RNG.integers(0, 100, n).astype(dtype) if dtype != "complex64" else np.exp(1j * RNG.random(n) * 9)
    a, v = draw(60).astype(dtype), draw(30).astype(dtype)

    def program(a: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
        return [np.convolve(a, v), np.correlate(a, v, "same"), np.correlate(v, a, "full")]

    for x, y in zip(fuser.accelerate(program)(a, v), program(a, v), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol={"float16": 5e-3, "complex64": 1e-5}.get(dtype, 1e-13), atol=1e-5)


def test_integers_are_exact() -> None:
    a, v = RNG.integers(-(2**30), 2**30, 100), RNG.integers(-(2**20), 2**20, 40)
    np.testing.assert_array_equal(fuser.accelerate(np.convolve)(a, v), np.convolve(a, v))


def test_what_is_not_finite_stays_where_it_is() -> None:
    a, v = RNG.standard_normal(200).astype(np.float32), RNG.standard_normal(50).astype(np.float32)
    a[20], a[120] = np.inf, np.nan
    found, expected = np.asarray(fuser.jit(fnp.convolve)(a, v)), np.convolve(a, v)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_allclose(found[np.isfinite(expected)], expected[np.isfinite(expected)], atol=1e-4)


def test_derivatives_and_batches() -> None:
    a, v = RNG.standard_normal((3, 80)).astype(np.float32), RNG.standard_normal(WRITTEN_OUT + 9).astype(np.float32)

    def loss(n: object, of: object) -> object:
        return lambda a, v: (n.sin(of(lambda a: n.convolve(a, v, "same"))(a)) ** 2).sum()

    found = fuser.jit(fuser.grad(loss(fnp, fuser.vmap), (0, 1)))(a, v)
    expected = jax.grad(loss(jnp, jax.vmap), (0, 1))(a, v)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-4)


def test_long_ones_are_one_loop_over_shifts() -> None:
    a, v = np.ones(5_000, np.float32), np.ones(300, np.float32)
    kinds = [g.kind for g in fuser.jit(lambda a, v: fnp.convolve(a, v, "valid")).lower(a, v).plan.kernels]
    assert kinds == [Kind.LOOP]
    kinds = [g.kind for g in fuser.jit(lambda a, v: fnp.convolve(a, v)).lower(a, v[:9]).plan.kernels]
    assert set(kinds) == {Kind.ELEMENTWISE}
