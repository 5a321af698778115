"""Congruent counters: scalars of a loop's body that are constant, or equal a counter in each iteration, are replaced by it.

`where(k < 0, k + n, k)` and `clip(k, 0, n - 1)` are the counter itself where its values are known to lie inside, so that no kernel computes
them in each iteration. Value numbering (Cocke and Schwartz 1970), by the values that `iterations` finds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand
from fuser.ir.primitive import Control, Fusion
from fuser.ir.rewrite import Rewriter
from fuser.passes.dce import drop_dead
from fuser.passes.loops.iterations import Constants, Known, decided, iterations


def replace_congruent_counters(graph: Graph) -> Graph:
    """The graph whose scans compute no scalar that is constant, or has the value of another one in each iteration."""
    if not any(eqn.primitive.control is Control.SCAN for eqn in graph.eqns):
        return graph
    constants = Constants(graph, graph.producers)
    eqns = tuple(
        _without_congruent(eqn, constants) if eqn.primitive.control is Control.SCAN else eqn for eqn in graph.eqns
    )
    return graph if all(new is old for new, old in zip(eqns, graph.eqns)) else replace(graph, eqns=eqns)


def _without_congruent(eqn: Eqn, constants: Constants) -> Eqn:
    body = eqn.params["jaxpr"]
    known = iterations(eqn, constants) if eqn.params["length"] else {}
    if not any(inner.outvars[0] in known for inner in body.eqns):
        return eqn
    found = drop_dead(_numbered(decided(body, known), known))
    return replace(eqn, params={**eqn.params, "jaxpr": found}) if len(found.eqns) < len(body.eqns) else eqn


def _numbered(body: Graph, known: Known) -> Graph:
    """The body in which the first scalar of each sequence of values stands for the others."""
    rewriter = Rewriter(body)
    firsts: dict[tuple[np.dtype, bytes], Operand] = {}
    for var in body.invars:
        if var in known:
            firsts.setdefault(_key(known[var]), var)
    for eqn in body.eqns:
        var, resolved = eqn.outvars[0], rewriter.resolve(eqn)
        values = known.get(var) if eqn.primitive.fusion is Fusion.ELEMENTWISE else None
        if values is None or var in body.outvars:
            rewriter.keep(resolved)
        elif (values == values[0]).all():
            rewriter.replace(var, Literal(values[0], var.aval))
        elif (first := firsts.setdefault(_key(values), var)) is not var:
            rewriter.replace(var, first)
        else:
            rewriter.keep(resolved)
    return rewriter.finish()


def _key(values: np.ndarray) -> tuple[np.dtype, bytes]:
    return values.dtype, values.tobytes()
