"""Matrix factorisations: cholesky, qr, eigh and svd of the last two dimensions, by LAPACK through NumPy; library calls.

Results come in the order of JAX's primitives: (v, w) of eigh, (s, u, vh) of svd. Where LAPACK fails they are nan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.config import config
from fuser.errors import UnsupportedError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType, is_complex
from fuser.ops.elementwise import convert_element_type_p, eq_p
from fuser.ops.expansions import factorisations as in_columns
from fuser.ops.family import constant, real_part, sample
from fuser.ops.matrices import DTYPES, adjoint, check_matrices, diagonal, eye, lower_part, product, transposed
from fuser.ops.movement import concatenate_p
from fuser.ops.triangular import solve
from fuser.runtime.blas_threads import ALONE, ALONE_IN_STEPS, one_thread
from fuser.trace.batch import moved
from fuser.trace.core import type_of
from fuser.trace.tangent import full

Pair = tuple[Any, Any]
_BLOCKED = ("lu", "cholesky")  # those whose work is products of blocks


def factorisation(
    name: str,
    type: Callable[..., Any],
    eval: Callable[..., Any],
    jvp: Callable[..., Any],
    cases: Sequence[tuple[tuple[int, ...], dict[str, Any]]],
    expand: Callable[..., Any] | None = None,
) -> Primitive:
    """A primitive on stacks of matrices; samples are Hermitian and positive definite where they are square."""

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for dtype in DTYPES:
            for shape, params in cases:
                a = sample(rng, shape, dtype)
                definite = a @ np.conj(np.swapaxes(a, -1, -2)) + 5 * np.eye(shape[-2], dtype=dtype)
                yield (definite.astype(dtype) if shape[-1] == shape[-2] else a,), params

    def batch(operands: Sequence[Any], dims: Sequence[int | None], **given: Any) -> tuple[Any, Any]:
        out = primitive.bind(moved(operands[0], dims[0], 0), **given)
        return out, [0] * len(out) if primitive.multiple_results else 0

    def evaluate(a: np.ndarray, **params: Any) -> Any:
        rows, columns = a.shape[-2:]
        with one_thread(rows * columns * min(rows, columns), ALONE if name in _BLOCKED else ALONE_IN_STEPS):
            found = _or_nan(eval, type, a, params)
        return found if several else np.tril(found[0])  # a factor that there is none of has zeros above too, as in JAX

    def derivative(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        # The rules mix real factors with complex ones, and a stack with one matrix: what the user forbids is for his own lines.
        with config.using(numpy_dtype_promotion="standard", numpy_rank_promotion="allow"):
            return jvp(primals, tangents, **params)

    several = name != "cholesky"
    primitive = Primitive(
        name,
        Fusion.LIBRARY,
        multiple_results=several,
        type=type,
        eval=evaluate,
        jvp=derivative,
        batch=batch,
        expand=expand,
        samples=samples,
    )
    return register(primitive)


def each(
    a: np.ndarray, types: Sequence[ArrayType], one: Callable[[np.ndarray], Sequence[np.ndarray]]
) -> tuple[np.ndarray, ...]:
    """`one` on each matrix of a stack; the results are of `types`. Factors of matrices without elements are identities."""
    if not a.size:
        return tuple(_identity(t.shape, t.dtype) for t in types)
    found = [one(matrix) for matrix in a.reshape(-1, *a.shape[-2:])]
    return tuple(np.stack(part).reshape(t.shape).astype(t.dtype) for part, t in zip(zip(*found), types))


def _identity(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The permutation (of integers), or the matrices, that leave all as it is."""
    if dtype.kind == "i":
        one: np.ndarray = np.arange(shape[-1])
    else:
        one = np.eye(shape[-2], shape[-1]) if len(shape) > 1 else np.zeros(shape)
    return np.broadcast_to(one, shape).astype(dtype)


def _or_nan(eval: Callable[..., Any], type: Callable[..., Any], a: np.ndarray, params: dict[str, Any]) -> Any:
    """The factors of each matrix, in a tuple; nan those of one that LAPACK has none of."""
    try:
        return eval(a, **params)
    except (np.linalg.LinAlgError, ValueError):  # as LAPACK found nan, or did not converge
        if a.ndim > 2:
            return tuple(map(np.stack, zip(*(_or_nan(eval, type, matrix, params) for matrix in a))))
        found = type(ArrayType(a.shape, a.dtype), **params)
        return tuple(np.full(t.shape, np.nan, t.dtype) for t in (found if isinstance(found, tuple) else (found,)))


# cholesky.


def _cholesky_type(a: ArrayType) -> ArrayType:
    check_matrices("cholesky", a, square=True)
    return ArrayType(a.shape, a.dtype)


def _cholesky_eval(a: np.ndarray) -> tuple[np.ndarray, ...]:
    from scipy.linalg import cholesky

    return each(a, [_cholesky_type(type_of(a))], lambda x: [cholesky(x.T, check_finite=False).T])


def _cholesky_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Pair:
    """L φ(L⁻¹ ∂A L⁻ᴴ) with φ the lower triangle, its diagonal halved; ∂A counts as Hermitian.

    Murray, "Differentiation of the Cholesky decomposition" (2016).
    """
    factor = cholesky_p.bind(primals[0])
    whitened = solve(factor, tangents[0], left_side=False, lower=True, adjoint=True)
    inner = lower_part(solve(factor, whitened, lower=True))
    return factor, product(factor, inner / (1 + eye(inner.shape[-1], inner.dtype)))


# The lower triangular factors L of A = L Lᴴ; A's lower triangle is read.
cholesky_p: Primitive = factorisation(
    "cholesky",
    _cholesky_type,
    _cholesky_eval,
    _cholesky_jvp,
    [((4, 4), {}), ((3, 2, 2), {})],
    expand=in_columns.cholesky,
)


# qr.


def _qr_type(a: ArrayType, full_matrices: bool = False) -> tuple[ArrayType, ArrayType]:
    check_matrices("qr", a)
    rows, columns = a.shape[-2:]
    inner = rows if full_matrices else min(rows, columns)
    return ArrayType((*a.shape[:-1], inner), a.dtype), ArrayType((*a.shape[:-2], inner, columns), a.dtype)


def _qr_eval(a: np.ndarray, full_matrices: bool = False) -> tuple[np.ndarray, ...]:
    from scipy.linalg import qr

    mode = "full" if full_matrices else "economic"
    return each(a, _qr_type(type_of(a), full_matrices), lambda x: qr(x, mode=mode, check_finite=False))


def _thin_qr_jvp(q: Any, r: Any, t: Any) -> Pair:
    """The tangents of q and r where there are as many columns as rows at least; R's diagonal is real.

    Townsend, "Differentiating the QR decomposition" (2018).
    """
    scaled = solve(r, t, left_side=False)
    inner = product(adjoint(q), scaled)
    below = lower_part(inner, -1)
    turn = below - adjoint(below)
    if is_complex(inner.dtype):
        turn = turn + eye(r.shape[-1], inner.dtype) * (inner - inner.real)
    return product(q, turn - inner) + scaled, product(inner - turn, r)


def _qr_jvp(primals: Sequence[Any], tangents: Sequence[Any], full_matrices: bool = False) -> tuple[Pair, Pair]:
    (a,), (t,) = primals, tangents
    rows, columns = a.shape[-2:]
    q, r = qr_p.bind(a, full_matrices=full_matrices)
    if rows < columns:  # A = Q [R₁ R₂]: the square part gives Q and R₁, and R₂ = Qᴴ A₂
        dq, dr = _thin_qr_jvp(q, r[..., :rows], t[..., :rows])
        rest = product(adjoint(dq), a[..., rows:]) + product(adjoint(q), t[..., rows:])
        return (q, r), (dq, concatenate_p.bind(dr, rest, dimension=a.ndim - 1))
    thin, square = q[..., :columns], r[..., :columns, :]
    dq, dr = _thin_qr_jvp(thin, square, t)
    if full_matrices and rows > columns:
        more = _complement_jvp(thin, q[..., columns:], dq)
        dq = concatenate_p.bind(dq, more, dimension=a.ndim - 1)
        aval = type_of(r)
        below = full(aval.update(shape=(*aval.shape[:-2], rows - columns, columns)), 0)
        dr = concatenate_p.bind(dr, below, dimension=a.ndim - 2)
    return (q, r), (dq, dr)


def _complement_jvp(thin: Any, more: Any, dq: Any) -> Any:
    """The tangent of Q's columns beyond those of A, which Householder's reflections determine.

    Roberts and Roberts, "QR and LQ decomposition matrix backpropagation algorithms" (2020) leaves them out; the formula,
    with Z = Q₂ (Q₁ - I)⁻¹ for Q's upper and lower rows, is equation 32 of arXiv:2409.13374.
    """
    n = thin.shape[-1]
    upper, lower = thin[..., :n, :], thin[..., n:, :]
    q, r = qr_p.bind(upper - eye(n, upper.dtype), full_matrices=False)
    z = product(solve(r, lower, left_side=False), adjoint(q))
    moving = dq[..., n:, :] - product(z, dq[..., :n, :])
    return product(dq, adjoint(z)) - product(thin + product(more, z), adjoint(moving))


qr_p: Primitive = factorisation(
    "qr",
    _qr_type,
    _qr_eval,
    _qr_jvp,
    [((4, 3), {"full_matrices": False}), ((2, 3, 4), {"full_matrices": False}), ((5, 3), {"full_matrices": True})],
    expand=in_columns.qr,
)


# eigh.


def _eigh_type(a: ArrayType, lower: bool = True) -> tuple[ArrayType, ArrayType]:
    check_matrices("eigh", a, square=True)
    return ArrayType(a.shape, a.dtype), ArrayType(a.shape[:-1], real_part(a.dtype))


def _eigh_eval(a: np.ndarray, lower: bool = True) -> tuple[np.ndarray, ...]:
    from scipy.linalg import eigh

    of = lambda x: eigh(x, lower=lower, driver="evd", check_finite=False)[::-1]
    return each(a, _eigh_type(type_of(a), lower), of)


def _eigh_jvp(primals: Sequence[Any], tangents: Sequence[Any], lower: bool = True) -> tuple[Pair, Pair]:
    """Perturbation of simple eigenvalues; inf and nan where two are equal. The tangent counts as Hermitian.

    Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008), 3.1.
    """
    v, w = eigh_p.bind(primals[0], lower=lower)
    inner = product(product(adjoint(v), tangents[0]), v)
    ones = eye(w.shape[-1], w.dtype)
    gaps = 1 / (ones + w[..., None, :] - w[..., :, None]) - ones
    return (v, w), (product(v, gaps.astype(inner.dtype) * inner), diagonal(inner.real))


# Eigenvectors in columns, and their eigenvalues in ascending order; one triangle is read.
eigh_p: Primitive = factorisation(
    "eigh",
    _eigh_type,
    _eigh_eval,
    _eigh_jvp,
    [((4, 4), {"lower": True}), ((3, 2, 2), {"lower": False})],
    expand=in_columns.eigh,
)


# svd.


def _svd_type(a: ArrayType, full_matrices: bool = True, compute_uv: bool = True) -> tuple[ArrayType, ...]:
    check_matrices("svd", a)
    (rows, columns), least = a.shape[-2:], min(a.shape[-2:])
    left, right = (rows, columns) if full_matrices else (least, least)
    lead = a.shape[:-2]
    values = ArrayType((*lead, least), real_part(a.dtype))
    if not compute_uv:
        return (values,)
    return values, ArrayType((*lead, rows, left), a.dtype), ArrayType((*lead, right, columns), a.dtype)


def _svd_eval(a: np.ndarray, full_matrices: bool = True, compute_uv: bool = True) -> tuple[np.ndarray, ...]:
    from scipy.linalg import svd

    def one(matrix: np.ndarray) -> Sequence[np.ndarray]:
        found = svd(matrix, full_matrices, compute_uv, check_finite=False)
        return (found[1], found[0], found[2]) if compute_uv else (found,)

    return each(a, _svd_type(type_of(a), full_matrices, compute_uv), one)


def _svd_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], full_matrices: bool = True, compute_uv: bool = True
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Perturbation of simple singular values; inf and nan for vectors where two are equal.

    Giles (2008), 3.2; for complex matrices Wan and Zhang, "Automatic differentiation for complex valued SVD" (2019).
    """
    (a,), (t,) = primals, tangents
    rows, columns = a.shape[-2:]
    if compute_uv and full_matrices and rows != columns:
        raise UnsupportedError(
            f"svd of {type_of(a)} has no derivative with full_matrices=True: the vectors beyond the singular values are "
            f"any basis ({current_source().short}); use full_matrices=False"
        )
    s, u, vh = svd_p.bind(a, full_matrices=False, compute_uv=True)
    v = adjoint(vh)
    inner = product(product(adjoint(u), t), v)
    ds = diagonal(inner.real)
    if not compute_uv:
        return (s,), (ds,)
    du, dv = _svd_vectors_jvp(s, inner)
    du, dv = product(u, du), product(v, dv)
    line = s[..., None, :]
    if rows > columns:
        image = product(t, v)
        du = du + (image - product(u, product(adjoint(u), image))) / line
    if columns > rows:
        image = product(adjoint(t), u)
        dv = dv + (image - product(v, product(vh, image))) / line
    return (s, u, vh), (ds, du, adjoint(dv))


def _svd_vectors_jvp(s: Any, inner: Any) -> Pair:
    """The tangents of u and v in their own bases, from Uᴴ ∂A V; their common phase turns u alone."""
    line, ones = s[..., None, :], eye(s.shape[-1], s.dtype)
    column = transposed(line)
    gaps = 1 / ((line + column) * (line - column) + ones) - ones
    right, left = line * inner, column * inner
    du, dv = gaps * (right + adjoint(right)), gaps * (left + adjoint(left))
    if is_complex(inner.dtype):
        zeros = convert_element_type_p.bind(eq_p.bind(s, constant(0, s)), new_dtype=s.dtype, weak_type=False)
        inverse = 1 / (s + zeros) - zeros
        du = du + 0.5 * (inner - adjoint(inner)) * (inverse[..., None, :] * ones)
    return du, dv


# Singular values in descending order, left vectors in columns, and right vectors conjugated in rows.
svd_p: Primitive = factorisation(
    "svd",
    _svd_type,
    _svd_eval,
    _svd_jvp,
    [
        ((3, 5), {"full_matrices": True, "compute_uv": True}),
        ((4, 3), {"full_matrices": False, "compute_uv": True}),
        ((2, 3, 4), {"full_matrices": False, "compute_uv": True}),
        ((2, 3, 3), {"full_matrices": True, "compute_uv": True}),
        ((4, 3), {"full_matrices": True, "compute_uv": False}),
    ],
    expand=in_columns.svd,
)
