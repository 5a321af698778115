"""Whether the other processes of a run over GPUs are there: a beat of each in the store, and what is asked while a result is waited for.

A GPU that waits for another one cannot say so. So each process counts the programs that it has started, and a thread of it writes the
count and a beat to the store that the processes share; who waits for longer than `collective_timeout` reads those of the others.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fuser.config import config
from fuser.errors import DeviceError
from fuser.parallel.transport import Connections, connections
from fuser.runtime.core import native
from fuser.runtime.processes import processes

BEATS = 5  # in `collective_timeout`


@dataclass
class _Run:
    """What this process has started on its GPUs with others."""

    count: int = 0
    what: str = ""  # the last program, and where its collectives stand
    beat: int = 0
    thread: threading.Thread | None = None
    # Of other processes what they last wrote, and since when.
    seen: dict[int, tuple[Any, float]] = field(default_factory=dict)


_run = _Run()


def started(what: str) -> None:
    """This process has started a program over GPUs of several processes."""
    _run.count += 1
    _run.what = what
    found = connections()
    if found is not None and _run.thread is None:
        _run.thread = threading.Thread(target=_beat, args=(found,), daemon=True, name="fuser-beat")
        _run.thread.start()


def _beat(found: Connections) -> None:
    with contextlib.suppress(Exception):  # the store is gone: all others have ended
        store = found.store.clone()
        while connections() is found:
            _run.beat += 1
            store.set(f"fuser/beat/{processes().index}", json.dumps([_run.beat, _run.count]))
            time.sleep(float(config.collective_timeout) / BEATS)
    _run.thread = None


def watch(living: Callable[[], Iterator[Any]], give_up: Callable[[], None], seconds: float) -> None:
    """DeviceError where what has been waited for so long will not come: of `living` communicators, all of which are then given up."""
    found = connections()
    try:
        for communicator in living():
            error = native.nccl_error(communicator)
            if error is not None:
                raise _failure(found, f"{_run.what}: a collective between GPUs failed: {error}")
        if found is None:
            return
        if found.reported():
            raise found.fail(f"{_run.what}: another process has failed")
        for process in range(processes().count):
            if process != processes().index and (reason := _missing(found, process)):
                raise found.fail(f"{_run.what}: process {process} {reason}")
    except DeviceError:
        give_up()
        raise


def _failure(found: Connections | None, text: str) -> DeviceError:
    return DeviceError(text) if found is None else found.fail(text)


def _missing(found: Connections, process: int) -> str:
    """Why a process will not come; nothing where it may."""
    limit = float(config.collective_timeout)
    key = f"fuser/beat/{process}"
    try:
        written = json.loads(found.store.get(key)) if found.store.check([key]) else [0, 0]
    except Exception as error:
        return (
            f"0, which holds the store, has died or ended ({str(error).splitlines()[0][:120]})"
            if process
            else "has died or ended"
        )
    beat, count = written
    late = count < _run.count
    before, since = _run.seen.setdefault(process, (written, time.monotonic()))
    if (before[0] != beat and not late) or before[1] != count:
        _run.seen[process] = (written, time.monotonic())
        return ""
    if time.monotonic() - since < limit:
        return ""
    if before[0] == beat:
        return f"has died or hangs: nothing was heard of it for {limit:g} s; FUSER_COLLECTIVE_TIMEOUT sets how long to wait"
    return (
        f"did not come within {limit:g} s: it has started {count} programs over GPUs, this one {_run.count}; it hangs, or takes part in "
        "other programs; FUSER_COLLECTIVE_TIMEOUT sets how long to wait"
    )
