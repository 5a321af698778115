"""Kernel density estimation with normal kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import dtypes, lax, random
from fuser import numpy as fnp
from fuser.lax.values import promote_inexact
from fuser.numpy import linalg
from fuser.scipy.special import logsumexp, ndtr
from fuser.trace import tree

__all__ = ["gaussian_kde"]


class gaussian_kde:
    """A density from a sample: normal distributions around its points, of the sample's covariance times a squared bandwidth.

    `dataset` is (n,) or (d, n); `bw_method` "scott" (the default), "silverman", a number or a function of the estimate;
    `weights` (n,). A pytree, so that it goes through jit. ValueError for data or weights of other shapes.
    Scott, "Multivariate density estimation" (1992); Silverman, "Density estimation for statistics and data analysis" (1986).
    """

    dataset: Any
    weights: Any
    neff: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        data = fnp.atleast_2d(fnp.asarray(dataset))
        if data.ndim > 2 or data.size <= 1:
            raise ValueError("`dataset` input should have multiple elements and at most 2 dimensions.")
        if dtypes.issubdtype(data.dtype, np.complexfloating):
            raise NotImplementedError("gaussian_kde does not support complex data")
        (data,) = promote_inexact("gaussian_kde", data)
        count = data.shape[1]
        if weights is None:
            self.weights = fnp.ones(count, dtype=data.dtype) / count
        else:
            given = fnp.atleast_1d(fnp.asarray(weights))
            data, given = promote_inexact("gaussian_kde", data, given)
            if given.ndim != 1:
                raise ValueError("`weights` input should be one-dimensional.")
            if given.shape[0] != count:
                raise ValueError("`weights` input should be of length n")
            self.weights = given / fnp.sum(given)
        self.dataset = data
        self.neff = 1 / fnp.sum(self.weights**2)
        factor = self._factor("scott" if bw_method is None else bw_method)
        spread = fnp.atleast_2d(fnp.cov(data, rowvar=True, bias=False, aweights=self.weights))
        self.covariance = spread * factor**2
        self.inv_cov = linalg.inv(spread) / factor**2

    def _factor(self, method: Any) -> Any:
        if isinstance(method, str) and method == "scott":
            return fnp.power(self.neff, -1.0 / (self.d + 4))
        if isinstance(method, str) and method == "silverman":
            return fnp.power(self.neff * (self.d + 2) / 4.0, -1.0 / (self.d + 4))
        if callable(method):
            return method(self)
        if not isinstance(method, str) and np.ndim(method) == 0:
            return method
        raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar, or a callable.")

    def tree_flatten(self) -> tuple[Any, None]:
        """The arrays that make the estimate."""
        return (self.dataset, self.weights, self.neff, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Any) -> gaussian_kde:
        """The estimate of these arrays."""
        made = cls.__new__(cls)
        made.dataset, made.weights, made.neff, made.covariance, made.inv_cov = children
        return made

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of points."""
        return self.dataset.shape[1]

    def _points(self, points: Any) -> Any:
        """`points` as (d, m), in the dtype of the data. ValueError for another number of rows."""
        found = fnp.atleast_2d(points)
        if dtypes.issubdtype(found.dtype, np.complexfloating):
            raise NotImplementedError("gaussian_kde does not support complex coordinates")
        rows, count = found.shape
        if rows != self.d:
            if rows != 1 or count != self.d:
                raise ValueError(f"points have dimension {rows}, dataset has dimension {self.d}")
            found = fnp.reshape(found, (self.d, 1))
        return found.astype(self.dataset.dtype)

    def _log_terms(self, points: Any, covariance: Any, centres: Any) -> Any:
        """Logarithms of normal densities of `covariance`, (points, centres)."""
        factor = linalg.cholesky(covariance)
        white = lambda x: lax.linalg.triangular_solve(factor, x, lower=True, left_side=True)
        apart = white(points)[:, :, None] - white(centres)[:, None, :]
        logs = fnp.sum(fnp.log(fnp.diagonal(factor))) + self.d / 2 * float(np.log(2 * np.pi))
        return -0.5 * fnp.sum(apart * apart, 0) - logs

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density at points (d, m): shape (m,)."""
        return logsumexp(
            self._log_terms(self._points(x), self.covariance, self.dataset) + fnp.log(self.weights), axis=1
        )

    def evaluate(self, points: Any) -> Any:
        """The density at points (d, m): shape (m,)."""
        return fnp.exp(self.logpdf(points))

    __call__ = pdf = evaluate

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """The integral of the density times a normal density; ValueError for a mean or covariance of another dimension."""
        mean, cov = fnp.atleast_1d(fnp.squeeze(mean)), fnp.atleast_2d(cov)
        if mean.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}")
        if cov.shape != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}")
        terms = self._log_terms(mean[:, None], self.covariance + cov, self.dataset)
        return fnp.sum(fnp.exp(terms) * self.weights)

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """The probability of [low, high]; ValueError unless there is one dimension."""
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        if np.ndim(low) != 0 or np.ndim(high) != 0:
            raise ValueError("the limits of integration in integrate_box_1d must be scalars")
        deviation = fnp.squeeze(fnp.sqrt(self.covariance))
        ends = [ndtr(fnp.squeeze((bound - self.dataset) / deviation)) for bound in (low, high)]
        return fnp.sum(self.weights * (ends[1] - ends[0]))

    def integrate_kde(self, other: gaussian_kde) -> Any:
        """The integral of the product of two estimates; ValueError for different dimensions."""
        if other.d != self.d:
            raise ValueError("KDEs are not the same dimensionality")
        terms = self._log_terms(self.dataset, self.covariance + other.covariance, other.dataset)
        return fnp.sum(fnp.exp(terms) * self.weights[:, None] * other.weights[None, :])

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """Random points of the estimate: shape (d, *shape)."""
        first, second = random.split(key)
        chosen = random.choice(first, self.n, shape=shape, p=self.weights)
        noise = random.multivariate_normal(
            second, fnp.zeros(self.d, self.covariance.dtype), self.covariance, shape=shape, dtype=self.dataset.dtype
        )
        return self.dataset[:, chosen] + fnp.moveaxis(noise, -1, 0)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """Not offered: the probability of a box in several dimensions has no formula."""
        raise NotImplementedError("only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not offered: an estimate is immutable; make a new one."""
        raise NotImplementedError("dynamically changing the bandwidth method is not supported")


tree.register_pytree_node_class(gaussian_kde)
