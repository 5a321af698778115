"""Linear algebra with jax.scipy.linalg's names: factorisations, systems, functions of matrices, special matrices.

Everything works on the last two dimensions and broadcasts before them, unless it says otherwise; integers become the default
float. `overwrite_*` and `check_finite` have no effect: arrays are immutable, and nothing is checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.ir.types import is_complex
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.replayed import install as _install_replays
from fuser.lax.values import promote_inexact
from fuser.numpy import linalg as L
from fuser.numpy.linalg import inv as _inv
from fuser.numpy.vectorize import vectorize
from fuser.ops.matrices import adjoint
from fuser.scipy.matrix_functions import expm, expm_frechet, funm, polar, rsf2csf, solve_sylvester, sqrtm
from fuser.scipy.special_matrices import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion", "convolution_matrix", "det", "dft", "eigh",
    "eigh_tridiagonal", "expm", "expm_frechet", "fiedler", "fiedler_companion", "funm", "hadamard", "hankel", "helmert",
    "hessenberg", "hilbert", "inv", "invhilbert", "invpascal", "leslie", "lu", "lu_factor", "lu_solve", "pascal", "polar", "qr",
    "qr_multiply", "rsf2csf", "schur", "solve", "solve_sylvester", "solve_triangular", "sqrtm", "svd", "toeplitz",
]  # fmt: skip


# Factorisations.


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The upper triangular U with Uᴴ U = a, or with `lower` L with L Lᴴ = a; nan where a is not positive definite."""
    (x,) = promote_inexact("cholesky", a)
    factor = lax.linalg.cholesky(x if lower else adjoint(x), symmetrize_input=False)
    return factor if lower else adjoint(factor)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, bool]:
    """(`cholesky(a, lower)`, lower), for `cho_solve`."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """x with a x = b, from `cho_factor(a)`; b (…, n) a vector or (…, n, k)."""
    factor, lower = c_and_lower
    c, y = promote_inexact("cho_solve", factor, b)
    _check_system("cho_solve", c, y)

    def one(c: Any, y: Any) -> Any:
        back = {"left_side": True, "lower": lower, "conjugate_a": is_complex(c.dtype)}
        y = lax.linalg.triangular_solve(
            c, y, transpose_a=not lower, **{**back, "conjugate_a": not lower and is_complex(c.dtype)}
        )
        return lax.linalg.triangular_solve(
            c, y, transpose_a=lower, **{**back, "conjugate_a": lower and is_complex(c.dtype)}
        )

    return _mapped(one, c, y)


def _mapped(one: Any, a: Any, b: Any) -> Any:
    """`one` on matrices with right sides, broadcast over the dimensions before; a vector as one column."""
    if b.ndim == 1:
        return one_vector(one, a, b)
    return vectorize(one, signature="(n,n),(n,k)->(n,k)")(a, b)


def one_vector(one: Any, a: Any, b: Any) -> Any:
    """`one` of a vector, through one column."""
    return vectorize(lambda a, b: one(a, b[:, None])[:, 0], signature="(n,n),(n)->(n)")(a, b)


def _check_system(function: str, a: Any, b: Any) -> None:
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"{function} takes square matrices, got shape {a.shape}")
    if b.ndim < 1 or b.shape[0 if b.ndim == 1 else -2] != a.shape[-1]:
        raise ValueError(
            f"{function} needs as many rows on the right side as unknowns, got shapes {a.shape} and {b.shape}"
        )


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """(U, s, Vh) with U diag(s) Vh = a, s in descending order; s alone without `compute_uv`."""
    (x,) = promote_inexact("svd", a)
    return lax.linalg.svd(x, full_matrices=full_matrices, compute_uv=compute_uv)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The determinants (…)."""
    return L.det(a)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The inverse matrices."""
    return _inv(a)


def eigh(
    a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
    turbo: bool = True, eigvals: None = None, type: int = 1, check_finite: bool = True,
) -> Any:  # fmt: skip
    """(w, v) of Hermitian matrices: eigenvalues in ascending order and eigenvectors in columns; w alone with `eigvals_only`.

    NotImplementedError for generalised problems (`b`, `type`) and for ranges of eigenvalues.
    """
    if b is not None:
        raise NotImplementedError("Only the b=None case of eigh is implemented")
    if type != 1:
        raise NotImplementedError("Only the type=1 case of eigh is implemented.")
    if eigvals is not None:
        raise NotImplementedError("Only the eigvals=None case of eigh is implemented")
    (x,) = promote_inexact("eigh", a)
    v, w = lax.linalg.eigh(x, lower=lower)
    return w if eigvals_only else (w, v)


def schur(a: Any, output: str = "real") -> tuple[Any, Any]:
    """(T, Z) with a = Z T Zᴴ: T quasi-triangular for real matrices, or triangular and complex with output="complex"."""
    if output not in ("real", "complex"):
        raise ValueError(f"Expected 'output' to be either 'real' or 'complex', got output={output!r}.")
    (x,) = promote_inexact("schur", a)
    if output == "complex":
        x = x.astype(np.result_type(x.dtype, np.complex64))
    t, z = lax.linalg.schur(x)
    return t, z


def hessenberg(a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """H, zero below its first subdiagonal, with a = Q H Qᴴ; with `calc_q` also the unitary Q."""
    (x,) = promote_inexact("hessenberg", a)
    n = x.shape[-1]
    if n < 3:
        identity = fnp.broadcast_to(fnp.eye(n, dtype=x.dtype), x.shape)
        return (x, identity) if calc_q else x
    reduced, taus = lax.linalg.hessenberg(x)
    h = fnp.triu(reduced, -1)
    if not calc_q:
        return h
    inner = lax.linalg.householder_product(reduced[..., 1:, :-1], taus)
    top = fnp.broadcast_to(fnp.eye(1, n, dtype=x.dtype), (*x.shape[:-2], 1, n))
    left = fnp.zeros((*x.shape[:-2], n - 1, 1), x.dtype)
    return h, fnp.concatenate([top, fnp.concatenate([left, inner], -1)], -2)


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, Any]:
    """(lu, pivots) for `lu_solve`: L and U of P a = L U in one matrix, and with which row each was exchanged."""
    (x,) = promote_inexact("lu_factor", a)
    factors, pivots, _ = lax.linalg.lu(x)
    return factors, pivots


def lu_solve(
    lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Any:
    """x with a x = b (trans=0), aᵀ x = b (1) or aᴴ x = b (2), from `lu_factor(a)`; b (…, n) or (…, n, k). ValueError otherwise."""
    factors, pivots = lu_and_piv
    x, y = promote_inexact("lu_solve", factors, b)
    if trans not in (0, 1, 2):
        raise ValueError(f"'trans' value must be 0, 1, or 2, got {trans}")
    _check_system("lu_solve", x, y)
    permutation = lax.linalg.lu_pivots_to_permutation(pivots, x.shape[-1])

    def one(lu: Any, order: Any, y: Any) -> Any:
        solve = lambda y, lower: lax.linalg.triangular_solve(
            lu, y, left_side=True, lower=lower, unit_diagonal=lower, transpose_a=trans > 0, conjugate_a=trans == 2
        )
        if not trans:
            return solve(solve(y[order], True), False)
        return solve(solve(y, False), True)[fnp.argsort(order)]

    if y.ndim == 1:
        return vectorize(lambda lu, o, y: one(lu, o, y[:, None])[:, 0], signature="(n,n),(n),(n)->(n)")(
            x, permutation, y
        )
    return vectorize(one, signature="(n,n),(n),(n,k)->(n,k)")(x, permutation, y)


def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """(P, L, U) with a = P L U; (P L, U) with `permute_l`."""
    (x,) = promote_inexact("lu", a)
    factors, _, permutation = lax.linalg.lu(x)
    rows, columns = x.shape[-2:]
    k = min(rows, columns)
    real = np.zeros((), x.dtype).real.dtype
    p = (permutation[..., None, :] == fnp.arange(rows, dtype=permutation.dtype)[:, None]).astype(real)
    lower = fnp.tril(factors[..., :, :k], -1) + fnp.eye(rows, k, dtype=x.dtype)
    upper = fnp.triu(factors[..., :k, :])
    return (fnp.matmul(p, lower), upper) if permute_l else (p, lower, upper)


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    """(Q, R) with Q R = a: Q square ("full") or with as many columns as are needed ("economic"); (R,) for mode "r".

    With `pivoting` the permutation of columns p comes last, Q R = a[..., p], and the diagonal of R falls. ValueError for another mode.
    """
    (x,) = promote_inexact("qr", a)
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, *rest = lax.linalg.qr(x, pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(rest) if mode == "r" else (q, *rest)


def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Any, ...]:
    """(Q c or c Q, R) for a = Q R with the economic Q; mode "right" is c Q, "left" Q c. `conjugate` conjugates Q.

    With `pivoting` (Q c or c Q, R, p) for a[..., p] = Q R.
    """
    if mode not in ("right", "left"):
        raise ValueError(f"Mode argument should be one of ['right', 'left'], got {mode}.")
    x, y = promote_inexact("qr_multiply", a, c)
    vector = y.ndim == 1
    q, *rest = lax.linalg.qr(x, pivoting=pivoting, full_matrices=False)
    rows, columns = q.shape[-2:]
    extent = y.shape[-1] if mode == "right" else y.shape[0]
    if extent != (rows if mode == "right" else columns):
        raise ValueError(
            f"Array shapes are not compatible for {'c @ Q' if mode == 'right' else 'Q @ c'} operation: a has shape {x.shape} so "
            f"Q has shape {q.shape}, but c has shape {y.shape}"
        )
    q = fnp.conj(q) if conjugate else q
    matrix = (y[None, :] if mode == "right" else y[:, None]) if vector else y
    found = fnp.matmul(matrix, q) if mode == "right" else fnp.matmul(q, matrix)
    return (fnp.ravel(found) if vector else found, *rest)


# Systems.


def solve(
    a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False, debug: bool = False,
    check_finite: bool = True, assume_a: str = "gen",
) -> Any:  # fmt: skip
    """x with a x = b; assume_a="pos" for positive definite matrices, of which one triangle is read, else "gen", "sym" or "her"."""
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError(f"Expected assume_a to be one of ['gen', 'sym', 'her', 'pos']; got {assume_a!r}")
    if assume_a != "pos":
        return L.solve(a, b)
    x, y = promote_inexact("solve", a, b)
    _check_system("solve", x, y)

    def one(a: Any, y: Any) -> Any:
        factor = cho_factor(lax.stop_gradient(a), lower)
        return lax.custom_linear_solve(
            lambda x: fnp.matmul(a, x), y, lambda _, side: cho_solve(factor, side), symmetric=True
        )

    return _mapped(one, x, y)


def solve_triangular(
    a: Any, b: Any, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False, overwrite_b: bool = False,
    debug: Any = None, check_finite: bool = True,
) -> Any:  # fmt: skip
    """x with a x = b (trans 0 or "N"), aᵀ x = b (1, "T") or aᴴ x = b (2, "C") for one triangle of a; b (…, n) or (…, n, k)."""
    if trans not in (0, "N", 1, "T", 2, "C"):
        raise ValueError(f"Invalid 'trans' value {trans}")
    x, y = promote_inexact("solve_triangular", a, b)
    _check_system("solve_triangular", x, y)
    turned, conjugated = trans not in (0, "N"), trans in (2, "C")
    one = lambda a, b: lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=turned, conjugate_a=conjugated, unit_diagonal=unit_diagonal
    )
    return _mapped(one, x, y)


def eigh_tridiagonal(
    d: Any, e: Any, *, eigvals_only: bool = False, select: str = "a", select_range: tuple[float, float] | None = None,
    tol: float | None = None, key: Any = None,
) -> Any:  # fmt: skip
    """The eigenvalues of a symmetric tridiagonal matrix with diagonal d (n,) and off-diagonal e (n - 1,), in ascending order.

    select="i" takes those numbered from select_range[0] to select_range[1], "v" those in a range, the others being nan is not
    offered; with `eigvals_only=False` eigenvectors in columns too. `tol` and `key` have no effect: LAPACK is used.
    """
    if select == "v":
        raise NotImplementedError("select='v' is not implemented: how many eigenvalues there are depends on values")
    if select not in ("a", "i"):
        raise ValueError(f"'select must have a value in {{'a', 'i', 'v'}}, got {select}")
    diagonal, off = promote_inexact("eigh_tridiagonal", d, e)
    if diagonal.shape[0] - 1 != off.shape[0]:
        raise TypeError(
            f"diagonal of matrix must have one element more than its off-diagonal, got {diagonal.shape} and {off.shape}"
        )
    whole = fnp.diag(diagonal) + fnp.diag(off, -1) + fnp.diag(fnp.conj(off), 1)
    v, w = lax.linalg.eigh(whole)
    if select == "i":
        if select_range is None or select_range[0] > select_range[1]:
            raise ValueError("Got empty index range in select_range.")
        kept = slice(int(select_range[0]), int(select_range[1]) + 1)
        v, w = v[:, kept], w[kept]
    return w if eigvals_only else (w, v)


# What has several steps about a factorisation, or loops: one program, with the bits that it has under jit.
_COMPILED = """
cholesky det eigh expm expm_frechet hessenberg inv lu lu_factor lu_solve polar qr qr_multiply rsf2csf schur solve solve_sylvester
solve_triangular sqrtm svd
"""
_install_ranks(globals(), "fuser.scipy")
_install_replays(globals(), "fuser.scipy", compiled=_COMPILED.split())
