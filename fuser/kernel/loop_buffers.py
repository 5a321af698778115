"""Plan → Plan: where the carries of native loops lie, so that emission only spells it.

A carry of which the body writes a part alone stays in the result's memory. So does one whose every new element is written
when the old one has been read, which the body's kernels tell, and one that loops inside go on with in their results' memory.
The others are double-buffered: they change each step between the result's memory and a back buffer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fuser.ir.graph import Var
from fuser.kernel.kernel import Kernel
from fuser.kernel.lower import lower
from fuser.ops.control import cond_p, scan_p, while_p
from fuser.partition.axes import Views
from fuser.partition.buffers import same_type
from fuser.partition.group import FusionGroup, FusionLimits, Kind, Plan
from fuser.partition.in_place_updates import LoopBuffers, updates_in_place


def with_loop_buffers(plan: Plan, limits: FusionLimits) -> Plan:
    """The plan with the buffers of each loop that runs in native code, those in the bodies of others too."""
    if limits.whole or not any(group.bodies for group in plan.groups):
        return plan
    return replace(plan, groups=tuple(_placed(group, limits) for group in plan.groups))


def _placed(group: FusionGroup, limits: FusionLimits) -> FusionGroup:
    if not group.bodies:
        return group
    group = replace(group, bodies=tuple(with_loop_buffers(body, limits) for body in group.bodies))
    native = (
        group.kind is Kind.CONTROL
        and not group.reason
        and not group.enqueued
        and group.graph.eqns[-1].primitive is not cond_p
    )
    return replace(group, buffers=loop_buffers(group)) if native else group


def loop_buffers(group: FusionGroup) -> LoopBuffers:
    """Where the carries of a scan or a while lie, whose bodies are planned."""
    eqn, body = group.graph.eqns[-1], group.bodies[-1]
    if eqn.primitive is scan_p:
        first, ys = eqn.params["num_consts"], len(eqn.outvars) - eqn.params["num_carry"]
    else:  # the lanes that still run come first, where the test gives them
        first, ys = len(group.bodies[0].outputs) - 1 + eqn.params["body_nconsts"], 0
    updated = updates_in_place(eqn)
    inputs = [body.slot_of[v] for v in body.graph.invars]
    outputs = [body.slot_of[body.aliases.get(v, v)] for v in body.outputs if isinstance(v, Var)]
    count = len(updated.moving)
    slots = {n: outputs[k] for k, n in enumerate(updated.moving)}
    rows = outputs[count : count + ys]
    uses = Counter([*slots.values(), *rows])
    between = {n: carried_in_place(body, inputs[first + n], slot) for n, slot in slots.items() if uses[slot] == 1}
    in_place = {n for n, found in between.items() if found is not None}
    within = {slot: n for n, found in between.items() for slot in found or ()}
    first_of: dict[int, int] = {}  # carries that share a slot are written once
    for n, slot in slots.items():
        if n not in in_place and slot not in rows:
            first_of.setdefault(slot, n)
    return LoopBuffers(updated, slots, tuple(rows), frozenset(in_place), tuple(first_of.values()), within)


def carried_in_place(plan: Plan, source: int, target: int) -> tuple[int, ...] | None:
    """The slots between, where a body's result in slot `target` may lie over its input in slot `source`: each step on the way
    writes over what it is the last to read. None where it may not."""
    between: list[int] = []
    while (before := _overwritten(plan, source, target)) is not None:
        if before == source:
            return tuple(between)
        between.append(before)
        target = before
    return None


def _overwritten(plan: Plan, source: int, target: int) -> int | None:
    """The slot whose memory the step that writes `target` may go on with: `source`, else what a step before it has written."""
    after = plan.slots[target]
    if after.start < 0:
        return None
    group = plan.groups[after.start]
    dying = [
        slot
        for slot in dict.fromkeys(plan.slot_of[v] for v in group.graph.invars)
        if (slot == source or plan.slots[slot].start >= 0)
        and plan.slots[slot].end <= after.start
        and same_type(plan.slots[slot].aval, after.aval)
    ]
    if source in dying:
        dying = [source]
    if group.kind is Kind.CONTROL:
        return next((slot for slot in dying if goes_on(group, plan, slot, target)), None)
    if group.kind not in (Kind.ELEMENTWISE, Kind.REDUCTION):
        return None
    return next((slot for slot in dying if writes_behind(group, plan, slot, target)), None)


def goes_on(group: FusionGroup, plan: Plan, source: int, target: int) -> bool:
    """Whether a loop may find the carry that it gives in slot `target` in the memory of `source`: it stays in the result's memory
    from the first step on, and the loop reads `source` in no other way."""
    eqn, buffers = group.graph.eqns[-1], group.buffers
    if buffers is None or target not in (written := [plan.slot_of.get(v) for v in eqn.outvars]):  # type: ignore[call-overload]
        return False
    if eqn.primitive is scan_p:
        first, count = eqn.params["num_consts"], eqn.params["num_carry"]
    elif eqn.primitive is while_p:
        first, count = eqn.params["cond_nconsts"] + eqn.params["body_nconsts"], len(eqn.outvars)
    else:
        return False
    n = written.index(target)
    if n >= count or (n in buffers.slots and n not in buffers.in_place):
        return False
    views = Views(group.graph.eqns)
    sources = [views(operand).source for operand in eqn.invars]
    places = [k for k, var in enumerate(sources) if var is not None and plan.slot_of[var] == source]
    return places == [first + n]


def writes_behind(group: FusionGroup, plan: Plan, source: int, target: int) -> bool:
    """Whether the group's kernel reads the one only at the place of the other that it then writes, and never later."""
    kernel = lower(group)
    written = {plan.slot_of[v]: len(group.graph.invars) + n for n, v in enumerate(dict.fromkeys(group.graph.outvars))}  # type: ignore[index]
    read = {n for n, v in enumerate(group.graph.invars) if plan.slot_of[v] == source}
    return bool(read) and written_after_read(kernel, read, written[target])


def written_after_read(kernel: Kernel, read: set[int], target: int) -> bool:
    """Whether parameter `target` may be the same memory as the parameters `read`."""
    if any(sweep.kept for sweep in kernel.sweeps):  # they may wait in the result's memory
        return False
    stores = [
        (number, s) for number, sweep in enumerate(kernel.sweeps) for s in (*sweep.row_stores, *sweep.stores)
        if s.param == target
    ]  # fmt: skip
    loads = [
        (number, node.attr)
        for number, sweep in enumerate(kernel.sweeps)
        for node in (*sweep.row, *sweep.body)
        if node.op == "load" and node.attr.param in read
    ]
    if len(stores) != 1:
        return False
    last, store = stores[0]
    return all(number <= last and access.offset == store.offset for number, access in loads)
