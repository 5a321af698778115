"""`profile(f)(*args)`: compile f for its arguments, run it step by step with a clock, and report.

In: a function and arguments. Out: a `ProgramProfile`: stages and bytes from compiling and from the plan, times as
medians and minima over runs in which whole calls and calls timed step by step take turns.
"""

from __future__ import annotations

import dataclasses
import functools
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.api.jitted import Compiled, Jitted, Traced, cost_analysis, jit
from fuser.backends.base import Backend, machine_target
from fuser.errors import ToolchainError
from fuser.interop.arguments import is_dynamic
from fuser.interop.stages import AcceleratedTraced
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value
from fuser.partition.group import FusionGroup, kernel_groups
from fuser.report.data import KernelProfile, Machine, ProgramProfile, Refusal, Stage
from fuser.report.estimate import estimated
from fuser.report.lines import user_lines
from fuser.report.picture import picture
from fuser.report.planned import planned
from fuser.report.traffic import bytes_moved
from fuser.report.units import seconds
from fuser.runtime import roofline, toolchain
from fuser.runtime.array import Array
from fuser.runtime.device import CPU, Device, cpu_count, cpu_name, devices
from fuser.runtime.profiler import clock_for
from fuser.runtime.toolchain import thread_count
from fuser.trace import tree

BUDGET = 1.0  # seconds of measuring, where `repeats` does not say how often
FEWEST, MOST = 5, 200
STRAYS = 2.0  # times that an estimate may be wrong by, without a note
LEAST_STRAYING = 20e-6  # seconds of a kernel, below which a call and a clock are what is measured
WARMUP = 2  # runs that fill the memory pool and wake the threads


def profile(function: Callable[..., Any], *, repeats: int | None = None) -> Callable[..., ProgramProfile]:
    """A function of `function`'s arguments that compiles and runs it, and returns a `ProgramProfile`.

    `function` is a plain function, one that `jit` made, or any callable whose `.trace(*args)` gives a `Traced` of its
    array arguments. `repeats` runs are timed; if None, as many as fit in a second, from 5 to 200. Arguments are never
    donated, so that a call can be repeated. What a backend compiles whole is not run: the profile is the plan's.
    """
    if repeats is not None and repeats < 1:
        raise ValueError(f"a profile needs at least 1 repeat, got {repeats}")
    traceable = function if hasattr(function, "trace") else jit(function)

    @functools.wraps(function)
    def profiled(*args: Any, **kwargs: Any) -> ProgramProfile:
        start = time.perf_counter()
        traced: Traced = traceable.trace(*args, **kwargs)
        took = time.perf_counter() - start
        if traced._backend.limits.whole:
            return planned(traced, took, input_names(traceable, traced, args, kwargs))
        run = Run(traceable, traced, took, args, kwargs)
        return run.report(run.times(repeats))

    return profiled


@dataclass(frozen=True)
class Times:
    """Seconds of each whole call, and of each step in each call that was timed step by step."""

    calls: tuple[float, ...]
    steps: tuple[tuple[float, ...], ...]


class Run:
    """One function compiled for one set of arguments, ready to be timed."""

    def __init__(
        self, traceable: Any, traced: Traced, trace_seconds: float, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.trace_seconds = trace_seconds
        self.donates = bool(traced.donated)
        traced.donated = ()
        self.backend = traced._backend
        self.device = _device_of(self.backend)
        self.compiled: Compiled = traced.lower().compile()
        self.clock = clock_for(self.backend.memory.platform)
        self.input_names = input_names(traceable, traced, args, kwargs)
        if isinstance(traceable, Jitted):
            _, args, kwargs = traceable._split(args, kwargs)
            self.call = functools.partial(self.compiled, *args, **kwargs)
        else:
            self.call = functools.partial(traceable, *args, **kwargs)
        self.arrays = input_arrays(self.compiled, args, kwargs)

    def times(self, repeats: int | None) -> Times:
        """Whole calls and calls timed step by step, in turn; the machine's moods meet both."""
        for _ in range(WARMUP):
            self._steps()
            first = self._whole()
        if repeats is None:
            repeats = min(MOST, max(FEWEST, int(BUDGET / (2 * first + 1e-9))))
        rounds = [(self._whole(), self._steps()) for _ in range(repeats)]
        calls, steps = zip(*rounds)
        return Times(calls, tuple(zip(*steps)))

    def _whole(self) -> float:
        start = self.clock()
        result = self.call()
        seconds = self.clock() - start
        del result
        return seconds

    def _steps(self) -> tuple[float, ...]:
        return tuple(seconds for _, seconds in self.compiled.executable.call_profiled(self.arrays, self.clock)[1])

    def report(self, times: Times) -> ProgramProfile:
        """All that is known of the program, with these times."""
        plan, program = self.compiled.plan, self.compiled.program
        kernels = self._kernels(times)
        memory = self.compiled.memory_analysis()
        return ProgramProfile(
            name=plan.graph.name,
            machine=self._machine(kernels),
            stages=tuple(
                Stage(name, seconds) for name, seconds in {"trace": self.trace_seconds, **program.seconds}.items()
            ),
            kernels=kernels,
            refused=tuple(Refusal(d.first, d.second, d.reason) for d in dict.fromkeys(plan.decisions)),
            launches=len(kernels),
            repeats=len(times.calls),
            median_seconds=statistics.median(times.calls),
            min_seconds=min(times.calls),
            peak_bytes=memory.argument_size_in_bytes + memory.peak_memory_in_bytes,
            planned_bytes=sum(kernel.bytes_moved for kernel in kernels),
            ideal_bytes=int(cost_analysis(plan)["optimal bytes"]),
            graph=picture(plan, self.input_names),
            notes=(*self._notes(), *strays(kernels)),
        )

    def _machine(self, kernels: Sequence[KernelProfile]) -> Machine:
        """The machine; a kernel faster than its measured peak shows that the measurement was disturbed, and raises it."""
        known = machine(self.backend, self.device)
        peak = max(known.peak_flops, *(kernel.flops / kernel.min_seconds for kernel in kernels), 0.0)
        return dataclasses.replace(known, peak_flops=peak)

    def _kernels(self, times: Times) -> tuple[KernelProfile, ...]:
        """A profile of each step. The compiler runs once a program, so a kernel's part is that of its text."""
        loaded, sources = self.compiled.program.loaded, self.compiled.sources
        length = sum(len(source.text) for source in self.compiled.sources)
        made = []
        workers = thread_count() if self.backend.memory.platform == "cpu" else 1
        of_group = dict(zip(kernel_groups(self.compiled.plan, self.backend.limits), sources))
        estimates = estimated(self.compiled.plan, machine_target(self.backend), of_group, workers)
        for group, samples, expected in zip(self.compiled.plan.groups, times.steps, estimates, strict=True):
            source = of_group.get(group)
            text = source.text if source else ""
            made.append(KernelProfile(
                name=group.name, kind=group.kind.value, lines=user_lines(group.sources), ops=group.ops,
                bytes_ideal=group.ideal_bytes, bytes_moved=bytes_moved(group, source is not None), flops=group.flops,
                median_seconds=statistics.median(samples), min_seconds=min(samples),
                compile_seconds=loaded.seconds * len(text) / length if text else 0.0,
                cache_hit=source is not None and loaded.cached,
                language=source.language if source else "", text=text,
                estimated_seconds=expected.seconds if expected is not None else 0.0,
            ))  # fmt: skip
        return tuple(made)

    def _notes(self) -> list[str]:
        notes = [_library_note(group) for group in self.compiled.plan.groups if group.reason]
        if len(self.compiled.sources) > 1 and not self.compiled.program.loaded.cached:
            notes.append(
                "The compiler ran once for all kernels; each kernel's compile time is its share by length of text."
            )
        if self.backend.memory.platform != "cpu":
            notes.append("Each kernel's time includes its launch: the device was idle before it.")
        if self.donates:
            notes.append("Donated arguments were kept, so that the call could be repeated.")
        return list(dict.fromkeys(notes))


def input_names(traceable: Any, traced: Traced, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """What the user calls the arrays that the program takes."""
    if not isinstance(traceable, Jitted):
        return tree.paths((args, kwargs))
    _, args, kwargs = traceable._split(args, kwargs)
    if isinstance(traced, AcceleratedTraced):
        arguments = [n for n, leaf in enumerate(tree.leaves((args, kwargs))) if is_dynamic(leaf)]
        return [*(traceable._path(n, (args, kwargs)) for n in arguments), *traced.outside_names]
    return [traceable._path(n, (args, kwargs)) for n in range(len(traced.graph.invars))]


def input_arrays(compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What the program's steps read, where they can read it; `args` and `kwargs` are without static arguments."""
    if isinstance(compiled.traced, AcceleratedTraced):  # its signature holds integers, and it reads arrays from outside
        leaves = compiled.traced.inputs(args, kwargs)
    else:
        leaves = tree.leaves((args, kwargs))
    place = compiled.traced._backend.memory.place
    return [place(_array(leaf, aval)) for leaf, aval in zip(leaves, compiled.traced.graph.in_avals, strict=True)]


def _array(leaf: Any, aval: ArrayType) -> Any:
    """An argument's memory, in the dtype that was traced."""
    if isinstance(leaf, Array) or hasattr(leaf, "data_ptr"):
        return as_value(leaf)._data
    return np.asarray(leaf).astype(aval.dtype, copy=False)


def _device_of(backend: Backend) -> Device:
    """Where a backend's programs run; RuntimeError where this machine has no such device."""
    platform = backend.memory.platform
    if platform == "cpu":
        return CPU
    try:
        return devices(platform)[0]
    except RuntimeError as error:
        raise RuntimeError(
            f"{error}, and to profile a function of the backend {backend.name} is to run it there; set FUSER_BACKEND=c, or compile "
            "it without the device: python -m fuser compile --target"
        ) from None


def strays(kernels: Sequence[KernelProfile]) -> Iterator[str]:
    """A note of each kernel that takes far longer or shorter than the cost model says."""
    for kernel in kernels:
        if kernel.strays > STRAYS and kernel.median_seconds > LEAST_STRAYING:
            yield (
                f"{kernel.name} was estimated to take {seconds(kernel.estimated_seconds)} and takes "
                f"{seconds(kernel.median_seconds)}: what the planner decided about it may not hold."
            )


def _library_note(group: FusionGroup) -> str:
    return f"{group.name} is no generated kernel: {group.reason}."


def machine(backend: Backend, device: Device) -> Machine:
    """The machine of a device, with its measured limits and the versions that matter."""
    versions = [("python", platform.python_version()), ("numpy", np.__version__), *_toolchain(backend)]
    name = cpu_name() if device.platform == "cpu" else device.kind
    bandwidth, peak = roofline.copy_bandwidth(device), roofline.peak_flops(device)
    cores = cpu_count() if device.platform == "cpu" else 0
    return Machine(name, cores, bandwidth, peak, backend.name, tuple(versions))


def _toolchain(backend: Backend) -> list[tuple[str, str]]:
    """The compiler that the backend's kernels go through."""
    if backend.name == "c":
        try:
            return [("compiler", toolchain.compiler_version(toolchain.find_compiler()))]
        except ToolchainError:
            return []
    if backend.name == "triton":
        import torch
        import triton

        return [("torch", torch.__version__), ("triton", triton.__version__)]
    return []
