"""The checker of plans: a plan in, the same plan out, or a PlanError that names the group or the slot.

Groups read what is there before them and write each value once; results are computed; no two values that are needed at
the same time share memory, except that a value takes over the memory of one that dies where it is written. Bodies of
control flow are plans of their own, and checked when they are made.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.errors import PlanError
from fuser.ir.graph import Var
from fuser.partition.group import FusionGroup, Plan


def check(plan: Plan) -> Plan:
    """`plan` itself; PlanError where it breaks a rule of the form."""
    known = {*plan.graph.invars, *plan.graph.constvars}
    for group in plan.groups:
        _check_group(group, known)
    for operand in plan.outputs:
        if isinstance(operand, Var) and plan.aliases.get(operand, operand) not in known:
            raise PlanError(f"plan of {plan.graph.name}: no group writes the result {operand.aval}")
    _check_slots(plan)
    _check_memory(plan)
    return plan


def _check_group(group: FusionGroup, known: set[Var]) -> None:
    """The group's operands are known; afterwards its results are. Parts of a launch follow each other."""
    for var in group.graph.invars:
        if var not in known:
            raise PlanError(f"{group.name} reads {var.aval} before any group has written it")
    inside = set(known)
    for part in group.parts:
        _check_group(part, inside)
    inside |= {v for eqn in group.graph.eqns for v in eqn.outvars} | set(group.graph.invars)
    for operand in group.graph.outvars:
        if isinstance(operand, Var) and operand not in inside:
            raise PlanError(f"{group.name} gives {operand.aval}, which it does not compute")
    known |= {v for v in group.graph.outvars if isinstance(v, Var)}


def _check_slots(plan: Plan) -> None:
    """A slot lives from the group that writes it to the last that reads it."""
    for number, group in enumerate(plan.groups):
        for var in group.graph.invars:
            slot = plan.slots[plan.slot_of[var]]
            if not slot.start < number <= slot.end:
                raise PlanError(
                    f"{group.name}, step {number}, reads slot {slot.index}, which lives from {slot.start} to {slot.end}"
                )
        for written in group.graph.outvars:
            if isinstance(written, Var) and plan.slots[plan.slot_of[written]].start > number:
                raise PlanError(f"{group.name}, step {number}, writes slot {plan.slot_of[written]} before its life")


def _check_memory(plan: Plan) -> None:
    """Reuse of dying memory, and the arena."""
    for target, source in plan.reuse.items():
        new, old = plan.slots[target], plan.slots[source]
        if old.end > new.start:
            raise PlanError(
                f"slot {target} takes over slot {source} at step {new.start}, which is read until {old.end}"
            )
        if new.aval.nbytes != old.aval.nbytes:
            raise PlanError(f"slot {target}, {new.aval}, takes over slot {source}, {old.aval}")
    lives = sorted(_lives(plan))
    alive: list[tuple[int, int, int, int]] = []  # first byte, byte after the last, last step, slot
    for start, end, first, last, slot in lives:
        alive = [other for other in alive if other[2] >= start]
        for other in alive:
            if first < other[1] and other[0] < last and not (plan.reuse.get(slot) == other[3] and other[2] == start):
                raise PlanError(f"slots {other[3]} and {slot} share bytes of the arena at step {start}")
        alive.append((first, last, end, slot))


def _lives(plan: Plan) -> Iterator[tuple[int, int, int, int, int]]:
    """First step, last step, first byte, byte after the last, and number of each slot in the arena."""
    for number, offset in plan.offsets.items():
        slot = plan.slots[number]
        if offset + slot.aval.nbytes > plan.arena:
            raise PlanError(
                f"slot {number} lies at {offset} of an arena of {plan.arena} bytes, and takes {slot.aval.nbytes}"
            )
        if slot.aval.nbytes:
            yield slot.start, slot.end, offset, offset + slot.aval.nbytes, number
