"""Tables of the associated Legendre functions of the first kind: all orders and degrees at once, with their derivatives.

Degrees are the steps of one scan, in which a row holds every order: P_l^m from degrees l - 1 and l - 2 (DLMF 14.10.3), and the
diagonal P_l^l from P_(l-1)^(l-1). Coefficients are float64 tables of the degree and order alone.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.errors import ConcretizationTypeError
from fuser.lax.control import scan
from fuser.lax.values import as_value
from fuser.trace.core import Tracer

_Table = np.ndarray[Any, Any]
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def lpmn(m: int, n: int, z: Any) -> tuple[Any, Any]:
    """(values, derivatives) of P_l^k at the points `z` for all orders k ≤ m and degrees l ≤ n, each (m + 1, n + 1, points).

    With the phase (-1)^k; zero for k > l. Derivatives of order 1 are infinite at ±1. `z` is a vector of float32 or float64
    (TypeError, ValueError for others); NotImplementedError unless m = n. Derivatives by DLMF 14.10.5 in terms of degree l - 1.
    """
    points, degree = _checked("lpmn", m, n, z)
    values = _table(points, degree, normalised=False)
    return values, _derivatives(values, points, degree)


def lpmn_values(m: int, n: int, z: Any, is_normalized: bool) -> Any:
    """The values of `lpmn`; with `is_normalized` times √((2l + 1)/(4π)·(l - k)!/(l + k)!), as spherical harmonics have them."""
    points, degree = _checked("lpmn_values", m, n, z)
    return _table(points, degree, bool(is_normalized))


def _checked(function: str, m: Any, n: Any, z: Any) -> tuple[Any, int]:
    """The points, and the greatest degree."""
    points = as_value(z, function)
    if points.dtype not in _FLOATS:
        raise TypeError(f"z.dtype={points.dtype} is not supported by {function}; convert z to float32 or float64")
    if points.ndim != 1:
        raise ValueError(
            f"z must be a 1D array, {function} got shape {points.shape}; use vmap over its other dimensions"
        )
    for number in (m, n):
        if isinstance(number, Tracer):
            raise ConcretizationTypeError(f"{function} needs a known order and degree; pass Python integers")
    if operator.index(m) != operator.index(n):
        raise NotImplementedError(f"Computations for m!=n are not yet supported, {function} got m={m} and n={n}")
    return points, operator.index(n)


def _table(x: Any, degree: int, normalised: bool) -> Any:
    """P_l^m (or its normalised form) at (m, l, point)."""
    first, second, diagonal = (t[1:].astype(x.dtype) for t in _coefficients(degree, normalised))
    sine = fnp.sqrt(1 - x * x)
    start = fnp.zeros((degree + 1, *x.shape), x.dtype).at[0].set(0.5 / np.sqrt(np.pi) if normalised else 1.0)

    def step(rows: Any, tables: Any) -> Any:
        one_less, two_less = rows
        a, b, c = (t[:, None] for t in tables)
        row = a * x * one_less - b * two_less + c * sine * fnp.roll(one_less, 1, axis=0)
        return (row, one_less), row

    _, rows = scan(step, (start, fnp.zeros_like(start)), (first, second, diagonal))
    return fnp.swapaxes(fnp.concatenate([start[None], rows]), 0, 1)


def _coefficients(degree: int, normalised: bool) -> tuple[_Table, _Table, _Table]:
    """By degree and order: the factors of x P_(l-1)^m and of P_(l-2)^m, and on the diagonal that of √(1 - x²) P_(l-1)^(m-1)."""
    l, m = np.meshgrid(np.arange(degree + 1.0), np.arange(degree + 1.0), indexing="ij")
    below, gap = m < l, np.where(m < l, l - m, 1.0)
    if normalised:
        both = gap * (l + m)
        first = np.sqrt((4 * l * l - 1) / np.where(below, both, 1.0), where=below, out=np.zeros_like(l))
        ratio = (
            (2 * l + 1) * np.maximum((l - 1) ** 2 - m * m, 0) / np.where(below, both, 1.0) / np.maximum(2 * l - 3, 1)
        )
        second = np.where(below, np.sqrt(ratio), 0.0)
        diagonal = -np.sqrt(1 + 0.5 / np.maximum(l, 1))
    else:
        first = np.where(below, (2 * l - 1) / gap, 0.0)
        second = np.where(below, (l + m - 1) / gap, 0.0)
        diagonal = 1 - 2 * l
    return first, second, np.where(m == l, diagonal, 0.0)


def _derivatives(p: Any, x: Any, degree: int) -> Any:
    """dP_l^m/dx at (m, l, point): ½ ((l + m)(l - m + 1) P_l^(m-1) - P_l^(m+1)) / √(1 - x²).

    P_l^k / √(1 - x²) = -(P_(l-1)^(k+1) + (l + k - 1)(l + k) P_(l-1)^(k-1)) / 2k needs no division by 0 at ±1; order 1 does.
    """
    m, l = np.meshgrid(np.arange(degree + 1.0), np.arange(degree + 1.0), indexing="ij")
    less = fnp.pad(p, ((0, 0), (1, 0), (0, 0)))[:, : degree + 1]  # degree l - 1
    up_two = fnp.pad(less, ((0, 2), (0, 0), (0, 0)))[2:]
    down_two = fnp.pad(less, ((2, 0), (0, 0), (0, 0)))[: degree + 1]
    table = lambda t: t.astype(p.dtype)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = np.where(m == 0, 0.5, np.where(m == 1, 0.0, -0.5 / (m - 1)))
        # Order -k is order k over (l + k)!/(l - k)!, with its sign: of degree l - 1, for the orders -1 and -2 of m = 1 and 0.
        second = np.where(l > 2, 1 / ((l + 1) * l * (l - 1) * (l - 2)), 0.0)
    reflected = down_two.at[0].set(less[2] * table(second[0])) if degree > 1 else down_two
    below = table(lower) * (less + table((l + m - 2) * (l + m - 1)) * reflected)  # P_l^(m-1) / √(1 - x²)
    above = table(-0.5 / (m + 1)) * (up_two + table((l + m) * (l + m + 1)) * less)
    found = table(0.5 * (l + m) * (l - m + 1)) * below - 0.5 * above
    if degree == 0:
        return found
    higher = p[2] if degree > 1 else 0
    order_one = 0.5 / fnp.sqrt(1 - x * x) * (table(l[1] * (l[1] + 1)) * p[0] - higher)
    return found.at[1].set(order_one).at[1, 0].set(0)
