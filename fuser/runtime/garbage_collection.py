"""Python's garbage collector: off while programs are compiled, whose many live objects it would scan again and again.

And where the setting `array_garbage_collection_guard` asks for it, arrays that it frees are told of.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

from fuser.config import config
from fuser.runtime.core import native

_collection = threading.Lock()
_resting = 0  # compilations for which the garbage collector rests


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Meanwhile the garbage collector rests: a graph's many live objects make it search all of the process's again and again."""
    global _resting
    with _collection:
        if not _resting and not gc.isenabled():
            stopped = False  # by the user, and stays so
        else:
            stopped = True
            _resting += 1
            gc.disable()
    try:
        yield
    finally:
        with _collection:
            if stopped:
                _resting -= 1
                if not _resting:
                    gc.enable()


def _after_fork() -> None:
    """The parent's other threads compile nothing here."""
    global _collection, _resting
    if _resting:
        gc.enable()
    _collection, _resting = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _phase(phase: str, info: dict[str, int]) -> None:
    level = config.array_garbage_collection_guard
    if level in (None, "allow"):
        native.watch_collector(False)
        return
    count = native.watch_collector(phase == "start")
    if phase == "start" or not count:
        return
    arrays = "an array was" if count == 1 else f"{count} arrays were"
    import logging  # here, as few programs come here

    logging.getLogger("fuser").error(
        "%s deleted by the Python garbage collector instead of reference counting. Break the reference cycle that delays "
        "the deletion, so that memory is free as soon as nobody uses it",
        arrays,
    )
    if level == "fatal":
        os.abort()


def _told(value: Any, of_thread: bool) -> None:
    if value not in (None, "allow") and native is not None and _phase not in gc.callbacks:
        gc.callbacks.append(_phase)


config.watch("array_garbage_collection_guard", _told)
