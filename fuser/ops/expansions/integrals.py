"""Exponential, trigonometric and Fresnel integrals, the dilogarithm and Owen's T, by series, continued fractions and quadrature.

NIST, "Digital library of mathematical functions", at the numbers named below; Press et al., "Numerical Recipes" (2007), 6.3 and 6.8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ops.expansions import values as m
from fuser.ops.expansions.numerics import EPSILON, complex_fraction, fraction, gauss_legendre

_EULER = 0.57721566490153286061


def series(x: Any, start: Any, step: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Any:
    """Σ of terms until they are negligible beside the sum: `step(k, x, factor)` gives for k = 1, 2, … a factor of the terms and
    the term itself. It starts with the factor 1 and the sum `start`."""

    def further(x: Any, k: Any, factor: Any, total: Any, _: Any) -> list[Any]:
        factor, term = step(k, x, factor)
        return [k + 1, factor, total + term, term]

    def goes_on(x: Any, k: Any, factor: Any, total: Any, term: Any) -> Any:
        return (m.abs(term) > EPSILON / 2 * m.abs(total)) & (k < 2000.0)

    return m.iterate(goes_on, further, [1.0, 1.0, start, np.inf], [x])[2]


def _e1_above(x: Any, n: Any = 1.0) -> Any:
    """exp(x)·E(n, x) for x ≥ 1 (DLMF 8.19.17, its even part)."""
    fixed = [x] if isinstance(n, float) else [x, n]

    def part(k: Any, x: Any, n: Any = n) -> tuple[Any, Any]:
        return m.where(m.equal(k, 1.0), 1.0, -(k - 1) * (n + k - 2)), x + n + 2 * (k - 1)

    return fraction(x * 0, part, fixed)


def _entire(x: Any) -> Any:
    """Σ x^k / (k·k!) (DLMF 6.6.2)."""

    def step(k: Any, x: Any, factor: Any) -> tuple[Any, Any]:
        factor = factor * x / k
        return factor, factor / k

    return series(x, 0.0, step)


def _e1(x: Any) -> Any:
    """E1 for x > 0."""
    small = x <= 1
    near = -_entire(m.where(small, -x, 0.0)) - m.log(x) - _EULER
    far = m.exp(-x) * _e1_above(m.where(small | m.isinf(x), 2.0, x))
    return m.where(small, near, far)


@m.expansion
def exp1(x: Any) -> Any:
    return m.choice([(m.equal(x, 0.0), np.inf), (x > 0, _e1(m.abs(x)))], np.nan)


# The zero of Ei, in two parts.
_ROOT = (0.3725074107813666, 1.3140183414386028e-17)


@m.expansion
def expi(x: Any) -> Any:
    """Beyond 50 by the asymptotic series (DLMF 6.12.2); around its zero by the integral of the derivative from there."""
    size = m.abs(x)
    far = size > 50
    inside = m.where(far, 1.0, size)
    near = _entire(inside) + m.log(inside) + _EULER
    beside = m.abs(inside - _ROOT[0]) < 0.05
    away = m.where(beside, (inside - _ROOT[0]) - _ROOT[1], 0.0)
    near = m.where(beside, away * _around_root(away), near)
    inverse = 1 / m.where(far, size, 60.0)
    far_sum = 1.0 + _asymptotic(inverse)
    above = m.where(far, m.exp(size / 2) * (m.exp(size / 2) * inverse) * far_sum, near)
    above = m.where(m.isinf(size), np.inf, above)
    return m.choice([(m.equal(x, 0.0), -np.inf), (x < 0, -_e1(size)), (m.isnan(x), np.nan)], above)


def _asymptotic(inverse: Any) -> Any:
    def step(k: Any, x: Any, factor: Any) -> tuple[Any, Any]:
        factor = factor * x * k
        return factor, factor

    return series(inverse, 0.0, step)


def _around_root(z: Any) -> Any:
    """Ei(root + z) / z by Taylor's series, from the coefficients of exp(t)/t at the root."""
    root, terms = _ROOT[0], 16
    growth = [1.0 / math.factorial(n) for n in range(terms)]
    fall = [(-1 / root) ** n for n in range(terms)]
    slope = [sum(growth[j] * fall[n - j] for j in range(n + 1)) * math.exp(root) / root for n in range(terms)]
    total: Any = 0.0
    for n in range(terms - 1, -1, -1):
        total = total * z + slope[n] / (n + 1)
    return total


@m.expansion
def expn(n: Any, x: Any) -> Any:
    """E(n, x), n rounded down: up to 1 by the series (DLMF 8.19.8), beyond by the continued fraction."""
    n = m.floor(n)
    valid = (n >= 0) & (x >= 0)
    positive = valid & (x > 0) & (n > 0)
    order, z = m.where(positive, n, 1.0), m.where(positive & ~m.isinf(x), x, 1.0)
    small = z <= 1
    far = m.exp(-z) * _e1_above(m.where(small, 2.0, z), order)
    near = _expn_series(order, m.where(small, z, 1.0))
    value = m.where(small, near, far)
    at_zero = m.where(n >= 2, 1 / m.where(n >= 2, n - 1, 1.0), np.inf)
    return m.choice(
        [
            (~valid, np.nan),
            (m.isinf(x), 0.0),
            (m.equal(n, 0.0), m.exp(-x) / x),
            (m.equal(x, 0.0), at_zero),
        ],
        value,
    )


def _expn_series(n: Any, x: Any) -> Any:
    logarithm = m.digamma(n) - m.log(x)
    first = m.where(m.equal(n, 1.0), logarithm, 1 / m.where(m.equal(n, 1.0), 1.0, n - 1))

    def step(n: Any, x: Any, logarithm: Any, k: Any, factor: Any, total: Any, _: Any) -> list[Any]:
        factor = factor * -x / k
        special = m.equal(k, n - 1)
        term = factor * m.where(special, logarithm, -1 / m.where(special, 1.0, k - (n - 1)))
        return [k + 1, factor, total + term, term]

    def goes_on(n: Any, x: Any, logarithm: Any, k: Any, factor: Any, total: Any, term: Any) -> Any:
        return (m.abs(term) > EPSILON / 2 * m.abs(total)) & (k < 2000.0)

    return m.iterate(goes_on, step, [1.0, 1.0, first, np.inf], [n, x, logarithm])[2]


def _sine_and_cosine(x: Any) -> tuple[Any, Any]:
    """Si and the cosine integral for x > 0: up to 2 by their series (DLMF 6.6.5, 6.6.6), beyond from E1(ix)."""
    small = x <= 2
    z = m.where(small, x, 1.0)
    square = -z * z

    def odd(k: Any, square: Any, factor: Any) -> tuple[Any, Any]:
        factor = factor * square / (2 * k * (2 * k + 1))
        return factor, factor / (2 * k + 1)

    def even(k: Any, square: Any, factor: Any) -> tuple[Any, Any]:
        factor = factor * square / (2 * k * (2 * k - 1))
        return factor, factor / (2 * k)

    near = z * series(square, 1.0, odd), series(square, 0.0, even) + m.log(z) + _EULER
    usual = ~small & (x < 1e15)
    t = m.where(usual, x, 3.0)
    hr, hi = complex_fraction(t, lambda k, t: (-k * k, 2.0), [t])
    cosine, sine = m.cos(t), m.sin(t)
    far = 0.5 * math.pi + (hi * cosine - hr * sine), -(hr * cosine + hi * sine)
    beyond = m.where(m.isinf(x), 0.0, 1 / x)
    angle = m.where(m.isinf(x), 0.0, x)
    last = 0.5 * math.pi - m.cos(angle) * beyond, m.sin(angle) * beyond
    return tuple(m.where(small, a, m.where(usual, b, c)) for a, b, c in zip(near, far, last))  # type: ignore[return-value]


@m.expansion
def sine_integral(x: Any) -> Any:
    size = m.abs(x)
    value = m.where(m.equal(x, 0.0), 0.0, _sine_and_cosine(m.where(m.equal(x, 0.0), 1.0, size))[0])
    return m.where(x < 0, -value, value)


@m.expansion
def cosine_integral(x: Any) -> Any:
    value = _sine_and_cosine(m.where(m.equal(x, 0.0), 1.0, m.abs(x)))[1]
    return m.choice([(m.equal(x, 0.0), -np.inf), (m.equal(x, -np.inf), np.nan)], value)


def _fresnel(x: Any) -> tuple[Any, Any]:
    """The integrals of sin and cos for x ≥ 0: below 1.5 by their series (DLMF 7.6.4, 7.6.6), beyond from erfc of a complex number."""
    small = x < 1.5
    z = m.where(small, x, 1.0)
    angle = 0.5 * math.pi * z * z
    square = -angle * angle

    def of_sine(k: Any, square: Any, factor: Any) -> tuple[Any, Any]:
        factor = factor * square / (2 * k * (2 * k + 1))
        return factor, factor / (4 * k + 3)

    def of_cosine(k: Any, square: Any, factor: Any) -> tuple[Any, Any]:
        factor = factor * square / (2 * k * (2 * k - 1))
        return factor, factor / (4 * k + 1)

    near = z * angle * series(square, 1 / 3, of_sine), z * series(square, 1.0, of_cosine)
    usual = ~small & (x < 1e8)
    t = m.where(usual, x, 2.0)
    # 1/(1 - iπt² + a1/(5 - iπt² + …)) with a = -(2k - 1)·2k
    hr, hi = complex_fraction(-math.pi * t * t, lambda k, t: (-(2 * k - 1) * (2 * k), 4.0), [t])
    hr, hi = t * (hr + hi), t * (hi - hr)
    turns = t * t * 0.25
    angle = 2 * math.pi * (turns - m.floor(turns))
    cosine, sine = m.cos(angle), m.sin(angle)
    real, imag = 1 - (cosine * hr - sine * hi), -(cosine * hi + sine * hr)
    far = 0.5 * (real + imag), 0.5 * (real - imag)
    return tuple(m.where(small, a, m.where(usual, b, 0.5)) for a, b in zip(near, far))  # type: ignore[return-value]


def _odd_fresnel(part: int) -> Callable[..., Any]:
    @m.expansion
    def function(x: Any) -> Any:
        value = _fresnel(m.abs(x))[part]
        return m.choice([(m.isnan(x), np.nan), (x < 0, -value)], value)

    return function


fresnel_s, fresnel_c = _odd_fresnel(0), _odd_fresnel(1)

# B(2n) / (2n + 1)!, of the dilogarithm's expansion in log(x).
_BERNOULLI = (
    1 / 36, -1 / 3600, 1 / 211680, -1 / 10886400, 1 / 526901760, -691 / 16999766784000, 1 / 1120863744000, -3617 / 181400588328960000,
    43867 / 97072790126247936000, -174611 / 16860010916664115200000,
)  # fmt: skip


def _dilogarithm_near(x: Any) -> Any:
    """∫ log(t)/(1 - t) from 1 to x for 1/2 ≤ x ≤ 2: Σ B(n)·u^(n + 1)/(n + 1)! with u = -log(x) (Debye's function, DLMF 27.2.1)."""
    u = -m.log(x)
    square, total = u * u, 0.0
    for term in reversed(_BERNOULLI):
        total = (total + term) * square
    return u * (1 + total) - 0.25 * square


@m.expansion
def spence(x: Any) -> Any:
    """Inversion above 2 and reflection below 1/2 (DLMF 25.12.4, 25.12.6)."""
    large = x > 2
    y = m.choice([(large, 1 / m.where(large, x, 3.0)), (m.equal(x, 0.0), 1.0)], x)
    reflected = y < 0.5
    inner = _dilogarithm_near(m.where(reflected, 1 - y, m.where(y >= 0.5, y, 1.0)))
    below = m.where(reflected, y, 0.25)
    value = m.where(reflected, math.pi**2 / 6 - m.log(below) * m.log1p(-below) - inner, inner)
    logarithm = m.log(m.where(large, x, 3.0))
    value = m.where(large, -0.5 * logarithm * logarithm - value, value)
    return m.choice([(m.equal(x, 0.0), math.pi**2 / 6), (~(x >= 0) | m.isinf(x), np.nan)], value)


def _owens_inside(h: Any, a: Any) -> Any:
    """T(h, a) for h ≥ 0 and 0 ≤ a ≤ 1: quadrature over parts of [0, a], of which the end may be negligible."""
    end = m.minimum(a, 9.0 / m.maximum(h, 1e-300))
    parts = 6

    def step(h: Any, end: Any, number: Any, total: Any) -> list[Any]:
        for node, weight in gauss_legendre(10):
            t = end * ((number + node) / parts)
            spread = 1 + t * t
            total = total + weight * m.exp(-0.5 * (h * t) * (h * t)) / spread
        return [total]

    [total] = m.repeat(parts, step, [0.0], [h, end])
    return total * end * m.exp(-0.5 * h * h) / (2 * math.pi * parts)


@m.expansion
def owens_t(h: Any, a: Any) -> Any:
    """Odd in a, even in h; beyond a = 1 by T(h, a) = (Q(h) + Q(ah))/2 - Q(h)·Q(ah) - T(ah, 1/a), Q the normal distribution's tail."""
    size, slope = m.abs(h), m.abs(a)
    steep = slope > 1
    scaled = m.where(steep, m.where(m.equal(size, 0.0), 0.0, size * slope), size)
    inside = _owens_inside(m.where(m.isinf(scaled), 0.0, scaled), m.where(steep, 1 / slope, slope))
    inside = m.where(m.isinf(scaled), 0.0, inside)
    one, other = (0.5 * m.erfc(v * math.sqrt(0.5)) for v in (size, scaled))
    value = m.where(steep, 0.5 * (one + other) - one * other - inside, inside)
    return m.choice([(m.isnan(h) | m.isnan(a), np.nan), (a < 0, -value)], value)
