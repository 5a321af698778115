"""The passes over collectives in the graph of one device: those of one device away, out of loops, scattered, merged, together, in two steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fuser.ir.graph import Graph
from fuser.parallel.combine import Bucket, combine_collectives
from fuser.parallel.lone import without_lone
from fuser.parallel.nested_sums import merge_nested_sums
from fuser.parallel.network import Link, bucket_bytes
from fuser.parallel.overlap import overlap_collectives
from fuser.parallel.scatter_sums import scatter_sums
from fuser.parallel.sink_sums import sink_sums
from fuser.passes.inline import inline_calls
from fuser.passes.loops.carries import in_bodies


def fewer_collectives(
    graph: Graph, sizes: Mapping[Any, int], link: Link | None = None, in_steps: bool = False
) -> Graph:
    """The graph, for a mesh with axes of these sizes, without collectives of one device, with sums out of loops where they are only
    accumulated, scattered where each device keeps its part, those of others' sums merged, and those over the same devices together. With a `link`, what travels
    does so while the devices compute, in buckets that are worth a message over it; `in_steps`: as starts and ends in the graph.
    """
    bucket = None if link is None else lambda names: bucket_bytes(math.prod(sizes[n] for n in names), link)
    scattered = scatter_sums(_sunk(_without_lone(graph, sizes)), sizes)
    found = _combined(merge_nested_sums(scattered, sizes), bucket)
    return overlap_collectives(found) if in_steps else found


def _without_lone(graph: Graph, sizes: Mapping[Any, int]) -> Graph:
    return without_lone(in_bodies(graph, lambda body: _without_lone(body, sizes)), sizes)


def _sunk(graph: Graph) -> Graph:
    return sink_sums(in_bodies(inline_calls(graph), _sunk))


def _combined(graph: Graph, bucket: Bucket | None) -> Graph:
    return combine_collectives(in_bodies(graph, lambda body: _combined(body, bucket)), bucket)
