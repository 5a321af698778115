"""Bessel functions of the first kind of whole order: Miller's backward recurrence, and beyond it Hankel's expansion and recurrence
forwards (NIST, "Digital library of mathematical functions" 10.6.1, 10.17.3, 10.74(iv))."""

from __future__ import annotations

import math
from typing import Any

from fuser.ops.expansions import values as m

_HANKEL = 25.0  # from which on the expansion of orders 0 and 1 has all digits
_TERMS = 22
_LARGE = 1e100


def _hankel(order: int, x: Any) -> Any:
    """J of order 0 or 1 for x ≥ 25: √(2/πx)·(P·cos(x - φ) - Q·sin(x - φ))."""
    inverse = 1 / (8 * x)
    term, parts = 1.0, [1.0 + x * 0, x * 0]
    mu = 4.0 * order * order
    for k in range(1, _TERMS):
        term = term * inverse * ((mu - (2 * k - 1) ** 2) / k)
        sign = -1.0 if k % 4 >= 2 else 1.0
        parts[k % 2] = parts[k % 2] + sign * term
    sine, cosine = m.sin(x), m.cos(x)
    root = math.sqrt(0.5)
    # x - π/4 - order·π/2
    near, beside = (cosine + sine) * root, (sine - cosine) * root
    cos, sin = (near, beside) if order == 0 else (beside, -near)
    return m.sqrt(2 / (math.pi * x)) * (parts[0] * cos - parts[1] * sin)


def _backwards(n: int, x: Any) -> Any:
    """J of order n for 0 < x up to max(25, n): a minimal solution downwards from far above, scaled by 1 = J₀ + 2·ΣJ₂ₖ."""
    most = m.maximum(x, float(n))
    start = 2 * m.floor((most + 12 + m.sqrt(160 * m.maximum(most, 1.0))) / 2)

    def step(x: Any, k: Any, above: Any, here: Any, wanted: Any, total: Any) -> list[Any]:
        below = 2 * k / x * here - above
        large = m.abs(below) > _LARGE
        scale = m.where(large, 1 / _LARGE, 1.0)
        above, here = here * scale, below * scale
        k = k - 1
        even = m.equal(m.floor(k / 2) * 2, k)
        counted = m.where(m.equal(k, 0.0), 1.0, m.where(even, 2.0, 0.0))
        wanted = m.where(m.equal(k, float(n)), here, wanted * scale)
        return [k, above, here, wanted, total * scale + counted * here]

    found = m.iterate(lambda x, k, *rest: k > 0, step, [start, 0.0, 1e-30, 0.0, 0.0], [x])
    return found[3] / found[4]


def _forwards(n: int, x: Any) -> Any:
    before, here = _hankel(0, x), _hankel(1, x)
    if n < 2:
        return (before, here)[n]

    def step(x: Any, number: Any, before: Any, here: Any) -> list[Any]:
        return [here, 2 * (number + 1) / x * here - before]

    return m.repeat(n - 1, step, [before, here], [x])[1]


def _tiny(n: int, x: Any) -> Any:
    """The first two terms of the power series."""
    value: Any = 1.0
    for k in range(1, min(n, 60) + 1):
        value = value * (x / (2 * k))
    return value * (1 - x * x / (4 * (n + 1)))


@m.expansion
def bessel_j(x: Any, order: int) -> Any:
    n, size = abs(order), m.abs(x)
    beyond = size > max(_HANKEL, n)
    tiny = size < 1e-4
    near = _backwards(n, m.where(beyond | tiny | m.isnan(x), 1.0, size))
    far = _forwards(n, m.where(beyond & ~m.isinf(x), size, 2 * max(_HANKEL, n)))
    value = m.choice([(tiny, _tiny(n, m.where(tiny, size, 0.0))), (m.isinf(x), 0.0), (beyond, far)], near)
    if n % 2:
        value = m.where(x < 0, -value, value)
    return m.where(m.isnan(x), math.nan, -value if order < 0 and n % 2 else value)
