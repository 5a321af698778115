"""Updates of donated arrays, which write the part that changes in the array's own memory.

In: a legal graph and the positions of the inputs that the caller gives away. Out: the graph, in which updates (`u.at[i].set(v)`,
`lax.dynamic_update_slice`) that make a result of such an input stand by themselves (`in_place_updates.one_step`), as loops of one step:
a loop in native code goes on in the memory of what it carries, and writes the part alone. As a part of a kernel each of them would copy
the rest of the array to where it is already. What is computed for a window whose place is known is not stored first: its kernel
writes into the array, and leaves out the copies around where both are one memory (`buffers.changed`).
If a call does not give the array away after all, both copy it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Fusion, Movement
from fuser.partition.group import FusionLimits
from fuser.partition.in_place_updates import one_step, reads_its_window

LEAST = 1 << 16  # bytes of an array, below which a kernel copies it in less time than another step takes
PARTS = 4  # of an array, of which an update writes one at most: its value is stored and read again
LONG = 64  # elements of rows that kernels cut at a window's borders; of shorter ones they choose each element


def with_updates_in_place(graph: Graph, donated: Collection[int], limits: FusionLimits) -> Graph:
    """The graph with updates of donated inputs in place."""
    given = {graph.invars[n] for n in donated if graph.invars[n].aval.nbytes >= LEAST}
    if not given or not limits.carries_in_place:
        return graph
    producers = graph.producers
    uses = Counter([v for eqn in graph.eqns for v in eqn.operands()] + [v for v in graph.outvars if isinstance(v, Var)])
    apart: set[Eqn] = set()
    for operand in graph.outvars:
        chain: list[Eqn] = []
        while (eqn := producers.get(operand)) is not None and eqn.primitive.movement is Movement.UPDATE:
            chain.append(eqn)
            operand = eqn.invars[0]
        if operand not in given or (len(chain) == 1 and limits.update_frames and _by_its_kernel(chain[0], graph, uses)):
            continue
        apart.update(eqn for eqn in chain if _small(eqn))
    return replace(graph, eqns=tuple(one_step(e) if e in apart else e for e in graph.eqns)) if apart else graph


def _small(eqn: Eqn) -> bool:
    return isinstance(eqn.invars[0], Var) and PARTS * eqn.invars[1].aval.size <= eqn.invars[0].aval.size


def _by_its_kernel(eqn: Eqn, graph: Graph, uses: Counter[Var]) -> bool:
    """Whether the kernel that computes the value of an update writes it into the array, in loops cut at its borders: nobody else reads
    value or result, nor the array but where it is written."""
    array, value, *_ = eqn.invars
    made = graph.producers.get(value)
    if made is None or made.primitive.fusion is not Fusion.ELEMENTWISE or uses[value] != 1 or uses[eqn.outvars[0]] != 1:  # type: ignore[index]
        return False
    rows, part = array.aval.shape[-1:], value.aval.shape[-1:]
    return (rows == part or rows >= (LONG,)) and reads_its_window(eqn, graph)
