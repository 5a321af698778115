"""`Shards`: what an Array over several devices holds, one array a device (an ndarray, or one in a GPU's memory) and the sharding that says which part each is.

It knows shape and dtype, and assembles the whole on demand. A sharding is any object with `devices_indices_map(shape)`;
equal parts of replicated arrays may be one ndarray. Parts on devices of other processes are None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fuser.runtime.core import native


def on_gpu(part: Any) -> bool:
    """Whether a part is the native core's, in a GPU's memory."""
    return native is not None and isinstance(part, native.DeviceArray)


def on_host(part: Any) -> np.ndarray[Any, Any]:
    """A part's values."""
    return native.device_download(part) if on_gpu(part) else part  # type: ignore[no-any-return]


class Shards:
    """An array in parts: `arrays[n]` is the part of the n-th device of `sharding`, in its order; None in another process.

    `shape` is a list so that the native dispatcher, which takes tuples, leaves calls with such arrays to Python.
    """

    __slots__ = ("__weakref__", "arrays", "committed", "dtype", "shape", "sharding")

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any], sharding: Any, arrays: Sequence[Any]) -> None:
        self.shape = list(shape)
        self.dtype = dtype
        self.sharding = sharding
        self.arrays = tuple(arrays)
        self.committed = True  # False: it lies there by default, and goes where other operands are

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The whole array, read-only; a part's own memory where one part is the whole."""
        whole = self._assembled()
        return whole if dtype is None or dtype == whole.dtype else whole.astype(dtype)

    def _assembled(self) -> np.ndarray[Any, Any]:
        shape = tuple(self.shape)
        if self.sharding.unreduced:
            raise ValueError(
                f"an array of shape {shape} that is unreduced over {', '.join(map(repr, sorted(self.sharding.unreduced, key=str)))} has no "
                "values before its terms are added; reshard it, to P() for one"
            )
        held = [on_host(a) for a in self.arrays if a is not None]
        if held and held[0].shape == shape:
            return held[0]
        if len(held) < len(self.arrays):
            raise RuntimeError(
                f"an array of shape {shape} that spans non-addressable (non process local) devices has no values here: this "
                f"process holds {len(held)} of {len(self.arrays)} parts; use fuser.experimental.multihost_utils.process_allgather, "
                "x.addressable_shards, or jit with out_shardings that say that every device has all"
            )
        whole = np.empty(shape, self.dtype)
        indices = self.sharding.devices_indices_map(shape).values()
        for array, index in reversed([*zip(held, indices, strict=True)]):  # of replicas, the first counts
            whole[index] = array
        return whole

    def _held_alone(self) -> tuple[np.ndarray[Any, Any]]:
        """The one part of an array on one device; ValueError for several."""
        if len(self.arrays) != 1 or self.arrays[0] is None:
            raise ValueError(
                f"unsafe_buffer_pointer: an array over {len(self.arrays)} devices has no one buffer; ask one of x.addressable_shards[n].data"
            )
        return (self.arrays[0],)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._assembled())

    def __getitem__(self, index: Any) -> Any:
        return self._assembled()[index]

    def block_until_ready(self) -> None:
        """Wait for the parts on GPUs; devices of the CPU are done when a call returns."""
        for part in self.arrays:
            if on_gpu(part):
                part.block_until_ready()

    def is_ready(self) -> bool:
        """Whether all parts here are computed."""
        return all(part.is_ready() for part in self.arrays if on_gpu(part))

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError(
            f"an array over {len(self.arrays)} devices has no one memory to share; give one of x.addressable_shards[n].data, "
            "or numpy.asarray(x)"
        )

    __dlpack_device__ = __dlpack__
