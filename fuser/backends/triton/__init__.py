"""The Triton backend: one readable file of `@triton.jit` functions a group, for NVIDIA and AMD GPUs."""

from __future__ import annotations

from fuser.backends.triton.backend import BACKEND

__all__ = ["BACKEND"]
