"""What the Python array API standard, version 2024.12, asks of a namespace besides its functions: version, devices, dtypes.

https://data-apis.org/array-api/2024.12/API_specification/inspection.html
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.runtime.array import install
from fuser.trace.core import Tracer

VERSION = "2024.12"
_BITS = {"signed integer": (8, 16, 32, 64), "unsigned integer": (8, 16, 32, 64), "real floating": (32, 64), "complex floating": (64, 128)}  # fmt: skip
_STEMS = {"signed integer": "int", "unsigned integer": "uint", "real floating": "float", "complex floating": "complex"}
_UNIONS = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
    None: ("bool", "signed integer", "unsigned integer", "real floating", "complex floating"),
}


class ArrayNamespaceInfo:
    """What the namespace can do, by the standard's inspection functions."""

    def capabilities(self) -> dict[str, Any]:
        """Under jit the shape of a result may not depend on values, hence no boolean indexing."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """None: an array lies where its operands do."""

    def devices(self) -> list[Any]:
        """The devices that arrays can be put on, and None."""
        return [None, *importlib.import_module("fuser").devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of what is made of Python's numbers, with or without `enable_x64`."""
        integer = dtypes.canonical(int)
        return {
            "real floating": dtypes.canonical(float),
            "complex floating": dtypes.canonical(complex),
            "integral": integer,
            "indexing": integer,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """The standard's dtypes of a kind, of several (a tuple), or all, by name; 64-bit ones with `enable_x64` alone."""
        kinds = kind if isinstance(kind, tuple) else (kind,)
        found: dict[str, np.dtype[Any]] = {}
        for one in (part for k in kinds for part in _UNIONS.get(k, (k,))):
            names = ["bool"] if one == "bool" else [f"{_STEMS[one]}{bits}" for bits in _BITS[one]]
            found |= {n: np.dtype(n) for n in names if dtypes.canonical(n) == np.dtype(n)}
        return found


def namespace_info() -> ArrayNamespaceInfo:
    """The inspection functions of the standard."""
    return ArrayNamespaceInfo()


def namespace(self: Any, *, api_version: str | None = None) -> ModuleType:
    """`fuser.numpy`; ValueError for a version of the standard that it does not follow."""
    if api_version is not None and api_version != VERSION:
        raise ValueError(f"{api_version=!r} is not available; available versions are: {[VERSION]}")
    return importlib.import_module("fuser.numpy")


install("__array_namespace__", namespace)
Tracer.__array_namespace__ = namespace  # type: ignore[attr-defined]
