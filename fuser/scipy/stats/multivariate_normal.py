"""The normal distribution of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.numpy import linalg
from fuser.scipy.stats.support import density, floats


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: None = None) -> Any:
    """The logarithm of the density exp(-(x - mean)ᵀ cov⁻¹ (x - mean)/2) / √det(2π·cov), over the last axis of x.

    `cov` is a matrix or a stack of them, or a number; the leading dimensions broadcast. ValueError for shapes that do not fit;
    singular covariances are not offered (NotImplementedError).
    """
    if allow_singular is not None:
        raise NotImplementedError("allow_singular argument of multivariate_normal.logpdf")
    x, mean, cov = floats("multivariate_normal.logpdf", x, mean, cov)
    if not mean.ndim:
        return -fnp.square(x - mean) / (2 * cov) - 0.5 * (float(np.log(2 * np.pi)) + fnp.log(cov))
    n = mean.shape[-1]
    if not cov.ndim:
        y = x - mean
        return -0.5 * fnp.einsum("...i,...i->...", y, y) / cov - n / 2 * (float(np.log(2 * np.pi)) + fnp.log(cov))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ValueError("multivariate_normal.logpdf got incompatible shapes")
    factor = linalg.cholesky(cov)
    batch = lax.broadcast_shapes(x.shape[:-1], mean.shape[:-1], cov.shape[:-2])
    y = fnp.broadcast_to(x - mean, (*batch, n))
    factors = fnp.broadcast_to(factor, (*batch, n, n))
    white = lax.linalg.triangular_solve(factors, y[..., None], lower=True, left_side=True)[..., 0]
    logs = fnp.log(fnp.diagonal(factor, axis1=-1, axis2=-2)).sum(-1)
    return -0.5 * fnp.einsum("...i,...i->...", white, white) - n / 2 * float(np.log(2 * np.pi)) - logs


pdf = density(logpdf)
