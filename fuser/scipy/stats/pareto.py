"""The Pareto distribution of shape `b`, from loc + scale on."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.stats.support import density, floats


def _ratio(function: str, x: Any, b: Any, loc: Any, scale: Any) -> tuple[Any, Any, Any, Any]:
    """(z, where x is below the support, b, scale) with z = (x - loc) / scale, 1 below."""
    x, b, loc, scale = floats(function, x, b, loc, scale)
    below = x < loc + scale
    return fnp.where(below, 1, (x - loc) / scale), below, b, scale


def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density b / (scale·z^(b + 1)), with z = (x - loc) / scale ≥ 1, elementwise."""
    z, below, b, scale = _ratio("pareto.logpdf", x, b, loc, scale)
    return fnp.where(below, -np.inf, fnp.log(b / scale) - (b + 1) * fnp.log(z))


pdf = density(logpdf)


def cdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    z, below, b, _ = _ratio("pareto.cdf", x, b, loc, scale)
    return fnp.where(below, 0.0, 1 - z**-b)


def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `cdf`, elementwise."""
    z, below, b, _ = _ratio("pareto.logcdf", x, b, loc, scale)
    return fnp.where(below, -np.inf, fnp.log1p(-(z**-b)))


def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `sf`, -b·log(z), elementwise."""
    z, below, b, _ = _ratio("pareto.logsf", x, b, loc, scale)
    return fnp.where(below, 0.0, -b * fnp.log(z))


def sf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x, elementwise."""
    return fnp.exp(logsf(x, b, loc, scale))


def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The x with cdf(x) = q, elementwise; nan for q outside [0, 1]."""
    q, b, loc, scale = floats("pareto.ppf", q, b, loc, scale)
    inside = fnp.logical_and(q >= 0, q <= 1)
    return fnp.where(inside, fnp.exp(-fnp.log1p(-q) / b) * scale + loc, np.nan)
