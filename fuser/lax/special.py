"""Special functions of `fuser.lax`: one primitive each, with jax.lax's names; dtypes are checked and never promoted."""

from __future__ import annotations

from typing import Any

from fuser.lax.values import spread, strict
from fuser.ops import incomplete as I
from fuser.ops import special as P
from fuser.trace.core import bind


def erf_inv(x: Any) -> Any:
    """The inverse error function on [-1, 1]; nan outside."""
    return bind(P.erf_inv_p, *strict("erf_inv", x))


def digamma(x: Any) -> Any:
    """The derivative of log Γ; nan at 0, -1, -2, …"""
    return bind(P.digamma_p, *strict("digamma", x))


def polygamma(m: Any, x: Any) -> Any:
    """The m-th derivative of digamma; nan unless m is 0, 1, 2, … It has no derivative by m: asking for one is an error."""
    return bind(P.polygamma_p, *spread("polygamma", strict("polygamma", m, x)))


def zeta(x: Any, q: Any) -> Any:
    """Hurwitz's zeta function Σ (q + k)^-x over k ≥ 0; inf at x = 1, nan below."""
    return bind(P.zeta_p, *spread("zeta", strict("zeta", x, q)))


def bessel_i0e(x: Any) -> Any:
    """exp(-|x|)·I0(x), I0 being the modified Bessel function of order 0."""
    return bind(P.bessel_i0e_p, *strict("bessel_i0e", x))


def bessel_i1e(x: Any) -> Any:
    """exp(-|x|)·I1(x), I1 being the modified Bessel function of order 1."""
    return bind(P.bessel_i1e_p, *strict("bessel_i1e", x))


def igamma(a: Any, x: Any) -> Any:
    """P(a, x), the regularized lower incomplete gamma function; nan for negative operands."""
    return bind(I.igamma_p, *spread("igamma", strict("igamma", a, x)))


def igammac(a: Any, x: Any) -> Any:
    """Q(a, x) = 1 - P(a, x), the regularized upper incomplete gamma function; nan for negative operands."""
    return bind(I.igammac_p, *spread("igammac", strict("igammac", a, x)))


def igamma_grad_a(a: Any, x: Any) -> Any:
    """The derivative of `igamma` with respect to a; it has one of its own by x only."""
    return bind(I.igamma_grad_a_p, *spread("igamma_grad_a", strict("igamma_grad_a", a, x)))


def random_gamma_grad(a: Any, x: Any) -> Any:
    """The derivative by a of a sample x of the distribution Gamma(a, 1); it has one of its own by x only."""
    return bind(I.random_gamma_grad_p, *spread("random_gamma_grad", strict("random_gamma_grad", a, x)))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularized incomplete beta function of x in [0, 1]; nan outside and for negative a or b. Derivative by x only."""
    return bind(I.regularized_incomplete_beta_p, *spread("betainc", strict("betainc", a, b, x)))
