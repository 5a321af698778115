"""The garbage collector rests while programs are compiled, whose many live objects make it search in vain."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

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
