"""Which column goes first: the exchanges of a QR factorisation with column pivoting, as a loop of Householder reflections.

Businger and Golub, "Linear least squares solutions by Householder transformations" (1965), as in LAPACK's geqp3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.ir.types import is_complex
from fuser.lax import elementwise as E
from fuser.lax.control import fori_loop
from fuser.lax.reduction import argmax
from fuser.lax.slicing import dynamic_index_in_dim
from fuser.lax.values import literal
from fuser.ops.movement import iota_p
from fuser.transforms.vmap import vmap

INT32 = np.dtype("int32")


def column_order(x: Any) -> Any:
    """int32 (…, n) of x (…, m, n): its columns so that each is, of those behind it, furthest from the span of those before it."""
    *lead, rows, columns = x.shape
    orders = vmap(_order)(x.reshape(math.prod(lead), rows, columns))
    return orders.reshape(*lead, columns)


def in_order(x: Any, order: Any) -> Any:
    """The columns of each matrix in its order."""
    *lead, rows, columns = x.shape
    count = math.prod(lead)
    taken = vmap(lambda matrix, order: matrix[:, order])(x.reshape(count, rows, columns), order.reshape(count, columns))
    return taken.reshape(x.shape)


def _order(matrix: Any) -> Any:
    """The order of one matrix's columns, by their squared norms below the rows that are done."""
    rows, columns = matrix.shape
    if not matrix.size:
        return iota_p.bind(dtype=INT32, shape=(columns,), dimension=0)
    largest = E.abs(matrix).max()  # squares of what is scaled neither overflow nor vanish
    matrix = matrix / E.convert_element_type(E.select(largest > 0, largest, largest * 0 + 1), matrix.dtype)
    row, position = (iota_p.bind(dtype=INT32, shape=(n,), dimension=0) for n in (rows, columns))

    def step(number: Any, carry: Any) -> Any:
        rest, order = carry
        below = row >= number
        squares = (_square(rest) * E.convert_element_type(below, _square(rest).dtype)[:, None]).sum(0)
        free = E.select(position >= number, squares[order], squares * 0 - 1)
        chosen = argmax(free, 0, INT32)
        column, before = order[chosen], order[number]
        order = E.select(position == chosen, order * 0 + before, order)
        order = E.select(position == number, order * 0 + column, order)
        return _reflected(rest, dynamic_index_in_dim(rest, column, 1, keepdims=False), row, number), order

    return fori_loop(0, min(rows, columns), step, (matrix, position))[1]


def _reflected(matrix: Any, column: Any, row: Any, number: Any) -> Any:
    """The matrix after the reflection that clears `column` below its element at `number`."""
    v = E.select(row >= number, column, column * 0)
    head = v[number]
    norm = E.sqrt(_square(v).sum())
    size = E.abs(head)
    zero = size == 0
    phase = E.select(zero, head * 0 + 1, head / E.convert_element_type(E.select(zero, size * 0 + 1, size), head.dtype))
    v = E.select(row == number, v + phase * E.convert_element_type(norm, v.dtype), v)
    square = _square(v).sum()
    scale = literal(2.0, square.dtype) / E.select(square == 0, square * 0 + 1, square)
    inner = ((E.conj(v) if is_complex(v.dtype) else v)[:, None] * matrix).sum(0)
    return matrix - v[:, None] * (inner * E.convert_element_type(scale, v.dtype))[None, :]


def _square(x: Any) -> Any:
    """|x|² of each element."""
    return E.real(x) * E.real(x) + E.imag(x) * E.imag(x) if is_complex(x.dtype) else x * x
