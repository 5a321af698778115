"""Special functions as fixed formulas, so that they lower into kernels: erf_inv, digamma, polygamma, zeta, bessel_i0e, bessel_i1e.

Each is one rule for NumPy and the scalar vocabulary alike, `m` being the module of functions. Chebyshev coefficients were
computed with 40 digits; a dtype takes as many of them as it can resolve. Functions that need loops are in incomplete.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from fuser.ir import scalar as S
from fuser.ir.primitive import Primitive
from fuser.ir.types import FLOATS
from fuser.ops.elementwise import convert_element_type_p, exp_p, min_p, pow_p, select_n_p, sign_p
from fuser.ops.family import SHAPE, constant, elementwise, sample, underivable
from fuser.runtime.core import native
from fuser.trace.jvp import jvp

# Σ c[n]·T_n(t) is exp(-x)·I0(x)·(1 + x), or exp(-x)·I1(x)/x·(1 + x/2)², with x = 4(t + 1), factors that keep it near 1; FAR is
# exp(-x)·√x·I(x) with x = 16/(t + 1); PSI is digamma(x)/(x - root) with x = (t + 3)/2.
_I0_NEAR = (
    1.0826228413372934, 0.17341899014737772, 0.05893696882855179, -0.032653113716479255, 0.009249397490459317,
    0.0010164152390340696, -0.003391147628925098, 0.0027503220478197884, -0.0016039930544716377,
    0.000774079131381443, -0.00032532062379959855, 0.00012219291582903592, -4.167513656491509e-05,
    1.3047979427404248e-05, -3.780697792105105e-06, 1.0203180517207398e-06, -2.5780951986075134e-07,
    6.125829740089075e-08, -1.3739340696640081e-08, 2.9182658292546064e-09, -5.887051943872218e-10,
    1.1308497146164624e-10, -2.0732551869805302e-11, 3.635405644675414e-12, -6.10850747448126e-13,
    9.852782815324172e-14, -1.527996529752083e-14, 2.2817585382127336e-15, -3.285469266614377e-16,
    4.567301774543236e-17,
)  # fmt: skip
_I0_FAR = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14,
    -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944182e-18,
    -7.233180487874754e-18, 9.921475412173699e-19,
)  # fmt: skip
_I1_NEAR = (
    0.43337407398282785, -0.03855913070121915, 0.03021888366700394, -0.005165750218663486, -0.002269375645275469,
    0.0026327443500220055, -0.0015065566973078454, 0.0006371107354929041, -0.00021261548550017718,
    5.4395055092301106e-05, -8.475507584397673e-06, -9.070737669707607e-07, 1.4085308453163311e-06,
    -7.197218375350473e-07, 2.753213678864705e-07, -8.944970393860861e-08, 2.5861899396705566e-08,
    -6.812394966243522e-09, 1.6581149887548941e-09, -3.7644630898120163e-10, 8.026622698289485e-11,
    -1.6157643652569182e-11, 3.083582168852432e-12, -5.598402748969921e-13, 9.697751506233355e-14,
    -1.6068250741457787e-14, 2.5521904030841808e-15, -3.893607801737522e-16, 5.715382211654287e-17,
)  # fmt: skip
_I1_FAR = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10,
    -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
    -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
    2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17, 4.414348323071708e-18,
    7.517296310842105e-18, -9.314178867326884e-19,
)  # fmt: skip
_PSI = (
    0.983570260441567, -0.2270640863346444, 0.03336889902393011, -0.005320077271596548, 0.0008788656937820505,
    -0.00014773492650606044, 2.5060543468359146e-05, -4.2721034029993324e-06, 7.302769272465923e-07,
    -1.2502886813559594e-07, 2.1425009322359472e-08, -3.673295918565179e-09, 6.299717236108931e-10,
    -1.080593028883266e-10, 1.853735192053638e-11, -3.18023536582553e-12, 5.456147570322795e-13,
    -9.360993131036438e-14, 1.606064636295075e-14, -2.7555431377438815e-15, 4.727736178601912e-16,
    -8.11148420346509e-17, 1.391707769474154e-17, -2.3877901082188625e-18,
)  # fmt: skip
# B(2k) / 2k, the highest first.
_BERNOULLI = (43867 / 14364, -3617 / 8160, 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
_PSI_ROOT = (1.4616317749023438, 3.7006601859126265e-07)  # of digamma; the first part has 20 bits


@functools.cache
def _array(coefficients: tuple[float, ...], dtype: np.dtype) -> np.ndarray:
    return np.array(coefficients, dtype)


def _horner(x: Any, coefficients: tuple[float, ...]) -> Any:
    if native is not None and isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float64):
        x, out = np.asarray(x, order="C"), np.empty(x.shape, x.dtype)
        native.horner(x, _array(coefficients, x.dtype), out)
        return out
    total: Any = coefficients[0]
    for c in coefficients[1:]:
        total = total * x + c
    return total


def chebyshev(t: Any, coefficients: tuple[float, ...]) -> Any:
    """Σ c[n]·T_n(t) by Clenshaw's recurrence, without the terms that t's dtype cannot resolve."""
    least = float(np.finfo(t.dtype).eps) / 16 * abs(coefficients[0])
    count = max(n for n, c in enumerate(coefficients) if abs(c) > least)
    before, total = 0.0, coefficients[count]
    twice = t + t
    for c in reversed(coefficients[1:count]):
        before, total = total, (c - before) + twice * total
    return (coefficients[0] - before) + t * total


# The inverse error function.
_GILES_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_GILES_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


_ERF_INV_CENTRE = (
    -4.3114889455749116e-21, -1.6927197794863185e-19, 1.3215826223966558e-18, 1.119757295932985e-17,
    -1.3414298618050375e-16, 2.0091202129134424e-17, 6.648410377110823e-15, -4.053470498489869e-14,
    -8.160646935660137e-14, 2.6334258055817514e-12, -1.2974681357007542e-11, -5.415371867467203e-11,
    1.0512107713296416e-09, -4.112635192457861e-09, -2.907036685379867e-08, 4.2347878047693064e-07,
    -1.365469203813796e-06, -1.3882523364976732e-05, 0.000186734208036347, -0.0007407025341652656,
    -0.006033670871430695, 0.24015818242558948, 1.653654562683103,
)  # fmt: skip
_ERF_INV_TAIL = (
    8.946274687403753e-08, -2.6999563726077684e-07, 2.1214275728789178e-08, 1.4977546474335646e-06,
    -4.016671322159006e-06, 2.9259930146846884e-06, 1.2476699527229247e-05, -4.731897229559575e-05,
    6.828445857836357e-05, 2.4031234118985203e-05, -0.00035503745806441024, 0.000953289368648208,
    -0.001688275561214103, 0.0024914420965729215, -0.0037512085073773097, 0.005370914553583449, 1.0052589676941572,
    3.0838856104922208,
)  # fmt: skip
_ERF_INV_END = (
    3.877895947128156e-11, -2.564757626026097e-11, -4.2126578821522837e-10, 1.501590673547712e-09,
    -3.497712854541853e-09, 7.6259966137247e-09, -1.5232806459268228e-08, 2.913879183676555e-08,
    -6.756662612283936e-08, 2.2900937005214653e-07, -9.930267156944968e-07, 4.526061363045416e-06,
    -1.9681771041103537e-05, 7.599527719555781e-05, -0.000215030119810338, -0.00013871931834474064,
    1.010300464864545, 4.849906401408584,
)  # fmt: skip


def _erf_inv(x: Any, m: Any) -> Any:
    """±inf at ±1, nan beyond. Polynomials in w = -log(1 - x²) and its root after Giles, "Approximating the erfinv function",
    GPU Computing Gems Jade (2011): table 5 for float32, for float64 by Remez's algorithm."""
    w = -m.log((1 - x) * (1 + x))  # 1 - x is exact near 1, where 1 - x·x is not
    root = m.sqrt(w)
    if x.dtype == np.float64:
        tail = m.where(w < 16, _horner(root - 3.25, _ERF_INV_TAIL), _horner(root - 5, _ERF_INV_END))
        y = m.where(w < 6.25, _horner(w - 3.125, _ERF_INV_CENTRE), tail) * x
    else:
        y = m.where(w < 5, _horner(w - 2.5, _GILES_CENTRE), _horner(root - 3, _GILES_TAIL)) * x
    return m.where(m.equal(m.absolute(x), 1), x * math.inf, y)


erf_inv_p = elementwise(
    "erf_inv",
    FLOATS,
    both=_erf_inv,
    wide=True,
    domain=(-0.99, 0.99),
    jvp=(lambda t, x, out: t * (math.sqrt(math.pi) / 2 * exp_p.bind(out * out)),),
)


# The gamma function's logarithmic derivatives.
def _digamma(x: Any, m: Any) -> Any:
    """nan at 0, -1, -2, … Reflection below 0 (Abramowitz & Stegun 6.3.7); recurrence (6.3.5) to [1, 2), where the root is
    divided out of a Chebyshev sum, or to x ≥ 8, where the asymptotic series holds (6.3.18)."""
    reflected = x < 0
    y = m.where(reflected, 1 - x, x)
    value = m.where(y < 5, _digamma_near(y, m), _digamma_far(y, m))
    beside = x - (
        m.rint(x) if m is np else S.rounded(x)
    )  # from the nearest integer, so that it is exact close to a pole
    value = m.where(reflected, value - math.pi / m.tan(math.pi * beside), value)
    return m.where((x <= 0) & m.equal(beside, x * 0), math.nan, value)


def _digamma_near(y: Any, m: Any) -> Any:
    """digamma on (0, 5)."""
    below = y < 1
    t = m.where(below, y + 1, y - m.maximum(m.floor(m.minimum(y, 5.0)) - 1, 0.0))
    value = ((t - _PSI_ROOT[0]) - _PSI_ROOT[1]) * chebyshev(2 * t - 3, _PSI)
    shift = 1 / m.where(below, y, t)
    for k in range(1, 3):
        shift = m.where(y >= k + 2, shift + 1 / (t + k), shift)
    return m.where(below, value - shift, m.where(y >= 2, value + shift, value))


def _digamma_far(y: Any, m: Any) -> Any:
    """digamma from 5 on."""
    shift: Any = 0.0
    for _ in range(3):
        below = y < 8
        shift = m.where(below, shift + 1 / y, shift)
        y = m.where(below, y + 1, y)
    inverse = 1 / (y * y)
    series = inverse * _horner(inverse, _BERNOULLI)
    return m.log(y) - (shift + (0.5 / y + series))


digamma_p = elementwise(
    "digamma",
    FLOATS,
    both=_digamma,
    wide=True,
    domain=(0.1, 9.0),
    jvp=(lambda t, x, out: t * polygamma_p.bind(constant(1, x), x),),
)

# B(2j) / (2j)! of the Euler–Maclaurin formula.
_EULER_MACLAURIN = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000,
    43867 / 5109094217170944000, -174611 / 802857662698291200000,
)  # fmt: skip
# How many terms are summed one by one before the formula takes over, and how many terms it has itself.
_HURWITZ = {4: (6, 4), 8: (9, 10)}


def _hurwitz(s: Any, q: Any, m: Any) -> Any:
    """Σ (q + k)^-s over k ≥ 0, for s > 1 and q > 0: Euler–Maclaurin summation, as Cephes' zeta.c (Moshier, 1984)."""
    count, terms = _HURWITZ[s.dtype.itemsize]
    head = m.power(q, -s)
    for k in range(1, count):
        head = head + m.power(q + k, -s)
    a = q + count
    lead = m.power(a, 1 - s)  # the tail's integral, times s - 1
    inverse = 1 / a
    factor, bracket = s * inverse, 0.5 + s * inverse * _EULER_MACLAURIN[0]
    for j, c in enumerate(_EULER_MACLAURIN[1:terms], 1):
        factor = factor * ((s + (2 * j - 1)) * inverse) * ((s + 2 * j) * inverse)
        bracket = bracket + factor * c
    tail = lead * (1 / (s - 1) + inverse * bracket)
    negligible = lead <= float(np.finfo(s.dtype).eps) / 8 * m.minimum(s - 1, s * 0 + 1) * head
    return m.where(negligible, head, head + tail)


def _zeta(s: Any, q: Any, m: Any) -> Any:
    """Hurwitz's ζ(s, q): inf at s = 1, nan below. For q = 1 - l - n < 0, with 0 < l < 1, it is, for an integer s alone,
    ζ(s, 1 - l) + (-1)^s·(ζ(s, l) - ζ(s, 1 - q)); at the poles 0, -1, … it is inf for an even s, else nan."""
    whole = m.floor(q)
    negative = q < 0
    left = -q - m.floor(-q)  # exact, as the distance to the pole above has to be
    value = _hurwitz(s, m.where(negative, 1 - left, q), m)
    below, beyond = _hurwitz(s, left, m), _hurwitz(s, 1 - q, m)
    even = m.equal(m.floor(s / 2) * 2, s)
    across = m.where(even, (value + below) - beyond, (value - below) + beyond)  # in this order: below may be value
    across = m.where(m.equal(m.floor(s), s), across, math.nan)
    value = m.where(negative, across, value)
    value = m.where((q <= 0) & m.equal(q, whole), m.where(even, s * 0 + math.inf, s * 0 + math.nan), value)
    value = m.where(m.equal(q, q * 0 + math.inf), q * 0, value)
    value = m.where(s > 1, value, m.where(m.equal(s, s * 0 + 1), s * 0 + math.inf, s * 0 + math.nan))
    return m.where(m.equal(q, q), value, q)


_ARRAYS = SimpleNamespace(
    power=pow_p.bind, minimum=min_p.bind, where=lambda condition, x, y: select_n_p.bind(condition, y, x)
)


def _zeta_jvp(t: Any, s: Any, q: Any, out: Any) -> Any:
    """The derivative by s, for q > 0: that of the summation formula."""
    wide = FLOATS[2] if s.dtype.itemsize < 4 else s.dtype
    t, s, q = (convert_element_type_p.bind(v, new_dtype=wide) for v in (t, s, q))
    _, [tangent] = jvp(lambda exponent: [_hurwitz(exponent, q, _ARRAYS)], [s], [t])
    return convert_element_type_p.bind(tangent, new_dtype=out.dtype)


zeta_p: Primitive = elementwise(
    "zeta",
    FLOATS,
    arity=2,
    both=_zeta,
    wide=True,
    domain=(1.1, 9.0),
    jvp=(_zeta_jvp, lambda t, s, q, out: t * (-s * zeta_p.bind(s + 1, q))),
)


def factorial(n: Any, m: Any) -> Any:
    """n! = Γ(n + 1) for n ≥ 0; Stirling's series at n + 9, divided back down.

    The power is taken in two halves, which fit the dtype whenever n! does; n + 9 is exact for an integer n, and is kept
    from where inf would meet exp(-z) = 0.
    """
    z = m.minimum(n + 9, 60.0 if n.dtype.itemsize < 8 else 200.0)
    down = n + 1
    for k in range(2, 9):
        down = down * (n + k)
    half = m.power(z, z * 0.5 - 0.25) * m.exp(z * -0.5)
    return half / down * half * (math.sqrt(2 * math.pi) * m.exp(stirling(z, m)))


def stirling(z: Any, m: Any) -> Any:
    """log Γ(z) - (z - 1/2)·log(z) + z - log(2π)/2, for z ≥ 9 (Abramowitz & Stegun 6.1.41)."""
    inverse = 1 / z
    return inverse * _horner(
        inverse * inverse, (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
    )


def _polygamma(n: Any, x: Any, m: Any) -> Any:
    """The n-th derivative of digamma, (-1)^(n+1)·n!·ζ(n + 1, x) (Abramowitz & Stegun 6.4.10); nan unless n is 0, 1, 2, …,
    and where n! overflows while ζ vanishes."""
    value = factorial(n, m) * _zeta(n + 1, x, m)
    odd = m.where(m.equal(m.floor(n / 2) * 2, n), -value, value)
    value = m.where(m.equal(n, n * 0), _digamma(x, m), odd)
    return m.where((n >= 0) & m.equal(m.floor(n), n), value, math.nan)


def _polygamma_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    for dtype in FLOATS:
        rng = np.random.default_rng(0)
        yield (rng.integers(0, 6, SHAPE).astype(dtype), sample(rng, SHAPE, dtype, (0.5, 9.0))), {}


polygamma_p: Primitive = elementwise(
    "polygamma",
    FLOATS,
    arity=2,
    both=_polygamma,
    wide=True,
    jvp=(underivable("polygamma", "its order"), lambda t, n, x, out: t * polygamma_p.bind(n + 1, x)),
)
polygamma_p.samples = _polygamma_samples  # orders are whole numbers


# Modified Bessel functions.
def _bessel_near(size: Any, coefficients: tuple[float, ...]) -> Any:
    return chebyshev(size * 0.25 - 1, coefficients)


def _bessel_far(size: Any, coefficients: tuple[float, ...], m: Any) -> Any:
    return chebyshev(16 / size - 1, coefficients) / m.sqrt(size)


def _bessel_i0e(x: Any, m: Any) -> Any:
    """exp(-|x|)·I0(x), by Chebyshev sums on [0, 8] and [8, ∞], after Cephes' i0.c (Moshier)."""
    size = m.absolute(x)
    return m.where(size <= 8, _bessel_near(size, _I0_NEAR) / (1 + size), _bessel_far(size, _I0_FAR, m))


def _bessel_i1e(x: Any, m: Any) -> Any:
    """exp(-|x|)·I1(x), by Chebyshev sums on [0, 8] and [8, ∞], after Cephes' i1.c (Moshier)."""
    size = m.absolute(x)
    below, far = 1 + size * 0.5, _bessel_far(size, _I1_FAR, m)
    return m.where(size <= 8, x * (_bessel_near(size, _I1_NEAR) / (below * below)), m.where(x < 0, -far, far))


def _bessel_i1e_jvp(t: Any, x: Any, out: Any) -> Any:
    """exp(-|x|)·I0(x) - out·(sign(x) + 1/x), which is 1/2 at 0."""
    eps = constant(np.finfo(np.float32).eps if x.dtype.itemsize < 4 else np.finfo(x.dtype).eps, x)
    apart = abs(x) > eps
    safe = select_n_p.bind(apart, eps, x)
    slope = bessel_i0e_p.bind(safe) - out * (sign_p.bind(safe) + 1 / safe)
    return t * select_n_p.bind(apart, constant(0.5, x), slope)


bessel_i0e_p: Primitive = elementwise(
    "bessel_i0e",
    FLOATS,
    both=_bessel_i0e,
    wide=True,
    domain=(-20.0, 20.0),
    jvp=(lambda t, x, out: t * (bessel_i1e_p.bind(x) - sign_p.bind(x) * out),),
)
bessel_i1e_p: Primitive = elementwise(
    "bessel_i1e", FLOATS, both=_bessel_i1e, wide=True, domain=(-20.0, 20.0), jvp=(_bessel_i1e_jvp,)
)
