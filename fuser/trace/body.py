"""Bodies of control flow: a Python function in, a closed Graph out, with what it closed over hoisted to operands.

A body is staged once for each function and each types of its arguments, as `jit` does, unless it closes over values of
a trace.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fuser.config import config
from fuser.ir.graph import Graph, Literal, Var
from fuser.ir.names import function_name
from fuser.ir.types import ArrayType
from fuser.trace import tree
from fuser.trace.aliases import check_results
from fuser.trace.batch import axes_key
from fuser.trace.core import Tracer
from fuser.trace.stage import stage

MOST = 64  # bodies that are kept for one function


@dataclass(frozen=True, eq=False)
class Body:
    """A staged function. `graph` takes `consts` and then the arguments' leaves, and gives the result's leaves."""

    graph: Graph
    consts: tuple[Any, ...]
    structure: Any  # of the result
    name: str  # of the function, for errors
    paths: tuple[str, ...] | None = None  # of the result's leaves

    @property
    def out_avals(self) -> tuple[ArrayType, ...]:
        return self.graph.out_avals

    def forwarded(self) -> list[int | None]:
        """For each result, the argument (counted after the constants) that it is, unchanged; else None."""
        place = {v: n for n, v in enumerate(self.graph.invars)}
        found = (place.get(v) if isinstance(v, Var) else None for v in self.graph.outvars)
        return [None if n is None or n < len(self.consts) else n - len(self.consts) for n in found]


_staged: weakref.WeakKeyDictionary[Any, dict[Any, Body]] = weakref.WeakKeyDictionary()


def staged_body(
    function: Callable[..., Any],
    structure: Any,
    avals: Sequence[ArrayType],
    convert: Callable[[Any, Any], list[Any]],
    owner: Callable[..., Any] | None = None,
    kind: str = "",
    setting: Any = None,
    kept: Callable[[], bool] = lambda: True,
    what: str = "control flow",
) -> Body:
    """The body of `function` for arguments of this tree `structure` (of a tuple of arguments) and these types.

    `convert(leaves, result)` makes values of the result's leaves. `owner` is the user's function where `function` is a
    wrapper made for this call, of the given `kind`; `setting` is what else the body depends on. It is `kept` unless that says no.
    `what` traces it, for errors.
    """
    owner = owner or function
    key = (kind, structure, tuple(avals), setting, config.traced, axes_key())
    known = _cache(owner)
    if known is not None and key in known:
        return known[key]
    body = _stage(function, structure, avals, convert, function_name(owner), what)
    if known is not None and kept() and not any(isinstance(value, Tracer) for value in body.consts):
        if len(known) >= MOST:
            known.clear()
        known[key] = body
    return body


def _cache(owner: Callable[..., Any]) -> dict[Any, Body] | None:
    """The bodies kept for a function; None where there can be none."""
    try:
        return _staged.setdefault(owner, {})
    except TypeError:  # it cannot be hashed or referred to weakly
        return None


def _stage(
    function: Callable[..., Any], structure: Any, avals: Sequence[ArrayType], convert: Any, name: str, what: str
) -> Body:
    out: list[Any] = []

    def flat(*tracers: Any) -> list[Any]:
        result = function(*tree.unflatten(structure, tracers))
        leaves, out_structure = tree.flatten(result)
        out.extend((out_structure, tree.paths(result)))
        return convert(leaves, result)

    graph = check_results(stage(flat, avals, name), what, lambda: out[1])
    closed, consts = close(graph)
    return Body(closed, consts, out[0], name, tuple(out[1]))


def close(graph: Graph) -> tuple[Graph, tuple[Any, ...]]:
    """The graph with its constants as its first inputs, and their values."""
    if not graph.constvars:
        return graph, ()
    return replace(graph, invars=(*graph.constvars, *graph.invars), constvars=(), consts=()), graph.consts


def with_consts(graphs: Sequence[tuple[Graph, Sequence[Any]]]) -> tuple[list[Graph], list[Any]]:
    """Graphs (each taking its own constants first) made to take the same constants; equal ones are there once."""
    union: dict[int, Any] = {id(value): value for _, consts in graphs for value in consts}
    types = {id(v): var.aval for graph, consts in graphs for v, var in zip(consts, graph.invars)}
    place = {key: n for n, key in enumerate(union)}
    avals = tuple(types[key] for key in union)
    return [_taking(g, tuple(place[id(v)] for v in consts), avals) for g, consts in graphs], list(union.values())


# Graphs made of kept bodies are kept too: programs are found by their graphs.
@functools.lru_cache(maxsize=1024)
def _taking(graph: Graph, places: tuple[int, ...], avals: tuple[ArrayType, ...]) -> Graph:
    """The graph with its first inputs at these places among inputs of these types."""
    own = dict(zip(places, graph.invars))
    shared = tuple(own.get(n) or Var(aval) for n, aval in enumerate(avals))
    return replace(graph, invars=(*shared, *graph.invars[len(places) :]))


def pick(graph: Graph, inputs: Sequence[int] | None = None, outputs: Sequence[int] | None = None) -> Graph:
    """The graph with its inputs in this order, and only these outputs; inputs that are left out must not be read."""
    return _pick(
        graph,
        tuple(range(len(graph.invars)) if inputs is None else inputs),
        tuple(range(len(graph.outvars)) if outputs is None else outputs),
    )


@functools.lru_cache(maxsize=1024)
def _pick(graph: Graph, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Graph:
    if inputs == tuple(range(len(graph.invars))) and outputs == tuple(range(len(graph.outvars))):
        return graph
    invars, outvars = tuple(graph.invars[n] for n in inputs), tuple(graph.outvars[n] for n in outputs)
    return replace(graph, invars=invars, outvars=outvars)


def reads(graph: Graph) -> set[Var]:
    """The variables that equations of the graph or its outputs read."""
    found = {v for eqn in graph.eqns for v in eqn.operands()}
    return found | {v for v in graph.outvars if not isinstance(v, Literal)}
