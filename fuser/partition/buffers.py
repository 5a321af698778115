"""Buffer slots: where each value of the plan lives, from which group to which, and which slots share memory."""

from __future__ import annotations

from fuser.ir.graph import Graph, Var
from fuser.partition.group import FusionGroup, Slot


def assign(graph: Graph, groups: tuple[FusionGroup, ...], aliases: dict[Var, Var]) -> tuple[tuple[Slot, ...], dict[Var, int]]:
    """The slots of a plan, and the slot of each variable: inputs first, then constants, then what groups write."""
    slot_of: dict[Var, int] = {}
    start: list[int] = []
    end: list[int] = []
    types = []

    def add(var: Var, begin: int) -> None:
        slot_of[var] = len(types)
        types.append(var.aval)
        start.append(begin)
        end.append(begin)

    for var in (*graph.invars, *graph.constvars):
        add(var, -1)
    for number, group in enumerate(groups):
        for var in group.graph.invars:
            end[slot_of[var]] = max(end[slot_of[var]], number)
        for var in group.graph.outvars:
            if isinstance(var, Var) and var not in slot_of:
                add(var, number)
    for operand in graph.outvars:
        if isinstance(operand, Var):
            end[slot_of[aliases.get(operand, operand)]] = len(groups)
    slots = tuple(Slot(i, t, s, e) for i, (t, s, e) in enumerate(zip(types, start, end)))
    return slots, slot_of
