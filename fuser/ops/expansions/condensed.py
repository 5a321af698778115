"""Condensed forms of matrices by Householder's reflections, a column at a time: Hessenberg and tridiagonal, as LAPACK's gehd2 and
hetd2 leave them (Golub and Van Loan, "Matrix computations", 2013, 7.4 and 8.3).

Stacks of matrices are reduced together, by products and masks: nothing depends on values but values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.ir.types import ArrayType, is_complex
from fuser.ops.control.scan import scan_p
from fuser.ops.elementwise import complex_p, eq_p, gt_p, ne_p, select_n_p, sqrt_p
from fuser.ops.family import constant
from fuser.ops.matrices import position_of, product, transposed
from fuser.ops.movement import broadcast_in_dim_p, iota_p, reshape_p, rev_p
from fuser.trace.core import type_of
from fuser.trace.stage import stage

INT32 = np.dtype("int32")


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds, else `y`; arrays of one shape, or the number 0 as `y`."""
    return select_n_p.bind(condition, constant(0, x) if isinstance(y, int) else y, x)


def counted(count: int, step: Callable[..., Sequence[Any]], start: Sequence[Any]) -> list[Any]:
    """The state after `count` steps `state = step(number, *state)`; `number` is an int32, from 0."""
    avals = [ArrayType(a.shape, a.dtype) for a in map(type_of, start)]
    graph = stage(lambda *values: list(step(values[-1], *values[:-1])), [*avals, ArrayType((), INT32)])
    numbers = iota_p.bind(dtype=INT32, shape=(count,), dimension=0)
    return list(
        scan_p.bind(
            *start, numbers, jaxpr=graph, num_consts=0, num_carry=len(start), length=count, reverse=False, unroll=1
        )
    )


def column(v: Any) -> Any:
    """Vectors as matrices of one column."""
    return reshape_p.bind(v, new_sizes=(*v.shape, 1), dimensions=None)


def dot(m: Any, v: Any) -> Any:
    """Matrices times vectors."""
    found = product(m, column(v))
    return reshape_p.bind(found, new_sizes=found.shape[:-1], dimensions=None)


def outer(x: Any, y: Any) -> Any:
    """x·yᴴ of vectors."""
    return product(column(x), transposed(column(y.conj())))


def real(x: Any) -> Any:
    return x.real if is_complex(x.dtype) else x


def like(x: Any, dtype: np.dtype) -> Any:
    """Real numbers in a dtype that may be complex."""
    return complex_p.bind(x, x * 0) if is_complex(dtype) else x


def reflection(x: Any, first: Any, rest: Any) -> tuple[Any, Any, Any]:
    """v, τ and β with (1 - τ̄·v·vᴴ)·x = β·e, as LAPACK's larfg: e is 1 where `first`, x is taken where `first` and `rest`, v is 1 where
    `first`, and β is real. Where the rest of x is 0, τ is 0."""
    alpha = where(first, x, 0).sum(-1)
    below = where(rest, x, 0)
    scale = abs(below).max(-1)
    if is_complex(x.dtype):
        scale = scale + abs(alpha.imag)
    moves = ne_p.bind(scale, constant(0, scale))
    scale = scale + abs(real(alpha))
    scale = where(moves, scale, scale * 0 + 1)
    small = below / like(scale, x.dtype)[..., None]
    top = alpha / like(scale, x.dtype)
    square = (real(small) * real(small)).sum(-1) + real(top) * real(top)
    if is_complex(x.dtype):
        square = square + (small.imag * small.imag).sum(-1) + top.imag * top.imag
    size = sqrt_p.bind(square) * scale
    beta = where(gt_p.bind(real(alpha), constant(0, scale)), -size, size)
    beta = where(moves, beta, beta * 0 + 1)
    wide = like(beta, x.dtype)
    tau = where(moves, (wide - alpha) / wide, 0)
    divisor = where(moves, alpha - wide, tau * 0 + 1)
    v = below / divisor[..., None] + where(first, x * 0 + 1, 0)
    beta = where(moves, beta, real(alpha))
    return where(broadcast(moves, v), v, where(first, x * 0 + 1, 0)), tau, beta


def broadcast(condition: Any, like: Any) -> Any:
    """A condition of whole vectors or matrices, for each of their elements."""
    return broadcast_in_dim_p.bind(condition, shape=like.shape, broadcast_dimensions=tuple(range(condition.ndim)))


def hessenberg(a: Any) -> list[Any]:
    """A in Hessenberg form with the reflections below, and their factors."""
    n = a.shape[-1]
    if n < 2:
        return [a, a.sum(-1)[..., : max(n - 1, 0)]]
    shape = a.shape

    def step(k: Any, a: Any, taus: Any) -> list[Any]:
        row, col, at = position_of(shape, 2), position_of(shape, 1), position_of(shape[:-1], 1)
        x = where(eq_p.bind(col, col * 0 + k), a, 0).sum(-1)
        v, tau, beta = reflection(x, at == k + 1, at > k + 1)
        taus = where(position_of(taus.shape, 1) == k, taus * 0 + tau[..., None], taus)
        a = a - tau[..., None, None] * outer(dot(a * where(col > k, a * 0 + 1, 0), v), v)
        left = tau.conj()[..., None, None] * outer(v, dot(transposed(a).conj(), v))
        a = a - where(col > k, left, 0)
        stored = where(row == k + 1, a * 0 + like(beta, a.dtype)[..., None, None], a * 0 + column(v))
        return [where((col == k) & (row > k), stored, a), taus]

    return counted(n - 1, step, [a, a[..., : n - 1, 0] * 0])


def tridiagonal(a: Any, lower: bool = True) -> list[Any]:
    """The packed reflections, the diagonal, the one beside it, and the reflections' factors; the upper triangle's as the lower
    one's of the matrix in reverse order."""
    if not lower:
        packed, d, e, taus = tridiagonal(_turned(a, 2))
        return [_turned(packed, 2), *(_turned(part, 1) for part in (d, e, taus))]
    n, shape = a.shape[-1], a.shape
    row, col = position_of(shape, 2), position_of(shape, 1)
    below = where(row > col, a, 0)
    diagonal = where(row == col, like(real(a), a.dtype), 0)
    whole = below + transposed(below).conj() + diagonal
    if n < 2:
        return [like(real(a), a.dtype), real(diagonal).sum(-1), real(a)[..., :0, 0], a[..., :0, 0]]

    def step(k: Any, s: Any, packed: Any, e: Any, taus: Any) -> list[Any]:
        row, col, at = position_of(shape, 2), position_of(shape, 1), position_of(shape[:-1], 1)
        x = where(eq_p.bind(col, col * 0 + k), s, 0).sum(-1)
        v, tau, beta = reflection(x, at == k + 1, at > k + 1)
        here = position_of(e.shape, 1) == k
        e, taus = where(here, e * 0 + beta[..., None], e), where(here, taus * 0 + tau[..., None], taus)
        w = tau[..., None] * dot(s, v)
        w = w + (tau * (w.conj() * v).sum(-1) * constant(-0.5, w))[..., None] * v
        s = s - outer(v, w) - outer(w, v)
        stored = where(row == k + 1, s * 0 + like(beta, s.dtype)[..., None, None], s * 0 + column(v))
        return [s, where((col == k) & (row > k), stored, packed), e, taus]

    edge = a[..., : n - 1, 0] * 0
    s, packed, e, taus = counted(n - 1, step, [whole, a, real(edge), edge])
    d = where(row == col, real(s), 0).sum(-1)
    return [where(row == col, like(real(s), a.dtype), packed), d, e, taus]


def _turned(x: Any, count: int) -> Any:
    return rev_p.bind(x, dimensions=tuple(range(x.ndim - count, x.ndim)))
