"""`np.polynomial`'s classes: made, computed with, derived, fitted and returned by traced functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.polynomial import Chebyshev, Hermite, HermiteE, Laguerre, Legendre, Polynomial

from fuser.interop import accelerate
from tests.interop.oracle import agree, same

KINDS = [Polynomial, Chebyshev, Legendre, Hermite, HermiteE, Laguerre]
C = np.random.default_rng(0).normal(size=6)
X = np.linspace(-1, 1, 50)


def parts(value: Any) -> Any:
    """Polynomials as what they hold."""
    if isinstance(value, tuple):
        return tuple(map(parts, value))
    if type(value) in KINDS:
        return type(value).__name__, value.coef, value.domain, value.window, value.symbol
    return value


def whole(function: Any, *args: Any, tolerance: float = 1e-10) -> None:
    for backend in ("c", "reference"):
        compiled = accelerate(function, measure=False, backend=backend, fallback="error")
        for _ in range(2):
            same(parts(function(*args)), parts(compiled(*args)), tolerance)
        assert "compiled whole" in compiled.explain()
        assert compiled._signatures()[0].events == 0 and compiled._signatures()[0].traces == 1


@pytest.mark.parametrize("kind", KINDS)
def test_of_computed_coefficients(kind: Any) -> None:
    def function(x: Any, c: Any) -> Any:
        p = kind(c)
        return p(x), p.deriv()(x), p.integ(2, k=[1, 2])(x), p.deriv(2).coef, p.degree(), len(p), p.cutdeg(3), -p

    whole(function, X, C)


@pytest.mark.parametrize("kind", KINDS)
def test_arithmetic(kind: Any) -> None:
    def function(x: Any, c: Any) -> Any:
        p, q = kind(c), kind([1.0, 2.0, 3.0])
        return (p * q + 1 - q)(x), p - q, 2 * p, p / 4, (q**3)(x), p == p * 2 if False else p * c[0]

    whole(function, X, C)


@pytest.mark.parametrize("kind", KINDS)
def test_fits(kind: Any) -> None:
    def function(x: Any, y: Any) -> Any:
        p = kind.fit(x, y, 4)
        return p(x) - y, p, p.deriv()(x), kind.fit(x, y, 3, domain=[-2, 2])(x), p.linspace(7)[1]

    whole(function, X * 3 + 1, np.sin(X * 2), tolerance=1e-8)


def test_leading_zeros_are_numpys() -> None:
    function = lambda c: (Polynomial(c) + Polynomial([1.0, 2.0])).coef
    compiled = accelerate(function, measure=False)
    for coefficients in (C, np.append(C[:-1], 0.0), np.zeros(6), C):
        same(function(coefficients), compiled(coefficients))


def test_roots_and_errors_are_numpys() -> None:
    agree(lambda c: Polynomial(c).roots(), C, backend="c")
    agree(lambda c: np.polynomial.polynomial.polyroots(c), C, backend="c")
    with pytest.raises(TypeError, match="same length"):
        accelerate(lambda x, y: Polynomial.fit(x, y, 2).coef)(X, C)
