"""Weak types, short floats and operands of other ranks, against JAX: types by tracing alone, and errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.scipy.special
import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.scipy.special

PROGRAMS = {
    **{
        name: lambda m, x, name=name: getattr(m.numpy, name)(x)
        for name in ("median", "nanmedian", "log2", "log10", "log", "mean", "std")
    },
    "quantile": lambda m, x: m.numpy.quantile(x, 0.5),
    "hyp1f1": lambda m, x: m.scipy.special.hyp1f1(1, 2.0, x),
    "hyp2f1": lambda m, x: m.scipy.special.hyp2f1(1, 2, 3, x),
}
OPERANDS = (2, 0.5, np.float32(0.5), np.array([1, 2]), np.array([0.5, 1.5], np.float32), np.array([True]))


@pytest.mark.parametrize("operand", OPERANDS, ids=repr)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_weak_where_those_of_jax_are(name: str, operand: Any) -> None:
    wanted = jax.eval_shape(lambda: PROGRAMS[name](jax, operand))
    found = fuser.eval_shape(lambda: PROGRAMS[name](fuser, operand))
    assert (found.shape, found.dtype, found.weak_type) == (wanted.shape, wanted.dtype, wanted.weak_type)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8])
def test_characteristic_polynomials_of_short_numbers(dtype: Any) -> None:
    matrix = np.array([[1, 2], [3, 4]], dtype)
    found = fuser.numpy.poly(matrix)
    assert found.dtype == jax.eval_shape(jax.numpy.poly, matrix).dtype  # JAX has no eigenvalues of short floats
    np.testing.assert_allclose(found, np.poly(matrix.astype(np.float64)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("coefficients", [3, 2.5, 1j, np.zeros(1, np.float32), np.zeros(0, np.float32)], ids=repr)
def test_constants_have_no_roots_whatever_their_value(coefficients: Any) -> None:
    wanted = jax.jit(jax.numpy.roots)(coefficients)
    for find in (fuser.numpy.roots, fuser.jit(fuser.numpy.roots)):
        found = find(coefficients)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)


@pytest.mark.parametrize("x", [3, np.ones((2, 2), np.int32)], ids=repr)
def test_only_vectors_are_counted(x: Any) -> None:
    for m in (jax, fuser):
        with pytest.raises(ValueError, match="only 1-dimensional input supported"):
            m.numpy.bincount(x, length=3)
