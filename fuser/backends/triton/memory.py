"""How arrays come to the GPU, and where its memory comes from: the native core's pool, or torch's allocator without a core."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from fuser.backends.base import Memory
from fuser.backends.triton import interpreter
from fuser.errors import OutOfMemoryError
from fuser.ir.types import short_dtype
from fuser.runtime.array import Array, device_array_over, require_device, torch_dtype, torch_holds
from fuser.runtime.core import native


def device_name() -> str:
    """Where torch keeps the arrays; the interpreter runs on the CPU's."""
    return "cpu" if interpreter.active() else "cuda"


@functools.cache
def driver_opened() -> bool:
    """Whether the native core has opened the driver's library for the device that torch uses; not where torch is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return False
    if native is None or not torch.version.cuda or not torch.cuda.is_available():
        return False
    try:
        native.cuda_open("libcuda.so.1", torch.cuda.current_device(), torch._C._cuda_getCurrentRawStream)
    except OSError:
        return False
    native.device_refusal(refused)
    return True


def on_device() -> bool:
    """Whether programs run on a GPU by the native core."""
    return not interpreter.active() and driver_opened()


def memory() -> Memory:
    """Where arrays live."""
    return DEVICE if on_device() else TENSORS


def refused(nbytes: int | None, label: str | None) -> None:
    """OutOfMemoryError for so many bytes; without a number, have torch give back what it keeps."""
    if nbytes is not None:
        raise OutOfMemoryError(f"the GPU has no {nbytes} bytes left{f' for {label}' if label else ''}")
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class DeviceMemory:
    """The GPU's memory, from the pool of the native core."""

    platform = "cuda"

    def constant(self, value: Any) -> Any:
        return self.place(value._data if isinstance(value, Array) else value)

    def place(self, value: Any) -> Any:
        """The native core's array over a CUDA tensor's memory, or with a copy of what lies on the host."""
        if isinstance(value, native.DeviceArray):
            return value
        return device_array_over(value) if hasattr(value, "data_ptr") else native.device_upload(np.asarray(value))

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype, label: str = "") -> Any:
        return native.device_empty(shape, dtype, label)


class TensorMemory:
    """The GPU's memory, as torch tensors; in the interpreter the host's."""

    platform = "cuda"

    def constant(self, value: Any) -> Any:
        return self.place(value._data if isinstance(value, Array) else value)

    def place(self, value: Any) -> Any:
        """An array where kernels can read it: a torch tensor on the GPU; dtypes that torch lacks stay on the host."""
        if not isinstance(value, np.ndarray) and hasattr(value, "data_ptr"):
            if value.device.type != device_name():
                return value.to(device_name())
            if value.is_cuda:
                import torch

                require_device(value, torch.cuda.current_device())
            return value
        value = np.asarray(value)
        if not torch_holds(value.dtype):
            return value
        return Array(np.ascontiguousarray(value).reshape(value.shape)).torch().to(device_name())

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype, label: str = "") -> Any:
        import torch

        try:
            return torch.empty(shape, dtype=torch_dtype(dtype), device=device_name())
        except torch.OutOfMemoryError as error:
            wanted = math.prod(shape) * dtype.itemsize
            raise OutOfMemoryError(
                f"the GPU has no {wanted} bytes left for {short_dtype(dtype)}{list(shape)}"
                f"{f' of {label}' if label else ''}; torch says: {error}"
            ) from None


DEVICE, TENSORS = DeviceMemory(), TensorMemory()
