"""Determinants, ranks, least squares, eigenvalues and products of matrices; reached through `fuser.numpy.linalg`.

Everything works on the last two dimensions; integers become the default float.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser import dtypes
from fuser.ir.dim import Dim, maximum
from fuser.lax import linalg
from fuser.lax.marks import stop_gradient
from fuser.lax.values import as_value, axis_of, broadcast_to, promote, promote_inexact
from fuser.numpy import linear as L
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import arange, asarray, eye, ones, zeros
from fuser.ops.matrices import adjoint, lower_part, product
from fuser.transforms.custom_jvp import custom_jvp


class EigResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class SlogdetResult(NamedTuple):
    sign: Any
    logabsdet: Any


def _square(function: str, a: Any) -> Any:
    (x,) = promote_inexact(function, as_value(a, function))
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"Argument to {function}() must have shape [..., n, n], got {x.shape}")
    return x


# Determinants.


def _parity(pivots: Any) -> Any:
    """Whether an odd number of rows was exchanged, as int32."""
    return R.count_nonzero(pivots != arange(pivots.shape[-1], dtype=pivots.dtype), axis=-1) % 2


@custom_jvp
def _det(x: Any) -> Any:
    factors, pivots, _ = linalg.lu(x)
    sign = asarray(1 - 2 * _parity(pivots)).astype(x.dtype)
    return R.prod(L.diagonal(factors, axis1=-2, axis2=-1), -1) * sign


@_det.defjvp
def _det_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """tr(adj(A) ∂A) with adj(A) = adj(U) adj(L) P from P A = L U, where U's last pivot may be 0 (rank n - 1)."""
    (a,), (t,) = primals, tangents
    n = a.shape[-1]
    factors, pivots, permutation = linalg.lu(a)
    sign = asarray(1 - 2 * _parity(pivots)).astype(a.dtype)
    diagonal = L.diagonal(factors, axis1=-2, axis2=-1)
    singular = R.any(diagonal[..., :-1] == 0, -1)[..., None, None]  # no pivot to go on with: the adjugate counts as 0
    factors = M.where(singular, eye(n, dtype=a.dtype), factors)
    before, last = R.prod(diagonal[..., :-1], -1) * sign, diagonal[..., -1]
    order = broadcast_to(permutation[..., None], t.shape)
    from fuser.numpy.selection import take_along_axis

    lower = lower_part(factors, -1) + eye(n, dtype=a.dtype)
    side = linalg.triangular_solve(lower, take_along_axis(t, order, -2), left_side=True, lower=True)
    scale = before[..., None, None]
    bottom = side[..., -1:, :] * scale
    if type(n) is Dim or n > 1:
        rest = side[..., :-1, :] * last[..., None, None] - factors[..., :-1, -1:] * side[..., -1:, :]
        top = linalg.triangular_solve(factors[..., :-1, :-1], rest, left_side=True) * scale
        bottom = V.concatenate([top, bottom], -2)
    return before * last, L.trace(bottom, axis1=-2, axis2=-1)


def det(a: Any) -> Any:
    """The determinants (…) of matrices (…, n, n).

    Up to 3 × 3 polynomials, whose derivatives are right for all matrices; larger ones from an LU factorisation,
    differentiable also at rank n - 1.
    """
    x = _square("det", a)
    order = x.shape[-1]
    if type(order) is Dim or order > 3:
        return _det(x)
    if order < 2:
        return x[..., 0, 0] if order else ones(x.shape[:-2], x.dtype)
    first, *rest = (x[..., row, :] for row in range(order))
    if order == 2:
        return first[..., 0] * rest[0][..., 1] - first[..., 1] * rest[0][..., 0]
    second, third = rest
    part = lambda i, j: second[..., i] * third[..., j] - second[..., j] * third[..., i]
    return first[..., 0] * part(1, 2) - first[..., 1] * part(0, 2) + first[..., 2] * part(0, 1)


def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """(sign, log|det|) of matrices (…, n, n); sign is 0 and the logarithm -inf for singular ones. Method "lu", or "qr"."""
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' (`None`), and 'qr'.")
    x = _square("slogdet", a)
    if method == "qr":
        return _slogdet_by_qr(x)
    factors, pivots, _ = linalg.lu(x)
    diagonal = L.diagonal(factors, axis1=-2, axis2=-1)
    singular = R.any(diagonal == 0, -1)
    sign = R.prod(U.sign(diagonal), -1) * asarray(1 - 2 * _parity(pivots)).astype(x.dtype)
    logs = R.sum(U.log(U.abs(diagonal)), -1)
    real = np.zeros((), x.dtype).real.dtype
    return SlogdetResult(M.where(singular, np.zeros((), x.dtype), sign), M.where(singular, -np.inf, logs).astype(real))


def _slogdet_by_qr(x: Any) -> SlogdetResult:
    """The sign of det(Q) from Q's own LU factorisation."""
    q, r = linalg.qr(x, full_matrices=False)
    diagonal = L.diagonal(r, axis1=-2, axis2=-1)
    sign = R.prod(U.sign(diagonal), -1) * slogdet(stop_gradient(q)).sign
    return SlogdetResult(sign, R.sum(U.log(U.abs(diagonal)), -1))


# Ranks and inverses.


def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:
    """How many singular values are above max(m, n)·eps times the greatest: integers (…). 1 for a vector that is not 0.

    `rtol`, or `tol` of old, is another bound, which as in JAX is not multiplied by the greatest. ValueError for both.
    """
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
    (x,) = promote_inexact("matrix_rank", M)
    if x.ndim < 2:
        return R.any(x != 0).astype(np.int32)
    values = _singular_values(x, hermitian)
    given = rtol if tol is None else tol
    if given is None:
        bound = R.max(values, -1, keepdims=True, initial=0) * _default_tolerance(x)
    else:
        bound = asarray(given)[..., None]
    return R.sum(values > bound, -1)


def _default_tolerance(x: Any) -> Any:
    return maximum(*x.shape[-2:]) * float(dtypes.finfo(x.dtype).eps)


def _singular_values(x: Any, hermitian: bool) -> Any:
    if hermitian:
        return U.abs(linalg.eigh(x)[1])
    return linalg.svd(x, compute_uv=False)


@custom_jvp
def _pinv(x: Any, tolerance: Any) -> Any:
    u, s, vh = linalg.svd(x, full_matrices=False)
    cut = s > tolerance * R.max(s, -1, keepdims=True, initial=0)
    inverse = M.where(cut, 1 / M.where(cut, s, 1), 0).astype(x.dtype)
    return product(adjoint(vh), inverse[..., None] * adjoint(u))


@_pinv.defjvp
def _pinv_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Golub and Pereyra, "The differentiation of pseudo-inverses" (1973), equation 4.12."""
    (a, tolerance), (t, _) = primals, tangents
    p = _pinv(a, tolerance)
    rows, columns = a.shape[-2:]
    left, right = eye(rows, dtype=a.dtype) - product(a, p), eye(columns, dtype=a.dtype) - product(p, a)
    first = -product(p, product(t, p))
    second = product(product(p, adjoint(p)), product(adjoint(t), left))
    third = product(right, product(adjoint(t), product(adjoint(p), p)))
    return p, first + second + third


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """The pseudo-inverse (…, n, m) of matrices (…, m, n): singular values up to `rtol` times the greatest count as 0.

    10·max(m, n)·eps unless told. The derivative takes the rank as constant.
    """
    if rcond is not None:
        if rtol is not None:
            raise ValueError("pinv: only one of rtol and rcond may be specified.")
        rtol = rcond
    (x,) = promote_inexact("pinv", a)
    if x.ndim < 2:
        raise ValueError(f"pinv takes matrices, got shape {x.shape}")
    if not x.size:
        return zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
    tolerance = asarray(10 * _default_tolerance(x) if rtol is None else rtol)[..., None]
    return _pinv(x, tolerance.astype(np.zeros((), x.dtype).real.dtype))


def cond(x: Any, p: Any = None) -> Any:
    """The condition numbers ‖x‖·‖x⁻¹‖ (…) of matrices in the norm `p`; 2 for None: the ratio of singular values; inf if singular."""
    from fuser.numpy.linalg import inv, norm

    (value,) = promote_inexact("cond", x)
    if value.ndim < 2:
        raise ValueError(f"jnp.linalg.cond: input array must be at least 2D; got {value.shape=}")
    if not math.prod(value.shape[-2:]):
        raise ValueError(f"jnp.linalg.cond: input array must not be empty; got {value.shape=}")
    if p in (None, 2, -2):
        s = linalg.svd(value, compute_uv=False)
        found = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    else:
        if value.shape[-1] != value.shape[-2]:
            raise ValueError(f"jnp.linalg.cond: for {p=}, array must be square; got {value.shape=}")
        found = norm(value, p, (-2, -1)) * norm(inv(value), p, (-2, -1))
    given = R.any(M.isnan(value), (-2, -1))
    return M.where(U.logical_and(M.isnan(found), U.logical_not(given)), np.inf, found)


def lstsq(a: Any, b: Any, rcond: float | None = None, *, numpy_resid: bool = False) -> tuple[Any, Any, Any, Any]:
    """(x, residuals, rank, s) of the least squares problem a x = b: a (m, n), b (m,) or (m, k).

    Singular values up to `rcond` times the greatest count as 0 (max(m, n)·eps unless told, eps itself for a negative one).
    With `numpy_resid` residuals are empty where the rank is below n or m ≤ n, as NumPy has them; that needs known values.
    """
    x, y = promote_inexact("lstsq", a, b)
    if x.shape[0] != y.shape[0]:
        raise ValueError("Leading dimensions of input arrays must match")
    vector = y.ndim == 1
    if vector:
        y = y[:, None]
    if x.ndim != 2:
        raise TypeError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    if y.ndim != 2:
        raise TypeError(f"{y.ndim}-dimensional array given. Array must be one or two-dimensional")
    m, n = x.shape
    real = np.zeros((), x.dtype).real.dtype
    if not x.size:
        return _nothing_to_fit(x, y, vector, real)
    eps = float(dtypes.finfo(x.dtype).eps)
    cutoff = maximum(n, m) * eps if rcond is None else eps if rcond < 0 else rcond
    u, s, vh = linalg.svd(x, full_matrices=False)
    kept = (s > 0) & (s >= asarray(cutoff, s.dtype) * s[0])
    rank = R.sum(kept)
    inverse = M.where(kept, 1 / M.where(kept, s, 1), 0)[:, None].astype(x.dtype)
    found = product(adjoint(vh), inverse * product(adjoint(u), y))
    if numpy_resid and (m <= n or int(rank) < n):
        residuals = zeros(0, real)
    else:
        residuals = R.sum(U.square(U.abs(y - product(x, found))), 0)
    return found[:, 0] if vector else found, residuals, rank, s


def _nothing_to_fit(x: Any, y: Any, vector: bool, real: np.dtype) -> tuple[Any, Any, Any, Any]:
    found = zeros((x.shape[1], y.shape[1]), x.dtype)
    residuals = R.sum(U.square(U.abs(y)), 0) if x.shape[0] else zeros(0, real)
    return found[:, 0] if vector else found, residuals, asarray(0), zeros(0, real)


# Eigenvalues.


def eig(a: Any) -> EigResult:
    """Complex eigenvalues (…, n) in no order, and eigenvectors of length 1 in columns (…, n, n); no derivative of vectors."""
    (x,) = promote_inexact("eig", a)
    w, v = linalg.eig(x, compute_left_eigenvectors=False)
    return EigResult(w, v)


def eigvals(a: Any) -> Any:
    """The complex eigenvalues (…, n) of matrices, in no order; differentiable where they are simple."""
    (x,) = promote_inexact("eigvals", a)
    (w,) = linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    return w


# Products and parts.


def matrix_power(a: Any, n: int) -> Any:
    """The n-th power of square matrices by repeated squaring; of their inverses for negative n. TypeError unless n is an int."""
    from fuser.numpy.linalg import inv

    x = as_value(a, "matrix_power")
    if x.ndim < 2:
        raise TypeError(f"{x.ndim}-dimensional array given. Array must be at least two-dimensional")
    if x.shape[-2] != x.shape[-1]:
        raise TypeError("Last 2 dimensions of the array must be square")
    try:
        n = n.__index__()
    except AttributeError:
        raise TypeError(f"exponent must be an integer, got {n}") from None
    if n == 0:
        return broadcast_to(eye(x.shape[-2], dtype=x.dtype), x.shape)
    if n < 0:
        x, n = inv(x), -n
    result = None
    while n:
        if n % 2:
            result = x if result is None else L.matmul(result, x)
        n //= 2
        if n:
            x = L.matmul(x, x)
    return result


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Any:
    """The product of matrices in the order that takes the fewest multiplications; the first and the last may be vectors.

    Cormen et al., "Introduction to algorithms", section 15.2. ValueError for fewer than two or for ranks that do not fit.
    """
    values = promote("multi_dot", *arrays)
    if len(values) < 2:
        raise ValueError(f"multi_dot requires at least two arrays; got len(arrays)={len(values)}")
    if any(v.ndim != 2 for v in values[1:-1]) or any(v.ndim not in (1, 2) for v in values):
        raise ValueError(
            f"multi_dot: input arrays must all be two-dimensional, the ends one or two; got {[v.shape for v in values]}"
        )
    sizes = [1 if values[0].ndim == 1 else values[0].shape[0], *(v.shape[-1] if v.ndim == 2 else 1 for v in values)]
    if values[0].ndim == 1:
        sizes[1] = values[0].shape[0]
    for n, (left, right) in enumerate(itertools.pairwise(values)):
        if left.shape[-1] != right.shape[0]:
            raise ValueError(
                f"multi_dot: input arrays have shapes that do not fit: {left.shape} and {right.shape} ({n}, {n + 1})"
            )
    return _ordered_product(values, _best_splits(sizes), 0, len(values) - 1)


def _best_splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    count = len(sizes) - 1
    cost = {(n, n): 0 for n in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = [cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            cost[i, j] = min(costs)
            split[i, j] = i + costs.index(cost[i, j])
    return split


def _ordered_product(values: Sequence[Any], splits: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return values[i]
    k = splits[i, j]
    return L.dot(_ordered_product(values, splits, i, k), _ordered_product(values, splits, k + 1, j))


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The tensor inverse under `tensordot` over the first `ind` dimensions. ValueError unless both halves have one size."""
    from fuser.numpy.linalg import inv

    (x,) = promote_inexact("tensorinv", a)
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got {ind=}")
    left, right = x.shape[:ind], x.shape[ind:]
    if math.prod(left) != math.prod(right):
        raise ValueError(f"product of dimensions {left} and {right} must be equal, got shape {x.shape}")
    return V.reshape(inv(V.reshape(x, (math.prod(left), -1))), (*right, *left))


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """x with tensordot(a, x, x.ndim) = b; `axes` of `a` are moved to its end first. ValueError for sizes that do not fit."""
    from fuser.numpy.linalg import solve

    x, y = promote_inexact("tensorsolve", a, b)
    if axes is not None:
        moved = tuple(axis_of(d, x.ndim, "tensorsolve") for d in axes)
        x = V.moveaxis(x, moved, tuple(range(x.ndim - len(moved), x.ndim)))
    shape = x.shape[y.ndim :]
    if x.shape[: y.ndim] != y.shape or math.prod(shape) != y.size:
        raise ValueError(
            f"After moving axes to end, leading shape of a must match shape of b. got a.shape={x.shape}, b.shape={y.shape}"
        )
    return V.reshape(solve(V.reshape(x, (y.size, y.size)), V.ravel(y)), shape)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The cross products of vectors of three numbers along `axis`. ValueError for other extents."""
    first, second = as_value(x1, "cross"), as_value(x2, "cross")
    if first.shape[axis] != 3 or second.shape[axis] != 3:
        raise ValueError(
            f"Both input arrays must be (arrays of) 3-dimensional vectors, but they have {first.shape[axis]} and {second.shape[axis]} dimensions instead."
        )
    return L.cross(first, second, axis=axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonals of matrices, `offset` to the right: (…, k)."""
    return L.diagonal(x, offset=offset, axis1=-2, axis2=-1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sums of the diagonals of matrices, `offset` to the right: (…)."""
    return L.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)
