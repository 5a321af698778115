"""Equations of primitives that are made of others (`Primitive.expand`), written out where a backend has no form for them."""

from __future__ import annotations

from fuser.ir.graph import Graph
from fuser.ir.primitive import Primitive
from fuser.ir.rewrite import Rewriter
from fuser.passes.algebra.counting import COUNTING
from fuser.passes.algebra.simplifier import simplify, table
from fuser.passes.cse import merge_common
from fuser.passes.dce import drop_dead
from fuser.trace.stage import stage

_COUNTED = table(COUNTING)  # positions that a sort carries along are those that it finds


def expanded(graph: Graph, natives: frozenset[Primitive]) -> Graph:
    """The graph with each equation that can be expanded written by other primitives, but for those of `natives`.

    Bodies of control flow are graphs of their own, whose turn comes when they are partitioned.
    """
    wanted = {eqn for eqn in graph.eqns if eqn.primitive.expand is not None and eqn.primitive not in natives}
    if not wanted:
        return graph
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn, made_of_others = rewriter.resolve(eqn), eqn in wanted
        if not made_of_others:
            rewriter.keep(eqn)
            continue
        rule, params, several = eqn.primitive.rule("expand"), eqn.params, eqn.primitive.multiple_results
        function = lambda *values, rule=rule, params=params, several=several: (
            rule(*values, **params) if several else [rule(*values, **params)]
        )
        inner = expanded(stage(function, [v.aval for v in eqn.invars], eqn.primitive.name), natives)
        for var, result in zip(eqn.outvars, rewriter.splice(inner, eqn.invars, eqn.source)):
            rewriter.replace(var, result)
    return drop_dead(merge_common(simplify(rewriter.finish(), _COUNTED)))
