"""The Cauchy distribution around `loc`, of half width `scale`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.stats.support import density, floats, logarithm


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density 1 / (π·scale·(1 + z²)), with z = (x - loc) / scale, elementwise."""
    x, loc, scale = floats("cauchy.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return -(fnp.log(np.pi * scale) + fnp.log1p(z * z))


pdf = density(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    x, loc, scale = floats("cauchy.cdf", x, loc, scale)
    return 0.5 + fnp.arctan((x - loc) / scale) / np.pi


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x, elementwise."""
    x, loc, scale = floats("cauchy.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


logcdf = logarithm("logcdf", "The logarithm of `cdf`, elementwise.", cdf)
logsf = logarithm("logsf", "The logarithm of `sf`, elementwise.", sf)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The x with cdf(x) = q, elementwise."""
    q, loc, scale = floats("cauchy.ppf", q, loc, scale)
    return fnp.tan(np.pi * q - np.pi / 2) * scale + loc


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The x with sf(x) = q, elementwise."""
    q, loc, scale = floats("cauchy.isf", q, loc, scale)
    return fnp.tan(np.pi / 2 - np.pi * q) * scale + loc
