"""Nodes of quadratures, and continued fractions by the modified Lentz algorithm, element by element.

Press et al., "Numerical Recipes" (2007), 4.6 and 5.2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ops.expansions import values as m

EPSILON = 2.0**-53


@functools.cache
def gauss_legendre(points: int) -> tuple[tuple[float, float], ...]:
    """Nodes and weights of a quadrature on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    return tuple(zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist()))


_TINY = 1e-300
_MOST = 2000.0

Part = Callable[..., tuple[Any, Any]]


def fraction(first: Any, part: Part, fixed: Any) -> Any:
    """first + a1/(b1 + a2/(b2 + …)), where `part(k, *fixed)` gives a and b for k = 1, 2, …"""

    def step(*values: Any) -> list[Any]:
        *held, k, c, d, value, _ = values
        a, b = part(k, *held)
        d, c = b + a * d, b + a / c
        d = 1 / m.where(m.equal(d, 0.0), _TINY, d)
        c = m.where(m.equal(c, 0.0), _TINY, c)
        return [k + 1, c, d, value * (c * d), m.abs(c * d - 1)]

    def goes_on(*values: Any) -> Any:
        return (values[-1] > 2 * EPSILON) & (values[-5] < _MOST)

    start = m.where(m.equal(first, 0.0), _TINY, first)
    return m.iterate(goes_on, step, [1.0, start, 0.0, start, 1.0], fixed)[3]


def complex_fraction(imag: Any, part: Part, fixed: Any) -> tuple[Any, Any]:
    """1/(b0 + a1/(b1 + a2/(b2 + …))) of complex numbers: b0 is 1 + i·imag, `part(k, *fixed)` gives a, which is real, and by how
    much b's real part is above the one before."""

    def step(*values: Any) -> list[Any]:
        *held, k, br, bi, cr, ci, dr, di, hr, hi, _ = values
        a, more = part(k, *held)
        br = br + more
        dr, di = _inverse(a * dr + br, a * di + bi)
        cr, ci = _inverse(cr, ci)
        cr, ci = a * cr + br, a * ci + bi
        er, ei = cr * dr - ci * di, cr * di + ci * dr
        hr, hi = hr * er - hi * ei, hr * ei + hi * er
        return [k + 1, br, bi, cr, ci, dr, di, hr, hi, m.abs(er - 1) + m.abs(ei)]

    def goes_on(*values: Any) -> Any:
        return (values[-1] > 4 * EPSILON) & (values[-10] < _MOST)

    dr, di = _inverse(1.0, imag)
    found = m.iterate(goes_on, step, [1.0, 1.0, imag, 1e200, 0.0, dr, di, dr, di, 1.0], fixed)
    return found[7], found[8]


def _inverse(real: Any, imag: Any) -> tuple[Any, Any]:
    size = m.maximum(m.abs(real), m.abs(imag))
    a, b = real / size, imag / size
    scale = 1 / (size * (a * a + b * b))
    return a * scale, -b * scale
