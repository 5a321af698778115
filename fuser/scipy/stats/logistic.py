"""The logistic distribution around `loc`."""

from __future__ import annotations

from typing import Any

from fuser import numpy as fnp
from fuser.scipy.special import expit, logit
from fuser.scipy.stats.support import adaptable, density, floats


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density exp(-z) / (scale·(1 + exp(-z))²), with z = (x - loc) / scale, elementwise."""
    x, loc, scale = floats("logistic.logpdf", x, loc, scale)
    half = (x - loc) / scale / 2
    return -2 * fnp.logaddexp(half, -half) - fnp.log(scale)


pdf = density(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    x, loc, scale = adaptable("logistic.cdf", x, loc, scale)
    return expit((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x, elementwise."""
    x, loc, scale = adaptable("logistic.sf", x, loc, scale)
    return expit(-((x - loc) / scale))


def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value whose `cdf` is x, elementwise."""
    x, loc, scale = floats("logistic.ppf", x, loc, scale)
    return logit(x) * scale + loc


def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The value whose `sf` is x, elementwise."""
    x, loc, scale = floats("logistic.isf", x, loc, scale)
    return -logit(x) * scale + loc
