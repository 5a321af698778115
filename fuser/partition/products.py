"""What partition does for products that kernels read by strides alone: operands that strides cannot reach are copied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ops.elementwise import copy_p
from fuser.partition.axes import View, Views


def with_strided_operands(graph: Graph, generated: Callable[[Eqn], bool]) -> Graph:
    """The graph with a copy of each operand of a `generated` product that is a view which strides do not describe."""
    if not any(eqn.primitive.fusion is Fusion.DOT for eqn in graph.eqns):
        return graph
    views = Views(graph.eqns)
    eqns: list[Eqn] = []
    copies: dict[Operand, Var] = {}

    def reached(operand: Operand, eqn: Eqn) -> Operand:
        if isinstance(operand, Var) and strided(operand, views(operand)):
            return operand
        if operand not in copies:
            copies[operand] = Var(operand.aval)
            eqns.append(Eqn(copy_p, (operand,), {}, (copies[operand],), eqn.source))
        return copies[operand]

    for eqn in graph.eqns:
        if eqn.primitive.fusion is Fusion.DOT and generated(eqn):
            invars = tuple(reached(v, eqn) for v in eqn.invars)
            eqn = Eqn(eqn.primitive, invars, eqn.params, eqn.outvars, eqn.source)
        eqns.append(eqn)
    return graph.updated("operands", eqns=tuple(eqns))


def strided(operand: Var, view: View) -> bool:
    """Whether the operand's elements lie at constant strides in its source."""
    if view.source is None:
        return False
    if not view.path:
        return True
    dummy = np.empty(view.source.aval.shape, view.source.aval.dtype)
    [found] = evaluate(Graph((view.source,), (), (), view.path, (operand,)), [dummy])
    return np.may_share_memory(dummy, found)
