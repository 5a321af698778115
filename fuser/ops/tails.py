"""Densities and tails of the gamma and beta distributions by fixed formulas, for any module `m` of functions with NumPy's names
and `digamma`. All are in float64; z is the distance from a tail's end x, in units of x.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from fuser.ops.special import stirling

SMOOTH = 20.0  # from here on t^(a - 1) is smooth enough at 0 for quadrature
NEGLIGIBLE = 40.0  # a tail ends where its integrand is exp(-40) of what it is at x


def excess(z: Any, m: Any, above: Any | None = None) -> Any:
    """z - log(1 + z), without cancellation near 0: log(1 + z) is 2·artanh(z / (2 + z)). `above`: 1 + z, where it is known."""
    r = z / (2 + z)
    square = r * r
    series: Any = 0.0
    for k in range(33, 1, -2):
        series = series * square + 1 / k
    return m.where(m.abs(z) < 0.5, z * r - 2 * r * square * series, z - (m.log1p(z) if above is None else m.log(above)))


def positive_root(a: Any, b: Any, c: float, m: Any) -> Any:
    """The positive solution of a·z² + b·z = c, for c > 0 and a > 0."""
    root = m.sqrt(b * b + 4 * a * c)
    return m.where(b > 0, 2 * c / (b + root), (root - b) / (2 * a))


def reach(curvature: Any, fall: Any, m: Any) -> Any:
    """A z > 0 by which fall·z + curvature·(z - log(1 + z)) has grown negligible, from z - log(1 + z) ≥ z² / (2 + 4z/3)."""
    return positive_root(curvature + fall * (4 / 3), 2 * fall - NEGLIGIBLE * (4 / 3), 2 * NEGLIGIBLE, m)


def gamma_density(a: Any, x: Any, m: Any) -> Any:
    """D = x^a·exp(-x) / Γ(a), by Stirling's series; at a + 10, and divided back down, for a small a."""
    large = m.sqrt(a / (2 * math.pi)) * m.exp(-a * excess((x - a) / a, m, x / a) - stirling(a, m))
    b = a + 10
    down = functools.reduce(lambda product, k: product * (a + k), range(1, 10), a)
    log_gamma = (b - 0.5) * m.log(b) - b + 0.5 * math.log(2 * math.pi) + stirling(b, m)
    return m.where(a >= SMOOTH, large, down * m.exp(a * m.log(x) - x - log_gamma))


def log_minus_digamma(a: Any, x: Any, m: Any) -> Any:
    """log(x) - digamma(a); for a large `a` through log(a) - digamma(a), which is small (Abramowitz & Stegun 6.3.18)."""
    i = 1 / (a * a)
    beyond = 0.5 / a + i * (1 / 12 - i * (1 / 120 - i * (1 / 252 - i * (1 / 240 - i / 132))))
    small = m.log(x) - m.digamma(a)
    ratio = m.where(m.abs(x - a) < 0.5 * a, m.log1p((x - a) / a), m.log(x / a))
    return m.where(a >= SMOOTH, ratio + beyond, small)


def beta_density(a: Any, b: Any, x: Any, y: Any, m: Any) -> Any:
    """x^a·y^b / B(a, b) by Stirling's series; a parameter below 10 is raised by 10 and the result divided back down."""
    up_a, up_b = m.where(a < 10, 10.0, 0.0), m.where(b < 10, 10.0, 0.0)
    p, q = a + up_a, b + up_b
    both = p + q
    beside = m.where(x < 0.5, x * both - p, q - y * both)  # x·q - y·p
    log_x, log_y = m.where(x < 0.5, m.log(x), m.log1p(-y)), m.where(x < 0.5, m.log1p(-x), m.log(y))
    total = (
        -p * excess(beside / p, m, x / p * both)
        - q * excess(-beside / q, m, y / q * both)
        - up_a * log_x
        - up_b * log_y
    )
    total += 0.5 * m.log(p / both * (q / (2 * math.pi))) + stirling(both, m) - stirling(p, m) - stirling(q, m)
    for value in (a, b):
        total += m.where(value < 10, m.log(_risen(value, 0, 10)), 0.0)
    for first in range(0, 20, 5):  # so few that products of large numbers are finite
        total -= m.where(up_a + up_b > first, m.log(_risen(a + b, first, first + 5)), 0.0)
    return m.exp(total)


def _risen(x: Any, first: int, last: int) -> Any:
    """(x + first)·(x + first + 1)·…, as far as x + last - 1."""
    return functools.reduce(lambda product, k: product * (x + k), range(first + 1, last), x + first)


def gamma_extent(a: Any, x: Any, m: Any) -> Any:
    """From where to where the tail of the gamma distribution goes: z above 0 where it is the upper one, below 0 where the lower one."""
    power = a - 1
    positive = m.maximum(power, 0.0)
    upwards = reach(positive, x - positive, m)
    downwards = m.minimum(positive_root(power / 2, power - x, NEGLIGIBLE, m), 1.0)
    return m.where(x > m.maximum(a, 1.0), upwards, -downwards)


def gamma_ratio(a: Any, x: Any, z: Any, m: Any) -> Any:
    """The gamma distribution's integrand at x·(1 + z), over what it is at x."""
    power = a - 1
    return m.exp(-(x - power) * z - power * excess(z, m))


def beta_extent(a: Any, b: Any, odds: Any, m: Any) -> Any:
    """How far down the lower tail of the beta distribution goes; odds: x / (1 - x)."""
    fall = (a - 1) - (b - 1) * odds
    extent = m.minimum(positive_root((a - 1) / 2, fall, NEGLIGIBLE, m), reach(b - 1, fall / odds, m) / odds)
    return m.minimum(extent, 1.0)


def beta_ratio(a: Any, b: Any, odds: Any, z: Any, m: Any) -> Any:
    """The beta distribution's integrand at x·(1 + z), over what it is at x."""
    fall = (a - 1) - (b - 1) * odds
    return m.exp(fall * z - (a - 1) * excess(z, m) - (b - 1) * excess(-odds * z, m))
