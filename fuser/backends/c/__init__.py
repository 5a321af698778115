"""The C backend: one translation unit a plan, OpenMP, vectorised libm; matrix products and library calls beside it."""

from __future__ import annotations

from fuser.backends.c.backend import BACKEND

__all__ = ["BACKEND"]
