"""jax.interpreters.xla's names: how values of types that libraries define become arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.gaps import absent
from fuser.lax.values import CONVERSIONS, from_numpy

__all__ = ["canonicalize_dtype_handlers"]


class _Handlers:
    """type -> a function from its values to arrays; every type has one, which takes what NumPy makes of the value."""

    def __getitem__(self, kind: type) -> Callable[[Any], Any]:
        return CONVERSIONS.get(kind, lambda value: from_numpy(np.asarray(value)))

    def __setitem__(self, kind: type, convert: Callable[[Any], Any]) -> None:
        CONVERSIONS[kind] = convert


class _Types:
    """type -> a function from its values to the type of the array that each one stands for. A conversion says that already."""

    def __getitem__(self, kind: type) -> Callable[[Any], Any]:
        return lambda value: canonicalize_dtype_handlers[kind](value).aval

    def __setitem__(self, kind: type, type_of: Callable[[Any], Any]) -> None:
        CONVERSIONS.setdefault(kind, canonicalize_dtype_handlers[kind])


canonicalize_dtype_handlers = _Handlers()
pytype_aval_mappings = _Types()

__getattr__ = absent(__name__)
