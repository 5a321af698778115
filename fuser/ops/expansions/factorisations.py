"""Factorisations of matrices in rows by LAPACK's routines on matrices in columns (`fuser/ops/column_major.py`).

What stands around the routines (transpositions, triangles, checks of what is finite) is elementwise work that other kernels take in.
Where a matrix has no factors, or an element that is not finite, they are nan.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.types import ArrayType
from fuser.ops.column_major import (
    INT32,
    column_geqrf_p,
    column_gesvd_p,
    column_getrf_p,
    column_orgqr_p,
    column_potrf_p,
    column_syevd_p,
)
from fuser.ops.control.scan import scan_p
from fuser.ops.elementwise import convert_element_type_p, eq_p, ne_p, select_n_p
from fuser.ops.family import constant, real_part
from fuser.ops.matrices import lower_part, position_of, transposed, upper_part
from fuser.ops.movement import broadcast_in_dim_p, iota_p, pad_p, transpose_p
from fuser.trace.core import type_of
from fuser.trace.stage import stage


def cholesky(a: Any) -> Any:
    """L of A = L·Lᴴ; A's lower triangle is read."""
    if not type_of(a).size:
        return a
    factor, info = column_potrf_p.bind(a)
    return lower_part(_or_nan(ne_p.bind(info, constant(0, info)), factor))


def qr(a: Any, full_matrices: bool = False) -> list[Any]:
    """Q and R."""
    rows, columns = a.shape[-2:]
    inner = rows if full_matrices else min(rows, columns)
    if not type_of(a).size:
        return [_zeros(a, (*a.shape[:-1], inner)), _zeros(a, (*a.shape[:-2], inner, columns))]
    safe, broken = _checked(a)
    packed, taus = column_geqrf_p.bind(transposed(safe))
    r = upper_part(transposed(packed)[..., :inner, :])
    if inner > columns:
        config = ((0, 0, 0),) * (a.ndim - 2) + ((0, inner - columns, 0), (0, 0, 0))
        packed = pad_p.bind(packed, constant(0, packed), padding_config=config)
    (q,) = column_orgqr_p.bind(packed[..., :inner, :], taus)
    return [_or_nan(broken, x) for x in (transposed(q), r)]


def geqrf(a: Any) -> list[Any]:
    """R, and the reflections that make Q."""
    if not type_of(a).size:
        return [a, _zeros(a, (*a.shape[:-2], min(a.shape[-2:])))]
    safe, broken = _checked(a)
    packed, taus = column_geqrf_p.bind(transposed(safe))
    return [_or_nan(broken, x) for x in (transposed(packed), taus)]


def lu(a: Any) -> list[Any]:
    """L and U in one matrix, the rows exchanged, from 0, and the order in which they leave the rows."""
    *lead, rows, columns = a.shape
    if not type_of(a).size:
        count = min(rows, columns)
        return [a, _integers((*lead, count), count), _integers((*lead, rows), rows)]
    safe, broken = _checked(a)
    factors, pivots, _ = column_getrf_p.bind(transposed(safe))
    pivots = pivots - 1
    return [_or_nan(broken, transposed(factors)), pivots, permutation(pivots, rows)]


def permutation(pivots: Any, rows: int) -> Any:
    """The order in which exchanges leave rows: which row comes to each place, followed back through the exchanges."""
    *lead, count = pivots.shape
    places = iota_p.bind(dtype=INT32, shape=(*lead, rows), dimension=len(lead))
    each = transpose_p.bind(pivots, permutation=(len(lead), *range(len(lead))))
    numbers = iota_p.bind(dtype=INT32, shape=(count,), dimension=0)

    def step(at: Any, number: Any, pivot: Any) -> list[Any]:
        here = broadcast_in_dim_p.bind(number, shape=at.shape, broadcast_dimensions=())
        there = broadcast_in_dim_p.bind(pivot, shape=at.shape, broadcast_dimensions=tuple(range(len(lead))))
        back = select_n_p.bind(eq_p.bind(at, there), at, here)
        return [select_n_p.bind(eq_p.bind(at, here), back, there)]

    avals = [type_of(places), type_of(numbers).update(shape=()), type_of(each).update(shape=tuple(lead))]
    graph = stage(step, avals, "exchange")
    (order,) = scan_p.bind(
        places, numbers, each, jaxpr=graph, num_consts=0, num_carry=1, length=count, reverse=True, unroll=1
    )
    return order


def eigh(a: Any, lower: bool = True) -> list[Any]:
    """Eigenvectors in columns, and eigenvalues in ascending order."""
    if not type_of(a).size:
        return [a, _real_zeros(a, a.shape[:-1])]
    safe, broken = _checked(a)
    rows, values, info = column_syevd_p.bind(safe, lower=lower)
    broken = broken | ne_p.bind(info, constant(0, info))
    return [_or_nan(broken, x) for x in (transposed(rows).conj(), values)]


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> list[Any]:
    """Singular values, left vectors in columns, right ones conjugated in rows. A wide matrix is read as its transpose."""
    *lead, rows, columns = a.shape
    least = min(rows, columns)
    if not type_of(a).size:
        left, right = (rows, columns) if full_matrices else (least, least)
        vectors = [_zeros(a, (*lead, rows, left)), _zeros(a, (*lead, right, columns))]
        return [_real_zeros(a, (*lead, least)), *vectors[: 2 * compute_uv]]
    safe, broken = _checked(a)
    tall = rows >= columns
    values, *vectors, info = column_gesvd_p.bind(
        transposed(safe) if tall else safe, full=full_matrices, vectors=compute_uv
    )
    broken = broken | ne_p.bind(info, constant(0, info))
    if compute_uv:
        vectors = list(map(transposed, vectors)) if tall else vectors[::-1]
    return [_or_nan(broken, x) for x in (values, *vectors)]


def _checked(a: Any) -> tuple[Any, Any]:
    """The matrices, the identity in the place of each that has an element that is not finite, and which these are."""
    difference = a - a
    broken = ne_p.bind(difference, constant(0, difference)).any((-2, -1))
    ones = eq_p.bind(position_of(a.shape, 2), position_of(a.shape, 1))
    identity = convert_element_type_p.bind(ones, new_dtype=a.dtype, weak_type=False)
    return select_n_p.bind(_spread(broken, a.shape), a, identity), broken


def _or_nan(broken: Any, x: Any) -> Any:
    nan = broadcast_in_dim_p.bind(constant(np.nan, x), shape=x.shape, broadcast_dimensions=())
    return select_n_p.bind(_spread(broken, x.shape), x, nan)


def _spread(condition: Any, shape: tuple[int, ...]) -> Any:
    """A condition of whole matrices, for each element."""
    return broadcast_in_dim_p.bind(condition, shape=shape, broadcast_dimensions=tuple(range(condition.ndim)))


def _zeros(like: Any, shape: tuple[int, ...]) -> Any:
    return broadcast_in_dim_p.bind(constant(0, like), shape=shape, broadcast_dimensions=())


def _real_zeros(like: Any, shape: tuple[int, ...]) -> Any:
    aval = ArrayType((), real_part(type_of(like).dtype))
    return broadcast_in_dim_p.bind(constant(0, aval), shape=shape, broadcast_dimensions=())


def _integers(shape: tuple[int, ...], count: int) -> Any:
    """0, 1, … along the last dimension."""
    return iota_p.bind(dtype=INT32, shape=shape, dimension=len(shape) - 1)
