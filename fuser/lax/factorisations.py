"""Factorisations and what applies their reflections, with the names and results of jax.lax.linalg; reached through it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError, UnsupportedError
from fuser.ir.types import is_complex
from fuser.lax.control import fori_loop, scan
from fuser.lax.values import as_value, literal
from fuser.ops import factorisations as F
from fuser.ops.elementwise import eq_p, ne_p, select_n_p
from fuser.ops.linalg import svd_p
from fuser.ops.matrices import adjoint, check_matrices, eye, lower_part, transposed, upper_part
from fuser.ops.triangular import solve
from fuser.trace.core import bind, type_of


class EigImplementation(enum.Enum):
    """Libraries that JAX computes eigenvalues with on GPUs; fuser uses LAPACK for all."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """Algorithms of JAX for eigenvalues of Hermitian matrices; fuser uses LAPACK's for all."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """Algorithms for singular values: `svd` goes by LAPACK's divide and conquer, and refuses JACOBI and POLAR."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def lu(x: Any) -> tuple[Any, Any, Any]:
    """(lu, pivots, permutation) of A (…, m, n): P A = L U by partial pivoting, L's unit diagonal left out, L below U.

    `pivots` (…, min(m, n)) int32 says with which row each was exchanged, `permutation` (…, m) int32 is the rows of P A.
    """
    factors, pivots, permutation = bind(F.lu_p, as_value(x, "lu"))
    return factors, pivots, permutation


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """The permutation (…, permutation_size) int32 that exchanges by `pivots` (…, k) of integers make."""
    value = as_value(pivots, "lu_pivots_to_permutation")
    if value.dtype not in (np.dtype("int32"), np.dtype("uint32")) or not value.ndim:
        raise TypeRuleError(f"lu_pivots_to_permutation takes vectors of int32 or uint32, got {type_of(value)}")
    if value.shape[-1] > permutation_size:
        raise ValueError(
            f"Output permutation size {permutation_size} has to exceed the trailing dimension of the pivots, {value.shape[-1]}"
        )
    from fuser import numpy as fnp

    lead = value.shape[:-1]
    start = fnp.broadcast_to(fnp.arange(permutation_size, dtype=value.dtype), (*lead, permutation_size))
    positions = fnp.arange(permutation_size)

    def exchange(row: Any, order: Any) -> Any:
        other = fnp.take(value, row, axis=-1)[..., None]
        first = fnp.take(order, row, axis=-1)[..., None]
        second = fnp.take_along_axis(order, other, -1)
        return fnp.where(positions == row, second, fnp.where(positions == other, first, order))

    return fori_loop(0, value.shape[-1], exchange, start)


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Any]:
    """[w, left, right] of square matrices: complex eigenvalues in no order, and eigenvectors of length 1 in columns.

    Those that are not computed are left out. Eigenvectors have derivatives where `enable_eigvec_derivs`: right ones where all
    eigenvalues differ and no eigenvector has two largest elements (UnsupportedError without it).
    """
    left, right = bool(compute_left_eigenvectors), bool(compute_right_eigenvectors)
    params = {"compute_left_eigenvectors": left, "compute_right_eigenvectors": right}
    return list(bind(F.eig_p, as_value(x, "eig"), **params, enable_eigvec_derivs=bool(enable_eigvec_derivs)))


def schur(
    x: Any,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> Any:
    """(T, Z) with x = Z T Zᴴ, Z unitary, T upper triangular or for real matrices with 2×2 blocks on the diagonal; no derivative.

    [T] without vectors. Sorting eigenvalues is not offered: NotImplementedError.
    """
    if sort_eig_vals or select_callable is not None:
        raise NotImplementedError("The sort feature of LAPACK's gees routine is not implemented.")
    params = {"compute_schur_vectors": bool(compute_schur_vectors), "sort_eig_vals": False, "select_callable": None}
    return tuple(bind(F.schur_p, as_value(x, "schur"), **params))


def hessenberg(a: Any) -> tuple[Any, Any]:
    """(a, taus): Q H Qᴴ with H in the upper triangle and first subdiagonal, and the reflections that make Q; no derivative."""
    reduced, taus = bind(F.hessenberg_p, as_value(a, "hessenberg"))
    return reduced, taus


def geqrf(a: Any) -> tuple[Any, Any]:
    """(a, taus): Q R with R in the upper triangle, and the reflections that make Q (see `ormqr`); no derivative."""
    reduced, taus = bind(F.geqrf_p, as_value(a, "geqrf"))
    return reduced, taus


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Any, Any, Any, Any]:
    """(a, d, e, taus): Q T Qᴴ of a Hermitian matrix: reflections that make Q, and T's real diagonal and off-diagonal."""
    reduced, d, e, taus = bind(F.tridiagonal_p, as_value(a, "tridiagonal"), lower=bool(lower))
    return reduced, d, e, taus


def _reflectors(name: str, a: Any, taus: Any) -> tuple[Any, Any]:
    """V with its unit diagonal, (…, m, k), and T with Q = I - V T Vᴴ.

    T = (diag(1/τ) + striu(VᴴV))⁻¹: Joffrain et al., "Accumulating Householder transformations, revisited" (2006).
    """
    matrix, scales = as_value(a, name), as_value(taus, name)
    check_matrices(name, type_of(matrix))
    rows, k = matrix.shape[-2], scales.shape[-1]
    if matrix.shape[-1] < k or rows < k or matrix.dtype != scales.dtype or matrix.shape[:-2] != scales.shape[:-1]:
        raise TypeRuleError(f"{name} needs as many columns as reflections, got {type_of(matrix)} and {type_of(scales)}")
    v = lower_part(matrix[..., :k], -1) + _wide_eye(rows, k, matrix.dtype)
    inner = upper_part(adjoint(v) @ v, 1)
    unit = eye(k, matrix.dtype) + scales[..., :, None] * inner
    return v, solve(unit, scales[..., :, None] * eye(k, matrix.dtype))


def _wide_eye(rows: int, columns: int, dtype: np.dtype) -> Any:
    return eye(max(rows, columns), dtype)[:rows, :columns]


def householder_product(a: Any, taus: Any) -> Any:
    """The first n columns of H₁ H₂ …, with Hᵢ = I - τᵢ vᵢ vᵢᴴ and vᵢ below the diagonal of a (…, m, n), m ≥ n; taus (…, k)."""
    v, t = _reflectors("householder_product", a, taus)
    columns = as_value(a).shape[-1]
    return _wide_eye(v.shape[-2], columns, v.dtype) - v @ (t @ adjoint(v[..., :columns, :]))


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Any:
    """Q c or c Q (Qᴴ if `transpose`) for the square Q that reflections make, as `householder_product` has them."""
    v, t = _reflectors("ormqr", a, taus)
    matrix = as_value(c, "ormqr")
    t = adjoint(t) if transpose else t
    if left:
        return matrix - v @ (t @ (adjoint(v) @ matrix))
    return matrix - ((matrix @ v) @ t) @ adjoint(v)


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """x (…, n, k) of tridiagonal systems: diagonals dl, d, du (…, n), of which dl[0] and du[n-1] are not read, and b.

    Thomas' elimination without pivoting, one loop over the rows: for diagonally dominant or positive definite matrices.
    With `perturb_singular` pivots that are 0 become the smallest that are not.
    """
    lower, diagonal, upper, right = (as_value(v, "tridiagonal_solve") for v in (dl, d, du, b))
    if not lower.shape == diagonal.shape == upper.shape or right.shape[:-1] != diagonal.shape:
        shapes = [v.shape for v in (lower, diagonal, upper, right)]
        raise TypeRuleError(f"tridiagonal_solve needs diagonals (…, n) and a right side (…, n, k), got shapes {shapes}")
    if len({v.dtype for v in (lower, diagonal, upper, right)}) > 1:
        raise TypeRuleError("tridiagonal_solve needs equal dtypes; convert the operands first")
    first = lambda x: _moved(x, diagonal.ndim - 1)
    rows = (first(lower)[..., None], first(diagonal)[..., None], first(upper)[..., None], first(right))
    tiny = literal(float(np.finfo(np.zeros((), diagonal.dtype).real.dtype).tiny), diagonal.dtype)

    def forward(carry: Any, row: Any) -> Any:
        ratio, value = carry
        low, middle, high, side = row
        pivot = middle - low * ratio
        if perturb_singular:
            pivot = bind(select_n_p, bind(eq_p, pivot, literal(0, pivot.dtype)), pivot, tiny)
        carry = (high / pivot, (side - low * value) / pivot)
        return carry, carry

    start = rows[1][0] * 0, rows[3][0] * 0
    zero_first = rows[0] * _after_first(rows[0].shape, rows[0].dtype)
    _, (ratios, values) = scan(forward, start, (zero_first, *rows[1:]))

    def backward(below: Any, row: Any) -> Any:
        ratio, value = row
        found = value - ratio * below
        return found, found

    _, result = scan(backward, rows[3][0] * 0, (ratios, values), reverse=True)
    return _moved(result, 0, diagonal.ndim - 1)


def _after_first(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    from fuser import numpy as fnp

    return fnp.reshape((fnp.arange(shape[0]) > 0).astype(dtype), (shape[0],) + (1,) * (len(shape) - 1))


def _moved(x: Any, source: int, target: int = 0) -> Any:
    from fuser import numpy as fnp

    return fnp.moveaxis(x, source, target)


def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Any:
    """alpha·A Aᵀ + beta·C; A (…, n, k), C (…, n, n). The result is symmetric where C is."""
    a, c = as_value(a_matrix, "symmetric_product"), as_value(c_matrix, "symmetric_product")
    check_matrices("symmetric_product", type_of(a))
    check_matrices("symmetric_product", type_of(c), square=True)
    if a.shape[-2] != c.shape[-1] or a.shape[:-2] != c.shape[:-2] or a.dtype != c.dtype:
        raise TypeRuleError(f"symmetric_product needs A (…, n, k) and C (…, n, n), got {type_of(a)} and {type_of(c)}")
    result = alpha * (a @ transposed(a)) + beta * c
    return lower_part(result) + transposed(lower_part(result, -1)) if symmetrize_output else result


def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    """The upper triangular R' with R'ᵀ R' = Rᵀ R + w wᵀ: R (n, n), w (n,), both real.

    Givens rotations, one for each row: Golub and Van Loan, "Matrix computations", section 6.5.4.
    """
    r, w = as_value(r_matrix, "cholesky_update"), as_value(w_vector, "cholesky_update")
    if r.ndim != 2 or r.shape[0] != r.shape[1] or w.shape != r.shape[:1] or r.dtype != w.dtype or is_complex(r.dtype):
        raise TypeRuleError(f"cholesky_update takes a real (n, n) and (n,), got {type_of(r)} and {type_of(w)}")
    from fuser import numpy as fnp

    def rotate(row: Any, carry: Any) -> Any:
        matrix, vector = carry
        line = matrix[row]
        x, y = line[row], vector[row]
        length = fnp.hypot(x, y)
        known = bind(ne_p, length, literal(0, length.dtype))
        safe = fnp.where(known, length, 1)
        cosine, sine = fnp.where(known, x / safe, 1), fnp.where(known, y / safe, 0)
        return matrix.at[row].set(cosine * line + sine * vector), cosine * vector - sine * line

    return upper_part(fori_loop(0, r.shape[0], rotate, (r, w))[0])


def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """(u, h, iterations, converged) of the polar decomposition x = u h, u with orthonormal columns and h Hermitian.

    Computed from the singular values, so in one step: Higham, "Computing the polar decomposition" (1986), equation 2.2.
    """
    if dynamic_shape is not None:
        raise UnsupportedError("qdwh takes whole matrices; cut out the part that is meant")
    value = as_value(x, "qdwh")
    s, u, vh = bind(svd_p, value, full_matrices=False, compute_uv=True)
    unitary = u @ vh
    h = adjoint(vh) @ (s[..., :, None].astype(value.dtype) * vh)
    return unitary, (h + adjoint(h)) / 2, literal(1, np.dtype("int32")), literal(True, np.dtype("bool"))
