"""SciPy's functions on arrays, under jax.scipy's names."""

from fuser.scipy import special

__all__ = ["special"]
