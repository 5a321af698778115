"""Copies of operands that an equation cannot read as they are: views that its kernel or driver has no form for."""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ops.elementwise import copy_p
from fuser.partition.axes import Views


def with_copies(graph: Graph, chosen: Callable[[Eqn], bool], fits: Callable[[Operand, Views], bool]) -> Graph:
    """The graph with a copy of each operand of the `chosen` equations that does not fit; one copy serves all of them."""
    wanted = [chosen(eqn) for eqn in graph.eqns]
    if not any(wanted):
        return graph
    views = Views(graph.eqns)
    eqns: list[Eqn] = []
    copies: dict[Operand, Var] = {}

    def read(operand: Operand, eqn: Eqn) -> Operand:
        if fits(operand, views):
            return operand
        if operand not in copies:
            copies[operand] = Var(operand.aval)
            eqns.append(Eqn(copy_p, (operand,), {}, (copies[operand],), eqn.source))
        return copies[operand]

    for eqn, use in zip(graph.eqns, wanted):
        if use:
            invars = tuple(read(v, eqn) for v in eqn.invars)
            eqn = Eqn(eqn.primitive, invars, eqn.params, eqn.outvars, eqn.source)
        eqns.append(eqn)
    return graph.updated("operands", eqns=tuple(eqns))
