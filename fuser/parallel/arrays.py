"""Arrays over devices: `device_put` and its like, and what an Array says of where it is.

An array on the first device is an ordinary one; any other holds `Shards`, one part a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import UnsupportedError
from fuser.lax.values import as_value
from fuser.ops.elementwise import copy_p
from fuser.parallel.mesh import mesh_in_scope
from fuser.parallel.sharding import Index, NamedSharding, Sharding, SingleDeviceSharding
from fuser.parallel.spec import PartitionSpec
from fuser.runtime import device as _device
from fuser.runtime.array import Array, alias, install, to_numpy
from fuser.runtime.device import CPU, Device
from fuser.runtime.shards import Shards
from fuser.trace import tree
from fuser.trace.core import EVALUATION, Tracer


@dataclass(frozen=True, eq=False)
class Shard:
    """One device's part of an array: `data`, which is the array's `index`; the `replica_id`-th with the same index."""

    device: Device
    index: Index
    replica_id: int
    data: Array | None

    def __repr__(self) -> str:
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, data={self.data})"


# Making.


def from_parts(
    shape: Sequence[int], dtype: np.dtype, sharding: Sharding, parts: Sequence[np.ndarray], weak: bool = False
) -> Array:
    """The array whose parts, in the order of the sharding's devices, are these."""
    if isinstance(sharding, SingleDeviceSharding) and sharding.devices[0] == CPU:
        return Array(parts[0], weak)
    follow_devices()
    return Array(Shards(shape, dtype, sharding, parts), weak)


def follow_devices() -> None:
    """From the first array over devices on, operations outside of `jit` run where their operands lie."""
    if not getattr(EVALUATION.override, "follows_devices", False):
        from fuser.parallel.eager import Following

        EVALUATION.override = Following(EVALUATION.override)


def parts_of(value: np.ndarray, sharding: Sharding) -> list[np.ndarray]:
    """Each device's part of a whole array, dense; devices with equal parts share one."""
    known: dict[Any, np.ndarray] = {}
    found = []
    sharding.shard_shape(value.shape)
    for index in sharding.devices_indices_map(value.shape).values():
        key = tuple((s.start, s.stop) for s in index)
        if key not in known:
            part = np.asarray(value[index])
            known[key] = part if part.flags.c_contiguous else np.array(part, order="C")
        found.append(known[key])
    return found


def laid_out(x: Array, sharding: Sharding) -> Array:
    """The same values laid out so; `x` itself where it is."""
    data = x._present()
    if isinstance(data, Shards) and data.sharding == sharding:
        return x
    whole = to_numpy(x)
    return from_parts(x.shape, x.dtype, sharding, parts_of(whole, sharding), x.weak_type)


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None) -> Any:
    """A tree of arrays on a device, or laid out by a Sharding; by a PartitionSpec over the mesh in scope.

    `device` may be a tree prefix of `x`. Traced values get a constraint of the same meaning.
    """
    leaves, structure = tree.flatten(x)
    targets = tree.broadcast_prefix(device, x) if device is not None else [None] * len(leaves)
    return tree.unflatten(structure, [_put(leaf, target, donate) for leaf, target in zip(leaves, targets)])


def _put(leaf: Any, target: Any, donate: Any) -> Any:
    value = as_value(leaf, "device_put")
    if isinstance(value, Tracer):
        if target is None or isinstance(target, (Device, SingleDeviceSharding)):
            return copy_p.bind(value)
        from fuser.parallel.constraint import with_sharding_constraint

        return with_sharding_constraint(value, target)
    if not isinstance(leaf, Array):
        value = value.__copy__()  # the memory of an ndarray is its owner's to write
    if target is None:
        return alias(value) if value is leaf else value
    result = laid_out(value, as_sharding(target, "device_put"))
    result = alias(result) if result is leaf else result
    if donate is True and value is leaf:
        value.delete("it was donated to device_put")
    return result


def as_sharding(target: Any, function: str) -> Sharding:
    """What a user says of a layout, as a Sharding: one, a device, or a spec over the mesh in scope."""
    if isinstance(target, Device):
        target = SingleDeviceSharding(target)
    if isinstance(target, PartitionSpec):
        mesh = mesh_in_scope()
        if mesh is None:
            raise ValueError(
                f"{function} got {target}, which names axes of a mesh, and no mesh is in scope; "
                "give a NamedSharding, or call it within `with fuser.set_mesh(mesh):`"
            )
        target = NamedSharding(mesh, target)
    if not isinstance(target, Sharding):
        raise TypeError(f"{function} takes a Device, a Sharding or a PartitionSpec, got {target!r}")
    for found in target.devices:
        if found.platform != "cpu":
            raise UnsupportedError(
                f"{function} to {found}: arrays are laid out over devices of the CPU only, so far; name devices of "
                'fuser.devices("cpu")'
            )
    return target


def device_get(x: Any) -> Any:
    """A tree of arrays as ndarrays."""
    return tree.map(lambda leaf: to_numpy(leaf) if isinstance(leaf, Array) else leaf, x)


def block_until_ready(x: Any) -> Any:
    """The tree, once all of its arrays are computed."""
    return tree.map(lambda leaf: leaf.block_until_ready() if hasattr(leaf, "block_until_ready") else leaf, x)


def _dtype(given: Any, found: np.dtype) -> np.dtype:
    return dtypes.canonicalize_dtype(found if given is None else np.dtype(given))


def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable[[Index], Any], dtype: Any = None
) -> Array:
    """The array of whose part at each `index` the callback gives the values; asked once for equal parts."""
    target, shape = as_sharding(sharding, "make_array_from_callback"), tuple(shape)
    size = target.shard_shape(shape)
    known: dict[Any, np.ndarray] = {}
    parts = []
    for index in target.devices_indices_map(shape).values():
        key = tuple((s.start, s.stop) for s in index)
        if key not in known:
            part = to_numpy(as_value(data_callback(index), "make_array_from_callback"))
            if part.shape != size:
                raise ValueError(
                    f"the callback of make_array_from_callback gave a part of shape {part.shape} for {index}; "
                    f"{target} splits shape {shape} into parts of shape {size}"
                )
            known[key] = np.array(part, dtype=_dtype(dtype, part.dtype), order="C")
        parts.append(known[key])
    return from_parts(shape, parts[0].dtype, target, parts)


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """Arrays of what this process holds of them: all, as there is one process."""

    def one(data: Any, shape: Any) -> Array:
        value = as_value(data, "make_array_from_process_local_data")
        if shape is not None and tuple(shape) != value.shape:
            raise ValueError(
                f"the one process of this program holds whole arrays: global_shape {tuple(shape)} is not {value.shape}"
            )
        return device_put(value, sharding)

    leaves, structure = tree.flatten(local_data)
    shapes = [global_shape] * len(leaves) if len(leaves) == 1 else [None] * len(leaves)
    return tree.unflatten(structure, map(one, leaves, shapes))


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Any, arrays: Sequence[Any], *, dtype: Any = None
) -> Array:
    """The array whose part on each device is that one of `arrays` that lies there."""
    target, shape = as_sharding(sharding, "make_array_from_single_device_arrays"), tuple(shape)
    size = target.shard_shape(shape)
    held = {next(iter(a.devices())): a for a in arrays}
    if set(held) != target.device_set or len(arrays) != len(held):
        raise ValueError(
            f"{target} needs one array on each of the devices {list(target.devices)}, got arrays on "
            f"{[next(iter(a.devices())) for a in arrays]}"
        )
    for array in arrays:
        if array.shape != size:
            raise ValueError(
                f"{target} splits shape {shape} into parts of shape {size}, got one of shape {array.shape}"
            )
    return from_parts(shape, arrays[0].dtype, target, [to_numpy(held[d]) for d in target.devices])


# What an array says of where it is.


def sharding_of(x: Array) -> Sharding:
    """How the array is laid out."""
    data = x._present()
    return data.sharding if isinstance(data, Shards) else SingleDeviceSharding(x.device)


def part(x: Array, number: int) -> Array:
    """The part on the number-th device, as an array there."""
    data = x._present()
    if not isinstance(data, Shards):
        return x
    array, device = data.arrays[number], data.sharding.devices[number]
    return from_parts(array.shape, array.dtype, SingleDeviceSharding(device), [array], x.weak_type)


def shards(x: Array) -> list[Shard]:
    """The array's parts, in the order of its devices."""
    sharding, seen = sharding_of(x), dict[Any, int]()
    found = []
    for number, (device, index) in enumerate(sharding.devices_indices_map(x.shape).items()):
        key = tuple((s.start, s.stop) for s in index)
        seen[key] = seen.get(key, -1) + 1
        found.append(Shard(device, index, seen[key], part(x, number)))
    return found


for _name, _function in (
    ("sharding", sharding_of),
    ("addressable_shards", shards),
    ("global_shards", shards),
    ("is_fully_addressable", lambda x: sharding_of(x).is_fully_addressable),
    ("is_fully_replicated", lambda x: sharding_of(x).is_fully_replicated),
    ("committed", lambda x: isinstance(x._present(), Shards)),
):
    install(_name, property(_function))
install("addressable_data", part)


# Devices of the whole program: it has one process.


def devices(backend: str | None = None) -> list[Device]:
    """All devices of a platform, of the default one if none is named."""
    return _device.devices(backend)


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of this process."""
    return _device.devices(backend)


def device_count(backend: str | None = None) -> int:
    """How many devices there are."""
    return len(_device.devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has."""
    return len(_device.devices(backend))


def process_count(backend: str | None = None) -> int:
    """How many processes run the program together."""
    return 1


def process_index(backend: str | None = None) -> int:
    """The number of this process among them."""
    return 0


def default_backend() -> str:
    """The platform of `devices()[0]`."""
    return "gpu" if _device.default_platform() == "cuda" else _device.default_platform()
