"""The von Mises distribution on the circle, of concentration `kappa`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import i0e
from fuser.scipy.stats.support import adaptable, density


def logpdf(x: Any, kappa: Any) -> Any:
    """The logarithm of the density exp(κ·cos(x)) / (2π·I0(κ)), for κ ≥ 0, elementwise; nan for κ < 0."""
    x, kappa = adaptable("vonmises.logpdf", x, kappa)
    found = kappa * (fnp.cos(x) - 1) - fnp.log(2 * np.pi * i0e(kappa))
    return fnp.where(kappa > 0, found, np.nan)


pdf = density(logpdf)
