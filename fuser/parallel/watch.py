"""What is asked while a GPU's result is waited for: whether the other devices will come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fuser.errors import DeviceError
from fuser.runtime.core import native


def watch(living: Callable[[], Iterator[Any]], seconds: float) -> None:
    """DeviceError where what has been waited for so long will not come."""
    for communicator in living():
        error = native.nccl_error(communicator)
        if error is not None:
            raise DeviceError(f"a collective between GPUs failed: {error}")
