"""The Gumbel distribution of least values."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.stats.support import adaptable, density, exponential


def _height(function: str, x: Any, loc: Any, scale: Any) -> tuple[Any, Any]:
    """(z, scale) with z = (x - loc) / scale; both nan where scale ≤ 0."""
    x, loc, scale = adaptable(function, x, loc, scale)
    scale = fnp.where(scale > 0, scale, np.nan)
    return (x - loc) / scale, scale


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density exp(z - exp(z)) / scale, with z = (x - loc) / scale, elementwise; nan for scale ≤ 0."""
    z, scale = _height("gumbel_l.logpdf", x, loc, scale)
    return z - fnp.exp(z) - fnp.log(scale)


pdf = density(logpdf)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `sf`, -exp(z), elementwise."""
    z, _ = _height("gumbel_l.logsf", x, loc, scale)
    return -fnp.exp(z)


sf = exponential("sf", "The probability of values above x, elementwise.", logsf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    return -fnp.expm1(logsf(x, loc, scale))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `cdf`, elementwise."""
    return fnp.log(cdf(x, loc, scale))


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The x with cdf(x) = p, elementwise; nan for p outside (0, 1)."""
    p, loc, scale = adaptable("gumbel_l.ppf", p, loc, scale)
    inside = fnp.logical_and(p > 0, p < 1)
    return fnp.where(inside, fnp.log(-fnp.log1p(-p)) * scale + loc, np.nan)
