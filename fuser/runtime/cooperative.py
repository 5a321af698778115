"""Devices of one process that run one straight program by turns, on as many threads as there are processors.

In: for each device a call that stops at its collectives (`Executable.suspended`). Out: each one's outputs. A thread takes a
device that can go on and runs it to its next collective; whoever brings the last value of a group prepares what there is to
do for it (`collectives`), which any thread may do a part of, and then the group's devices can go on. All devices come by the same
collectives in the same order, since none stands in a branch or a loop: nobody can wait for ever.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fuser.errors import DeviceError
from fuser.runtime.rendezvous import SHARED_BYTES, Combine, Grid, Kinds, Member, Rendezvous, Task, being, with_workers
from fuser.runtime.toolchain import without_team


@dataclass(frozen=True, eq=False)
class Meeting:
    """A library step in which devices meet: over which axes, for what, and how a device's operands become what it brings.

    `combine` says what each gets of what all have brought, `results` what the step gives of that; called, it `waits` for the others.
    """

    names: tuple[Any, ...]
    groups: Any
    what: str
    kinds: Kinds
    combine: Combine
    brought: Callable[[Sequence[Any]], list[Any]]
    results: Callable[[Sequence[Any]], list[Any]]
    waits: Callable[..., Any]

    def __call__(self, *arrays: Any) -> Any:
        return self.waits(*arrays)


def run(grid: Grid, begin: Callable[[int], Any], threads: int) -> list[list[Any]]:
    """The outputs of `begin(rank)`, a suspended call, for every device of the grid, by so many threads.

    The first error of a device is raised, after all threads have stopped.
    """
    turns = _Turns(grid, begin)
    with_workers(threads - 1, turns.work)
    with without_team():
        turns.wait()
    return turns.outputs


def run_apart(grid: Grid, function: Callable[[int], list[Any]]) -> list[list[Any]]:
    """`function(rank)` for every device of the grid, one after the other: of programs in which nobody meets."""
    meet, found = Rendezvous(grid.count), []
    for rank in range(grid.count):
        with being(Member(grid, rank, meet)):
            found.append(function(rank))
    return found


class _Turns:
    """What can be done now, and what each group's devices have brought to collectives that are not complete."""

    def __init__(self, grid: Grid, begin: Callable[[int], Any]) -> None:
        self.outputs: list[Any] = [None] * grid.count
        self._grid, self._begin, self._left = grid, begin, grid.count
        self._members = [Member(grid, rank, Rendezvous(grid.count)) for rank in range(grid.count)]
        self._calls: dict[int, Any] = {}
        self._open: dict[Any, dict[int, list[Any]]] = {}
        self._jobs: deque[Task] = deque(functools.partial(self._advance, rank) for rank in range(grid.count))
        self._changed = threading.Condition(threading.Lock())
        self._busy = 0
        self._error: BaseException | None = None

    def work(self) -> None:
        """Take part until nothing is left to do, or something has failed."""
        while (job := self._next()) is not None:
            try:
                job()
            except BaseException as error:
                self._stop(error)
            finally:
                del job  # or its arrays would live on while this thread waits
                with self._changed:
                    self._busy -= 1

    def wait(self) -> None:
        """Take part, on the thread that gets signals; then raise what has failed, once nobody works any more."""
        try:
            self.work()
        except BaseException as error:  # a signal's handler raised while this thread waited
            self._stop(error)
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)
        if self._error is not None:
            raise self._error

    def _next(self) -> Task | None:
        with self._changed:
            while not self._jobs and self._left and self._error is None:
                self._changed.wait()
            if not self._left or self._error is not None:
                self._changed.notify_all()
                return None
            self._busy += 1
            return self._jobs.popleft()

    def _stop(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _add(self, jobs: Sequence[Task], first: bool = False) -> None:
        """Have these done: this thread takes one, others are woken for the rest."""
        with self._changed:
            (self._jobs.extendleft if first else self._jobs.extend)(jobs)
            self._changed.notify(len(jobs) - 1)

    def _advance(self, rank: int, *results: Any) -> None:
        """Run a device to its next collective, with what came of the last one."""
        call = self._calls.get(rank)
        if call is None:
            call = self._calls[rank] = self._begin(rank)
        with being(self._members[rank]):
            asked = call.advance(*results)
        if asked is not None:
            meeting, operands = asked
            self._arrive(rank, meeting, meeting.brought(operands))
            return
        self.outputs[rank] = call.outputs()
        del self._calls[rank]
        with self._changed:
            self._left -= 1

    def _arrive(self, rank: int, meeting: Meeting, values: list[Any]) -> None:
        members = self._grid.group(rank, meeting.names, meeting.groups)
        with self._changed:
            brought = self._open.setdefault((members, meeting), {})
            brought[rank] = values
            if len(brought) < len(members):
                return
            del self._open[members, meeting]
        given = [brought[m] for m in members]
        try:
            results, tasks = meeting.combine(meeting.kinds, given)
        except Exception as error:
            raise DeviceError(f"{meeting.what} failed on device {rank}: {error}") from error
        go_on = [functools.partial(self._advance, m, meeting.results(r)) for m, r in zip(members, results, strict=True)]
        if len(tasks) > 1 and sum(v.nbytes for each in given for v in each) >= SHARED_BYTES:
            self._add(_Shared(tasks, functools.partial(self._add, go_on)).parts, first=True)
            return
        for task in tasks:
            task()
        self._add(go_on)


class _Shared:
    """Tasks that threads do parts of; `after` follows the last of them."""

    def __init__(self, tasks: Sequence[Task], after: Task) -> None:
        self.parts = [functools.partial(self._do, task) for task in tasks]
        self._left, self._lock, self._after = len(tasks), threading.Lock(), after

    def _do(self, task: Task) -> None:
        task()
        with self._lock:
            self._left -= 1
            done = not self._left
        if done:
            self._after()
