"""Donated inputs that no result takes over: a finished plan and the donated positions in, the reason for each out.

It retraces the rules of buffers.reusable for one input at a time, in the words of the user's program.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fuser.ir.graph import Var
from fuser.ir.primitive import Fusion
from fuser.partition.buffers import read_where_written, returns_views, same_type
from fuser.partition.group import FusionGroup, FusionLimits, Kind, Plan, generated


class Unused(NamedTuple):
    """An input, by position, why its memory is not taken over, and whether any result could lie there at all."""

    position: int
    reason: str
    fits: bool


def unused(plan: Plan, donated: Collection[int], limits: FusionLimits) -> list[Unused]:
    """The donated inputs that keep their memory to themselves; those without elements are left out."""
    given = {plan.slot_of[plan.graph.invars[position]] for position in donated}
    taken = set(plan.reuse.values())
    returned = {plan.slot_of[plan.aliases.get(v, v)] for v in plan.outputs if isinstance(v, Var)}
    result = []
    for position in sorted(donated):
        var = plan.graph.invars[position]
        slot = plan.slot_of[var]
        if slot not in taken and slot not in returned and var.aval.nbytes:
            result.append(_explained(plan, position, given, limits))
    return result


def _explained(plan: Plan, position: int, given: Collection[int], limits: FusionLimits) -> Unused:
    var = plan.graph.invars[position]
    mine = plan.slots[plan.slot_of[var]]
    results = dict.fromkeys(plan.aliases.get(v, v) for v in plan.outputs if isinstance(v, Var))
    fitting = [v for v in results if same_type(v.aval, var.aval)]
    if not fitting:
        alike = [v for v in results if v.aval.nbytes == var.aval.nbytes]
        instead = f" (one of as many bytes is {alike[0].aval})" if alike else ""
        return Unused(position, f"no result is {var.aval}{instead}", False)
    written = [plan.slot_of[v] for v in fitting]
    free = [slot for slot in written if plan.reuse.get(slot) not in given]
    if not free:
        return Unused(position, f"other arguments gave their memory to the results that are {var.aval}", True)
    return Unused(position, _blocker(plan, var, plan.slots[free[0]].start, mine.end, limits), True)


def _blocker(plan: Plan, var: Var, written: int, last: int, limits: FusionLimits) -> str:
    """Why the result that step `written` writes is not where `var` is, which step `last` is the last to read."""
    keeper = next((g for g in plan.groups if returns_views(g) and var in g.graph.invars), None)
    if keeper is not None:
        return f"{_named(keeper)} runs in NumPy and may return a view of it"
    group = plan.groups[written]
    if not generated(group, limits):
        return f"the result is made by {_named(group)}, which allocates it"
    if last > written:
        return f"{_named(plan.groups[last])} still reads it after the result is written"
    if last < written:
        return f"the result is written over what {_named(plan.groups[last])} made of it"
    readers = [part for part in group.parts or (group,) if var in part.graph.invars]
    if len(readers) > 1:
        return f"several kernels of {_named(group)} read it"
    reader = readers[0]
    product = reader.kind is Kind.CONTRACTION and limits.in_place_epilogues
    operands = {v for eqn in reader.graph.eqns if eqn.primitive.fusion is Fusion.DOT for v in eqn.operands()}
    if reader.kind is not Kind.ELEMENTWISE and (not product or var in operands):
        return f"{_named(reader)} reads parts of it after it has written others of the result"
    if var not in read_where_written(reader, limits):
        return f"{_named(reader)} reads it in another order than it writes the result"
    return f"{_named(group)} writes the result in another kernel than the one that reads it"


def _named(group: FusionGroup) -> str:
    """`k0_mul (mlp.py:12)`."""
    source = next((s for s in reversed(group.sources) if s.file), None)
    return f"{group.name} ({source.short})" if source else group.name
