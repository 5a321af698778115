"""Copies for results that no kernel writes: inputs, literals, and views whose elements lie in another order.

What only changes the shape of such a view comes after its copy: a kernel's axes are then those of the view, and the
result is the copy under another shape.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.source import Source
from fuser.ops.elementwise import copy_p
from fuser.partition.axes import Views, is_view, step_map


def with_computed_results(graph: Graph) -> Graph:
    """The graph with a copy of each result that is neither computed nor a computed value in another shape; one for each time
    that it is returned, so that each of them can be donated."""
    views = Views(graph.eqns)
    computed = {v for eqn in graph.eqns if not is_view(eqn) for v in eqn.outvars}
    eqns, outvars = list(graph.eqns), []
    for operand in graph.outvars:
        view = views(operand)
        if isinstance(operand, Var) and (operand in computed or (view.dense and view.source in computed)):
            outvars.append(operand)
            continue
        line = next((e.source for e in reversed(graph.eqns) if operand in e.outvars), Source())
        shaped = _shaped(operand, views)
        source = shaped[0].invars[0] if shaped else operand
        copied = Var(source.aval)
        eqns.append(Eqn(copy_p, (source,), {}, (copied,), line))
        for step in shaped:
            made = Var(step.outvars[0].aval)
            eqns.append(replace(step, invars=(copied,), outvars=(made,)))
            copied = made
        outvars.append(copied)
    return graph.updated("outputs", eqns=tuple(eqns), outvars=tuple(outvars))


def _shaped(operand: Operand, views: Views) -> list[Eqn]:
    """The last steps of a view that keep the order of elements, the first one first."""
    found: list[Eqn] = []
    while isinstance(operand, Var) and (eqn := views.eqn_of.get(operand)) is not None:
        alone = len(eqn.invars) == 1 and len(eqn.outvars) == 1 and isinstance(eqn.invars[0], Var)
        if not alone or not step_map(eqn, operand)[1]:
            break
        found.insert(0, eqn)
        operand = eqn.invars[0]
    return found if isinstance(operand, Var) and operand in views.eqn_of else []
