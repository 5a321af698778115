"""Compilers as child processes: started together, heard, and stopped with all that they started.

In: command lines. Out: nothing, or a ToolchainError with the first failing compiler's own words; where it has none, with
what is known of its end. An interrupt kills the compilers at once and reaps them.
"""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fuser.config import whole_environment
from fuser.errors import ToolchainError

if TYPE_CHECKING:
    import subprocess

TIMEOUT_SECONDS = 600
_GRACE_SECONDS = 0.2  # from a request to end to an end by force
_MEMORY = "usually because memory ran out: free some, or raise the limit (ulimit -v, a container's)"
# What a compiler says whose own parts were killed, or could not get memory.
_STARVED = ("Killed signal", "out of memory", "virtual memory exhausted", "Cannot allocate memory")
_running: collections.defaultdict[int, list[subprocess.Popen[str]]] = collections.defaultdict(list)  # by thread
_stopped: set[int] = set()  # threads that are to start none any more
_lock = threading.Lock()


def run(commands: Sequence[Sequence[str]], sources: Sequence[str], keep: Callable[[str], Any], folder: str) -> None:
    """Run the commands at the same time in `folder`; the n-th is about the n-th source. Raises the first failure.

    `keep(source)` stores a refused source and gives its path.
    """
    me = threading.get_ident()
    runs = _running[me]
    try:
        for command in commands:
            with _lock:
                if me in _stopped:
                    raise ToolchainError(f"the C compiler {command[0]} was not started: the program was interrupted")
                runs.append(_start(command, folder))
        end = time.monotonic() + TIMEOUT_SECONDS
        for source, command, one in zip(sources, commands, runs):
            words = _words(one, source, end, keep)
            if one.returncode:
                kept = keep(source)
                shown = [str(kept) if part == source else part.removeprefix(folder + os.sep) for part in command]
                raise ToolchainError(failure(shown, one.returncode, words.replace(source, str(kept)), str(kept)))
    finally:
        _end(_running.pop(me, []))


def failure(command: Sequence[str], status: int, words: str, kept: str = "") -> str:
    """What is known of a compiler that failed: its own words, or how it ended, and what to do."""
    compiler, words = command[0], words.strip()
    by_hand = f"the command was: {' '.join(command)}"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = "unknown"
        why = f", {_MEMORY}" if -status == signal.SIGKILL else ""
        said = f"; it said:\n{words}\n" if words else "; "
        return (
            f"the C compiler {compiler} was killed by signal {-status} ({name}){why}; set FUSER_CC to use another compiler, "
            f"or FUSER_BACKEND=reference to run in NumPy{said}{by_hand}"
        )
    if not words:
        return (
            f"the C compiler {compiler} failed without a word (exit status {status}); run it by hand, or set FUSER_CC to "
            f"another one; {by_hand}"
        )
    memory = f"\n(a part of it was killed, {_MEMORY})" if any(part in words for part in _STARVED) else ""
    place = f", which is kept in {kept}" if kept else ""
    return f"the C compiler {compiler} refused generated code (exit status {status}){place}; it says:\n{words}{memory}"


@contextlib.contextmanager
def beside(tasks: Iterable[Callable[[], Any]]) -> Iterator[None]:
    """Run tasks that compile in threads of their own during the block, which ends when they have; interrupted, it stops them."""
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    try:
        yield
        for thread in threads:
            thread.join()
    except BaseException as error:
        for number in () if isinstance(error, Exception) else (signal.SIGTERM, signal.SIGKILL):
            _stop([thread.ident for thread in threads], number)
            for thread in threads:
                thread.join(_GRACE_SECONDS)
        for thread in threads:
            thread.join()
        raise
    finally:
        _stopped.difference_update(thread.ident for thread in threads)


def _start(command: Sequence[str], folder: str) -> subprocess.Popen[str]:
    """The compiler in a process group of its own, so that what it starts can be killed with it; with an environment of its own, as
    that of this process may be changed by a library in another thread meanwhile: starting then fails with EFAULT."""
    import subprocess  # with a warm cache no process is ever started, and the import takes milliseconds

    group = {"process_group": 0} if os.name == "posix" else {}
    return subprocess.Popen(
        command,
        env=whole_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        cwd=folder,
        **group,  # type: ignore[call-overload]
    )


def _words(one: subprocess.Popen[str], source: str, end: float, keep: Callable[[str], Any]) -> str:
    import subprocess

    try:
        return one.communicate(timeout=max(end - time.monotonic(), 0))[0]
    except subprocess.TimeoutExpired:
        raise ToolchainError(
            f"the C compiler {one.args[0]!s} ran for {TIMEOUT_SECONDS} seconds on {keep(source)} and was stopped"  # type: ignore[index]
        ) from None


def _stop(threads: Iterable[int | None], number: int) -> None:
    """Send a signal to what these threads run, and let them start no more."""
    with _lock:
        idents = [ident for ident in threads if ident is not None]
        _stopped.update(idents)
        for ident in idents:
            for one in _running.get(ident, ()):
                _signal(one, number)


def _end(runs: Sequence[subprocess.Popen[str]]) -> None:
    """Reap what has ended and stop what has not: first so that it removes its own files, then by force."""
    import subprocess

    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in runs:
            if one.poll() is None:
                _signal(one, number)
        end = time.monotonic() + _GRACE_SECONDS
        for one in runs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(max(end - time.monotonic(), 0) if number == signal.SIGTERM else None)
    for one in runs:
        if one.stdout is not None:
            one.stdout.close()


def _signal(one: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if one.returncode is None:
            os.killpg(one.pid, number) if os.name == "posix" else one.terminate()


def _after_fork() -> None:
    """What the parent's threads run is none of the child's."""
    global _lock
    _lock = threading.Lock()
    _running.clear()
    _stopped.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
