"""What steps change where it lies: operands that share memory with a result, of which a step writes the part alone.

Library calls that write rows or a window do so, loops in native code whose carries are updated (`in_place_updates.py`), and control flow that
a device's program holds. There a carry stays in the result's memory where each step of the body on the way from the old one to the new one
goes on in the memory of what it changes; so do results of a choice that each branch makes so of one operand, or gives back. Everything
else is written to other memory than what it is made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Control, Movement
from fuser.ops.conversion import copy_p
from fuser.ops.window_write import reads_window, write_window_p
from fuser.partition.axes import View, Views, is_view
from fuser.partition.group import FUSIBLE, FusionGroup, FusionLimits, Kind, Plan
from fuser.partition.in_place_updates import carries, reads_its_window, updates_in_place

_LOOPS = (Control.SCAN, Control.WHILE)


def changed(group: FusionGroup, limits: FusionLimits) -> Iterator[tuple[Var, Var]]:
    """Inputs with the results that a step makes in their memory, if they lie there: carries of which a loop in native code writes parts, the
    arrays that library calls scatter into, those that kernels write windows of. Nothing else in the step reads them, but for a kernel that
    reads each element where it then writes it."""
    if limits.update_frames and group.kind is Kind.ELEMENTWISE and len(group.graph.outvars) == 1:
        yield from _updated(group.graph)
        return
    if limits.window_writes and is_copy(group):
        yield group.graph.invars[0], group.graph.outvars[0]  # type: ignore[misc]
        return
    if group.kind in FUSIBLE:
        yield from ((source, eqn.outvars[0]) for source, eqn in windows(group) if _read_where_written(group, eqn))
        return
    eqn = group.graph.eqns[-1]
    pairs: list[tuple[Operand, Var]] = []
    if group.kind is Kind.LIBRARY and not group.reason and eqn.primitive in limits.calls_in_place:
        pairs = [(eqn.invars[0], eqn.outvars[0])]
    if group.kind is Kind.CONTROL and group.enqueued:
        pairs = [(eqn.invars[operand], eqn.outvars[result]) for operand, result, _ in kept(group, limits)]
    native = group.kind is Kind.CONTROL and group.bodies and not group.reason and not group.enqueued
    if native and limits.carries_in_place and eqn.primitive.control in _LOOPS:
        whole = set(updates_in_place(eqn).moving)
        first, count = carries(eqn)
        pairs = [(eqn.invars[first + n], eqn.outvars[n]) for n in range(count) if n not in whole]
    if not pairs:
        return
    views = Views(group.graph.eqns)
    reads = Counter(views(v).source for v in eqn.operands())
    for operand, target in pairs:
        view = views(operand)
        if view.source is not None and reads[view.source] == 1 and _is_same(view, group, target):
            yield view.source, target


def is_copy(group: FusionGroup) -> bool:
    """Whether a kernel copies an array and does nothing else, so that there is nothing to do where the result is that array."""
    graph = group.graph
    if group.kind is not Kind.ELEMENTWISE or len(graph.outvars) != 1 or len(graph.invars) != 1:
        return False
    kept = [eqn for eqn in graph.eqns if not is_view(eqn)]
    if len(kept) != 1 or kept[0].primitive is not copy_p or kept[0].outvars[0] is not graph.outvars[0]:
        return False
    return _is_same(Views(graph.eqns)(kept[0].invars[0]), group, kept[0].outvars[0])


def _updated(graph: Graph) -> Iterator[tuple[Var, Var]]:
    """The array of which a kernel writes a part and copies the rest, with its result."""
    [result] = graph.outvars
    eqn = graph.producers.get(result)
    if eqn is not None and eqn.primitive.movement is Movement.UPDATE and isinstance(result, Var):
        array = eqn.invars[0]
        if isinstance(array, Var) and array in graph.invars and reads_its_window(eqn, graph):
            yield array, result


def begun(group: FusionGroup) -> tuple[tuple[int, int], ...]:
    """Of a group's arrays, inputs first, those of which results are copies when its kernel begins, or the same memory, with these results."""
    numbers = {v: n for n, v in enumerate([*group.graph.invars, *dict.fromkeys(group.graph.outvars)])}
    pairs = (pair for kernel in group.parts or (group,) for pair in windows(kernel))
    return tuple((numbers[source], numbers[eqn.outvars[0]]) for source, eqn in pairs)


def windows(group: FusionGroup) -> Iterator[tuple[Var, Eqn]]:
    """The writes of windows whose results the kernel leaves in memory, with the arrays that they change."""
    if not any(eqn.primitive is write_window_p for eqn in group.graph.eqns):
        return
    views = Views(group.graph.eqns)
    for eqn in group.graph.eqns:
        if eqn.primitive is write_window_p and eqn.outvars[0] in group.graph.outvars:
            view = views(eqn.invars[0])
            assert view.source is not None and _is_same(view, group, eqn.outvars[0]), (
                "a window of an array that is there"
            )
            yield view.source, eqn


def _is_same(view: View, group: FusionGroup, result: Var) -> bool:
    """Whether an operand is an input of the group as it lies in memory."""
    source = view.source
    return view.dense and source in group.graph.invars and source.aval.nbytes == result.aval.nbytes  # type: ignore[union-attr]


def _read_where_written(group: FusionGroup, write: Eqn) -> bool:
    """Whether a kernel that writes a window reads nothing of the array but that window, if anything, and each element of it by the iteration
    that writes it, and no other one: others may run at any time."""
    views = Views(group.graph.eqns)
    array, value = views(write.invars[0]).source, write.invars[1]
    for eqn in group.graph.eqns:
        if eqn is write or is_view(eqn) or array not in [views(v).source for v in eqn.operands()]:
            continue
        own = group.layout.get(eqn.outvars[0])
        if not reads_window(eqn, write) or own is None or own != group.layout.get(value):  # type: ignore[arg-type]
            return False
        if {*group.parallel, *group.reduced} - {*own}:
            return False
    return not any(isinstance(v, Var) and views(v).source is array for v in group.graph.outvars)


def kept(group: FusionGroup, limits: FusionLimits) -> list[tuple[int, int, tuple[frozenset[int], ...]]]:
    """Of enqueued control flow, whose bodies are planned, the operands by number with the results that stay in their memory, and the
    slots of each body that lie there."""
    eqn = group.graph.eqns[-1]
    if not group.enqueued or not limits.calls_in_place:
        return []
    if eqn.primitive.control is Control.COND:
        return list(_chosen(group, limits))
    body, count = group.bodies[-1], len(eqn.outvars)
    if eqn.primitive.control is Control.SCAN:
        outer = first = eqn.params["num_consts"]
        count = eqn.params["num_carry"]
    elif eqn.primitive.control is Control.WHILE and len(group.bodies[0].outputs) == 1:
        first = eqn.params["body_nconsts"]
        outer = eqn.params["cond_nconsts"] + first
    else:
        return []
    written = [_slot(body, out) for out in body.outputs]
    found: list[tuple[int, int, tuple[frozenset[int], ...]]] = []
    for n in range(count):
        source, target = body.slot_of[body.graph.invars[first + n]], written[n]
        if target is None or source == target or written.count(target) > 1:
            continue
        if (slots := _chain(body, source, target, limits)) is not None:
            found.append((outer + n, n, (slots,)))
    return found


def changes(plan: Plan, limits: FusionLimits) -> dict[int, int]:
    """By slot the slot in whose memory a step of the plan goes on, where these are the same memory."""
    found: dict[int, int] = {}
    for kernel in (kernel for group in plan.groups for kernel in group.parts or (group,)):
        for before, after in changed(kernel, limits):
            if plan.reuse.get(plan.slot_of[after]) == plan.slot_of[before]:
                found[plan.slot_of[after]] = plan.slot_of[before]
    return found


def _chosen(group: FusionGroup, limits: FusionLimits) -> Iterator[tuple[int, int, tuple[frozenset[int], ...]]]:
    """Operands that each branch of a choice makes one result of, in place."""
    count, used = len(group.graph.eqns[-1].outvars), set[int]()
    for n in range(count):
        for k in range(len(group.bodies[0].graph.invars)):
            slots = [_by_branch(body, k, n, limits) for body in group.bodies]
            if k not in used and all(found is not None for found in slots) and any(slots):
                used.add(k)
                yield k + 1, n, tuple(found for found in slots if found is not None)
                break


def _by_branch(body: Plan, operand: int, result: int, limits: FusionLimits) -> frozenset[int] | None:
    """The slots that a branch writes over those of an operand for a result; none where it gives the operand back."""
    written = [_slot(body, out) for out in body.outputs]
    source, target = body.slot_of[body.graph.invars[operand]], written[result]
    if target is None or written.count(target) > 1:
        return None
    return frozenset() if source == target else _chain(body, source, target, limits)


def _chain(plan: Plan, source: int, target: int, limits: FusionLimits) -> frozenset[int] | None:
    """The slots that steps write over `source` up to `target`; None where some step on the way does not."""
    before, slots = changes(plan, limits), set[int]()
    while target != source:
        slots.add(target)
        if (following := before.get(target)) is None:
            return None
        target = following
    return frozenset(slots)


def _slot(plan: Plan, out: Operand) -> int | None:
    return plan.slot_of[plan.aliases.get(out, out)] if isinstance(out, Var) else None
