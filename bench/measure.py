"""Timing: systems in turn inside each round, one row of figures per (workload, size, system).

A cell is one workload at one size. Each system's first call (compilation included) is timed apart. Then every round
visits all systems in a rotating order: a pause and untimed calls, in which other systems' thread pools fall asleep, and one
timed sample of as many calls as make it measurable. The first result and one after the last round are checked.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.systems import Prepared, System
from bench.workload import Workload, ideal_bytes

SAMPLE_SECONDS = 0.002  # a sample holds enough calls to last this long
# OpenMP threads spin for some milliseconds after their last work and would take a core from the next system. Telling
# them not to (OMP_WAIT_POLICY=passive) made torch and inductor up to twice as slow at medium sizes; waiting does not.
PAUSE_SECONDS = 0.01
WARM_SECONDS = 0.1  # of untimed calls before a sample: so long spin the threads of OpenBLAS, which JAX calls
CELL_SECONDS = 3.0  # a system's samples in one cell take no longer, at least MIN_ROUNDS apart
MIN_ROUNDS = 3
MAX_CALLS = 10_000


@dataclass(frozen=True)
class Settings:
    """What a run measures: rounds per cell, dtype, and the moment (perf_counter) after which nothing is begun."""

    rounds: int = 15
    dtype: str = "float32"
    deadline: float = float("inf")

    def over(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() > self.deadline


@dataclass
class Entry:
    """One system in one cell while it is being measured."""

    system: System
    prepared: Prepared
    row: dict[str, Any]
    calls: int = 1
    samples: list[float] = field(default_factory=list)


Report = Callable[[str], None]


def measure(
    workloads: list[Workload], sizes: list[str], systems: list[System], settings: Settings, say: Report = print
) -> list[dict[str, Any]]:
    """The rows of all cells; a system that refuses or fails has a row with `skipped` or `failure` in words."""
    rows: list[dict[str, Any]] = []
    for workload in workloads:
        for size in sizes:
            if size in workload.sizes:
                say(f"{workload.name} {size}")
                rows += measure_cell(workload, size, systems, settings)
    return rows


def measure_cell(workload: Workload, size: str, systems: list[System], settings: Settings) -> list[dict[str, Any]]:
    """One row per system for one workload at one size."""
    late = "the time budget was used up"
    refused = f"{workload.name} is not measured in {settings.dtype}" if settings.dtype not in workload.dtypes else None
    refused = late if settings.over() else refused
    rows = [_blank_row(workload, size, system, settings.dtype) for system in systems]
    if refused:
        return [row | {"skipped": refused} for row in rows]
    inputs = workload.inputs(size, settings.dtype)
    reference = workload.reference(inputs)
    size_facts = {
        "bytes": ideal_bytes(inputs, reference, settings.dtype),
        "flops": workload.flops(*workload.sizes[size]),
        "tolerance": workload.tolerance(settings.dtype),
    }
    entries = []
    for system, row in zip(systems, rows, strict=True):
        row.update(size_facts)
        row["skipped"] = late if settings.over() else system.refusal(workload, settings.dtype)
        if row["skipped"] is None:
            entry = _begin(system, workload, inputs, reference, settings.dtype, row)
            entries += [entry] if entry else []
    _rounds(entries, settings.rounds)
    for entry in entries:
        _check_again(entry, workload, reference, settings.dtype)
        _summarise(entry)
    return rows


def _blank_row(workload: Workload, size: str, system: System, dtype: str) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "size": size,
        "dims": list(workload.sizes[size]),
        "dtype": dtype,
        "device": system.device,
        "system": system.name,
        "skipped": None,
        "failure": None,
    }


def _begin(
    system: System, workload: Workload, inputs: Any, reference: Any, dtype: str, row: dict[str, Any]
) -> Entry | None:
    """Prepare, time the first call, check its result; None (and `failure` in the row) where that raises."""
    try:
        prepared = system.prepare(workload, inputs, dtype)
        start = time.perf_counter()
        result = prepared.launch()
        prepared.wait(result)
        row["first_call_s"] = time.perf_counter() - start
        results = prepared.fetch(result)
        del result
        _judge(row, results, workload, reference, dtype)
        del results
        entry = Entry(system, prepared, row)
        entry.calls = _calls_per_sample(prepared)
    except Exception as error:
        row["failure"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
        return None
    return entry


def _calls_per_sample(prepared: Prepared) -> int:
    """How many calls last SAMPLE_SECONDS, measured on warm calls."""
    calls = 1
    while calls < MAX_CALLS:
        seconds = _sample(prepared, calls, queues=False)
        if seconds >= SAMPLE_SECONDS:
            break
        calls = min(MAX_CALLS, max(calls + 1, int(calls * 1.2 * SAMPLE_SECONDS / max(seconds, 1e-7))))
    return calls


def _sample(prepared: Prepared, calls: int, queues: bool) -> float:
    """Seconds of `calls` calls, each complete before the next unless they queue on a device."""
    launch, wait = prepared.launch, prepared.wait
    start = time.perf_counter()
    if queues:
        for _ in range(calls):
            result = launch()
        wait(result)
    else:
        for _ in range(calls):
            result = launch()
            wait(result)
    return time.perf_counter() - start


def _rounds(entries: list[Entry], rounds: int) -> None:
    """Fill the entries' samples; a slow system leaves after MIN_ROUNDS once it has used CELL_SECONDS."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            shift = turn % max(1, len(entries))
            for entry in entries[shift:] + entries[:shift]:
                spent = sum(entry.samples) * entry.calls
                if turn >= MIN_ROUNDS and spent > CELL_SECONDS:
                    continue
                _turn(entry)
    finally:
        if enabled:
            gc.enable()
        gc.collect()


def _turn(entry: Entry) -> None:
    time.sleep(PAUSE_SECONDS)
    end = time.perf_counter() + WARM_SECONDS
    entry.prepared.wait(entry.prepared.launch())
    while time.perf_counter() < end:
        entry.prepared.wait(entry.prepared.launch())
    entry.samples.append(_sample(entry.prepared, entry.calls, entry.system.queues) / entry.calls)


def _check_again(entry: Entry, workload: Workload, reference: Any, dtype: str) -> None:
    """The last result counts as well as the first: memory that was reused too early shows after many calls."""
    result = entry.prepared.launch()
    entry.prepared.wait(result)
    _judge(entry.row, entry.prepared.fetch(result), workload, reference, dtype)


def _judge(row: dict[str, Any], results: Any, workload: Workload, reference: Any, dtype: str) -> None:
    """Enter a result's error and dtype into the row; once wrong, a row stays wrong."""
    row["error"] = max(row.get("error", 0.0), workload.error(results, reference))
    typed = [each.dtype.name == dtype or exact.dtype.kind in "iu" for each, exact in zip(results, reference)]
    row["correct"] = row["error"] <= row["tolerance"] and all(typed)
    row["result_dtype"] = results[0].dtype.name


def _summarise(entry: Entry) -> None:
    """Summarise the samples into the row."""
    samples, row = entry.samples, entry.row
    row["samples_s"] = samples
    row["calls_per_sample"] = entry.calls
    row["median_s"] = statistics.median(samples)
    row["min_s"] = min(samples)
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    row["q1_s"], row["q3_s"] = low, high
    row["gb_per_s"] = row["bytes"] / row["median_s"] / 1e9
    row["gflop_per_s"] = row["flops"] / row["median_s"] / 1e9
