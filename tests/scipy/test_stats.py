"""Distributions and functions of samples against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.scipy.stats
import numpy as np
import pytest
from agreement import Weak, agree, compare
from differential import Row, check, check_compiled, check_derivatives, row

import fuser
from fuser.scipy import stats

RNG = np.random.default_rng(0)
X = np.linspace(-2.3, 3.1, 11, dtype=np.float32)
POSITIVE = np.linspace(0.15, 4.0, 11, dtype=np.float32)
UNIT = np.linspace(0.05, 0.95, 11, dtype=np.float32)
COUNTS = np.arange(-1, 6, dtype=np.int32)
A, B = RNG.uniform(0.5, 3, 11).astype(np.float32), RNG.uniform(0.5, 3, 11).astype(np.float32)
PROBABILITY = np.array([0.1, 0.25, 0.5, 0.6, 0.75, 0.9, 0.95], np.float32)
LOGS = ("logpdf", "pdf")
ALL = ("logpdf", "pdf", "cdf", "logcdf", "sf", "logsf")

# distribution, functions, arguments where it is smooth, which of those have a derivative
SMOOTH: list[tuple[str, tuple[str, ...], tuple[Any, ...], tuple[int, ...]]] = [
    ("norm", ALL, (X, B, A), (0, 1, 2)), ("norm", ("ppf", "isf"), (UNIT, B, A), (0, 1, 2)),
    ("cauchy", ALL, (X, B, A), (0, 1, 2)), ("cauchy", ("ppf", "isf"), (UNIT, B, A), (0, 1, 2)),
    ("expon", ALL, (POSITIVE + 3, B, A), (0, 1, 2)), ("expon", ("ppf",), (UNIT, B, A), (0, 1, 2)),
    ("gamma", ALL, (POSITIVE, A, 0, B), (0, 1)), ("chi2", ALL, (POSITIVE, A), (0, 1)),
    ("beta", LOGS, (UNIT, A, B), (0, 1, 2)), ("beta", ("cdf", "logcdf", "sf", "logsf"), (UNIT, A, B), (0,)),
    ("gennorm", (*LOGS, "cdf"), (POSITIVE, A), (0, 1)),
    ("gumbel_r", ALL[2:], (X, B, A), (0, 1, 2)), ("gumbel_l", ALL[2:], (X, B, A), (0, 1, 2)),
    ("laplace", (*LOGS, "cdf"), (X, B, A), (0, 1, 2)), ("logistic", (*LOGS, "cdf", "sf"), (X, B, A), (0, 1, 2)), ("logistic", ("ppf", "isf"), (UNIT, B, A), (0,)),
    ("pareto", ALL, (POSITIVE + 3, A, 0, 1.5), (0, 1)), ("pareto", ("ppf",), (UNIT, A), (0,)),
    ("t", LOGS, (X, A, B, A), (0, 1, 2, 3)), ("uniform", (*LOGS, "cdf"), (UNIT, -0.5, np.float32(2)), (0,)), ("uniform", ("ppf",), (UNIT, 0, 2), (0,)),
    ("vonmises", LOGS, (X, A), (0, 1)), ("wrapcauchy", LOGS, (POSITIVE, UNIT), (0, 1)),
    ("truncnorm", ALL, (UNIT / 2, -A, B), (0, 1, 2)), ("truncnorm", ALL, (UNIT + 3.2, 2.5, 5.0, 0.1, 1.2), (0,)),
]  # fmt: skip
# distribution, functions, arguments: values alone, also outside the support
VALUES: list[tuple[str, tuple[str, ...], tuple[Any, ...]]] = [
    *((name, (*LOGS, "ppf"), (UNIT, B, A)) for name in ("gumbel_l", "gumbel_r")),  # by which JAX has no gradient
    *((name, ALL, (X, A)) for name in ("gamma", "chi2")), ("beta", ALL, (X, 2.0, 3.0)), ("beta", ALL, (X, 2, 3, -1, 2)),
    ("expon", ALL, (X,)), ("expon", ("ppf",), (X,)), ("norm", ("ppf", "isf"), (X,)), ("norm", ALL, (COUNTS,)), ("norm", ALL, (Weak(0.3),)), ("norm", ALL, (X, 1, np.float16(2))), ("norm", ("logcdf", "logsf"), (X * 10,)),
    ("uniform", (*LOGS, "cdf", "ppf"), (X,)), ("pareto", (*ALL, "ppf"), (X, 2.0)), ("gumbel_l", ("pdf", "ppf"), (X, 0, -1)), ("gumbel_r", ("pdf", "ppf"), (X, 0, -1)), ("gumbel_r", ("ppf",), (X,)),
    ("truncnorm", ALL, (X, -1.0, 1.5)), ("truncnorm", ALL, (X, 1.0, -1.0)), ("wrapcauchy", LOGS, (X, 0.5)), ("wrapcauchy", LOGS, (X, 1.5)), ("vonmises", LOGS, (X, -1.0)),
    ("bernoulli", ("logpmf", "pmf"), (COUNTS, PROBABILITY)), ("bernoulli", ("cdf",), (COUNTS, PROBABILITY)), ("bernoulli", ("ppf",), (PROBABILITY, 0.4)), ("bernoulli", ("ppf", "cdf"), (X, 0.4)),
    ("binom", ("logpmf", "pmf"), (COUNTS, 4, 0.3)), ("betabinom", ("logpmf", "pmf"), (COUNTS, 4, 1.5, 0.7)), ("betabinom", ("logpmf",), (COUNTS, 4, -1.5, 0.7)),
    ("geom", ("logpmf", "pmf"), (COUNTS, PROBABILITY)), ("nbinom", ("logpmf", "pmf"), (COUNTS, 3, PROBABILITY)),
    ("poisson", ("logpmf", "pmf", "cdf"), (COUNTS, 2.5)), ("poisson", ("logpmf", "pmf"), (X, 2.5)), ("poisson", ("entropy",), (np.array([0, 0.3, 3, 30, 99, 250, 1e4, -1], np.float32),)),
    *(("multinomial", ("logpmf", "pmf"), (np.array([1, 2, 1]), n, np.array([0.2, 0.3, 0.5], np.float32))) for n in (3, 4)),
    ("dirichlet", LOGS, (np.array([[0.2, 0.5], [0.3, 0.25], [0.5, 0.25]], np.float32), np.array([1.0, 2, 3], np.float32))), ("dirichlet", LOGS, (np.array([0.2, 0.3], np.float32), np.array([1.0, 2, 3], np.float32))),
]  # fmt: skip
MATRIX = np.array([[2, 0.3, 0.1], [0.3, 1, -0.2], [0.1, -0.2, 1.5]], np.float32)
POINTS = RNG.normal(size=(4, 3)).astype(np.float32)
ROWS: list[Row] = [
    *(row(f"scipy.stats.{name}.{f}", *args, grad=grad if f in ("logpdf", "cdf", "ppf") else (), tolerance=8) for name, functions, args, grad in SMOOTH for f in functions),
    *(row(f"scipy.stats.{name}.{f}", *args, tolerance=8) for name, functions, args in VALUES for f in functions),
    *(row(f"scipy.stats.multivariate_normal.{f}", *args, grad=grad, tolerance=8) for f in LOGS for args, grad in (((POINTS, POINTS[0], MATRIX), (0, 1)), ((POINTS, POINTS[0], np.float32(2)), (0, 1)), ((X, 0.5, 2.0), 0))),
    row("scipy.stats.multivariate_normal.logpdf", POINTS, POINTS[:1], np.stack([MATRIX] * 4)), row("scipy.stats.multivariate_normal.logpdf", POINTS, POINTS[0], X, compiled=False),
    *(row("scipy.stats.mode", a, **options) for a in (COUNTS % 3, RNG.integers(0, 3, (4, 5)).astype(np.float32)) for options in ({}, {"axis": None}, {"axis": -1, "keepdims": True})),
    *(row("scipy.stats.rankdata", RNG.integers(0, 4, (4, 3)), method, axis=axis) for method in ("average", "min", "max", "dense", "ordinal") for axis in (None, 0)),
    row("scipy.stats.rankdata", X, "best", compiled=False), row("scipy.stats.dirichlet.logpdf", UNIT, A[:3], compiled=False), row("scipy.stats.multinomial.pmf", UNIT, 3, UNIT, compiled=False), row("scipy.stats.sem", POINTS, grad=0), row("scipy.stats.sem", POINTS, axis=None, ddof=0), row("scipy.stats.sem", POINTS, axis=1, keepdims=True), row("scipy.stats.sem", POINTS, nan_policy="raise", compiled=False), row("scipy.stats.sem", np.where(POINTS > 1, np.nan, POINTS), nan_policy="omit"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{n}-{ROWS[n]}")
def test_distribution(number: int) -> None:
    check(ROWS[number])


def test_compiled_distributions() -> None:
    check_compiled([r for r in ROWS if not any(isinstance(a, Weak) for a in r.args)][::9])


@pytest.mark.slow
def test_derivatives_of_distributions() -> None:
    check_derivatives(ROWS)


@pytest.mark.slow
def test_kernel_density_estimates() -> None:
    theirs = lambda *args, **kwargs: jax.scipy.stats.gaussian_kde(*args, **kwargs)
    other = RNG.normal(size=(3, 6)).astype(np.float32)
    at = RNG.normal(size=(3, 5)).astype(np.float32)
    for data, points, options in (
        (POINTS.T, at, {"weights": A[:4]}),
        (X, at[0], {"bw_method": "silverman"}),
    ):
        mine, wanted = stats.gaussian_kde(data, **options), theirs(data, **options)
        for name in ("dataset", "weights", "neff", "covariance", "inv_cov"):
            compare(getattr(mine, name), getattr(wanted, name), 50)
        for name in ("evaluate", "logpdf", "pdf"):
            compare(getattr(mine, name)(points), getattr(wanted, name)(points), 100)
        compare(fuser.jit(lambda kde, x: kde(x))(mine, points), wanted(points), 100)
        compare(mine.integrate_kde(mine), wanted.integrate_kde(wanted), 100)
        assert mine.resample(fuser.random.key(0), (7,)).shape == wanted.resample(jax.random.key(0), (7,)).shape
    agree(lambda: stats.gaussian_kde(X).integrate_box_1d(-1.0, 2.0), lambda: theirs(X).integrate_box_1d(-1.0, 2.0))
    agree(
        lambda: stats.gaussian_kde(other).integrate_gaussian(at[:, 0], MATRIX),
        lambda: theirs(other).integrate_gaussian(at[:, 0], MATRIX),
        tolerance=100,
    )
    for call in (
        lambda m: m(1.0),
        lambda m: m(X, "best"),
        lambda m: m(X, None, A[:3]),
        lambda m: m(other)(at[:2]),
        lambda m: m(other).integrate_box_1d(0, 1),
        lambda m: m(X).integrate_gaussian(A, B),
        lambda m: m(X).integrate_box(0, 1),
        lambda m: m(X).set_bandwidth(1),
    ):
        agree(lambda call=call: call(stats.gaussian_kde), lambda call=call: call(theirs))
