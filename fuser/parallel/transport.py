"""Messages between processes over torch.distributed (Gloo), and what is said when one does not come.

A meeting sends one message to each other process of its group and gets one from each. It begins with what the sender
takes part in, so that processes that disagree find out; who dies, hangs or disagrees is named with the collective and the
user's line, and told to all others by the store that the processes share.
"""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import queue
import struct
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.config import config
from fuser.errors import DeviceError, JaxRuntimeError
from fuser.ir.source import current_source
from fuser.parallel.exchange import exchange
from fuser.runtime import rendezvous
from fuser.runtime.processes import processes

FIRST_BYTES = 1024  # of a meeting's first message to a process; what does not fit follows in a second one
_HEADER = struct.Struct("<II")  # of the program, and of the text that follows
_MOST_TEXT = 480
_STORE_SECONDS = 2.0  # that reports of failures may take
_FOREVER = datetime.timedelta(days=365)

_Buffers = dict[tuple[int, int], list[np.ndarray]]


def _news(process: int) -> str:
    """The key under which the process finds the first report."""
    return f"fuser/news/{process}"


class Connections:
    """This process's connections to the others: torch's process group, its store, and the first failure."""

    def __init__(self, group: Any, store: Any) -> None:
        self.group, self.store = group, store
        self.failure: DeviceError | None = None
        self._turns: dict[Any, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._report = ""  # of the first process that failed
        self._listener = threading.Thread(
            target=self._listen, args=(store.clone(),), daemon=True, name="fuser-failures"
        )
        self._listener.start()

    def _listen(self, store: Any) -> None:
        """Keep the first report of a failure as soon as there is one: the process that holds the store may end after it."""
        with contextlib.suppress(Exception):  # the store is gone: all others have ended
            store.wait([_news(processes().index)], _FOREVER)
            self._report = store.get(_news(processes().index)).decode()
            store.add("fuser/told", 1)

    def reported(self) -> bool:
        """Whether a process has failed, this one too."""
        return bool(self._report) or self.failure is not None

    def close(self) -> None:
        """Take no further part: nothing waits for reports any more."""
        with contextlib.suppress(Exception):
            self.store.set(_news(processes().index), self._report)
        self._listener.join(_STORE_SECONDS)
        if self.failure is None:
            self._leave()

    def _leave(self) -> None:
        """Process 0, which holds the store, leaves last if the others leave soon: those that still ask it anything would print that it is gone."""
        deadline = time.monotonic() + _STORE_SECONDS
        with contextlib.suppress(Exception):
            self.store.add("fuser/left", 1)
            while processes().index == 0 and time.monotonic() < deadline:
                if self.store.add("fuser/left", 0) == processes().count:
                    return
                time.sleep(0.01)

    def turn(self, members: Any) -> int:
        """How many meetings of this group there were before."""
        with self._lock:
            self._turns[members] += 1
            return self._turns[members]

    def fail(self, text: str) -> DeviceError:
        """The error of this process, which takes no further part, with what the first that failed reported."""
        with self._lock:
            if self.failure is None:
                first = self._first_report(text)
                self.failure = DeviceError(text if first is None else f"{text}; before that, {first}")
            return self.failure

    def _first_report(self, text: str) -> str | None:
        """What another process has reported before this one; this one's report is left for others."""
        own = f"process {processes().index}: "
        with contextlib.suppress(Exception):
            self.store.set_timeout(datetime.timedelta(seconds=_STORE_SECONDS))
            first = self.store.compare_set("fuser/failure", "", own + text).decode()
            for process in range(processes().count if first == own + text else 0):
                self.store.set(_news(process), first)
        self._listener.join(_STORE_SECONDS)
        return None if not self._report or self._report.startswith(own) else self._report

    def linger(self) -> None:
        """Process 0, which holds the store, stays a moment after a failure, so that others read who failed first."""
        deadline, last = time.monotonic() + _STORE_SECONDS, False
        with contextlib.suppress(Exception):
            while processes().index == 0 and time.monotonic() < deadline:
                missing = processes().count - self.store.add("fuser/told", 0)
                if missing == 1 and not last:  # who has died, or else is about to read
                    deadline, last = time.monotonic() + _STORE_SECONDS / 10, True
                if missing == 0:
                    return
                time.sleep(0.02)


@contextlib.contextmanager
def in_turn() -> Iterator[None]:
    """One process of a machine at a time: the first compiles, the others find what it has kept on disk."""
    if connections() is None or not config.cache:
        yield
        return
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    folder = pathlib.Path(config.cache_dir)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "compiling.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


_connections: list[Connections] = []


def connections() -> Connections | None:
    """The connections of this process, where `fuser.distributed.initialize` has made some."""
    return _connections[-1] if _connections else None


def connect(found: Connections | None) -> None:
    """Use these from now on, or none."""
    _connections[:] = [] if found is None else [found]


_guarding: list[int] = []  # the thread that set `thread_guard`


def _guard(line_of: Callable[[], str]) -> None:
    """JaxRuntimeError where another thread than the one that set `thread_guard` begins to run with other processes."""
    own = threading.get_ident()
    if _guarding and _guarding[0] != own:
        raise JaxRuntimeError(
            f"a thread guard was set in thread {_guarding[0]}, and thread {own} runs a program of several processes "
            f"({current_source().short}): threads may run programs in different orders in different processes; run it in the former"
        )


def _setting_changed(value: Any, of_thread: bool) -> None:
    if value or of_thread or _guarding:
        _guarding[:] = [threading.get_ident()] if value else []


config.watch("thread_guard", _setting_changed)


class Peers:
    """The other processes of one run, as `rendezvous.Remote` has them; `owner[rank]` is the process of a device."""

    def __init__(self, owner: Sequence[int], program: int, line_of: Callable[[], str]) -> None:
        _guard(line_of)
        self.owner, self.program, self.line_of = owner, program, line_of
        self.index = processes().index
        self.local = frozenset(rank for rank, process in enumerate(owner) if process == self.index)
        found = connections()
        if found is None:
            raise DeviceError("the mesh has devices of other processes, and fuser.distributed is not initialized")
        self.connections = found

    def meeting(
        self, members: tuple[int, ...], what: str, kinds: Any, brought: dict[int, Any]
    ) -> Callable[[], dict[int, Any]]:
        """A function that gives what the members in this process get."""
        if self.connections.failure is not None:
            raise self.connections.failure
        meeting = _Meeting(self, members, what)
        return lambda: _interruptible(lambda: exchange(members, brought, kinds, meeting.swap))

    def failed(self, error: BaseException) -> None:
        """Tell the others that this process takes no further part."""
        if self.connections.failure is None and not isinstance(error, DeviceError):
            self.connections.fail(f"it stopped with {type(error).__name__}: {error}")


class _Meeting:
    """One meeting of a group with members in other processes."""

    def __init__(self, peers: Peers, members: tuple[int, ...], what: str) -> None:
        self.peers, self.members, self.what = peers, members, what
        line = peers.line_of()
        self.where = f"{what} at {line}" if line else what
        text = f"{what}\n{line}".encode()[:_MOST_TEXT]
        self.header = _HEADER.pack(peers.program, len(text)) + text
        self.timeout = float(config.collective_timeout)
        self.turn, self.rounds = peers.connections.turn(members), 0

    def swap(self, outgoing: _Buffers, incoming: _Buffers) -> None:
        """Send arrays to members in other processes, and fill those that come from them."""
        peers = self.peers
        self.rounds += 1
        tag = zlib.crc32(repr((self.members, self.turn, self.rounds)).encode()) & 0x7FFFFFF0
        sent, wanted = _by_process(outgoing, peers.owner, 1), _by_process(incoming, peers.owner, 0)
        deadline = time.monotonic() + self.timeout
        works: list[tuple[int, Any]] = []
        kept: list[Any] = []
        first: dict[int, np.ndarray] = {}
        rest: dict[int, np.ndarray] = {}
        room = FIRST_BYTES - len(self.header)
        for process, arrays in sent.items():
            body = np.concatenate([a.reshape(-1).view(np.uint8) for a in arrays]) if arrays else np.empty(0, np.uint8)
            head = np.zeros(FIRST_BYTES, np.uint8)
            head[: len(self.header)] = np.frombuffer(self.header, np.uint8)
            head[len(self.header) : len(self.header) + min(room, body.size)] = body[:room]
            first[process] = np.empty(FIRST_BYTES, np.uint8)
            works.append((process, self._start("irecv", first[process], process, tag, kept)))
            works.append((process, self._start("isend", head, process, tag, kept)))
            if body.size > room:
                works.append((process, self._start("isend", body[room:], process, tag + 1, kept)))
        count = len(works)
        for number in range(count):
            process, work = works[number]
            if number == 0 or works[number - 1][0] != process:
                self._finish(process, work, deadline)
                self._agree(process, first[process])
                total = sum(a.nbytes for a in wanted[process])
                if total > self._room(first[process]):
                    rest[process] = np.empty(total - self._room(first[process]), np.uint8)
                    works.append((process, self._start("irecv", rest[process], process, tag + 1, kept)))
        for number, (process, work) in enumerate(works):
            if number >= count or (number and works[number - 1][0] == process):
                self._finish(process, work, deadline)
        for process, arrays in wanted.items():
            begun = first[process][FIRST_BYTES - self._room(first[process]) :]
            _fill(arrays, np.concatenate([begun, rest[process]]) if process in rest else begun)

    @staticmethod
    def _room(head: np.ndarray) -> int:
        """The bytes of a first message behind its header."""
        return FIRST_BYTES - _HEADER.size - _HEADER.unpack(head[: _HEADER.size].tobytes())[1]

    def _start(self, kind: str, buffer: np.ndarray, process: int, tag: int, kept: list[Any]) -> Any:
        import torch
        import torch.distributed as dist

        tensor = torch.from_numpy(buffer)
        kept.append(tensor)
        try:
            return getattr(dist, kind)(tensor, process, group=self.peers.connections.group, tag=tag)
        except RuntimeError as error:
            raise self._lost(process, error) from None

    def _finish(self, process: int, work: Any, deadline: float) -> None:
        try:
            work.wait(datetime.timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
        except RuntimeError as error:
            if time.monotonic() >= deadline - 0.01:
                raise self.peers.connections.fail(
                    f"{self.where}: process {process} did not come within {self.timeout:g} s; it hangs, or takes part in "
                    "other collectives; FUSER_COLLECTIVE_TIMEOUT sets how long to wait"
                ) from None
            raise self._lost(process, error) from None

    def _lost(self, process: int, error: Exception) -> DeviceError:
        short = str(error).splitlines()[0].split(": ", 1)[-1][:120]
        return self.peers.connections.fail(f"{self.where}: process {process} has died or ended ({short})")

    def _agree(self, process: int, head: np.ndarray) -> None:
        """DeviceError unless the other process takes part in the same collective of the same program."""
        program, length = _HEADER.unpack(head[: _HEADER.size].tobytes())
        text = head[_HEADER.size : _HEADER.size + length].tobytes().decode(errors="replace")
        what, _, line = text.partition("\n")
        if what != self.what or program != self.peers.program:
            other = f"{what} at {line}" if line else what
            program_too = "" if program == self.peers.program else " of another program"
            raise self.peers.connections.fail(
                f"{self.where}: process {process} is in {other}{program_too}; every process must run the same programs on arrays "
                "of the same shapes in the same order"
            )


def _by_process(buffers: _Buffers, owner: Sequence[int], end: int) -> dict[int, list[np.ndarray]]:
    """The arrays by the process at the far end, in the order that both sides have."""
    found: dict[int, list[np.ndarray]] = {}
    for key in sorted(buffers):
        found.setdefault(owner[key[end]], []).extend(buffers[key])
    return dict(sorted(found.items()))


def _fill(arrays: Sequence[np.ndarray], data: np.ndarray) -> None:
    place = 0
    for array in arrays:
        array.reshape(-1).view(np.uint8)[:] = data[place : place + array.nbytes]
        place += array.nbytes


def _interruptible(task: Callable[[], Any]) -> Any:
    """The task's result; on the main thread it waits so that signals are answered meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        return task()
    found: list[Any] = []
    done = threading.Event()
    member = rendezvous.current()

    def work() -> None:
        try:
            with contextlib.ExitStack() as stack:
                if member is not None:
                    stack.enter_context(rendezvous.being(member))
                found.append((task(), None))
        except BaseException as error:
            found.append((None, error))
        done.set()

    _network().put(work)
    done.wait()
    result, error = found[0]
    if error is not None:
        raise error
    return result


_queues: list[Any] = []


def _network() -> Any:
    """The queue of a thread that waits for messages."""
    if not _queues:
        tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=lambda: _serve(tasks), name="fuser-network", daemon=True).start()
        _queues.append(tasks)
    return _queues[0]


def _serve(tasks: Any) -> None:
    while True:
        tasks.get()()
