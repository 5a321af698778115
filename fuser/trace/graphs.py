"""Transforms of graphs that stand in params: the derivative, the batched form, and the split into known and linear.

Each replays the graph under the transform's Trace inside a fresh StageTrace. The graphs that come out may have consts:
arrays that rules made, never tracers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fuser.ir.graph import Graph
from fuser.ir.types import ArrayType
from fuser.trace.batch import batch, moved
from fuser.trace.core import type_of
from fuser.trace.jvp import jvp
from fuser.trace.linear import linear_part
from fuser.trace.replay import replay
from fuser.trace.stage import stage
from fuser.trace.tangent import Undefined, Zero, differentiable, instantiate, zero_like
from fuser.trace.transpose import transposed_graph


def jvp_graph(graph: Graph, active: Sequence[bool], wanted: Sequence[bool] | bool = False) -> tuple[Graph, list[bool]]:
    """`(primals, tangents of the active inputs) -> (results, tangents)`, and which results have a tangent.

    Where `wanted`, a tangent is given even if it is zero (for differentiable types).
    """
    count = len(graph.invars)
    wanted = [wanted] * len(graph.outvars) if isinstance(wanted, bool) else wanted
    present: list[bool] = []

    def function(*inputs: Any) -> list[Any]:
        rest = iter(inputs[count:])
        primals = inputs[:count]
        tangents = [next(rest) if a else zero_like(p) for a, p in zip(active, primals)]
        results, out = jvp(lambda *values: replay(graph, *values), primals, tangents)
        out = [instantiate(t) if want and differentiable(type_of(r)) else t for r, t, want in zip(results, out, wanted)]
        present.extend(type(t) is not Zero for t in out)
        return [*results, *(t for t in out if type(t) is not Zero)]

    avals = [*graph.in_avals, *(a for a, use in zip(graph.in_avals, active) if use)]
    return stage(function, avals, graph.name), present


def batch_graph(
    graph: Graph,
    batched: Sequence[bool],
    size: int,
    wanted: Sequence[bool] | bool = False,
    axis: tuple[Any, int] | None = None,
) -> tuple[Graph, list[bool]]:
    """The graph on inputs of which the `batched` ones have the batch in front; and which results have it there.

    Where `wanted`, a result is repeated if it is the same for all. `axis` is the named axis (name, size), if any.
    """
    wanted = [wanted] * len(graph.outvars) if isinstance(wanted, bool) else wanted
    present: list[bool] = []

    def function(*inputs: Any) -> list[Any]:
        dims = [0 if b else None for b in batched]
        values, out = batch(lambda *v: replay(graph, *v), inputs, dims, size, axis[0] if axis else None)
        values = [moved(v, d, 0, size if want else None) for v, d, want in zip(values, out, wanted)]
        present.extend(d is not None or want for d, want in zip(out, wanted))
        return values

    avals = [a.along(0, size) if b else a for a, b in zip(graph.in_avals, batched)]
    return stage(function, avals, graph.name), present


class Split(NamedTuple):
    """A graph in two: `known(known inputs) -> (known results, residuals)`, `linear(residuals, linear inputs) -> linear results`."""

    known: Graph
    linear: Graph
    is_linear: list[bool]  # of each result
    residuals: int


def split(graph: Graph, linear: Sequence[bool]) -> Split:
    """Part a graph by which inputs are `linear`."""
    pieces: dict[str, Any] = {}

    def known_function(*inputs: Any) -> list[Any]:
        def on_linear(*tracers: Any) -> list[Any]:
            rest, known = iter(tracers), iter(inputs)
            return replay(graph, *(next(rest) if use else next(known) for use in linear))

        values, linear_graph = linear_part(on_linear, [a for a, use in zip(graph.in_avals, linear) if use], graph.name)
        pieces["linear"], pieces["mask"] = linear_graph, [v is None for v in values]
        return [*(v for v in values if v is not None), *linear_graph.consts]

    known = stage(known_function, [a for a, use in zip(graph.in_avals, linear) if not use], graph.name)
    found: Graph = pieces["linear"]
    closed = found.updated("split", invars=(*found.constvars, *found.invars), constvars=(), consts=())
    return Split(known, closed, pieces["mask"], len(found.constvars))


def transpose_graph(
    graph: Graph, linear: Sequence[bool], active: Sequence[bool] | None = None
) -> tuple[Graph, list[bool]]:
    """`(other inputs, cotangents of the results) -> cotangents of the linear inputs`, and which of those are not zero.

    `active` says which results' cotangents are given; the others are zero.
    """
    known_count = sum(not use for use in linear)
    active = [True] * len(graph.outvars) if active is None else active
    present: list[bool] = []

    def function(*inputs: Any) -> list[Any]:
        known, given = iter(inputs[:known_count]), iter(inputs[known_count:])
        operands = [Undefined(a) if use else next(known) for a, use in zip(graph.in_avals, linear)]
        cotangents = [next(given) if a else Zero(t) for a, t in zip(active, graph.out_avals)]
        found = [c for c, use in zip(transposed_graph(graph, operands, cotangents), linear) if use]
        present.extend(type(c) is not Zero for c in found)
        return [c for c in found if type(c) is not Zero]

    avals: list[ArrayType] = [a for a, use in zip(graph.in_avals, linear) if not use]
    avals += [a for a, use in zip(graph.out_avals, active) if use]
    return stage(function, avals, graph.name), present
