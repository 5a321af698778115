"""The exponential distribution from `loc` on, of mean `loc + scale`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.stats.support import adaptable, density, exponential


def _height(function: str, x: Any, loc: Any, scale: Any) -> tuple[Any, Any, Any]:
    """(z, where x is below the support, scale)."""
    x, loc, scale = adaptable(function, x, loc, scale)
    return (x - loc) / scale, x < loc, scale


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density exp(-z) / scale, with z = (x - loc) / scale ≥ 0, elementwise."""
    z, below, scale = _height("expon.logpdf", x, loc, scale)
    return fnp.where(below, -np.inf, -(z + fnp.log(scale)))


pdf = density(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    z, below, _ = _height("expon.cdf", x, loc, scale)
    return fnp.where(below, 0.0, -fnp.expm1(-z))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `cdf`, elementwise."""
    z, below, _ = _height("expon.logcdf", x, loc, scale)
    return fnp.where(below, -np.inf, fnp.log(-fnp.expm1(-z)))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `sf`, -z, elementwise."""
    z, below, _ = _height("expon.logsf", x, loc, scale)
    return fnp.where(below, 0.0, -z)


sf = exponential("sf", "The probability of values above x, elementwise.", logsf)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The x with cdf(x) = q, elementwise; nan for q outside [0, 1]."""
    q, loc, scale = adaptable("expon.ppf", q, loc, scale)
    outside = fnp.logical_or(q < 0, q > 1)
    return fnp.where(outside, np.nan, -scale * fnp.log1p(-q) + loc)
