"""Dead code: equations none of whose results are needed go away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Var, effective
from fuser.ir.primitive import Fusion
from fuser.passes.loops.carries import pruned


def drop_dead(graph: Graph) -> Graph:
    """The graph without dead equations and constants, itself where nothing is dead; inputs stay, they are the function's
    arguments. Effects are results by now: tokens (`tokens.py`)."""
    return _live(graph, drop_dead, lambda eqn: False)


def drop_unread(graph: Graph) -> Graph:
    """As `drop_dead` of a graph as it was traced: equations with effects stay."""
    return _live(graph, drop_unread, effective)


def _live(graph: Graph, inside: Callable[[Graph], Graph], acts: Callable[[Eqn], bool]) -> Graph:
    needed = {v for v in graph.outvars if isinstance(v, Var)}
    kept = []
    for eqn in reversed(graph.eqns):
        used = [v in needed for v in eqn.outvars]
        acting = acts(eqn)
        if any(used) or acting:
            if eqn.primitive.fusion is Fusion.CONTROL and not acting:
                eqn = pruned(eqn, used, inside)
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
