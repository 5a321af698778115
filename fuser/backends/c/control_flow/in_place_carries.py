"""Carries of a loop that may stay where they are: each element of the new one is written when the old one has been read.

A loop then needs no second memory for the carry, which would take twice the room in the caches.
"""

from __future__ import annotations

from fuser.kernel.kernel import Kernel
from fuser.kernel.lower import lower
from fuser.partition.group import FusionGroup, Kind, Plan


def carried_in_place(plan: Plan, source: int, target: int) -> bool:
    """Whether a body's result in slot `target` may be written over its input in slot `source`."""
    before, after = plan.slots[source], plan.slots[target]
    if (before.aval.shape, before.aval.dtype) != (after.aval.shape, after.aval.dtype) or after.start < 0:
        return False
    group = plan.groups[after.start]
    if before.end > after.start or group.kind not in (Kind.ELEMENTWISE, Kind.REDUCTION):
        return False
    return writes_behind(group, plan, source, target)


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
