"""The beta distribution of shapes `a` and `b` on [loc, loc + scale]."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import betainc, betaln, xlog1py, xlogy
from fuser.scipy.stats.support import density, floats, logarithm


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density z^(a - 1)·(1 - z)^(b - 1) / (B(a, b)·scale), with z = (x - loc) / scale, elementwise.

    nan unless a, b and scale are positive.
    """
    x, a, b, loc, scale = floats("beta.logpdf", x, a, b, loc, scale)
    z = (x - loc) / scale
    found = xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln(a, b) - fnp.log(scale)
    inside = fnp.where(fnp.logical_or(x > loc + scale, x < loc), -np.inf, found)
    return fnp.where((a <= 0) | (b <= 0) | (scale <= 0), np.nan, inside)


pdf = density(logpdf)


def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    x, a, b, loc, scale = floats("beta.cdf", x, a, b, loc, scale)
    return betainc(a, b, fnp.clip((x - loc) / scale, 0, 1))


def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x, elementwise."""
    x, a, b, loc, scale = floats("beta.sf", x, a, b, loc, scale)
    return betainc(b, a, 1 - fnp.clip((x - loc) / scale, 0, 1))


logcdf = logarithm("logcdf", "The logarithm of `cdf`, elementwise.", cdf)
logsf = logarithm("logsf", "The logarithm of `sf`, elementwise.", sf)
