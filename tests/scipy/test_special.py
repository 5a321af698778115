"""Special functions of jax.scipy.special against JAX, or against SciPy where JAX's own values are less exact or missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
from agreement import numbers, precision
from differential import Row, check, check_compiled, check_derivatives, row

import fuser
from fuser.errors import ConcretizationTypeError
from fuser.scipy import special

X = np.linspace(-3.1, 3.3, 12, dtype=np.float32)
UNIT = np.linspace(0.15, 0.95, 6, dtype=np.float32)
P = np.linspace(0.15, 5.0, 12, dtype=np.float32)
A, B = np.linspace(0.5, 2.5, 12, dtype=np.float32), np.linspace(3.0, 1.2, 12, dtype=np.float32)
ROWS: list[Row] = [
    row("scipy.special.spence", UNIT, grad=0, tolerance=4),  # above 1 JAX has no gradient
    *(row(f"scipy.special.{f}", P, grad=0, tolerance=4) for f in ("expi", "exp1", "fresnel", "sici", "dawsn", "erfcx")),
    *(row(f"scipy.special.{f}", X, tolerance=8) for f in ("fresnel", "dawsn", "erfcx", "loggamma", "spence", "softmax", "log_softmax")),
    *(row(f"scipy.special.{f}", np.arange(1, 5)) for f in ("expi", "exp1", "fresnel", "sici", "dawsn", "erfcx", "loggamma", "spence")), *(row(f"scipy.special.{f}", X + 1j, compiled=False) for f in ("expi", "fresnel", "sici", "spence")),
    row("scipy.special.expn", 2, P, grad=1, tolerance=4), row("scipy.special.expn", np.array([[0], [1], [5]], np.int32), P, tolerance=4),
    row("scipy.special.wofz", X, tolerance=4), row("scipy.special.erfcx", numbers(np.complex64, (5,)), grad=0, tolerance=8), row("scipy.special.wofz", numbers(np.complex64, (5,)), grad=0, tolerance=8), row("scipy.special.loggamma", P, grad=0, tolerance=8), row("scipy.special.loggamma", P + 1j * X, tolerance=8),
    row("scipy.special.owens_t", X, A, grad=(0, 1), tolerance=8), row("scipy.special.owens_t", 1, 2, tolerance=8), row("scipy.special.hyp1f1", A, B, X, grad=(0, 1, 2), tolerance=8), row("scipy.special.hyp1f1", 1, 2, P, tolerance=8), row("scipy.special.hyp2f1", A, B, 2.5, X / 5, grad=3, tolerance=20), row("scipy.special.hyp2f1", A + 0j, B, 2.5, X / 5, compiled=False),
    row("scipy.special.boxcox", P, A, grad=(0, 1), tolerance=4), row("scipy.special.boxcox", P, np.array([0.0, 1, 2, -1] * 3, np.float32), tolerance=4), row("scipy.special.boxcox1p", P, A, grad=(0, 1), tolerance=4), row("scipy.special.boxcox1p", P, 0.0, tolerance=4), row("scipy.special.boxcox", 2, 3),
    row("scipy.special.comb", np.arange(6), 2, tolerance=4), row("scipy.special.comb", 5, np.arange(-1, 7), tolerance=4), row("scipy.special.comb", 4.5, np.arange(4), repetition=True, tolerance=4), row("scipy.special.multigammaln", B, 3, grad=0, tolerance=8), row("scipy.special.multigammaln", 5, 2, tolerance=4),
    *(row("scipy.special.bernoulli", n, tolerance=4) for n in (0, 1, 9, -1)), row("scipy.special.bessel_jn", P * 3 + 5, v=3, tolerance=20), row("scipy.special.bessel_jn", P, v=1.5),
    row("scipy.special.sph_harm_y", np.array([2, 3, 0, 4, 4]), np.array([1, -2, 0, 4, -3]), P[:5] / 2, X[:5], n_max=4, tolerance=4), row("scipy.special.sph_harm_y", np.array([2]), np.array([1]), P[:1], X[:1], 1),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{n}-{ROWS[n]}")
def test_special_function(number: int) -> None:
    check(ROWS[number])


def test_derivatives_of_special_functions() -> None:
    check_derivatives(ROWS)


def test_compiled_special_functions() -> None:
    errors = ("bernoulli", "bessel_jn", "sph_harm_y", "spence")
    check_compiled([r for r in ROWS if r.compiled and r.path.split(".")[-1] not in errors])


SCIPY: list[tuple[str, tuple[Any, ...]]] = [
    ("expi", (np.array([0.0, -2.0, np.inf, -np.inf, np.nan, 40.0]),)), ("exp1", (np.array([0.0, 1.0, np.inf, np.nan]),)), ("sici", (np.array([0.0, 0.1, 50.0, -2.0]),)), ("fresnel", (np.array([0.0, 0.1, 50.0, -2.0, np.inf]),)),
    ("dawsn", (np.array([0.0, 1e-5, 30.0, -2.0]),)), ("erfcx", (np.array([0.0, 30.0, -2.0, np.inf]),)), ("spence", (np.array([0.0, 1.0, 2.0, 1e4]),)), ("wofz", (np.array([1 + 2j, -3 + 0.1j, 20j]),)), ("loggamma", (np.array([1 + 2j, -3.5 + 0.1j, 20j]),)),
    ("owens_t", (np.array([0.0, 1.0, -2.0, 8.0]), np.array([1.0, 0.0, 5.0, 0.3]))), ("hyp1f1", (np.array([0.5, 2.0, -1.0]), np.array([1.5, 0.5, 2.0]), np.array([-30.0, 20.0, 3.0]))), ("hyp2f1", (0.5, 1.5, 2.5, np.array([-0.9, 0.0, 0.95]))),
    ("sph_harm_y", (np.array([[9], [5]]), np.array([-4, 0, 5]), 1.1, 0.4)), ("multigammaln", (np.array([4.5, 9.0]), 4)), ("comb", (np.array([30.0, 8.0]), np.array([10.0, 8.0]))), ("expn", (np.arange(6), 0.7)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SCIPY)), ids=lambda n: f"{n}-{SCIPY[n][0]}")
def test_values_of_scipy_in_64_bits(number: int) -> None:
    name, operands = SCIPY[number]
    with precision(True), np.errstate(all="ignore"):
        found = getattr(special, name)(*operands)
        expected = getattr(scipy.special, name)(*operands)
    for f, e in zip(
        found if isinstance(found, tuple) else (found,), expected if isinstance(found, tuple) else (expected,)
    ):
        assert np.asarray(f).dtype == np.asarray(e).dtype
        np.testing.assert_allclose(np.asarray(f), e, rtol=1e-12, atol=1e-14)


def test_bessel_functions_of_small_arguments() -> None:
    """Where JAX's recurrence gives nan."""
    x = np.array([0.0, 0.01, 1.0, 4.0, 70.0])
    with precision(True):
        found = np.asarray(special.bessel_jn(x, v=4))
        slope = np.asarray(fuser.vmap(fuser.grad(lambda z: special.bessel_jn(z, v=2)[2]))(x))
    np.testing.assert_allclose(found, [scipy.special.jv(n, x) for n in range(5)], atol=1e-14)
    np.testing.assert_allclose(slope, scipy.special.jvp(2, x), atol=1e-14)


def test_what_is_refused() -> None:
    with pytest.raises(ConcretizationTypeError, match="n_max"):
        fuser.jit(special.sph_harm_y)(np.array([1]), np.array([0]), P[:1], P[:1])
    with pytest.raises(ValueError, match="takes orders v >= 0"):
        special.bessel_jn(P, v=-1)
    with pytest.raises(ValueError, match="takes an array of floats"):
        special.bessel_jn(np.arange(3), v=1)


@pytest.mark.parametrize("x", [0.6, 0.99, -0.6, -7.0])
def test_gauss_function_has_derivatives_by_its_parameters(x: float) -> None:
    """By a, b and c, also where the series is taken at x/(x - 1)."""
    from scipy.special import hyp2f1

    with precision(True):
        point, step = (0.3, -0.45, 1.2, x), 1e-6
        found = fuser.grad(fuser.scipy.special.hyp2f1, (0, 1, 2))(*point)
        for number, slope in enumerate(found):
            above, below = list(point), list(point)
            above[number] += step
            below[number] -= step
            np.testing.assert_allclose(slope, (hyp2f1(*above) - hyp2f1(*below)) / (2 * step), rtol=1e-6)
    assert np.isnan(fuser.grad(fuser.scipy.special.hyp2f1)(0.3, 0.7, 1.2, 1.5))
