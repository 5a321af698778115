"""The negative binomial distribution: failures before the n-th success."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import gammaln, xlogy
from fuser.scipy.stats.support import floats, probability


def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Any:
    """The logarithm of Γ(k + n) / (k! Γ(n))·p^n·(1 - p)^k, for k - loc ≥ 0; elementwise."""
    k, n, p, loc = floats("nbinom.logpmf", k, n, p, loc)
    y = k - loc
    found = gammaln(y + n) - gammaln(n) - gammaln(y + 1) + xlogy(n, p) + xlogy(y, 1 - p)
    return fnp.where(y < 0, -np.inf, found)


pmf = probability(logpmf)
