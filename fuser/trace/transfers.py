"""Transfer guards: what is to happen where values move between the host and devices, or from one device to another.

A transfer is explicit where the program asks for it (`device_put`, `device_get`), else implicit. The settings
`transfer_guard_*` allow, log or refuse the implicit ones, and with `_explicit` the others too.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fuser.config import TOGETHER, config
from fuser.errors import JaxRuntimeError
from fuser.ir.source import current_source
from fuser.runtime.array import Array, fetched

_guarded = False  # whether anybody has ever set a guard: until then nobody asks


def _setting_changed(value: Any, of_thread: bool) -> None:
    global _guarded
    _guarded = _guarded or value not in (None, "allow")


for _name in TOGETHER["transfer_guard"]:
    config.watch(_name, _setting_changed)


def guarded(way: str = "host_to_device") -> bool:
    """Whether transfers of this kind are logged or refused in this thread."""
    return _guarded and getattr(config, f"transfer_guard_{way}") not in (None, "allow")


def transfer(way: str, described: Callable[[], str], explicit: bool = False) -> None:
    """Allow, log or refuse a transfer: `way` is "host_to_device" or its like. JaxRuntimeError, with the user's line."""
    if not guarded(way):
        return
    level = getattr(config, f"transfer_guard_{way}")
    if explicit and not level.endswith("_explicit"):
        return
    words = f"{way.replace('_', '-')} transfer: {described()} ({current_source().short})"
    if level.startswith("log"):
        import logging  # here, as few programs come here

        logging.getLogger("fuser").warning("%s", words)
        return
    remedy = "" if explicit else "; move it with device_put or device_get, or allow it with "
    allowed = "" if explicit else f"`with fuser.transfer_guard_{way}('allow'):`"
    raise JaxRuntimeError(f"INVALID_ARGUMENT: Disallowed {words}{remedy}{allowed}")


def to_device(value: Any, explicit: bool = False) -> None:
    """A value of Python's or NumPy's becomes an array."""
    if guarded():
        shape, dtype = getattr(value, "shape", ()), getattr(value, "dtype", type(value).__name__)
        transfer("host_to_device", lambda: f"{dtype}[{','.join(map(str, shape))}]", explicit)


class _Asked(threading.local):
    """Whether this thread is within a transfer that the program asked for."""

    explicit = False


_asked = _Asked()


@contextlib.contextmanager
def explicitly() -> Iterator[None]:
    """Values that the block fetches are asked for."""
    saved, _asked.explicit = _asked.explicit, True
    try:
        yield
    finally:
        _asked.explicit = saved


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """No guard in the block: what happens there was asked for, and somebody has looked at it."""
    if not _guarded:
        yield
        return
    with config.using(transfer_guard="allow"):
        yield


def arguments(values: list[Any], kinds: tuple[type, ...]) -> None:
    """A public function's operands: each that is none of `kinds`, which are arrays already, is transferred."""
    if guarded():
        for value in values:
            if not isinstance(value, kinds) and (hasattr(value, "dtype") or isinstance(value, (int, float, complex))):
                to_device(value)


def bounded(function: Callable[..., Any], operands: Callable[[Any], list[Any]], kinds: tuple[type, ...]) -> Any:
    """`function`, whose operands alone are transferred, and not what it computes with them."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not guarded():
            return function(*args, **kwargs)
        arguments(operands((args, kwargs)), kinds)
        with suspended():
            return function(*args, **kwargs)

    return call


def _fetched(x: Array) -> None:
    if guarded("device_to_host"):
        extents = ",".join(map(str, x.shape))
        transfer("device_to_host", lambda: f"{x.dtype.name}[{extents}] of {x.device}", _asked.explicit)


fetched.append(_fetched)
