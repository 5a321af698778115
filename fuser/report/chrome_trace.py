"""The report as a trace for chrome://tracing and ui.perfetto.dev, in the Trace Event Format.

In: a profile. Out: JSON with the stages of compiling on one track and the kernels of one call on another, one after
the other by their median times; what a call takes between kernels stands at its end.
"""

from __future__ import annotations

import json
from typing import Any

from fuser.report.data import ProgramProfile, Stage
from fuser.report.serialise import derived

PROCESS = 1
COMPILING, CALL = 1, 2
MICROSECONDS = 1e6


def chrome_trace(profile: ProgramProfile) -> str:
    """The trace as ASCII JSON."""
    document = {"traceEvents": events(profile), "displayTimeUnit": "ms", "otherData": _machine(profile)}
    return json.dumps(document, indent=1, allow_nan=False)


def events(profile: ProgramProfile) -> list[dict[str, Any]]:
    """Metadata events that name the tracks, then a complete event for each stage and kernel; times in µs."""
    named = [
        _name("process_name", 0, f"{profile.name} ({profile.machine.backend} on {profile.machine.name})"),
        _name("thread_name", COMPILING, "compiling, once"),
        _name("thread_name", CALL, "one call, median times"),
    ]
    stages = _in_turn(COMPILING, "compile", 0.0, [(stage, {}) for stage in profile.stages])
    start = profile.compile_seconds * MICROSECONDS
    kernels = [
        (Stage(kernel.name, kernel.median_seconds), _arguments(profile, index))
        for index, kernel in enumerate(profile.kernels)
    ]
    if profile.between_seconds > 0:
        kernels.append((Stage("between kernels", profile.between_seconds), {}))
    return named + stages + _in_turn(CALL, "kernel", start, kernels)


def _name(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": PROCESS, "tid": thread, "args": {"name": name}}


def _in_turn(
    thread: int, category: str, start: float, spans: list[tuple[Stage, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Complete events on one track, each beginning where the one before ends."""
    made = []
    for span, arguments in spans:
        duration = span.seconds * MICROSECONDS
        made.append({
            "ph": "X", "name": span.name, "cat": category, "pid": PROCESS, "tid": thread,
            "ts": start, "dur": duration, "args": arguments,
        })  # fmt: skip
        start += duration
    return made


def _arguments(profile: ProgramProfile, index: int) -> dict[str, Any]:
    kernel = profile.kernels[index]
    return {
        "kind": kernel.kind,
        "lines": [line.where for line in kernel.lines],
        "ops": list(kernel.ops),
        "bytes_ideal": kernel.bytes_ideal,
        "bytes_moved": kernel.bytes_moved,
        "flops": kernel.flops,
        "min_seconds": kernel.min_seconds,
        "compile_seconds": kernel.compile_seconds,
        "cache_hit": kernel.cache_hit,
        **derived(kernel, profile),
    }


def _machine(profile: ProgramProfile) -> dict[str, Any]:
    machine = profile.machine
    return {
        "machine": machine.name,
        "backend": machine.backend,
        "copy_bandwidth": machine.copy_bandwidth,
        "peak_flops": machine.peak_flops,
        **{f"version {name}": version for name, version in machine.versions},
    }
