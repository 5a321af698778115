"""Single flight: of threads that want one result at the same time, one computes it (traces and compiles a signature).

The others wait for its result; work under other keys goes on beside it. A thread that would wait for itself, directly or
through others, works on its own instead. What fails or is interrupted is left to whoever waited. A forked child, where
the other threads are gone, waits for nobody.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")


class _Work:
    __slots__ = ("done", "owner")

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.done = threading.Event()


_lock = threading.Lock()
_working: dict[Hashable, _Work] = {}  # by key
_waiting: dict[int, _Work] = {}  # by thread


def once(key: Hashable, known: Callable[[], T | None], make: Callable[[], T]) -> T:
    """What `known()` gives, or else `make()`, which one thread at a time runs for a key; `make` has to make it known."""
    work = _Work()
    try:  # before the work is entered: an interrupt at any place must not leave it there
        while (ahead := _enter(key, work)) is not None:
            ahead.done.wait()
            if (found := known()) is not None:
                return found
        found = known()
        return make() if found is None else found
    finally:
        _leave(key, work)


def _enter(key: Hashable, work: _Work) -> _Work | None:
    """The work of another thread to wait for; None if this one is to do it."""
    with _lock:
        _waiting.pop(work.owner, None)
        first = _working.setdefault(key, work)
        if first is work:
            return None
        after: _Work | None = first
        while after is not None:
            if after.owner == work.owner:
                return None
            after = _waiting.get(after.owner)
        _waiting[work.owner] = first
        return first


def _leave(key: Hashable, work: _Work) -> None:
    with _lock:
        _waiting.pop(work.owner, None)
        if _working.get(key) is work:
            del _working[key]
    work.done.set()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _working.clear()
    _waiting.clear()


os.register_at_fork(after_in_child=_after_fork)
