"""The Bernoulli distribution: 1 with probability `p`, else 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import xlog1py, xlogy
from fuser.scipy.stats.support import floats, probability, settled


def logpmf(k: Any, p: Any, loc: Any = 0) -> Any:
    """log(p) at loc + 1, log(1 - p) at loc, the line between them, -inf elsewhere; elementwise."""
    k, p, loc = floats("bernoulli.logpmf", k, p, loc)
    x = k - loc
    found = xlogy(x, p) + xlog1py(1 - x, -p)
    return fnp.where(fnp.logical_or(x < 0, x > 1), -np.inf, found)


pmf = probability(logpmf)


def cdf(k: Any, p: Any) -> Any:
    """0 below 0, 1 - p up to 1, 1 from there on; nan for p outside [0, 1] or nan; elementwise."""
    k, p = floats("bernoulli.cdf", k, p)
    wrong = fnp.isnan(p) | fnp.isnan(k) | (p < 0) | (p > 1)
    return settled(fnp.where(wrong, np.nan, fnp.where(k < 0, 0.0, fnp.where(k < 1, 1 - p, 1.0))))


def ppf(q: Any, p: Any) -> Any:
    """The least k with cdf(k) ≥ q: 0 for q ≤ 1 - p, else 1; nan for p or q outside [0, 1]; elementwise."""
    q, p = floats("bernoulli.ppf", q, p)
    wrong = fnp.isnan(q) | fnp.isnan(p) | (p < 0) | (p > 1) | (q < 0) | (q > 1)
    return fnp.where(wrong, np.nan, fnp.where(q <= 1 - p, q * 0, 1.0))
