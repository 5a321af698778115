"""The normal distribution cut to z in [a, b], with z = (x - loc) / scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.nn import log1mexp
from fuser.scipy.special import log_ndtr, ndtr
from fuser.scipy.stats import norm
from fuser.scipy.stats.support import density, exponential, floats


def _log_difference(upper: Any, lower: Any) -> Any:
    """log(exp(upper) - exp(lower)) for upper ≥ lower."""
    return upper + log1mexp(fnp.maximum(upper - lower, 0))


def _log_mass(a: Any, b: Any) -> Any:
    """The logarithm of the normal distribution's probability of [a, b], exact in both tails."""
    left, right = b <= 0, a > 0
    near, far = fnp.where(left, b, -a), fnp.where(left, a, -b)  # the tail [a, b], turned to the left
    tail = _log_difference(log_ndtr(fnp.where(left | right, near, 0)), log_ndtr(fnp.where(left | right, far, -1)))
    centre = fnp.log1p(-ndtr(fnp.where(left | right, -1, a)) - ndtr(-fnp.where(left | right, 1, b)))
    return fnp.where(left | right, tail, centre)


def _arguments(function: str, x: Any, a: Any, b: Any, loc: Any, scale: Any) -> list[Any]:
    """[z, a, b, scale] of one shape."""
    x, a, b, loc, scale = floats(function, x, a, b, loc, scale)
    return list(fnp.broadcast_arrays((x - loc) / scale, a, b, scale))


def _checked(result: Any, a: Any, b: Any) -> Any:
    return fnp.where(a >= b, np.nan, result)


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the normal density over the probability of [a, b], elementwise; -inf outside, nan where a ≥ b."""
    z, a, b, scale = _arguments("truncnorm.logpdf", x, a, b, loc, scale)
    found = norm.logpdf(z) - (_log_mass(a, b) + fnp.log(scale))
    return _checked(fnp.where(fnp.logical_or(z < a, z > b), -np.inf, found), a, b)


pdf = density(logpdf)


def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `cdf`, elementwise; nan where a ≥ b."""
    z, a, b, _ = _arguments("truncnorm.logcdf", x, a, b, loc, scale)
    middle = fnp.where(fnp.isfinite(a), a + fnp.minimum(b - a, 1) / 2, fnp.minimum(b, 0) - 1)
    inside = fnp.where(
        (z > a) & (z < b) | fnp.isnan(z), z, middle
    )  # elsewhere of no account, and without a nan in its derivative
    below = _log_mass(a, inside) - _log_mass(a, b)
    above = _log_mass(inside, b) - _log_mass(a, b)
    found = fnp.where(below > -0.1, fnp.log1p(-fnp.exp(above)), below)  # near 1 from the other side
    return _checked(fnp.where(z <= a, -np.inf, fnp.where(z >= b, 0.0, found)), a, b)


cdf = exponential("cdf", "The probability of values up to x, elementwise; nan where a ≥ b.", logcdf)


def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of `sf`, elementwise; nan where a ≥ b: logcdf of the distribution turned around."""
    x, a, b, loc, scale = floats("truncnorm.logsf", x, a, b, loc, scale)
    return logcdf(-x, -b, -a, -loc, scale)


sf = exponential("sf", "The probability of values above x, elementwise; nan where a ≥ b.", logsf)
