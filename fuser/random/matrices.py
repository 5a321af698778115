"""Random vectors and matrices: multivariate normal vectors and orthogonal matrices."""

from __future__ import annotations

from typing import Any

from fuser import dtypes, lax
from fuser import numpy as fnp
from fuser.ir.dim import as_extent
from fuser.ir.types import is_float
from fuser.lax.values import broadcast_shapes, promote_inexact
from fuser.ops import linalg
from fuser.random.continuous import standard
from fuser.random.keys import check_shape, inexact_dtype, shape_of, typed
from fuser.trace.core import Tracer, bind


def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: Any = None,
    method: str = "cholesky",
    *,
    out_sharding: Any = None,
) -> Any:
    """Normal vectors with these means (..., n) and covariances (..., n, n); `shape` is the result's without n.

    The covariance is factored by "cholesky", or where it is singular by "eigh" or "svd".
    """
    key, _ = typed("multivariate_normal", key)
    mean, cov = promote_inexact("multivariate_normal", mean, cov)
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError("method must be one of {'svd', 'eigh', 'cholesky'}")
    found = mean.dtype if dtype is None else dtypes.requested(dtype, "multivariate_normal")
    if not is_float(found):
        raise ValueError(f"dtype argument to `multivariate_normal` must be a float dtype, got {found.name}")
    if mean.ndim < 1:
        raise ValueError(f"multivariate_normal requires mean.ndim >= 1, got mean.ndim == {mean.ndim}")
    if cov.ndim < 2:
        raise ValueError(f"multivariate_normal requires cov.ndim >= 2, got cov.ndim == {cov.ndim}")
    n = mean.shape[-1]
    if cov.shape[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal requires cov.shape == (..., n, n) for n={n}, but got cov.shape == {cov.shape}."
        )
    batch = broadcast_shapes(mean.shape[:-1], cov.shape[:-2], function="multivariate_normal")
    if shape is not None:
        batch = shape_of(shape)
        check_shape("normal", batch, mean.shape[:-1], cov.shape[:-2])
    vectors = standard(key, (*batch, n), found)
    return mean + fnp.einsum("...ij,...j->...i", _factor(cov, method), vectors)


def _factor(cov: Any, method: str) -> Any:
    """A matrix whose product with its transpose is `cov`."""
    if method == "svd":
        s, u, _ = bind(linalg.svd_p, cov, full_matrices=True, compute_uv=True)
        return u * lax.sqrt(s)[..., None, :]
    symmetric = (cov + fnp.swapaxes(cov, -1, -2)) / 2
    if method == "eigh":
        v, w = bind(linalg.eigh_p, symmetric, lower=True)
        return v * lax.sqrt(w)[..., None, :]
    return bind(linalg.cholesky_p, symmetric)


def orthogonal(
    key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None, *, out_sharding: Any = None
) -> Any:
    """Orthogonal (n, m) matrices, unitary ones for a complex dtype, all equally likely; `m` is `n` unless given.

    Mezzadri, "How to generate random matrices from the classical compact groups" (2007).
    """
    key, _ = typed("orthogonal", key)
    found = inexact_dtype("orthogonal", dtype)
    for extent in (n, m):
        if isinstance(extent, Tracer):
            raise extent._refuse("fuser.random.orthogonal")
    rows, columns = as_extent(n), as_extent(n if m is None else m)
    z = standard(key, (*shape_of(shape), max(rows, columns), min(rows, columns)), found)
    q, r = bind(linalg.qr_p, z, full_matrices=False)
    signs = lax.sign(fnp.diagonal(r, axis1=-2, axis2=-1))
    x = q * signs[..., None, :]
    return fnp.swapaxes(x, -1, -2) if rows < columns else x
