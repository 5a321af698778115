"""What processes of one program tell each other outside of programs: jax.experimental.multihost_utils' functions."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from fuser.lax.values import as_value
from fuser.parallel.arrays import laid_out, make_array_from_process_local_data
from fuser.parallel.mesh import AxisType, Mesh
from fuser.parallel.sharding import NamedSharding
from fuser.parallel.spec import PartitionSpec
from fuser.runtime import device as _device
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.processes import processes
from fuser.runtime.shards import Shards
from fuser.trace import tree


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The tree as ndarrays that every process has: arrays over devices whole, others one a process along a new dimension.

    With `tiled`, those of the processes one behind the other along the first dimension.
    """
    return tree.map(lambda leaf: _gathered(leaf, tiled), in_tree)


def _gathered(leaf: Any, tiled: bool) -> np.ndarray:
    value = as_value(leaf, "process_allgather")
    shards = value._present() if isinstance(value, Array) else None
    if isinstance(shards, Shards):
        sharding = shards.sharding
        if sharding.is_fully_addressable or sharding.is_fully_replicated:
            return to_numpy(value)
        return to_numpy(laid_out(value, NamedSharding(sharding.mesh, PartitionSpec())))
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


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes are to store their state because one of them is about to be stopped: nothing tells of that, so never."""
    return False
