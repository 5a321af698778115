"""Loop fission of products: a scan's rows times an invariant matrix become one product of all rows before the loop.

`x @ U` in the body of a recurrent network needs no carry, so all iterations' products are one matrix product, which reads
`U` once. It is done where that spares more than the result's rows cost.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Control, Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ops.dot import free_dimensions
from fuser.ops.movement import reshape_p
from fuser.passes.dce import drop_dead

LEAST = 256  # elements of a matrix that are worth reading once
DEEPEST = 8  # times that the result may be larger than the rows
MOST_BYTES = 1 << 28


def batch_matmuls(graph: Graph) -> Graph:
    """The graph with such products in front of its scans."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        if eqn.primitive.control is Control.SCAN and eqn.params["length"] > 1:
            eqn = _without_products(eqn, rewriter)
        rewriter.keep(eqn)
    return rewriter.finish()


def _without_products(eqn: Eqn, rewriter: Rewriter) -> Eqn:
    params = eqn.params
    body: Graph = params["jaxpr"]
    first = params["num_consts"] + params["num_carry"]
    fixed = dict(zip(body.invars[: params["num_consts"]], eqn.invars))
    rows = dict(zip(body.invars[first:], eqn.invars[first:]))
    made: dict[Eqn, Operand] = {}
    for inner in body.eqns:
        if inner.primitive.fusion is Fusion.DOT and (found := _product(inner, fixed, rows, rewriter)) is not None:
            made[inner] = found
    if not made:
        return eqn
    new = tuple(inner.outvars[0] for inner in made)
    eqns = tuple(inner for inner in body.eqns if inner not in made)
    smaller = drop_dead(replace(body, invars=(*body.invars, *new), eqns=eqns))
    return replace(eqn, invars=(*eqn.invars, *made.values()), params={**params, "jaxpr": smaller})


def _product(eqn: Eqn, fixed: dict[Var, Operand], rows: dict[Var, Operand], rewriter: Rewriter) -> Operand | None:
    """All iterations' results of a product in the body, stacked; None where it stays there."""
    x, y = eqn.invars
    (xc, yc), (xb, _) = eqn.params["dimension_numbers"]
    if x in rows and y in fixed:
        row, matrix, along, across = x, y, xc, yc
    elif y in rows and x in fixed and not free_dimensions(y.aval.ndim, yc, ()):
        row, matrix, along, across = y, x, yc, xc
    else:
        return None
    out, stacked = eqn.outvars[0].aval, rows[row]  # type: ignore[index]
    count = stacked.aval.shape[0]
    if xb or tuple(along) != (row.aval.ndim - 1,) or matrix.aval.size < LEAST:
        return None
    if out.size > DEEPEST * row.aval.size or out.nbytes * count > MOST_BYTES:
        return None
    shape = stacked.aval.shape
    flat = stacked if len(shape) == 2 else _reshaped(stacked, (math.prod(shape[:-1]), shape[-1]), rewriter)
    numbers = (((1,), tuple(across)), ((), ()))
    params = {**eqn.params, "dimension_numbers": numbers}
    made = rewriter.add(eqn.primitive, flat, fixed[matrix], **params)  # type: ignore[index]
    wanted = (count, *out.shape)
    return made if made.aval.shape == wanted else _reshaped(made, wanted, rewriter)


def _reshaped(operand: Operand, shape: tuple[int, ...], rewriter: Rewriter) -> Operand:
    return rewriter.add(reshape_p, operand, new_sizes=shape, dimensions=None)
