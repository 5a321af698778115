"""Dead code: equations none of whose results are needed go away. Effects are results by now: tokens (`tokens.py`)."""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.graph import Graph, Var
from fuser.ir.primitive import Fusion
from fuser.passes.loops.carries import pruned


def drop_dead(graph: Graph) -> Graph:
    """The graph without dead equations and constants, itself where nothing is dead; inputs stay, they are the function's
    arguments."""
    needed = {v for v in graph.outvars if isinstance(v, Var)}
    kept = []
    for eqn in reversed(graph.eqns):
        used = [v in needed for v in eqn.outvars]
        if any(used):
            if eqn.primitive.fusion is Fusion.CONTROL:
                eqn = pruned(eqn, used, drop_dead)
            kept.append(eqn)
            needed.update(eqn.operands())
    same = len(kept) == len(graph.eqns) and all(a is b for a, b in zip(reversed(kept), graph.eqns))
    if same and all(v in needed for v in graph.constvars):
        return graph
    constants = [(v, c) for v, c in zip(graph.constvars, graph.consts) if v in needed]
    return replace(
        graph,
        eqns=tuple(reversed(kept)),
        constvars=tuple(v for v, _ in constants),
        consts=tuple(c for _, c in constants),
    )
