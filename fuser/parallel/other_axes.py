"""Meshes with other axes over the same devices: a layout by the axes of one, said in those of another.

Both grids are counted through in the same order, so an axis of one is some neighbouring axes of the other where their strides
meet: along `a` of a=4, b=1 lie the devices that `x` and `y` of x=2, y=2 number together.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn, Graph, graphs_in
from fuser.ir.source import current_source
from fuser.ops.collective import axis_index_p
from fuser.ops.shard_map import shard_map_p
from fuser.parallel.mesh import Mesh
from fuser.parallel.partial_manual import plain
from fuser.parallel.sharding import NamedSharding, unchecked
from fuser.parallel.spec import Axes, PartitionSpec, names
from fuser.passes.inline import inline_calls
from fuser.trace.batch import axis_names


def over(axes: Any, mesh: Mesh) -> Mesh:
    """The devices of `mesh` in a grid with the names, sizes and types of `axes`."""
    if axes.shape_tuple == mesh.shape_tuple:
        return mesh
    return Mesh(mesh.devices.reshape(axes.axis_sizes), axes.axis_names, axes.axis_types)


def finest(meshes: Sequence[Mesh]) -> Mesh:
    """The first mesh by whose axes those of all others can be said; the first of all where there is none."""
    return next((m for m in meshes if all(_said_by(other, m) for other in meshes)), meshes[0])


def said_by(own: Any, mesh: Mesh) -> bool:
    """Whether the axes of a mesh, which may have no devices, can be said by those of another over the same devices."""
    return own.size == mesh.size and _said_by(own, mesh)


@functools.lru_cache(maxsize=1024)
def _said_by(own: Any, mesh: Mesh) -> bool:
    if isinstance(own, Mesh) and own.flat != mesh.flat:
        return False
    try:
        return own.shape_tuple == mesh.shape_tuple or bool(_places(own, mesh))
    except UnsupportedError:
        return False


@functools.lru_cache(maxsize=1024)
def in_axes_of(sharding: NamedSharding, mesh: Any) -> NamedSharding:
    """The same layout by the axes of `mesh`; UnsupportedError where one of them lies only partly along an axis that is named."""
    own = sharding.mesh
    if own.shape_tuple == mesh.shape_tuple:
        return sharding
    if own.size != mesh.size:
        raise ValueError(
            f"Received incompatible devices for jitted computation: {own} names {own.size} devices in a program over the {mesh.size} "
            f"of {mesh} ({current_source().short})"
        )
    place = _places(own, mesh)
    free = PartitionSpec.UNCONSTRAINED
    entries = [
        e if e is free else tuple(n for name in names(e) for n in place[name]) or None for e in sharding.spec.partitions
    ]
    sets = {
        what: {n for name in getattr(sharding.spec, what) for n in place[name]} for what in ("unreduced", "reduced")
    }
    return unchecked(mesh, PartitionSpec(*entries, **sets))


def _places(own: Any, mesh: Any) -> dict[Any, Axes]:
    """For each axis of `own` the axes of `mesh` that it is together."""
    strides, found, stride = [], {}, 1
    for name, size in reversed(mesh.shape_tuple):
        strides.append((name, stride, size))
        stride *= size
    stride = 1
    for name, size in reversed(own.shape_tuple):
        within = [
            (n, first, count) for n, first, count in reversed(strides) if count > 1 and stride <= first < stride * size
        ]
        covered = 1
        for _, _, count in within:
            covered *= count
        if covered != size:
            raise UnsupportedError(
                f"the axis {name!r} of {own} is no axis, nor several neighbouring axes together, of {mesh}, by which the same program "
                f"is divided ({current_source().short}); name the axes of one mesh, or sizes that divide each other"
            )
        found[name] = tuple(n for n, _, _ in within)
        stride *= size
    return found


def with_axes_of(graph: Graph, mesh: Any) -> Graph:
    """The graph with its shard_maps, those in bodies too, over the axes of `mesh`, which must be finer than theirs."""
    return graph if not _over_others(graph, mesh) else _rewritten(graph, mesh)


def _over_others(graph: Graph, mesh: Any) -> bool:
    other = lambda e: e.primitive is shard_map_p and e.params["mesh"].shape_tuple != mesh.shape_tuple
    return any(other(e) or any(_over_others(g, mesh) for g in graphs_in(e.params)) for e in graph.eqns)


def _rewritten(graph: Graph, mesh: Any) -> Graph:
    return replace(graph, eqns=tuple(_over(e, mesh) for e in graph.eqns))


def _over(eqn: Eqn, mesh: Any) -> Eqn:
    if eqn.primitive is not shard_map_p:
        return _in_bodies(eqn, lambda g: _rewritten(g, mesh))
    if eqn.params["mesh"].shape_tuple == mesh.shape_tuple:
        return eqn
    return _renamed(eqn, _places(eqn.params["mesh"], mesh), mesh)


def _in_bodies(eqn: Eqn, change: Any) -> Eqn:
    one = lambda p: change(p) if isinstance(p, Graph) else p
    each = lambda p: tuple(map(one, p)) if isinstance(p, tuple) else one(p)
    return replace(eqn, params={name: each(value) for name, value in eqn.params.items()}) if _holds(eqn) else eqn


def _holds(eqn: Eqn) -> bool:
    return any(True for _ in graphs_in(eqn.params))


def _renamed(eqn: Eqn, places: Mapping[Any, Axes], mesh: Any) -> Eqn:
    """A collective, or what holds some, with each axis as the axes of `mesh` that it is together."""
    longer = lambda axes: tuple(n for name in axes for n in places[name])
    if eqn.primitive is shard_map_p:
        body = plain(inline_calls(eqn.params["jaxpr"]))
        specs = {k: tuple(tuple(map(longer, s)) for s in eqn.params[k]) for k in ("in_specs", "out_specs")}
        own = {"mesh": mesh, "manual_axes": longer(eqn.params["manual_axes"]), "check_vma": False, **specs}
        body = replace(body, eqns=tuple(_renamed(e, places, mesh) for e in body.eqns))
        return replace(eqn, params={**eqn.params, **own, "jaxpr": body})
    if eqn.primitive.collect is not None or eqn.primitive is axis_index_p:
        name = "axes" if "axes" in eqn.params else "axis_name"
        return replace(eqn, params={**eqn.params, name: longer(axis_names(eqn.params))})
    return _in_bodies(eqn, lambda g: replace(g, eqns=tuple(_renamed(e, places, mesh) for e in g.eqns)))
