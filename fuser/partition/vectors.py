"""Products with a vector inside loops, as sums of products: they read a matrix once and do nothing else with it.

A library's product of a matrix and a vector costs its call, and copies of the parts that it takes; as a sum it is fused
with what is before and after it.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.graph import Eqn, Graph, Operand
from fuser.ir.rewrite import Rewriter
from fuser.ops.dot import dot_general_p, free_dimensions
from fuser.ops.elementwise import mul_p
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.reduce import reduce_sum_p

DTYPES = {np.dtype(name) for name in ("float32", "float64", "int32", "int64", "uint32", "uint64")}


def vectors_as_sums(graph: Graph) -> Graph:
    """The graph with each product of a vector and a vector or a matrix as a sum of products."""
    if not any(_with_vector(eqn) for eqn in graph.eqns):
        return graph
    rewriter = Rewriter(graph)
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        if _with_vector(eqn):
            rewriter.replace(original.outvars[0], _sum(eqn, rewriter))
        else:
            rewriter.keep(eqn)
    return rewriter.finish()


def _with_vector(eqn: Eqn) -> bool:
    if eqn.primitive is not dot_general_p or eqn.invars[0].aval.dtype not in DTYPES:
        return False
    contracted, batch = eqn.params["dimension_numbers"]
    free = [free_dimensions(v.aval.ndim, *dims) for v, *dims in zip(eqn.invars, contracted, batch)]
    same = eqn.outvars[0].aval.dtype == eqn.invars[0].aval.dtype
    if not same or any(batch) or not contracted[0] or all(free):
        return False
    return _order(eqn) == sorted(_order(eqn))


def _sides(eqn: Eqn) -> tuple[Operand, Operand, tuple[int, ...], tuple[int, ...]]:
    """The matrix and the vector, and the dimensions of each that are contracted."""
    (matrix, vector), (along, own) = eqn.invars, eqn.params["dimension_numbers"][0]
    return (matrix, vector, along, own) if vector.aval.ndim == len(own) else (vector, matrix, own, along)


def _order(eqn: Eqn) -> list[int]:
    """The matrix's dimension for each of the vector's."""
    _, vector, along, own = _sides(eqn)
    return [along[own.index(d)] for d in range(vector.aval.ndim)]


def _sum(eqn: Eqn, rewriter: Rewriter) -> Operand:
    """The matrix times the vector spread along its other dimensions, summed along those that are contracted."""
    matrix, vector, along, _ = _sides(eqn)
    order = tuple(_order(eqn))
    if vector.aval.shape != matrix.aval.shape or order != tuple(range(matrix.aval.ndim)):
        spread = rewriter.make(broadcast_in_dim_p, vector, shape=matrix.aval.shape, broadcast_dimensions=order)
        rewriter.keep(spread)
        vector = spread.outvars[0]
    product = rewriter.make(mul_p, matrix, vector)
    rewriter.keep(product)
    total = rewriter.make(reduce_sum_p, product.outvars[0], axes=tuple(sorted(along)))
    rewriter.keep(total)
    return total.outvars[0]
