"""Types for annotations, as jax.typing has them."""

from __future__ import annotations

from typing import Any, Protocol, Union, runtime_checkable

import numpy as np

from fuser.numpy.types import Array

__all__ = ["ArrayLike", "DTypeLike"]


@runtime_checkable
class SupportsDType(Protocol):
    """An object with a `dtype`."""

    @property
    def dtype(self) -> np.dtype: ...


# What functions take where they want an array, and where they want a dtype.
ArrayLike = Union[Array, np.ndarray, np.bool_, np.number, bool, int, float, complex]  # noqa: UP007
DTypeLike = Union[str, type[Any], np.dtype, SupportsDType]  # noqa: UP007
