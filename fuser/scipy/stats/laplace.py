"""The Laplace distribution around `loc`."""

from __future__ import annotations

from typing import Any

from fuser import numpy as fnp
from fuser.scipy.stats.support import density, floats


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density exp(-|z|) / (2·scale), with z = (x - loc) / scale, elementwise."""
    x, loc, scale = floats("laplace.logpdf", x, loc, scale)
    return -(fnp.abs(x - loc) / scale + fnp.log(2 * scale))


pdf = density(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    x, loc, scale = floats("laplace.cdf", x, loc, scale)
    z = (x - loc) / scale
    return fnp.where(z <= 0, 0.5 * fnp.exp(z), 1 - 0.5 * fnp.exp(-z))
