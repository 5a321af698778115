"""Shardings: which part of an array each device holds. `NamedSharding` by a mesh and a spec, `SingleDeviceSharding` all on one."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from fuser.errors import DuplicateSpecError
from fuser.parallel.mesh import AbstractMesh, Mesh, extent
from fuser.parallel.spec import Axes, PartitionSpec, split_axes
from fuser.runtime.device import Device
from fuser.runtime.processes import processes

Index = tuple[slice, ...]


class Sharding:
    """How an array is laid out over devices. `devices` is their order; parts of arrays are kept in it."""

    devices: tuple[Device, ...]

    @property
    def device_set(self) -> set[Device]:
        return set(self.devices)

    @property
    def addressable_devices(self) -> set[Device]:
        return {d for d in self.devices if d.process_index == processes().index}

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices belong to this process."""
        return len(self.addressable_devices) == len(self.devices)

    @property
    def has_addressable_devices(self) -> bool:
        return bool(self.addressable_devices)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        raise NotImplementedError

    @property
    def memory_kind(self) -> str:
        return "device"

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of each device's part; ValueError where the parts are not equal."""
        raise NotImplementedError

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, Index]:
        """Which part of an array of this shape each device holds, in the order of `devices`."""
        raise NotImplementedError

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, Index]:
        here = self.addressable_devices
        return {d: index for d, index in self.devices_indices_map(global_shape).items() if d in here}

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether both give every device the same part of any array of `ndim` dimensions."""
        if not isinstance(other, Sharding) or self.devices != other.devices:
            return False
        shape = (len(self.devices),) * ndim  # which every number of parts divides
        try:
            return list(self.devices_indices_map(shape).values()) == list(other.devices_indices_map(shape).values())
        except ValueError:
            return self == other

    def with_memory_kind(self, kind: str) -> Sharding:
        if kind != "device":
            raise ValueError(f"there is one kind of memory, 'device'; got {kind!r}")
        return self


class SingleDeviceSharding(Sharding):
    """The whole array on one device."""

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        self.devices = (device,)

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(global_shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, Index]:
        return {self.devices[0]: (slice(None),) * len(global_shape)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding) and self.devices == other.devices

    def __hash__(self) -> int:
        return hash(self.devices)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.devices[0]!r}, memory_kind=device)"

    def __reduce__(self) -> Any:
        return SingleDeviceSharding, self.devices


class NamedSharding(Sharding):
    """Each dimension is split over the mesh axes that `spec` names for it; over the other axes the array is repeated."""

    def __init__(self, mesh: Mesh, spec: PartitionSpec, *, memory_kind: str | None = None) -> None:
        if not isinstance(mesh, (Mesh, AbstractMesh)):
            raise TypeError(f"NamedSharding takes a Mesh first, got a {type(mesh).__name__}")
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"NamedSharding takes a PartitionSpec second, got {spec!r}")
        check_spec(mesh, spec)
        self.mesh = mesh
        self.spec = spec
        self.devices = mesh.flat if isinstance(mesh, Mesh) else ()

    @property
    def is_fully_replicated(self) -> bool:
        return all(extent(self.mesh, axes) == 1 for axes in split_axes(self.spec, len(self.spec)))

    @property
    def replicated_axes(self) -> frozenset[Any]:
        used = {name for axes in split_axes(self.spec, len(self.spec)) for name in axes}
        return frozenset(n for n in self.mesh.axis_names if n not in used)

    def axes(self, rank: int) -> tuple[Axes, ...]:
        """For each dimension of an array of this rank, the mesh axes that split it."""
        if len(self.spec) > rank:
            raise ValueError(
                f"{self.spec} splits {len(self.spec)} dimensions, and the array has {rank}; give one entry a dimension at most"
            )
        return split_axes(self.spec, rank)

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        shape = tuple(global_shape)
        parts = [extent(self.mesh, axes) for axes in self.axes(len(shape))]
        for dimension, (size, count) in enumerate(zip(shape, parts)):
            if size % count:
                raise ValueError(
                    f"{self.spec} splits dimension {dimension} into {count} parts, which do not divide its extent {size} "
                    f"(shape {shape}, mesh {dict(self.mesh.shape)}); pad the array, or leave the dimension whole"
                )
        return tuple(size // count for size, count in zip(shape, parts))

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Device, Index]:
        return _indices(self, tuple(global_shape))

    def batched(self, dim: int) -> NamedSharding:
        """This sharding of arrays that have one dimension more, at `dim`."""
        entries = (*self.spec, *[None] * max(dim - len(self.spec), 0))
        return NamedSharding(self.mesh, PartitionSpec(*entries[:dim], None, *entries[dim:]))

    def update(self, **fields: Any) -> NamedSharding:
        """This sharding with another mesh or spec."""
        return NamedSharding(fields.get("mesh", self.mesh), fields.get("spec", self.spec))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, NamedSharding) and self.spec == other.spec and self.mesh == other.mesh
        )

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh!s}, spec={self.spec}, memory_kind=device)"

    def __reduce__(self) -> Any:
        return NamedSharding, (self.mesh, self.spec)


def check_spec(mesh: Any, spec: PartitionSpec) -> None:
    """ValueError unless the spec names axes of the mesh, each once."""
    seen: set[Any] = set()
    for axes in split_axes(spec, len(spec)):
        for name in axes:
            if name not in mesh.axis_names:
                raise ValueError(
                    f"{spec} names the axis {name!r}, which is not in the mesh; its axes are {mesh.axis_names}"
                )
            if name in seen:
                raise DuplicateSpecError(
                    f"{spec} names the axis {name!r} twice; a mesh axis can split one dimension of an array only"
                )
            seen.add(name)


@functools.lru_cache(maxsize=1024)
def _indices(sharding: NamedSharding, shape: tuple[int, ...]) -> dict[Device, Index]:
    mesh, axes, part = sharding.mesh, sharding.axes(len(shape)), sharding.shard_shape(shape)
    assert isinstance(mesh, Mesh)
    found = {}
    for rank, device in enumerate(mesh.flat):
        index = [
            slice(n * size, (n + 1) * size) if names else slice(None)
            for names, size, n in zip(axes, part, (position(mesh, rank, names) for names in axes))
        ]
        found[device] = tuple(index)
    return found


def position(mesh: Mesh, rank: int, axes: Axes) -> int:
    """Where the rank-th device stands along these axes together, the first of which varies slowest."""
    place, shape, result = mesh.coordinates(rank), mesh.shape, 0
    for name in axes:
        result = result * shape[name] + place[name]
    return result


def make_single_device_sharding(device: Device, *, memory_kind: str | None = None) -> SingleDeviceSharding:
    """`SingleDeviceSharding(device)`."""
    return SingleDeviceSharding(device)
