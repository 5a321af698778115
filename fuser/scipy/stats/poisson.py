"""The Poisson distribution of mean `mu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import gammaincc, gammaln, xlogy
from fuser.scipy.stats.support import adaptable, floats, probability


def logpmf(k: Any, mu: Any, loc: Any = 0) -> Any:
    """The logarithm of exp(-mu)·mu^k / k!, for whole k - loc ≥ 0; elementwise."""
    k, mu, loc = adaptable("poisson.logpmf", k, mu, loc)
    x = k - loc
    found = xlogy(x, mu) - gammaln(x + 1) - mu
    return fnp.where(fnp.logical_or(x < 0, fnp.round(k) != k), -np.inf, found)


pmf = probability(logpmf)


def cdf(k: Any, mu: Any, loc: Any = 0) -> Any:
    """The probability of values up to k, elementwise."""
    k, mu, loc = floats("poisson.cdf", k, mu, loc)
    x = k - loc
    return fnp.where(x < 0, 0.0, gammaincc(fnp.maximum(fnp.floor(x) + 1, 1), mu))


def entropy(mu: Any, loc: Any = 0) -> Any:
    """The entropy -Σ p·log(p) in nats, elementwise; 0 for mu = 0, nan below.

    The sum over all counts that matter for mu < 100; above, its expansion in 1/mu, whose error is below 1e-9. `loc`, which
    changes nothing, broadcasts.
    """
    mu, loc = floats("poisson.entropy", mu, loc)
    mu = fnp.broadcast_to(mu, np.broadcast_shapes(mu.shape, loc.shape))
    dtype, shape = mu.dtype, mu.shape
    small = fnp.minimum(mu, 100)
    counts = fnp.arange(250, dtype=dtype)
    terms = logpmf(counts, fnp.ravel(small)[:, None])
    direct = fnp.reshape(-fnp.sum(fnp.where(terms > -np.inf, fnp.exp(terms) * terms, 0), -1), shape)
    large = fnp.maximum(mu, 100)
    series = 0.5 * fnp.log(2 * np.pi * np.e * large) - 1 / (12 * large) - 1 / (24 * large**2) - 19 / (360 * large**3)
    return fnp.where(mu < 0, np.nan, fnp.where(mu == 0, 0.0, fnp.where(mu < 100, direct, series)))
