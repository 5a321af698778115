"""Student's t distribution of `df` degrees of freedom."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import gammaln
from fuser.scipy.stats.support import density, floats


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density Γ((df + 1)/2) / (√(df·π)·Γ(df/2)·scale)·(1 + z²/df)^(-(df + 1)/2), elementwise."""
    x, df, loc, scale = floats("t.logpdf", x, df, loc, scale)
    z = (x - loc) / scale
    height = gammaln((df + 1) / 2) - gammaln(df / 2) - (fnp.log(np.pi * df) / 2 + fnp.log(scale))
    return height - (df + 1) / 2 * fnp.log1p(z * z / df)


pdf = density(logpdf)
