"""Incomplete gamma and beta functions and their derivatives, as loops: the formulas of ops/incomplete.py, element by element.

The quadrature is Gauss–Legendre of eight points on twelve parts of the tail, which grow with the distance from its end: the
singularity of a small parameter lies not far behind that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fuser.ops import tails
from fuser.ops.expansions import values as m
from fuser.ops.expansions.numerics import EPSILON, fraction, gauss_legendre

_PARTS = 12


def _points(number: Any) -> list[tuple[Any, Any]]:
    """Nodes t² in [0, 1] and weights of one part."""
    roots = [((number + node) / _PARTS, 2 * weight / _PARTS) for node, weight in gauss_legendre(8)]
    return [(t * t, t * weight) for t, weight in roots]


def _gamma_tail(a: Any, x: Any) -> tuple[Any, Any, Any]:
    """As `_gamma_tail` of ops/incomplete.py: which tail, its integral and that integral's derivative by a, over the density."""
    upper = x > m.maximum(a, 1.0)
    by_series = ~upper & (a < tails.SMOOTH)
    offset = tails.log_minus_digamma(a, x, m)
    series = _gamma_series(m.where(by_series, a, 1.0), m.where(by_series, x, 0.0), offset)
    quadrature = _gamma_quadrature(m.where(by_series, 2.0, a), m.where(by_series, 3.0, x), offset)
    ratio, slope = (m.where(by_series, one, other) for one, other in zip(series, quadrature))
    return upper, ratio, slope


def _gamma_series(a: Any, x: Any, offset: Any) -> tuple[Any, Any]:
    def step(a: Any, x: Any, n: Any, term: Any, slope: Any, total: Any, total_slope: Any) -> list[Any]:
        n = n + 1
        factor = x / n
        slope = slope * factor - term * factor / n
        term = term * factor
        return [n, term, slope, total + term, total_slope + slope]

    def goes_on(a: Any, x: Any, n: Any, term: Any, slope: Any, total: Any, total_slope: Any) -> Any:
        return (term > EPSILON / 4 * total) | (m.abs(slope) > EPSILON / 4 * m.abs(total_slope))

    _, _, _, total, slope = m.iterate(goes_on, step, [a, 1.0, 0.0, 1.0, 0.0], [a, x])
    return total / a, (total * (offset - 1 / a) + slope) / a


def _gamma_quadrature(a: Any, x: Any, offset: Any) -> tuple[Any, Any]:
    extent = tails.gamma_extent(a, x, m)

    def step(a: Any, x: Any, extent: Any, offset: Any, number: Any, ratio: Any, slope: Any) -> list[Any]:
        for node, weight in _points(number):
            z = node * extent
            share = weight * tails.gamma_ratio(a, x, z, m)
            ratio, slope = ratio + share, slope + share * (m.log1p(z) + offset)
        return [ratio, slope]

    ratio, slope = m.repeat(_PARTS, step, [0.0, 0.0], [a, x, extent, offset])
    return ratio * m.abs(extent), slope * m.abs(extent)


def _incomplete_gamma(wanted_upper: bool) -> Callable[..., Any]:
    @m.expansion
    def function(a: Any, x: Any) -> Any:
        nothing, all_below = m.equal(x, 0.0) | m.isinf(a), m.isinf(x) | m.equal(a, 0.0)
        invalid = (x < 0) | (a < 0) | (m.equal(a, 0.0) & m.equal(x, 0.0)) | m.isnan(a + x)
        inside = ~(invalid | nothing | all_below)
        p, z = m.where(inside, a, 1.0), m.where(inside, x, 1.0)
        upper, ratio, _ = _gamma_tail(p, z)
        value = tails.gamma_density(p, z, m) * ratio
        value = m.where(upper if wanted_upper else ~upper, value, 1 - value)
        ends = (1.0, 0.0) if wanted_upper else (0.0, 1.0)
        return m.choice([(invalid, math.nan), (all_below, ends[1]), (nothing, ends[0])], value)

    return function


igamma, igammac = _incomplete_gamma(False), _incomplete_gamma(True)


def _slope(a: Any, x: Any) -> tuple[Any, Any, Any, Any]:
    """Where a and x are usual, those made so, and the derivative of the lower tail by a over the density."""
    inside = (x > 0) & (a > 0) & ~m.isinf(a) & ~m.isinf(x)
    p, z = m.where(inside, a, 1.0), m.where(inside, x, 1.0)
    upper, _, slope = _gamma_tail(p, z)
    return inside, p, z, m.where(upper, -slope, slope)


@m.expansion
def igamma_grad_a(a: Any, x: Any) -> Any:
    inside, p, z, slope = _slope(a, x)
    otherwise = m.where((x < 0) | (a <= 0) | m.isnan(a + x), math.nan, 0.0)
    return m.where(inside, tails.gamma_density(p, z, m) * slope, otherwise)


@m.expansion
def random_gamma_grad(a: Any, x: Any) -> Any:
    inside, _, z, slope = _slope(a, x)
    return m.where(inside, -z * slope, m.where(m.equal(x, 0.0) & (a > 0), 0.0, math.nan))


def _beta_fraction(a: Any, b: Any, x: Any) -> Any:
    """The continued fraction DLMF 8.17.22, divided by a."""

    def part(n: Any, a: Any, b: Any, x: Any) -> tuple[Any, Any]:
        half = m.floor(n / 2)
        odd = -((a + half) / (a + 2 * half)) * (a + b + half) * (x / (a + 2 * half + 1))
        even = half * (b - half) / (a + 2 * half - 1) * (x / (a + 2 * half))
        return m.where(m.equal(2 * half, n), even, odd), 1.0

    return 1 / (fraction(a * 0 + 1, part, [a, b, x]) * a)


def _beta_quadrature(a: Any, b: Any, x: Any, y: Any) -> Any:
    odds = x / y
    extent = tails.beta_extent(a, b, odds, m)

    def step(a: Any, b: Any, odds: Any, extent: Any, number: Any, ratio: Any) -> list[Any]:
        for node, weight in _points(number):
            ratio = ratio + weight * tails.beta_ratio(a, b, odds, -node * extent, m)
        return [ratio]

    [ratio] = m.repeat(_PARTS, step, [0.0], [a, b, odds, extent])
    return ratio * extent / y


@m.expansion
def incomplete_beta(a: Any, b: Any, x: Any) -> Any:
    no_a, no_b = m.equal(a, 0.0) | m.equal(b, math.inf), m.equal(b, 0.0) | m.equal(a, math.inf)
    at_zero, at_one = m.equal(x, 0.0), m.equal(x, 1.0)
    zero, one = (no_b & ~at_one) | (no_a & at_zero) | at_zero, (no_a & ~at_zero) | (no_b & at_one) | at_one
    invalid = (a < 0) | (b < 0) | (x < 0) | (x > 1) | (no_a & no_b) | m.isnan(a + b + x)
    special = invalid | zero | one
    a, b, x = m.where(special, 1.0, a), m.where(special, 1.0, b), m.where(special, 0.5, x)
    lower = x < (a + 1) / (a + b + 2)
    p, q = m.where(lower, a, b), m.where(lower, b, a)
    z, y = m.where(lower, x, 1 - x), m.where(lower, 1 - x, x)
    smooth = m.minimum(p, q) >= tails.SMOOTH
    fraction_of = [m.where(smooth, usual, v) for v, usual in ((p, 1.0), (q, 1.0), (z, 0.5))]
    usual = [m.where(smooth, v, other) for v, other in ((p, 30.0), (q, 30.0), (z, 0.5), (y, 0.5))]
    ratio = m.where(smooth, _beta_quadrature(*usual), _beta_fraction(*fraction_of))
    value = tails.beta_density(p, q, z, y, m) * ratio
    return m.choice([(invalid, math.nan), (one, 1.0), (zero, 0.0)], m.where(lower, value, 1 - value))
