"""A module of the user's, with state that the tests change."""

from __future__ import annotations

import numpy as np

scale = 2.0
table = np.arange(3.0)
settings = {"shift": 1.0, "mode": "add"}


def helper(x: np.ndarray) -> np.ndarray:
    return x * scale + np.ones(3)
