"""Where the parts of arrays lie: on the host, on the GPU that programs of one device run on, or on another GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser import backends
from fuser.errors import UnsupportedError
from fuser.parallel.sharding import Sharding
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.core import native
from fuser.runtime.device import Device
from fuser.runtime.processes import processes
from fuser.runtime.shards import Shards, on_gpu, on_host


def on_device(part: Any, device: Device) -> Any:
    """A part in its device's memory; what lies there already is not copied. None for other processes' devices."""
    if part is None or (device.platform == "cpu" and not on_gpu(part)):
        return part
    if device.platform == "cpu":
        return on_host(part)
    if on_gpu(part) and part.device == device.local_hardware_id:
        return part
    from fuser.parallel import gpus

    gpus.require_driver()
    with gpus.on_gpu(device.local_hardware_id):
        return part.copy_here() if on_gpu(part) else native.device_upload(np.asarray(on_host(part), order="C"))


def only_part(x: Array) -> Any:
    """The memory of an array on one device: where it lies on a GPU, else an ndarray."""
    data = x._present()
    part = data.arrays[0] if isinstance(data, Shards) else data
    return part if on_gpu(part) else to_numpy(x)


@contextlib.contextmanager
def working_on(place: Sharding) -> Iterator[None]:
    """The thread works on the one device of `place` meanwhile, where that is a GPU."""
    [device] = place.devices
    if device.platform != "cuda":
        yield
        return
    from fuser.parallel import gpus

    gpus.require_driver()
    with gpus.on_gpu(device.local_hardware_id):
        yield


def is_first_gpu(device: Device) -> bool:
    """Whether it is the GPU that programs of one device run on."""
    from fuser.parallel import gpus

    gpus.require_driver()
    own = device.process_index == processes().index
    return native is None or (own and device.local_hardware_id == native.cuda_device())


def on_first_gpu(value: Array, device: Device) -> Array:
    """The array in a GPU's memory; itself if it is there."""
    place = backends.get("triton").memory.place
    data = value._present()
    placed = place(to_numpy(value) if isinstance(data, Shards) else data)
    result = value if placed is data else Array(placed, value.weak_type, value.dtype)
    if result.device != device:
        raise UnsupportedError(
            f"device_put to {device}: programs of this process run on {result.device}; use that device"
        )
    return result
