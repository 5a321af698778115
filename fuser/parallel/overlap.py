"""Collectives between processes in two steps, so that messages travel while the devices compute.

A collective ends (`collective_done`) just before the first equation that needs it, and starts (`collective_start`) as soon as its operands are
there and at most one other is under way, so that what is gathered early does not fill the memory. Where nothing is computed in between, it stays one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    split = list(_apart(graph, order))
    if not split:
        return replace(graph, eqns=tuple(order))
    starts: dict[int, list[Eqn]] = {}
    for each in split:
        starts.setdefault(each.first, []).append(each.start)
        order[each.last] = each.done
    eqns = [e for n, eqn in enumerate(order) for e in (*starts.get(n, ()), eqn)]
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


@dataclass(frozen=True)
class _Split:
    """A collective's two steps: the start goes before the equation `first`, the end in the place `last`."""

    first: int
    last: int
    start: Eqn
    done: Eqn


def _apart(graph: Graph, order: Sequence[Eqn]) -> list[_Split]:
    """The collectives during which something is computed."""
    place = {v: n for n, eqn in enumerate(order) for v in eqn.outvars}
    ends: list[int] = []
    found = []
    for last, eqn in enumerate(order):
        if not is_meeting(eqn):
            continue
        ready = max((place[v] + 1 for v in eqn.operands() if v in place), default=0)
        first = max(ready, ends[-MOST_UNDER_WAY] + 1) if len(ends) >= MOST_UNDER_WAY else ready
        if any(e.primitive.fusion not in (Fusion.MOVEMENT, Fusion.LIBRARY) for e in order[first:last]):
            found.append(_Split(first, last, *_steps(eqn)))
        ends.append(last)
    return found


def _steps(eqn: Eqn) -> tuple[Eqn, Eqn]:
    names, groups, _, kinds = asked(eqn)
    params: dict[str, Any] = {"axis_name": names, "axis_index_groups": groups, "kinds": tuple(kinds)}
    number = Var(infer(collective_start_p, tuple(v.aval for v in eqn.invars), params))
    return (
        Eqn(collective_start_p, eqn.invars, params, (number,), eqn.source),
        Eqn(collective_done_p, (number, *eqn.invars), params, eqn.outvars, eqn.source),
    )
