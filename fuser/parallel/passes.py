"""The passes over collectives in the graph of one device: out of loops first, then together."""

from __future__ import annotations

from fuser.ir.graph import Graph
from fuser.parallel.combine import combine_sums
from fuser.parallel.sink_sums import sink_sums
from fuser.passes.inline import inline_calls
from fuser.passes.loops.carries import in_bodies


def fewer_collectives(graph: Graph) -> Graph:
    """The graph with sums out of loops where they are only accumulated, and those over the same devices together."""
    return _combined(_sunk(graph))


def _sunk(graph: Graph) -> Graph:
    return sink_sums(in_bodies(inline_calls(graph), _sunk))


def _combined(graph: Graph) -> Graph:
    return combine_sums(in_bodies(graph, _combined))
