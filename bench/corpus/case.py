"""One function of the corpus: plain NumPy, how its arguments are made, and how many elements they have in a timed run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """`function(*make(random, size))` is a call. `numexpr` is the same computation as an expression of numexpr's, where it is one."""

    function: Callable[..., Any]
    make: Callable[[np.random.Generator, int], tuple[Any, ...]]
    size: int
    numexpr: str | None = None
    small: int = 900  # elements in the tests

    @property
    def name(self) -> str:
        return self.function.__name__


def side(size: int) -> int:
    """The side of a square grid of about `size` points: even, at least 8."""
    return max(8, math.isqrt(size) // 2 * 2)


def grid(random: np.random.Generator, size: int, dtype: str = "float64") -> np.ndarray:
    """A square grid of numbers between 0 and 1."""
    return random.random((side(size), side(size))).astype(dtype)


def photograph(random: np.random.Generator, size: int, colours: int = 0) -> np.ndarray:
    """A smooth picture with noise, of bytes; with `colours` channels if any."""
    extent = side(size)
    y, x = np.mgrid[:extent, :extent] / extent
    shape = (extent, extent, colours) if colours else (extent, extent)
    smooth = 120 + 80 * np.sin(6 * x + 2) * np.cos(9 * y)
    noise = random.normal(0, 12, shape)
    return np.clip((smooth[..., None] if colours else smooth) + noise, 0, 255).astype(np.uint8)
