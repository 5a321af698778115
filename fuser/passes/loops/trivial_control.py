"""Trivial control flow: scans of trip count 0 or 1 and branches on a literal are replaced by their bodies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand
from fuser.ir.primitive import Control
from fuser.ir.rewrite import Rewriter
from fuser.ops.control import row_type, split_scan
from fuser.ops.movement import broadcast_in_dim_p, reshape_p


def simplify_trivial_control(graph: Graph) -> Graph:
    """The graph with such equations replaced by those of their bodies."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        results: Sequence[Operand] | None = None
        if eqn.primitive.control is Control.SCAN and eqn.params["length"] <= 1:
            results = _nothing(eqn, rewriter) if eqn.params["length"] == 0 else _one_step(eqn, rewriter)
        elif eqn.primitive.control is Control.COND and isinstance(eqn.invars[0], Literal):
            branches = eqn.params["branches"]
            chosen = branches[min(max(int(eqn.invars[0].val), 0), len(branches) - 1)]
            results = rewriter.splice(chosen, eqn.invars[1:])
        if results is None:
            rewriter.keep(eqn)
        else:
            for var, operand in zip(eqn.outvars, results, strict=True):
                rewriter.replace(var, operand)
    return rewriter.finish()


def _one_step(eqn: Eqn, rewriter: Rewriter) -> list[Operand]:
    carries = eqn.params["num_carry"]
    consts, carry, xs = split_scan(eqn.invars, eqn.params["num_consts"], carries)
    rows = [_reshaped(x, row_type(x.aval).shape, rewriter) for x in xs]
    results = rewriter.splice(eqn.params["jaxpr"], [*consts, *carry, *rows])
    return [*results[:carries], *(_reshaped(y, (1, *y.aval.shape), rewriter) for y in results[carries:])]


def _reshaped(operand: Operand, shape: tuple[int, ...], rewriter: Rewriter) -> Operand:
    if isinstance(operand, Literal):
        return rewriter.add(broadcast_in_dim_p, operand, shape=shape, broadcast_dimensions=())
    return rewriter.add(reshape_p, operand, new_sizes=shape, dimensions=None)


def _nothing(eqn: Eqn, rewriter: Rewriter) -> list[Operand]:
    carries = eqn.params["num_carry"]
    _, carry, _ = split_scan(eqn.invars, eqn.params["num_consts"], carries)
    results: list[Operand] = list(carry)
    for var in eqn.outvars[carries:]:
        zero = Literal(np.zeros((), var.aval.dtype), var.aval.update(shape=()))
        results.append(rewriter.add(broadcast_in_dim_p, zero, shape=var.aval.shape, broadcast_dimensions=()))
    return results
