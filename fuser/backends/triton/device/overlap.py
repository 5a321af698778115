"""Exchanges between devices beside the kernels that neither make what they send nor need what they bring.

In: the groups of a plan in order, and what memory each touches. Out: the same as steps: a group on the main stream; the begin of a
unit, which is an exchange and what only serves it (the shares of a sum are added between two exchanges), on a second stream; and its
end, where the main stream waits for it. A unit begins when its operands are there and ends before the first group that touches its
memory. All units of a program go on in one order, so that devices that meet in several of them do so in the same order.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fuser.ir.graph import Operand, Var
from fuser.ir.target import Target
from fuser.ops.collective import is_meeting
from fuser.ops.transfers import transfers
from fuser.partition.group import FUSIBLE, FusionGroup, Kind, Plan

FORK_SECONDS = 4e-6  # what two events cost the streams, which what is computed meanwhile has to outweigh
MOST_UNDER_WAY = 2  # so that what is gathered early does not fill the memory


@dataclass(frozen=True)
class Alone:
    """A group on the main stream."""

    group: int


@dataclass(frozen=True)
class Begin:
    """Groups on the second stream, one after the other; `event` says when they are through."""

    event: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class End:
    """The main stream waits for that event."""

    event: int


Step = Alone | Begin | End


@dataclass
class _Unit:
    """Groups that run beside the main stream's from before its `start`-th to before its `end`-th."""

    groups: list[int]
    start: int = 0
    end: int = 0
    after: list[_Unit] = field(default_factory=list)  # whose memory it touches after them

    def follow(self) -> None:
        """Begin behind those that it comes after."""
        self.start = max([self.start, *(before.start for before in self.after)])


@dataclass
class _Touched:
    """The slots that a group reads and writes, by the memory that they share."""

    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)


def steps(plan: Plan, groups: Sequence[FusionGroup], target: Target) -> list[Step]:
    """The groups of a plan, or some that follow each other, as steps; exchanges that hide nothing stay where they are."""
    plain: list[Step] = [Alone(n) for n in range(len(groups))]
    exchanges = [n for n, group in enumerate(groups) if is_exchange(group)]
    if not exchanges:
        return plain
    touched = [_touched(plan, group) for group in groups]
    units = _placed(_units(groups, exchanges, plan.outputs), groups, touched)
    if units is None:
        units = _placed([_Unit([n]) for n in exchanges], groups, touched)
    assert units is not None  # an exchange by itself waits for earlier ones alone
    inside = {n for unit in units for n in unit.groups}
    main = [n for n in range(len(groups)) if n not in inside]
    _limit(units, seconds := [_seconds(groups[n], target) for n in main])
    hidden = [sum(seconds[unit.start : unit.end]) > FORK_SECONDS for unit in units]
    for unit, hides in zip(units, hidden):
        unit.follow()
        if not hides:  # it stays where it was
            unit.start = unit.end = min(max(bisect.bisect(main, unit.groups[-1]), unit.start), unit.end)
    return _in_order(units, main) if any(hidden) else plain


def is_exchange(group: FusionGroup) -> bool:
    """Whether the group is what devices send each other, by a communicator."""
    return group.kind is Kind.LIBRARY and not group.reason and transfers(group.graph.eqns[-1]) is not None


def _touched(plan: Plan, group: FusionGroup) -> _Touched:
    def memory(operands: Collection[Operand]) -> set[int]:
        found = set()
        for operand in operands:
            if isinstance(operand, Var):
                slot = plan.slot_of[operand]
                while slot in plan.reuse:
                    slot = plan.reuse[slot]
                found.add(slot)
        return found

    return _Touched(memory(group.graph.invars), memory(group.graph.outvars))


def _meets(group: FusionGroup) -> bool:
    """Whether devices meet in a loop or branch of the group; no unit is under way meanwhile."""
    return any(any(map(is_meeting, g.graph.eqns)) or _meets(g) for body in group.bodies for g in body.groups)


def _seconds(group: FusionGroup, target: Target) -> float:
    """What a group keeps the device busy for, at least."""
    return max(group.ideal_bytes / target.levels[-1].bandwidth, group.flops / target.operations)


def _units(groups: Sequence[FusionGroup], exchanges: Sequence[int], outputs: Sequence[Operand]) -> list[_Unit]:
    """Each exchange with the kernels that read only what exchanges brought, and make only what exchanges send."""
    maker = {v: n for n, group in enumerate(groups) for v in group.graph.outvars if isinstance(v, Var)}
    readers: dict[Operand, set[int]] = {}
    for n, group in enumerate(groups):
        for v in group.graph.invars:
            readers.setdefault(v, set()).add(n)
    serving = set(exchanges)
    for n, group in enumerate(groups):
        if group.kind in (*FUSIBLE, Kind.HORIZONTAL) and group.graph.invars:
            serving |= {n} if all(maker.get(v) in serving for v in group.graph.invars) else set()
    for n in reversed(range(len(groups))):
        if n in serving and n not in exchanges:
            made = [v for v in groups[n].graph.outvars if isinstance(v, Var)]
            kept = all(v not in outputs and readers.get(v) and readers[v] <= serving for v in made)
            serving -= set() if kept else {n}
    unit_of = {n: _Unit([n]) for n in exchanges}
    for n in sorted(serving):
        found = unit_of.get(n)
        for source in {maker[v] for v in groups[n].graph.invars if maker.get(v) in serving}:
            if n in exchanges and source in exchanges:
                continue
            found = _joined(found, unit_of[source], unit_of)
        assert found is not None
        unit_of[n] = found
        found.groups = sorted({*found.groups, n})
    return list({id(unit): unit for unit in unit_of.values()}.values())


def _joined(one: _Unit | None, other: _Unit, unit_of: dict[int, _Unit]) -> _Unit:
    """Two units as one."""
    if one is None or one is other:
        return other
    other.groups = sorted({*one.groups, *other.groups})
    unit_of.update(dict.fromkeys(other.groups, other))
    return other


def _placed(units: list[_Unit], groups: Sequence[FusionGroup], touched: Sequence[_Touched]) -> list[_Unit] | None:
    """The units in the order in which they run, with the room that each has; None where some would wait for themselves."""
    inside = {n for unit in units for n in unit.groups}
    main = [n for n in range(len(groups)) if n not in inside]
    using = _Users((place, touched[n]) for place, n in enumerate(main))
    barriers = [place for place, n in enumerate(main) if _meets(groups[n])]
    by_first = sorted(units, key=lambda unit: unit.groups[0])
    for unit in by_first:
        places = {*barriers, *(place for n in unit.groups for place in using.conflicting(touched[n]))}
        unit.start = max((p + 1 for p in places if main[p] < unit.groups[-1]), default=0)
        unit.end = min((p for p in places if main[p] > unit.groups[0]), default=len(main))
    _link(by_first, touched)
    for unit in by_first:
        unit.start = max([unit.start, *(before.start for before in unit.after)])
    for unit in reversed(by_first):
        for before in unit.after:
            before.end = min(before.end, unit.end)
    made = sorted(units, key=lambda unit: (unit.start, unit.groups[0]))
    place = {id(unit): n for n, unit in enumerate(made)}
    legal = all(place[id(before)] < place[id(unit)] for unit in made for before in unit.after)
    return made if legal and all(unit.start <= unit.end for unit in made) else None


class _Users:
    """By slot the numbers of those that read it and of those that write it."""

    def __init__(self, numbered: Iterable[tuple[int, _Touched]]) -> None:
        self.readers: dict[int, list[int]] = {}
        self.writers: dict[int, list[int]] = {}
        for number, touched in numbered:
            for slot in touched.reads:
                self.readers.setdefault(slot, []).append(number)
            for slot in touched.writes:
                self.writers.setdefault(slot, []).append(number)

    def conflicting(self, touched: _Touched) -> Iterator[int]:
        """Those that must not run beside what touches these slots."""
        for slot in touched.reads | touched.writes:
            yield from self.writers.get(slot, ())
        for slot in touched.writes:
            yield from self.readers.get(slot, ())


def _link(units: Sequence[_Unit], touched: Sequence[_Touched]) -> None:
    """Say of each unit which others something of it comes after whose memory it touches."""
    owner = {n: unit for unit in units for n in unit.groups}
    using = _Users((n, touched[n]) for n in owner)
    for unit in units:
        earlier = {m for n in unit.groups for m in using.conflicting(touched[n]) if m < n}
        unit.after = [before for before in units if before is not unit and earlier & set(before.groups)]


def _limit(units: Sequence[_Unit], seconds: Sequence[float]) -> None:
    """At most so many under way: where one more could begin, the first of them ends if something was computed beside it, else the
    one more begins later."""
    begun: list[_Unit] = []
    for unit in units:
        unit.follow()
        while len(under_way := [u for u in begun if u.start <= unit.start < u.end]) >= MOST_UNDER_WAY:
            first = min(under_way, key=lambda u: u.start)
            if sum(seconds[first.start : unit.start]) > FORK_SECONDS:
                first.end = unit.start
            else:
                unit.start = min(u.end for u in under_way)
        unit.start = min(unit.start, unit.end)
        begun.append(unit)


def _in_order(units: Sequence[_Unit], main: Sequence[int]) -> list[Step]:
    """Main groups, and around them the begins and ends of units; an event serves one unit after the other."""
    made: list[Step] = []
    under_way: dict[int, _Unit] = {}
    for place in range(len(main) + 1):
        made += _ends(under_way, place)
        for unit in units:
            if unit.start == place:
                event = next(n for n in range(len(under_way) + 1) if n not in under_way)
                under_way[event] = unit
                made.append(Begin(event, tuple(unit.groups)))
                made += _ends(under_way, place)
        made += [Alone(main[place])] if place < len(main) else []
    return made


def _ends(under_way: dict[int, _Unit], place: int) -> list[Step]:
    ended = [event for event, unit in under_way.items() if unit.end == place]
    for event in ended:
        del under_way[event]
    return [End(event) for event in ended]
