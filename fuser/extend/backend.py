"""jax.extend.backend's names."""

from __future__ import annotations

from typing import Any

from fuser.api.scopes import clear_caches as clear_in_memory_compilation_cache
from fuser.config import config
from fuser.gaps import absent
from fuser.runtime import device as _device
from fuser.runtime.device import Device

__all__ = ["clear_backends", "clear_in_memory_compilation_cache", "get_default_device"]


def clear_backends(_crash: bool = False) -> None:
    """Forget every trace and compiled program; devices need no clearing."""
    clear_in_memory_compilation_cache()


def get_default_device() -> Device:
    """The device of what is told of none: as `default_device` says, else the first."""
    wanted: Any = config.default_device
    return wanted if isinstance(wanted, Device) else _device.devices(wanted)[0]


__getattr__ = absent(__name__)
