"""Linear algebra with sparse matrices: a direct solver by SciPy, and the largest eigenvalues by LOBPCG."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.api.callbacks import pure_callback
from fuser.api.shapes import ShapeDtypeStruct
from fuser.experimental.sparse.matrices import CSR, csr_matmat
from fuser.gaps import absent

__all__ = ["lobpcg_standard", "spsolve"]


def spsolve(data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1) -> Any:
    """x with A x = b for the square CSR matrix of these buffers, by SciPy's SuperLU on the host.

    b is (n,) or (n, k), of the dtype of `data`. `tol` and `reorder` are JAX's for its GPU solver, and change nothing. Derivatives are
    those of the solution, with respect to data and b.
    """
    data, indices, indptr, b = map(fnp.asarray, (data, indices, indptr, b))
    n = indptr.shape[0] - 1
    if data.dtype != b.dtype:
        raise TypeError(f"data types do not match: {data.dtype=} {b.dtype=}")
    if b.ndim not in (1, 2) or b.shape[0] != n:
        raise ValueError(f"spsolve of a matrix of {n} rows takes b of shape ({n},) or ({n}, k), got {b.shape}")
    matvec = lambda x: csr_matmat(CSR((data, indices, indptr), shape=(n, n)), x)

    def solve(transposed: bool) -> Callable[[Any, Any], Any]:
        run = lambda d, i, p, rhs: _superlu(d, i, p, rhs, transposed)
        like = ShapeDtypeStruct(b.shape, b.dtype)
        return lambda _, rhs: pure_callback(run, like, data, indices, indptr, rhs, vmap_method="sequential")

    return lax.custom_linear_solve(matvec, b, solve(False), solve(True))


def _superlu(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, b: np.ndarray, transposed: bool) -> np.ndarray:
    import scipy.sparse
    import scipy.sparse.linalg

    n = len(indptr) - 1
    matrix = scipy.sparse.csr_matrix((np.asarray(data), np.asarray(indices), np.asarray(indptr)), (n, n))
    found = scipy.sparse.linalg.spsolve((matrix.T if transposed else matrix).tocsc(), np.asarray(b))
    return np.asarray(found, b.dtype).reshape(b.shape)


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: Any = None) -> tuple[Any, Any, Any]:
    """The largest eigenvalues (k,) of a symmetric matrix, eigenvectors (n, k), and how many iterations that took, at most `m`.

    A is (n, n) or a function of (n, k) arrays; X is (n, k), where to begin, with 0 < 5k < n (ValueError for others). It ends
    when every residual is below tol·10·n·(eigenvalue + norm of A v); `tol` is the dtype's epsilon by default.
    Knyazev, "Toward the optimal preconditioned eigensolver: LOBPCG" (2001); the basis is orthonormal: Duersch et al., "A robust
    and efficient implementation of LOBPCG" (2018).
    """
    X = fnp.asarray(X)
    apply = A if callable(A) else lambda v: fnp.asarray(A) @ v
    _check(A, X)
    _, k = X.shape
    limit = fnp.asarray(fnp.finfo(X.dtype).eps if tol is None else tol, X.dtype)

    def ritz(basis: Any) -> tuple[Any, Any, Any]:
        """The k largest Ritz values of an orthonormal basis, its coefficients of their vectors, and A of these."""
        image = apply(basis)
        small = basis.T @ image
        values, vectors = fnp.linalg.eigh((small + small.T) / 2)
        chosen = vectors[:, ::-1][:, :k]
        return values[::-1][:k], chosen, image @ chosen

    def unconverged(state: Any) -> Any:
        count, _, _, _, left = state
        return (count < m) & (left > 0)

    def iterate(state: Any) -> Any:
        count, X, P, residual, _ = state
        directions = _orthonormal(fnp.concatenate([X, P, _outside(X, residual)], 1))
        values, chosen, image = ritz(directions)
        following = directions @ chosen
        conjugate = _outside(following, _outside(X, following))
        residual, left = _residual(values, following, image, limit)
        return count + 1, following, conjugate, residual, left

    X = _orthonormal(X)
    values, chosen, image = ritz(X)
    X = X @ chosen
    residual, left = _residual(values, X, image, limit)
    count, X, _, _, _ = lax.while_loop(unconverged, iterate, (0, X, fnp.zeros_like(X), residual, left))
    return ritz(X)[0], X, fnp.asarray(count)


def _check(A: Any, X: Any) -> None:
    n, k = X.shape
    if k == 0:
        raise ValueError(f"must have search dim > 0, got {k}")
    if k * 5 >= n:
        raise ValueError(f"expected search dim * 5 < matrix dim (got {k * 5}, {n})")
    if not callable(A) and tuple(A.shape) != (n, n):
        raise ValueError(f"A is not a ({n}, {n}) matrix, got shape {tuple(A.shape)}")
    if not callable(A) and A.dtype != X.dtype:
        raise ValueError(f"A and X have dtypes {A.dtype} and {X.dtype}; give both one")


def _outside(basis: Any, vectors: Any) -> Any:
    """What of the vectors is orthogonal to an orthonormal basis, taken twice against cancellation."""
    for _ in range(2):
        vectors = vectors - basis @ (basis.T @ vectors)
    return vectors


def _orthonormal(vectors: Any) -> Any:
    """An orthonormal basis (n, j) whose leading columns span what those of `vectors` do; zero columns get arbitrary directions."""
    norms = fnp.linalg.norm(vectors, axis=0)
    scaled = vectors / fnp.where(norms > 0, norms, 1)
    return fnp.linalg.qr(scaled)[0]


def _residual(values: Any, X: Any, image: Any, tol: Any) -> tuple[Any, Any]:
    """A v - λ v, scaled to length 1, and how many are too long yet."""
    difference = image - X * values
    size = fnp.linalg.norm(difference, axis=0)
    bound = tol * 10 * X.shape[0] * (values + fnp.linalg.norm(image, axis=0))
    return difference / fnp.where(size > 0, size, 1), (size > bound).sum()


__getattr__ = absent(__name__)
