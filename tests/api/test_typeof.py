"""`typeof` against JAX: values of Python and NumPy have the type of the array that they become."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp

VALUES = [1.0, True, 1, 1j, np.float64(3), np.int64(3), np.zeros(3), np.zeros((2, 1), np.float16), np.uint8(1)]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__}-{np.asarray(v).dtype}")
@pytest.mark.parametrize("x64", [False, True])
def test_types_of_values(value: Any, x64: bool) -> None:
    with jax.enable_x64(x64), fuser.enable_x64(x64):
        mine, theirs = fuser.typeof(value), jax.typeof(value)
    assert (mine.shape, mine.dtype, mine.weak_type) == (theirs.shape, theirs.dtype, theirs.weak_type)


@pytest.mark.parametrize("value", [[1, 2], "a", None, object()], ids=["list", "string", "none", "object"])
def test_what_has_no_type(value: Any) -> None:
    with pytest.raises(TypeError):
        jax.typeof(value)
    with pytest.raises(TypeError, match=f"The problematic value is of type {type(value)}"):
        fuser.typeof(value)


def test_types_of_arrays_and_tracers() -> None:
    found = []

    @fuser.jit
    def f(x: Any) -> Any:
        found.append(fuser.typeof(x))
        return x

    x = fnp.ones((2, 3), np.int8)
    f(x)
    assert [*found, fuser.typeof(x), fuser.typeof(x.aval)] == [x.aval] * 3
