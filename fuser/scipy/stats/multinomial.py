"""The multinomial distribution: how often each outcome occurs in `n` trials."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import dtypes
from fuser import numpy as fnp
from fuser.scipy.special import gammaln, xlogy
from fuser.scipy.stats.support import floats, probability


def logpmf(x: Any, n: Any, p: Any) -> Any:
    """The logarithm of n!·Πp^x/x! over the last axis; -inf where the counts do not add up to n."""
    (p,) = floats("multinomial.logpmf", p)
    x, n = fnp.asarray(x), fnp.asarray(n)
    if not dtypes.issubdtype(x.dtype, np.integer):
        raise ValueError(f"x and n must be of integer type; got x.dtype={x.dtype}, n.dtype={n.dtype}")
    counts, total = x.astype(p.dtype), n.astype(p.dtype)
    found = gammaln(total + 1) + fnp.sum(xlogy(counts, p) - gammaln(counts + 1), -1)
    return fnp.where(fnp.sum(x, -1) == n, found, -np.inf)


pmf = probability(logpmf)
