"""The chi-squared distribution of `df` degrees of freedom, from `loc` on."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import gammainc, gammaincc, gammaln, xlogy
from fuser.scipy.stats.support import density, floats, logarithm


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density z^(df/2 - 1)·exp(-z/2) / (2^(df/2)·Γ(df/2)·scale), z = (x - loc) / scale ≥ 0, elementwise."""
    x, df, loc, scale = floats("chi2.logpdf", x, df, loc, scale)
    half = df / 2
    z = (x - loc) / scale
    found = xlogy(half - 1, z) - z / 2 - gammaln(half) - half * float(np.log(2)) - fnp.log(scale)
    return fnp.where(x < loc, -np.inf, found)


pdf = density(logpdf)


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    x, df, loc, scale = floats("chi2.cdf", x, df, loc, scale)
    return gammainc(df / 2, fnp.clip((x - loc) / scale, 0) / 2)


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x, elementwise."""
    x, df, loc, scale = floats("chi2.sf", x, df, loc, scale)
    return gammaincc(df / 2, fnp.clip((x - loc) / scale, 0) / 2)


logcdf = logarithm("logcdf", "The logarithm of `cdf`, elementwise.", cdf)
logsf = logarithm("logsf", "The logarithm of `sf`, elementwise.", sf)
