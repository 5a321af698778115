"""Window functions of M points, with NumPy's names: floats (M,); ones for M = 1, nothing for M ≤ 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.numpy import maths
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import arange, ones

__all__ = ["bartlett", "blackman", "hamming", "hanning", "kaiser"]


def _positions(count: int, shape: Callable[[Any, int], Any]) -> Any:
    dtype = dtypes.canonical(float)
    if count <= 1:
        return ones(max(count, 0), dtype)
    return shape(arange(count, dtype=dtype), count - 1)


def bartlett(M: int) -> Any:
    """A triangle from 0 to 1 and back: 1 - |2n/(M - 1) - 1|."""
    return _positions(M, lambda n, last: 1 - U.abs(2 * n + 1 - (last + 1)) / last)


def blackman(M: int) -> Any:
    """0.42 - 0.5·cos(2πn/(M - 1)) + 0.08·cos(4πn/(M - 1))."""
    return _positions(M, lambda n, last: 0.42 - 0.5 * U.cos(2 * np.pi * n / last) + 0.08 * U.cos(4 * np.pi * n / last))


def hamming(M: int) -> Any:
    """0.54 - 0.46·cos(2πn/(M - 1))."""
    return _positions(M, lambda n, last: 0.54 - 0.46 * U.cos(2 * np.pi * n / last))


def hanning(M: int) -> Any:
    """0.5 - 0.5·cos(2πn/(M - 1))."""
    return _positions(M, lambda n, last: 0.5 * (1 - U.cos(2 * np.pi * n / last)))


def kaiser(M: int, beta: Any) -> Any:
    """I0(β·√(1 - (2n/(M - 1) - 1)²)) / I0(β), I0 being the modified Bessel function."""

    return _positions(
        M, lambda n, last: maths.i0(beta * U.sqrt(1 - U.square((n - 0.5 * last) / (0.5 * last)))) / maths.i0(beta)
    )
