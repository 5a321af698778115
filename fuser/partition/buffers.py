"""Buffer slots: where each value of the plan lives, from which group to which, and which slots share memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fuser.ir.graph import Graph, Var
from fuser.ir.primitive import Fusion
from fuser.ir.types import ArrayType
from fuser.partition.group import FusionGroup, Kind, Slot


def assign(
    graph: Graph, groups: tuple[FusionGroup, ...], aliases: dict[Var, Var]
) -> tuple[tuple[Slot, ...], dict[Var, int]]:
    """The slots of a plan, and the slot of each variable: inputs first, then constants, then what groups write."""
    slot_of: dict[Var, int] = {}
    start: list[int] = []
    end: list[int] = []
    types: list[ArrayType] = []

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
        for written in group.graph.outvars:
            if isinstance(written, Var) and written not in slot_of:
                add(written, number)
    for operand in graph.outvars:
        if isinstance(operand, Var):
            end[slot_of[aliases.get(operand, operand)]] = len(groups)
    slots = tuple(Slot(i, t, s, e) for i, (t, s, e) in enumerate(zip(types, start, end)))
    return slots, slot_of


def _kernels(groups: tuple[FusionGroup, ...]) -> Iterator[tuple[int, FusionGroup]]:
    """The number of each step with each kernel that it runs."""
    for number, group in enumerate(groups):
        for kernel in group.parts or (group,):
            yield number, kernel


def _read_by_one(group: FusionGroup) -> set[Var]:
    """The inputs that only one kernel of the step reads."""
    reads = Counter(v for kernel in group.parts or (group,) for v in kernel.graph.invars)
    return {v for v in group.graph.invars if reads[v] == 1}


def reusable(
    graph: Graph, groups: tuple[FusionGroup, ...], slots: tuple[Slot, ...], slot_of: dict[Var, int]
) -> dict[int, int]:
    """For each written slot, an input whose memory it may take over if that input is donated.

    The input must have the same type, be read for the last time by the group that writes the slot, and be read there
    only at the place that is written: an elementwise group that reads it along its own axes.
    """
    inputs = {slot_of[v]: v for v in graph.invars}
    result: dict[int, int] = {}
    taken: set[int] = set()
    for number, group in _kernels(groups):
        if group.kind is not Kind.ELEMENTWISE or any(
            eqn.primitive.fusion is Fusion.MOVEMENT for eqn in group.graph.eqns
        ):
            continue
        alone = _read_by_one(groups[number])
        for var in group.graph.outvars:
            if var not in slot_of:  # it stays inside of a bundle
                continue
            target = slot_of[var]  # type: ignore[index]
            for read in group.graph.invars:
                if read not in alone:
                    continue
                source = slot_of[read]
                same = (read.aval.shape, read.aval.dtype) == (var.aval.shape, var.aval.dtype)
                if (
                    same
                    and source in inputs
                    and source not in taken
                    and slots[source].end == number
                    and target not in result
                ):
                    result[target] = source
                    taken.add(source)
    return result
