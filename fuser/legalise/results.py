"""Results that no kernel writes (inputs, literals, views whose elements lie in another order) as copies, which one does."""

from __future__ import annotations

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.source import Source
from fuser.ops.elementwise import copy_p
from fuser.partition.axes import Views, is_view


def with_computed_results(graph: Graph) -> Graph:
    """The graph with a copy of each result that is neither computed nor a computed value in another shape."""
    views = Views(graph.eqns)
    computed = {v for eqn in graph.eqns if not is_view(eqn) for v in eqn.outvars}
    eqns, outvars = list(graph.eqns), []
    copies: dict[Operand, Var] = {}
    for operand in graph.outvars:
        view = views(operand)
        if isinstance(operand, Var) and (operand in computed or (view.dense and view.source in computed)):
            outvars.append(operand)
            continue
        if operand not in copies:
            copies[operand] = Var(operand.aval)
            line = next((e.source for e in reversed(graph.eqns) if operand in e.outvars), Source())
            eqns.append(Eqn(copy_p, (operand,), {}, (copies[operand],), line))
        outvars.append(copies[operand])
    return graph.updated("outputs", eqns=tuple(eqns), outvars=tuple(outvars))
