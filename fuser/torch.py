"""fuser for torch: `torch.compile(model, backend="fuser")`, which importing this module registers, functions as operators, tensors as arrays.

torch finds the backend by itself where fuser is installed; `import fuser.torch` is for sources that are not.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.backends.registry import list_backends, register_backend

from fuser.interop.dynamo.backend import fuser as backend
from fuser.interop.dynamo.operators import operator
from fuser.runtime.array import Array, from_torch

if (
    "fuser" not in list_backends()
):  # what is installed has an entry point, from which torch registers it once it is asked for
    register_backend(backend, name="fuser")

__all__ = ["backend", "from_torch", "operator", "to_torch"]


def to_torch(x: Array) -> Any:
    """A torch tensor over the memory of an array, on its device. An array never changes: do not write to the tensor."""
    return x.torch()
