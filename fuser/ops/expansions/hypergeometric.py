"""Kummer's and Gauss' hypergeometric functions and their derivatives by the parameters: power series, transformed to where they
converge (NIST, "Digital library of mathematical functions" 13.2, 13.7, 15.2, 15.4, 15.8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fuser.ops.expansions import values as m
from fuser.ops.expansions.numerics import EPSILON

_MOST = 20000.0  # terms, after which a series that goes on gives nan
_FAR = 50.0  # from which on the asymptotic expansion of small parameters has all digits

# The factor from a term to the next one for k = 0, 1, …, and its derivatives by the parameters.
Factor = Callable[..., tuple[Any, Sequence[Any]]]


def _sums(factor: Factor, parameters: Sequence[Any], x: Any, derivatives: int) -> list[Any]:
    """The sum of the terms that begin with 1, and of their derivatives by the first parameters."""
    count, held = derivatives + 1, [x, *parameters]

    def step(*values: Any) -> list[Any]:
        (x, *given), k = values[: len(held)], values[len(held)]
        terms, totals = values[len(held) + 1 :][:count], values[len(held) + 1 + count :]
        scale, slopes = factor(k, x, *given)
        new = [terms[0] * scale, *(term * scale + terms[0] * slope for term, slope in zip(terms[1:], slopes))]
        return [k + 1, *new, *(total + term for total, term in zip(totals, new))]

    def goes_on(*values: Any) -> Any:
        k, terms, totals = values[len(held)], values[len(held) + 1 :][:count], values[len(held) + 1 + count :]
        going = m.abs(terms[0]) > EPSILON / 8 * m.abs(totals[0])
        for term, total in zip(terms[1:], totals[1:]):
            going = going | (m.abs(term) > EPSILON / 8 * m.abs(total)) | m.equal(k, 0.0)
        return going & (k < _MOST)

    start = [1.0, *[0.0] * derivatives]
    found = m.iterate(goes_on, step, [0.0, *start, *start], held)
    terminated = found[0] < _MOST
    return [m.where(terminated, total, math.nan) for total in found[1 + count :]]


def _kummer_factor(k: Any, x: Any, a: Any, b: Any) -> tuple[Any, Sequence[Any]]:
    over = x / ((b + k) * (k + 1))
    factor = (a + k) * over
    return factor, (over, -factor / (b + k))


def _sign_of_gamma(x: Any) -> Any:
    below = m.floor(x)
    odd = m.not_equal(m.floor(below / 2) * 2, below)
    return m.where((x < 0) & odd, -1.0, 1.0)


def _gamma_ratio(above: Sequence[Any], below: Sequence[Any]) -> Any:
    """The quotient of products of gamma functions; 0 where one of those below has a pole."""
    logarithm, sign = 0.0, 1.0
    for value in above:
        logarithm, sign = logarithm + m.lgamma(value), sign * _sign_of_gamma(value)
    for value in below:
        logarithm, sign = logarithm - m.lgamma(value), sign * _sign_of_gamma(value)
    return sign * m.exp(logarithm)


def _kummer_far(a: Any, b: Any, x: Any) -> Any:
    """M(a, b, -x) for a large x > 0 (DLMF 13.7.2)."""

    def factor(k: Any, x: Any, a: Any, b: Any) -> tuple[Any, Sequence[Any]]:
        scale = (a + k) * (a - b + 1 + k) / ((k + 1) * x)
        return m.where(k < 60.0, scale, 0.0), ()

    [total] = _sums(factor, [a, b], x, 0)
    return _gamma_ratio([b], [b - a]) * m.exp(-a * m.log(x)) * total


@m.expansion
def hyp1f1(a: Any, b: Any, x: Any) -> Any:
    """M(a, b, x); for x < 0 exp(x)·M(b - a, b, -x), or the expansion for large x."""
    below = x < 0
    size = m.abs(x)
    bound = m.maximum(m.abs(a), m.abs(a - b + 1))
    far = below & (size > _FAR) & (bound * bound < size / 2)
    pole = (b <= 0) & m.equal(m.floor(b), b) & ~((a <= 0) & m.equal(m.floor(a), a) & (a > b))
    usual = ~(pole | far | m.isnan(x) | m.isinf(x))
    ends = (a <= 0) & m.equal(m.floor(a), a)  # a polynomial
    turned = below & ~ends
    [total] = _sums(
        lambda *values: (_kummer_factor(*values)[0], ()),
        [m.where(turned, b - a, a), m.where(pole, 1.0, b)],
        m.where(usual, m.where(ends, x, size), 0.0),
        0,
    )
    value = m.where(turned, m.exp(x) * total, total)
    distant = _kummer_far(m.where(far, a, 1.0), m.where(far, b, 1.5), m.where(far & ~m.isinf(x), size, 100.0))
    infinite = m.where(below, math.nan, math.inf)
    return m.choice([(m.isnan(a + b + x), math.nan), (pole, math.inf), (m.isinf(x), infinite), (far, distant)], value)


def _kummer_slope(part: int) -> Callable[..., Any]:
    @m.expansion
    def function(a: Any, b: Any, x: Any) -> Any:
        below = x < 0
        _, by_a, by_b = _sums(_kummer_factor, [m.where(below, b - a, a), b], m.abs(x), 2)
        turned, plain = (-by_a, by_a) if part == 1 else (by_a + by_b, by_b)
        return m.where(below, m.exp(x) * turned, plain)

    return function


hyp1f1_by_a, hyp1f1_by_b = _kummer_slope(1), _kummer_slope(2)


def _gauss_factor(k: Any, x: Any, a: Any, b: Any, c: Any) -> tuple[Any, Sequence[Any]]:
    over = x / ((c + k) * (k + 1))
    factor = (a + k) * (b + k) * over
    return factor, ((b + k) * over, (a + k) * over, -factor / (c + k))


def _whole_below(x: Any) -> Any:
    return (x <= 0) & m.equal(m.floor(x), x)


def _gauss(a: Any, b: Any, c: Any, x: Any) -> Any:
    [total] = _sums(lambda *values: (_gauss_factor(*values)[0], ()), [a, b, c], x, 0)
    return total


@m.expansion
def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Any:
    """F(a, b; c; x): a polynomial where a or b says so; for x < 0 (1 - x)⁻ᵃ·F(a, c - b; c; x/(x - 1)); near 1 through F at 1 - x
    unless c - a - b is near a whole number; inf beyond 1."""
    ends = _whole_below(a) | _whole_below(b)
    degree = m.where(_whole_below(a), -a, math.inf)
    degree = m.minimum(degree, m.where(_whole_below(b), -b, math.inf))
    pole = _whole_below(c) & (degree > -c)
    # of the two forms for x < 0 that with the smaller parameters
    swapped = m.abs(b) < m.abs(a)
    a, b = m.where(swapped, b, a), m.where(swapped, a, b)
    turned = (x < 0) & ~ends
    inside = m.where(turned, x / (x - 1), x)
    p, q = a, m.where(turned, c - b, b)
    excess = c - p - q
    apart = m.abs(excess - m.floor(excess + 0.5))
    near_one = ~ends & (inside > 0.9) & (inside < 1) & (apart > 1e-3) & ~_whole_below(c - p) & ~_whole_below(c - q)
    valid = ~pole & (ends | (inside < 1))
    plain = _gauss(p, q, m.where(pole, 1.0, c), m.where(valid & ~near_one, inside, 0.0))
    value = m.where(near_one, _gauss_near_one(p, q, c, excess, inside, near_one), plain)
    value = m.where(turned, m.exp(-a * m.log1p(m.where(turned, -x, 0.0))) * value, value)
    at_one = m.equal(inside, 1.0) & ~ends
    limit = m.where(c - a - b > 0, _gamma_ratio([c, m.where(c - a - b > 0, c - a - b, 1.0)], [c - a, c - b]), math.inf)
    cases = [(m.isnan(a + b + c + x), math.nan), (pole, math.inf), (ends, value), (m.equal(x, -math.inf), math.nan)]
    return m.choice([*cases, (at_one, limit), (inside > 1, math.inf)], value)


def _gauss_near_one(a: Any, b: Any, c: Any, excess: Any, x: Any, chosen: Any) -> Any:
    """Γ(c)Γ(s)/(Γ(c-a)Γ(c-b))·F(a, b; 1 - s; 1 - x) + (1 - x)^s·Γ(c)Γ(-s)/(Γ(a)Γ(b))·F(c - a, c - b; 1 + s; 1 - x), s = c - a - b."""
    a, b, c, s = (m.where(chosen, v, usual) for v, usual in ((a, 0.5), (b, 0.5), (c, 1.5), (excess, 0.5)))
    rest = m.where(chosen, 1 - x, 0.05)
    first = _gamma_ratio([c, s], [c - a, c - b]) * _gauss(a, b, 1 - s, rest)
    second = _gamma_ratio([c, -s], [a, b]) * _gauss(c - a, c - b, 1 + s, rest)
    return first + m.exp(s * m.log(rest)) * second


def _gauss_slope(part: int) -> Callable[..., Any]:
    @m.expansion
    def function(a: Any, b: Any, c: Any, x: Any) -> Any:
        below = x < 0
        inside = m.where(below, x / (x - 1), x)
        valid = inside < 1
        sums = _sums(_gauss_factor, [a, m.where(below, c - b, b), c], m.where(valid, inside, 0.0), 3)
        total, by_a, by_b, by_c = sums
        logarithm = m.log1p(m.where(below, -x, 0.0))
        turned = (by_a - logarithm * total, -by_b, by_c + by_b)[part]
        value = m.where(below, m.exp(-a * logarithm) * turned, (by_a, by_b, by_c)[part])
        return m.where(valid, value, math.nan)

    return function


hyp2f1_by = tuple(map(_gauss_slope, range(3)))
