"""Updates of donated arrays, as loops of one step: a loop in native code goes on in the memory of what it carries, and writes the part alone.

In: a legal graph and the positions of the inputs that the caller gives away. Out: the graph, in which updates (`u.at[i].set(v)`,
`lax.dynamic_update_slice`) that make a result of such an input stand by themselves (`in_place_updates.one_step`). As a part of a kernel each
of them would copy the rest of the array to where it is already. If a call does not give the array away after all, the loop copies it first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Movement
from fuser.partition.group import FusionLimits
from fuser.partition.in_place_updates import one_step

LEAST = 1 << 16  # bytes of an array, below which a kernel copies it in less time than another step takes
PARTS = 4  # of an array, of which an update writes one at most: its value is stored and read again


def with_updates_in_place(graph: Graph, donated: Collection[int], limits: FusionLimits) -> Graph:
    """The graph with updates of donated inputs in place."""
    given = {graph.invars[n] for n in donated if graph.invars[n].aval.nbytes >= LEAST}
    if not given or not limits.carries_in_place:
        return graph
    producers = graph.producers
    apart: set[Eqn] = set()
    for operand in graph.outvars:
        chain: list[Eqn] = []
        while (eqn := producers.get(operand)) is not None and eqn.primitive.movement is Movement.UPDATE:
            chain.append(eqn)
            operand = eqn.invars[0]
        if operand in given:
            apart.update(eqn for eqn in chain if _small(eqn))
    return replace(graph, eqns=tuple(one_step(e) if e in apart else e for e in graph.eqns)) if apart else graph


def _small(eqn: Eqn) -> bool:
    return isinstance(eqn.invars[0], Var) and PARTS * eqn.invars[1].aval.size <= eqn.invars[0].aval.size
