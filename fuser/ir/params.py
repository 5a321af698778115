"""Params of equations as keys: values that compare by value and can be hashed."""

from __future__ import annotations

from typing import Any

import numpy as np


def freeze(value: Any) -> Any:
    """A parameter's value in a form that compares by value."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes())
    return value
