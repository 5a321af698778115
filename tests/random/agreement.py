"""The same call of fuser.random and of jax.random with the same key, eager and jitted, compared in values and types."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import ml_dtypes
import numpy as np

import fuser
from fuser.config import config

SEED = 7
WAYS = ("eager", "reference", "c")


@contextlib.contextmanager
def precision(x64: bool) -> Iterator[None]:
    """Both libraries with 64-bit types on or off; what they say of narrowed dtypes is not printed."""
    with jax.enable_x64(x64), config.using(enable_x64=x64), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def expected(name: str, *args: Any, **kwargs: Any) -> Any:
    """What JAX gives for the key of `SEED`."""
    return jax.random.__dict__[name](jax.random.key(SEED), *args, **kwargs)


def found(way: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """What fuser gives, one operation after the other, or jitted for a backend."""
    function: Callable[..., Any] = getattr(fuser.random, name)
    if way == "eager":
        return function(fuser.random.key(SEED), *args, **kwargs)
    with config.using(backend=way):
        return fuser.jit(lambda key: function(key, *args, **kwargs))(fuser.random.key(SEED))


def assert_alike(got: Any, want: Any, what: Any, tolerance: float = 0) -> None:
    """Equal shape, dtype and weak type; integers equal, floats within `tolerance` in units of eps, relative to max(1, |x|)."""
    assert (got.shape, got.dtype, got.weak_type) == (want.shape, want.dtype, want.weak_type), what
    x, y = np.asarray(got), np.asarray(want)
    if tolerance == 0 or x.dtype.kind in "iub":
        assert np.array_equal(x, y, equal_nan=x.dtype.kind not in "iub"), f"{what}: {(x != y).sum()} of {x.size} differ"
        return
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    eps = float(ml_dtypes.finfo(x.dtype).eps)
    with np.errstate(all="ignore"):
        error = np.abs(x.astype(wide) - y.astype(wide)) / np.maximum(np.abs(y.astype(wide)), 1) / eps
    error = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, error)
    assert error.max(initial=0) <= tolerance, f"{what}: {error.max()} eps"
