"""Special functions that SciPy computes (imported when one is first used), as library calls with their derivatives; `expand`
writes each as a program, where no library is at hand (expansions/).

Exponential, trigonometric and Fresnel integrals, Dawson's and Spence's functions, error functions of complex numbers, Bessel
functions, hypergeometric functions, log Γ of complex numbers and Owen's T. Derivatives: NIST, "Digital library of
mathematical functions" (dlmf.nist.gov), at the numbers named below.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.primitive import Primitive
from fuser.ir.types import COMPLEX, FLOATS
from fuser.ops.elementwise import cos_p, eq_p, erf_p, exp_p, floor_p, log_p, select_n_p, sin_p
from fuser.ops.expansions import bessel, faddeeva, gamma_plane, hypergeometric, integrals
from fuser.ops.family import constant, elementwise, underivable

_HALF_PI = float(np.pi / 2)


def _scipy(name: str, part: int | None = None) -> Callable[..., Any]:
    """A universal function of scipy.special, or one of its results."""

    def call(*operands: np.ndarray) -> Any:
        with np.errstate(all="ignore"):
            result = getattr(importlib.import_module("scipy.special"), name)(*operands)
        return np.asarray(result if part is None else result[part]).astype(operands[0].dtype)

    return call


def _where(condition: Any, x: Any, y: Any) -> Any:
    return select_n_p.bind(condition, y, x)


def _quotient_at_zero(above: Any, x: Any, limit: float) -> Any:
    """above / x, and `limit` where x is 0."""
    zero = eq_p.bind(x, constant(0, x))
    return _where(zero, constant(limit, x), above / _where(zero, constant(1, x), x))


# Integrals.

# Ei (DLMF 6.2.5) and E1 (6.2.1).
expi_p: Primitive = elementwise(
    "expi",
    FLOATS,
    expand=integrals.expi,
    eval=_scipy("expi"),
    domain=(0.5, 4.0),
    jvp=(lambda t, x, out: t * (exp_p.bind(x) / x),),
)
exp1_p: Primitive = elementwise(
    "exp1",
    FLOATS,
    expand=integrals.exp1,
    eval=_scipy("exp1"),
    domain=(0.5, 4.0),
    jvp=(lambda t, x, out: -t * (exp_p.bind(-x) / x),),
)


def _expn_slope(t: Any, n: Any, x: Any, out: Any) -> Any:
    """-E(n - 1) (DLMF 8.19.13); E(-1) = exp(-x)·(1 + x)/x², which SciPy lacks."""
    n = floor_p.bind(n)
    zero = eq_p.bind(n, constant(0, n))
    below = expn_p.bind(_where(zero, constant(1, n), n) - 1, x)
    return -t * _where(zero, exp_p.bind(-x) * (1 + x) / (x * x), below)


# The generalised exponential integral E(n, x) for n = 0, 1, 2, …
expn_p: Primitive = elementwise(
    "expn",
    FLOATS,
    arity=2,
    expand=integrals.expn,
    eval=lambda n, x: _expn(n, x),
    domain=(0.5, 4.0),
    jvp=(underivable("expn", "n"), _expn_slope),
)


def _expn(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    whole = np.floor(n).astype(np.int32)
    return np.asarray(importlib.import_module("scipy.special").expn(whole, x)).astype(x.dtype)


# ∫ sin(πt²/2) and ∫ cos(πt²/2) (DLMF 7.2.7, 7.2.8); ∫ sin(t)/t and the cosine integral (6.2.9, 6.2.11).
fresnel_s_p: Primitive = elementwise(
    "fresnel_s",
    FLOATS,
    expand=integrals.fresnel_s,
    eval=_scipy("fresnel", 0),
    jvp=(lambda t, x, out: t * sin_p.bind(x * x * _HALF_PI),),
)
fresnel_c_p: Primitive = elementwise(
    "fresnel_c",
    FLOATS,
    expand=integrals.fresnel_c,
    eval=_scipy("fresnel", 1),
    jvp=(lambda t, x, out: t * cos_p.bind(x * x * _HALF_PI),),
)
sine_integral_p: Primitive = elementwise(
    "sine_integral",
    FLOATS,
    expand=integrals.sine_integral,
    eval=_scipy("sici", 0),
    jvp=(lambda t, x, out: t * _quotient_at_zero(sin_p.bind(x), x, 1.0),),
)
cosine_integral_p: Primitive = elementwise(
    "cosine_integral",
    FLOATS,
    expand=integrals.cosine_integral,
    eval=_scipy("sici", 1),
    domain=(0.5, 4.0),
    jvp=(lambda t, x, out: t * (cos_p.bind(x) / x),),
)
# Dawson's integral exp(-x²)·∫ exp(t²) (DLMF 7.2.5), and exp(x²)·erfc(x) (7.2.3).
dawsn_p: Primitive = elementwise(
    "dawsn", FLOATS, expand=faddeeva.dawsn, eval=_scipy("dawsn"), jvp=(lambda t, x, out: t * (1 - 2 * x * out),)
)
erfcx_p: Primitive = elementwise(
    "erfcx",
    FLOATS,
    expand=faddeeva.erfcx,
    eval=_scipy("erfcx"),
    jvp=(lambda t, x, out: t * (2 * x * out - float(2 / np.sqrt(np.pi))),),
)
# exp(-z²)·erfc(-iz) of complex numbers (DLMF 7.2.3, 7.10.3).
wofz_p: Primitive = elementwise(
    "wofz",
    COMPLEX,
    expand=faddeeva.wofz,
    eval=_scipy("wofz"),
    jvp=(lambda t, z, out: t * (2j * float(1 / np.sqrt(np.pi)) - 2 * z * out),),
)


def _spence_slope(t: Any, x: Any, out: Any) -> Any:
    one = eq_p.bind(x, constant(1, x))
    away = _where(one, constant(2, x), x)
    return t * _where(one, constant(-1, x), log_p.bind(away) / (1 - away))


# The dilogarithm of 1 - x, ∫ log(t)/(1 - t) from 1 to x.
spence_p: Primitive = elementwise(
    "spence", FLOATS, expand=integrals.spence, eval=_scipy("spence"), domain=(0.2, 4.0), jvp=(_spence_slope,)
)


def _owens_by_h(t: Any, h: Any, a: Any, out: Any) -> Any:
    scale = float(-1 / (2 * np.sqrt(2 * np.pi)))
    return t * (scale * exp_p.bind(-0.5 * h * h) * erf_p.bind(a * h * float(np.sqrt(0.5))))


def _owens_by_a(t: Any, h: Any, a: Any, out: Any) -> Any:
    spread = 1 + a * a
    return t * (exp_p.bind(-0.5 * h * h * spread) * float(0.5 / np.pi) / spread)


# T(h, a) = 1/(2π)·∫ exp(-h²(1 + t²)/2)/(1 + t²) over [0, a]: Owen, "Tables for computing bivariate normal probabilities" (1956).
owens_t_p: Primitive = elementwise(
    "owens_t", FLOATS, arity=2, expand=integrals.owens_t, eval=_scipy("owens_t"), jvp=(_owens_by_h, _owens_by_a)
)


# Bessel functions of the first kind, of whole order (DLMF 10.6.1).
def _bessel(x: np.ndarray, order: int) -> np.ndarray:
    return np.asarray(importlib.import_module("scipy.special").jv(order, x)).astype(x.dtype)


bessel_j_p: Primitive = elementwise(
    "bessel_j",
    FLOATS,
    expand=bessel.bessel_j,
    eval=_bessel,
    params=({"order": 0}, {"order": 3}),
    jvp=(
        lambda t, x, out, order: (
            t * (0.5 * (bessel_j_p.bind(x, order=order - 1) - bessel_j_p.bind(x, order=order + 1)))
        ),
    ),
)

# Hypergeometric functions. Their sums over k have the terms (a)_k/(b)_k·x^k/k!.


def _terms(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M(a, b, x) for x ≥ 0, and its derivatives by a and by b, by the series and its derivative term by term (DLMF 13.2.2)."""
    term, by_a, by_b = np.ones_like(x), np.zeros_like(x), np.zeros_like(x)
    total, total_a, total_b = term.copy(), by_a.copy(), by_b.copy()
    for k in range(2000):
        factor = (a + k) / (b + k) * x / (k + 1)
        slope_a, slope_b = x / ((b + k) * (k + 1)), -factor / (b + k)
        term, by_a, by_b = term * factor, by_a * factor + term * slope_a, by_b * factor + term * slope_b
        total, total_a, total_b = total + term, total_a + by_a, total_b + by_b
        if all((np.abs(t) <= 1e-17 * np.abs(s)).all() for t, s in ((term, total), (by_a, total_a), (by_b, total_b))):
            break
    return total, total_a, total_b


def _kummer(part: int) -> Callable[..., np.ndarray]:
    """The derivative by a (1) or by b (2); for x < 0 through M(a, b, x) = exp(x)·M(b - a, b, -x) (DLMF 13.2.39)."""

    def evaluate(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
        dtype = x.dtype
        a, b, x = np.broadcast_arrays(*(np.asarray(o, np.float64) for o in (a, b, x)))
        with np.errstate(all="ignore"):
            below = x < 0
            _, by_a, by_b = _terms(np.where(below, b - a, a), b, np.abs(x))
            turned = -by_a if part == 1 else by_a + by_b
            plain = by_a if part == 1 else by_b
            return np.asarray(np.where(below, np.exp(x) * turned, plain)).astype(dtype)

    return evaluate


def _by_x(t: Any, a: Any, b: Any, x: Any, out: Any) -> Any:
    return t * (a / b * hyp1f1_p.bind(a + 1, b + 1, x))


# Kummer's function M(a, b, x) (DLMF 13.2.2, 13.3.15).
hyp1f1_p: Primitive = elementwise(
    "hyp1f1",
    FLOATS,
    arity=3,
    expand=hypergeometric.hyp1f1,
    eval=_scipy("hyp1f1"),
    domain=(0.5, 3.0),
    jvp=(
        lambda t, a, b, x, out: t * hyp1f1_by_a_p.bind(a, b, x),
        lambda t, a, b, x, out: t * hyp1f1_by_b_p.bind(a, b, x),
        _by_x,
    ),
)


def _mixed(which: int) -> Callable[..., Any]:
    """The derivative by x of that by a or by b, from M's derivative by x."""

    def rule(t: Any, a: Any, b: Any, x: Any, out: Any) -> Any:
        higher = (hyp1f1_by_a_p, hyp1f1_by_b_p)[which].bind(a + 1, b + 1, x) * (a / b)
        scale = 1 / b if which == 0 else -a / (b * b)
        return t * (higher + scale * hyp1f1_p.bind(a + 1, b + 1, x))

    return rule


hyp1f1_by_a_p: Primitive = elementwise(
    "hyp1f1_by_a",
    FLOATS,
    arity=3,
    expand=hypergeometric.hyp1f1_by_a,
    eval=_kummer(1),
    domain=(0.5, 3.0),
    jvp=(underivable("hyp1f1_by_a", "a"), underivable("hyp1f1_by_a", "b"), _mixed(0)),
)
hyp1f1_by_b_p: Primitive = elementwise(
    "hyp1f1_by_b",
    FLOATS,
    arity=3,
    expand=hypergeometric.hyp1f1_by_b,
    eval=_kummer(2),
    domain=(0.5, 3.0),
    jvp=(underivable("hyp1f1_by_b", "a"), underivable("hyp1f1_by_b", "b"), _mixed(1)),
)


def _gauss_terms(a: np.ndarray, b: np.ndarray, c: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """F(a, b; c; x) for 0 ≤ x < 1, and its derivatives by a, b and c, by the series (DLMF 15.2.1); nan where 20,000 terms are too few."""
    parts = [np.ones_like(x), *(np.zeros_like(x) for _ in "abc")]  # a term and its derivatives
    totals = list(parts)
    for k in range(20000):
        over = x / ((c + k) * (k + 1))
        factor = (a + k) * (b + k) * over
        term = parts[0]
        slopes = (0, (b + k) * over, (a + k) * over, -factor / (c + k))
        parts = [part * factor + term * slope for part, slope in zip(parts, slopes)]
        totals = [total + part for total, part in zip(totals, parts)]
        missing = [~(np.abs(part) <= 1e-17 * np.abs(total)) for part, total in zip(parts, totals)]
        if not any(m.any() for m in missing):
            return tuple(totals)
    return tuple(np.where(m, np.nan, total) for m, total in zip(missing, totals))


def _gauss(part: int) -> Callable[..., np.ndarray]:
    """The derivative by a (1), b (2) or c (3); for x < 0 by F(a, b; c; x) = (1 - x)⁻ᵃ F(a, c - b; c; x/(x - 1)) (DLMF 15.8.1)."""

    def evaluate(a: np.ndarray, b: np.ndarray, c: np.ndarray, x: np.ndarray) -> np.ndarray:
        dtype = x.dtype
        a, b, c, x = np.broadcast_arrays(*(np.asarray(o, np.float64) for o in (a, b, c, x)))
        with np.errstate(all="ignore"):
            below = x < 0
            inside = np.where(below, x / (x - 1), x)
            total, *by = _gauss_terms(a, np.where(below, c - b, b), c, np.where(inside < 1, inside, np.nan))
            turned = (by[0] - np.log1p(-x) * total, -by[1], by[2] + by[1])[part - 1]
            return np.asarray(np.where(below, (1 - x) ** -a * turned, by[part - 1])).astype(dtype)

    return evaluate


def _gauss_by_x(t: Any, a: Any, b: Any, c: Any, x: Any, out: Any) -> Any:
    return t * (a * b / c * hyp2f1_p.bind(a + 1, b + 1, c + 1, x))


def _gauss_mixed(which: int) -> Callable[..., Any]:
    """The derivative by x of that by a, b or c: the derivative of a·b/c·F(a + 1, b + 1; c + 1; x)."""

    def rule(t: Any, a: Any, b: Any, c: Any, x: Any, out: Any) -> Any:
        above = (a + 1, b + 1, c + 1, x)
        scale = (b / c, a / c, -a * b / (c * c))[which]
        return t * (a * b / c * GAUSS_BY[which].bind(*above) + scale * hyp2f1_p.bind(*above))

    return rule


# Gauss' function F(a, b; c; x) (DLMF 15.2.1, 15.5.1).
hyp2f1_p: Primitive = elementwise(
    "hyp2f1",
    FLOATS,
    arity=4,
    expand=hypergeometric.hyp2f1,
    eval=_scipy("hyp2f1"),
    domain=(0.2, 0.8),
    jvp=(
        lambda t, a, b, c, x, out: t * GAUSS_BY[0].bind(a, b, c, x),
        lambda t, a, b, c, x, out: t * GAUSS_BY[1].bind(a, b, c, x),
        lambda t, a, b, c, x, out: t * GAUSS_BY[2].bind(a, b, c, x),
        _gauss_by_x,
    ),
)
GAUSS_BY: tuple[Primitive, ...] = tuple(
    elementwise(
        name,
        FLOATS,
        arity=4,
        expand=hypergeometric.hyp2f1_by[number],
        eval=_gauss(number + 1),
        domain=(0.2, 0.8),
        jvp=(*(underivable(name, operand) for operand in "abc"), _gauss_mixed(number)),
    )
    for number, name in enumerate(("hyp2f1_by_a", "hyp2f1_by_b", "hyp2f1_by_c"))
)

# log Γ and its derivative in the complex plane (DLMF 5.2).
complex_digamma_p: Primitive = elementwise(
    "complex_digamma",
    COMPLEX,
    expand=gamma_plane.complex_digamma,
    eval=_scipy("digamma"),
    domain=(0.5, 3.0),
    jvp=(underivable("complex_digamma", "x"),),
)
loggamma_p: Primitive = elementwise(
    "loggamma",
    COMPLEX,
    expand=gamma_plane.loggamma,
    eval=_scipy("loggamma"),
    domain=(0.5, 3.0),
    jvp=(lambda t, z, out: t * complex_digamma_p.bind(z),),
)
