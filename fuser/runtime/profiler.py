"""Clocks: how long a call takes, on the CPU and on a CUDA device.

In: a function without arguments. Out: `Timing` in seconds, with the median and the minimum of its samples: the median
says what a user waits, the minimum what the code can do while nothing else disturbs it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of each of several calls."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def minimum(self) -> float:
        return min(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a part of the median; 0 for fewer than four samples."""
        if len(self.samples) < 4 or not self.median:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / 2 / self.median


def measure(function: Callable[[], object], repeats: int = 10, warmup: int = 1) -> Timing:
    """Time calls on the CPU. Results are dropped inside the time, as they are in a loop of a user's program."""
    _check(repeats)
    for _ in range(warmup):
        function()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        samples.append(time.perf_counter() - start)
    return Timing(tuple(samples))


def measure_cuda(function: Callable[[], object], repeats: int, warmup: int) -> Timing:
    """Time what calls do on the current CUDA device, between two events of the current stream."""
    _check(repeats)
    import torch

    for _ in range(warmup):
        function()
    samples = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        function()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) / 1e3)
    return Timing(tuple(samples))


def clock_for(platform: str) -> Callable[[], float]:
    """A clock in seconds for `Executable.call_profiled`; the one for "cuda" waits until the device is idle."""
    if platform != "cuda":
        return time.perf_counter
    import torch

    def clock() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def _check(repeats: int) -> None:
    if repeats < 1:
        raise ValueError(f"a measurement needs at least 1 repeat, got {repeats}")
