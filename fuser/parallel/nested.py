"""A shard_map within the program of one device: its operands' parts, its graph, and its results' parts put together.

Along axes that only the inner shard_map names, every device has the same values: each takes its part of them, and gathers
what the others made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.graph import Graph, Literal, Operand, Var, graphs_in
from fuser.ir.source import replayed
from fuser.ir.types import ArrayType
from fuser.lax import parallel as collectives
from fuser.lax.slicing import dynamic_slice_in_dim
from fuser.ops.collective import pvary_p
from fuser.ops.shard_map import Layout, Spec, shard_map_p
from fuser.ops.sharding import sharding_constraint_p
from fuser.ops.unreduced import PLAIN
from fuser.parallel.mesh import Mesh, extent
from fuser.runtime.array import Array
from fuser.trace.stage import stage

_TYPED = (shard_map_p, sharding_constraint_p, pvary_p)


def flattened(graph: Graph, mesh: Mesh) -> Graph:
    """The graph of one device without shard_maps in it, and without what only changes types."""
    if not _has(graph):
        return graph
    with Layout(mesh, mesh.axis_names, False).scope():
        avals = [ArrayType(a.shape, a.dtype, a.weak_type) for a in graph.in_avals]
        return stage(lambda *inputs: replayed_flat(graph, mesh, inputs), avals, graph.name)


def replayed_flat(graph: Graph, mesh: Mesh, inputs: Sequence[Any]) -> list[Any]:
    """The results of the graph of one device on these inputs, shard_maps in it as parts, graphs and gathers."""
    known: dict[Var, Any] = dict(zip(graph.constvars, graph.consts))
    known.update(zip(graph.invars, inputs, strict=True))

    def read(operand: Operand) -> Any:
        if isinstance(operand, Literal):
            return Array(np.asarray(operand.val), operand.aval.weak_type)
        return known[operand]

    for eqn in graph.eqns:
        values = [read(v) for v in eqn.invars]
        with replayed(eqn.source):
            if eqn.primitive is shard_map_p:
                known.update(zip(eqn.outvars, _inner(values, mesh, eqn.params)))
                continue
            primitive = None if eqn.primitive in _TYPED else PLAIN.get(eqn.primitive, eqn.primitive)
            if primitive is None:
                known[eqn.outvars[0]] = values[0]
                continue
            params = {name: _flattened(value, mesh) for name, value in eqn.params.items()}
            result = primitive.bind(*values, **params)
        known.update(zip(eqn.outvars, result if eqn.primitive.multiple_results else [result]))
    return [read(v) for v in graph.outvars]


def _has(graph: Graph) -> bool:
    return any(e.primitive in _TYPED or e.primitive in PLAIN or any(map(_has, graphs_in(e.params))) for e in graph.eqns)


def _flattened(param: Any, mesh: Mesh) -> Any:
    if isinstance(param, Graph):
        return flattened(param, mesh)
    if isinstance(param, tuple) and any(isinstance(p, Graph) for p in param):
        return tuple(_flattened(p, mesh) for p in param)
    return param


def _inner(values: Sequence[Any], mesh: Mesh, params: dict[str, Any]) -> list[Any]:
    operands = [part(v, s, mesh) for v, s in zip(values, params["in_specs"])]
    results = replayed_flat(params["jaxpr"], mesh, operands)
    return [gathered(r, s) for r, s in zip(results, params["out_specs"])]


def part(value: Any, spec: Spec, mesh: Mesh) -> Any:
    """This device's part of a value that all have whole."""
    for dim, axes in enumerate(spec):
        if axes:
            size = value.shape[dim] // extent(mesh, axes)
            value = dynamic_slice_in_dim(value, collectives.axis_index(axes) * np.int32(size), size, dim)
    return value


def gathered(value: Any, spec: Spec) -> Any:
    """The whole of which each device has a part."""
    for dim, axes in enumerate(spec):
        if axes:
            value = collectives.all_gather(value, axes, axis=dim, tiled=True)
    return value
