"""The oracle: the same call in fuser and in JAX, compared in values, shape, dtype and weak type.

Arguments are NumPy arrays and Python values and go to both as they are, or as `Weak(value)`: an array with a weak type.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fuser.numpy as fnp
from fuser.config import config

# Relative tolerance by the bits of the mantissa that a dtype has.
TOLERANCES = {
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
    "float32": 2e-5,
    "float64": 1e-12,
    "complex64": 3e-5,
    "complex128": 1e-11,
}


@dataclass(frozen=True)
class Weak:
    """A Python scalar given as an array of rank 0 with a weak type."""

    value: Any


@contextlib.contextmanager
def precision(x64: bool) -> Iterator[None]:
    """Both libraries with 64-bit types on or off."""
    with jax.enable_x64(x64), config.using(enable_x64=x64):
        yield


def ours(value: Any) -> Any:
    if isinstance(value, Weak):
        return fnp.asarray(value.value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(ours, value))
    return fnp.asarray(value) if isinstance(value, np.ndarray) else value


def theirs(value: Any) -> Any:
    if isinstance(value, Weak):
        return jnp.asarray(value.value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(theirs, value))
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def agree(
    ours_function: Callable[..., Any],
    theirs_function: Callable[..., Any],
    *args: Any,
    tolerance: float = 1.0,
    **kwargs: Any,
) -> None:
    """Both functions on the same arguments give the same, or both raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with jax.disable_jit():  # primitive by primitive: XLA then compiles far fewer programs
                expected = theirs_function(*map(theirs, args), **{k: theirs(v) for k, v in kwargs.items()})
        except Exception as error:
            _same_error(error, lambda: ours_function(*map(ours, args), **{k: ours(v) for k, v in kwargs.items()}))
            return
        found = ours_function(*map(ours, args), **{k: ours(v) for k, v in kwargs.items()})
    compare(found, expected, tolerance)


def _same_error(error: Exception, call: Callable[[], Any]) -> None:
    try:
        result = call()
    except Exception as found:
        kinds = (TypeError, ValueError, IndexError, OverflowError, NotImplementedError)
        expected = tuple(k for k in kinds if isinstance(error, k)) or (type(error),)
        assert isinstance(found, expected), f"JAX raises {error!r}, fuser raises {found!r}"
        return
    raise AssertionError(f"JAX raises {error!r}, fuser gives {result!r}")


def compare(found: Any, expected: Any, tolerance: float = 1.0) -> None:
    """The same structure, shapes, dtypes, weak types and values."""
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for f, e in zip(found, expected):
            compare(f, e, tolerance)
        return
    if not isinstance(expected, jax.Array):
        assert found == expected, (found, expected)
        return
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert found.weak_type == expected.weak_type, f"weak: fuser {found.weak_type}, JAX {expected.weak_type}"
    compare_values(np.asarray(found), np.asarray(expected), tolerance)


def compare_values(found: np.ndarray, expected: np.ndarray, tolerance: float = 1.0) -> None:
    """Equal for integers and bools, within the dtype's tolerance for floats."""
    relative = TOLERANCES.get(expected.dtype.name)
    if relative is None:
        wide = np.float32 if expected.dtype.kind == "V" or expected.dtype.name.startswith("float8") else expected.dtype
        np.testing.assert_array_equal(found.astype(wide), expected.astype(wide))
        return
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        found.astype(kind), expected.astype(kind), rtol=relative * tolerance, atol=relative * tolerance
    )


def same(name: str, *args: Any, **kwargs: Any) -> None:
    """`fuser.numpy.name` against `jax.numpy.name`."""
    agree(getattr(fnp, name), getattr(jnp, name), *args, **kwargs)


def numbers(
    dtype: Any, shape: tuple[int, ...] = (3, 4), seed: int = 0, low: float = -3.0, high: float = 3.0
) -> np.ndarray:
    """Random values of any dtype; the floats hold 0, -0.0 and repeated values too."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(max(int(low), 0 if dtype.kind == "u" else -100), int(high) + 5, shape).astype(dtype)
    values = rng.uniform(low, high, shape)
    if dtype.kind == "c":
        values = values + 1j * rng.uniform(low, high, shape)
    return values.astype(dtype)
