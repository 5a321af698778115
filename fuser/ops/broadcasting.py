"""`broadcast_in_dim` in NumPy: its eval rule, and what that rule does for arrays of one type, decided beforehand."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np


def broadcast(x: np.ndarray, shape: Any, broadcast_dimensions: Any) -> np.ndarray:
    """`x` with its dimensions at these places of `shape`, repeated along the others; a view where nothing is repeated."""
    return planned(x, shape, broadcast_dimensions)(x)  # type: ignore[no-any-return]


def planned(x: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    """`broadcast` for arrays of the shape of `x`."""
    if math.prod(x.shape) == math.prod(shape):
        return lambda x: x.reshape(shape)
    aligned = [1] * len(shape)
    for extent, d in zip(x.shape, broadcast_dimensions):
        aligned[d] = extent
    return functools.partial(_repeated, shape=shape, aligned=aligned)


def _repeated(x: np.ndarray, shape: Any, aligned: list[int]) -> np.ndarray:
    out = np.empty(shape, x.dtype)
    out[...] = x.reshape(aligned)
    return out


broadcast.planned = planned  # type: ignore[attr-defined]
