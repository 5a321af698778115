"""Shardings: which part of an array each device holds. `NamedSharding` by a mesh and a spec, `SingleDeviceSharding` all on one."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from fuser.errors import DuplicateSpecError
from fuser.parallel.mesh import AbstractMesh, AxisType, Mesh, extent
from fuser.parallel.spec import Axes, PartitionSpec, names, split_axes
from fuser.runtime.device import Device
from fuser.runtime.processes import processes

Index = tuple[slice, ...]
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")


class Sharding:
    """How an array is laid out over devices. `devices` is their order; parts of arrays are kept in it."""

    devices: tuple[Device, ...]

    def in_type(self, rank: int) -> Any:
        """What the types of arrays of this rank say of it: how they lie along Explicit axes of a mesh, or None."""
        return None

    @property
    def device_set(self) -> set[Device]:
        return set(self.devices)

    @property
    def _device_assignment(self) -> tuple[Device, ...]:  # a name that programs written for JAX ask for
        return self.devices

    @property
    def _addressable_device_assignment(self) -> tuple[Device, ...]:  # Orbax asks for it
        return tuple(d for d in self.devices if d.process_index == processes().index)

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
    def memory_kind(self) -> str | None:
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

    @property
    def unreduced(self) -> frozenset[Any]:
        """The axes of a mesh along which each device has one term of the sum that the array is."""
        return frozenset()

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether both give every device the same part of any array of `ndim` dimensions."""
        return isinstance(other, Sharding) and self.unreduced == other.unreduced and self.same_parts(other, ndim)

    def same_parts(self, other: Sharding, ndim: int) -> bool:
        """Whether the parts, whole or terms of sums, stand at the same places."""
        if self is other:
            return True
        if self.devices != other.devices:
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
        if memory_kind is not None and memory_kind not in MEMORY_KINDS:
            raise ValueError(
                f"Got invalid memory kind: {memory_kind}. Valid memory kinds are: {', '.join(MEMORY_KINDS)}"
            )
        self.mesh = mesh
        self.spec = spec
        self._memory_kind = memory_kind
        self.devices = mesh.flat if isinstance(mesh, Mesh) else ()

    def in_type(self, rank: int) -> NamedSharding | None:
        return typed(self, rank) if self.mesh.explicit_axes else None

    @property
    def is_fully_replicated(self) -> bool:
        if any(self.mesh.shape[n] > 1 for n in self.spec.unreduced):
            return False
        return all(extent(self.mesh, axes) == 1 for axes in split_axes(self.spec, len(self.spec)))

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory that was named; that of devices of the CPU is the host's whatever it is called."""
        default = "device" if isinstance(self.mesh, Mesh) else None
        return getattr(self, "_memory_kind", None) or default

    @property
    def replicated_axes(self) -> frozenset[Any]:
        used = {name for axes in split_axes(self.spec, len(self.spec)) for name in axes}
        used |= self.spec.unreduced | self.spec.reduced
        return frozenset(n for n in self.mesh.axis_names if n not in used)

    @property
    def unreduced(self) -> frozenset[Any]:
        return self.spec.unreduced

    def axes(self, rank: int) -> tuple[Axes, ...]:
        """For each dimension of an array of this rank, the mesh axes that split it."""
        if len(self.spec) > rank:
            more = " For scalars the PartitionSpec should be P()" if rank == 0 else ""
            raise ValueError(
                f"Sharding {self} is only valid for values of rank at least {len(self.spec)}, but was applied to a value of rank {rank}: "
                f"{self.spec} splits {len(self.spec)} dimensions, and the array has {rank}.{more}"
            )
        return split_axes(self.spec, rank)

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """ValueError unless the spec fits values of this rank."""
        self.axes(len(aval_shape))

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

    def batched(self, dim: int, entry: Any = PartitionSpec.UNCONSTRAINED) -> NamedSharding:
        """This sharding of arrays that have one dimension more, at `dim`, which lies as `entry` says: freely."""
        own = self.spec.partitions
        entries = (*own, *[None] * max(dim - len(own), 0))
        return self.with_entries((*entries[:dim], entry, *entries[dim:]))

    def without(self, dim: int) -> NamedSharding:
        """This sharding, which has an entry for each dimension, without one of them."""
        own = self.spec.partitions
        return self.with_entries((*own[:dim], *own[dim + 1 :]))

    def with_entries(self, entries: Sequence[Any], **sets: Any) -> NamedSharding:
        """This sharding with other entries, where some may be unconstrained."""
        return unchecked(self.mesh, self.spec.update(entries, **sets))

    def cotangent(self) -> NamedSharding:
        """How the cotangents of values that lie so lie."""
        return unchecked(self.mesh, self.spec.update(unreduced=self.spec.reduced, reduced=self.spec.unreduced))

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


def unchecked(mesh: Any, spec: PartitionSpec) -> NamedSharding:
    """The sharding of a type, whose spec is known to fit the mesh."""
    found = object.__new__(NamedSharding)
    found.mesh, found.spec = mesh, spec
    found.devices = mesh.flat if isinstance(mesh, Mesh) else ()
    return found


@functools.lru_cache(maxsize=4096)
def typed(sharding: NamedSharding, rank: int) -> NamedSharding:
    """What types say of values that lie so: an entry for each dimension, with the Explicit axes of the mesh alone."""
    mesh, spec = sharding.mesh.abstract_mesh, sharding.spec
    kept = lambda entry: tuple(n for n in names(entry) if n in mesh.explicit_axes) or None
    free = PartitionSpec.UNCONSTRAINED
    entries = [e if e is free else kept(e) for e in (*spec.partitions, *[None] * (rank - len(spec)))]
    return unchecked(mesh, spec.update(entries))


def check_spec(mesh: Any, spec: PartitionSpec, what: str = "NamedSharding spec") -> None:
    """ValueError unless the spec names axes of the mesh, each once."""
    if PartitionSpec.UNCONSTRAINED in spec.partitions and AxisType.Auto not in mesh.axis_types:
        raise ValueError(
            f"{spec} cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`. Got mesh axis_types: "
            f"{mesh.axis_types}"
        )
    for kind in ("unreduced", "reduced"):
        for name in sorted(getattr(spec, kind), key=str):
            if name not in mesh.axis_names:
                raise ValueError(
                    f"{kind.capitalize()} axes {name} is not found in mesh.axis_names={mesh.axis_names}: {spec}"
                )
            if name not in mesh.explicit_axes:
                raise ValueError(
                    f"{kind.capitalize()} axes can only refer to mesh axes that is of type `Explicit`. Got {kind} axes: "
                    f"{set(getattr(spec, kind))} and mesh: {mesh}"
                )
    seen: set[Any] = set()
    for axes in split_axes(spec, len(spec)):
        for name in axes:
            if name not in mesh.axis_names:
                raise ValueError(
                    f"Resource axis: {name} of {spec} is not found in mesh: {mesh.axis_names}. It names the axis {name!r}, which is not in "
                    "the mesh"
                )
            if name in seen:
                raise DuplicateSpecError(
                    f"A single {what} specification can map every mesh axis to at most one positional dimension, but {spec} has "
                    f"duplicate entries for `{name}`: it names the axis {name!r} twice"
                )
            seen.add(name)


@functools.lru_cache(maxsize=1024)
def _indices(sharding: NamedSharding, shape: tuple[int, ...]) -> dict[Device, Index]:
    mesh, axes, part = sharding.mesh, sharding.axes(len(shape)), sharding.shard_shape(shape)
    if not isinstance(mesh, Mesh):
        raise ValueError(f"{sharding} is over an AbstractMesh, which has no devices; give a NamedSharding over a Mesh")
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
