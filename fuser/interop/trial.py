"""Never slower: the first calls of a signature go by turns to the compiled program and to NumPy, both timed, and the faster one stays.

Each call is run once, by one of the two, so that writes, draws and prints are those of one call. Where other processes took
the processor away in a turn, what counts is the thread's own processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from time import thread_time
from typing import Any

try:
    import resource
except ImportError:  # not on this system
    resource = None  # type: ignore[assignment]

WARM_CALLS = 4  # of the program, that are not timed: caches fill, and programs that write in place are made
MOST_WAITED = 64  # calls, while what the function runs is measured itself
WAITED_SECONDS = 0.5  # of such calls in all, after which NumPy has its turns all the same
ROUNDS = 5  # of each, before a clear verdict
MOST_ROUNDS = 15
CLEAR = 1.25  # a ratio, either way, that needs no further rounds
EARLY_SECONDS = 0.2  # of timed calls in all, after which two rounds with a ratio of EARLY will do
EARLY = 2.0
SHORT_SECONDS = 1e-3  # of a turn, below which it is timed again where the processor was taken away
SLOWER = 1.05  # times NumPy's time, from which on NumPy is taken


class Trial:
    """`program` and `numpy` by turns until one is chosen; `decided(ratio)` then hears the program's time over NumPy's.

    `state()` is compared around a call: one in which it changes (a trace, a new segment) is not timed. None: wait. `began` is
    when the call that comes began, where that counts as the program's time: NumPy answers without finding out what to run.
    """

    def __init__(
        self,
        program: Callable[..., Any],
        numpy: Callable[..., Any],
        state: Callable[[], Any],
        decided: Callable[[float], None],
    ) -> None:
        self._ways = (program, numpy)
        self._seconds: tuple[list[float], list[float]] = ([], [])
        self._state, self._decided = state, decided
        self.began: float | None = None
        self._warm = 0
        self._waited = 0
        self._waited_seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        began, self.began = self.began, None
        before = self._state()
        if before is None and self._waited < MOST_WAITED and self._waited_seconds < WAITED_SECONDS:
            return self._wait(*args)
        if self._warm < WARM_CALLS:
            self._warm += 1
            return self._ways[0](*args)
        turn = int(len(self._seconds[1]) < len(self._seconds[0]))
        switches, worked = _preemptions(), thread_time()
        start = time.perf_counter() if turn or began is None else began
        result = self._ways[turn](*args)
        seconds = time.perf_counter() - start
        if _preemptions() > switches:
            seconds = thread_time() - worked
            if seconds < SHORT_SECONDS:  # another one comes soon, and this lacks what the call took before its program
                return result
        if self._state() == before:
            self._seconds[turn].append(seconds)
            self._judge()
        return result

    def _wait(self, *args: Any) -> Any:
        """A call of the program that is not timed, as what it runs is measured itself."""
        start = time.perf_counter()
        result = self._ways[0](*args)
        if self._state() is None:  # and nothing was compiled, which takes seconds once
            self._waited_seconds += time.perf_counter() - start
        self._waited += 1
        return result

    def _judge(self) -> None:
        rounds = min(map(len, self._seconds))
        if not rounds:
            return
        program, numpy = map(_typical, self._seconds)
        ratio = program / max(numpy, 1e-9)
        spent = self._waited_seconds + sum(map(sum, self._seconds))
        early = rounds >= 2 and spent > EARLY_SECONDS and _beyond(ratio, EARLY)
        if early or rounds >= MOST_ROUNDS or (rounds >= ROUNDS and _beyond(ratio, CLEAR)):
            self._decided(ratio)


def _typical(seconds: Sequence[float]) -> float:
    """The lower quartile: what a call takes where nothing disturbs it, but not once in a while alone, as where threads of libraries
    that wait for work have the processors."""
    return sorted(seconds)[len(seconds) // 4]


def _preemptions() -> int:
    """How often another thread has taken the processor from this one; 0 where nothing tells."""
    thread = getattr(resource, "RUSAGE_THREAD", None)
    return 0 if thread is None else resource.getrusage(thread).ru_nivcsw


def _beyond(ratio: float, limit: float) -> bool:
    return not 1 / limit < ratio < limit
