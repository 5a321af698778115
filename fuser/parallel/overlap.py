"""Collectives between processes in two steps, so that messages travel while the devices compute.

A collective starts (`collective_start`) as soon as its operands are there and ends (`collective_done`) just before the first equation that needs it. At
most two are under way, so that what is gathered early does not fill the memory: of gathers the third starts later, of sums of gradients the first ends earlier.
Where nothing is computed in between, a collective stays one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Fusion
from fuser.ops.collective import asked, collective_done_p, collective_start_p, is_meeting
from fuser.passes.loops.carries import in_bodies
from fuser.trace.core import infer

MOST_UNDER_WAY = 2


def overlap_collectives(graph: Graph) -> Graph:
    """The graph of one device with collectives that can overlap computation started before it; bodies of loops too."""
    graph = in_bodies(graph, overlap_collectives)
    order = _ended_late(graph)
    before: dict[int, list[Eqn]] = {}
    moved: set[int] = set()
    for each in sorted(_apart(order), key=lambda c: c.end):
        start, done = _steps(order[each.place])
        before.setdefault(each.end, []).append(done)
        before.setdefault(each.start, []).append(start)
        moved.add(each.place)
    eqns: list[Eqn] = []
    for n, eqn in enumerate(order):
        eqns += sorted(before.get(n, ()), key=lambda e: e.primitive is collective_start_p)
        eqns += [eqn] if n not in moved else []
    return replace(graph, eqns=tuple(eqns))


def _ended_late(graph: Graph) -> list[Eqn]:
    """The equations, with each collective put off until the first that reads it; those that read none stay in order."""
    done: list[Eqn] = []
    waiting: dict[Var, Eqn] = {}
    for eqn in graph.eqns:
        for v in eqn.operands():
            if v in waiting:
                _end(waiting[v], waiting, done)
        if is_meeting(eqn):
            waiting.update(dict.fromkeys(eqn.outvars, eqn))
        else:
            done.append(eqn)
    for eqn in dict.fromkeys(waiting.values()):
        done.append(eqn)
    return done


def _end(eqn: Eqn, waiting: dict[Var, Eqn], done: list[Eqn]) -> None:
    for v in eqn.outvars:
        del waiting[v]
    done.append(eqn)


@dataclass
class _Interval:
    """A collective that stands in the `place` of an order: it starts before the equation `start`, and ends before `end`."""

    place: int
    start: int
    end: int


def _apart(order: Sequence[Eqn]) -> list[_Interval]:
    """The collectives during which something is computed, at most `MOST_UNDER_WAY` at a time.

    Where one more could start, the first of those ends if something has been computed since it started; else the one more waits for the end
    of one.
    """
    found = {v: n for n, eqn in enumerate(order) for v in eqn.outvars}
    ready = lambda eqn: max((found[v] + 1 for v in eqn.operands() if v in found), default=0)
    computed = [0, *accumulate(e.primitive.fusion not in (Fusion.MOVEMENT, Fusion.LIBRARY) for e in order)]
    intervals = [_Interval(n, ready(eqn), n) for n, eqn in enumerate(order) if is_meeting(eqn)]
    begun: list[_Interval] = []
    for interval in sorted(intervals, key=lambda c: c.start):
        begun = [c for c in begun if c.end >= interval.start]
        first = min(_under_way(begun, interval.start), key=lambda c: c.start, default=interval)
        if (
            len(_under_way(begun, interval.start)) >= MOST_UNDER_WAY
            and computed[first.start] < computed[interval.start]
        ):
            first.end = interval.start
        while len(under_way := _under_way(begun, interval.start)) >= MOST_UNDER_WAY:
            interval.start = min(c.end for c in under_way) + 1
        interval.start = min(interval.start, interval.end)
        begun.append(interval)
    return [c for c in intervals if computed[c.start] < computed[c.end]]


def _under_way(intervals: Sequence[_Interval], place: int) -> list[_Interval]:
    """Those that are under way where a collective starts in this place; one that ends early makes room for it."""
    return [c for c in intervals if c.start <= place and (place < c.end or place == c.end == c.place)]


def _steps(eqn: Eqn) -> tuple[Eqn, Eqn]:
    names, groups, _, kinds = asked(eqn)
    params: dict[str, Any] = {"axis_name": names, "axis_index_groups": groups, "kinds": tuple(kinds)}
    number = Var(infer(collective_start_p, tuple(v.aval for v in eqn.invars), params))
    return (
        Eqn(collective_start_p, eqn.invars, params, (number,), eqn.source),
        Eqn(collective_done_p, (number, *eqn.invars), params, eqn.outvars, eqn.source),
    )
