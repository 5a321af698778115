"""The generalised normal distribution of shape `beta`."""

from __future__ import annotations

from typing import Any

from fuser import numpy as fnp
from fuser.scipy.special import gammainc, gammaln
from fuser.scipy.stats.support import adaptable, density


def logpdf(x: Any, beta: Any) -> Any:
    """The logarithm of the density β·exp(-|x|^β) / (2·Γ(1/β)), elementwise."""
    x, beta = adaptable("gennorm.logpdf", x, beta)
    return fnp.log(0.5 * beta) - gammaln(1 / beta) - fnp.abs(x) ** beta


pdf = density(logpdf)


def cdf(x: Any, beta: Any) -> Any:
    """The probability of values up to x, elementwise."""
    x, beta = adaptable("gennorm.cdf", x, beta)
    return 0.5 * (1 + fnp.sign(x) * gammainc(1 / beta, fnp.abs(x) ** beta))
