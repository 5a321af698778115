"""More special functions of `fuser.scipy.special`, through which they are reached: integrals, Bessel and hypergeometric
functions, harmonics, combinations."""

from __future__ import annotations

import fractions
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser import numpy as fnp
from fuser.errors import ConcretizationTypeError, TypeRuleError
from fuser.ir.primitive import Primitive
from fuser.ir.types import is_complex
from fuser.lax.values import as_value, broadcast, convert, promote_inexact
from fuser.numpy.ufuncs import inexact_operand, real_operand
from fuser.ops import cephes as C
from fuser.ops import elementwise as E
from fuser.trace.core import Tracer, bind

__all__ = [
    "bernoulli", "bessel_jn", "boxcox", "boxcox1p", "comb", "dawsn", "erfcx", "exp1", "expi", "expn", "fresnel", "hyp1f1",
    "hyp2f1", "loggamma", "multigammaln", "owens_t", "sici", "spence", "sph_harm_y", "wofz",
]  # fmt: skip


def _strong(x: Any) -> Any:
    return convert(x, x.dtype)


def _one(name: str, primitive: Primitive, text: str, weak: bool = False) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        value = real_operand(name, x)
        return bind(primitive, value if weak else _strong(value))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}, elementwise, of real numbers; integers become the default float."
    return function


expi = _one("expi", C.expi_p, "The exponential integral ∫ exp(t)/t over (-∞, x], its principal value for x > 0")
exp1 = _one("exp1", C.exp1_p, "The exponential integral ∫ exp(-t)/t over [x, ∞); nan for x < 0")
dawsn = _one("dawsn", C.dawsn_p, "Dawson's integral exp(-x²)·∫ exp(t²) over [0, x]", True)
_real_erfcx = _one("erfcx", C.erfcx_p, "", True)


def erfcx(x: Any) -> Any:
    """exp(x²)·erfc(x), which does not underflow, elementwise; integers become the default float."""
    value = fnp.asarray(x)
    return wofz(bind(E.complex_p, -value.imag, value.real)) if is_complex(value.dtype) else _real_erfcx(x)


def _several(name: str, primitive: Primitive, *args: Any) -> Any:
    values = promote_inexact(name, *args)
    if any(is_complex(v.dtype) for v in values):
        raise TypeRuleError(f"{name} takes real numbers, got complex ones; it has no complex form here")
    return bind(primitive, *broadcast(name, values))


def expn(n: Any, x: Any) -> Any:
    """The generalised exponential integral ∫ exp(-x·t)/t^n over [1, ∞), n = 0, 1, 2, …; elementwise. No derivative by n."""
    return _strong(_several("expn", C.expn_p, fnp.asarray(n), fnp.asarray(x)))


def fresnel(x: Any) -> tuple[Any, Any]:
    """(S, C): ∫ sin(πt²/2) and ∫ cos(πt²/2) over [0, x], elementwise. NotImplementedError for complex numbers."""
    value = inexact_operand("fresnel", x)
    if is_complex(value.dtype):
        raise NotImplementedError("Support for complex-valued inputs is not implemented yet.")
    value = _strong(value)
    return bind(C.fresnel_s_p, value), bind(C.fresnel_c_p, value)


def sici(x: Any) -> tuple[Any, Any]:
    """(Si, Ci): the sine integral ∫ sin(t)/t over [0, x] and the cosine integral -∫ cos(t)/t over [x, ∞); real, elementwise."""
    value = inexact_operand("sici", x)
    if is_complex(value.dtype):
        raise ValueError(
            f"sici takes real numbers, got {value.dtype.name}; real and imaginary parts have no such integrals"
        )
    value = _strong(value)
    return bind(C.sine_integral_p, value), bind(C.cosine_integral_p, value)


def spence(x: Any) -> Any:
    """Spence's function ∫ log(t)/(1 - t) over [1, x], the dilogarithm of 1 - x; nan for x < 0. TypeError unless x is a float."""
    value = fnp.asarray(x)
    if value.dtype not in (np.dtype("float32"), np.dtype("float64")):
        raise TypeError(f"x.dtype={value.dtype} is not supported, see docstring for supported types.")
    return _strong(bind(C.spence_p, value))


def wofz(z: Any) -> Any:
    """The Faddeeva function exp(-z²)·erfc(-iz), complex, elementwise."""
    value = inexact_operand("wofz", z)
    wanted = value.dtype if is_complex(value.dtype) else np.dtype(f"complex{max(value.dtype.itemsize, 4) * 16}")
    return bind(C.wofz_p, convert(value, wanted))


def loggamma(x: Any) -> Any:
    """log Γ(x), elementwise: of real numbers nan for x ≤ 0; of complex ones the branch that is real for x > 0 and continuous off x ≤ 0."""
    value = inexact_operand("loggamma", x)
    if is_complex(value.dtype):
        return _strong(bind(C.loggamma_p, value))
    from fuser.scipy.special import gammaln

    return fnp.where(value > 0, gammaln(value), np.nan)


def owens_t(h: Any, a: Any) -> Any:
    """Owen's T: the probability that X > h and 0 < Y < a·X for independent standard normal X and Y, elementwise."""
    return _strong(_several("owens_t", C.owens_t_p, h, a))


def hyp1f1(a: Any, b: Any, x: Any) -> Any:
    """Kummer's hypergeometric function Σ (a)_k/(b)_k·x^k/k!, elementwise, of real numbers."""
    return _strong(_several("hyp1f1", C.hyp1f1_p, *map(fnp.asarray, (a, b, x))))


def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Any:
    """Gauss' hypergeometric function Σ (a)_k (b)_k/(c)_k·x^k/k!, elementwise, of real numbers. Derivative by x alone."""
    return _strong(_several("hyp2f1", C.hyp2f1_p, a, b, c, x))


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Any:
    """The Bessel functions of the first kind J_0 … J_v: shape (v + 1, *z.shape), the dtype of z.

    TypeError unless `v` is an integer, ValueError for v < 0 and unless z holds floats. `n_iter` has no effect: SciPy's method
    needs no number of steps.
    """
    value = as_value(z, "bessel_jn")
    if not dtypes.issubdtype(value.dtype, np.floating):
        raise ValueError("bessel_jn takes an array of floats")
    try:
        order = operator.index(v)
    except TypeError:
        raise TypeError("Argument v of bessel_jn must be integer.") from None
    if order < 0:
        raise ValueError(f"bessel_jn takes orders v >= 0, got {order}")
    value = _strong(value)
    return fnp.stack([bind(C.bessel_j_p, value, order=n) for n in range(order + 1)])


# Combinations.


def bernoulli(n: int) -> Any:
    """The Bernoulli numbers B_0 … B_n, with B_1 = -1/2: floats (n + 1,), rounded from fractions. ValueError for n < 0."""
    count = operator.index(n)
    if count < 0:
        raise ValueError("n must be a non-negative integer.")
    found: list[fractions.Fraction] = []
    row: list[fractions.Fraction] = []
    for m in range(count + 1):  # Akiyama and Tanigawa's triangle
        row.append(fractions.Fraction(1, m + 1))
        for j in range(m, 0, -1):
            row[j - 1] = j * (row[j - 1] - row[j])
        found.append(-row[0] if m == 1 else row[0])
    return fnp.array(np.array([float(b) for b in found]), dtypes.canonical(float))


def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    """How many ways there are to take k of N things (with `repetition` several times each), as a float; 0 where there is none."""
    total, taken = promote_inexact("comb", N, k)
    if repetition:
        ways = _ways(total + taken - 1, taken, (total >= 0) & (taken >= 0) & (taken <= total + taken - 1))
        return fnp.where((taken == 0) & (total >= 0), 1.0, ways)
    return _ways(total, taken, (taken >= 0) & (total >= 0) & (taken <= total))


def _ways(total: Any, taken: Any, possible: Any) -> Any:
    from fuser.scipy.special import gammaln

    total, taken = fnp.where(possible, total, 0), fnp.where(possible, taken, 0)  # so that derivatives meet no pole
    logs = gammaln(total + 1) - gammaln(taken + 1) - gammaln(total - taken + 1)
    return fnp.where(possible, fnp.exp(logs), 0.0)


def boxcox(x: Any, lmbda: Any) -> Any:
    """(x^λ - 1)/λ, and log(x) for λ = 0: Box and Cox, "An analysis of transformations" (1964); elementwise."""
    value, power = promote_inexact("boxcox", x, lmbda)
    return _transformed(fnp.log(value), power)


def boxcox1p(x: Any, lmbda: Any) -> Any:
    """`boxcox` of 1 + x, exact for small x; elementwise."""
    value, power = promote_inexact("boxcox1p", x, lmbda)
    return _transformed(fnp.log1p(value), power)


def _transformed(logarithm: Any, power: Any) -> Any:
    """expm1(λ·log)/λ, written so that λ = 0 divides by nothing."""
    zero = power == 0
    safe = fnp.where(zero, 1, power)
    return fnp.where(zero, logarithm, fnp.expm1(safe * logarithm) / safe)


def multigammaln(a: Any, d: Any) -> Any:
    """log Γ_d(a) = d(d - 1)/4·log(π) + Σ log Γ(a + (1 - j)/2) over j = 1 … d, elementwise; `d` is an integer.

    Muirhead, "Aspects of multivariate statistical theory" (1982), theorem 2.1.12.
    """
    from fuser.scipy.special import gammaln

    if isinstance(d, Tracer):
        raise ConcretizationTypeError("multigammaln needs a known dimension d; pass a Python integer")
    count = operator.index(d)
    (value,) = promote_inexact("multigammaln", a)
    shift = count * (count - 1) / 4 * float(np.log(np.pi))
    steps = fnp.arange(count) / 2
    steps = fnp.reshape(steps.astype(value.dtype), (1,) * value.ndim + (count,))
    result = fnp.sum(gammaln(fnp.expand_dims(value, -1) - steps), -1)
    return result + np.asarray(shift, value.dtype)


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None) -> Any:
    """Spherical harmonics of degree n and order m, |m| ≤ n, at the polar angle theta and the azimuth phi: complex, elementwise.

    The operands are vectors or broadcast. Degrees are cut to `n_max`, which must be given where n is traced. NotImplementedError
    for `diff_n`. By upward recurrence of normalised Legendre functions (DLMF 14.30.1, 14.10.3).
    """
    if diff_n is not None:
        raise NotImplementedError("The 'diff_n' argument to jax.scipy.special.sph_harm_y is not supported.")
    degree, order = as_value(n, "sph_harm_y"), as_value(m, "sph_harm_y")
    polar, azimuth = promote_inexact("sph_harm_y", theta, phi)
    if n_max is None:
        if isinstance(degree, Tracer):
            raise ConcretizationTypeError(
                "The `n_max` argument of `jnp.scipy.special.sph_harm` must be statically specified to use sph_harm within a traced function."
            )
        n_max = int(np.max(np.asarray(degree), initial=0))
    degree, order, polar, azimuth = fnp.broadcast_arrays(fnp.minimum(degree, n_max), order, polar, azimuth)
    size = fnp.abs(order)
    legendre = _normalised_legendre(degree, size, fnp.cos(polar), fnp.sin(polar), int(n_max))
    turn = size.astype(azimuth.dtype) * azimuth
    real, imaginary = legendre * fnp.cos(turn), legendre * fnp.sin(turn)
    odd = fnp.where(size % 2 == 1, -1, 1).astype(azimuth.dtype)
    negative = order < 0
    return bind(
        E.complex_p,
        _strong(fnp.where(negative, odd * real, real)),
        _strong(fnp.where(negative, -odd * imaginary, imaginary)),
    )


def _normalised_legendre(degree: Any, order: Any, cosine: Any, sine: Any, n_max: int) -> Any:
    """√((2n + 1)/(4π)·(n - m)!/(n + m)!)·P_n^m(cosine) with the phase (-1)^m, of each element's own degree and order.

    P_m^m by products, then upwards in n: three terms of the recurrence in which the orders are data.
    """
    dtype = cosine.dtype
    m = order.astype(dtype)
    diagonal = fnp.full(cosine.shape, float(np.sqrt(1 / (4 * np.pi))), dtype)
    for k in range(1, n_max + 1):
        step = -float(np.sqrt((2 * k + 1) / (2 * k))) * sine
        diagonal = fnp.where(order >= k, diagonal * step, diagonal)
    before, current = fnp.zeros_like(diagonal), diagonal
    result = fnp.where(degree == order, diagonal, 0)
    for n in range(1, n_max + 1):
        room = n > order  # the recurrence starts one above the order
        gap = fnp.where(room, float(n * n) - m * m, 1)
        first = fnp.sqrt((4.0 * n * n - 1) / gap)
        second = fnp.sqrt(fnp.maximum((n - 1.0) ** 2 - m * m, 0) * ((2.0 * n + 1) / max(2 * n - 3, 1)) / gap)
        following = first * cosine * current - second * before
        before = fnp.where(room, current, before)
        current = fnp.where(room, following, current)
        result = fnp.where(room & (degree == n), current, result)
    return result
