"""The Dirichlet distribution of concentrations `alpha`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.scipy.special import gammaln, xlogy
from fuser.scipy.stats.support import density, floats


def logpdf(x: Any, alpha: Any) -> Any:
    """The logarithm of the density Γ(Σα)·Πx^(α - 1)/Γ(α) over the first axis of x: shape x.shape[1:]; -inf off the simplex.

    `alpha` is a vector; x has as many rows, or one fewer, the last being what is missing to 1. ValueError for other shapes.
    """
    x, alpha = floats("dirichlet.logpdf", x, alpha)
    if alpha.ndim != 1:
        raise ValueError(f"`alpha` must be one-dimensional; got alpha.shape={alpha.shape}")
    if x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ValueError(
            f"`x` must have either the same number of entries as `alpha` or one entry fewer; got {x.shape=}, {alpha.shape=}"
        )
    if x.shape[0] != alpha.shape[0]:
        x = fnp.concatenate([x, 1 - fnp.sum(x, 0, keepdims=True)], 0)
    column = fnp.reshape(alpha, (alpha.shape[0],) + (1,) * (x.ndim - 1))
    scale = fnp.sum(gammaln(alpha)) - gammaln(fnp.sum(alpha))
    found = fnp.sum(xlogy(column - 1, x), 0) - scale
    simplex = fnp.all(x > 0, 0) & (fnp.abs(fnp.sum(x, 0) - 1) < 1e-6)
    return fnp.where(simplex, found, -np.inf)


pdf = density(logpdf)
