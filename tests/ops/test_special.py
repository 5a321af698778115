"""Special functions: accuracy against SciPy in float64, edges by definition, real JAX where it is exact, C against eval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import mpmath
import numpy as np
import pytest
import scipy.special as sp

import fuser
import fuser.numpy as fnp
import fuser.scipy.special as special
from fuser import lax
from fuser.backends.c.library.library_calls import call_blocker
from fuser.config import config
from fuser.ir.primitive import REGISTRY, Fusion
from fuser.ir.types import FLOATS, bfloat16

F32, F64 = FLOATS[2], FLOATS[3]
NAN, INF = np.nan, np.inf
Draw = Callable[[np.random.Generator], tuple[np.ndarray, ...]]


def between(low: float, high: float) -> Draw:
    return lambda rng: (rng.uniform(low, high, 500),)


def powers(*decades: tuple[float, float], after: float = 0.0) -> Draw:
    """Operands whose logarithm is uniform; `after` is added to the first."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        first, *rest = (10 ** rng.uniform(low, high, 500) for low, high in decades)
        return (after + first, *rest)

    return draw


def orders(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return rng.integers(1, 12, 500).astype(float), 10 ** rng.uniform(-2, 2, 500)


def near_one(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return (rng.choice([-1, 1], 500) * (1 - 10 ** rng.uniform(-7, -0.5, 500)),)


def samples_of_gamma(low: float, high: float) -> Draw:
    """A parameter and a value within 6 standard deviations, as good as always."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        a = 10 ** rng.uniform(low, high, 500)
        return a, np.maximum(a + rng.uniform(-6, 6, 500) * np.sqrt(a), a / 8)

    return draw


def samples_of_beta(low: float, high: float) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        a, b = 10 ** rng.uniform(low, high, (2, 500))
        mean = a / (a + b)
        deviation = np.sqrt(mean * (1 - mean) / (a + b + 1))
        return a, b, np.clip(mean + rng.uniform(-4, 4, 500) * deviation, 1e-3, 1 - 1e-3)

    return draw


def polygamma(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    return sp.polygamma(n.astype(int), x)


# primitive, operands, SciPy's function, relative error allowed in float32 and in float64.
ACCURACY: list[tuple[str, Draw, Callable[..., np.ndarray], float, float]] = [
    ("digamma", powers((-4, 0)), sp.digamma, 4e-7, 1e-15),
    ("digamma", between(1.0, 3.0), sp.digamma, 4e-7, 2e-15),  # with the root 1.4616…
    ("digamma", between(3.0, 100.0), sp.digamma, 4e-7, 3e-15),
    ("erf_inv", between(-0.99, 0.99), sp.erfinv, 3e-7, 1e-15),
    ("erf_inv", near_one, sp.erfinv, 4e-7, 1e-15),
    ("lgamma", between(2.5, 50.0), sp.gammaln, 3e-7, 2e-15),
    ("bessel_i0e", between(-8.0, 8.0), sp.i0e, 3e-7, 1e-15),
    ("bessel_i0e", powers((0.9, 5)), sp.i0e, 3e-7, 1e-15),
    ("bessel_i1e", between(-8.0, 8.0), sp.i1e, 5e-7, 3e-15),
    ("bessel_i1e", powers((0.9, 5)), sp.i1e, 3e-7, 1e-15),
    ("bessel_i1e", powers((-30, -1)), sp.i1e, 5e-7, 3e-15),
    ("zeta", powers((-5, 0), (-2, 2), after=1.0), sp.zeta, 5e-7, 2e-15),
    ("zeta", powers((0, 1), (-2, 3), after=1.0), sp.zeta, 6e-7, 2e-15),
    ("zeta", powers((0, 0.3), (2, 8), after=1.0), sp.zeta, 5e-7, 2e-15),
    ("polygamma", orders, polygamma, 1.5e-6, 4e-15),
    ("igamma", powers((-2, 1), (-2, 1)), sp.gammainc, 1e-7, 3e-14),
    ("igamma", samples_of_gamma(0, 2), sp.gammainc, 1e-7, 1e-12),
    ("igamma", samples_of_gamma(3, 5), sp.gammainc, 1e-7, 1e-12),
    ("igammac", samples_of_gamma(-1, 2), sp.gammaincc, 1e-7, 1e-12),
    ("igammac", samples_of_gamma(3, 5), sp.gammaincc, 1e-7, 1e-12),
    ("regularized_incomplete_beta", samples_of_beta(-1, 1), sp.betainc, 1e-7, 1e-12),
    ("regularized_incomplete_beta", samples_of_beta(1, 2), sp.betainc, 1e-7, 1e-12),
    ("regularized_incomplete_beta", samples_of_beta(2, 5), sp.betainc, 1e-7, 2e-12),
]


def evaluated(name: str, *operands: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(REGISTRY[name].rule("eval")(*operands))


def relative_error(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors of numbers in the normal range; inf where one is nan and the other is not."""
    found, info = found.astype(np.float64), np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        error = np.abs(found - exact) / np.abs(exact)
    inside = (np.abs(exact) > 2 * float(info.smallest_normal)) & (np.abs(exact) < float(info.max) / 2)
    return np.where(np.isnan(found) != np.isnan(exact), INF, np.where(inside, error, 0))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("number", range(len(ACCURACY)), ids=lambda n: f"{n}-{ACCURACY[n][0]}")
def test_accuracy(number: int, dtype: np.dtype) -> None:
    name, draw, oracle, single, double = ACCURACY[number]
    operands = tuple(o.astype(dtype) for o in draw(np.random.default_rng(number)))
    exact = oracle(*(o.astype(np.float64) for o in operands))
    error = relative_error(evaluated(name, *operands), exact)
    worst = int(np.argmax(error))
    assert error[worst] <= (single if dtype == F32 else double), [float(o[worst]) for o in operands]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions_of_the_first_kind(order: int, dtype: np.dtype) -> None:
    """Within 4 eps of their envelope √(2/πx), and of themselves where nothing cancels."""
    parts = (np.linspace(-12, 12, 401), 10 ** np.linspace(1, 4, 100), 10 ** np.linspace(-30, 0, 60))
    x = np.concatenate(parts).astype(dtype)
    exact = np.array([float(mpmath.besselj(order, mpmath.mpf(float(value)))) for value in x])
    error = np.abs(evaluated(f"bessel_j{order}", x).astype(np.float64) - exact)
    envelope = np.minimum(1, np.sqrt(2 / (np.pi * np.maximum(np.abs(x), 1e-3))))
    assert np.all(error <= 4 * float(np.finfo(dtype).eps) * np.where(np.abs(x) < 0.5, np.abs(exact), envelope))
    edges = evaluated(f"bessel_j{order}", np.array([0.0, -0.0, INF, -INF, NAN], dtype))
    np.testing.assert_array_equal(edges, [1 - order, 1 - order, NAN, NAN, NAN])
    assert order == 0 or np.signbit(edges[1])


def test_zeta_and_polygamma_far_below_zero() -> None:
    """Also where r and 1 - r, the distances to the poles, give equal terms that cancel."""
    for q in (-0.5, -0.1, -3.3, -20.5, -20.4, -99.75):
        for s in (2.0, 3.0, 4.0, 5.0):
            exact = sum((q + k) ** -s for k in range(100)) + sp.zeta(s, q + 100)
            if q % 1 != 0.5 or s % 2 == 0:
                np.testing.assert_allclose(evaluated("zeta", np.array(s), np.array(q)), exact, rtol=1e-13)
            else:  # the terms cancel in pairs and leave those beyond
                np.testing.assert_allclose(evaluated("zeta", np.array(s), np.array(q)), sp.zeta(s, 1 - q), rtol=1e-14)
    assert np.isnan(evaluated("zeta", np.array(2.5), np.array(-0.5)))
    np.testing.assert_allclose(evaluated("polygamma", np.array(1.0), np.array(-20.5)), np.pi**2 - sp.polygamma(1, 21.5))


EDGES: list[tuple[str, tuple[float, ...], float]] = [
    *(("digamma", (x,), NAN) for x in (0.0, -0.0, -1.0, -7.0, -INF, NAN)),
    ("digamma", (INF,), INF),
    ("digamma", (1.0,), -np.euler_gamma),
    *(("erf_inv", (x,), y) for x, y in ((1.0, INF), (-1.0, -INF), (1.5, NAN), (-INF, NAN), (NAN, NAN), (0.0, 0.0))),
    *(("bessel_i0e", (x,), y) for x, y in ((0.0, 1.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN))),
    *(("bessel_i1e", (x,), y) for x, y in ((0.0, 0.0), (-0.0, -0.0), (INF, 0.0), (-INF, -0.0), (NAN, NAN))),
    *(("zeta", (2.0, q), y) for q, y in ((1.0, np.pi**2 / 6), (0.0, INF), (-3.0, INF), (INF, 0.0), (NAN, NAN))),
    *(("zeta", (s, 1.0), y) for s, y in ((1.0, INF), (0.5, NAN), (-1.0, NAN), (NAN, NAN), (1e4, 1.0))),
    *(("zeta", x, NAN) for x in ((3.0, 0.0), (3.0, -2.0), (2.5, -0.5))),
    *(("polygamma", (n, 2.0), NAN) for n in (-1.0, 0.5, NAN, INF)),
    *(("polygamma", x, y) for x, y in (((0.0, 1.0), -np.euler_gamma), ((1.0, 1.0), np.pi**2 / 6), ((1.0, -2.0), INF), ((2.0, 0.0), NAN))),
    *(("igamma", x, 0.0) for x in ((2.0, 0.0), (INF, 3.0))),
    *(("igamma", x, 1.0) for x in ((2.0, INF), (0.0, 0.5), (0.0, 2.0))),
    *(("igamma", x, NAN) for x in ((0.0, 0.0), (-1.0, 1.0), (1.0, -1.0), (NAN, 1.0), (1.0, NAN))),
    *(("igammac", x, 1.0) for x in ((2.0, 0.0), (INF, 3.0))),
    *(("igammac", x, 0.0) for x in ((2.0, INF), (0.0, 0.5), (0.0, 2.0))),
    *(("igammac", x, NAN) for x in ((0.0, 0.0), (-1.0, 1.0), (1.0, -1.0), (NAN, 1.0), (1.0, NAN))),
    *(("igamma_grad_a", x, y) for x, y in (((2.0, 0.0), 0.0), ((2.0, INF), 0.0), ((0.0, 1.0), NAN), ((1.0, -1.0), NAN), ((1.0, NAN), NAN))),
    *(("random_gamma_grad", x, y) for x, y in (((2.0, 0.0), 0.0), ((0.0, 1.0), NAN), ((1.0, -1.0), NAN), ((NAN, 1.0), NAN))),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_edges(dtype: np.dtype) -> None:
    for name, operands, expected in EDGES:
        found = evaluated(name, *(np.array(x).astype(dtype) for x in operands))
        assert found.dtype == dtype
        wanted = np.array(expected).astype(dtype).astype(np.float64)
        np.testing.assert_allclose(
            found.astype(np.float64), wanted, rtol=1e-6 if dtype.itemsize > 2 else 1e-2, err_msg=f"{name}{operands}"
        )
        if wanted == 0:
            assert np.signbit(found.astype(np.float64)) == np.signbit(wanted), (name, operands)


def test_incomplete_beta_has_the_edges_of_jax() -> None:
    pool = np.array([0.0, 0.5, 1.0, 2.0, -1.0, INF, NAN])
    places = np.array([0.0, 0.25, 0.5, 1.0, -0.5, 1.5, NAN])
    a, b, x = (g.ravel() for g in np.meshgrid(pool, pool, places))
    with jax.enable_x64(True):
        theirs = np.asarray(jax.lax.betainc(a, b, x))
    np.testing.assert_allclose(evaluated("regularized_incomplete_beta", a, b, x), theirs, rtol=1e-12)


@pytest.mark.parametrize("name", ["igamma", "igammac", "igamma_grad_a", "random_gamma_grad"])
def test_incomplete_gamma_and_its_derivatives_in_jax(name: str) -> None:
    rng = np.random.default_rng(0)
    a = 10 ** rng.uniform(-1, 1.7, 300)
    x = np.maximum(rng.gamma(a), 1e-3)
    with jax.enable_x64(True):
        theirs = np.asarray(getattr(jax.lax, name)(a, x))
    np.testing.assert_allclose(evaluated(name, a, x), theirs, rtol=3e-12, atol=1e-16)


def test_derivatives_are_those_of_the_values_for_large_parameters() -> None:
    """Where JAX's loops stop too early: central differences in a."""
    a = np.array([3e3, 1e5, 2e7])
    for deviations in (-2.0, -0.1, 0.3, 2.0):
        x = a + deviations * np.sqrt(a)
        step = 1e-3 * np.sqrt(a)
        difference = (evaluated("igamma", a + step, x) - evaluated("igamma", a - step, x)) / (2 * step)
        np.testing.assert_allclose(evaluated("igamma_grad_a", a, x), difference, rtol=2e-6)
        density = (evaluated("igamma", a, x + step) - evaluated("igamma", a, x - step)) / (2 * step)
        np.testing.assert_allclose(evaluated("random_gamma_grad", a, x), -difference / density, rtol=2e-6)


def test_what_lowers_fuses_into_one_kernel() -> None:
    """The C kernel against eval; functions with loops are library calls."""

    def mixture(s: Any, q: Any, x: Any) -> Any:
        bessel = lax.bessel_i0e(x) * lax.bessel_i1e(x)
        return lax.zeta(s, q) + lax.polygamma(fnp.floor(s), q) + bessel + lax.digamma(q) + lax.erf_inv(x / 30)

    rng = np.random.default_rng(0)
    s, q, x = rng.uniform(1.1, 6, (7, 11)), rng.uniform(0.5, 9, (7, 11)), rng.uniform(-20, 20, (7, 11))
    for dtype, tolerance in ((F32, 3e-6), (F64, 1e-14)):
        with config.using(enable_x64=True):
            operands = [fnp.asarray(o.astype(dtype)) for o in (s, q, x)]
            compiled = fuser.jit(mixture).lower(*operands)
            assert len(compiled.plan.groups) == 1
            found, eager = np.asarray(fuser.jit(mixture)(*operands)), np.asarray(mixture(*operands))
            assert found.dtype == eager.dtype == dtype
            np.testing.assert_allclose(found, eager, rtol=tolerance, atol=tolerance * 10)
    for name in ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta"):
        assert REGISTRY[name].fusion is Fusion.LIBRARY
    for name in ("zeta", "polygamma", "bessel_i0e", "bessel_i1e", "digamma", "erf_inv"):
        assert REGISTRY[name].fusion is Fusion.ELEMENTWISE


def test_library_functions_in_jit_with_scalars_beside_arrays() -> None:
    x = fnp.asarray(np.linspace(0.1, 0.9, 9, dtype=np.float32))

    def function(x: Any) -> Any:
        return lax.igamma(2.0, x) + 2 * lax.betainc(x, 3.0, x) - lax.igammac(x, 0.5) + lax.random_gamma_grad(x, x)

    np.testing.assert_allclose(np.asarray(fuser.jit(function)(x)), np.asarray(function(x)), rtol=1e-6)
    assert function(x).shape == (9,)


PARAMETERS = np.array([0.0, 0.05, 0.5, 1.0, 2.0, 19.0, 21.0, 3e4, -1.0, INF, NAN])
DRAWN = np.random.default_rng(0).gamma(3.0, 4.0, 64)


@pytest.mark.parametrize("dtype", [F32, F64, FLOATS[0]], ids=str)
@pytest.mark.parametrize(
    "name", ["igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta"]
)
def test_incomplete_functions_in_c(name: str, dtype: np.dtype) -> None:
    """Native code between kernels, in loops too, against NumPy's: at edges, at draws, with scalars beside arrays."""
    places = np.append(PARAMETERS, DRAWN).astype(dtype)
    operands = [g.ravel() for g in np.meshgrid(places, places[::3])]
    if name == "regularized_incomplete_beta":
        operands = [*operands, np.resize(np.array([0.0, 0.2, 0.5, 0.97, 1.0], dtype), operands[0].shape)]
    function = getattr(lax, "betainc" if len(operands) == 3 else name)
    rtol = {F64: 1e-12, F32: 3e-7}.get(dtype, 1e-3)
    with config.using(enable_x64=True):
        compiled = fuser.jit(function)
        np.testing.assert_allclose(np.asarray(compiled(*operands)), evaluated(name, *operands), rtol=rtol, atol=1e-37)
        beside = (dtype.type(2.5), *operands[1:])
        np.testing.assert_allclose(np.asarray(compiled(*beside)), evaluated(name, *beside), rtol=rtol, atol=1e-37)
        [group] = compiled.lower(*operands).plan.groups
        assert call_blocker(group) is None
        looped = fuser.jit(lambda a, *rest: fuser.lax.fori_loop(0, 3, lambda _, a: 2 + function(a, *rest), a))
        expected = operands[0]
        for _ in range(3):
            expected = 2 + evaluated(name, expected, *operands[1:])
        np.testing.assert_allclose(np.asarray(looped(*operands)), expected, rtol=10 * rtol)


def test_half_precision_goes_through_float32() -> None:
    x = np.linspace(0.5, 6, 12)
    for dtype in (FLOATS[0], bfloat16):
        narrow = x.astype(dtype)
        for name in ("bessel_i0e", "digamma"):
            wide = evaluated(name, narrow.astype(np.float32)).astype(dtype)
            assert (evaluated(name, narrow) == wide).all()
            compiled = np.asarray(fuser.jit(getattr(lax, name))(fnp.asarray(narrow)))
            np.testing.assert_allclose(
                compiled.astype(float), wide.astype(float), rtol=1e-2 if dtype == bfloat16 else 1e-3
            )


SCIPY: list[tuple[str, tuple[Any, ...]]] = [
    ("i0", (np.linspace(-9, 9, 13),)),
    ("i1", (np.linspace(-9, 9, 13),)),
    ("i0e", (np.linspace(-9, 9, 13),)),
    ("i1e", (np.linspace(-9, 9, 13),)),
    ("zeta", (np.array([1.5, 2.0, 7.0]), np.array([[0.5], [20.0]]))),
    ("polygamma", (np.array([0, 1, 2, 3]), np.array([[0.5], [20.0]]))),
    ("gammainc", (np.array([0.5, 2.0, 70.0]), np.array([[0.5], [65.0]]))),
    ("gammaincc", (np.array([0.5, 2.0, 70.0]), np.array([[0.5], [65.0]]))),
    ("betainc", (np.array([0.5, 2.0]), 3.0, np.array([[0.2], [0.9]]))),
    ("betaln", (np.array([0.5, 2.0, 9.5]), np.array([[0.25], [3.0], [20.0]]))),
    ("gammaln", (np.array([-2.5, 0.5, 30.0]),)),
    ("poch", (np.array([-2.6, 0.5, 10.0]), np.array([[0.0], [1.5], [4.0]]))),
    ("factorial", (np.arange(0.0, 34.0),)),
    ("factorial", (np.array([-1.0, 0.5, 4.25, 170.0, 400.0]),)),
    ("digamma", (np.array([0.1, 1.5, 30.0]),)),
]


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("number", range(len(SCIPY)), ids=lambda n: f"{n}-{SCIPY[n][0]}")
def test_scipy_names(number: int, x64: bool) -> None:
    name, operands = SCIPY[number]
    with config.using(enable_x64=x64), np.errstate(over="ignore"):
        found = np.asarray(getattr(special, name)(*operands))
        assert found.dtype == (F64 if x64 else F32)
        expected = np.asarray(getattr(sp, name)(*operands)).astype(found.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-13 if x64 else 4e-6)


def test_logarithm_of_beta_of_a_large_and_a_small_parameter() -> None:
    """Figures of 40-digit arithmetic; SciPy's own are right to 10 digits."""
    a, b = np.array([1e4, 1e4, 2e5]), np.array([0.25, 3.0, 0.5])
    exact = [-1.0145531932178462, -26.938173910371602, -5.530670754840387]
    for x64, tolerance in ((False, 1e-6), (True, 2e-15)):
        with config.using(enable_x64=x64):
            np.testing.assert_allclose(np.asarray(special.betaln(a, b)), exact, rtol=tolerance)


def test_factorials_are_exact_where_they_can_be() -> None:
    numbers = np.arange(11.0)
    assert np.abs(np.asarray(special.factorial(numbers)) / sp.factorial(numbers) - 1).max() < 6e-7


def test_complaints() -> None:
    with pytest.raises(NotImplementedError) as caught:
        special.zeta(2.0)
    assert str(caught.value) == "zeta is Hurwitz's function of x and q; pass q=1 for Riemann's, for x > 1"
    with pytest.raises(ValueError) as wrong:
        special.polygamma(1.0, 2.0)
    assert str(wrong.value) == "polygamma takes an order of an integer dtype, got float32; convert it first"
