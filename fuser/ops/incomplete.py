"""Incomplete gamma and beta functions and their derivatives, as library calls: NumPy arrays in and out.

The c backend calls the same formulas in C (runtime/kernels/incomplete.c), GPUs run them as kernels (expansions/incomplete.py). All are
computed in float64. A tail of an integral is its integrand at the tail's end, times the integral of the ratio to that, by
Gauss–Legendre quadrature: no loop grows with the parameters. Where the integrand is singular near the end (small parameters) a
power series or a continued fraction stands instead. z is the distance from the end x, in units of x.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from fuser.ir.primitive import Primitive
from fuser.ir.types import FLOATS
from fuser.ops.elementwise import exp_p, lgamma_p, log1p_p, log_p
from fuser.ops.expansions import incomplete as expansion
from fuser.ops.family import elementwise, underivable
from fuser.ops.special import digamma_p
from fuser.ops.tails import (
    SMOOTH,
    beta_density,
    beta_extent,
    beta_ratio,
    gamma_density,
    gamma_extent,
    gamma_ratio,
    log_minus_digamma,
)

_NUMPY = SimpleNamespace(
    **{name: getattr(np, name) for name in ("where", "abs", "exp", "log", "log1p", "sqrt", "maximum", "minimum")},
    digamma=lambda x: digamma_p.rule("eval")(x),
)
_EPSILON = float(np.finfo(np.float64).eps)
_TINY = 1e-300

Flat = Callable[..., np.ndarray]


@functools.cache
def _quadrature() -> list[tuple[float, float]]:
    """Nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    return list(zip((nodes + 1) / 2, weights / 2))


def _library(
    name: str, function: Flat, domain: tuple[float, float], jvp: tuple[Any, ...], expand: Callable[..., Any]
) -> Primitive:
    """A primitive whose `function` takes and gives flat float64 arrays; one derivative an operand."""

    def evaluate(*operands: np.ndarray) -> np.ndarray:
        arrays = np.broadcast_arrays(*(np.asarray(o, np.float64) for o in operands))
        with np.errstate(all="ignore"):
            result = function(*(a.ravel() for a in arrays))
            return result.reshape(arrays[0].shape).astype(operands[0].dtype)

    return elementwise(name, FLOATS, arity=len(jvp), eval=evaluate, domain=domain, jvp=jvp, expand=expand)


# The incomplete gamma functions. The density of Gamma(a, 1) at x is D / x.
def _gamma_tail(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(upper, ratio, slope): D·ratio is the integral of the density above x where `upper`, elsewhere below x, and
    D·slope that integral's derivative with respect to a."""
    upper = x > np.maximum(a, 1)
    by_series = ~upper & (a < SMOOTH)
    ratio, slope = np.empty_like(x), np.empty_like(x)
    for chosen, rule in ((by_series, _gamma_series), (~by_series, _gamma_quadrature)):
        if chosen.any():
            ratio[chosen], slope[chosen] = rule(a[chosen], x[chosen])
    return upper, ratio, slope


def _gamma_series(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower tail by Σ x^n / ((a + 1)…(a + n)) (Abramowitz & Stegun 6.5.29), and its derivative term by term."""
    term, total = np.ones_like(x), np.ones_like(x)
    term_slope, total_slope = np.zeros_like(x), np.zeros_like(x)
    n = a
    while (term > _EPSILON / 8 * total).any() or (np.abs(term_slope) > _EPSILON / 8 * np.abs(total_slope)).any():
        n = n + 1
        factor = x / n
        term_slope = term_slope * factor - term * factor / n
        term = term * factor
        total, total_slope = total + term, total_slope + term_slope
    return total / a, (total * (log_minus_digamma(a, x, _NUMPY) - 1 / a) + total_slope) / a


def _gamma_quadrature(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Either tail from ∫ exp(-(x - a + 1)·z - (a - 1)·(z - log(1 + z))) dz over z > 0 or -1 < z < 0."""
    extent, offset = gamma_extent(a, x, _NUMPY), log_minus_digamma(a, x, _NUMPY)
    ratio, slope = np.zeros_like(x), np.zeros_like(x)
    for node, weight in _quadrature():
        z = node * extent
        share = weight * gamma_ratio(a, x, z, _NUMPY)
        ratio, slope = ratio + share, slope + share * (np.log1p(z) + offset)
    return ratio * np.abs(extent), slope * np.abs(extent)


def _incomplete_gamma(a: np.ndarray, x: np.ndarray, wanted_upper: bool) -> np.ndarray:
    nothing, all_below = (x == 0) | np.isinf(a), np.isinf(x) | (a == 0)
    invalid = (x < 0) | (a < 0) | ((a == 0) & (x == 0)) | np.isnan(a + x)
    result = np.where(all_below != wanted_upper, 1.0, 0.0)
    result[invalid] = np.nan
    inside = ~(invalid | nothing | all_below)
    a, x = a[inside], x[inside]
    upper, ratio, _ = _gamma_tail(a, x)
    value = gamma_density(a, x, _NUMPY) * ratio
    result[inside] = np.where(upper == wanted_upper, value, 1 - value)
    return result


def _igamma_grad_a(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    result = np.where((x < 0) | (a <= 0) | np.isnan(a + x), np.nan, 0.0)
    inside = (result == 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    a, x = a[inside], x[inside]
    upper, _, slope = _gamma_tail(a, x)
    result[inside] = gamma_density(a, x, _NUMPY) * np.where(upper, -slope, slope)
    return result


def _random_gamma_grad(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """-(dP/da) / (dP/dx): how a sample x of Gamma(a, 1) moves with a, its quantile held."""
    result = np.where((x == 0) & (a > 0), 0.0, np.nan)
    inside = (x > 0) & (a > 0) & np.isfinite(a) & np.isfinite(x)
    a, x = a[inside], x[inside]
    upper, _, slope = _gamma_tail(a, x)
    result[inside] = x * np.where(upper, slope, -slope)
    return result


def _density(a: Any, x: Any) -> Any:
    """The density of Gamma(a, 1) at x."""
    return exp_p.bind((a - 1) * log_p.bind(x) - x - lgamma_p.bind(a))


def _random_gamma_grad_jvp(t: Any, a: Any, x: Any, out: Any) -> Any:
    """With p the density and g the result -(dP/da) / p: dg/dx is -d(log p)/da - g·d(log p)/dx."""
    return t * (digamma_p.bind(a) - log_p.bind(x) - out * ((a - 1) / x - 1))


igamma_p = _library(
    "igamma",
    functools.partial(_incomplete_gamma, wanted_upper=False),
    (0.1, 9.0),
    (lambda t, a, x, out: t * igamma_grad_a_p.bind(a, x), lambda t, a, x, out: t * _density(a, x)),
    expansion.igamma,
)
igammac_p = _library(
    "igammac",
    functools.partial(_incomplete_gamma, wanted_upper=True),
    (0.1, 9.0),
    (lambda t, a, x, out: t * -igamma_grad_a_p.bind(a, x), lambda t, a, x, out: t * -_density(a, x)),
    expansion.igammac,
)
igamma_grad_a_p: Primitive = _library(
    "igamma_grad_a",
    _igamma_grad_a,
    (0.1, 9.0),
    (
        underivable("igamma_grad_a", "a"),
        lambda t, a, x, out: t * (_density(a, x) * (log_p.bind(x) - digamma_p.bind(a))),
    ),
    expansion.igamma_grad_a,
)
random_gamma_grad_p = _library(
    "random_gamma_grad",
    _random_gamma_grad,
    (0.1, 9.0),
    (underivable("random_gamma_grad", "a"), _random_gamma_grad_jvp),
    expansion.random_gamma_grad,
)


# The incomplete beta function; y is 1 - x, and both are given so that the lesser one is exact.
def _incomplete_beta(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    no_a, no_b = (a == 0) | np.isposinf(b), (b == 0) | np.isposinf(a)
    zero, one = (no_b & (x != 1)) | (no_a & (x == 0)) | (x == 0), (no_a & (x != 0)) | (no_b & (x == 1)) | (x == 1)
    invalid = (a < 0) | (b < 0) | (x < 0) | (x > 1) | (no_a & no_b) | np.isnan(a + b + x)
    result = np.where(invalid, np.nan, np.where(one, 1.0, 0.0))
    inside = ~(invalid | zero | one)
    a, b, x = a[inside], b[inside], x[inside]
    lower = x < (a + 1) / (a + b + 2)
    p, q = np.where(lower, a, b), np.where(lower, b, a)
    value = _beta_tail(p, q, np.where(lower, x, 1 - x), np.where(lower, 1 - x, x))
    result[inside] = np.where(lower, value, 1 - value)
    return result


def _beta_tail(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The integral below x, for x up to about the mean."""
    result = np.empty_like(x)
    smooth = np.minimum(a, b) >= SMOOTH
    for chosen, rule in ((smooth, _beta_quadrature), (~smooth, _beta_fraction)):
        if chosen.any():
            operands = a[chosen], b[chosen], x[chosen], y[chosen]
            result[chosen] = beta_density(*operands, _NUMPY) * rule(*operands)
    return result


def _beta_quadrature(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """∫ (1 + z)^(a - 1)·(1 - x·z/y)^(b - 1) dz / y over -1 < z < 0."""
    odds = x / y
    extent = beta_extent(a, b, odds, _NUMPY)
    ratio = np.zeros_like(x)
    for node, weight in _quadrature():
        ratio += weight * beta_ratio(a, b, odds, -node * extent, _NUMPY)
    return ratio * extent / y


def _beta_fraction(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The continued fraction DLMF 8.17.22, divided by a, by the modified Lentz algorithm."""
    c, d, value = np.full_like(x, np.inf), np.ones_like(x), np.ones_like(x)
    for n in range(1, 2000):
        m = n // 2
        if n % 2:
            part = -((a + m) / (a + 2 * m)) * (a + b + m) * (x / (a + 2 * m + 1))
        else:
            part = m * (b - m) / (a + 2 * m - 1) * (x / (a + 2 * m))
        c, d = 1 + part / c, 1 + part * d
        c, d = np.where(c == 0, _TINY, c), 1 / np.where(d == 0, _TINY, d)
        value = value * (c * d)
        if (np.abs(c * d - 1) <= 2 * _EPSILON).all():
            break
    return value / a


def _beta_jvp(t: Any, a: Any, b: Any, x: Any, out: Any) -> Any:
    """The density of Beta(a, b) at x."""
    log_beta = lgamma_p.bind(a) + lgamma_p.bind(b) - lgamma_p.bind(a + b)
    return t * exp_p.bind((b - 1) * log1p_p.bind(-x) + (a - 1) * log_p.bind(x) - log_beta)


regularized_incomplete_beta_p = _library(
    "regularized_incomplete_beta",
    _incomplete_beta,
    (0.05, 0.95),
    (underivable("betainc", "a"), underivable("betainc", "b"), _beta_jvp),
    expansion.incomplete_beta,
)
