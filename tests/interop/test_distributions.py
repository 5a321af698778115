"""Distributions of scipy.stats in accelerated functions: values, dtypes and the ends of the support are SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from scipy.spatial import distance
from scipy.stats import norm

from fuser.interop import accelerate
from tests.interop.oracle import agree

VALUES = np.r_[np.linspace(-4, 4, 41), np.inf, -np.inf, np.nan, 0.0, 1.0]
LEVELS = np.r_[np.linspace(0, 1, 21), -0.1, 1.2, np.nan]
METHODS = ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")
DISTRIBUTIONS = {
    "norm": (),
    "expon": (),
    "uniform": (),
    "rayleigh": (),
    "gamma": (2.5,),
    "t": (5,),
    "truncnorm": (-1, 2),
}
frozen = scipy.stats.norm(1.0, scale=2.0)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("method", METHODS)
def test_methods_of_distributions(name: str, method: str) -> None:
    distribution, shapes = getattr(scipy.stats, name), DISTRIBUTIONS[name]
    x = LEVELS if method in ("ppf", "isf") else VALUES
    agree(lambda x: getattr(distribution, method)(x, *shapes), x, tolerance=1e-9)
    agree(lambda x: getattr(distribution, method)(x, *shapes, loc=0.5, scale=2), x, tolerance=1e-9)
    agree(lambda x: getattr(distribution(*shapes, scale=3), method)(x), x, tolerance=1e-9)
    agree(lambda x: getattr(distribution, method)(x, *shapes), np.float64(0.25), tolerance=1e-9)
    agree(lambda x: getattr(distribution, method)(x, *shapes), x.astype(np.float32), tolerance=1e-5)


def test_parameters_may_be_traced() -> None:
    scale = np.array([1.0, 0.0, 2.0, -1.0, np.nan])
    agree(lambda x, s: norm.pdf(x[:5], x[:5] * 2, s), VALUES, scale)
    agree(lambda x, s: norm.ppf(x[:5], loc=s, scale=s), LEVELS, scale)
    agree(lambda x, s: scipy.stats.gamma.cdf(x[:5] + 5, s), VALUES, scale, tolerance=1e-9)
    agree(lambda x, s: norm(loc=s).cdf(x[:5]), VALUES, scale)


def test_they_are_one_program_with_what_stands_around_them() -> None:
    density = accelerate(lambda x, g: norm.pdf((g[:, None] - x) / 0.5).mean(axis=1) + frozen.cdf(g))
    density(VALUES[:41], LEVELS[:21])
    assert "compiled whole" in density.explain()
    traced = density.trace(VALUES[:41], LEVELS[:21])
    assert not any(eqn.primitive.name == "numpy_call" for eqn in traced.graph.eqns)


def test_what_scipy_answers_between_kernels() -> None:
    points = np.random.default_rng(0).normal(size=(12, 3))
    for function in (
        lambda p: scipy.stats.beta.cdf(p, 2.0, 3.0) * 2,
        lambda p: scipy.stats.nct.pdf(p[0], 4, 0.3),
        lambda p: scipy.stats.poisson.pmf(np.floor(np.abs(p)), 2.0),
        lambda p: distance.cdist(p, p * 2) + 1,
        lambda p: distance.squareform(distance.pdist(p, "cityblock")).sum(axis=0),
        lambda p: scipy.stats.rankdata(p * 2, axis=0),
        lambda p: scipy.integrate.trapezoid(p, dx=0.5, axis=0) + scipy.integrate.simpson(p, axis=0),
    ):
        agree(function, points)
        compiled = accelerate(function, backend="reference", measure=False)
        compiled(points)
        assert "compiled whole" in compiled.explain()


def test_what_draws_or_fits_is_scipys() -> None:
    fitted = accelerate(lambda x: norm.fit(x * 2), measure=False)
    assert fitted(VALUES[:41]) == norm.fit(VALUES[:41] * 2)
    assert "in segments" in fitted.explain()
