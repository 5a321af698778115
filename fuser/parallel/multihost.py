"""What processes of one program tell each other outside of programs: jax.experimental.multihost_utils' functions."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from fuser.lax.values import as_value
from fuser.parallel.arrays import laid_out, make_array_from_process_local_data, make_array_from_single_device_arrays
from fuser.parallel.mesh import AxisType, Mesh
from fuser.parallel.sharding import NamedSharding
from fuser.parallel.spec import PartitionSpec
from fuser.runtime import device as _device
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.processes import processes
from fuser.runtime.shards import Shards
from fuser.trace import tree


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The tree as ndarrays that every process has: arrays over several processes whole, others one a process along a new dimension.

    With `tiled`, those of the processes one behind the other along the first dimension.
    """
    return tree.map(lambda leaf: _gathered(leaf, tiled), in_tree)


def _gathered(leaf: Any, tiled: bool) -> np.ndarray:
    shards = leaf._present() if isinstance(leaf, Array) else None
    if isinstance(shards, Shards) and not shards.sharding.is_fully_addressable:
        if shards.sharding.is_fully_replicated:
            return to_numpy(leaf)
        return to_numpy(laid_out(leaf, NamedSharding(shards.sharding.mesh, PartitionSpec())))
    if processes().count == 1:
        return np.asarray(leaf) if tiled else np.asarray(leaf)[None]
    value = as_value(leaf, "process_allgather")
    mesh = _one_device_a_process()
    own = to_numpy(value)[None]
    stacked = make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("processes")), own)
    found = to_numpy(laid_out(stacked, NamedSharding(mesh, PartitionSpec())))
    return found.reshape(-1, *found.shape[2:]) if tiled and found.ndim > 1 else found


def _one_device_a_process() -> Mesh:
    every, here = _device.devices("cpu"), processes()
    return Mesh(np.array([every[n] for n in here.firsts], object), ("processes",), AxisType.Auto)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The tree of the process that is the source, process 0 if none says so, as ndarrays in every process."""
    here = processes()
    source = here.index == 0 if is_source is None else bool(is_source)
    number = int(np.argmax(process_allgather(np.asarray(source))))
    return tree.map(lambda leaf: process_allgather(np.asarray(leaf))[number], in_tree)


def sync_global_devices(name: str) -> None:
    """Wait until every process has come here with this name; AssertionError where one has come with another."""
    assert_equal(np.uint32(zlib.crc32(name.encode())), f"sync_global_devices: the processes are not all at {name!r}")


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """AssertionError unless every process has the same values."""
    for leaf in tree.leaves(in_tree):
        every = process_allgather(np.asarray(leaf))
        if not all(np.array_equal(each, every[0]) for each in every):
            raise AssertionError(f"{fail_message or 'the processes have different values'}: {list(every)}")


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Arrays over the mesh of what each process holds of them: along the axes of a spec, those of the processes side by side."""
    leaves, structure = tree.flatten(local_inputs)
    specs = tree.broadcast_prefix(pspecs, local_inputs)
    made = [_global(v, NamedSharding(global_mesh, s or PartitionSpec())) for v, s in zip(leaves, specs)]
    return tree.unflatten(structure, made)


def _global(value: Any, sharding: NamedSharding) -> Array:
    """The array of which every process has such a block; parts that lie on their devices already stay there."""
    lying = value._data.sharding if isinstance(value, Array) and isinstance(value._present(), Shards) else None
    mesh = sharding.mesh
    own = NamedSharding(mesh.local_mesh, sharding.spec) if isinstance(mesh, Mesh) else None
    if lying is None or own is None or not lying.is_equivalent_to(own, value.ndim):
        return make_array_from_process_local_data(sharding, value)  # type: ignore[no-any-return]
    probe = tuple(sharding.num_devices for _ in value.shape)
    growth = [a // b for a, b in zip(own.shard_shape(probe), sharding.shard_shape(probe))]
    shape = tuple(n * g for n, g in zip(value.shape, growth))
    return make_array_from_single_device_arrays(
        shape, sharding, [s.data for s in value.addressable_shards], dtype=value.dtype
    )


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """The parts that this process holds of arrays over the mesh, laid out by the specs, each as one array."""
    leaves, structure = tree.flatten(global_inputs)
    specs = tree.broadcast_prefix(pspecs, global_inputs)
    return tree.unflatten(
        structure, [_local(v, NamedSharding(global_mesh, s or PartitionSpec())) for v, s in zip(leaves, specs)]
    )


def _local(value: Any, sharding: NamedSharding) -> Array:
    """The block of this process, from the first of its parts to the end of the last, over its own part of the mesh."""
    x: Any = laid_out(as_value(value, "global_array_to_host_local_array"), sharding)
    here = sharding.addressable_devices_indices_map(x.shape)
    extents = [
        max(n if i[d].stop is None else i[d].stop for i in here.values()) - min(i[d].start or 0 for i in here.values())
        for d, n in enumerate(x.shape)
    ]
    own = NamedSharding(sharding.mesh.local_mesh, sharding.spec)
    return make_array_from_single_device_arrays(extents, own, [s.data for s in x.addressable_shards], dtype=x.dtype)


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes are to store their state because one of them is about to be stopped: nothing tells of that, so never."""
    return False
