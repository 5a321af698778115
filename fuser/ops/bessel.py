"""Bessel functions of the first kind of orders 0 and 1 as fixed formulas, so that they lower into kernels.

On [-5, 5] a polynomial in x² times the factors of the first two roots, each root's square being a number and a rest, so that values close to
them keep their digits; beyond, Hankel's form √(2/πx)·(P cos χ - Q sin χ), χ = x - (2n + 1)π/4 (DLMF 10.17.3). Chebyshev coefficients
were computed with 45 digits. Beyond, where terms of size √(2/πx) cancel, errors are a few eps of that.
"""

from __future__ import annotations

import math
from typing import Any

from fuser.ir.primitive import Primitive
from fuser.ir.types import FLOATS
from fuser.ops.elementwise import eq_p, select_n_p
from fuser.ops.family import constant, elementwise
from fuser.ops.special import chebyshev

# NEAR is J0(x)/((x² - a²)(x² - b²)), or J1(x)/x over the same product of its own roots, with x² = 25(t + 1)/2; P and x·Q have x² = 50/(t + 1).
_NEAR0 = (
    0.003433775195443006, -0.001974794511586004, 0.0002472802343211527, -1.7951655945298798e-05,
    8.614299472476033e-07, -2.9521425632684864e-08, 7.609233569353203e-10, -1.531306324653633e-11,
    2.475309497955091e-13, -3.2866707304697332e-15, 3.6501313955036886e-17, -3.4418858692258494e-19,
)  # fmt: skip
_NEAR1 = (
    0.0004546530983912736, -0.00021348093861811067, 2.2341253121436404e-05, -1.38767402387634e-06,
    5.806885161405081e-08, -1.7621593742140618e-09, 4.072176387317086e-11, -7.422794511260187e-13,
    1.096138032866157e-14, -1.3392526677386197e-16, 1.3771260961669168e-18, -1.208775673915002e-20,
)  # fmt: skip
_P0 = (
    0.9986523398776954, -0.00132937162125028, 1.761305551290559e-05, -6.319367118733069e-07, 3.948825587093808e-08,
    -3.5409678948019087e-09, 4.103246366872386e-10, -5.765747662655223e-11, 9.423105578391987e-12,
    -1.7401405706283885e-12, 3.5557750052411783e-13, -7.914641501338115e-14, 1.8959456362961828e-14,
    -4.841483019175697e-15, 1.3078555195901338e-15, -3.714050821413154e-16, 1.103023177871277e-16,
    -3.410936210498114e-17, 1.0942187869810236e-17, -3.629905673795297e-18,
)  # fmt: skip
_Q0 = (
    -0.12364702582167493, 0.0013190194049922607, -3.218799121266175e-05, 1.6237093205642789e-06,
    -1.2743289742032805e-07, 1.3513032763134409e-08, -1.785075905119705e-09, 2.79085713479036e-10,
    -4.988908027652833e-11, 9.950713667806645e-12, -2.1751206043008833e-12, 5.140127162427605e-13,
    -1.2993242656059178e-13, 3.4837635776889786e-14, -9.84005757254373e-15, 2.9115274918592e-15,
    -8.982151171303344e-16, 2.877768906557925e-16, -9.542905011731343e-17, 3.2658161943648366e-17,
    -1.150518178532616e-17, 4.16320426537859e-18, -1.544369143900366e-18, 5.8629592355191775e-19,
)  # fmt: skip
_P1 = (
    1.00226762068534, 0.0022437352958079985, -2.3071018862548286e-05, 7.639181732533905e-07, -4.589685232343401e-08,
    4.020515478419001e-09, -4.586773977170972e-10, 6.373158962859246e-11, -1.0327344567640412e-11,
    1.8943274995111034e-12, -3.849703387824105e-13, 8.529914525779044e-14, -2.03544697865723e-14,
    5.180421738900549e-15, -1.3953502148258493e-15, 3.9523601713314257e-16, -1.171117080126803e-16,
    3.614078564738109e-17, -1.1572356053251518e-17, 3.832473906744907e-18,
)  # fmt: skip
_Q1 = (
    0.37308734621468637, -0.0018705189681051477, 4.0056994520460306e-05, -1.914402839085632e-06,
    1.458816510742199e-07, -1.5183398644673165e-08, 1.979922260589517e-09, -3.065981449437696e-10,
    5.440233592059753e-11, -1.0786652192538468e-11, 2.346352831758894e-12, -5.522046856541826e-13,
    1.390972848139383e-13, -3.7181516752164614e-14, 1.0474063117829167e-14, -3.091784202917912e-15,
    9.518051831081499e-16, -3.0436450667050517e-16, 1.0075487579997493e-16, -3.4426306619813246e-17,
    1.2110503970221687e-17, -4.376388902428328e-18, 1.6214444005747313e-18,
)  # fmt: skip
# The squares of the first two positive roots of J0, and of J1.
_ROOTS0 = ((5.783185962946784, 4.123247343506204e-16), (30.471262343662087, -2.366534485750659e-16))
_ROOTS1 = ((14.681970642123893, -9.858177825793294e-17), (49.2184563216946, 5.086354069436341e-16))

_SMALL = 1e-4  # of x, up to which J0(x) is 1 - x²/4

_Roots = tuple[tuple[float, float], tuple[float, float]]


def _near(x: Any, coefficients: tuple[float, ...], roots: _Roots) -> Any:
    square = x * x
    product = chebyshev(square * 0.08 - 1, coefficients)
    for root, rest in roots:
        product = product * ((square - root) - rest)
    return product


def _far(size: Any, m: Any, p: tuple[float, ...], q: tuple[float, ...]) -> tuple[Any, Any, Any, Any]:
    """P and Q over √(πx), and cos x and sin x."""
    ratio = 5 / size
    t = 2 * ratio * ratio - 1
    scale = 1 / m.sqrt(math.pi * size)
    return chebyshev(t, p) * scale, chebyshev(t, q) * (0.2 * ratio) * scale, m.cos(size), m.sin(size)


def _bessel_j0(x: Any, m: Any) -> Any:
    size = m.absolute(x)
    inside = size <= 5
    p, q, cos, sin = _far(m.where(inside, 5.0, size), m, _P0, _Q0)
    far = p * (cos + sin) - q * (sin - cos)
    near = m.where(inside, x, 0.0)
    near = m.where(size < _SMALL, 1 - near * near * 0.25, _near(near, _NEAR0, _ROOTS0))
    return m.where(inside, near, far)


def _bessel_j1(x: Any, m: Any) -> Any:
    size = m.absolute(x)
    inside = size <= 5
    p, q, cos, sin = _far(m.where(inside, 5.0, size), m, _P1, _Q1)
    far = p * (sin - cos) + q * (sin + cos)
    return m.where(inside, x * _near(m.where(inside, x, 0.0), _NEAR1, _ROOTS1), m.where(x < 0, -far, far))


def _bessel_j1_jvp(t: Any, x: Any, out: Any) -> Any:
    """J0(x) - J1(x)/x, which is 1/2 at 0 (DLMF 10.6.2)."""
    zero = eq_p.bind(x, constant(0, x))
    slope = bessel_j0_p.bind(x) - out / select_n_p.bind(zero, x, constant(1, x))
    return t * select_n_p.bind(zero, slope, constant(0.5, x))


bessel_j0_p: Primitive = elementwise(
    "bessel_j0",
    FLOATS,
    both=_bessel_j0,
    wide=True,
    domain=(-20.0, 20.0),
    jvp=(lambda t, x, out: -t * bessel_j1_p.bind(x),),
)
bessel_j1_p: Primitive = elementwise(
    "bessel_j1", FLOATS, both=_bessel_j1, wide=True, domain=(-20.0, 20.0), jvp=(_bessel_j1_jvp,)
)
