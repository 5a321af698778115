"""log Γ and digamma in the complex plane: Stirling's series to the right, recurrence to there, reflection on the left.

NIST, "Digital library of mathematical functions" 5.5, 5.11; Hare, "Computing the principal branch of log-gamma" (1997).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.ops.expansions import values as m

_RIGHT = 9.0  # from this real part, or imaginary part, on the series hold
_STEPS = 9  # of the recurrence, from a real part of 0
# B(2n) / (2n·(2n - 1)) and B(2n) / 2n.
_LOGARITHMIC = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_DERIVED = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)

Complex = tuple[Any, Any]


def _times(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _inverse(a: Complex) -> Complex:
    size = m.maximum(m.abs(a[0]), m.abs(a[1]))
    x, y = a[0] / size, a[1] / size
    scale = 1 / (size * (x * x + y * y))
    return x * scale, -y * scale


def _logarithm(a: Complex) -> Complex:
    """log|a| by log1p near the unit circle."""
    size, other = m.maximum(m.abs(a[0]), m.abs(a[1])), m.minimum(m.abs(a[0]), m.abs(a[1]))
    ratio = other / size
    near = 0.5 * m.log1p((size - 1) * (size + 1) + other * other)
    far = m.log(size) + 0.5 * m.log1p(ratio * ratio)
    return m.where((size > 0.6) & (size < 1.6), near, far), m.arctan2(a[1], a[0])


def _chosen(condition: Any, a: Complex, b: Complex) -> Complex:
    return m.where(condition, a[0], b[0]), m.where(condition, a[1], b[1])


def _asymptotic(inverse: Complex, terms: tuple[float, ...]) -> Complex:
    """Σ terms[n]·inverse^(2n)."""
    square = _times(inverse, inverse)
    total: Complex = (terms[-1], 0.0)
    for term in terms[-2::-1]:
        product = _times(total, square)
        total = product[0] + term, product[1]
    return total


def _shifted(z: Complex, far: Any) -> tuple[Complex, list[tuple[Any, Complex]]]:
    """z moved to where the series hold, and the steps: whether each was done, and from where."""
    x, y = z
    steps = []
    for _ in range(_STEPS):
        short = ~far & (x < _RIGHT)
        steps.append((short, (x, y)))
        x = m.where(short, x + 1, x)
    return (x, y), steps


def _to_the_right(x: Any, y: Any) -> tuple[Any, Complex]:
    """Whether z is reflected, and where it is then."""
    reflected = (x < 0.5) & (m.abs(y) < _RIGHT) | (x < 0)
    return reflected, (m.where(reflected, 1 - x, x), m.where(reflected, -y, y))


def _log_gamma_right(z: Complex) -> Complex:
    """log Γ for a real part ≥ 0: log of the product of what is stepped over, and by 2πi for each time that it crosses the cut."""
    far = m.abs(z[1]) >= _RIGHT
    upper = z[1] >= 0
    z = z[0], m.abs(z[1])
    moved, steps = _shifted(z, far)
    product: Complex = (moved[0] * 0 + 1, moved[1] * 0)
    turns: Any = 0.0
    for done, place in steps:
        following = _times(product, place)
        crossed = (product[1] >= 0) & (following[1] < 0)
        turns = turns + m.where(done & crossed, 1.0, 0.0)
        product = _chosen(done, following, product)
    logarithm = _logarithm(moved)
    main = _times((moved[0] - 0.5, moved[1]), logarithm)
    inverse = _inverse(moved)
    rest = _times(inverse, _asymptotic(inverse, _LOGARITHMIC))
    below = _logarithm(product)
    real = main[0] - moved[0] + 0.5 * math.log(2 * math.pi) + rest[0] - below[0]
    imag = main[1] - moved[1] + rest[1] - (below[1] + 2 * math.pi * turns)
    return real, m.where(upper, imag, -imag)


def _beside_integer(x: Any) -> Any:
    return x - m.floor(x + 0.5)


def _log_sine(x: Any, y: Any) -> Complex:
    """log sin(πz) of its principal branch: sin(πx)·cosh(πy) + i·cos(πx)·sinh(πy), without overflow."""
    turns = _beside_integer(x / 2) * 2
    sine, cosine = m.sin(math.pi * turns), m.cos(math.pi * turns)
    sine = m.where(m.equal(_beside_integer(x), 0.0), 0.0, sine)
    size = math.pi * m.abs(y)
    even, odd = 0.5 * (1 + m.exp(-2 * size)), -0.5 * m.expm1(-2 * size)
    real, imag = _logarithm((sine * even, m.where(y < 0, -(cosine * odd), cosine * odd)))
    return real + size, imag


@m.expansion
def loggamma(x: Any, y: Any) -> Complex:
    """log Γ(z) is log π - log sin πz - log Γ(1 - z), but for the multiple of 2πi of its branch."""
    reflected, z = _to_the_right(x, y)
    real, imag = _log_gamma_right(z)
    sine = _log_sine(m.where(reflected, x, 0.25), y)
    branch = 2 * math.pi * m.floor(0.5 * x + 0.25)
    branch = m.where(y < 0, -branch, branch)
    real = m.where(reflected, math.log(math.pi) - sine[0] - real, real)
    imag = m.where(reflected, branch - sine[1] - imag, imag)
    pole = (x <= 0) & m.equal(y, 0.0) & m.equal(m.floor(x), x)
    return m.where(pole, np.nan, real), m.where(pole, np.nan, imag)


def _digamma_right(z: Complex) -> Complex:
    moved, steps = _shifted(z, m.abs(z[1]) >= _RIGHT)
    real, imag = _logarithm(moved)
    inverse = _inverse(moved)
    rest = _times(_times(inverse, inverse), _asymptotic(inverse, _DERIVED))
    real, imag = real - 0.5 * inverse[0] - rest[0], imag - 0.5 * inverse[1] - rest[1]
    for done, place in steps:
        part = _inverse(_chosen(done, place, (1.0, 0.0)))
        real, imag = real - m.where(done, part[0], 0.0), imag - m.where(done, part[1], 0.0)
    return real, imag


@m.expansion
def complex_digamma(x: Any, y: Any) -> Complex:
    """digamma(z) = digamma(1 - z) - π·cot(πz)."""
    reflected, z = _to_the_right(x, y)
    real, imag = _digamma_right(z)
    beside = m.where(reflected, _beside_integer(x), 0.25)
    shrunk = m.exp(-2 * math.pi * m.abs(y))
    # cot(πz) = (sin 2πx - i·sinh 2πy) / (cosh 2πy - cos 2πx), each times 2·exp(-2π|y|); the divisor as a sum of squares
    fall = m.expm1(-2 * math.pi * m.abs(y))
    sine, cosine = m.sin(math.pi * beside), m.cos(math.pi * beside)
    below = fall * fall + 4 * shrunk * sine * sine
    above_real, above_imag = 4 * shrunk * sine * cosine, fall * (1 + shrunk)
    above_imag = m.where(y < 0, -above_imag, above_imag)
    real = m.where(reflected, real - math.pi * above_real / below, real)
    imag = m.where(reflected, imag - math.pi * above_imag / below, imag)
    pole = (x <= 0) & m.equal(y, 0.0) & m.equal(m.floor(x), x)
    return m.where(pole, np.nan, real), m.where(pole, np.nan, imag)
