"""Strength reduction of dots: outer products and dots of single rows become multiplications and reductions. Graph → Graph.

Those join the kernels of their neighbours, as any elementwise equation and any reduction does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fuser.ir.graph import Eqn, Graph, Operand
from fuser.ir.primitive import Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import BOOL, SMALL, sum_dtype
from fuser.ops.dot import free_dimensions
from fuser.ops.elementwise import convert_element_type_p, mul_p
from fuser.ops.movement import broadcast_in_dim_p, transpose_p
from fuser.ops.reduce import reduce_sum_p

LARGE = 1 << 15  # elements of a matrix, from which a library multiplies a vector by it as fast as it can be read
SHORT = 16  # steps of a vector up to which a library's call costs more than the sums that it computes


def dot_to_reduce(graph: Graph) -> Graph:
    """The graph with products of one step, of single rows with single columns, and with short vectors, written out."""
    return written_out(graph, is_plain)


def written_out(graph: Graph, wanted: Callable[[Eqn], bool]) -> Graph:
    """The graph with each product that is `wanted` as a multiplication of spread operands, and a sum."""
    if not any(map(wanted, graph.eqns)):
        return graph
    rewriter = Rewriter(graph)
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        if wanted(eqn):
            rewriter.replace(eqn.outvars[0], _written(eqn, rewriter))
        else:
            rewriter.keep(eqn)
    return rewriter.finish()


def is_plain(eqn: Eqn) -> bool:
    """Whether the equation is a product that no matrix product makes faster."""
    if eqn.primitive.fusion is not Fusion.DOT:
        return False
    x, y = (v.aval for v in eqn.invars)
    dtypes = x.dtype, eqn.outvars[0].aval.dtype
    if x.size == 0 or y.size == 0 or any(d == BOOL or d in SMALL for d in dtypes):
        return False
    (contracted, _), (batch, _) = eqn.params["dimension_numbers"]
    steps = math.prod(x.shape[d] for d in contracted)
    items = math.prod(x.shape[d] for d in batch)
    vector = not batch and steps <= SHORT and steps in (x.size, y.size)
    return steps == 1 or vector or x.size == y.size == steps * items


def _written(eqn: Eqn, rewriter: Rewriter) -> Operand:
    (xc, yc), (xb, yb) = eqn.params["dimension_numbers"]
    x, y = eqn.invars
    out = eqn.outvars[0].aval
    x_free, y_free = free_dimensions(x.aval.ndim, xc, xb), free_dimensions(y.aval.ndim, yc, yb)
    shape = (*out.shape, *(x.aval.shape[d] for d in xc))
    inner = tuple(range(out.ndim, len(shape)))
    first = len(xb) + len(x_free)
    a = _spread(x, (*xb, *x_free, *xc), (*range(first), *inner), shape, eqn, rewriter)
    b = _spread(y, (*yb, *y_free, *yc), (*range(len(yb)), *range(first, out.ndim), *inner), shape, eqn, rewriter)
    product = rewriter.add(mul_p, a, b)
    total = rewriter.add(reduce_sum_p, product, axes=inner) if inner else product
    return converted(total, out.dtype, rewriter)


def _spread(
    operand: Operand,
    order: Sequence[int],
    dimensions: tuple[int, ...],
    shape: tuple[int, ...],
    eqn: Eqn,
    rewriter: Rewriter,
) -> Operand:
    """An operand in the dtype of the sums, its dimensions in `order` at `dimensions` of `shape`."""
    operand = converted(operand, sum_dtype(eqn.outvars[0].aval.dtype), rewriter)
    if tuple(order) != tuple(range(len(order))):
        operand = rewriter.add(transpose_p, operand, permutation=tuple(order))
    if operand.aval.shape == shape:
        return operand
    return rewriter.add(broadcast_in_dim_p, operand, shape=shape, broadcast_dimensions=dimensions)


def converted(operand: Operand, dtype: np.dtype, rewriter: Rewriter) -> Operand:
    """The operand in a dtype, which it may have."""
    if operand.aval.dtype == dtype:
        return operand
    return rewriter.add(convert_element_type_p, operand, new_dtype=dtype, weak_type=False)
