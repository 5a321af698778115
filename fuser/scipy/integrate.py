"""Integrals of samples, with jax.scipy.integrate's names."""

from fuser.lax.ranks import install as _install_ranks
from fuser.numpy.series import trapezoid

__all__ = ["trapezoid"]

_install_ranks(globals(), "fuser.scipy")
