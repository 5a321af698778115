"""Transforms of the bodies of control flow, kept by body: the same Graph in gives the same Graphs out.

Graphs come out closed: arrays that rules made stand among the operands, first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fuser.ir.graph import Graph, Literal, Operand, Var
from fuser.trace import graphs
from fuser.trace.batch import spmd_axes
from fuser.trace.body import close, pick
from fuser.trace.linear import pruned, pushes

Mask = tuple[bool, ...]


class Made(NamedTuple):
    """A transformed graph that takes `consts` first, and for which results there is what was asked for."""

    graph: Graph
    consts: tuple[Any, ...]
    present: list[bool]


def _made(graph: Graph, present: list[bool]) -> Made:
    closed, consts = close(graph)
    return Made(closed, consts, present)


@functools.lru_cache(maxsize=512)
def jvp(graph: Graph, active: Mask, wanted: Mask) -> Made:
    """`(primals, active tangents) -> (results, tangents)`."""
    return _made(*graphs.jvp_graph(graph, active, wanted))


def batch(graph: Graph, batched: Mask, size: int, wanted: Mask, axis: tuple[Any, int] | None) -> Made:
    """The graph with the batch in front of the batched inputs and of those results that have it or are wanted with it."""
    return _batch(graph, batched, size, wanted, axis, spmd_axes())


@functools.lru_cache(maxsize=512)
def _batch(graph: Graph, batched: Mask, size: int, wanted: Mask, axis: tuple[Any, int] | None, spmd: Any) -> Made:
    return _made(*graphs.batch_graph(graph, batched, size, wanted, axis))


@functools.lru_cache(maxsize=512)
def transpose(graph: Graph, linear: Mask, active: Mask) -> Made:
    """`(other inputs, active cotangents) -> cotangents of the linear inputs that are not zero`."""
    return _made(*graphs.transpose_graph(graph, linear, active))


class Split(NamedTuple):
    """A body in two. `known(*consts, *known inputs) -> (known results, residuals)`; `linear(residuals, linear inputs)`
    gives the results that are `linear`."""

    known: Graph
    consts: tuple[Any, ...]
    linear: Graph
    is_linear: list[bool]
    residuals: int


def split(graph: Graph, linear: Mask, wanted: Mask) -> Split:
    """Part a graph by which inputs are `linear`; results that are `wanted` linear are so even if they are known."""
    return _split(graph, linear, wanted, pushes())


@functools.lru_cache(maxsize=512)
def _split(graph: Graph, linear: Mask, wanted: Mask, pushes: bool) -> Split:
    parts = graphs.split(graph, linear)
    known, consts = close(parts.known)
    forced = [n for n, (use, want) in enumerate(zip(parts.is_linear, wanted)) if want and not use]
    if not forced:
        return Split(known, consts, parts.linear, parts.is_linear, parts.residuals)
    place = {n: k for k, n in enumerate(n for n, use in enumerate(parts.is_linear) if not use)}
    count = len(place)
    moved = [known.outvars[place[n]] for n in forced]
    kept = [v for n, v in enumerate(known.outvars[:count]) if n not in [place[f] for f in forced]]
    known = replace(known, outvars=(*kept, *known.outvars[count:], *moved))
    inputs = [Var(v.aval) for v in moved]
    residuals, rest = parts.linear.invars[: parts.residuals], parts.linear.invars[parts.residuals :]
    outputs: list[Operand] = []
    made, given = iter(parts.linear.outvars), dict(zip(forced, inputs))
    is_linear = [use or n in given for n, use in enumerate(parts.is_linear)]
    for n, use in enumerate(parts.is_linear):
        if use:
            outputs.append(next(made))
        elif n in given:
            outputs.append(given[n])
    linear_graph = replace(parts.linear, invars=(*residuals, *inputs, *rest), outvars=tuple(outputs))
    return Split(known, consts, linear_graph, is_linear, parts.residuals + len(inputs))


def fixpoint(start: Sequence[bool], step: Callable[[Mask], Sequence[bool]]) -> Mask:
    """The least mask from `start` on that `step` (which parts of the carry come out so) does not enlarge."""
    mask = tuple(start)
    while True:
        more = tuple(a or b for a, b in zip(mask, step(mask)))
        if more == mask:
            return mask
        mask = more


@functools.lru_cache(maxsize=512)
def invariant(graph: Graph, outputs: tuple[int, ...], inputs: int) -> tuple[Graph, list[int]]:
    """Those `outputs` that depend on the first `inputs` alone, and the graph that computes them from those."""
    steady: set[Var] = set(graph.invars[:inputs])
    for eqn in graph.eqns:
        if all(v in steady for v in eqn.operands()):
            steady.update(eqn.outvars)
    found = [n for n in outputs if isinstance(graph.outvars[n], Literal) or graph.outvars[n] in steady]
    smaller = pruned(pick(graph, outputs=found), effects=False)
    return pick(smaller, range(inputs)), found


@functools.lru_cache(maxsize=512)
def unread(graph: Graph) -> Graph:
    """The graph without equations that no result needs."""
    return pruned(graph)


def where(mask: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """The values for which the mask holds."""
    return [v for v, use in zip(values, mask, strict=True) if use]


def places(mask: Sequence[bool], first: int = 0) -> list[int]:
    """The positions for which the mask holds."""
    return [first + n for n, use in enumerate(mask) if use]
