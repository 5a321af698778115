"""Integrals of samples, with jax.scipy.integrate's names."""

from fuser.numpy.series import trapezoid

__all__ = ["trapezoid"]
