"""Weak types of distributions against JAX, and values where its samples do not reach: nans, the ends, single points."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.scipy.interpolate
import jax.scipy.stats
import numpy as np
import pytest
import scipy.stats

import fuser
from fuser.scipy import interpolate, stats

PARAMETERS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("norm", "expon", "cauchy", "laplace", "logistic", "uniform", "gumbel_r", "gumbel_l"), ()),
    **{"gamma": (2.0,), "beta": (2.0, 3.0), "t": (3.0,), "pareto": (2.0,), "chi2": (3.0,), "gennorm": (1.5,)},
    **{"truncnorm": (-1.0, 2.0), "wrapcauchy": (0.3,), "vonmises": (1.2,), "poisson": (2.0,), "bernoulli": (0.3,)},
    **{"geom": (0.3,), "nbinom": (3, 0.4), "binom": (5, 0.4), "betabinom": (5, 2.0, 3.0)},
}
FUNCTIONS = ("pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")
SAMPLES = (np.array([0, 1]), np.array([True]), 1, 0.5, np.float32(0.5), np.array([0.5], np.float32))


@pytest.mark.parametrize("name", PARAMETERS)
def test_results_are_weak_where_those_of_jax_are(name: str) -> None:
    theirs, ours, rest = getattr(jax.scipy.stats, name), getattr(stats, name), PARAMETERS[name]
    for function in (f for f in FUNCTIONS if hasattr(theirs, f)):
        for sample in SAMPLES:
            if (name, function) in (("pareto", "logcdf"), ("norm", "ppf"), ("norm", "isf")):
                continue  # weak in JAX alone; these take no integers there
            wanted = jax.eval_shape(functools.partial(getattr(theirs, function), sample, *rest))
            found = fuser.eval_shape(functools.partial(getattr(ours, function), sample, *rest))
            assert (found.dtype, found.weak_type) == (wanted.dtype, wanted.weak_type), (function, sample)


@pytest.mark.parametrize("function", ["cdf", "logcdf", "sf", "logsf", "pdf", "logpdf"])
def test_nan_gives_nan_in_a_cut_normal_distribution(function: str) -> None:
    x = np.array([-1.5, 0.3, 2.5, np.inf, -np.inf, np.nan], np.float32)
    wanted = getattr(scipy.stats.truncnorm, function)(x.astype(np.float64), -1, 2)
    np.testing.assert_allclose(getattr(stats.truncnorm, function)(x, -1.0, 2.0), wanted, rtol=2e-6)


def test_least_quantile_of_bernoulli_is_jax_s() -> None:
    q = np.array([-0.1, 0, 0.5, 0.7, 0.71, 1, np.nan], np.float32)
    np.testing.assert_array_equal(stats.bernoulli.ppf(q, 0.3), jax.scipy.stats.bernoulli.ppf(q, 0.3))


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_ranks_beside_a_nan_are_nan(method: str, axis: int | None) -> None:
    x = np.array([[3, 1, 3], [2, 2, np.nan], [5, 0, 1]], np.float32)
    wanted = jax.scipy.stats.rankdata(x, method, axis=axis)
    np.testing.assert_array_equal(stats.rankdata(x, method, axis=axis), wanted)
    np.testing.assert_array_equal(fuser.jit(lambda x: stats.rankdata(x, method, axis=axis))(x), wanted)


@pytest.mark.parametrize("points", [np.array([0.4, -0.3], np.float32), np.array([0.4, -0.3, 0.1, 0.2], np.float32)])
@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_points_one_after_another(points: Any, method: str) -> None:
    grid, values = (np.linspace(0, 1, 4), np.linspace(-1, 1, 3)), np.arange(12, dtype=np.float32).reshape(4, 3) ** 2
    wanted = jax.scipy.interpolate.RegularGridInterpolator(grid, values)(points, method=method)
    found = interpolate.RegularGridInterpolator(grid, values)(points, method=method)
    assert found.shape == wanted.shape == (points.size // 2,)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
