"""Puts the target's choice of code where a program chooses by platform, before any other pass."""

from __future__ import annotations

from fuser.ir.graph import Graph, Literal
from fuser.ir.rewrite import Rewriter
from fuser.ops.platform import index_of, platform_index_p
from fuser.passes.fold import fold_constants
from fuser.passes.loops.carries import in_bodies
from fuser.passes.loops.trivial_control import simplify_trivial_control


def on_platform(graph: Graph, platform: str) -> Graph:
    """The graph for one platform, the bodies of its control flow too. NotImplementedError where a choice has none for it."""
    graph = in_bodies(graph, lambda body: on_platform(body, platform))
    if not any(eqn.primitive is platform_index_p for eqn in graph.eqns):
        return graph
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        if eqn.primitive is platform_index_p:
            [var] = eqn.outvars
            rewriter.replace(var, Literal(index_of(platform, **eqn.params), var.aval))
        else:
            rewriter.keep(eqn)
    return simplify_trivial_control(fold_constants(rewriter.finish()))
