"""The Schur form by QR iterations with implicit shifts, on stacks of matrices together: the device decides when all have converged.

Real matrices: Francis' double shift, until no unreduced block has more than two rows; then blocks of two are brought to LAPACK's
standard form. Complex ones: single shifts until all is triangular. Golub and Van Loan, "Matrix computations" (2013), 7.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.types import ArrayType, is_complex
from fuser.ops.control.while_loop import while_p
from fuser.ops.elementwise import min_p, sqrt_p
from fuser.ops.expansions.condensed import INT32, broadcast, counted, dot, like, outer, real, reflection, where
from fuser.ops.family import constant
from fuser.ops.matrices import position_of, transposed
from fuser.ops.movement import broadcast_in_dim_p
from fuser.trace.core import type_of
from fuser.trace.stage import stage

_ITERATIONS = 30  # for each row, on the average
_EXCEPTIONAL = 10  # iterations without a deflation after which shifts of another kind are tried


def schur(a: Any, compute_schur_vectors: bool = True, **unread: Any) -> list[Any]:
    """T and, where wanted, the unitary Z with A = Z·T·Zᴴ; nan where there are infinities or nan, or no convergence."""
    shape, n = a.shape, a.shape[-1]
    identity = where(position_of(shape, 2) == position_of(shape, 1), a * 0 + 1, 0)
    t, z = a, identity
    if n > 1:
        finite = (abs(a) < constant(np.inf, real(a))).all((-2, -1))
        t = where(broadcast(finite, a), a, identity)
        t, z = _hessenberg(t, identity)
        t, z, going = _iterated(t, z)
        if not is_complex(a.dtype):
            t, z = _standardised(t, z)
        fine = broadcast(finite & ~going, a)
        t, z = where(fine, t, a * 0 + constant(np.nan, a)), where(fine, z, a * 0 + constant(np.nan, a))
    return [t, z][: 1 + compute_schur_vectors]


def _turned(t: Any, z: Any, v: Any, tau: Any) -> tuple[Any, Any]:
    """Hᴴ·T·H and Z·H with H = 1 - τ·v·vᴴ."""
    wide, other = tau[..., None, None], tau.conj()[..., None, None]
    t = t - other * outer(v, dot(transposed(t).conj(), v))
    t = t - wide * outer(dot(t, v), v)
    return t, z - wide * outer(dot(z, v), v)


def _hessenberg(t: Any, z: Any) -> tuple[Any, Any]:
    shape = t.shape

    def step(k: Any, t: Any, z: Any) -> Sequence[Any]:
        col, at = position_of(shape, 1), position_of(shape[:-1], 1)
        v, tau, _ = reflection(where(col == k, t, 0).sum(-1), at == k + 1, at > k + 1)
        t, z = _turned(t, z, v, tau)
        return [where((col == k) & (position_of(shape, 2) > k + 1), t * 0, t), z]

    t, z = counted(shape[-1] - 2, step, [t, z]) if shape[-1] > 2 else (t, z)
    return t, z


def _entry(t: Any, row: Any, col: Any) -> Any:
    """T's element at a row and a column of each matrix."""
    here = (position_of(t.shape, 2) == row[..., None, None]) & (position_of(t.shape, 1) == col[..., None, None])
    return where(here, t, 0).sum((-2, -1))


def _beside(t: Any, row: int, col: int) -> Any:
    """The elements T[i + row, i + col] of all i, one from the diagonal at most; 0 beyond the ends."""
    at = position_of(t.shape, 2)
    found = where(at + (col - row) == position_of(t.shape, 1), t, 0).sum(-1)  # by their row
    if not row:
        return found
    moved = where(
        position_of(t.shape, 1) == at + row,
        broadcast_in_dim_p.bind(found, shape=t.shape, broadcast_dimensions=(*range(t.ndim - 2), t.ndim - 1)),
        0,
    )
    return moved.sum(-1)


def _iterated(t: Any, z: Any) -> tuple[Any, Any, Any]:
    """T and Z after the iterations, and which matrices have not converged."""
    lead, n = t.shape[:-2], t.shape[-1]
    count = broadcast_in_dim_p.bind(constant(0, np.zeros((), INT32)), shape=lead, broadcast_dimensions=())
    most = _ITERATIONS * n

    def goes_on(t: Any, z: Any, number: Any, last: Any, end: Any) -> Any:
        return [((end >= 0).any() if lead else end >= 0) & (number < most)]

    def step(t: Any, z: Any, number: Any, last: Any, end: Any) -> Sequence[Any]:
        t, z = _sweep(t, z, end, number - last)
        t, found = _deflated(t)
        return [t, z, number + 1, where(found == end, last, broadcast(number + 1, last) if lead else number + 1), found]

    t, end = _deflated(t)
    number = np.zeros((), INT32)
    start = [t, z, number, count, end]
    avals = [ArrayType(type_of(x).shape, type_of(x).dtype) for x in start]
    t, z, _, _, end = while_p.bind(
        *start, cond_nconsts=0, cond_jaxpr=stage(goes_on, avals), body_nconsts=0, body_jaxpr=stage(step, avals)
    )
    return t, z, end >= 0


def _deflated(t: Any) -> tuple[Any, Any]:
    """T without negligible elements below the diagonal, and the last row of the last block that is too large; -1 where there is none."""
    row, col = position_of(t.shape, 2), position_of(t.shape, 1)
    size = abs(real(t)) + (abs(t.imag) if is_complex(t.dtype) else abs(t) * 0)
    beside, diagonal, following = _beside(size, 1, 0), _beside(size, 0, 0), _beside(size, 1, 1)
    norm = size.max((-2, -1))[..., None]
    scale = diagonal + following
    scale = where(scale == 0, scale * 0 + norm, scale)
    epsilon = constant(np.finfo(t.dtype).eps, size)
    negligible = beside <= epsilon * scale  # by the upper row
    small = broadcast_in_dim_p.bind(negligible, shape=t.shape, broadcast_dimensions=(*range(t.ndim - 2), t.ndim - 1))
    t = where((row == col + 1) & small, t * 0, where(row > col + 1, t * 0, t))
    joined = ~negligible & (position_of(negligible.shape, 1) < t.shape[-1] - 1)
    if not is_complex(t.dtype):
        joined = joined & _shifted(joined)
        reach = 2
    else:
        reach = 1
    at = position_of(joined.shape, 1)
    return t, where(joined, at + reach, at * 0 - 1).max(-1)


def _shifted(flags: Any) -> Any:
    """Each element's follower; False behind the last."""
    n = flags.shape[-1]
    whole = broadcast_in_dim_p.bind(
        flags, shape=(*flags.shape, n), broadcast_dimensions=(*range(flags.ndim - 1), flags.ndim)
    )
    return (whole & (position_of(whole.shape, 1) == position_of(whole.shape, 2) + 1)).any(-1)


def _sweep(t: Any, z: Any, end: Any, stalled: Any) -> tuple[Any, Any]:
    """One QR iteration on the block that ends at row `end` of each matrix; nothing where that is negative."""
    n, shape = t.shape[-1], t.shape
    width = 2 if is_complex(t.dtype) else 3
    at = position_of(shape[:-1], 1)
    cut = (_beside(abs(t), 1, 0) == 0) & (at < end[..., None])
    begin = where(cut, at + 1, at * 0).max(-1)
    first = _first_column(t, begin, end, stalled)

    def step(j: Any, t: Any, z: Any, first: Any, begin: Any, end: Any) -> Sequence[Any]:
        row, col, at = position_of(shape, 2), position_of(shape, 1), position_of(shape[:-1], 1)
        k = begin + j
        x = where(col == (k - 1)[..., None, None], t, 0).sum(-1)
        x = where(broadcast(k == begin, x), first, x)
        inside = at <= min_p.bind(k + (width - 1), end)[..., None]
        v, tau, _ = reflection(x, at == k[..., None], (at > k[..., None]) & inside)
        tau = where(k < end, tau, 0)
        t, z = _turned(t, z, v, tau)
        done = (col == (k - 1)[..., None, None]) & (row > k[..., None, None]) & broadcast((k > begin) & (k < end), t)
        return [where(done, t * 0, t), z, first, begin, end]

    t, z, *_ = counted(n - 1, step, [t, z, first, begin, end])
    return t, z


def _first_column(t: Any, begin: Any, end: Any, stalled: Any) -> Any:
    """The first column of (T - σ₁)·(T - σ₂), or T - σ, of the block, σ being eigenvalues of its last two rows."""
    a, b, c, d = (_entry(t, end - p, end - q) for p, q in ((1, 1), (1, 0), (0, 1), (0, 0)))
    at = position_of(t.shape[:-1], 1)
    corner = [_entry(t, begin + p, begin + q) for p, q in ((0, 0), (0, 1), (1, 0), (1, 1))]
    odd = (stalled > 0) & (stalled - (stalled // _EXCEPTIONAL) * _EXCEPTIONAL == 0)
    place = lambda number, value: where(at == (begin + number)[..., None], at * 0 + value[..., None], 0)
    if is_complex(t.dtype):
        shift = where(odd, d + like(abs(c), t.dtype), _nearer(a, b, c, d))
        return place(0, corner[0] - shift) + place(1, corner[2])
    trace, determinant = a + d, a * d - b * c
    size = abs(c) + abs(_entry(t, end - 1, end - 2))
    trace = where(odd, size * constant(1.5, size) + d + d, trace)
    determinant = where(odd, size * size + size * d * constant(1.5, size) + d * d, determinant)
    h00, h01, h10, h11 = corner
    h21 = _entry(t, begin + 2, begin + 1)
    top = (h00 * h00 - trace * h00 + determinant) + h01 * h10
    return place(0, top) + place(1, h10 * (h00 + h11 - trace)) + place(2, h10 * h21)


def _nearer(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The eigenvalue of ((a, b), (c, d)) that is nearer to d."""
    half = (a - d) * constant(0.5, a)
    root = sqrt_p.bind(half * half + b * c)
    same = real(half) * real(root) + half.imag * root.imag >= 0
    divisor = half + where(same, root, -root)
    fine = abs(divisor) > 0
    return where(fine, d - b * c / where(fine, divisor, divisor * 0 + 1), d)


def _standardised(t: Any, z: Any) -> tuple[Any, Any]:
    """Blocks of two rows in standard form: triangular where their eigenvalues are real, else with equal numbers on the diagonal and
    numbers of unlike sign beside it (LAPACK's lanv2)."""
    shape = t.shape

    def step(k: Any, t: Any, z: Any) -> Sequence[Any]:
        row, col, at = position_of(shape, 2), position_of(shape, 1), position_of(shape[:-1], 1)
        a, b, c, d = (
            where((row == k + p) & (col == k + q), t, 0).sum((-2, -1)) for p, q in ((0, 0), (0, 1), (1, 0), (1, 1))
        )
        cosine, sine, is_real = _rotation(a, b, c, d)
        one, other = (at == k), (at == k + 1)
        turn = lambda m: _rotated(m, one, other, cosine, sine)
        t, z = turn(transposed(turn(transposed(t)))), turn(z)
        gone = (row == k + 1) & (col == k) & broadcast(is_real, t)
        return [where(gone, t * 0, t), z]

    t, z = counted(shape[-1] - 1, step, [t, z])
    return t, z


def _rotated(m: Any, one: Any, other: Any, cosine: Any, sine: Any) -> Any:
    """Matrices of which a column and another become cos·x + sin·y and cos·y - sin·x."""
    unit = [where(flag, m[..., 0, :] * 0 + 1, 0) for flag in (one, other)]
    x, y = (dot(m, u) for u in unit)
    new = [cosine[..., None] * x + sine[..., None] * y, cosine[..., None] * y - sine[..., None] * x]
    for u, value, old in zip(unit, new, (x, y)):
        m = m + outer(value - old, u)
    return m


def _rotation(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any]:
    """Cosine and sine of the rotation to standard form, and whether the eigenvalues are real."""
    one, half = a * 0 + 1, constant(0.5, a)
    p = (a - d) * half
    size = abs(b)
    bc_most, bc_least = where(size > abs(c), size, abs(c)), where(size > abs(c), abs(c), size)
    sign = where((b < 0) == (c < 0), one, -one)
    scale = where(abs(p) > bc_most, abs(p), bc_most)
    scale = where(scale > 0, scale, one)
    discriminant = p / scale * p + bc_most / scale * bc_least * sign
    epsilon = constant(4 * np.finfo(a.dtype).eps, a)
    is_real = discriminant >= epsilon
    root = sqrt_p.bind(scale) * sqrt_p.bind(where(discriminant > 0, discriminant, 0))
    zeta = p + where(p < 0, -root, root)
    length = sqrt_p.bind(c * c + zeta * zeta)
    length = where(length > 0, length, one)
    # equal diagonal: tan(2θ) = (a - d) / (b + c), of the smaller angle
    sigma = b + c
    tau = sqrt_p.bind(sigma * sigma + (a - d) * (a - d))
    tau = where(tau > 0, tau, one)
    cosine = sqrt_p.bind(half * (one + abs(sigma) / tau))
    sine = -(p / (tau * cosine)) * where(sigma < 0, -one, one)
    flat = (sigma == 0) & (p == 0)
    cosine, sine = where(flat, one, cosine), where(flat, one * 0, sine)
    cosine, sine = where(is_real, zeta / length, cosine), where(is_real, c / length, sine)
    done = c == 0
    return where(done, one, cosine), where(done, one * 0, sine), is_real & ~done
