"""Meshes with other axes over the same devices: a layout by the axes of one, said in those of another.

Both grids are counted through in the same order, so an axis of one is some neighbouring axes of the other where their strides
meet: along `a` of a=4, b=1 lie the devices that `x` and `y` of x=2, y=2 number together.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from fuser.errors import UnsupportedError
from fuser.ir.source import current_source
from fuser.parallel.mesh import Mesh
from fuser.parallel.sharding import NamedSharding, unchecked
from fuser.parallel.spec import Axes, PartitionSpec, names


def over(axes: Any, mesh: Mesh) -> Mesh:
    """The devices of `mesh` in a grid with the names, sizes and types of `axes`."""
    if axes.shape_tuple == mesh.shape_tuple:
        return mesh
    return Mesh(mesh.devices.reshape(axes.axis_sizes), axes.axis_names, axes.axis_types)


def finest(meshes: Sequence[Mesh]) -> Mesh:
    """The first mesh by whose axes those of all others can be said; the first of all where there is none."""
    return next((m for m in meshes if all(_said_by(other, m) for other in meshes)), meshes[0])


@functools.lru_cache(maxsize=1024)
def _said_by(own: Mesh, mesh: Mesh) -> bool:
    if own.flat != mesh.flat:
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
