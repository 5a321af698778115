"""Factorisations that NumPy lacks, by LAPACK through SciPy (imported when first used): lu, eig, schur, hessenberg, geqrf, tridiagonal.

Library calls on the last two dimensions, with operands, params and results of JAX's primitives. eig has the derivative of its
eigenvectors where it is asked for; schur, hessenberg, geqrf and tridiagonal have none, as in JAX. schur, hessenberg and tridiagonal
are programs where no LAPACK is at hand (expansions/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir.primitive import Primitive
from fuser.ir.source import current_source
from fuser.ir.types import COMPLEX, ArrayType, is_complex
from fuser.ops.elementwise import abs_p, complex_p, convert_element_type_p, eq_p
from fuser.ops.expansions import condensed, schur
from fuser.ops.expansions import factorisations as in_columns
from fuser.ops.family import real_part
from fuser.ops.linalg import each, factorisation
from fuser.ops.matrices import adjoint, check_matrices, diagonal, eye, lower_part, product, upper_part
from fuser.ops.movement import concatenate_p
from fuser.ops.reduce import reduce_max_p, reduce_sum_p
from fuser.ops.triangular import solve

INT32 = np.dtype("int32")
Pair = tuple[Any, Any]


def _without_derivative(name: str, way_out: str) -> Callable[..., Any]:
    def rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        raise UnsupportedError(
            f"{name} has no derivative with respect to its matrix ({current_source().short}); {way_out}, or hold it "
            "constant with fuser.lax.stop_gradient"
        )

    return rule


# lu.


def _lu_type(a: ArrayType) -> tuple[ArrayType, ArrayType, ArrayType]:
    check_matrices("lu", a)
    rows, columns = a.shape[-2:]
    lead = a.shape[:-2]
    pivots, permutation = (*lead, min(rows, columns)), (*lead, rows)
    return ArrayType(a.shape, a.dtype), ArrayType(pivots, INT32), ArrayType(permutation, INT32)


def permutation_of(pivots: np.ndarray, size: int) -> np.ndarray:
    """The order of rows in which these exchanges, one after another, leave them."""
    order = np.arange(size, dtype=np.int32)
    for row, other in enumerate(pivots):
        order[row], order[other] = order[other], order[row]
    return order


def _lu_eval(a: np.ndarray) -> tuple[np.ndarray, ...]:
    from scipy.linalg import lapack

    getrf = lapack.get_lapack_funcs("getrf", (np.zeros((1, 1), a.dtype),))

    def one(matrix: np.ndarray) -> tuple[np.ndarray, ...]:
        factors, pivots, info = getrf(matrix)
        if info > 0 and not np.isfinite(matrix).all():
            factors = np.full_like(factors, np.nan)
        return factors, pivots, permutation_of(pivots, matrix.shape[0])

    return each(a, _lu_type(ArrayType(a.shape, a.dtype)), one)


def _lu_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """∂L = L₁ tril(F, -1), ∂U = triu(F) U₁ with F = L₁⁻¹ P∂A U₁⁻¹ for the square parts; the rest of L or U from P A = L U.

    The rows' order stays as it is. Differentiated from the definition; for square matrices as in Lu and Murray (2015).
    """
    (a,), (t,) = primals, tangents
    lu, pivots, permutation = lu_p.bind(a)
    moving = _rows_in_order(t, permutation)
    rows, columns = a.shape[-2:]
    k = min(rows, columns)
    upper = upper_part(lu[..., :k, :k])
    lower = lower_part(lu[..., :k, :k], -1) + eye(k, lu.dtype)
    inner = solve(upper, solve(lower, moving[..., :k, :k], lower=True), left_side=False)
    d_lower, d_upper = product(lower, lower_part(inner, -1)), product(upper_part(inner), upper)
    tangent = d_lower + d_upper
    if rows > k:
        rest = solve(upper, moving[..., k:, :] - product(lu[..., k:, :], d_upper), left_side=False)
        tangent = concatenate_p.bind(tangent, rest, dimension=a.ndim - 2)
    if columns > k:
        rest = solve(lower, moving[..., k:] - product(d_lower, lu[..., k:]), lower=True)
        tangent = concatenate_p.bind(tangent, rest, dimension=a.ndim - 1)
    return (lu, pivots, permutation), (tangent, _no_tangent(pivots), _no_tangent(permutation))


def _rows_in_order(x: Any, permutation: Any) -> Any:
    from fuser.ops.matrices import position_of

    rows = x.shape[-2]
    place = position_of((*permutation.shape, rows), 1)
    order = permutation[..., None] + place * 0
    chosen = convert_element_type_p.bind(eq_p.bind(order, place), new_dtype=x.dtype, weak_type=False)
    return product(chosen, x)


def _no_tangent(x: Any) -> Any:
    from fuser.trace.tangent import zero_like

    return zero_like(x)


# L (unit lower triangular) and U in one matrix with P A = L U, by partial pivoting; the row exchanged with each, and P's rows.
lu_p: Primitive = factorisation(
    "lu",
    _lu_type,
    _lu_eval,
    _lu_jvp,
    [((4, 4), {}), ((2, 3, 3), {}), ((5, 3), {}), ((2, 3, 4), {})],
    expand=in_columns.lu,
)


# eig.


def complex_of(dtype: np.dtype) -> np.dtype:
    """The complex dtype of a real one; a complex one itself."""
    return dtype if is_complex(dtype) else COMPLEX[dtype.itemsize // 8]


def _eig_type(
    a: ArrayType,
    compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
    enable_eigvec_derivs: bool = False,
) -> tuple[ArrayType, ...]:
    check_matrices("eig", a, square=True)
    dtype = complex_of(a.dtype)
    vectors = ArrayType(a.shape, dtype)
    return (ArrayType(a.shape[:-1], dtype), *[vectors] * (compute_left_eigenvectors + compute_right_eigenvectors))


def _eig_eval(
    a: np.ndarray,
    compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
    enable_eigvec_derivs: bool = False,
) -> tuple[np.ndarray, ...]:
    types = _eig_type(ArrayType(a.shape, a.dtype), compute_left_eigenvectors, compute_right_eigenvectors)

    def one(matrix: np.ndarray) -> tuple[np.ndarray, ...]:
        if not np.isfinite(matrix).all():
            return tuple(np.full(t.shape[len(t.shape) - n :], np.nan) for t, n in zip(types, (1, 2, 2)))
        if not compute_left_eigenvectors:
            found = np.linalg.eig(matrix) if compute_right_eigenvectors else (np.linalg.eigvals(matrix),)
            return tuple(found)
        from scipy.linalg import eig

        return eig(matrix, left=True, right=compute_right_eigenvectors)

    return each(a, types, one)


def _eig_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
    enable_eigvec_derivs: bool = False,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """∂w is the diagonal of V⁻¹ ∂A V; left eigenvectors are right ones of Aᴴ, whose eigenvalues are conjugate.

    Boeddeker et al., "On the computation of complex-valued gradients" (2017), eq. 4.77.
    """
    left, right = compute_left_eigenvectors, compute_right_eigenvectors
    if (left or right) and not enable_eigvec_derivs:
        raise UnsupportedError(
            "eig has no derivative with respect to its matrix for eigenvectors of a matrix that is not symmetric "
            f"({current_source().short}): Derivatives of non-symmetric eigenvectors are only valid where all eigenvalues differ and "
            "no eigenvector has two largest elements; pass enable_eigvec_derivs=True to fuser.lax.linalg.eig if yours are so, or "
            "use eigvals, or eigh for symmetric matrices"
        )
    (a,), (t,) = primals, tangents
    found = eig_p.bind(
        a,
        compute_left_eigenvectors=left,
        compute_right_eigenvectors=True,
        enable_eigvec_derivs=enable_eigvec_derivs,
    )
    w, v = found[0], found[-1]
    t = t.astype(w.dtype)
    dw, dv = _eigenvectors_jvp(w, v, t)
    out, tangents_out = [w], [dw]
    if left:
        out.append(found[1])
        tangents_out.append(_eigenvectors_jvp(w.conj(), found[1], adjoint(t))[1])
    if right:
        out.append(v)
        tangents_out.append(dv)
    return tuple(out), tuple(tangents_out)


def _eigenvectors_jvp(w: Any, v: Any, t: Any) -> Pair:
    """Perturbation of simple eigenvalues, and of vectors whose length stays 1 and whose largest element stays real, as LAPACK has them.

    Giles, "An extended collection of matrix derivative results" (2008), 3.1, gives each vector's tangent but for a multiple of the vector.
    """
    lu, _, permutation = lu_p.bind(v)
    lower = lower_part(lu, -1) + eye(lu.shape[-1], lu.dtype)
    moving = _rows_in_order(product(t, v), permutation)
    inner = solve(upper_part(lu), solve(lower, moving, lower=True))
    ones = eye(w.shape[-1], w.dtype)
    gaps = 1 / (ones + w[..., None, :] - w[..., :, None]) - ones
    turned = product(v, gaps * inner)
    size = reduce_max_p.bind(abs_p.bind(v), axes=(v.ndim - 2,))[..., None, :]
    largest = convert_element_type_p.bind(
        eq_p.bind(abs_p.bind(v), size + 0 * abs_p.bind(v)), new_dtype=v.dtype, weak_type=False
    )
    total = lambda x: reduce_sum_p.bind(x, axes=(x.ndim - 2,))
    real = -total(v.conj() * turned).real
    imaginary = -total(largest * turned).imag / total(largest * v).real
    return diagonal(inner), turned + v * complex_p.bind(real, imaginary)[..., None, :]


# Eigenvalues; with them, where asked for, the left (uᴴ A = w uᴴ) and right eigenvectors in columns, of length 1.
eig_p: Primitive = factorisation(
    "eig",
    _eig_type,
    _eig_eval,
    _eig_jvp,
    [
        ((2, 3, 3), {"compute_left_eigenvectors": True, "compute_right_eigenvectors": True}),
        ((4, 4), {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}),
    ],
)


# schur.


def _schur_type(
    a: ArrayType, compute_schur_vectors: bool = True, sort_eig_vals: bool = False, select_callable: None = None
) -> tuple[ArrayType, ...]:
    check_matrices("schur", a, square=True)
    return (ArrayType(a.shape, a.dtype),) * (2 if compute_schur_vectors else 1)


def _schur_eval(a: np.ndarray, compute_schur_vectors: bool = True, **params: Any) -> tuple[np.ndarray, ...]:
    from scipy.linalg import schur

    kind = "complex" if is_complex(a.dtype) else "real"
    types = _schur_type(ArrayType(a.shape, a.dtype), compute_schur_vectors)
    return each(a, types, lambda matrix: schur(matrix, kind)[: len(types)])


# T, quasi-upper triangular for real matrices, and the unitary Z with A = Z T Zᴴ.
schur_p: Primitive = factorisation(
    "schur",
    _schur_type,
    _schur_eval,
    _without_derivative("schur", "use eigh for symmetric matrices"),
    [((4, 4), {"compute_schur_vectors": True, "sort_eig_vals": False, "select_callable": None})],
    expand=schur.schur,
)


# hessenberg.


def _hessenberg_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_matrices("hessenberg", a, square=True)
    return ArrayType(a.shape, a.dtype), ArrayType((*a.shape[:-2], max(a.shape[-1] - 1, 0)), a.dtype)


def _hessenberg_eval(a: np.ndarray) -> tuple[np.ndarray, ...]:
    from scipy.linalg import lapack

    gehrd = lapack.get_lapack_funcs("gehrd", (np.zeros((1, 1), a.dtype),))
    return each(a, _hessenberg_type(ArrayType(a.shape, a.dtype)), lambda matrix: gehrd(matrix)[:2])


# H in the upper triangle and first subdiagonal; below them, and in the second result, Householder's reflections that make Q.
hessenberg_p: Primitive = factorisation(
    "hessenberg",
    _hessenberg_type,
    _hessenberg_eval,
    _without_derivative("hessenberg", "use qr"),
    [((4, 4), {}), ((2, 3, 3), {})],
    expand=condensed.hessenberg,
)


# geqrf.


def _geqrf_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_matrices("geqrf", a)
    return ArrayType(a.shape, a.dtype), ArrayType((*a.shape[:-2], min(a.shape[-2:])), a.dtype)


def _geqrf_eval(a: np.ndarray) -> tuple[np.ndarray, ...]:
    from scipy.linalg import lapack

    geqrf = lapack.get_lapack_funcs("geqrf", (np.zeros((1, 1), a.dtype),))
    return each(a, _geqrf_type(ArrayType(a.shape, a.dtype)), lambda matrix: geqrf(matrix)[:2])


# R in the upper triangle; below it, and in the second result, Householder's reflections that make Q.
geqrf_p: Primitive = factorisation(
    "geqrf",
    _geqrf_type,
    _geqrf_eval,
    _without_derivative("geqrf", "use qr"),
    [((4, 3), {}), ((2, 3, 3), {}), ((2, 5), {})],
    expand=in_columns.geqrf,
)


# tridiagonal.


def _tridiagonal_type(a: ArrayType, lower: bool = True) -> tuple[ArrayType, ...]:
    check_matrices("tridiagonal", a, square=True)
    if not a.shape[-1]:
        raise TypeError(f"tridiagonal needs matrices of at least one row, got {a}")
    lead, n = a.shape[:-2], a.shape[-1]
    real = real_part(a.dtype)
    return (
        ArrayType(a.shape, a.dtype),
        ArrayType((*lead, n), real),
        ArrayType((*lead, n - 1), real),
        ArrayType((*lead, n - 1), a.dtype),
    )


def _tridiagonal_eval(a: np.ndarray, lower: bool = True) -> tuple[np.ndarray, ...]:
    from scipy.linalg import lapack

    name = "hetrd" if is_complex(a.dtype) else "sytrd"
    reduce = lapack.get_lapack_funcs(name, (np.zeros((1, 1), a.dtype),))
    return each(a, _tridiagonal_type(ArrayType(a.shape, a.dtype)), lambda matrix: reduce(matrix, lower=int(lower))[:4])


# A Hermitian matrix as Q T Qᴴ: the reflections that make Q in a triangle, T's diagonal and off-diagonal, the reflections' scales.
tridiagonal_p: Primitive = factorisation(
    "tridiagonal",
    _tridiagonal_type,
    _tridiagonal_eval,
    _without_derivative("tridiagonal", "use eigh"),
    [((4, 4), {"lower": True}), ((2, 3, 3), {"lower": False})],
    expand=condensed.tridiagonal,
)
