"""gcd, lcm and i0 against JAX: values, dtypes, signs, zeros, and what they refuse."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp


@pytest.mark.parametrize("name", ["gcd", "lcm"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16"])
def test_divisors_and_multiples(name, dtype):
    rng = np.random.default_rng(0)
    low = 0 if dtype[0] == "u" else -11
    x, y = (rng.integers(low, 12, (40,)).astype(dtype) for _ in range(2))
    x[:2] = 0
    y[:1] = 0
    ours, theirs = getattr(fnp, name)(x, y), getattr(jnp, name)(x, y)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(fuser.jit(getattr(fnp, name))(x, y), theirs)


def test_only_integers_divide():
    with pytest.raises(ValueError, match="gcd takes integers, got f32\\[2\\] and f32\\[2\\]"):
        fnp.gcd(fnp.ones(2), fnp.ones(2))
    with pytest.raises(ValueError):
        jnp.gcd(jnp.ones(2), jnp.ones(2))


def test_bessel():
    x = np.linspace(-5, 5, 41, dtype=np.float32)
    np.testing.assert_allclose(fnp.i0(x), jnp.i0(x), rtol=1e-6)
    np.testing.assert_allclose(fuser.jit(fnp.i0)(x), np.i0(x.astype(np.float64)), rtol=1e-6)
