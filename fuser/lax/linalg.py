"""Matrix factorisations and triangular systems, with the names and results of jax.lax.linalg.

All work on the last two dimensions, in float32, float64, complex64 and complex128, and are differentiable.
"""

from __future__ import annotations

from typing import Any

from fuser.gaps import absent
from fuser.ir.types import is_complex
from fuser.lax.factorisations import (
    EighImplementation,
    EigImplementation,
    SvdAlgorithm,
    cholesky_update,
    eig,
    hessenberg,
    householder_product,
    lu,
    lu_pivots_to_permutation,
    ormqr,
    qdwh,
    schur,
    symmetric_product,
    tridiagonal,
    tridiagonal_solve,
)
from fuser.lax.marks import stop_gradient
from fuser.lax.movement import expand_dims, squeeze
from fuser.lax.pivoting import column_order, in_order
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.values import as_value
from fuser.ops.factorisations import eig_p, hessenberg_p, lu_p, schur_p, tridiagonal_p
from fuser.ops.linalg import cholesky_p, eigh_p, qr_p, svd_p
from fuser.ops.matrices import adjoint, check_matrices
from fuser.ops.triangular import triangular_solve_p
from fuser.trace.core import bind, type_of

__all__ = [
    "EigImplementation",
    "EighImplementation",
    "SvdAlgorithm",
    "cholesky",
    "cholesky_p",
    "cholesky_update",
    "eig",
    "eig_p",
    "eigh",
    "eigh_p",
    "hessenberg",
    "hessenberg_p",
    "householder_product",
    "lu",
    "lu_p",
    "lu_pivots_to_permutation",
    "ormqr",
    "qdwh",
    "qr",
    "qr_p",
    "schur",
    "schur_p",
    "svd",
    "svd_p",
    "symmetric_product",
    "triangular_solve",
    "triangular_solve_p",
    "tridiagonal",
    "tridiagonal_p",
    "tridiagonal_solve",
]


def _hermitian_part(name: str, x: Any) -> Any:
    check_matrices(name, type_of(x), square=True)
    return (x + adjoint(x)) / 2


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """The lower triangular L with L Lᴴ = x, or its Hermitian part; nan where that is not positive definite.

    With `symmetrize_input=False` the lower triangle alone is read; derivatives take `x` and tangents as Hermitian.
    """
    value = as_value(x, "cholesky")
    return bind(cholesky_p, _hermitian_part("cholesky", value) if symmetrize_input else value)


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Any, Any]:
    """(v, w): eigenvectors in columns, and eigenvalues in ascending order, of `x` or its Hermitian part.

    `subset_by_index` takes those from the first of two positions up to the second. They are in order also without
    `sort_eigenvalues`. Jacobi and QDWH are not implemented: NotImplementedError.

    With `symmetrize_input=False` one triangle is read. Derivatives of vectors are inf or nan where eigenvalues are equal.
    """
    if implementation not in (None, EighImplementation.QR):
        raise NotImplementedError(f"eigh has no implementation {implementation}; leave it out")
    value = as_value(x, "eigh")
    v, w = bind(eigh_p, _hermitian_part("eigh", value) if symmetrize_input else value, lower=bool(lower))
    if subset_by_index is not None:
        low, high = subset_by_index
        return v[..., low:high], w[..., low:high]
    return v, w


def qr(x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> tuple[Any, ...]:
    """(q, r) with q r = x: q has orthonormal columns, r is upper triangular; q is square if `full_matrices`. `use_magma` changes nothing.

    With `pivoting` (q, r, p): q r = x[..., p], and the magnitudes on the diagonal of r fall; derivatives take p as it is.
    """
    value = as_value(x, "qr")
    if not pivoting:
        q, r = bind(qr_p, value, full_matrices=bool(full_matrices))
        return q, r
    check_matrices("qr", type_of(value))
    order = column_order(stop_gradient(value))
    q, r = bind(qr_p, in_order(value, order), full_matrices=bool(full_matrices))
    return q, r, order


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """(u, s, vh) with u diag(s) vh = x, s in descending order; s alone without `compute_uv`.

    `subset_by_index` takes the singular values (and vectors) from the first of two positions up to the second; ValueError with
    `full_matrices`. It goes by divide and conquer, also where QR is asked for, whose error bounds are the same
    (LAPACK Users' Guide, section 4.9); Jacobi and polar algorithms are not implemented: NotImplementedError.

    Derivatives of u and vh need `full_matrices=False` where x is not square (UnsupportedError), and singular values that
    differ: they are inf or nan where two are equal.
    """
    if algorithm in (SvdAlgorithm.JACOBI, SvdAlgorithm.POLAR):
        raise NotImplementedError("The SVD Jacobi and Polar algorithms are not implemented; leave algorithm out")
    low, high = (None, None) if subset_by_index is None else subset_by_index
    if subset_by_index is not None and full_matrices and compute_uv:
        raise ValueError("full_matrices and subset_by_index cannot both be set")
    results = bind(svd_p, as_value(x, "svd"), full_matrices=bool(full_matrices), compute_uv=bool(compute_uv))
    if not compute_uv:
        return results[0] if low is None else results[0][..., low:high]
    s, u, vh = results
    return (u, s, vh) if low is None else (u[..., low:high], s[..., low:high], vh[..., low:high, :])


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """x with op(a) x = b if `left_side`, else x op(a) = b, for one triangle of `a`; the other is not read.

    `op` transposes and conjugates as told; `unit_diagonal` takes the diagonal as ones. `b` may be a vector.
    """
    matrix, right = as_value(a, "triangular_solve"), as_value(b, "triangular_solve")
    vector = right.ndim == matrix.ndim - 1
    position = right.ndim if left_side else right.ndim - 1
    out = bind(
        triangular_solve_p,
        matrix,
        expand_dims(right, (position,)) if vector else right,
        left_side=bool(left_side),
        lower=bool(lower),
        transpose_a=bool(transpose_a),
        conjugate_a=bool(conjugate_a) and is_complex(matrix.dtype),
        unit_diagonal=bool(unit_diagonal),
    )
    return squeeze(out, (position,)) if vector else out


_install_ranks(globals(), "fuser.lax")

__getattr__ = absent(__name__)
