"""Factorisations and systems of matrices of one element as the arithmetic that they are. Graph → Graph.

A filter with one observation a step inverts such a matrix in each; as arithmetic its loop is one kernel, where a call of a library
would end it.
"""

from __future__ import annotations

import math

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import FLOATS
from fuser.ops.elementwise import div_p, gt_p, select_n_p, sqrt_p
from fuser.ops.factorisations import lu_p
from fuser.ops.linalg import cholesky_p
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.triangular import triangular_solve_p


def write_single_elements(graph: Graph) -> Graph:
    """The graph with what it does to matrices of one real number written as arithmetic."""
    if not any(map(_single, graph.eqns)):
        return graph
    rewriter = Rewriter(graph)
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        if not _single(eqn):
            rewriter.keep(eqn)
            continue
        for var, result in zip(original.outvars, _written(eqn, rewriter), strict=True):
            rewriter.replace(var, result)
    return rewriter.finish()


def _single(eqn: Eqn) -> bool:
    if eqn.primitive not in (lu_p, cholesky_p, triangular_solve_p):
        return False
    matrix = eqn.invars[0].aval
    return matrix.dtype in FLOATS and matrix.shape[-2:] == (1, 1)


def _written(eqn: Eqn, rewriter: Rewriter) -> list[Operand]:
    matrix = eqn.invars[0]
    if eqn.primitive is lu_p:
        return [matrix, *(_filled(0, out, rewriter) for out in eqn.outvars[1:])]
    if eqn.primitive is cholesky_p:  # of what is not positive there is none
        positive = rewriter.add(gt_p, matrix, _filled(0, matrix, rewriter))
        return [rewriter.add(select_n_p, positive, _filled(math.nan, matrix, rewriter), rewriter.add(sqrt_p, matrix))]
    right = eqn.invars[1]
    if eqn.params["unit_diagonal"]:
        return [right]
    shape = right.aval.shape
    divisor = rewriter.add(broadcast_in_dim_p, matrix, shape=shape, broadcast_dimensions=tuple(range(len(shape))))
    return [rewriter.add(div_p, right, divisor)]


def _filled(value: float, like: Operand, rewriter: Rewriter) -> Operand:
    """`value` in another operand's shape and dtype."""
    literal = Literal(np.asarray(value).astype(like.aval.dtype), like.aval.update(shape=()))
    return rewriter.add(broadcast_in_dim_p, literal, shape=like.aval.shape, broadcast_dimensions=())
