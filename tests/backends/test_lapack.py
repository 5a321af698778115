"""Factorisations and systems by LAPACK in native code: what the factors are, on stacks and for all dtypes, and edges."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.lax import linalg
from fuser.ops.factorisations import geqrf_p
from fuser.partition.group import Kind
from fuser.trace.core import bind

DTYPES = ("float32", "float64", "complex64", "complex128")
SHAPES = ((5, 5), (7, 4, 4), (5, 3), (2, 3, 4), (200, 130))


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with fuser.enable_x64(True):
        yield


def _random(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("c") else x).astype(dtype)


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2).conj()


def _near(found: np.ndarray, expected: np.ndarray) -> None:
    """Within a few roundings of the largest element."""
    scale = max(np.abs(expected).max(), 1)
    assert np.abs(found - expected).max() < 200 * np.finfo(found.dtype).eps * scale


def _run(function: Any, *arrays: np.ndarray) -> Any:
    """The function's results, none of which was made in Python."""
    jitted = fuser.jit(function)
    plan = jitted.lower(*arrays).plan
    assert all(group.kind is not Kind.LIBRARY or not group.reason for group in plan.groups)
    results = jitted(*arrays)
    return [np.asarray(r) for r in results] if isinstance(results, (tuple, list)) else np.asarray(results)


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_multiply_to_the_matrices(dtype: str) -> None:
    for shape in SHAPES:
        a, (rows, columns) = _random(dtype, *shape), shape[-2:]
        least = min(rows, columns)
        factors, pivots, order = _run(linalg.lu, a)
        lower = np.tril(factors[..., :least], -1) + np.eye(rows, least, dtype=dtype)
        _near(lower @ np.triu(factors[..., :least, :]), np.take_along_axis(a, order[..., None].astype(int), -2))
        assert pivots.shape == (*shape[:-2], least)
        for full in (False, True):
            q, r = _run(lambda a, full=full: linalg.qr(a, full_matrices=full), a)
            _near(q @ r, a)
            _near(_adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], q.shape[-1], q.shape[-1])))
            assert (np.tril(r, -1) == 0).all() and q.shape[-1] == (rows if full else least)
            reflections, scales = _run(lambda a: bind(geqrf_p, a), a)
            _near(np.triu(reflections[..., :least, :]), r[..., :least, :])
            assert scales.shape == (*shape[:-2], least)
            u, s, vh = _run(lambda a, full=full: linalg.svd(a, full_matrices=full), a)
            _near((u[..., :least] * s[..., None, :]) @ vh[..., :least, :], a)
            assert (np.diff(s) <= 0).all() and u.shape[-1] == (rows if full else least)
        _near(_run(lambda a: linalg.svd(a, compute_uv=False), a), np.linalg.svd(a, compute_uv=False))


@pytest.mark.parametrize("dtype", DTYPES)
def test_reflections_are_lapacks_own(dtype: str) -> None:
    for shape in SHAPES:
        a = _random(dtype, *shape)
        factors, scales = _run(lambda a: fnp.linalg.qr(a, mode="raw"), a)
        wanted = [np.linalg.qr(m, mode="raw") for m in a.reshape(-1, *shape[-2:])]
        _near(factors, np.stack([w[0] for w in wanted]).reshape(factors.shape))
        _near(scales, np.stack([w[1] for w in wanted]).reshape(scales.shape))


@pytest.mark.parametrize("dtype", DTYPES)
def test_hermitian_matrices(dtype: str) -> None:
    for shape in ((5, 5), (7, 4, 4), (150, 150)):
        a = _random(dtype, *shape)
        h = (a @ _adjoint(a) + np.eye(shape[-1])).astype(dtype)
        factor = _run(linalg.cholesky, h)
        _near(factor @ _adjoint(factor), h)
        assert (np.triu(factor, 1) == 0).all()
        for lower in (True, False):
            one = np.tril(h) if lower else np.triu(h)
            vectors, values = _run(lambda a, lower=lower: linalg.eigh(a, lower=lower, symmetrize_input=False), one)
            _near((vectors * values[..., None, :]) @ _adjoint(vectors), h)
        _near(_run(fnp.linalg.eigvalsh, h), values)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("left_side", [True, False])
def test_triangular_systems(dtype: str, left_side: bool) -> None:
    a = _random(dtype, 3, 6, 6) / 6 + 2 * np.eye(6, dtype=dtype)
    b = _random(dtype, 3, 6, 2) if left_side else _random(dtype, 3, 2, 6)
    for number in range(16):
        lower, transpose_a, conjugate_a, unit = (bool(number >> n & 1) for n in range(4))
        how = {"lower": lower, "transpose_a": transpose_a, "conjugate_a": conjugate_a, "unit_diagonal": unit}
        x = _run(lambda a, b, how=how: linalg.triangular_solve(a, b, left_side=left_side, **how), a, b)
        t = np.tril(a) if lower else np.triu(a)
        t = t - t * np.eye(6) + np.eye(6) if unit else t
        t = np.swapaxes(t, -1, -2) if transpose_a else t
        t = t.conj() if conjugate_a else t
        _near((t @ x if left_side else x @ t).astype(dtype), b)


def test_systems_and_their_derivatives() -> None:
    a, b = _random("float64", 4, 4) + 3 * np.eye(4), _random("float64", 4)
    _near(_run(fnp.linalg.solve, a, b), np.linalg.solve(a, b))
    _near(_run(fnp.linalg.inv, a), np.linalg.inv(a))
    da, db = _run(fuser.grad(lambda a, b: fnp.linalg.solve(a, b)[0], (0, 1)), a, b)
    expected = np.linalg.inv(a)[0]
    _near(db, expected)
    _near(da, -np.outer(expected, np.linalg.solve(a, b)))


def test_what_has_no_factors_is_nan() -> None:
    lower = [[np.nan, 0], [np.nan, np.nan]]
    stack = np.stack([np.eye(2), np.array([[1.0, 2], [2, 1]])])
    np.testing.assert_array_equal(_run(linalg.cholesky, stack[1]), lower)
    np.testing.assert_array_equal(_run(linalg.cholesky, stack), [np.eye(2), lower])
    for function in (fnp.linalg.eigvalsh, fnp.linalg.svdvals):
        assert np.isnan(_run(function, np.full((3, 3), np.nan))).all()
    assert np.isinf(_run(fnp.linalg.inv, np.zeros((2, 2)))).any()


def test_a_loop_with_factorisations_is_native() -> None:
    def body(p: Any, _: Any) -> Any:
        p = p + 0.1 * fnp.eye(3)
        gain = fnp.linalg.solve(p + fnp.eye(3), p)
        return p - p @ gain, (fnp.linalg.cholesky(p), fnp.linalg.qr(p, mode="raw")[1])

    def program(p: Any) -> Any:
        return fuser.lax.scan(body, p, None, length=5)

    p = np.eye(3)
    jitted = fuser.jit(program)
    assert all(not group.reason for group in jitted.lower(p).plan.groups)
    q, factors, scales = np.eye(3), [], []
    for _ in range(5):
        q = q + 0.1 * np.eye(3)
        factors.append(np.linalg.cholesky(q))
        scales.append(np.linalg.qr(q, mode="raw")[1])
        q = q - q @ np.linalg.solve(q + np.eye(3), q)
    found, (several, reflections) = jitted(p)
    _near(np.asarray(found), q)
    _near(np.asarray(several), np.stack(factors))
    _near(np.asarray(reflections), np.stack(scales))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_small_matrices(dtype: str) -> None:
    """Lanes of vectors for matrices: LU, Cholesky and triangular systems of every kind, beside JAX; the last block is not full."""
    random = np.random.default_rng(8)
    tolerance = 3e-4 if dtype == "float32" else 1e-10
    close = lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)
    with fuser.config.using(enable_x64=dtype == "float64"), jax.enable_x64(dtype == "float64"):
        for n, count in ((1, 16), (3, 37), (8, 33), (16, 18)):
            a = (random.standard_normal((count, n, n)) + 2 * np.eye(n)[random.permutation(n)]).astype(dtype)
            a[5] = 0
            for ours, theirs in zip(fuser.lax.linalg.lu(a), jax.lax.linalg.lu(a), strict=True):
                close(ours, theirs)
            positive = (a @ a.transpose(0, 2, 1) + np.eye(n)).astype(dtype)
            positive[2] *= -1  # nan below, zeros above, as in JAX
            close(fuser.lax.linalg.cholesky(positive), jax.lax.linalg.cholesky(positive))
            close(fuser.lax.linalg.cholesky(positive[2:4]), jax.lax.linalg.cholesky(positive[2:4]))
            triangle = (np.tril(random.uniform(-0.5, 0.5, (count, n, n)), -1) + 2 * np.eye(n)).astype(dtype)
            for number in range(16):
                left, lower, transpose, unit = (bool(number >> bit & 1) for bit in range(4))
                shape = (count, n, 1 + number % 5) if left else (count, 1 + number % 5, n)
                b = random.standard_normal(shape).astype(dtype)
                of = triangle if lower else triangle.transpose(0, 2, 1).copy()
                how = {"left_side": left, "lower": lower, "transpose_a": transpose, "unit_diagonal": unit}
                close(fuser.lax.linalg.triangular_solve(of, b, **how), jax.lax.linalg.triangular_solve(of, b, **how))
