"""Parameters that jax.numpy's functions gained later, as JAX has them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.trim_zeros(np.array([[0, 0, 0], [0, 3, 0], [0, 0, 0]]), axis=1),
        lambda m: m.delete(np.arange(5.0, dtype=np.float32), np.array([3, -5]), assume_unique_indices=True),
        lambda m: m.ravel_multi_index((np.array([1]), np.array([2])), (2, 3), mode="ignore", dtype="int8"),
        lambda m: m.argsort(np.array([3.0, 1.0, 2.0], np.float32), dtype="uint8"),
        lambda m: m.digitize(np.array([1.0, 2.0, 3.0, 0.5], np.float32), np.array([3.0, 1.0], np.float32)),
        lambda m: m.digitize(np.array([1.0, 2.0, 3.0, 0.5], np.float32), np.array([3.0, 1.0], np.float32), right=True),
        lambda m: m.sort_complex(np.array([2, 1], np.float16)),
        lambda m: m.trapezoid(np.ones((2, 3), np.float32), dx=np.array([1.0, 2.0], np.float32)),
        lambda m: m.take_along_axis(np.arange(3), np.array([-1, 0]), 0, mode="clip", wrap_negative_indices=False),
        lambda m: m.mgrid[()],
        lambda m: m.place(np.zeros(4, np.float32), np.array([1, 0, 1, 1], bool), np.array([5, 6], np.float32), inplace=False),
    ],
)  # fmt: skip
def test_newer_parameters_as_jax(call: Any) -> None:
    ours, theirs = call(fnp), call(jnp)
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    assert ours.dtype == theirs.dtype


def test_delete_at_traced_positions() -> None:
    x = np.arange(6, dtype=np.float32)
    at = fuser.jit(lambda x, i: fnp.delete(x, i, assume_unique_indices=True))
    for positions in ([1, 4], [5, 0], [-1, 2], [0, 1], [4, 5]):
        np.testing.assert_array_equal(at(x, np.array(positions)), np.delete(x, positions))
    np.testing.assert_array_equal(fuser.jit(fnp.delete)(x, 3), np.delete(x, 3))


def test_corrcoef_of_a_dtype() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) ** 2
    ours, theirs = (m.corrcoef(x, dtype="float16") for m in (fnp, jnp))
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(np.asarray(ours, np.float32), np.asarray(theirs, np.float32), atol=2e-3)
    with pytest.raises(ValueError, match="corrcoef: dtype must be a subclass of float or complex"):
        fnp.corrcoef(x, dtype=int)
