"""Tables of associated Legendre functions against SciPy's in float64, and against JAX's."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import pytest
import scipy.special

import fuser
import fuser.numpy as fnp
import fuser.scipy.special as special

POINTS = np.linspace(-0.9, 0.95, 7)


def _expected(degree: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Values and derivatives by SciPy, (order, degree, point)."""
    both = scipy.special.assoc_legendre_p_all(degree, degree, POINTS, diff_n=1)
    values, slopes = (np.swapaxes(t[:, : degree + 1], 0, 1) for t in both)
    return values, slopes


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 7])
def test_values_and_derivatives(degree: int) -> None:
    values, slopes = special.lpmn(degree, degree, POINTS.astype(np.float32))
    assert values.shape == slopes.shape == (degree + 1, degree + 1, len(POINTS))
    assert values.dtype == slopes.dtype == np.float32
    expected, derivatives = _expected(degree)
    # A value of a degree is a sum of two terms that may cancel, each as large as the greatest of its order.
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(slopes, derivatives, rtol=1e-4, atol=1e-6 * np.abs(derivatives).max())


def test_64_bits_and_normalised_ones() -> None:
    with fuser.enable_x64(True):
        z = fnp.asarray(POINTS)
        values, slopes = special.lpmn(7, 7, z)
        expected, derivatives = _expected(7)
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-14 * np.abs(expected).max())
        np.testing.assert_allclose(slopes, derivatives, rtol=1e-12, atol=1e-14 * np.abs(derivatives).max())
        normalised = special.lpmn_values(7, 7, z, True)
    order, degree = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
    log_ratio = scipy.special.gammaln(np.maximum(degree - order, 0) + 1) - scipy.special.gammaln(degree + order + 1)
    factors = np.sqrt((2 * degree + 1) / (4 * np.pi) * np.exp(log_ratio))
    np.testing.assert_allclose(normalised, expected * factors[..., None], rtol=1e-12, atol=1e-13)


def test_at_the_ends() -> None:
    z = np.array([-1, 1], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs = jax.scipy.special.lpmn(4, 4, jnp.asarray(z))
    for mine, other in zip(special.lpmn(4, 4, z), theirs):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_compiled_differentiated_and_mapped() -> None:
    z = POINTS.astype(np.float32)
    compiled = fuser.jit(lambda x: special.lpmn(3, 3, x))(z)
    for one, other in zip(compiled, special.lpmn(3, 3, z)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    _, tangent = fuser.jvp(lambda x: special.lpmn_values(3, 3, x, False), (z,), (np.ones_like(z),))
    np.testing.assert_allclose(tangent, special.lpmn(3, 3, z)[1], rtol=1e-4, atol=1e-4)
    mapped = fuser.vmap(lambda x: special.lpmn_values(3, 3, x, True))(np.stack([z, -z]))
    np.testing.assert_allclose(mapped[1], special.lpmn_values(3, 3, -z, True), rtol=1e-5, atol=1e-6)


def test_what_is_refused() -> None:
    z = POINTS.astype(np.float32)
    with pytest.raises(TypeError, match=r"z\.dtype=int32 is not supported by lpmn; convert z to float32 or float64"):
        special.lpmn(2, 2, np.arange(3, dtype=np.int32))
    with pytest.raises(ValueError, match=r"z must be a 1D array, lpmn got shape \(1, 7\)"):
        special.lpmn(2, 2, z[None])
    with pytest.raises(NotImplementedError, match=r"Computations for m!=n are not yet supported, lpmn_values got m=1"):
        special.lpmn_values(1, 2, z, True)
