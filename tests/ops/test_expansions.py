"""Functions that are programs on GPUs: special functions against SciPy over wide ranges, condensed and Schur forms of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import fuser.numpy  # noqa: F401  # operators of tracers
from fuser.config import config
from fuser.ir.evaluate import evaluate
from fuser.ir.primitive import REGISTRY
from fuser.ir.types import ArrayType
from fuser.trace.stage import stage


def expanded(name: str, *arrays: np.ndarray, **params: Any) -> Any:
    """The primitive's expansion, evaluated."""
    primitive = REGISTRY[name]

    def function(*values: Any) -> list[Any]:
        found = primitive.rule("expand")(*values, **params)
        return list(found) if primitive.multiple_results else [found]

    with config.using(enable_x64=True), np.errstate(all="ignore"):
        graph = stage(function, [ArrayType(a.shape, a.dtype) for a in arrays])
        found = evaluate(graph, arrays)
    return found if primitive.multiple_results else found[0]


RNG = np.random.default_rng(0)
LINE = np.concatenate([RNG.uniform(-12, 12, 400), *(s * 10 ** RNG.uniform(-8, 4, 200) for s in (1, -1))])
POSITIVE = np.concatenate([RNG.uniform(0, 60, 400), 10 ** RNG.uniform(-8, 2.5, 200)])
PLANE = np.concatenate(
    [
        RNG.uniform(-9, 9, 400) + 1j * RNG.uniform(-9, 9, 400),
        10 ** RNG.uniform(-6, 4, 100) + 1j * 10 ** RNG.uniform(-6, 4, 100),
        RNG.uniform(-9, 9, 100) + 0j,
    ]
)
UPPER = np.where(PLANE.imag < -5, PLANE.conj(), PLANE)  # so that exp(-z²) does not overflow
ORDERS = np.floor(RNG.uniform(0, 20, POSITIVE.size))
A, B, C = (RNG.uniform(0.1, 5, 400) for _ in range(3))
SIDES = RNG.uniform(-30, 30, 400)
SHAPES = np.concatenate([RNG.uniform(0.01, 30, 400), 10 ** RNG.uniform(-4, 4, 200)])
QUANTILES = np.concatenate([RNG.uniform(0, 40, 400), SHAPES[400:] * 10 ** RNG.uniform(-1, 1, 200)])
SECOND = np.concatenate([RNG.uniform(0.01, 30, 400), 10 ** RNG.uniform(-2, 4, 200)])
MEANS = SHAPES / (SHAPES + SECOND)
PORTIONS = np.clip(np.concatenate([RNG.uniform(0, 1, 400), MEANS[400:] * (1 + 0.1 * RNG.normal(size=200))]), 0, 1)

Reference = Callable[..., Any]
REAL: dict[str, tuple[Reference | None, tuple[np.ndarray, ...]]] = {
    "dawsn": (special.dawsn, (LINE,)),
    "erfcx": (special.erfcx, (LINE[np.abs(LINE) < 25],)),
    "expi": (special.expi, (np.concatenate([POSITIVE, -POSITIVE, RNG.uniform(0.3, 0.45, 200)]),)),
    "exp1": (special.exp1, (POSITIVE,)),
    "expn": (lambda n, x: special.expn(n.astype(int), x), (ORDERS, POSITIVE)),
    "fresnel_s": (lambda x: special.fresnel(x)[0], (LINE,)),
    "fresnel_c": (lambda x: special.fresnel(x)[1], (LINE,)),
    "sine_integral": (lambda x: special.sici(x)[0], (LINE,)),
    "cosine_integral": (lambda x: special.sici(x)[1], (LINE,)),
    "spence": (special.spence, (POSITIVE,)),
    "owens_t": (special.owens_t, (SIDES / 4, RNG.uniform(-3, 3, SIDES.size))),
    "hyp1f1": (special.hyp1f1, (A, B, SIDES)),
    "hyp1f1_by_a": (None, (A, B, SIDES)),
    "hyp1f1_by_b": (None, (A, B, SIDES)),
    "hyp2f1": (special.hyp2f1, (A, B, C, np.concatenate([RNG.uniform(-9, 0.9, 300), RNG.uniform(0.9, 0.995, 100)]))),
    "hyp2f1_by_a": (None, (A, B, C, RNG.uniform(-2, 0.9, 400))),
    "hyp2f1_by_b": (None, (A, B, C, RNG.uniform(-2, 0.9, 400))),
    "hyp2f1_by_c": (None, (A, B, C, RNG.uniform(-2, 0.9, 400))),
    "igamma": (special.gammainc, (SHAPES, QUANTILES)),
    "igammac": (special.gammaincc, (SHAPES, QUANTILES)),
    "igamma_grad_a": (None, (SHAPES, QUANTILES)),
    "random_gamma_grad": (None, (SHAPES, QUANTILES)),
    "regularized_incomplete_beta": (special.betainc, (SHAPES, SECOND, PORTIONS)),
    "wofz": (special.wofz, (UPPER,)),
    "loggamma": (special.loggamma, (PLANE,)),
    "complex_digamma": (special.digamma, (PLANE,)),
}


@pytest.mark.parametrize("name", REAL)
def test_functions_agree_with_scipy(name: str) -> None:
    """To 1e-9 of the value, or 1e-14 of 1 where the function vanishes; the rest is SciPy's own error beside zeros."""
    reference, operands = REAL[name]
    with np.errstate(all="ignore"):
        want = (reference or REGISTRY[name].rule("eval"))(*operands)
    np.testing.assert_allclose(expanded(name, *operands), want, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("order", [0, 1, 2, 7, -3, 30])
def test_bessel_functions(order: int) -> None:
    x = np.concatenate([RNG.uniform(-80, 80, 400), 10 ** RNG.uniform(-6, 5, 200)])
    np.testing.assert_allclose(expanded("bessel_j", x, order=order), special.jv(order, x), rtol=1e-9, atol=2e-14)


INF, NAN = np.inf, np.nan
EDGES: dict[str, list[tuple[float, ...]]] = {  # operands, then the value
    "dawsn": [(0, 0), (INF, 0), (NAN, NAN), (1e-300, 1e-300)],
    "erfcx": [(INF, 0), (-INF, INF), (NAN, NAN), (1e10, 5.641895835477563e-11)],
    "expi": [(0, -INF), (INF, INF), (-INF, 0), (800, INF), (NAN, NAN)],
    "exp1": [(0, INF), (INF, 0), (-1, NAN), (NAN, NAN)],
    "expn": [(0, 0, INF), (1, 0, INF), (3, 0, 0.5), (-1, 1, NAN), (2, -1, NAN), (2, INF, 0), (10000, 1, 3.6787943732e-05)],
    "fresnel_s": [(INF, 0.5), (-INF, -0.5), (0, 0), (NAN, NAN), (1e20, 0.5)],
    "sine_integral": [(INF, np.pi / 2), (-INF, -np.pi / 2), (0, 0), (1e-300, 1e-300)],
    "cosine_integral": [(INF, 0), (-INF, NAN), (0, -INF), (NAN, NAN)],
    "spence": [(0, np.pi**2 / 6), (1, 0), (-1, NAN), (INF, NAN)],
    "owens_t": [(INF, 1, 0), (0, INF, 0.25), (1, INF, 0.07932762696572854), (NAN, 0, NAN)],
    "hyp1f1": [(1, 2, -1000, 0.001), (-2, 3, 5, -0.25), (1, 0, 1, INF), (1, -1, 1, INF), (1, 2, 0, 1)],
    "hyp2f1": [(0.5, 0.5, 1.5, 1, np.pi / 2), (1, 2, 2.5, 1, INF), (-2, 3, 1.5, 3, 17.8), (1, 1, 0, 0.5, INF), (-1, 1, -2, 0.5, 1.25)],
    "igamma": [(0, 0, NAN), (0, 1, 1), (1, 0, 0), (INF, 1, 0), (1, INF, 1), (-1, 1, NAN)],
    "igammac": [(0, 1, 0), (1, 0, 1), (INF, 1, 1), (1, INF, 0), (1, -1, NAN)],
    "regularized_incomplete_beta": [(0, 1, 0.3, 1), (1, 0, 0.3, 0), (1, 2, 0, 0), (1, 2, 1, 1), (1, 2, 2, NAN), (0, 0, 0.3, NAN)],
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    *operands, want = map(np.array, zip(*(map(float, case) for case in EDGES[name])))
    np.testing.assert_allclose(expanded(name, *operands), want, rtol=1e-9)


@pytest.mark.parametrize("name", ["igamma", "expi", "bessel_j", "wofz"])
def test_narrow_dtypes_and_odd_shapes(name: str) -> None:
    params = {"order": 2} if name == "bessel_j" else {}
    arity = 2 if name == "igamma" else 1
    for shape in ((), (0,), (2, 0, 3), (3, 1)):
        x = RNG.uniform(0.5, 3, shape).astype(np.complex64 if name == "wofz" else np.float32)
        got = expanded(name, *[x] * arity, **params)
        want = REGISTRY[name].rule("eval")(*[x] * arity, **params)
        assert (got.shape, got.dtype) == (x.shape, x.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def matrices(dtype: Any, *shape: int) -> np.ndarray:
    dtype = np.dtype(dtype)
    made = RNG.normal(size=shape)
    return (made + 1j * RNG.normal(size=shape) if dtype.kind == "c" else made).astype(dtype)


DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.mark.parametrize("dtype", DTYPES)
def test_condensed_forms_are_lapacks(dtype: str) -> None:
    error = 1e-4 if np.finfo(dtype).bits == 32 else 1e-12
    for shape in ((6, 6), (3, 5, 5), (2, 2), (1, 1), (2, 3, 1, 1)):
        a = matrices(dtype, *shape)
        flat = a.copy()
        flat[..., 1:, 0] = 0
        for name, params, x in (
            ("hessenberg", {}, a),
            ("hessenberg", {}, flat),
            ("tridiagonal", {"lower": True}, a),
            ("tridiagonal", {"lower": False}, a),
        ):
            for got, want in zip(expanded(name, x, **params), REGISTRY[name].rule("eval")(x, **params), strict=True):
                assert (got.shape, got.dtype) == (want.shape, want.dtype)
                np.testing.assert_allclose(got, want, rtol=error, atol=error)


def schur_cases(dtype: str) -> list[np.ndarray]:
    symmetric = matrices(dtype, 6, 6)
    companion = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [-1, 0, -2, 0]], dtype)  # double eigenvalues
    return [
        *(matrices(dtype, *shape) for shape in ((5, 5), (3, 6, 6), (2, 2), (1, 1), (16, 16))),
        *(symmetric + symmetric.conj().T, np.zeros((4, 4), dtype), np.eye(5, dtype=dtype), companion),
        *(np.diag(np.ones(4, dtype), 1), np.roll(np.eye(6, dtype=dtype), 1, 0), np.triu(matrices(dtype, 5, 5))),
        *(np.array([[1, 2], [3, 4]], dtype), np.array([[1, 2], [-3, 4]], dtype)),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_schur_forms(dtype: str) -> None:
    error = 2e-5 if np.finfo(dtype).bits == 32 else 1e-13
    for a in schur_cases(dtype):
        t, z = expanded("schur", a)
        assert (t.shape, t.dtype, z.dtype) == (a.shape, a.dtype, a.dtype)
        adjoint = np.conj(np.swapaxes(z, -1, -2))
        scale = max(np.abs(a).max(), 1)
        np.testing.assert_allclose(z @ t @ adjoint, a, atol=error * scale)
        np.testing.assert_allclose(z @ adjoint, np.broadcast_to(np.eye(a.shape[-1]), a.shape), atol=error)
        if np.dtype(dtype).kind == "c":
            assert not np.tril(t, -1).any()
            continue
        assert not np.tril(t, -2).any()
        for matrix in t.reshape(-1, *t.shape[-2:]):
            for block in _blocks(matrix):
                np.testing.assert_allclose(block[0, 0], block[1, 1], rtol=0, atol=error * scale)
                assert block[0, 1] * block[1, 0] < 0


def _blocks(t: np.ndarray) -> list[np.ndarray]:
    """The blocks of two rows on the diagonal, which do not touch."""
    found = np.flatnonzero(np.diagonal(t, -1))
    assert (np.diff(found) > 1).all()
    return [t[i : i + 2, i : i + 2] for i in found]


def test_schur_form_of_what_is_not_finite() -> None:
    a = matrices("float64", 2, 3, 3)
    a[0, 1, 1] = np.nan
    t, z = expanded("schur", a)
    assert np.isnan(t[0]).all() and np.isnan(z[0]).all() and np.isfinite(t[1]).all()
    assert len(expanded("schur", a, compute_schur_vectors=False)) == 1
