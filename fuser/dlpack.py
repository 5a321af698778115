"""Arrays of other libraries through DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.ir.types import BOOL, COMPLEX, FLOATS, INTEGERS

__all__ = ["from_dlpack", "is_supported_dtype"]

_SUPPORTED = frozenset((BOOL, *INTEGERS, *FLOATS, *COMPLEX))


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
    """An array over the memory of `external_array` (`__dlpack__`), which must not be written while the array lives.

    `copy=True` gives it memory of its own. `device` is where the array is to lie, a Device or a sharding; ValueError with
    `copy=False` where it lies elsewhere.
    """
    return fnp.from_dlpack(external_array, device=device, copy=copy)


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of this dtype go through DLPack."""
    return np.dtype(dtype) in _SUPPORTED
