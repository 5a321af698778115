"""Backends: one folder each, all with the protocol of `base.py`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuser.backends.base import Backend

NAMES = ("c", "triton", "tpu", "reference")


def get(name: str) -> Backend:
    """The backend of this name; ValueError lists those there are."""
    if name not in NAMES:
        raise ValueError(
            f"no backend {name!r}; the backends are {', '.join(NAMES)} (c is for processors, triton for NVIDIA's GPUs, tpu for TPUs)"
        )
    return importlib.import_module(f"fuser.backends.{name}").BACKEND  # type: ignore[no-any-return]
