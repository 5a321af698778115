"""Updates of arrays whose memory a result may take over, as kernels write them that write a window and nothing else.

In: a graph and the positions of its inputs that are given away: arguments that are donated, and what a loop carries. Out: the graph, in
which updates (`u.at[i].set(v)`, `lax.dynamic_update_slice`) that make a result of such an input are writes of a window, and combinations of
rows that do so say that they are `in_place`. As a part of a kernel each of them would copy the rest of the array to where it is already. If
a call does not give the array away after all, it is copied first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Movement
from fuser.ops.scatter import SCATTERS
from fuser.ops.scatter_rows import scatter_rows_p
from fuser.ops.window_write import window_write
from fuser.partition.axes import Views
from fuser.partition.group import FusionLimits
from fuser.passes.indexing.scatter_to_update import origin

LEAST = 1 << 16  # bytes of an array, below which a kernel copies it in less time than another step takes
PARTS = 4  # of an array, of which an update writes one at most: its value may be stored and read again
_ROWS = frozenset({*SCATTERS, scatter_rows_p})


def with_window_writes(graph: Graph, donated: Collection[int], limits: FusionLimits) -> Graph:
    """The graph with updates of inputs that are given away as writes of windows, before it is legalised."""
    if not donated or not limits.window_writes:
        return graph
    given = {graph.invars[n] for n in donated if graph.invars[n].aval.nbytes >= LEAST}
    updates = (eqn for eqn in _changing(graph, given) if eqn.primitive.movement is Movement.UPDATE)
    apart = {eqn for eqn in updates if _small(eqn)}
    return replace(graph, eqns=tuple(window_write(e) if e in apart else e for e in graph.eqns)) if apart else graph


def with_rows_in_place(graph: Graph, donated: Collection[int], limits: FusionLimits) -> Graph:
    """The graph whose combinations of rows say where their result may lie in the memory of an input that is given away."""
    if not donated or scatter_rows_p not in limits.calls_in_place:
        return graph
    given = {graph.invars[n] for n in donated}
    found = {eqn for eqn in _changing(graph, given) if eqn.primitive is scatter_rows_p}
    if not found:
        return graph
    in_place = lambda eqn: replace(eqn, params={**eqn.params, "in_place": True})
    return replace(graph, eqns=tuple(in_place(eqn) if eqn in found else eqn for eqn in graph.eqns))


def _changing(graph: Graph, given: Collection[Var]) -> set[Eqn]:
    """The updates and scatters that, one after the other, make results of inputs in `given`; there may be loops and choices that do so
    between them, and other shapes of the array."""
    producers, views = graph.producers, Views(graph.eqns)
    found: set[Eqn] = set()
    for operand in graph.outvars:
        chain: list[Eqn] = []
        while (before := _before(operand, producers, views, chain)) is not None:
            operand = before
        if operand in given:
            found.update(chain)
    return found


def _before(operand: Operand, producers: Mapping[Operand, Eqn], views: Views, chain: list[Eqn]) -> Operand | None:
    """The array that `operand` is made of by an update, which is put into the chain; None where it is made otherwise."""
    eqn = producers.get(operand)
    if eqn is None:
        return None
    if eqn.primitive.movement is Movement.UPDATE or eqn.primitive in _ROWS:
        chain.append(eqn)
        return eqn.invars[0]
    view = views(operand)
    if view.dense and view.source is not None and view.source is not operand:
        return view.source
    start, updates = origin(operand, producers)
    chain += updates
    return None if start is operand else start


def _small(eqn: Eqn) -> bool:
    return isinstance(eqn.invars[0], Var) and PARTS * eqn.invars[1].aval.size <= eqn.invars[0].aval.size
