"""Arrays over devices: `device_put` and its like, and what an Array says of where it is.

An array on the first device is an ordinary one, or `Shards` of one part where it was put there and there are others; any
other holds `Shards`, one part a device.
"""

from __future__ import annotations

import enum
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.api.layout import Format, row_major
from fuser.api.stages import Compiled, Traced
from fuser.config import config
from fuser.errors import MeshError, UnexpectedTracerError, UnsupportedError
from fuser.ir.source import current_source
from fuser.ir.types import is_key
from fuser.lax.values import as_value, putting
from fuser.ops.elementwise import copy_p
from fuser.parallel.mesh import mesh_in_scope
from fuser.parallel.peer_copies import parts_of_parts
from fuser.parallel.places import is_first_gpu, on_device, on_first_gpu, only_part
from fuser.parallel.sharding import Index, NamedSharding, Sharding, SingleDeviceSharding, check_spec
from fuser.parallel.spec import PartitionSpec
from fuser.runtime import device as _device
from fuser.runtime.array import Array, alias, install, to_numpy
from fuser.runtime.device import Device, own_cpu
from fuser.runtime.processes import processes
from fuser.runtime.shards import Shards, on_gpu
from fuser.trace import transfers, tree
from fuser.trace.core import EVALUATION, Tracer, current
from fuser.trace.mismatch import details, prefix_mismatches


class Space(enum.Enum):
    """Memories that a device may have. Those of the CPU and of a GPU have one: an array lies where it is, whatever is asked."""

    Device = "device"
    Host = "host"
    Any = "any"


memory = types.SimpleNamespace(Space=Space)


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
    shape: Sequence[int], dtype: np.dtype, sharding: Sharding, parts: Sequence[Any], weak: bool = False
) -> Array:
    """The array whose parts, in the order of the sharding's devices, are these: wherever they lie, and from there to their devices."""
    parts = [on_device(part, device) for part, device in zip(parts, sharding.devices, strict=True)]
    if isinstance(sharding, SingleDeviceSharding):
        device = sharding.devices[0]
        if device == own_cpu() and not _device.several():
            return Array(parts[0], weak)
        if device.platform == "cuda" and len(_device.cuda_devices()) == 1:
            return Array(parts[0], weak)
    follow_devices()
    return Array(Shards(shape, dtype, sharding, parts), weak)


def _by_default(x: Array) -> Array:
    """The array on this thread's default device, which it need not stay on; as it is where that is the first, or a GPU."""
    wanted = config.default_device
    if not isinstance(wanted, Device) or wanted.platform != "cpu" or wanted == own_cpu():
        return x
    if type(x._present()) is Shards:
        return x
    result = from_parts(x.shape, x.dtype, SingleDeviceSharding(wanted), [to_numpy(x)], x.weak_type)
    result._data.committed = False
    return result


def _told_default(value: Any, of_thread: bool) -> None:
    if value is not None:
        follow_devices()
        EVALUATION.default = _by_default


def follow_devices() -> None:
    """From the first array over devices on, operations outside of `jit` run where their operands lie."""
    if EVALUATION.over_devices is None:
        from fuser.parallel.eager import Following

        EVALUATION.over_devices = Following()


def parts_of(value: np.ndarray, sharding: Sharding) -> list[np.ndarray | None]:
    """Each device's part of a whole array, dense; devices with equal parts share one. None for other processes' devices."""
    known: dict[Any, np.ndarray] = {}
    found: list[np.ndarray | None] = []
    sharding.shard_shape(value.shape)
    here = processes().index
    for rank, (device, index) in enumerate(sharding.devices_indices_map(value.shape).items()):
        if device.process_index != here:
            found.append(None)
            continue
        first = not sharding.unreduced or _is_first(sharding, rank)
        key = (first, *((s.start, s.stop) for s in index))
        if key not in known:
            part = np.asarray(value[index])
            part = part if part.flags.c_contiguous else np.array(part, order="C")
            known[key] = part if first else np.zeros_like(part)
        found.append(known[key])
    return found


def _is_first(sharding: Any, rank: int) -> bool:
    """Whether a device is the first along the axes of which an array is a sum of terms: it has the value, and others zeros."""
    place = sharding.mesh.coordinates(rank)
    return all(place[name] == 0 for name in sharding.unreduced)


def _moves(x: Array, sharding: Sharding, explicit: bool = False) -> None:
    """Tell the transfer guard of devices where parts of an array are to lie on others.

    What is asked for among the same devices is a program of theirs, and no transfer.
    """
    if explicit and len(sharding.devices) > 1 and sharding.device_set == sharding_of(x).device_set:
        return
    if transfers.guarded("device_to_device") and not sharding.is_equivalent_to(sharding_of(x), x.ndim):
        described = lambda: f"{x.dtype.name}[{','.join(map(str, x.shape))}] from {sharding_of(x)} to {sharding}"
        transfers.transfer("device_to_device", described, explicit)


def laid_out(x: Array, sharding: Sharding) -> Array:
    """The same values laid out so; `x` itself where it is."""
    _moves(x, sharding)
    data = x._present()
    if isinstance(data, Shards) and data.sharding == sharding and data.committed:
        return x
    if isinstance(data, Shards) and data.sharding.is_equivalent_to(sharding, len(data.shape)):
        return from_parts(x.shape, x.dtype, sharding, data.arrays, x.weak_type)
    if isinstance(data, Shards) and data.sharding.unreduced and not same_axes(data.sharding, sharding):
        x = laid_out(x, NamedSharding(data.sharding.mesh, PartitionSpec()))
        data = x._present()
    terms = isinstance(data, Shards) and data.sharding.unreduced
    if terms or (
        isinstance(data, Shards) and not (data.sharding.is_fully_addressable or data.sharding.is_fully_replicated)
    ):
        from fuser.parallel.programs import resharded

        return resharded(x, sharding)
    parts = parts_of_parts(x, sharding)
    if parts is None and _on_same_gpus(data, sharding):
        from fuser.parallel.programs import resharded

        return resharded(x, sharding)
    parts = parts_of(to_numpy(x), sharding) if parts is None else parts
    return from_parts(x.shape, x.dtype, sharding, parts, x.weak_type)


def _on_same_gpus(data: Any, sharding: Sharding) -> bool:
    """Whether a program of the GPUs that have an array can lay it out so."""
    return (
        isinstance(data, Shards)
        and isinstance(sharding, NamedSharding)
        and not sharding.unreduced
        and data.sharding.devices == sharding.devices
        and len(sharding.devices) > 1
        and all(on_gpu(part) for part in data.arrays)
    )


def relabelled(x: Any, sharding: Sharding) -> Any:
    """An array with the same parts and a sharding that says the same in other words; other values as they are."""
    if not isinstance(x, Array) or not isinstance(x._data, Shards):
        return x
    return from_parts(x.shape, x.dtype, sharding, x._data.arrays, x.weak_type)


def same_axes(a: Sharding, b: Sharding) -> bool:
    """Whether both are over the same devices with the same names of axes."""
    meshes = [s.mesh for s in (a, b) if isinstance(s, NamedSharding)]
    return len(meshes) == 2 and a.devices == b.devices and meshes[0].shape_tuple == meshes[1].shape_tuple


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None) -> Any:
    """A tree of arrays on a device, or laid out by a Sharding; by a PartitionSpec over the mesh in scope.

    `device` may be a tree prefix of `x` (ValueError for others). Traced values get a constraint of the same meaning. What lies
    there already is given back itself.
    """
    leaves, structure = tree.flatten(x)
    targets = _targets(device, x) if device is not None else [None] * len(leaves)
    return tree.unflatten(structure, [_put(leaf, target, donate) for leaf, target in zip(leaves, targets)])


def _targets(device: Any, x: Any) -> list[Any]:
    """For each leaf of `x` what `device`, a tree prefix of it, says."""
    try:
        return tree.broadcast_prefix(device, x)
    except ValueError:
        given, full = tree.structure(device, lambda leaf: leaf is None), tree.structure(x)
        mismatches = list(prefix_mismatches(given, full, "device"))
        raise ValueError(
            f"device_put device specification must be a tree prefix of the corresponding value; got {device!r} for {full}. "
            f"{details(mismatches)} ({current_source().short})"
        ) from None


def copy_to_host_async(x: Any) -> Any:
    """`x`; the arrays among its leaves begin to be copied to the host, where their values are needed next."""
    for leaf in tree.leaves(x):
        begin = getattr(leaf, "copy_to_host_async", None)
        if begin is not None:
            begin()
    return x


def _put(leaf: Any, target: Any, donate: Any) -> Any:
    if not isinstance(leaf, (Array, Tracer)) and current() is EVALUATION:
        transfers.to_device(leaf, explicit=True)
    with transfers.suspended():
        value = as_value(leaf, "device_put")
    target = target.sharding if isinstance(target, Format) else target
    if isinstance(value, Tracer):
        if target is None or isinstance(target, (Device, SingleDeviceSharding)):
            return copy_p.bind(value)
        if isinstance(target, NamedSharding) and target.mesh.empty:  # as the type of a value that no mesh divides says
            return copy_p.bind(value)
        from fuser.parallel.constraint import with_sharding_constraint

        return with_sharding_constraint(value, target)
    if not isinstance(leaf, Array):
        value = value.__copy__()  # the memory of an ndarray is its owner's to write
    if target is None or isinstance(target, Space):
        return value
    single = _single(target)
    if single is not None and single.platform == "cuda" and is_first_gpu(single):
        with transfers.suspended():
            result = on_first_gpu(value, single)
    else:
        sharding = as_sharding(target, "device_put")
        if isinstance(leaf, Array):
            _moves(leaf, sharding, explicit=True)
        with transfers.suspended():
            moved = all(d.platform == "cuda" for d in sharding.devices)
            result = laid_out(value if moved else _on_host(value), sharding)
    if donate is True and value is leaf:
        result = alias(result) if result is leaf else result
        value.delete("it was donated to device_put")
    return result


def _single(target: Any) -> Device | None:
    """The one device that a target names."""
    if isinstance(target, SingleDeviceSharding):
        return target.devices[0]
    return target if isinstance(target, Device) else None


def _on_host(value: Array) -> Array:
    """The array in the host's memory."""
    if isinstance(value._present(), Shards) or value.device.platform != "cuda":
        return value
    return Array(np.array(to_numpy(value)), value.weak_type)


def as_sharding(target: Any, function: str, what: str = "NamedSharding spec") -> Sharding:
    """What a user says of a layout, as a Sharding: one, a device, or a spec over the mesh in scope."""
    if isinstance(target, Format):
        target = target.sharding
    if isinstance(target, Device):
        target = SingleDeviceSharding(target)
    if isinstance(target, PartitionSpec):
        mesh = mesh_in_scope()
        if mesh is None:
            raise MeshError(
                f"{function} requires a non-empty mesh in context: {function} got {target}, which names axes of a mesh, and no mesh is in scope: Using PartitionSpec when you are not "
                "under a mesh context is not allowed; give a NamedSharding, or call it within `with fuser.set_mesh(mesh):`"
            )
        check_spec(mesh, target, what)
        target = NamedSharding(mesh, target)
    if not isinstance(target, Sharding):
        raise TypeError(f"{function} takes a Device, a Sharding or a PartitionSpec, got {target!r}")
    platforms = {found.platform for found in target.devices}
    if len(platforms) > 1 or not platforms <= {"cpu", "cuda"}:
        raise UnsupportedError(
            f"{function} to {', '.join(map(str, target.devices))}: arrays are laid out over devices of the CPU, or over GPUs; name "
            'those of fuser.devices("cpu") or of fuser.devices("cuda")'
        )
    return target


def device_get(x: Any) -> Any:
    """A tree of arrays as ndarrays; keys, for which NumPy has no type, stay what they are."""
    with transfers.explicitly():
        return tree.map(lambda leaf: to_numpy(leaf) if isinstance(leaf, Array) and not is_key(leaf.dtype) else leaf, x)


def block_until_ready(x: Any) -> Any:
    """The tree, once all of its arrays are computed."""
    return tree.map(lambda leaf: leaf.block_until_ready() if hasattr(leaf, "block_until_ready") else leaf, x)


def _dtype(given: Any, found: np.dtype) -> np.dtype:
    return dtypes.canonical(found if given is None else np.dtype(given))


def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable[[Index], Any], dtype: Any = None
) -> Array:
    """The array of whose part at each `index` the callback gives the values; asked once for equal parts."""
    target, shape = as_sharding(sharding, "make_array_from_callback"), tuple(shape)
    size = target.shard_shape(shape)
    known: dict[Any, np.ndarray] = {}
    parts: list[np.ndarray | None] = []
    for device, index in target.devices_indices_map(shape).items():
        if device.process_index != processes().index:
            parts.append(None)
            continue
        key = tuple((s.start, s.stop) for s in index)
        if key not in known:
            part = as_value(data_callback(index), "make_array_from_callback")
            if isinstance(part, Tracer):
                raise UnexpectedTracerError(
                    "jax.make_array_from_callback cannot be called within a traced context: its callback gave a traced value "
                    f"({current_source().short}); make the array outside of jit"
                )
            part = to_numpy(part)
            if part.shape != size:
                raise ValueError(
                    f"the callback of make_array_from_callback gave a part of shape {part.shape} for {index}; "
                    f"{target} splits shape {shape} into parts of shape {size}"
                )
            known[key] = np.array(part, dtype=_dtype(dtype, part.dtype), order="C")
        parts.append(known[key])
    found = [p.dtype for p in parts if p is not None]
    if not found and dtype is None:
        raise ValueError(f"this process has no device of {target}; give make_array_from_callback a dtype")
    return from_parts(shape, found[0] if found else _dtype(dtype, np.dtype(np.float32)), target, parts)


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """Arrays of what this process holds of them, one block each: the parts of its devices, side by side.

    `global_shape` is that of the whole; without it, each dimension is as many times longer as its parts are more than
    those of this process. All, where there is one process.
    """
    target = as_sharding(sharding, "make_array_from_process_local_data")

    def one(data: Any, shape: Any) -> Array:
        shape = None if shape is None else tuple(shape)
        value = to_numpy(as_value(data, "make_array_from_process_local_data"))
        whole, start = _block(target, value.shape, shape)
        local = lambda index: tuple(
            slice((s.start or 0) - first, (n if s.stop is None else s.stop) - first)
            for s, first, n in zip(index, start, whole)
        )
        return make_array_from_callback(whole, target, lambda index: value[local(index)], value.dtype)

    leaves, structure = tree.flatten(local_data)
    return tree.unflatten(structure, map(one, leaves, _shapes(global_shape, local_data, len(leaves))))


def _shapes(given: Any, data: Any, count: int) -> list[Any]:
    """The global shape of each leaf of `data`, by a tree prefix of shapes; ValueError for another tree."""
    if given is None:
        return [None] * count
    is_shape = lambda leaf: isinstance(leaf, (tuple, list)) and all(isinstance(e, (int, np.integer)) for e in leaf)
    return tree.broadcast_prefix(given, data, is_leaf=is_shape)


def _block(
    target: Sharding, local: tuple[int, ...], given: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the whole array of which this process holds a block of this shape, and where the block begins."""
    probe = tuple(len(target.devices) for _ in local)  # which every number of parts divides
    whole, start = [], []
    for dim, extent in enumerate(local):
        every = {(i[dim].start or 0, i[dim].stop) for i in target.devices_indices_map(probe).values()}
        mine = {(i[dim].start or 0, i[dim].stop) for i in target.addressable_devices_indices_map(probe).values()}
        first = min(begin for begin, _ in mine)
        size = extent * len(every) // len(mine) if given is None else given[dim]
        block = size * len(mine) // len(every)
        if block != extent:
            raise ValueError(
                f"this process holds {len(mine)} of the {len(every)} parts of dimension {dim} by {target}: {block} of the {size} of "
                f"global_shape {None if given is None else tuple(given)}, got {extent}"
            )
        whole.append(size)
        start.append(first * size // probe[dim])
    return tuple(whole), tuple(start)


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Any, arrays: Sequence[Any], *, dtype: Any = None
) -> Array:
    """The array whose part on each device is that one of `arrays` that lies there."""
    target, shape = as_sharding(sharding, "make_array_from_single_device_arrays"), tuple(shape)
    if not arrays and dtype is None:
        raise ValueError(
            "If the Array has no addressable shards, `dtype` must be provided via the `dtype` argument to "
            f"`jax.make_array_from_single_device_arrays`. It got no arrays for {target}"
        )
    size = target.shard_shape(shape)
    held = {next(iter(a.devices())): a for a in arrays}
    if set(held) != target.addressable_devices or len(arrays) != len(held):
        raise ValueError(
            f"{target} needs one array on each of the devices {sorted(target.addressable_devices, key=lambda d: d.id)}, got arrays on "
            f"{[next(iter(a.devices())) for a in arrays]}"
        )
    for array in arrays:
        if array.shape != size:
            raise ValueError(
                f"{target} splits shape {shape} into parts of shape {size}, got one of shape {array.shape}"
            )
    wanted = arrays[0].dtype if dtype is None else np.dtype(dtype)
    for array in arrays:
        if array.dtype != wanted:
            raise ValueError(
                f"Input buffers to `Array` must have matching dtypes. Got {array.dtype}, expected {wanted} for the part on {array.device}"
            )
    parts = [only_part(held[d]) if d in held else None for d in target.devices]
    return from_parts(shape, wanted, target, parts)


putting.append(device_put)


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
    if array is None:
        raise ValueError(f"the part on {device} is in process {device.process_index}; this one is {processes().index}")
    return from_parts(array.shape, array.dtype, SingleDeviceSharding(device), [array], x.weak_type)


def shards(x: Array) -> list[Shard]:
    """The array's parts on devices of this process, in the order of its devices."""
    return [s for s in all_shards(x) if s.data is not None]


def all_shards(x: Array) -> list[Shard]:
    """The array's parts, in the order of its devices; `data` is None for those in other processes."""
    sharding, seen = sharding_of(x), dict[Any, int]()
    found = []
    for number, (device, index) in enumerate(sharding.devices_indices_map(x.shape).items()):
        key = tuple((s.start, s.stop) for s in index)
        seen[key] = seen.get(key, -1) + 1
        held = device.process_index == processes().index
        found.append(Shard(device, index, seen[key], part(x, number) if held else None))
    return found


for _name, _function in (
    ("sharding", sharding_of),
    ("format", lambda x: Format(row_major(x.ndim), sharding_of(x))),
    ("addressable_shards", shards),
    ("global_shards", all_shards),
    ("is_fully_addressable", lambda x: sharding_of(x).is_fully_addressable),
    ("is_fully_replicated", lambda x: sharding_of(x).is_fully_replicated),
    ("_value", to_numpy),
    ("_arrays", lambda x: [s.data for s in shards(x)]),
):
    install(_name, property(_function))
install("addressable_data", part)
_committed = property(
    lambda x: isinstance(x._present(), Shards) and x._data.committed,
    doc="Whether operations run where the array lies: not on the first device.",
)
install("committed", _committed)
install("_committed", _committed)
install("to_device", lambda x, device, *, stream=None: device_put(x, device))


def _spread(traced: Traced) -> Any:
    from fuser.parallel.programs import divided  # with the first program, as the compiler

    return divided(traced)


Traced.spread = staticmethod(_spread)  # type: ignore[assignment]
Compiled.home = staticmethod(lambda: SingleDeviceSharding(_device.devices()[0]))  # type: ignore[method-assign]


config.watch("default_device", _told_default)


# Devices of the whole program.


def devices(backend: str | None = None) -> list[Device]:
    """All devices of a platform, of the default one if none is named."""
    return _device.devices(backend)


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of this process, or of another one."""
    index = processes().index if process_index is None else process_index
    return [d for d in _device.devices(backend) if d.process_index == index]


def device_count(backend: str | None = None) -> int:
    """How many devices there are."""
    return len(_device.devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has."""
    return len(local_devices(backend=backend))


def process_count(backend: str | None = None) -> int:
    """How many processes run the program together."""
    return processes().count


def process_index(backend: str | None = None) -> int:
    """The number of this process among them."""
    return processes().index


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes that run the program together."""
    return list(range(processes().count))


def host_count(backend: str | None = None) -> int:
    """As `process_count`, by its older name; a DeprecationWarning says so."""
    warnings.warn("host_count is deprecated: use process_count", DeprecationWarning, stacklevel=2)
    return process_count(backend)


def host_id(backend: str | None = None) -> int:
    """As `process_index`, by its older name; a DeprecationWarning says so."""
    warnings.warn("host_id is deprecated: use process_index", DeprecationWarning, stacklevel=2)
    return process_index(backend)


def host_ids(backend: str | None = None) -> list[int]:
    """As `process_indices`, by its older name; a DeprecationWarning says so."""
    warnings.warn("host_ids is deprecated: use process_indices", DeprecationWarning, stacklevel=2)
    return process_indices(backend)


def default_backend() -> str:
    """The platform of `devices()[0]`."""
    return "gpu" if _device.own_platform() == "cuda" else _device.own_platform()
