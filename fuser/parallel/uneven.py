"""Dimensions that the devices do not divide: each device has a part of as many elements, of which the last ones are padding.

Of an extent n over p devices a part has ceil(n / p) elements; those from n on are padding, in the last parts or all of them.
Padding holds whatever was computed there. Nothing that is kept reads it: it is cut where parts are put together, and takes no part in reductions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.types import ArrayType
from fuser.lax import parallel as collectives
from fuser.lax.elementwise import add, lt, select
from fuser.lax.movement import broadcasted_iota, pad
from fuser.lax.slicing import slice_in_dim
from fuser.ops.reduce import extreme
from fuser.ops.shard_map import Spec
from fuser.parallel.mesh import Mesh, extent
from fuser.trace.core import type_of
from fuser.trace.tangent import full

Axes = tuple[Any, ...]


def part_size(size: int, parts: int) -> int:
    """The elements of each part of a dimension, padding included."""
    return -(-size // parts)


def divides(mesh: Mesh, axes: Axes, size: int) -> bool:
    """Whether the devices along these axes divide an extent."""
    return size % extent(mesh, axes) == 0


def even(mesh: Mesh, spec: Spec, shape: tuple[int, ...]) -> Spec:
    """The spec without the axes of dimensions that they do not divide."""
    return tuple(axes if divides(mesh, axes, size) else () for axes, size in zip(spec, shape))


def padded(value: Any, dim: int, size: int) -> Any:
    """The value with zeros behind it along a dimension, up to this extent."""
    aval = type_of(value)
    if aval.shape[dim] == size:
        return value
    widths = [(0, size - e if d == dim else 0, 0) for d, e in enumerate(aval.shape)]
    return pad(value, full(ArrayType((), aval.dtype), 0), widths)


def cut(value: Any, dim: int, size: int) -> Any:
    """The first `size` elements of the value along a dimension."""
    return value if type_of(value).shape[dim] == size else slice_in_dim(value, 0, size, axis=dim)


def masked(value: Any, dim: int, axes: Axes, size: int, reduction: str) -> Any:
    """A device's part along these axes of a dimension of extent `size`, its padding replaced by what changes no such reduction."""
    aval = type_of(value)
    part = aval.shape[dim]
    place = broadcasted_iota(np.int32, aval.shape, dim)
    place = add(place, full(type_of(place), 0) + collectives.axis_index(axes) * np.int32(part))
    identity = 0 if reduction == "sum" else extreme(aval.dtype, reduction)
    return select(lt(place, full(type_of(place), size)), value, full(aval, identity))
