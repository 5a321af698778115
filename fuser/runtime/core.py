"""The native core where it was built and is wanted (FUSER_NATIVE=0 turns it off); else None, and Python does the same."""

from __future__ import annotations

import importlib
from typing import Any

from fuser.config import GUARDING, TRACED, config


def _load() -> Any:
    global reason
    if not config.native:
        reason = "FUSER_NATIVE is off"
        return None
    try:
        _native = importlib.import_module("fuser._native")
    except ImportError as error:
        reason = f"it cannot be imported ({error})"
        return None
    vars(_native)["__getattr__"] = _missing
    config.watch("enable_x64", _native.set_x64)
    for name in (*TRACED, *GUARDING):
        config.watch(
            name, lambda _, of_thread: _native.set_backend(_number(config.dispatched_of(of_thread)), of_thread)
        )
    return _native


def _missing(name: str) -> Any:
    """What the native core lacks (PEP 562): where its sources changed after it was built."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"fuser._native has no {name!r}: it was built from other sources than this Python code goes with; rebuild it with "
        "`python setup.py build_ext --inplace`, or set FUSER_NATIVE=0"
    )


def _number(settings: tuple[Any, ...] | None) -> int:
    """A number for each combination of what programs depend on, by which they are told apart; -1 for None."""
    return -1 if settings is None else _numbers.setdefault(settings, len(_numbers))


_numbers: dict[tuple[Any, ...], int] = {}
reason = ""  # why there is no native core
native: Any = _load()
