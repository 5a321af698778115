"""How arrays come to the GPU, and memory from torch's allocator, which both share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.backends.triton import interpreter
from fuser.errors import OutOfMemoryError
from fuser.ir.types import short_dtype
from fuser.runtime.array import Array, torch_dtype, torch_holds


def device_name() -> str:
    """Where torch keeps the arrays; the interpreter runs on the CPU's."""
    return "cpu" if interpreter.active() else "cuda"


class CudaMemory:
    """The GPU's memory, as torch tensors."""

    platform = "cuda"

    def constant(self, value: Any) -> Any:
        return self.place(value._data if isinstance(value, Array) else value)

    def place(self, value: Any) -> Any:
        """An array where kernels can read it: a torch tensor on the GPU; dtypes that torch lacks stay on the host."""
        if not isinstance(value, np.ndarray) and hasattr(value, "data_ptr"):
            return value if value.device.type == device_name() else value.to(device_name())
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


CUDA = CudaMemory()
