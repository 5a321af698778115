"""The binomial distribution: successes among `n` trials of probability `p`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import gammaln, xlog1py, xlogy
from fuser.scipy.stats.support import adaptable, probability


def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Any:
    """The logarithm of n! / (k! (n - k)!)·p^k·(1 - p)^(n - k), for k - loc in [0, n]; elementwise."""
    k, n, p, loc = adaptable("binom.logpmf", k, n, p, loc)
    y = k - loc
    choices = gammaln(n + 1) - (gammaln(y + 1) + gammaln(n - y + 1))
    found = choices + xlogy(y, p) + xlog1py(n - y, -p)
    return fnp.where(fnp.logical_and(y >= 0, y < n + 1), found, -np.inf)


pmf = probability(logpmf)
