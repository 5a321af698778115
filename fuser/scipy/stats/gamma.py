"""The gamma distribution of shape `a`, from `loc` on."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import gammainc, gammaincc, gammaln, xlogy
from fuser.scipy.stats.support import adaptable, density, floats, logarithm


def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density z^(a - 1)·exp(-z) / (Γ(a)·scale), with z = (x - loc) / scale ≥ 0, elementwise."""
    x, a, loc, scale = floats("gamma.logpdf", x, a, loc, scale)
    inside = x >= loc
    z = fnp.where(inside, (x - loc) / scale, 1)
    return fnp.where(inside, xlogy(a - 1, z) - z - gammaln(a) - fnp.log(scale), -np.inf)


pdf = density(logpdf)


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    x, a, loc, scale = floats("gamma.cdf", x, a, loc, scale)
    return gammainc(a, fnp.clip((x - loc) / scale, 0))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values above x, elementwise; 1 below loc, for each a."""
    x, a, loc, scale = adaptable("gamma.sf", x, a, loc, scale)
    z = (x - loc) / scale
    return fnp.where(z < 0, 1, gammaincc(a, z))


logcdf = logarithm("logcdf", "The logarithm of `cdf`, elementwise.", cdf)
logsf = logarithm("logsf", "The logarithm of `sf`, elementwise.", sf)
