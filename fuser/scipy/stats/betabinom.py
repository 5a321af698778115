"""The beta-binomial distribution: `n` trials whose probability is beta distributed."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import betaln
from fuser.scipy.stats.support import floats, probability


def logpmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Any:
    """The logarithm of n! / (k! (n - k)!)·B(k + a, n - k + b) / B(a, b), for k - loc in [0, n]; elementwise.

    nan where n < 0, a ≤ 0 or b ≤ 0.
    """
    k, n, a, b, loc = floats("betabinom.logpmf", k, n, a, b, loc)
    y = fnp.floor(k) - loc
    choices = -(fnp.log1p(n) + betaln(n - y + 1, y + 1))
    found = choices + betaln(y + a, n - y + b) - betaln(a, b)
    inside = fnp.logical_and(y >= 0, y < n + 1)
    wrong = (n < 0) | (a <= 0) | (b <= 0)
    return fnp.where(wrong, np.nan, fnp.where(inside, found, -np.inf))


pmf = probability(logpmf)
