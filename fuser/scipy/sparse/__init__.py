"""Sparse linear algebra, with jax.scipy.sparse's names."""

from fuser.scipy.sparse import linalg

__all__ = ["linalg"]
