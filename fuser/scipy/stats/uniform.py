"""The uniform distribution on [loc, loc + scale]."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.lax.values import convert
from fuser.scipy.stats.support import adaptable, density, floats


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """-log(scale) inside, -inf outside; elementwise."""
    x, loc, scale = floats("uniform.logpdf", x, loc, scale)
    return fnp.where(fnp.logical_or(x > loc + scale, x < loc), -np.inf, -fnp.log(scale))


pdf = density(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of values up to x, elementwise."""
    x, loc, scale = floats("uniform.cdf", x, loc, scale)
    found = fnp.where(x <= loc, 0.0, fnp.where(x >= loc + scale, 1.0, (x - loc) / scale))
    return convert(found, found.dtype)  # never weak, as JAX has it


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The x with cdf(x) = q, elementwise; nan for q outside [0, 1]."""
    q, loc, scale = adaptable("uniform.ppf", q, loc, scale)
    wrong = fnp.isnan(q) | (q < 0) | (q > 1)
    return fnp.where(wrong, np.nan, loc + q * scale)
