"""Linear algebra of `fuser.numpy`: factorisations, systems and norms, with jax.numpy.linalg's names, results and derivatives.

Everything works on the last two dimensions; integers become the default float.
"""

# ruff: noqa: F401

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fuser import dtypes
from fuser.ir.types import is_complex
from fuser.lax import linalg
from fuser.lax.factorisations import geqrf
from fuser.lax.marks import stop_gradient
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.replayed import install as _install_replays
from fuser.lax.solves import custom_linear_solve
from fuser.lax.values import as_value, axes_of, broadcast_to, promote_inexact
from fuser.numpy import linear as L
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import eye
from fuser.numpy.linear import matmul as _matmul
from fuser.numpy.linear import matvec, vecdot, vecmat
from fuser.numpy.linear import tensordot as _tensordot
from fuser.numpy.movement import matrix_transpose
from fuser.numpy.selection import take_along_axis
from fuser.numpy.sorting import argsort
from fuser.numpy.systems import (
    EigResult,
    SlogdetResult,
    cond,
    cross,
    det,
    diagonal,
    eig,
    eigvals,
    lstsq,
    matrix_power,
    matrix_rank,
    multi_dot,
    pinv,
    slogdet,
    tensorinv,
    tensorsolve,
    trace,
)
from fuser.numpy.vectorize import vectorize
from fuser.ops.dot import Precision
from fuser.ops.matrices import adjoint


def matmul(x1: Any, x2: Any, /, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The matrix product, as `fuser.numpy.matmul`."""
    return _matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: Any,
    x2: Any,
    /,
    *,
    axes: Any = 2,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Sums of products along pairs of `axes`, as `fuser.numpy.tensordot`."""
    return _tensordot(
        x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type, out_sharding=out_sharding
    )


class EighResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    Q: Any
    R: Any


class SVDResult(NamedTuple):
    U: Any
    S: Any
    Vh: Any


# Factorisations.


def outer(x1: Any, x2: Any, /) -> Any:
    """Every product of an element of `x1` and one of `x2`, vectors, as a matrix. ValueError for arrays of another rank."""
    x1, x2 = as_value(x1, "outer"), as_value(x2, "outer")
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(
            f"Input arrays must be one-dimensional, but they are {x1.ndim=} {x2.ndim=}; use fuser.numpy.outer"
        )
    return L.outer(x1, x2)


def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """The lower triangular L with L Lᴴ = a, or its adjoint if `upper`; nan where `a` is not positive definite.

    The Hermitian part of `a` is factored, or with `symmetrize_input=False` what its lower triangle says.
    """
    (x,) = promote_inexact("cholesky", a)
    factor = linalg.cholesky(x, symmetrize_input=symmetrize_input)
    return adjoint(factor) if upper else factor


def qr(a: Any, mode: str = "reduced") -> Any:
    """(Q, R) with Q R = a; "complete" for a square Q, "r" for R alone. ValueError for another mode.

    "raw" gives LAPACK's (h, tau): `h.mT` and `tau` are what lax.linalg.ormqr multiplies with Q by.
    """
    (x,) = promote_inexact("qr", a)
    if mode == "raw":
        reduced, taus = geqrf(x)
        return QRResult(reduced.mT, taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f'qr takes the modes "reduced", "complete", "r" and "raw", got {mode!r}')
    result = QRResult(*linalg.qr(x, full_matrices=mode == "complete"))
    return result.R if mode == "r" else result


def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues in ascending order and eigenvectors in columns, of the Hermitian part of `a`.

    With `symmetrize_input=False` the triangle that `UPLO` names is read ("L" unless told). Derivatives of eigenvectors are
    inf or nan where eigenvalues are equal.
    """
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    (x,) = promote_inexact("eigh", a)
    v, w = linalg.eigh(x, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, v)


def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Any:
    """The eigenvalues that `eigh` gives; first derivatives are finite also where some are equal."""
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """(U, S, Vh) with U diag(S) Vh = a, S in descending order; S alone without `compute_uv`.

    A `hermitian` one goes by eigh. `subset_by_index` takes those from the first of two positions up to the second, in the order of
    eigenvalues for a `hermitian` one, and goes with `full_matrices=False` else (ValueError). Derivatives of U and Vh need `full_matrices=False` where `a` is not square
    (UnsupportedError); they are inf or nan where singular values are equal.
    """
    (x,) = promote_inexact("svd", a)
    if not hermitian:
        found = linalg.svd(x, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
        return SVDResult(*found) if compute_uv else found
    v, w = linalg.eigh(x, subset_by_index=subset_by_index)
    order = argsort(U.abs(w), descending=True)
    s = take_along_axis(U.abs(w), order)
    if not compute_uv:
        return s
    u = take_along_axis(v, order[..., None, :], -1)
    return SVDResult(u, s, adjoint(u * U.sign(take_along_axis(w, order))[..., None, :]))


def svdvals(x: Any, /) -> Any:
    """The singular values in descending order; first derivatives are finite also where some are equal."""
    return svd(x, compute_uv=False)


# Systems.


def solve(a: Any, b: Any) -> Any:
    """x with a x = b, by an LU factorisation that derivatives share; leading dimensions broadcast.

    `b` is a vector if it has 1 dimension, else a stack of matrices. ValueError for shapes that do not fit.
    """
    x, y = promote_inexact("solve", a, b)
    fits = x.ndim >= 2 and x.shape[-1] == x.shape[-2] and y.ndim >= 1 and x.shape[-1] == y.shape[max(y.ndim - 2, 0)]
    if not fits:
        raise ValueError(f"solve takes a (..., m, m) and b (m,) or (..., m, n), got shapes {x.shape} and {y.shape}")
    return vectorize(_solve, signature="(m,m),(m)->(m)" if y.ndim == 1 else "(m,m),(m,n)->(m,n)")(x, y)


def _solve(a: Any, b: Any) -> Any:
    factors, _, permutation = linalg.lu(stop_gradient(a))

    def forwards(_: Any, y: Any) -> Any:
        z = linalg.triangular_solve(factors, y[permutation], left_side=True, lower=True, unit_diagonal=True)
        return linalg.triangular_solve(factors, z, left_side=True)

    def transposed(_: Any, y: Any) -> Any:
        z = linalg.triangular_solve(factors, y, left_side=True, transpose_a=True)
        z = linalg.triangular_solve(factors, z, left_side=True, lower=True, transpose_a=True, unit_diagonal=True)
        return z[argsort(permutation)]

    return custom_linear_solve(lambda x: _matmul(a, x, precision=Precision.HIGHEST), b, forwards, transposed)


def inv(a: Any) -> Any:
    """The inverse matrices; ValueError unless they are square."""
    (x,) = promote_inexact("inv", a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"inv takes a stack of square matrices, got shape {x.shape}")
    return solve(x, broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape))


# Norms.


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of the vectors along one axis, or of the matrices over two; of all elements together without `ord` and `axis`.

    Vectors: ord 2 unless told, any number, ±inf, 0 (how many are not 0). Matrices: "fro" unless told, "nuc", ±1, ±2, ±inf.
    Derivatives are those of the formula √Σ|x|², as in JAX: at 0 the norms with a root (2, "fro", and ord other than 1, 0
    and ±inf) have gradient nan. |x| has derivative 1 at 0 going up, so ord 1 has gradient 1 there; what is shared by the
    greatest elements, and with 0 where the norm is 0, is split evenly among them.
    """
    (value,) = promote_inexact("norm", x)
    if axis is None and ord is None:
        return _length(value, None, keepdims)
    axes = tuple(range(value.ndim)) if axis is None else axes_of(axis, value.ndim, "norm")
    if len(axes) == 1:
        return vector_norm(value, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ValueError(f"norm takes one axis for vectors or two for matrices, got {axes}")
    return _matrix_norm(value, ord, axes, keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """`norm` of what stands along any number of axes (all unless told), taken as one vector."""
    value = as_value(x, "vector_norm")
    if isinstance(ord, str):
        raise ValueError(f"vector_norm takes a number as ord, got {ord!r}")
    if ord is None or ord == 2:
        return _length(value, axis, keepdims)
    if ord == 0:
        real = np.zeros((), dtypes.inexact_of(value.dtype)).real.dtype
        return R.sum(U.not_equal(value, 0), axis, real, keepdims=keepdims)
    size = U.abs(value)
    if ord == np.inf:
        return R.max(size, axis, keepdims=keepdims, initial=0)
    if ord == -np.inf:
        return R.min(size, axis, keepdims=keepdims)
    if ord == 1:
        return R.sum(size, axis, keepdims=keepdims)
    return U.power(R.sum(U.power(size, ord), axis, keepdims=keepdims), 1 / ord)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """`norm` of the matrices in the last two dimensions."""
    return norm(x, ord, (-2, -1), keepdims)


def _length(x: Any, axis: Any, keepdims: bool) -> Any:
    squares = M.real(x * M.conj(x)) if is_complex(x.dtype) else x * x
    return U.sqrt(R.sum(squares, axis, keepdims=keepdims))


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    row, column = axes
    if ord in (None, "f", "fro"):
        return _length(x, axes, keepdims)
    if ord in ("nuc", 2, -2):
        s = svdvals(V.moveaxis(x, axes, (-2, -1)))
        found = R.sum(s, -1) if ord == "nuc" else R.max(s, -1, initial=0) if ord == 2 else R.min(s, -1)
        return V.expand_dims(found, axes) if keepdims else found
    if ord not in (1, -1, np.inf, -np.inf):
        raise ValueError(f"norm of matrices takes 'fro', 'nuc', ±1, ±2 and ±inf as ord, got {ord!r}")
    within, across = (row, column) if abs(ord) == 1 else (column, row)
    sums = R.sum(U.abs(x), within, keepdims=True)
    found = R.max(sums, across, keepdims=True, initial=0) if ord > 0 else R.min(sums, across, keepdims=True)
    return found if keepdims else V.squeeze(found, axes)


# What has several steps about a factorisation: one program, with the bits that it has under jit.
_COMPILED = """
cholesky cond det eigh eigvalsh inv lstsq matrix_power matrix_rank pinv qr slogdet solve svd svdvals tensorinv tensorsolve
"""
_install_ranks(globals(), "fuser.numpy")
_install_replays(globals(), "fuser.numpy", compiled=_COMPILED.split())
