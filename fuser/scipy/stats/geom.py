"""The geometric distribution: the trial of the first success."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import xlog1py
from fuser.scipy.stats.support import floats, probability


def logpmf(k: Any, p: Any, loc: Any = 0) -> Any:
    """The logarithm of (1 - p)^(k - 1)·p, for k - loc ≥ 1; elementwise."""
    k, p, loc = floats("geom.logpmf", k, p, loc)
    x = k - loc
    return fnp.where(x <= 0, -np.inf, xlog1py(x - 1, -p) + fnp.log(p))


pmf = probability(logpmf)
