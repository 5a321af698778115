"""Special functions, with jax.scipy.special's names: error, gamma, zeta and Bessel functions, entropies, the normal
distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.ir.primitive import Primitive
from fuser.ir.types import is_complex
from fuser.lax.marks import stop_gradient
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.replayed import install as _install_replays
from fuser.lax.values import as_value, broadcast, convert, literal, promote_inexact
from fuser.numpy.ufuncs import Ufunc, inexact_operand, inexact_operands, real_operand
from fuser.ops import bessel as B
from fuser.ops import elementwise as E
from fuser.ops import incomplete as I
from fuser.ops import logarithms as L
from fuser.ops import special as P
from fuser.trace.core import bind


def _function(name: str, primitive: Primitive, text: str) -> Ufunc:
    def function(x: Any) -> Any:
        return bind(primitive, inexact_operand(name, x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


erf = _function("erf", E.erf_p, "The error function.")
erfc = _function("erfc", E.erfc_p, "1 - erf(x), exact for large x.")
erfinv = _function("erfinv", P.erf_inv_p, "The inverse error function on [-1, 1].")
expit = _function("expit", E.logistic_p, "The logistic function, 1 / (1 + exp(-x)).")
gammaln = _function("gammaln", E.lgamma_p, "log|Γ(x)|.")
digamma = _function("digamma", P.digamma_p, "The derivative of log Γ.")


def logit(x: Any) -> Any:
    """log(x / (1 - x)), the inverse of expit; its derivative at 0 and 1 is inf."""
    x = inexact_operand("logit", x)
    return bind(L.logit_p, x) if not is_complex(x.dtype) else fnp.log(x / (1 - x))


def gamma(x: Any) -> Any:
    """Γ(x), of complex numbers too; nan at negative integers, ±inf at ±0."""
    x = inexact_operand("gamma", x)
    if is_complex(x.dtype):
        from fuser.scipy.more_special import loggamma

        return fnp.exp(loggamma(x))
    return gammasgn(x) * fnp.exp(gammaln(x))


def gammasgn(x: Any) -> Any:
    """The sign of Γ(x); nan at negative integers and -inf."""
    x = inexact_operand("gammasgn", x)
    floor = fnp.floor(x)
    at_integer = fnp.where(x == floor, np.nan, fnp.where(fnp.remainder(floor, 2) != 0, -1.0, 1.0).astype(x.dtype))
    result = fnp.where(x > 0, 1.0, at_integer)
    result = fnp.where(x == 0, fnp.copysign(1.0, x), result)
    return fnp.where(fnp.isnan(x), x, result).astype(x.dtype)


def betaln(a: Any, b: Any) -> Any:
    """log|B(a, b)|; where one of them is large and a > 0, Γ(b)/Γ(a + b) by Stirling's series, which loses nothing."""
    a, b = inexact_operands("betaln", a, b)
    a, b = fnp.minimum(a, b), fnp.maximum(a, b)
    z = fnp.maximum(b, 9.0)
    both = z + a
    ratio = a - (z - 0.5) * fnp.log1p(a / z) - a * fnp.log(both) + P.stirling(z, fnp) - P.stirling(both, fnp)
    plain = gammaln(b) - gammaln(a + b)
    return gammaln(a) + fnp.where(fnp.logical_and(a > 0, b >= 9), ratio, plain)


def beta(a: Any, b: Any) -> Any:
    """B(a, b)."""
    a, b = inexact_operands("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * fnp.exp(betaln(a, b))


def factorial(n: Any, exact: bool = False) -> Any:
    """n!, and 0 for negative n."""
    if exact:
        raise NotImplementedError("factorial computes in floating point; exact=True is not offered")
    n = inexact_operand("factorial", n)
    return fnp.where(n < 0, 0, P.factorial(fnp.maximum(n, 0), fnp))


def poch(z: Any, m: Any) -> Any:
    """Pochhammer's symbol Γ(z + m) / Γ(z); 1 where m is 0, nan at negative integers."""
    z, m = inexact_operands("poch", z, m)
    quotient = gammasgn(z) * gammasgn(z + m) * fnp.exp(gammaln(z + m) - gammaln(z))
    return fnp.where(fnp.logical_and(m == 0, fnp.isnan(quotient)), 1.0, quotient)


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of digamma, for integers n; nan for a negative one."""
    n = as_value(n, "polygamma")
    if n.dtype.kind not in "iu":
        raise ValueError(f"polygamma takes an order of an integer dtype, got {n.dtype.name}; convert it first")
    return bind(P.polygamma_p, *inexact_operands("polygamma", n, x))


def zeta(x: Any, q: Any = None) -> Any:
    """Hurwitz's zeta function Σ (q + k)^-x over k ≥ 0; inf at x = 1, nan below."""
    if q is None:
        raise NotImplementedError("zeta is Hurwitz's function of x and q; pass q=1 for Riemann's, for x > 1")
    return bind(P.zeta_p, *inexact_operands("zeta", x, q))


def gammainc(a: Any, x: Any) -> Any:
    """P(a, x), the regularized lower incomplete gamma function."""
    return bind(I.igamma_p, *inexact_operands("gammainc", a, x))


def gammaincc(a: Any, x: Any) -> Any:
    """Q(a, x) = 1 - P(a, x), the regularized upper incomplete gamma function."""
    return bind(I.igammac_p, *inexact_operands("gammaincc", a, x))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularized incomplete beta function of x in [0, 1]."""
    operands = broadcast("betainc", promote_inexact("betainc", a, b, x))
    return bind(I.regularized_incomplete_beta_p, *operands)


i0e = _function("i0e", P.bessel_i0e_p, "exp(-|x|)·I0(x), I0 being the modified Bessel function of order 0.")
i1e = _function("i1e", P.bessel_i1e_p, "exp(-|x|)·I1(x), I1 being the modified Bessel function of order 1.")


j0 = _function("j0", B.bessel_j0_p, "J0(x), the Bessel function of the first kind of order 0; JAX has no such name.")
j1 = _function("j1", B.bessel_j1_p, "J1(x), the Bessel function of the first kind of order 1; JAX has no such name.")


def i0(x: Any) -> Any:
    """The modified Bessel function of order 0."""
    x = inexact_operand("i0", x)
    return fnp.exp(fnp.abs(x)) * i0e(x)


def i1(x: Any) -> Any:
    """The modified Bessel function of order 1."""
    x = inexact_operand("i1", x)
    return fnp.exp(fnp.abs(x)) * i1e(x)


def xlogy(x: Any, y: Any) -> Any:
    """x·log(y), and 0 where x is 0 and y is not nan; the derivatives are log(y) and x/y throughout."""
    x, y = inexact_operands("xlogy", x, y)
    if is_complex(x.dtype):
        return fnp.where((x != 0) | fnp.isnan(y), x * fnp.log(y), fnp.zeros_like(x))
    return bind(L.xlogy_p, x, y)


def xlog1py(x: Any, y: Any) -> Any:
    """x·log(1 + y), and 0 where x is 0 and y is not nan; the derivatives are log(1 + y) and x/(1 + y) throughout."""
    x, y = inexact_operands("xlog1py", x, y)
    if is_complex(x.dtype):
        return fnp.where((x != 0) | fnp.isnan(y), x * fnp.log1p(y), fnp.zeros_like(x))
    return bind(L.xlog1py_p, x, y)


def entr(x: Any) -> Any:
    """-x·log(x); 0 at 0, where the derivative is inf, and -inf below."""
    x = real_operand("entr", x)
    return fnp.where(x < 0, -np.inf, -bind(L.xlogx_p, x))


def rel_entr(p: Any, q: Any) -> Any:
    """p·log(p/q); 0 where p is 0 and q ≥ 0, inf outside the domain."""
    p, q = inexact_operands("rel_entr", p, q)
    both = fnp.logical_and(p > 0, q > 0)
    neither = fnp.logical_and(p == 0, q >= 0)
    safe_p, safe_q = fnp.where(both, p, 1), fnp.where(both, q, 1)
    return fnp.where(both, safe_p * fnp.log(safe_p / safe_q), fnp.where(neither, 0.0, np.inf))


def kl_div(p: Any, q: Any) -> Any:
    """p·log(p/q) - p + q."""
    p, q = inexact_operands("kl_div", p, q)
    return rel_entr(p, q) - p + q


def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """log(Σ b·exp(a)) along `axis` without overflow; with `return_sign`, of the absolute value, and the sign."""
    if where is not None:
        a = fnp.where(where, a, 0)  # what stands outside may be infinite or nan, and must not reach a derivative
    if b is not None:
        a, b = inexact_operands("logsumexp", a, b)
        a = fnp.where(b != 0, a, -np.inf)
    a = inexact_operand("logsumexp", a)
    greatest = fnp.max(
        fnp.real(a), axis, keepdims=True, where=where, initial=-np.inf if where is not None or 0 in a.shape else None
    )
    greatest = stop_gradient(fnp.where(fnp.isfinite(greatest), greatest, 0))
    exponents = fnp.exp(a - greatest.astype(a.dtype) if is_complex(a.dtype) else a - greatest)
    if b is not None:
        exponents = exponents * b
    total = fnp.sum(exponents, axis, keepdims=keepdims, where=where)
    shift = greatest if keepdims else fnp.reshape(greatest, total.shape)
    if is_complex(a.dtype):
        if return_sign:
            return fnp.log(fnp.abs(total)) + shift, fnp.sign(total)
        return fnp.log(total) + shift.astype(total.dtype)
    if return_sign:
        return fnp.log(fnp.abs(total)) + shift, fnp.sign(total)
    if b is not None:
        return fnp.where(total < 0, np.nan, fnp.log(fnp.abs(total)) + shift)
    return fnp.log(total) + shift


# The normal distribution. Constants and ranges are Cephes' (Moshier), as in SciPy and JAX.


def ndtr(x: Any) -> Any:
    """The distribution function of the standard normal distribution."""
    x = inexact_operand("ndtr", fnp.asarray(x))
    half = literal(float(np.sqrt(0.5)), x.dtype, x.weak_type)
    w = x * half
    z = fnp.abs(w)
    tail = fnp.where(w > 0, 2.0 - erfc(z), erfc(z))
    return convert(0.5 * fnp.where(z < half, 1.0 + erf(w), tail), x.dtype)


_NDTRI_CENTRE = (
    (-5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1, 1.39312609387279679503e1, -1.23916583867381258016e0),
    (1.0, 1.95448858338141759834e0, 4.67627912898881538453e0, 8.63602421390890590575e1, -2.25462687854119370527e2, 2.00260212380060660359e2, -8.20372256168333339912e1, 1.59056225126211695515e1, -1.18331621121330003142e0),
)  # fmt: skip
_NDTRI_TAIL = (
    (4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1, 4.40805073893200834700e1, 1.46849561928858024014e1, 2.18663306850790267539e0, -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4),
    (1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1, 1.50425385692907503408e1, 2.50464946208309415979e0, -1.42182922854787788574e-1, -3.80806407691578277194e-2, -9.33259480895457427372e-4),
)  # fmt: skip
_NDTRI_FAR = (
    (3.23774891776946035970e0, 6.91522889068984211695e0, 3.93881025292474443415e0, 1.33303460815807542389e0, 2.01485389549179081538e-1, 1.23716634817820021358e-2, 3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.23974539184983293730e-9),
    (1.0, 6.02427039364742014255e0, 3.67983563856160859403e0, 1.37702099489081330271e0, 2.16236993594496635890e-1, 1.34204006088543189037e-2, 3.28014464682127739104e-4, 2.89247864745380683936e-6, 6.79019408009981274425e-9),
)  # fmt: skip


def _ratio(x: Any, polynomials: tuple[tuple[float, ...], tuple[float, ...]]) -> Any:
    above, below = polynomials
    return _horner(x, above) / _horner(x, below)


def _horner(x: Any, coefficients: tuple[float, ...]) -> Any:
    total: Any = x * 0 + coefficients[0]
    for c in coefficients[1:]:
        total = total * x + c
    return total


def ndtri(p: Any) -> Any:
    """The inverse of `ndtr` on [0, 1]; nan outside."""
    p = inexact_operand("ndtri", p)
    edge = float(np.exp(-2.0))
    upper = p > 1.0 - edge
    q = fnp.where(upper, 1.0 - p, p)
    safe = fnp.where(q == 0, 0.5, q)
    centred = safe - 0.5
    squared = centred * centred
    centre = (centred + centred * squared * _ratio(squared, _NDTRI_CENTRE)) * -float(np.sqrt(2 * np.pi))
    z = fnp.sqrt(-2.0 * fnp.log(safe))
    first = z - fnp.log(z) / z
    second = fnp.where(z >= 8.0, _ratio(1.0 / z, _NDTRI_FAR), _ratio(1.0 / z, _NDTRI_TAIL)) / z
    x = fnp.where(safe > edge, centre, first - second)
    x = fnp.where(upper, x, -x)
    x = fnp.where(p == 0, -np.inf, fnp.where(p == 1, np.inf, fnp.where(fnp.logical_or(p < 0, p > 1), np.nan, x)))
    return convert(x, p.dtype)


def log_ndtr(x: Any, series_order: int = 3) -> Any:
    """log(ndtr(x)), exact far below zero through an asymptotic series."""
    x = inexact_operand("log_ndtr", fnp.asarray(x))
    lower, upper = (-20.0, 8.0) if x.dtype.itemsize == 8 else (-10.0, 5.0)
    far = fnp.minimum(x, lower)
    series, term = fnp.ones_like(far), 1.0
    for n in range(1, series_order + 1):
        term *= 2 * n - 1
        series = series + (-1) ** n * term / far ** (2 * n)
    tail = -0.5 * far * far - fnp.log(-far) - 0.5 * float(np.log(2 * np.pi)) + fnp.log(series)
    middle = fnp.log(ndtr(fnp.maximum(x, lower)))
    return convert(fnp.where(x > upper, -ndtr(-x), fnp.where(x > lower, middle, tail)), x.dtype)


# Reached through this module: those of legendre and more_special, and softmax of all elements unless told.
from fuser.scipy.legendre import lpmn, lpmn_values  # noqa: E402, F401
from fuser.scipy.more_special import (  # noqa: E402, F401
    bernoulli,
    bessel_jn,
    boxcox,
    boxcox1p,
    comb,
    dawsn,
    erfcx,
    exp1,
    expi,
    expn,
    fresnel,
    hyp1f1,
    hyp2f1,
    loggamma,
    multigammaln,
    owens_t,
    sici,
    spence,
    sph_harm_y,
    wofz,
)


def softmax(x: Any, /, *, axis: Any = None) -> Any:
    """exp(x) over its sum along `axis`, over all elements for None."""
    from fuser import nn

    return nn.softmax(x, axis=axis)


def log_softmax(x: Any, /, *, axis: Any = None) -> Any:
    """The logarithm of `softmax`."""
    from fuser import nn

    return nn.log_softmax(x, axis=axis)


_install_ranks(globals(), "fuser.scipy")
_install_replays(globals(), "fuser.scipy", compiled=("expit", "log_softmax", "logsumexp", "softmax"))
