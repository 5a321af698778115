"""The normal distribution of mean `loc` and standard deviation `scale`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import log_ndtr, ndtr, ndtri
from fuser.scipy.stats.support import density, floats


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density exp(-z²/2) / (scale·√(2π)), with z = (x - loc) / scale, elementwise."""
    x, loc, scale = floats("norm.logpdf", x, loc, scale)
    square = fnp.square(scale)
    return -(fnp.log(2 * np.pi * square) + fnp.square(x - loc) / square) / 2


pdf = density(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    x, loc, scale = floats("norm.cdf", x, loc, scale)
    return ndtr((x - loc) / scale)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `cdf`, exact far below the mean, elementwise."""
    x, loc, scale = floats("norm.logcdf", x, loc, scale)
    return log_ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x, elementwise."""
    x, loc, scale = floats("norm.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `sf`, exact far above the mean, elementwise."""
    x, loc, scale = floats("norm.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The x with cdf(x) = q, elementwise; nan for q outside [0, 1]."""
    q, loc, scale = floats("norm.ppf", q, loc, scale)
    return ndtri(q) * scale + loc


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The x with sf(x) = q, elementwise; nan for q outside [0, 1]."""
    q, loc, scale = floats("norm.isf", q, loc, scale)
    return ppf(1 - q, loc, scale)
