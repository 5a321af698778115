"""Values inside of control flow that a remat policy saves: a scan or cond as one that gives them, and one that takes them.

`exposed` is for equations of the known part of a rematerialized graph. The first form runs in the forward pass and has
what is saved as further results; the second runs in the backward pass, and computes what is not saved from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fuser.ir.graph import Eqn, Graph, Var, effective
from fuser.ir.types import ArrayType
from fuser.ops.control.avals import stacked
from fuser.ops.control.cond import cond_p, taking_all, with_all
from fuser.ops.control.scan import scan_p

Saves = Callable[[Eqn], bool]


class Exposed(NamedTuple):
    """An equation that gives the saved values behind its results, one that takes them, and those values."""

    gives: Eqn
    takes: Eqn
    saved: tuple[Var, ...]


def exposed(eqn: Eqn, saves: Saves) -> Exposed | None:
    """The two forms of a scan or cond with something inside that is saved; None for other equations."""
    if eqn.primitive is scan_p:
        return _scan(eqn, saves)
    return _cond(eqn, saves) if eqn.primitive is cond_p else None


def _scan(eqn: Eqn, saves: Saves) -> Exposed | None:
    first, second, inner = _bodies(eqn.params["jaxpr"], saves)
    if not inner:
        return None
    saved = tuple(Var(stacked(v.aval, eqn.params["length"])) for v in inner)
    gives = replace(eqn, params={**eqn.params, "jaxpr": first}, outvars=(*eqn.outvars, *saved))
    takes = replace(eqn, params={**eqn.params, "jaxpr": second}, invars=(*eqn.invars, *saved))
    return Exposed(gives, takes, saved)


def _cond(eqn: Eqn, saves: Saves) -> Exposed | None:
    parts = [_bodies(branch, saves) for branch in eqn.params["branches"]]
    types: tuple[ArrayType, ...] = tuple(v.aval for _, _, inner in parts for v in inner)
    if not types:
        return None
    count, at = len(eqn.outvars), 0
    gives, takes = [], []
    for first, second, inner in parts:
        own = len(inner)
        gives.append(with_all(first, count, at, types))
        inputs = second.invars  # the saved values stand behind the others
        turned = replace(second, invars=(*inputs[len(inputs) - own :], *inputs[: len(inputs) - own]))
        takes.append(taking_all(turned, own, at, types))
        at += own
    saved = tuple(map(Var, types))
    index, *operands = eqn.invars
    return Exposed(
        replace(eqn, params={**eqn.params, "branches": tuple(gives)}, outvars=(*eqn.outvars, *saved)),
        replace(eqn, params={**eqn.params, "branches": tuple(takes)}, invars=(index, *saved, *operands)),
        saved,
    )


def _bodies(graph: Graph, saves: Saves) -> tuple[Graph, Graph, tuple[Var, ...]]:
    """A body that gives what is saved in it behind its results, one that takes it behind its operands, and the values."""
    gives, takes = [], []
    saved: list[Var] = []
    for eqn in graph.eqns:
        inside = None if saves(eqn) else exposed(eqn, saves)
        if saves(eqn):
            saved += eqn.outvars
        elif inside:
            saved += inside.saved
        gives.append(inside.gives if inside else eqn)
        if not saves(eqn):
            takes.append(inside.takes if inside else eqn)
    first = replace(graph, eqns=tuple(gives), outvars=(*graph.outvars, *saved))
    second = replace(graph, eqns=tuple(takes), invars=(*graph.invars, *saved))
    return first, needed(second), tuple(saved)


def needed(graph: Graph) -> Graph:
    """The graph without equations that no result needs and that have no effect."""
    wanted = {v for v in graph.outvars if isinstance(v, Var)}
    kept = []
    for eqn in reversed(graph.eqns):
        if effective(eqn) or any(v in wanted for v in eqn.outvars):
            kept.append(eqn)
            wanted.update(eqn.operands())
    return replace(graph, eqns=tuple(reversed(kept)))
