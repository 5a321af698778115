"""`Mesh`: devices in a grid whose axes have names; `AbstractMesh` is one without devices. And the mesh in scope.

`set_mesh` and `with mesh:` bring a mesh into scope, for specs that name axes alone.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.config import config
from fuser.runtime import device as _device
from fuser.runtime.device import Device
from fuser.runtime.processes import processes
from fuser.trace.batch import manual_axes
from fuser.trace.core import _state


class AxisType(enum.Enum):
    """Who shards along a mesh axis: the compiler (Auto), the types of values (Explicit), or the program (Manual)."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class _Grid:
    """What a mesh says by its axes alone."""

    axis_names: tuple[Any, ...]
    axis_types: tuple[AxisType, ...]
    axis_sizes: tuple[int, ...]

    @property
    def shape(self) -> OrderedDict[Any, int]:
        """Extent by axis name."""
        return OrderedDict(zip(self.axis_names, self.axis_sizes))

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        return tuple(zip(self.axis_names, self.axis_sizes))

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.axis_sizes) if self.axis_names else 0

    @property
    def split_shape(self) -> Mapping[Any, int]:
        """Along each axis, into how many parts the arrays are split that a function over the mesh takes and gives."""
        return self.shape

    @property
    def empty(self) -> bool:
        return not self.axis_names

    def _of_type(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(n for n, t in zip(self.axis_names, self.axis_types) if t is kind)

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        return all(t is AxisType.Auto for t in self.axis_types)

    @property
    def are_all_axes_explicit(self) -> bool:
        return all(t is AxisType.Explicit for t in self.axis_types)

    @property
    def are_all_axes_manual(self) -> bool:
        return all(t is AxisType.Manual for t in self.axis_types)

    def __str__(self) -> str:
        inner = ", ".join(f"{n!r}: {s}" for n, s in self.shape_tuple)
        types = ", ".join(map(repr, self.axis_types))
        return f"{type(self).__name__}({inner}, axis_types=({types}{',' if len(self.axis_types) == 1 else ''}))"


def _types(names: tuple[Any, ...], types: Any) -> tuple[AxisType, ...]:
    if types is None:
        return (AxisType.Auto,) * len(names)
    types = (types,) if isinstance(types, AxisType) else tuple(types)
    if len(types) != len(names):
        raise ValueError(
            f"Number of axis names should match the number of axis_types: a mesh needs one axis type for each of the axes {names}, got {types}"
        )
    return types


def _retyped(mesh: _Grid, name_to_type: Mapping[Any, AxisType]) -> tuple[AxisType, ...]:
    return tuple(name_to_type.get(n, t) for n, t in zip(mesh.axis_names, mesh.axis_types))


def _distinct(names: tuple[Any, ...]) -> tuple[Any, ...]:
    if None in names:
        raise ValueError(f"Mesh axis names cannot be None. Got {names}")
    if len(set(names)) != len(names):
        raise ValueError(f"the axes of a mesh need distinct names, got {names}")
    return names


class AbstractMesh(_Grid):
    """A mesh by names and sizes, for types and plans without devices."""

    def __init__(
        self,
        axis_sizes: Sequence[int],
        axis_names: Sequence[Any],
        axis_types: Any = None,
        *,
        abstract_device: Any = None,
    ) -> None:
        self.axis_names = _distinct(tuple(axis_names))
        self.axis_sizes = tuple(axis_sizes)
        if len(self.axis_sizes) != len(self.axis_names):
            raise ValueError(f"a mesh needs one size for each of the axes {self.axis_names}, got {self.axis_sizes}")
        self.axis_types = _types(self.axis_names, axis_types)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    @property
    def devices(self) -> Any:
        raise ValueError("AbstractMesh does not implement devices: it has names and sizes alone; use a Mesh")

    def update(
        self, axis_sizes: Any = None, axis_names: Any = None, axis_types: Any = None, **fields: Any
    ) -> AbstractMesh:
        """This mesh with some fields replaced."""
        names = self.axis_names if axis_names is None else axis_names
        types = self.axis_types if axis_types is None else axis_types
        return AbstractMesh(self.axis_sizes if axis_sizes is None else axis_sizes, names, types)

    def update_axis_types(self, name_to_type: Mapping[Any, AxisType]) -> AbstractMesh:
        """This mesh with other types of some axes."""
        return self.update(axis_types=_retyped(self, name_to_type))

    def _key(self) -> Any:
        return self.axis_names, self.axis_sizes, self.axis_types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    __repr__ = _Grid.__str__


class Mesh(_Grid, contextlib.ContextDecorator):
    """`devices`, an ndarray of them, with a name for each of its axes; `with mesh:` brings it into scope."""

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        self.devices = np.asarray(devices, object)
        self.axis_names = _distinct(tuple(axis_names) if isinstance(axis_names, (tuple, list)) else (axis_names,))
        if self.devices.ndim != len(self.axis_names):
            raise ValueError(
                f"a mesh needs one name for each axis of its devices, got {self.axis_names} for shape {self.devices.shape}"
            )
        self.devices.flags.writeable = False
        self.axis_sizes = self.devices.shape
        self.axis_types = _types(self.axis_names, axis_types)
        self.flat: tuple[Device, ...] = tuple(self.devices.flat)
        self._hash = hash((self.flat, self.axis_sizes, self.axis_names, self.axis_types))

    @property
    def size(self) -> int:
        return self.devices.size if self.axis_names else 0

    @property
    def device_ids(self) -> np.ndarray:
        return np.vectorize(lambda d: d.id, otypes=[int])(self.devices)

    @property
    def local_devices(self) -> list[Device]:
        return [d for d in self.flat if d.process_index == processes().index]

    @property
    def local_mesh(self) -> Mesh:
        """This process's part of the mesh; ValueError where it is no grid."""
        if not self.is_multi_process:
            return self
        mine = np.argwhere(np.vectorize(lambda d: d.process_index == processes().index, otypes=[bool])(self.devices))
        low, high = mine.min(0), mine.max(0) + 1
        if math.prod(high - low) != len(mine):
            raise ValueError("the devices of this process are no grid within the mesh")
        window = tuple(slice(a, b) for a, b in zip(low, high))
        return Mesh(self.devices[window], self.axis_names, self.axis_types)

    @functools.cached_property
    def owners(self) -> tuple[int, ...]:
        """For each device of `flat`, the process that it belongs to."""
        return tuple(d.process_index for d in self.flat)

    @property
    def is_multi_process(self) -> bool:
        index = processes().index
        return any(process != index for process in self.owners)

    @functools.cached_property
    def abstract_mesh(self) -> AbstractMesh:
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """This mesh with some fields replaced."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def update_axis_types(self, name_to_type: Mapping[Any, AxisType]) -> Mesh:
        """This mesh with other types of some axes."""
        return self.update(axis_types=_retyped(self, name_to_type))

    def coordinates(self, rank: int) -> dict[Any, int]:
        """Where the device with this position in `flat` stands along each axis."""
        return dict(zip(self.axis_names, map(int, np.unravel_index(rank, self.axis_sizes)))) if self.axis_names else {}

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Mesh) and (self.flat, self.axis_sizes, self.axis_names, self.axis_types) == (
            other.flat,
            other.axis_sizes,
            other.axis_names,
            other.axis_types,
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, axis_types={self.axis_types})"

    def __reduce__(self) -> Any:
        return Mesh, (np.array(self.devices), self.axis_names, self.axis_types)

    def __enter__(self) -> Mesh:
        _enter(self, False)
        return self

    def __exit__(self, *exception: Any) -> None:
        _leave(_open.blocks[-1])


# The mesh in scope: programs depend on it, so the setting `meshes` keeps it, the innermost last.


class _Open(threading.local):
    def __init__(self) -> None:
        self.blocks: list[Any] = []


_open = _Open()


def _enter(mesh: Mesh | AbstractMesh | None, follows: bool) -> Any:
    """Bring a mesh into scope; with `follows`, what is computed meanwhile lies over it."""
    block = config.using(meshes=() if mesh is None else (*config.meshes, (mesh, follows)))
    block.__enter__()
    _open.blocks.append(block)
    return block


def _leave(block: Any) -> None:
    _open.blocks.remove(block)
    block.__exit__(None, None, None)


def mesh_in_scope() -> Mesh | None:
    """The mesh that `with mesh:` or `set_mesh` brought into scope, if any, with the axes that `use_abstract_mesh` gave it."""
    return _concrete(config.meshes)


@functools.lru_cache(maxsize=256)
def _concrete(scope: tuple[tuple[Mesh | AbstractMesh, bool], ...]) -> Mesh | None:
    if not scope or isinstance(scope[-1][0], Mesh):
        return scope[-1][0] if scope else None  # type: ignore[return-value]
    outer, axes = _concrete(scope[:-1]), scope[-1][0]
    if outer is None or axes.empty or outer.size != axes.size:
        return None
    return Mesh(outer.devices.reshape(axes.axis_sizes), axes.axis_names, axes.axis_types)


def mesh_to_follow() -> Mesh | None:
    """The mesh over which `set_mesh` lets results lie, if any."""
    scope = config.meshes
    return _concrete(scope) if scope and scope[-1][1] else None


EMPTY = AbstractMesh((), ())


def get_mesh() -> Mesh:
    """The mesh in scope; an empty one where there is none."""
    return mesh_in_scope() or Mesh(np.empty((), object), ())


def get_abstract_mesh() -> AbstractMesh:
    """The axes of the mesh in scope; no axes where there is none. Those that a shard_map goes over are Manual."""
    scope = config.meshes
    found = scope[-1][0].abstract_mesh if scope else EMPTY
    manual = [n for n in found.axis_names if n in manual_axes()]
    return found.update_axis_types(dict.fromkeys(manual, AxisType.Manual)) if manual else found


class set_mesh:
    """Bring a mesh into scope from now on, or within a `with` block; what is computed meanwhile lies over it.

    ValueError for what is no Mesh, a mesh with Manual axes, and within a program.
    """

    def __init__(self, mesh: Mesh | None) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(f"set_mesh takes a Mesh: Expected mesh of type `jax.sharding.Mesh`. Got {mesh!r}")
        if mesh is not None and mesh.manual_axes:
            raise ValueError(f"mesh {mesh} contains manual axes which is not allowed when using `set_mesh`")
        if _state.trace is not None:
            raise ValueError("`set_mesh` can only be used outside of `jit`; within, name the mesh in shardings")
        if mesh is not None:
            from fuser.parallel.arrays import follow_devices

            follow_devices()
        self._mesh = mesh
        self._block = _enter(None if mesh is not None and mesh.empty else mesh, True)

    def __enter__(self) -> Mesh | None:
        return self._mesh

    def __exit__(self, *exception: Any) -> None:
        _leave(self._block)


@contextlib.contextmanager
def within(mesh: Mesh | AbstractMesh) -> Iterator[None]:
    """Bring a mesh into scope; results lie over it if they do over the one around."""
    block = _enter(mesh, bool(config.meshes and config.meshes[-1][1]))
    try:
        yield
    finally:
        _leave(block)


@contextlib.contextmanager
def use_abstract_mesh(mesh: AbstractMesh) -> Iterator[None]:
    """Within the block the mesh in scope has these axes, names and types; its devices stay those that it has."""
    if not isinstance(mesh, AbstractMesh):
        raise ValueError(
            f"use_abstract_mesh takes an AbstractMesh: Expected mesh of type `jax.sharding.AbstractMesh`. Got {mesh!r}"
        )
    with within(mesh):
        yield


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[Any],
    axis_types: Any = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """A mesh of these extents over the first devices, in their order; ValueError where there are too few."""
    if not all(isinstance(extent, (int, np.integer)) for extent in axis_shapes):
        raise ValueError(f"`axis_sizes` passed to `make_mesh` should be a sequence of ints, got {axis_shapes}")
    shape = tuple(map(int, axis_shapes))
    found = list(_device.devices()) if devices is None else list(devices)
    wanted = math.prod(shape)
    if wanted > len(found):
        on_cpu = devices is not None or found[0].platform == "cpu"
        cpus = "on the CPU, " if on_cpu else 'devices=fuser.devices("cpu") takes the CPU\'s, of which '
        raise ValueError(
            f"a mesh of shape {shape} needs {wanted} devices, and there are {len(found)}; {cpus}"
            'fuser.config.update("num_cpu_devices", n) or FUSER_NUM_CPU_DEVICES sets how many there are'
        )
    grid = np.array(found[:wanted], object).reshape(shape)
    return Mesh(grid, tuple(axis_names), (AxisType.Explicit,) * len(shape) if axis_types is None else axis_types)


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, Any]:
    """An array of this shape of devices, all of one machine and equally far from each other; for `Mesh`.

    The last two options are of TPUs' networks, and change nothing.
    """
    found = list(_device.devices()) if devices is None else list(devices)
    if math.prod(mesh_shape) != len(found):
        raise ValueError(f"a mesh of shape {tuple(mesh_shape)} takes {math.prod(mesh_shape)} devices, got {len(found)}")
    return np.array(found, object).reshape(tuple(mesh_shape))


@dataclass(frozen=True)
class AbstractDevice:
    """What is known of devices that are not there yet: the kind, how many cores each has, and the platform."""

    device_kind: str
    num_cores: int | None
    platform: str


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, Any]:
    """Devices in granules, those of one process each: `mesh_shape` within a granule, `dcn_mesh_shape` of them; for `Mesh`.

    Dimension d has mesh_shape[d] * dcn_mesh_shape[d] devices, those of a granule side by side. ValueError where the shapes do not fit.
    """
    inner, outer = tuple(mesh_shape), tuple(dcn_mesh_shape)
    granules: dict[int, list[Device]] = {}
    for device in _device.devices() if devices is None else devices:
        granules.setdefault(device.process_index, []).append(device)
    if len(inner) != len(outer) or math.prod(outer) != len(granules):
        raise ValueError(f"Number of slices {len(granules)} must equal the product of dcn_mesh_shape {outer}")
    blocks = np.empty(outer, object)
    for place, number in zip(np.ndindex(*outer), sorted(granules) if should_sort_granules_by_key else granules):
        blocks[place] = create_device_mesh(inner, granules[number])
    return np.block(blocks.tolist()) if outer else create_device_mesh(inner, granules[min(granules)])


def extent(mesh: Mesh | AbstractMesh, axes: Iterable[Any]) -> int:
    """The number of devices along these axes together."""
    shape = dict(zip(mesh.axis_names, mesh.axis_sizes))
    return math.prod(shape[a] for a in axes)
