"""One program run in fuser and in JAX: results must agree in tree, shapes, dtypes, weak types and values.

A program takes the library as `m` and writes `m.grad`, `m.numpy`, `m.lax`, `m.random`, ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import fuser
from fuser.runtime.array import Array
from tests.tolerances import JAX


def agree(program: Callable[[Any], Any], tolerance: float | None = None, weak: bool = True) -> Any:
    """Run the program in both and compare; fuser's result comes back."""
    found, expected = program(fuser), program(jax)
    compare(found, expected, tolerance, weak)
    return found


def compare(found: Any, expected: Any, tolerance: float | None = None, weak: bool = True, where: str = "") -> None:
    """AssertionError where the results differ; `where` is the path inside them."""
    if isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) or isinstance(found, type(expected)), (where, type(found), type(expected))
        assert len(found) == len(expected), where
        for n, (f, e) in enumerate(zip(found, expected)):
            compare(f, e, tolerance, weak, f"{where}[{n}]")
    elif isinstance(expected, dict):
        assert isinstance(found, dict) and found.keys() == expected.keys(), where
        for key in expected:
            compare(found[key], expected[key], tolerance, weak, f"{where}[{key!r}]")
    elif isinstance(expected, (jax.Array, np.ndarray)):
        _leaf(found, expected, tolerance, weak, where)
    else:
        assert found == expected, (where, found, expected)


def _leaf(found: Any, expected: Any, tolerance: float | None, weak: bool, where: str) -> None:
    assert found.shape == expected.shape, (where, found.shape, expected.shape)
    assert np.dtype(found.dtype) == np.dtype(expected.dtype), (where, found.dtype, expected.dtype)
    if weak and isinstance(found, Array) and isinstance(expected, jax.Array):
        assert found.weak_type == expected.weak_type, (where, "weak", found.weak_type, expected.weak_type)
    if np.dtype(expected.dtype).kind == "V" and np.dtype(expected.dtype).itemsize == 0:
        return
    left, right = np.asarray(found), np.asarray(expected)
    if left.dtype.kind in "biu":
        np.testing.assert_array_equal(left, right, err_msg=where)
        return
    rtol = JAX[left.dtype] if tolerance is None else tolerance
    kind = complex if left.dtype.kind == "c" else float
    size = np.abs(right[np.isfinite(right)]).max(initial=0) if right.size else 0
    np.testing.assert_allclose(left.astype(kind), right.astype(kind), rtol=rtol, atol=rtol * float(size), err_msg=where)


def both_raise(program: Callable[[Any], Any], *kinds: type[BaseException]) -> str:
    """Both libraries refuse the program, fuser with one of `kinds`, which is JAX's or a class of it; fuser's message."""
    try:
        program(jax)
    except Exception as error:
        theirs: BaseException = error
    else:
        raise AssertionError("JAX accepts this program")
    try:
        result = program(fuser)
    except kinds as error:
        assert kinds[0] is NotImplementedError or isinstance(theirs, kinds), (type(theirs), kinds)
        return str(error)
    raise AssertionError(f"fuser accepts this program: {result}")
