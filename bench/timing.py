"""Timing of calls in turns: clocks, samples of as many calls as a clock resolves, and rounds over all systems.

In: functions without arguments, by system. Out: seconds of one call, a list for each system. Every round visits each system once, so
that a busy machine slows all alike, in an order that changes, so that none always finds the caches and threads that the same one left.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Call = Callable[[], Any]
Clock = Callable[[], float]
MAX_CALLS = 10_000  # of a sample


def processor_seconds() -> float:
    """Processor time of this process, and of processes (compilers) that it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "processor": processor_seconds}


def sample(
    call: Call, calls: int = 1, clock: Clock = time.perf_counter, wait: Callable[[Any], Any] | None = None
) -> float:
    """Seconds of one of so many calls; `wait` gets the last one's result."""
    start = clock()
    for _ in range(calls):
        result = call()
    if wait is not None:
        wait(result)
    return (clock() - start) / calls


def calls_per_sample(
    call: Call, seconds: float, clock: Clock = time.perf_counter, wait: Callable[[Any], Any] | None = None
) -> int:
    """How many calls last `seconds`, measured behind one that is not counted; at most MAX_CALLS."""
    sample(call, 1, clock, wait)
    calls = 1
    while calls < MAX_CALLS and (taken := calls * sample(call, calls, clock, wait)) < seconds:
        calls = min(MAX_CALLS, max(calls + 1, int(calls * 1.2 * seconds / max(taken, 1e-7))))
    return calls


def take_turns(turns: Sequence[Call], rounds: int) -> None:
    """Call each of `turns` once in each round, in an order that is drawn, and then the same one backwards. Python collects no garbage."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        order = list(turns)
        for number in range(rounds):
            order = order[::-1] if number % 2 else random.Random(number).sample(order, len(order))
            for turn in order:
                turn()
    finally:
        if enabled:
            gc.enable()


def samples(
    calls: Mapping[str, Call],
    rounds: int,
    seconds: float,
    clock: Clock = time.perf_counter,
    wait: Callable[[Any], Any] | None = None,
) -> dict[str, list[float]]:
    """Seconds of a call of each system, a sample of at least `seconds` in each round."""
    counts = {name: calls_per_sample(call, seconds, clock, wait) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}

    def turn(name: str) -> Call:
        return lambda: found[name].append(sample(calls[name], counts[name], clock, wait))

    take_turns([turn(name) for name in calls], rounds)
    return found
