"""Functions of jax.numpy in several families against JAX: transforms, linear systems, polynomials, positions, bits, ufuncs."""

from __future__ import annotations

import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import agree, compare, numbers, precision
from differential import Row, check, check_compiled, check_derivatives, row

import fuser
import fuser.numpy as fnp

X, Y = numbers(np.float32, (4, 5)), numbers(np.float32, (4, 5), 1)
V = X[0]
Z = numbers(np.complex64, (3, 6), 2)
S = numbers(np.float32, (2, 3, 3), 3)
T = numbers(np.float32, (5, 3), 4)
SINGULAR = np.array([[1, 2, 3], [2, 4, 7], [3, 6, 10]], np.float32)
K = np.array([3, 1, 0, 2, 3, 255], np.uint8)

FFT: list[Row] = [
    *(row(f"numpy.fft.{f}", x, grad=0) for f in ("fft", "ifft", "hfft", "fft2", "ifft2", "fftn", "ifftn", "irfft", "irfft2", "irfftn") for x in (Z,)),
    *(row(f"numpy.fft.{f}", x, grad=0) for f in ("rfft", "rfft2", "rfftn", "ihfft", "fftshift", "ifftshift", "fft") for x in (X,)),
    *(row(f"numpy.fft.{f}", Z, n, axis, norm) for f in ("fft", "ifft", "irfft", "hfft") for n, axis, norm in ((4, 0, "ortho"), (9, -1, "forward"), (5, 1, "backward"))),
    *(row(f"numpy.fft.{f}", Z, s, axes, norm, compiled=False) for f in ("fftn", "irfftn") for s, axes, norm in (((4, 4), None, "ortho"), ((5,), (0,), None), (None, (1, 0), "forward"))),
    row("numpy.fft.rfft", X, 4, norm="ortho", grad=0), row("numpy.fft.rfft", Z, compiled=False), row("numpy.fft.fft", X, 0, compiled=False), row("numpy.fft.fft", X, norm="best", compiled=False), row("numpy.fft.fftn", X, axes=(0, 0), compiled=False),
    row("numpy.fft.fft2", X, axes=(0,), compiled=False), row("numpy.fft.fft", X > 0), row("numpy.fft.fftshift", X, axes=0), row("numpy.fft.fftfreq", 5), row("numpy.fft.fftfreq", 8, 0.5), row("numpy.fft.rfftfreq", 7, 2.0, dtype=np.float16), row("numpy.fft.fft", X.astype(np.float64), x64=True),
    *(row("lax.fft", x, kind, lengths) for x, kind, lengths in ((Z, "FFT", (6,)), (Z, "irfft", (10,)), (X, "RFFT", (4, 5)), (X, "FFT", (5,)))), row("lax.fft", Z, "RFFT", (6,), compiled=False), row("lax.fft", X, "FFT", (4,), compiled=False),
]  # fmt: skip
LINEAR: list[Row] = [
    *(row(f"numpy.linalg.{f}", S, grad=0, tolerance=20) for f in ("det", "slogdet", "eigvals", "pinv", "diagonal", "trace")), row("numpy.linalg.det", SINGULAR, grad=0, tolerance=20), row("numpy.linalg.det", SINGULAR[:2, :2] * 1j, tolerance=20), row("numpy.linalg.det", X, compiled=False), row("numpy.linalg.det", np.arange(9).reshape(3, 3) % 4),
    row("numpy.linalg.slogdet", S, method="qr", tolerance=20), row("numpy.linalg.slogdet", S * 1j, tolerance=20), row("numpy.linalg.slogdet", np.zeros((2, 2), np.float32)), row("numpy.linalg.slogdet", S, method="ql", compiled=False),
    row("numpy.linalg.matrix_rank", S), row("numpy.linalg.matrix_rank", np.ones((3, 4), np.float32)), row("numpy.linalg.matrix_rank", S, rtol=0.5), row("numpy.linalg.matrix_rank", V), row("numpy.linalg.matrix_rank", S @ S.swapaxes(1, 2), hermitian=True),
    row("numpy.linalg.pinv", T, grad=0, tolerance=20), row("numpy.linalg.pinv", np.ones((3, 2), np.float32)), *(row("numpy.linalg.cond", S, p, tolerance=40) for p in (None, -2, 1, np.inf, "fro")), row("numpy.linalg.cond", T, 1, compiled=False), row("numpy.linalg.cond", T, tolerance=20),
    row("numpy.linalg.lstsq", T, T[:, 0], tolerance=20), row("numpy.linalg.lstsq", T, X.T, tolerance=20), row("numpy.linalg.lstsq", T.T, T[:3], 0.1, tolerance=20), row("numpy.linalg.lstsq", T, V[:3], compiled=False), row("numpy.linalg.lstsq", T, T[:, 0], numpy_resid=True, tolerance=20, compiled=False),
    *(row("numpy.linalg.matrix_power", S, n, grad=0, tolerance=40) for n in (3, -2)), row("numpy.linalg.matrix_power", S, 0), row("numpy.linalg.matrix_power", X, 2, compiled=False), row("numpy.linalg.matrix_power", S, 1.5, compiled=False),
    row("numpy.linalg.tensorinv", numbers(np.float32, (2, 3, 3, 2)), tolerance=40), row("numpy.linalg.tensorinv", X, compiled=False), row("numpy.linalg.tensorsolve", numbers(np.float32, (2, 3, 3, 2)), numbers(np.float32, (2, 3)), tolerance=40), row("numpy.linalg.tensorsolve", numbers(np.float32, (2, 3, 6)), numbers(np.float32, (2, 3)), tolerance=40),
    row("numpy.linalg.cross", S[0], S[1], grad=(0, 1)), row("numpy.linalg.cross", X, Y, compiled=False), row("numpy.linalg.diagonal", S, offset=1), row("numpy.linalg.trace", S, offset=-1),
    row("lax.linalg.lu", S, grad=0, tolerance=20), row("lax.linalg.lu", T, grad=0, tolerance=20), row("lax.linalg.lu", T.T, grad=0, tolerance=20), row("lax.linalg.lu_pivots_to_permutation", np.array([[2, 2, 2], [0, 1, 2]], np.int32), 4), row("lax.linalg.lu_pivots_to_permutation", V, 4, compiled=False),
    row("lax.linalg.householder_product", T, np.array([0.5, 0.0, 1.2], np.float32), tolerance=20), row("lax.linalg.ormqr", T[:3], V[:3], X[:3, :4], tolerance=20), row("lax.linalg.ormqr", T[:3], V[:3], X[:, :3], left=False, transpose=True, tolerance=20),
    row("lax.linalg.tridiagonal_solve", V, V + 6, V[::-1].copy(), X.T.copy(), grad=(1, 3), tolerance=4), row("lax.linalg.symmetric_product", T, numbers(np.float32, (5, 5)), alpha=2.0, beta=0.5, symmetrize_output=False), row("lax.linalg.cholesky_update", np.linalg.cholesky(S[0] @ S[0].T + np.eye(3, dtype=np.float32)).T.copy(), V[:3], tolerance=20),
]  # fmt: skip
FAMILIES = {"fft": FFT, "linear": LINEAR}
POLYNOMIALS: list[Row] = [
    *(row(f"numpy.{f}", V, T[0], grad=(0, 1)) for f in ("polyadd", "polysub", "polymul")), row("numpy.polymul", np.array([0, 1, 2]), np.array([0, 3]), trim_leading_zeros=True, compiled=False), row("numpy.polydiv", V, T[0], grad=(0, 1), tolerance=20), row("numpy.polydiv", T[0], V),
    *(row("numpy.polyder", V, m, grad=0) for m in (1, 2)), row("numpy.polyder", np.arange(4), 0), row("numpy.polyder", V, -1, compiled=False), row("numpy.polyint", V, grad=0), row("numpy.polyint", V, 3, np.array([1, 2, 3.0], np.float32)), row("numpy.polyint", V, 2, 5), row("numpy.polyint", V, 2, T[0], compiled=False),
    row("numpy.poly", np.array([1, -2, 0.5], np.float32), grad=0), row("numpy.poly", np.array([[2, 1], [1, 3.0]], np.float32), tolerance=20), row("numpy.polyfit", V, X.T, 2, tolerance=300), row("numpy.polyfit", V, Y[0], 2, w=np.abs(V), tolerance=300), row("numpy.polyfit", V, Y[0], 1, full=True, tolerance=300), row("numpy.polyfit", V, Y[0], 1, cov=True, tolerance=300), row("numpy.polyfit", V, Y[0], -1, compiled=False), row("numpy.polyfit", X, Y, 1, compiled=False),
    *(row("numpy.unwrap", np.array([0, 1, 5, 6.2, -1, 9], np.float32), *args) for args in ((), (4.0,))), row("numpy.unwrap", X * 3, axis=0, period=2.0), row("numpy.unwrap", np.array([0, 5, 9, 1]), period=4), row("numpy.unwrap", Z, compiled=False),
    *(row(f"numpy.{f}", m) for f in ("bartlett", "blackman", "hamming", "hanning") for m in (0, 1, 7)), row("numpy.kaiser", 6, 2.5),
]  # fmt: skip
POSITIONS: list[Row] = [
    row("numpy.diag_indices", 3), row("numpy.diag_indices", 2, 3), row("numpy.diag_indices", -1, compiled=False), row("numpy.diag_indices_from", S[0]), row("numpy.diag_indices_from", X, compiled=False), *(row(f"numpy.{f}", 3, k, 4) for f in ("tril_indices", "triu_indices") for k in (-1, 0, 2)), *(row(f"numpy.{f}_from", X, 1) for f in ("tril_indices", "triu_indices")), row("numpy.tril_indices_from", V, compiled=False),
    row("numpy.ix_", np.array([1, 2]), np.array([0, 3, 1])), row("numpy.ix_", X, compiled=False), row("numpy.put", X, np.array([1, 30, 7]), np.array([9.0, 8], np.float32), inplace=False), *(row("numpy.put", X, np.array([-1, 30, 7]), np.array([9.0, 8], np.float32), mode=m, inplace=False, compiled=False) for m in ("clip", "wrap", "best")), row("numpy.put", X, 1, 2, compiled=False),
    row("numpy.place", X, X > 0, V, inplace=False), row("numpy.place", X, V > 0, V, inplace=False, compiled=False), row("numpy.place", X, X > 0, V, compiled=False), row("numpy.fill_diagonal", X, 5.0, inplace=False), row("numpy.fill_diagonal", X, V[:2], inplace=False), row("numpy.fill_diagonal", V, 1, inplace=False, compiled=False),
    row("numpy.block", [[X, Y], [Y, X]]), row("numpy.block", [V, V]), row("numpy.block", V), row("numpy.block", [[X], [V, V]], compiled=False), row("numpy.block", [V, [V]], compiled=False), row("numpy.block", (V, V), compiled=False),
    *(row("numpy.packbits", K > 1, **o) for o in ({}, {"bitorder": "little"})), row("numpy.packbits", (X > 0), axis=0), row("numpy.packbits", X, compiled=False), *(row("numpy.unpackbits", K, **o) for o in ({}, {"bitorder": "little"}, {"count": 11}, {"count": 60})), row("numpy.unpackbits", K.reshape(2, 3), axis=0), row("numpy.unpackbits", V, compiled=False),
    row("numpy.spacing", np.array([1, -1, 0, 3e38, np.inf, np.nan], np.float32)), row("numpy.spacing", np.arange(3)), row("numpy.spacing", Z, compiled=False), row("numpy.histogram2d", X.ravel(), Y.ravel(), 3), row("numpy.histogram2d", X.ravel(), Y.ravel(), [2, 4], density=True), row("numpy.histogramdd", T, 3), row("numpy.histogramdd", T, [2, 3, 4], range=[(-3, 3), None, (0, 1)], weights=V), row("numpy.histogramdd", T, [2, 3], compiled=False),
    *(row(f"numpy.{f}", np.array([3, 1, 3, 2, 1]), compiled=False) for f in ("unique_all", "unique_counts", "unique_inverse")), row("numpy.unique_all", np.array([[3, 1], [3, 2]]), size=5, compiled=False), row("numpy.frombuffer", b"\x00\x01\x02\x03", np.uint8), row("numpy.fromstring", "1 2 3", np.int32, sep=" ", compiled=False), row("numpy.fromiter", [1], compiled=False), row("numpy.fromfile", "x", compiled=False),
]  # fmt: skip
FAMILIES |= {"polynomials": POLYNOMIALS, "positions": POSITIONS}
ROWS = [(family, n) for family, rows in FAMILIES.items() for n in range(len(rows))]


@pytest.mark.parametrize(("family", "number"), ROWS, ids=lambda v: v if isinstance(v, str) else str(v))
def test_function(family: str, number: int) -> None:
    check(FAMILIES[family][number])


@pytest.mark.parametrize("family", FAMILIES)
def test_derivatives(family: str) -> None:
    check_derivatives(FAMILIES[family])


def test_compiled() -> None:
    check_compiled([r for rows in FAMILIES.values() for r in rows if r.compiled][::3])


def test_products_of_several_matrices() -> None:
    chain = [numbers(np.float32, shape, n) for n, shape in enumerate([(3, 9), (9, 2), (2, 7), (7, 4)])]
    for arrays in (chain, [chain[0][0], *chain[1:]], [*chain[:-1], chain[-1][:, 0]], chain[:2]):
        agree(lambda *a: fnp.linalg.multi_dot(a), lambda *a: jnp.linalg.multi_dot(a), *arrays, tolerance=4)
    for arrays in (chain[:1], [chain[0], chain[2]]):
        agree(lambda *a: fnp.linalg.multi_dot(a), lambda *a: jnp.linalg.multi_dot(a), *arrays)
    assert fnp.einsum_path("ij,jk,kl->il", *chain[:3])[0] == jnp.einsum_path("ij,jk,kl->il", *chain[:3])[0]


def test_eigenvectors_and_schur_vectors() -> None:
    """Vectors come with factors that LAPACK chooses, so that the products are compared."""
    for x64 in (False, True):
        with precision(x64):
            a = numbers(np.float64 if x64 else np.float32, (2, 4, 4), 7)
            bound = 1e-12 if x64 else 2e-4
            w, v = fnp.linalg.eig(a)
            assert w.dtype == v.dtype == jnp.linalg.eig(a)[0].dtype
            np.testing.assert_allclose(a @ np.asarray(v), np.asarray(v) * np.asarray(w)[:, None, :], atol=bound)
            w, left, _ = (np.asarray(x) for x in fuser.lax.linalg.eig(a))
            np.testing.assert_allclose(
                left.conj().swapaxes(1, 2) @ a, w[..., None] * left.conj().swapaxes(1, 2), atol=bound
            )
            t, z = (np.asarray(x) for x in fuser.lax.linalg.schur(a))
            np.testing.assert_allclose(z @ t @ z.swapaxes(1, 2), a, atol=bound)
            reduced, taus = fuser.lax.linalg.hessenberg(a)
            q = np.asarray(fuser.lax.linalg.householder_product(reduced[:, 1:, :-1], taus))
            h = np.triu(np.asarray(reduced), -1)
            whole = np.broadcast_to(np.eye(4), a.shape).copy()
            whole[:, 1:, 1:] = q
            np.testing.assert_allclose(whole @ h @ whole.swapaxes(1, 2), a, atol=bound)
            symmetric = a + a.swapaxes(1, 2)
            _, d, e, _ = (np.asarray(x) for x in fuser.lax.linalg.tridiagonal(symmetric))
            for one, diagonal, off in zip(symmetric, d, e):
                t = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
                np.testing.assert_allclose(np.linalg.eigvalsh(t), np.linalg.eigvalsh(one), atol=bound)
            u, polar, _, _ = (np.asarray(x) for x in fuser.lax.linalg.qdwh(a))
            np.testing.assert_allclose(u @ polar, a, atol=bound)
    roots = sorted(np.asarray(fnp.roots(np.array([0, 1.0, -6, 11, -6, 0]))), key=abs)
    np.testing.assert_allclose(roots, [0, 1, 2, 3], atol=2e-5)
    for p in ([0.0, 0.0], [3.0], [1.0, -1.0]):
        agree(fnp.roots, jnp.roots, np.array(p, np.float32))


def test_grids_and_concatenation_by_indexing() -> None:
    for make in (
        lambda m: m.mgrid[0:3, 1:2:0.25], lambda m: m.ogrid[0:3, 1:2:4j], lambda m: m.mgrid[:4], lambda m: m.r_[1, 2:5, np.arange(2)],
        lambda m: m.r_["0,2", np.arange(2), np.arange(2)], lambda m: m.r_["-1", np.ones((2, 2)), np.ones((2, 1))], lambda m: m.r_["0,2,0", np.arange(2), np.arange(2)], lambda m: m.c_[np.arange(3), np.arange(3)], lambda m: m.r_["x", 1], lambda m: m.r_["r", 1],
        lambda m: m.r_[0:1:3j, 5], lambda m: m.c_[np.ones((1, 2)), np.ones((1, 1))], lambda m: m.zeros((3, 4))[m.s_[1:, ::2]], lambda m: m.zeros((3, 4))[m.index_exp[0, 1:]],
    ):  # fmt: skip
        agree(lambda make=make: make(fnp), lambda make=make: make(jnp))


UFUNC: list[Any] = [
    lambda m, f: f(X, V), lambda m, f: f.reduce(X), lambda m, f: f.reduce(X, axis=None), lambda m, f: f.reduce(X, axis=1, keepdims=True), lambda m, f: f.reduce(X, initial=2.0), lambda m, f: f.reduce(X, where=X > 0, initial=0.0),
    lambda m, f: f.accumulate(X, axis=1), lambda m, f: f.outer(V, T[0]), lambda m, f: f.reduceat(X, np.array([0, 2, 1]), axis=1), lambda m, f: f.at(m.asarray(V), np.array([0, 1, 0]), 2.0, inplace=False), lambda m, f: (f.nin, f.nout, f.identity, f.nargs),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(UFUNC)))
@pytest.mark.parametrize("identity", [None, 0])
def test_universal_functions_of_python(number: int, identity: Any) -> None:
    call = UFUNC[number]
    make = lambda m: m.frompyfunc(lambda x, y: x + 2 * y, 2, 1, identity=identity)
    agree(lambda: call(fnp, make(fnp)), lambda: call(jnp, make(jnp)), tolerance=4)


def test_apply_along_axis() -> None:
    for f in (lambda m: lambda v: m.sort(v)[:2], lambda m: lambda v: m.sum(v), lambda m: lambda v: m.outer(v, v)):
        for axis in (0, 1, -1):
            agree(
                lambda x, f=f, a=axis: fnp.apply_along_axis(f(fnp), a, x),
                lambda x, f=f, a=axis: jnp.apply_along_axis(f(jnp), a, x),
                S,
            )


def test_mask_indices_and_files() -> None:
    agree(lambda: fnp.mask_indices(3, fnp.triu, 1), lambda: jnp.mask_indices(3, jnp.triu, 1))
    for value in (fnp.asarray(X), fnp.asarray(X).astype(fnp.bfloat16)):
        file = io.BytesIO()
        fnp.save(file, value)
        file.seek(0)
        found = fnp.load(file)
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(np.asarray(found), np.asarray(value))
    file = io.BytesIO()
    fnp.savez(file, first=X)
    file.seek(0)
    np.testing.assert_array_equal(fnp.load(file)["first"], X)


def test_fft_is_one_library_step_under_vmap_and_jit() -> None:
    compiled = fuser.jit(fuser.vmap(fnp.fft.fft)).lower(Z)
    assert [e.primitive.name for e in compiled.graph.eqns].count("fft") == 1
    with jax.disable_jit(False):
        compare(fuser.jit(fnp.fft.fft)(Z), jnp.fft.fft(Z), 4)
