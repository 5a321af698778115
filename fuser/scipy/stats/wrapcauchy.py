"""The wrapped Cauchy distribution on the circle [0, 2π]."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.stats.support import adaptable, density


def logpdf(x: Any, c: Any) -> Any:
    """The logarithm of the density (1 - c²) / (2π·(1 + c² - 2c·cos(x))), 0 < c < 1, elementwise; nan for another c."""
    x, c = adaptable("wrapcauchy.logpdf", x, c)
    found = fnp.log1p(-c * c) - fnp.log(2 * np.pi) - fnp.log1p(c * (c - 2 * fnp.cos(x)))
    inside = fnp.logical_and(x >= 0, x <= 2 * np.pi)
    return fnp.where(fnp.logical_and(c > 0, c < 1), fnp.where(inside, found, -np.inf), np.nan)


pdf = density(logpdf)
