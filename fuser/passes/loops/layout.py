"""The layout of matrices that a scan multiplies vectors by: copied once, so that each iteration reads them along the result.

A product of one row with a small matrix that is contracted along memory reduces a column for each number in every iteration, and
one of few rows cuts long sums into chunks; a copy before the loop is read as it lies. Other products of few rows read a matrix
along its sums as fast, and a matrix that is read in both orders would take twice the cache.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Control, Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ops.elementwise import copy_p
from fuser.ops.movement import transpose_p
from fuser.passes.reductions.dot_to_reduce import LARGE

MANY = 8  # iterations from which a matrix is worth laying out anew
FEW = 8  # rows for which a product reads its matrix once, as it lies
WIDE = 8  # rows and columns of such a matrix, at least
DEEP = 8  # times as many terms as sums, from which a product of several rows is faster along its results


def pretranspose_invariants(graph: Graph) -> Graph:
    """The graph with invariant matrices of its scans laid out for their products."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        if eqn.primitive.control is Control.SCAN and eqn.params["length"] >= MANY:
            eqn = _turned(eqn, rewriter)
        rewriter.keep(eqn)
    return rewriter.finish()


def _turned(eqn: Eqn, rewriter: Rewriter) -> Eqn:
    consts = eqn.params["num_consts"]
    body, made = _laid_out(eqn.params["jaxpr"], consts, eqn.invars[:consts], rewriter)
    if not made:
        return eqn
    params = {**eqn.params, "jaxpr": body, "num_consts": consts + len(made)}
    return replace(eqn, invars=(*eqn.invars[:consts], *made, *eqn.invars[consts:]), params=params)


def _laid_out(
    body: Graph, consts: int, operands: tuple[Operand, ...], rewriter: Rewriter
) -> tuple[Graph, list[Operand]]:
    """The body with matrices that it multiplies few rows by, and reads across, as constants that lie along the result."""
    fixed = dict(zip(body.invars[:consts], operands))
    turned: dict[Operand, Var] = {}
    eqns = []
    for eqn in body.eqns:
        side = _read_across(eqn, fixed)
        if side is None:
            eqns.append(eqn)
            continue
        matrix = eqn.invars[side]
        rows, columns = matrix.aval.shape
        new = turned.setdefault(matrix, Var(matrix.aval.update(shape=(columns, rows))))
        contracted, batch = eqn.params["dimension_numbers"]
        contracted = ((0,), contracted[1]) if side == 0 else (contracted[0], (0,))
        params = {**eqn.params, "dimension_numbers": (contracted, batch)}
        eqns.append(replace(eqn, invars=(new, eqn.invars[1]) if side == 0 else (eqn.invars[0], new), params=params))
    made: list[Operand] = []
    for matrix in turned:
        view = rewriter.add(transpose_p, fixed[matrix], permutation=(1, 0))  # type: ignore[index]
        made.append(rewriter.add(copy_p, view))
    invars = (*body.invars[:consts], *turned.values(), *body.invars[consts:])
    return replace(body, invars=invars, eqns=tuple(eqns)), made


def _read_across(eqn: Eqn, fixed: dict[Var, Operand]) -> int | None:
    """Which operand of a product is an invariant matrix that is contracted along its rows with few rows of the other."""
    if eqn.primitive.fusion is not Fusion.DOT:
        return None
    (xc, yc), (batch, _) = eqn.params["dimension_numbers"]
    for side, contracted in enumerate((xc, yc)):
        matrix, other = eqn.invars[side], eqn.invars[1 - side]
        rows = other.aval.size // max(matrix.aval.shape[-1], 1) if matrix.aval.shape else 0
        across = matrix.aval.ndim == 2 and tuple(contracted) == (1,) and not batch and min(matrix.aval.shape) >= WIDE
        if matrix in fixed and across and _gains(matrix.aval.shape, rows):
            return side
    return None


def _gains(shape: tuple[int, ...], rows: int) -> bool:
    """Whether the product of a matrix with so many rows is faster along its results."""
    if rows == 1:
        return math.prod(shape) < LARGE  # a library reads a larger one along memory in either order
    return rows <= FEW and shape[1] >= DEEP * shape[0]
