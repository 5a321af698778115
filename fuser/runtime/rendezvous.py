"""Devices of one process that run one program, a thread each, and meet in collectives.

In: a function of a device's number, and the grid of named axes that the devices form. Out: its results, one a device.
Whoever is the last of a group to arrive says what is to be done with what all of them brought, in the order of the group, so
that results do not depend on who was first, and all of them do it. Nobody waits forever: a device that fails, or all of whose peers wait elsewhere or have
ended, makes every other device raise DeviceError. Where devices belong to several processes, the last of a group to
arrive here meets the other processes (`Remote`).
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import SimpleQueue
from typing import Any, Protocol

from fuser.errors import DeviceError

Kinds = Sequence[tuple[str, tuple[tuple[str, Any], ...]]]  # of the collectives of one meeting, names and params
Task = Callable[[], None]
Combine = Callable[
    [Kinds, list[Any]], tuple[list[Any], list[Task]]
]  # from what each brought to what each gets once tasks are done


SHARED_BYTES = 1 << 19  # of what a group brings: from there on its devices do the work together


class Remote(Protocol):
    """The other processes of a run."""

    local: frozenset[int]  # the devices of this process

    def meeting(
        self, members: tuple[int, ...], what: str, kinds: Kinds, brought: dict[int, Any]
    ) -> Callable[[], dict[int, Any]]:
        """A function that gives what the members in this process get, of what they have brought and what others have.

        Meetings of the same members are asked for in the same order in every process; the functions may then run at once.
        """

    def failed(self, error: BaseException) -> None:
        """This process takes no further part."""


def _do(tasks: Sequence[Task]) -> None:
    for task in tasks:
        task()


class Grid:
    """Devices numbered row by row in a grid of named axes."""

    def __init__(self, axes: Sequence[tuple[Any, int]]) -> None:
        self.axes = dict(axes)
        self.count = math.prod(self.axes.values())
        self._groups: dict[Any, tuple[int, ...]] = {}

    def coordinate(self, rank: int, name: Any) -> int:
        """Where a device stands along an axis."""
        inner = 1
        for axis, size in reversed(self.axes.items()):
            if axis == name:
                return rank // inner % size
            inner *= size
        raise DeviceError(f"the devices form a grid of {dict(self.axes)}, which has no axis {name!r}")

    def index(self, rank: int, names: Sequence[Any]) -> int:
        """Where a device stands along several axes together, the first of which varies slowest."""
        result = 0
        for name in names:
            result = result * self.axes[name] + self.coordinate(rank, name)
        return result

    def group(self, rank: int, names: tuple[Any, ...], groups: tuple[tuple[int, ...], ...] | None) -> tuple[int, ...]:
        """The devices that differ from this one along `names` only, in order; with `groups`, those of its group of indices."""
        key = (rank, names, groups)
        known = self._groups.get(key)
        if known is None:
            others = [n for n in self.axes if n not in names]
            same = [
                r for r in range(self.count) if all(self.coordinate(r, n) == self.coordinate(rank, n) for n in others)
            ]
            same.sort(key=lambda r: self.index(r, names))
            if groups is not None:
                own = self.index(rank, names)
                same = [same[i] for i in next(g for g in groups if own in g)]
            known = self._groups[key] = tuple(same)
        return known


class _Work:
    """Tasks that threads take one after the other; `join` takes part, and returns when all are done."""

    __slots__ = ("_done", "_error", "_left", "_lock", "_tasks")

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks, self._left = deque(tasks), len(tasks)
        self._lock, self._done = threading.Lock(), threading.Event()
        self._error: BaseException | None = None

    def join(self) -> None:
        """Do what is left to do; the error of a task is every participant's."""
        while True:
            try:
                task = self._tasks.popleft()
            except IndexError:
                break
            try:
                task()
            except BaseException as error:
                self._error = error
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._done.set()
        self._done.wait()
        if self._error is not None:
            raise DeviceError(f"a collective failed: {self._error}") from self._error


class _Meeting:
    """One collective of one group: who has arrived with what, what each gets, and what there is to do for it."""

    __slots__ = ("brought", "complete", "done", "error", "results", "waiting", "what", "work")

    def __init__(self, what: str) -> None:
        self.what = what
        self.brought: dict[int, Any] = {}
        self.results: dict[int, Any] = {}
        self.work: _Work | None = None
        self.error: BaseException | None = None
        self.complete = False  # all of this process have arrived
        self.waiting = 0  # devices, for the others
        self.done = threading.Event()


class Rendezvous:
    """Where the devices of one run meet."""

    def __init__(self, count: int, remote: Remote | None = None) -> None:
        self.count = count
        self.remote = remote
        self._lock = threading.Lock()
        self._open: dict[Any, _Meeting] = {}
        self._begun: Counter[Any] = Counter()  # meetings of each device, by members and what they are
        self._ended = 0
        self._waiting = 0
        self._failure: DeviceError | None = None

    def exchange(
        self, rank: int, members: tuple[int, ...], what: str, kinds: Kinds, value: Any, combine: Combine
    ) -> Any:
        """What this device gets of `combine` once all members have called with the same `what`."""
        return self.finish(rank, self.begin(rank, members, what, kinds, value, combine))

    def begin(
        self,
        rank: int,
        members: tuple[int, ...],
        what: str,
        kinds: Kinds,
        value: Any,
        combine: Combine,
        at_once: bool = False,
    ) -> _Meeting:
        """Bring a value, which stays as it is until `finish`. With `at_once`, other processes are met on a thread meanwhile."""
        remote = self.remote
        here = members if remote is None else tuple([m for m in members if m in remote.local])
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._begun[rank, members, what] += 1
            key = (members, what, self._begun[rank, members, what])
            meeting = self._open.setdefault(key, _Meeting(what))
            meeting.brought[rank] = value
            if len(meeting.brought) < len(here):
                return meeting
            del self._open[key]
            meeting.complete = True
            self._waiting -= meeting.waiting
        if remote is None or len(here) == len(members):
            self._settle(meeting, rank, lambda: self._combined(meeting, members, kinds, combine))
            return meeting
        met = remote.meeting(members, what, kinds, meeting.brought)
        settle = functools.partial(self._settle, meeting, rank, lambda: meeting.results.update(met()))
        if at_once:
            with_workers(1, functools.partial(self._later, settle, current()))
        else:
            settle()
        return meeting

    @staticmethod
    def _later(settle: Task, member: Member | None) -> None:
        """Settle a meeting on another thread, for this device; `finish` raises its error."""
        with being(member) if member is not None else nullcontext(), suppress(BaseException):
            settle()

    @staticmethod
    def _combined(meeting: _Meeting, members: tuple[int, ...], kinds: Kinds, combine: Combine) -> None:
        results, tasks = combine(kinds, [meeting.brought[m] for m in members])
        meeting.results = dict(zip(members, results, strict=True))
        if len(tasks) < 2 or sum(v.nbytes for each in meeting.brought.values() for v in each) < SHARED_BYTES:
            _do(tasks)
        else:
            meeting.work = _Work(tasks)

    @staticmethod
    def _settle(meeting: _Meeting, rank: int, task: Task) -> None:
        """Have a meeting's results, or its error, there for all of its devices."""
        try:
            task()
        except DeviceError as error:
            meeting.error = error
            raise
        except BaseException as error:
            meeting.error = DeviceError(f"{meeting.what} failed on device {rank}: {error}")
            raise
        finally:
            meeting.done.set()

    def finish(self, rank: int, meeting: _Meeting) -> Any:
        """What this device gets, once all have brought their values."""
        with self._lock:
            if not meeting.complete and meeting.error is None:
                meeting.waiting += 1
                self._waiting += 1
                self._check()
        meeting.done.wait()
        if meeting.error is not None:
            raise meeting.error
        if meeting.work is not None:
            meeting.work.join()
        return meeting.results[rank]

    def end(self, rank: int, error: BaseException | None = None) -> None:
        """A device is through, or has failed."""
        with self._lock:
            self._ended += 1
            if error is not None:
                self._fail(DeviceError(f"device {rank} failed, so this one stopped: {type(error).__name__}: {error}"))
            else:
                self._check()

    def stop(self, error: BaseException) -> None:
        """Every device fails in its next collective, or the one that it waits in."""
        with self._lock:
            self._fail(DeviceError(f"the program was stopped: {type(error).__name__}: {error}"))

    def _check(self) -> None:
        """Everybody waits or has ended: the devices do not agree on what to do next."""
        if self._waiting and self._waiting + self._ended == self.count and self._failure is None:
            where = "; ".join(
                f"{_devices(sorted(meeting.brought))} in {meeting.what} for {_devices(members)}"
                for (members, *_), meeting in self._open.items()
            )
            ended = f"; {self._ended} of {self.count} devices have ended" if self._ended else ""
            self._fail(
                DeviceError(
                    f"the devices disagree on their next collective, and none can go on: {where} waits{ended}; every device of "
                    "a group must take part in the same collectives in the same order, so none may stand in a branch or a "
                    "loop that only some of them take"
                )
            )

    def _fail(self, error: DeviceError) -> None:
        if self._failure is None:
            self._failure = error
        for meeting in self._open.values():
            meeting.error = self._failure
            meeting.done.set()
        self._open.clear()
        self._waiting = 0


def _devices(ranks: Sequence[int]) -> str:
    return f"device {ranks[0]}" if len(ranks) == 1 else f"devices {', '.join(map(str, ranks))}"


class Member:
    """One device in a run: its number in the grid, and where it meets the others."""

    __slots__ = ("_begun", "_pending", "grid", "meet", "rank")

    def __init__(self, grid: Grid, rank: int, meet: Rendezvous) -> None:
        self.grid, self.rank, self.meet = grid, rank, meet
        self._begun = 0
        self._pending: dict[int, Callable[[], Any]] = {}

    def exchange(
        self, names: tuple[Any, ...], groups: Any, what: str, kinds: Kinds, value: Any, combine: Combine
    ) -> Any:
        """Collectives over the devices that differ along `names`."""
        members = self.grid.group(self.rank, names, groups)
        if len(members) == 1:
            results, tasks = combine(kinds, [value])
            _do(tasks)
            return results[0]
        return self.meet.exchange(self.rank, members, what, kinds, value, combine)

    def begin(self, names: tuple[Any, ...], groups: Any, what: str, kinds: Kinds, value: Any, combine: Combine) -> int:
        """Begin collectives over the devices that differ along `names`; the number by which `finish` ends them."""
        self._begun += 1
        members = self.grid.group(self.rank, names, groups)
        meeting = self.meet.begin(self.rank, members, what, kinds, value, combine, at_once=True)
        self._pending[self._begun] = functools.partial(self.meet.finish, self.rank, meeting)
        return self._begun

    def finish(self, number: int) -> Any:
        """What this device gets of collectives that it has begun."""
        return self._pending.pop(number)()


class _Current(threading.local):
    member: Member | None = None


_current = _Current()


def current() -> Member | None:
    """The device that the calling thread runs; None where it runs none of several."""
    return _current.member


class being:
    """The calling thread runs this device meanwhile: no generator, whose entry and exit a short program would feel at each collective."""

    __slots__ = ("_member", "_saved")

    def __init__(self, member: Member) -> None:
        self._member = member

    def __enter__(self) -> None:
        self._saved, _current.member = _current.member, self._member

    def __exit__(self, *error: object) -> None:
        _current.member = self._saved


class _Worker:
    """A thread that does one task after the other."""

    def __init__(self, number: int) -> None:
        self.tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name=f"fuser-device-{number}", daemon=True).start()

    def _work(self) -> None:
        while True:
            task = self.tasks.get()
            task()
            del task  # or its arrays would live until the next one


def _without_team() -> AbstractContextManager[None]:
    from fuser.runtime.toolchain import without_team  # here: `import fuser` does without compilers

    return without_team()


_idle: list[_Worker] = []
_idle_lock = threading.Lock()


def _after_fork() -> None:
    """The parent's workers are not here."""
    global _idle_lock
    _idle.clear()
    _idle_lock = threading.Lock()


def with_workers(count: int, function: Callable[[], None]) -> None:
    """Have so many threads call the function, of which each is idle again after it."""

    def on_worker(worker: _Worker) -> None:
        with _without_team():
            function()
        with _idle_lock:
            _idle.append(worker)

    for worker in _workers(count):
        worker.tasks.put(functools.partial(on_worker, worker))


def _workers(count: int) -> list[_Worker]:
    with _idle_lock:
        found = [_idle.pop() for _ in range(min(count, len(_idle)))]
    return found + [_Worker(n) for n in range(len(found), count)]


def run(grid: Grid, function: Callable[[int], Any], remote: Remote | None = None) -> list[Any]:
    """`function(rank)` on every device of the grid at once, those of this process; its results in their order.

    The error of the first device that fails is raised, after all have stopped. Results of other processes are None.
    """
    ranks = range(grid.count) if remote is None else sorted(remote.local)
    count = len(ranks)
    meet = Rendezvous(count, remote)
    results: list[Any] = [None] * grid.count
    errors: list[tuple[int, BaseException]] = []
    left = threading.Semaphore(0)

    def task(rank: int) -> None:
        error: BaseException | None = None
        try:
            with being(Member(grid, rank, meet)), _without_team() if count > 1 else nullcontext():
                results[rank] = function(rank)
        except BaseException as found:
            error = found
            errors.append((rank, found))
        meet.end(rank, error)

    def on_worker(rank: int, worker: _Worker) -> None:
        task(rank)
        with _idle_lock:
            _idle.append(worker)
        left.release()

    workers = _workers(count - 1)
    for rank, worker in zip(ranks[1:], workers):
        worker.tasks.put(lambda rank=rank, worker=worker: on_worker(rank, worker))  # type: ignore[misc]
    task(ranks[0])  # on the calling thread, which gets signals
    still = len(workers)
    while still:
        try:
            left.acquire()
            still -= 1
        except BaseException as error:  # a signal's handler raised: the others stop at their next collective
            errors.insert(0, (0, error))
            meet.stop(error)
    if errors:
        failure = _first(errors)
        if remote is not None:
            remote.failed(failure)
        raise failure
    return results


def _first(errors: list[tuple[int, BaseException]]) -> BaseException:
    """The error that the others are consequences of: one that no peer caused, the earliest."""
    own = [error for _, error in errors if not isinstance(error, DeviceError)]
    return own[0] if own else errors[0][1]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
