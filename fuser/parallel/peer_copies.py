"""Parts of arrays on GPUs that go to other GPUs of this process without the host: runs of memory, copied from device to device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fuser.parallel.sharding import Index, Sharding
from fuser.runtime.array import Array
from fuser.runtime.processes import processes
from fuser.runtime.shards import Shards, on_gpu

Bounds = tuple[tuple[int, int], ...]  # of each dimension where it begins and ends


def parts_of_parts(x: Array, sharding: Sharding) -> list[Any] | None:
    """Of each device of a layout on GPUs its part of an array on GPUs, as memory of a GPU that has it.

    None where some part is not one run of one GPU's memory, or is another process's.
    """
    sources = list(_sources(x))
    here = processes().index
    if not sources or getattr(sharding, "unreduced", None):
        return None
    if any(d.platform != "cuda" or d.process_index != here for d in sharding.devices):
        return None
    sharding.shard_shape(x.shape)
    found = []
    for device, index in sharding.devices_indices_map(x.shape).items():
        wanted = _bounds(index, x.shape)
        own = device.local_hardware_id
        known = sorted(sources, key=lambda source: source[1].device != own)  # what lies there already first
        cuts = ((array, _cut(array, bounds, wanted)) for bounds, array in known)
        whole, part = next(((w, p) for w, p in cuts if p is not None), (None, None))
        if part is None:
            return None
        found.append(part.clone() if part is not whole and part.device == own else part)  # kernels want aligned memory
    return found


def _sources(x: Array) -> Iterator[tuple[Bounds, Any]]:
    """What of the array lies on which GPU; nothing where some of it lies elsewhere, or is a sum's term."""
    data = x._present()
    if not isinstance(data, Shards):
        if on_gpu(data):
            yield tuple((0, n) for n in x.shape), data
        return
    if getattr(data.sharding, "unreduced", None) or not all(on_gpu(part) for part in data.arrays):
        return
    for index, part in zip(data.sharding.devices_indices_map(x.shape).values(), data.arrays, strict=True):
        yield _bounds(index, x.shape), part


def _bounds(index: Index, shape: Sequence[int]) -> Bounds:
    return tuple((s.start or 0, n if s.stop is None else s.stop) for s, n in zip(index, shape, strict=True))


def _cut(array: Any, bounds: Bounds, wanted: Bounds) -> Any | None:
    """The part with these bounds of an array with those, over its memory; None where it is not one run of it."""
    if any(a < low or b > high for (low, high), (a, b) in zip(bounds, wanted)):
        return None
    split = [n for n, (whole, part) in enumerate(zip(bounds, wanted)) if whole != part]
    if not split:
        return array
    shape = tuple(b - a for a, b in wanted)
    if any(n != 1 for n in shape[: split[-1]]):
        return None
    extents = [high - low for low, high in bounds]
    first = sum((a - low) * math.prod(extents[n + 1 :]) for n, ((low, _), (a, _)) in enumerate(zip(bounds, wanted)))
    return array.part(first * array.dtype.itemsize, shape)
