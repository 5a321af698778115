"""Functions written for other libraries, compiled: `accelerate` for NumPy and torch."""

from __future__ import annotations

from fuser.interop.accelerate import Accelerated, FallbackWarning, accelerate

__all__ = ["Accelerated", "FallbackWarning", "accelerate"]
