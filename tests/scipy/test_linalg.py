"""jax.scipy.linalg, fft, sparse.linalg, ndimage, interpolate, cluster and integrate against JAX, and SciPy where JAX says less."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.interpolate
import jax.scipy.linalg
import jax.scipy.sparse.linalg
import numpy as np
import pytest
import scipy.interpolate
import scipy.linalg
from agreement import agree, numbers, precision
from differential import Row, check, check_compiled, check_derivatives, row

import fuser
import fuser.numpy as fnp
from fuser.scipy import interpolate, linalg
from fuser.scipy.sparse import linalg as sparse

A, B = numbers(np.float32, (4, 4)), numbers(np.float32, (4, 3), 1)
V = B[:, 0].copy()
SPD = A @ A.T + 2 * np.eye(4, dtype=np.float32)
C = numbers(np.complex64, (3, 3), 2)
STACK = numbers(np.float32, (2, 3, 3), 3)
PLACES = [numbers(np.float32, (5,), 4, -2, 6), numbers(np.float32, (5,), 5, -2, 6)]

ROWS: list[Row] = [
    row("scipy.linalg.cholesky", SPD, grad=0, tolerance=20), row("scipy.linalg.cho_factor", SPD, lower=True, tolerance=4), row("scipy.linalg.solve", SPD, B, assume_a="pos", grad=(0, 1), tolerance=20), row("scipy.linalg.solve", A, V, tolerance=20), row("scipy.linalg.solve", A, B, assume_a="odd", compiled=False),
    *(row("scipy.linalg.solve_triangular", SPD, b, trans, lower, grad=1, tolerance=8) for b, trans, lower in ((B, 0, True), (V, "T", False), (B, 2, False))), row("scipy.linalg.solve_triangular", SPD, B, 3, compiled=False), row("scipy.linalg.det", A, tolerance=20), row("scipy.linalg.inv", A, tolerance=20),
    row("scipy.linalg.lu", A, grad=0, tolerance=20), row("scipy.linalg.lu", B, permute_l=True, tolerance=8), row("scipy.linalg.lu_factor", A, tolerance=8), row("scipy.linalg.eigh", SPD, eigvals_only=True, tolerance=20), row("scipy.linalg.eigh", SPD, b=SPD, compiled=False), row("scipy.linalg.svd", B, compute_uv=False, tolerance=8),
    row("scipy.linalg.qr", A, mode="r", tolerance=20), row("scipy.linalg.qr", B, mode="economic", grad=0, tolerance=20), row("scipy.linalg.qr", B, mode="raw", compiled=False), *(row("scipy.linalg.qr", x, mode=mode, pivoting=True, grad=grad, tolerance=20) for x, mode, grad in ((A, "full", ()), (B, "economic", 0), (B.T.copy(), "full", ()), (C, "r", ()), (STACK, "economic", ()))), row("scipy.linalg.qr_multiply", B, B[:3], mode="left", pivoting=True, tolerance=20), row("scipy.linalg.qr", A * 1e30, mode="r", pivoting=True, tolerance=20), row("scipy.linalg.qr_multiply", A, B.T.copy(), tolerance=20), row("scipy.linalg.qr_multiply", B, B[:3], mode="left", tolerance=20), row("scipy.linalg.qr_multiply", B, V[:3], mode="left", tolerance=20), row("scipy.linalg.qr_multiply", B, B, mode="up", compiled=False),
    row("scipy.linalg.expm", A, grad=0, tolerance=80), row("scipy.linalg.expm", STACK * 2, tolerance=200), row("scipy.linalg.expm", np.triu(A) / 9, upper_triangular=True, tolerance=4), row("scipy.linalg.expm", A * 1000, max_squarings=2), row("scipy.linalg.expm", B, compiled=False), row("scipy.linalg.expm_frechet", A, SPD / 9, tolerance=200), row("scipy.linalg.expm_frechet", A, B, compiled=False),
    row("scipy.linalg.polar", B, tolerance=20), row("scipy.linalg.polar", B, method="svd", tolerance=20), row("scipy.linalg.polar", B.T.copy(), side="left", method="svd", tolerance=20), row("scipy.linalg.polar", B, side="up", compiled=False), row("scipy.linalg.polar", STACK, tolerance=40),
    row("scipy.linalg.solve_sylvester", A, SPD[:3, :3].copy(), B, tolerance=40), row("scipy.linalg.solve_sylvester", A, SPD[:3, :3].copy(), B, method="eigen", tolerance=40), row("scipy.linalg.solve_sylvester", A, A, B, compiled=False), row("scipy.linalg.eigh_tridiagonal", V, V[:3].copy(), eigvals_only=True, tolerance=8), row("scipy.linalg.eigh_tridiagonal", V, V[:3].copy(), eigvals_only=True, select="i", select_range=(1, 2), tolerance=8), row("scipy.linalg.eigh_tridiagonal", V, V, eigvals_only=True, compiled=False),
    *(row(f"scipy.linalg.{f}", V, grad=0) for f in ("toeplitz", "hankel", "circulant", "companion", "fiedler", "fiedler_companion")), *(row(f"scipy.linalg.{f}", A, V) for f in ("toeplitz", "hankel")), row("scipy.linalg.toeplitz", C[0]), row("scipy.linalg.circulant", np.arange(3)), row("scipy.linalg.fiedler_companion", np.arange(1, 7)), row("scipy.linalg.companion", V[:1].copy(), compiled=False),
    *(row("scipy.linalg.convolution_matrix", V, 3, mode) for mode in ("full", "same", "valid")), row("scipy.linalg.convolution_matrix", A[:2], 6, "same"), row("scipy.linalg.convolution_matrix", V, 0, compiled=False), row("scipy.linalg.leslie", V, V[:3].copy()), row("scipy.linalg.leslie", V, V, compiled=False),
    *(row(f"scipy.linalg.{f}", n, compiled=False) for f in ("hilbert", "invhilbert", "helmert", "pascal", "invpascal", "dft") for n in (1, 4)), *(row(f"scipy.linalg.{f}", 4, kind=kind, compiled=False) for f in ("pascal", "invpascal") for kind in ("lower", "upper", "left")), row("scipy.linalg.hadamard", 8, compiled=False), row("scipy.linalg.hadamard", 6, compiled=False), row("scipy.linalg.hadamard", 2, np.float16, compiled=False), row("scipy.linalg.helmert", 3, full=True, compiled=False), *(row("scipy.linalg.dft", 3, scale, compiled=False) for scale in ("n", "sqrtn", "m")),
    row("scipy.linalg.block_diag", A, V, 2), row("scipy.linalg.block_diag", compiled=False), row("scipy.linalg.block_diag", STACK, compiled=False),
    *(row(f"scipy.fft.{f}", x, grad=0, norm=norm, tolerance=8) for f in ("dct", "idct", "dctn", "idctn") for x, norm in ((B, None), (A, "ortho"))), row("scipy.fft.dct", B, n=6, axis=0, tolerance=8), row("scipy.fft.dctn", B, s=(3, 5), tolerance=8), row("scipy.fft.idct", B, n=2, tolerance=8), row("scipy.fft.dct", B, type=3, compiled=False), row("scipy.fft.dct", B, norm="forward", compiled=False), row("scipy.fft.dct", np.arange(5), tolerance=8),
    *(row("scipy.ndimage.map_coordinates", A, PLACES, order, mode, compiled=False, tolerance=4) for order in (0, 1) for mode in ("constant", "nearest", "wrap", "mirror", "reflect")), row("scipy.ndimage.map_coordinates", (A * 9).astype(np.int32), PLACES, 1, cval=3, compiled=False), *(row("scipy.ndimage.map_coordinates", x, [np.array([0.5, 1.5, -0.5], np.float32), np.array([0.5, 0.5, 1.5], np.float32)], order, "nearest", compiled=False) for x in (A, np.arange(12, dtype=np.int32).reshape(3, 4)) for order in (0, 1)),
    row("scipy.ndimage.map_coordinates", A, PLACES, 2, compiled=False), row("scipy.ndimage.map_coordinates", A, PLACES[:1], 1, compiled=False), row("scipy.ndimage.map_coordinates", A, PLACES, 1, "grid", compiled=False),
    row("scipy.cluster.vq.vq", B, B[:2]), row("scipy.cluster.vq.vq", V, V[:2].copy()), row("scipy.cluster.vq.vq", B, V, compiled=False), row("scipy.integrate.trapezoid", A, V, grad=(0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{n}-{ROWS[n]}")
def test_function(number: int) -> None:
    check(ROWS[number])


def test_derivatives() -> None:
    check_derivatives(ROWS)


def test_compiled() -> None:
    check_compiled([r for r in ROWS if r.compiled][::3])


def test_factors_multiply_to_the_matrix() -> None:
    for x64, bound in ((False, 3e-5), (True, 1e-12)):
        with precision(x64):
            kind = np.float64 if x64 else np.float32
            for a in (A.astype(kind), C.astype(np.complex128 if x64 else np.complex64)):
                host = lambda *arrays: [np.asarray(x) for x in arrays]
                h, q = host(*linalg.hessenberg(a, calc_q=True))
                np.testing.assert_allclose(q @ h @ q.conj().T, a, atol=bound)
                np.testing.assert_allclose(np.tril(h, -2), 0, atol=bound)
                for output in ("real", "complex"):
                    t, z = host(*linalg.schur(a, output))
                    np.testing.assert_allclose(z @ t @ z.conj().T, a, atol=bound)
                t, z = host(*linalg.rsf2csf(*linalg.schur(a)))
                np.testing.assert_allclose(z @ t @ z.conj().T, a, atol=bound)
                np.testing.assert_allclose(np.tril(t, -1), 0, atol=bound)
                root = np.asarray(linalg.sqrtm(a))
                np.testing.assert_allclose(root @ root, a, atol=bound)
                np.testing.assert_allclose(np.asarray(linalg.funm(a, fnp.exp)), scipy.linalg.expm(a), atol=bound * 10)
                for trans in (0, 1, 2):
                    b = a[:, 0]
                    x = np.asarray(linalg.lu_solve(linalg.lu_factor(a), b, trans))
                    np.testing.assert_allclose((a, a.T, a.conj().T)[trans] @ x, b, atol=bound)
                spd = a @ a.conj().T + np.eye(len(a))
                for lower in (False, True):
                    x = np.asarray(linalg.cho_solve(linalg.cho_factor(spd, lower), a))
                    np.testing.assert_allclose(spd @ x, a, atol=bound)


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_iterative_solvers(name: str) -> None:
    solver, theirs = getattr(sparse, name), getattr(jax.scipy.sparse.linalg, name)
    matrix = SPD if name == "cg" else A + 4 * np.eye(4, dtype=np.float32)
    for options in ({}, {"M": np.diag(1 / np.diag(matrix)), "x0": V, "tol": 1e-6}):
        found, info = solver(matrix, V, **options)
        expected_info = theirs(matrix, V, **options)[1]
        assert (info is None) == (expected_info is None) and info == expected_info
        np.testing.assert_allclose(np.asarray(found), np.linalg.solve(matrix, V), rtol=2e-4, atol=2e-5)
    tree = {"x": V, "y": V * 2}
    apply = lambda t: {"x": matrix @ t["x"], "y": 3 * t["y"]}
    found = fuser.jit(lambda b: solver(lambda t: {"x": fnp.matmul(matrix, t["x"]), "y": 3 * t["y"]}, b, tol=1e-6)[0])(
        tree
    )
    expected = theirs(apply, jax.tree.map(jnp.asarray, tree), tol=1e-6)[0]
    for key in tree:
        np.testing.assert_allclose(np.asarray(found[key]), np.asarray(expected[key]), rtol=2e-4, atol=2e-5)
    slope = fuser.grad(lambda b: solver(matrix, b, tol=1e-7)[0].sum())(V)
    np.testing.assert_allclose(np.asarray(slope), np.linalg.solve(matrix.T, np.ones(4)), rtol=1e-3, atol=1e-4)
    nans = solver(matrix, np.full_like(V, np.nan))[1], theirs(matrix, np.full_like(V, np.nan))[1]
    assert nans[0] == nans[1]
    for wrong in (lambda m: m(B, V), lambda m: m(matrix, V, x0={"a": V})):
        agree(lambda wrong=wrong: wrong(solver), lambda wrong=wrong: wrong(theirs))


def test_interpolation_on_grids() -> None:
    grid = (np.arange(4.0, dtype=np.float32), np.arange(4, dtype=np.float32) ** 1.5)
    points = numbers(np.float32, (7, 2), 6, -0.5, 5.5)
    make = lambda m, **o: m.RegularGridInterpolator(grid, A, **o)
    for options in (
        {},
        {"method": "nearest"},
        {"fill_value": None},
        {"fill_value": 7.0},
        {"method": "cubic"},
        {"bounds_error": True},
    ):
        call = lambda m, o=options: make(m, **o)(points)
        agree(lambda call=call: call(interpolate), lambda call=call: call(jax.scipy.interpolate), tolerance=8)
    for call in (lambda m: make(m)(points[:, :1]), lambda m: make(m)((points[:, 0], points[:, 1])), lambda m: m.RegularGridInterpolator(grid[:1], A)(points[:, :1])):  # fmt: skip
        agree(lambda call=call: call(interpolate), lambda call=call: call(jax.scipy.interpolate), tolerance=8)
    inside = numbers(np.float32, (5, 2), 7, 0.1, 2.9)
    descending = (grid[0][::-1].copy(),)  # which JAX does not order
    wanted = scipy.interpolate.RegularGridInterpolator(descending, V)(inside[:, :1])
    found = interpolate.RegularGridInterpolator(descending, V)(inside[:, :1])
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)
    slope = fuser.grad(lambda x: make(interpolate)(x).sum())(inside)
    with jax.disable_jit():
        expected = jax.grad(lambda x: make(jax.scipy.interpolate)(x).sum())(inside)
    np.testing.assert_allclose(np.asarray(slope), np.asarray(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        np.asarray(fuser.jit(lambda f, x: f(x))(make(interpolate), inside)),
        np.asarray(make(interpolate)(inside)),
        rtol=1e-6,
    )


def test_signatures_are_those_of_jax() -> None:
    import inspect

    for name in linalg.__all__:
        mine, other = (list(inspect.signature(getattr(m, name)).parameters) for m in (linalg, jax.scipy.linalg))
        assert mine == other, name
