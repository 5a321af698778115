"""Incomplete gamma and beta functions and their derivatives, as library calls: NumPy arrays in and out.

The c backend calls the same formulas in C (runtime/kernels/incomplete.c). All are computed in float64. A tail of an integral is its integrand at the tail's end, times the integral of the ratio to
that, by Gauss–Legendre quadrature: no loop grows with the parameters. Where the integrand is singular near the end (small
parameters) a power series or a continued fraction stands instead. z is the distance from the end x, in units of x.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.primitive import Primitive
from fuser.ir.types import FLOATS
from fuser.ops.elementwise import exp_p, lgamma_p, log1p_p, log_p
from fuser.ops.family import elementwise, underivable
from fuser.ops.special import digamma_p, stirling

_SMOOTH = 20.0  # from here on t^(a - 1) is smooth enough at 0 for quadrature
_NEGLIGIBLE = 40.0  # a tail ends where its integrand is exp(-40) of what it is at x
_EPSILON = float(np.finfo(np.float64).eps)
_TINY = 1e-300

Flat = Callable[..., np.ndarray]


@functools.cache
def _quadrature() -> list[tuple[float, float]]:
    """Nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    return list(zip((nodes + 1) / 2, weights / 2))


def _library(name: str, function: Flat, domain: tuple[float, float], jvp: tuple[Any, ...]) -> Primitive:
    """A primitive whose `function` takes and gives flat float64 arrays; one derivative an operand."""

    def evaluate(*operands: np.ndarray) -> np.ndarray:
        arrays = np.broadcast_arrays(*(np.asarray(o, np.float64) for o in operands))
        with np.errstate(all="ignore"):
            result = function(*(a.ravel() for a in arrays))
            return result.reshape(arrays[0].shape).astype(operands[0].dtype)

    return elementwise(name, FLOATS, arity=len(jvp), eval=evaluate, domain=domain, jvp=jvp)


def _excess(z: np.ndarray, above: np.ndarray | None = None) -> np.ndarray:
    """z - log(1 + z), without cancellation near 0: log(1 + z) is 2·artanh(z / (2 + z)). `above`: 1 + z, where it is known."""
    r = z / (2 + z)
    square = r * r
    series = np.zeros_like(r)
    for k in range(33, 1, -2):
        series = series * square + 1 / k
    return np.where(
        np.abs(z) < 0.5, z * r - 2 * r * square * series, z - (np.log1p(z) if above is None else np.log(above))
    )


def _positive_root(a: np.ndarray, b: np.ndarray, c: float) -> np.ndarray:
    """The positive solution of a·z² + b·z = c, for c > 0 and a > 0."""
    root = np.sqrt(b * b + 4 * a * c)
    return np.where(b > 0, 2 * c / (b + root), (root - b) / (2 * a))


def _reach(curvature: np.ndarray, fall: np.ndarray) -> np.ndarray:
    """A z > 0 by which fall·z + curvature·(z - log(1 + z)) has grown negligible, from z - log(1 + z) ≥ z² / (2 + 4z/3)."""
    return _positive_root(curvature + fall * (4 / 3), 2 * fall - _NEGLIGIBLE * (4 / 3), 2 * _NEGLIGIBLE)


# The incomplete gamma functions. The density of Gamma(a, 1) at x is D / x.
def _gamma_density(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """D = x^a·exp(-x) / Γ(a), by Stirling's series; at a + 10, and divided back down, for a small a."""
    large = np.sqrt(a / (2 * math.pi)) * np.exp(-a * _excess((x - a) / a, x / a) - stirling(a, np))
    b = a + 10
    down = functools.reduce(lambda product, k: product * (a + k), range(1, 10), a)
    log_gamma = (b - 0.5) * np.log(b) - b + 0.5 * math.log(2 * math.pi) + stirling(b, np)
    return np.where(a >= _SMOOTH, large, down * np.exp(a * np.log(x) - x - log_gamma))


def _log_minus_digamma(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """log(x) - digamma(a); for a large `a` through log(a) - digamma(a), which is small (Abramowitz & Stegun 6.3.18)."""
    i = 1 / (a * a)
    beyond = 0.5 / a + i * (1 / 12 - i * (1 / 120 - i * (1 / 252 - i * (1 / 240 - i / 132))))
    small = np.log(x) - digamma_p.rule("eval")(a)
    ratio = np.where(np.abs(x - a) < 0.5 * a, np.log1p((x - a) / a), np.log(x / a))
    return np.where(a >= _SMOOTH, ratio + beyond, small)


def _gamma_tail(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(upper, ratio, slope): D·ratio is the integral of the density above x where `upper`, elsewhere below x, and
    D·slope that integral's derivative with respect to a."""
    upper = x > np.maximum(a, 1)
    by_series = ~upper & (a < _SMOOTH)
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
    return total / a, (total * (_log_minus_digamma(a, x) - 1 / a) + total_slope) / a


def _gamma_quadrature(a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Either tail from ∫ exp(-(x - a + 1)·z - (a - 1)·(z - log(1 + z))) dz over z > 0 or -1 < z < 0."""
    power = a - 1
    upwards = _reach(np.maximum(power, 0), x - np.maximum(power, 0))
    downwards = np.minimum(_positive_root(power / 2, power - x, _NEGLIGIBLE), 1)
    reach = np.where(x > np.maximum(a, 1), upwards, -downwards)
    offset = _log_minus_digamma(a, x)
    ratio, slope = np.zeros_like(x), np.zeros_like(x)
    for node, weight in _quadrature():
        z = node * reach
        share = weight * np.exp(-(x - power) * z - power * _excess(z))
        ratio, slope = ratio + share, slope + share * (np.log1p(z) + offset)
    return ratio * np.abs(reach), slope * np.abs(reach)


def _incomplete_gamma(a: np.ndarray, x: np.ndarray, wanted_upper: bool) -> np.ndarray:
    nothing, all_below = (x == 0) | np.isinf(a), np.isinf(x) | (a == 0)
    invalid = (x < 0) | (a < 0) | ((a == 0) & (x == 0)) | np.isnan(a + x)
    result = np.where(all_below != wanted_upper, 1.0, 0.0)
    result[invalid] = np.nan
    inside = ~(invalid | nothing | all_below)
    a, x = a[inside], x[inside]
    upper, ratio, _ = _gamma_tail(a, x)
    value = _gamma_density(a, x) * ratio
    result[inside] = np.where(upper == wanted_upper, value, 1 - value)
    return result


def _igamma_grad_a(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    result = np.where((x < 0) | (a <= 0) | np.isnan(a + x), np.nan, 0.0)
    inside = (result == 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    a, x = a[inside], x[inside]
    upper, _, slope = _gamma_tail(a, x)
    result[inside] = _gamma_density(a, x) * np.where(upper, -slope, slope)
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
)
igammac_p = _library(
    "igammac",
    functools.partial(_incomplete_gamma, wanted_upper=True),
    (0.1, 9.0),
    (lambda t, a, x, out: t * -igamma_grad_a_p.bind(a, x), lambda t, a, x, out: t * -_density(a, x)),
)
igamma_grad_a_p: Primitive = _library(
    "igamma_grad_a",
    _igamma_grad_a,
    (0.1, 9.0),
    (
        underivable("igamma_grad_a", "a"),
        lambda t, a, x, out: t * (_density(a, x) * (log_p.bind(x) - digamma_p.bind(a))),
    ),
)
random_gamma_grad_p = _library(
    "random_gamma_grad", _random_gamma_grad, (0.1, 9.0), (underivable("random_gamma_grad", "a"), _random_gamma_grad_jvp)
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
    smooth = np.minimum(a, b) >= _SMOOTH
    for chosen, rule in ((smooth, _beta_quadrature), (~smooth, _beta_fraction)):
        if chosen.any():
            operands = a[chosen], b[chosen], x[chosen], y[chosen]
            result[chosen] = _beta_density(*operands) * rule(*operands)
    return result


def _beta_density(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x^a·y^b / B(a, b) by Stirling's series; a parameter below 10 is raised by 10 and the result divided back down."""
    up_a, up_b = np.where(a < 10, 10.0, 0.0), np.where(b < 10, 10.0, 0.0)
    p, q = a + up_a, b + up_b
    both = p + q
    beside = np.where(x < 0.5, x * both - p, q - y * both)  # x·q - y·p
    log_x, log_y = np.where(x < 0.5, np.log(x), np.log1p(-y)), np.where(x < 0.5, np.log1p(-x), np.log(y))
    total = (
        -p * _excess(beside / p, x / p * both) - q * _excess(-beside / q, y / q * both) - up_a * log_x - up_b * log_y
    )
    total += 0.5 * np.log(p / both * (q / (2 * math.pi))) + stirling(both, np) - stirling(p, np) - stirling(q, np)
    for k in range(10):
        total += np.where(a < 10, np.log(a + k), 0) + np.where(b < 10, np.log(b + k), 0)
    for k in range(20):
        total -= np.where(up_a + up_b > k, np.log(a + b + k), 0)
    return np.exp(total)


def _beta_quadrature(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """∫ (1 + z)^(a - 1)·(1 - x·z/y)^(b - 1) dz / y over -1 < z < 0."""
    odds = x / y
    fall = (a - 1) - (b - 1) * odds
    reach = np.minimum(_positive_root((a - 1) / 2, fall, _NEGLIGIBLE), _reach(b - 1, fall / odds) / odds)
    reach = np.minimum(reach, 1)
    ratio = np.zeros_like(x)
    for node, weight in _quadrature():
        z = -node * reach
        ratio += weight * np.exp(fall * z - (a - 1) * _excess(z) - (b - 1) * _excess(-odds * z))
    return ratio * reach / y


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
)
