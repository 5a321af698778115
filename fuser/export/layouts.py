"""How exported functions lie over devices: layouts are constraints of the graph over meshes that have no devices, which calls supply.

A function of one device has none: layouts over a single device say nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir.graph import Graph, graphs_in
from fuser.ops.sharding import sharding_constraint_p
from fuser.parallel.arrays import devices
from fuser.parallel.mesh import AbstractMesh, AxisType, Mesh, mesh_in_scope
from fuser.parallel.sharding import NamedSharding, SingleDeviceSharding, unchecked
from fuser.parallel.spec import PartitionSpec, names
from fuser.passes.loops.carries import in_bodies
from fuser.runtime.array import Array
from fuser.runtime.shards import Shards
from fuser.trace.core import Tracer
from fuser.trace.replay import replay
from fuser.trace.stage import stage

MOST_AXES, MOST_DEVICES = 16, 1 << 20
Layout = NamedSharding | None


def abstract(sharding: Any) -> Layout:
    """The layout without its devices; None for one device. UnsupportedError for what names devices alone."""
    if (
        sharding is None
        or isinstance(sharding, SingleDeviceSharding)
        or len(getattr(sharding, "device_set", "..")) == 1
    ):
        return None
    if not isinstance(sharding, NamedSharding):
        raise UnsupportedError(f"exported functions lie as NamedShardings say, got {sharding}; give jit one of these")
    if sharding.mesh.size == 1:
        return None
    return unchecked(sharding.mesh.abstract_mesh, sharding.spec)


def laid_out(graph: Graph, given: Sequence[Layout], wanted: Sequence[Layout]) -> Graph:
    """The graph whose arguments and results are constrained to lie so."""
    graph = _changed(graph, abstract)
    if not any((*given, *wanted)):
        return graph

    def constrained(values: Sequence[Any], layouts: Sequence[Layout]) -> list[Any]:
        return [v if s is None else sharding_constraint_p.bind(v, sharding=s) for v, s in zip(values, layouts)]

    made = stage(
        lambda *inputs: constrained(replay(graph, *constrained(inputs, given)), wanted), graph.in_avals, graph.name
    )
    return replace(made, history=graph.history)


def count_of(graph: Graph) -> int:
    """How many devices a graph is for; UnsupportedError where its meshes have different numbers of them."""
    found = {s.mesh.size for s in _layouts(graph)}
    if len(found) > 1:
        raise UnsupportedError(
            f"{graph.name} lies over meshes of {sorted(found)} devices; lay all of it over one number of them"
        )
    return found.pop() if found else 1


def over(graph: Graph, chosen: Sequence[Any] | None) -> Graph:
    """The graph over these devices, in their order; itself where there are none."""
    if chosen is None:
        return graph

    def placed(sharding: Any) -> Any:
        if sharding is None:
            return None
        mesh = sharding.mesh
        grid = np.array(list(chosen), object).reshape(mesh.axis_sizes)
        return NamedSharding(Mesh(grid, mesh.axis_names, mesh.axis_types), sharding.spec)

    return _changed(graph, functools.cache(placed))


def devices_of(values: Sequence[Any], count: int, name: str) -> tuple[Any, ...] | None:
    """The devices of a call: those that the arguments lie on, of the mesh in scope, or the first ones; None where the program that is
    traced decides. ValueError for another number."""
    held = next((v._data.sharding for v in values if isinstance(v, Array) and isinstance(v._data, Shards)), None)
    scope = mesh_in_scope()
    if held is not None and (len(held.devices) > 1 or count == 1):
        found = tuple(held.devices)
    elif isinstance(scope, Mesh):
        found = tuple(scope.devices.flat)
    elif any(isinstance(v, Tracer) for v in values):
        return None
    else:
        found = tuple(devices())[:count]
    if len(found) != count:
        raise ValueError(
            f"Function {name} was exported for {count} devices and is called in a context with {len(found)} devices; call it with arrays "
            f"that lie over {count}"
        )
    return found


def _changed(graph: Graph, change: Callable[[Any], Any]) -> Graph:
    """The graph with other layouts in its constraints, in the bodies of its control flow too."""
    eqns = tuple(
        replace(e, params={"sharding": change(e.params["sharding"])}) if e.primitive is sharding_constraint_p else e
        for e in graph.eqns
    )
    return in_bodies(replace(graph, eqns=eqns), lambda inner: _changed(inner, change))


def _layouts(graph: Graph) -> Iterator[NamedSharding]:
    for eqn in graph.eqns:
        if eqn.primitive is sharding_constraint_p and eqn.params["sharding"] is not None:
            yield eqn.params["sharding"]
        for inner in graphs_in(eqn.params):
            yield from _layouts(inner)


# In files: the names and sizes of the mesh's axes, and for each dimension the names that split it, or false where it is free.


def encode_layout(sharding: NamedSharding) -> list[Any]:
    """UnsupportedError for meshes whose axes types speak of, and sums in terms."""
    mesh, spec = sharding.mesh, sharding.spec
    if not mesh.are_all_axes_auto or spec.unreduced or spec.reduced:
        raise UnsupportedError(
            f"a value that lies as {spec} over {mesh} cannot be exported; give the mesh axes of type Auto"
        )
    entries = [False if e is PartitionSpec.UNCONSTRAINED else list(names(e)) for e in spec.partitions]
    return [list(mesh.axis_names), list(mesh.axis_sizes), entries]


def decode_layout(written: Any, expect: Callable[[bool, str], None]) -> NamedSharding:
    """The layout over a mesh without devices; `expect` refuses what is none."""
    expect(
        type(written) is list and len(written) == 3 and all(type(w) is list for w in written), "a layout is no layout"
    )
    axes, sizes, entries = written
    expect(
        all(type(a) is str and 0 < len(a) < 100 for a in axes) and len({*axes}) == len(axes),
        "a mesh's axes have no names",
    )
    expect(len(axes) == len(sizes) <= MOST_AXES and all(type(s) is int and s > 0 for s in sizes), "a mesh has no sizes")
    expect(math.prod(sizes) <= MOST_DEVICES, "a mesh has too many devices")
    expect(
        all(e is False or (type(e) is list and all(n in axes for n in e)) for e in entries),
        "a layout's axes are not the mesh's",
    )
    used = [n for e in entries if e for n in e]
    expect(len({*used}) == len(used), "a layout has an axis twice")
    spec = PartitionSpec(*(PartitionSpec.UNCONSTRAINED if e is False else tuple(e) or None for e in entries))
    return unchecked(AbstractMesh(tuple(sizes), tuple(axes), (AxisType.Auto,) * len(axes)), spec)
