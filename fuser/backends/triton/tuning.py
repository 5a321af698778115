"""Schedules by measurement: of a kernel's candidates the best few by the cost model run on the device, and the fastest is kept on disk.

In: a group and its kernel as planned. Out: the kernel with the fastest schedule. Candidates are ranked by what their machine code says
(`machine_code.report`), products by their own estimate; the first `MEASURED` are timed on arrays of the group's types. A winner is kept by
kernel, size class and device, and is at least `BETTER` than what was planned, so that noise decides nothing.
"""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource, with_schedule
from fuser.backends.triton import machine_code
from fuser.backends.triton.device import code
from fuser.backends.triton.device.compilation import Job, compile_together
from fuser.backends.triton.device.link import Linker
from fuser.backends.triton.library import library
from fuser.backends.triton.matmul import extents
from fuser.backends.triton.memory import on_device
from fuser.backends.triton.product_cost import candidates
from fuser.backends.triton.target import MACHINES, Machine
from fuser.errors import OutOfMemoryError, ToolchainError
from fuser.ir.primitive import Fusion
from fuser.ir.types import is_inexact
from fuser.kernel.schedule import Schedule
from fuser.ops.attention import attention_p
from fuser.partition.buffers import assign
from fuser.partition.group import FusionGroup, Kind, Plan, Refusal
from fuser.runtime.cache import default_cache
from fuser.runtime.core import native

MEASURED = 4  # candidates that run on the device, the planned one among them
RANKED = 12  # candidates that are compiled
BETTER = 0.97  # of the planned kernel's time that another one may take at most
SAMPLES = 3
SAMPLE_SECONDS = 2e-3
MOST_CALLS = 1024  # of a sample
LONG_WARPS = 8  # of a row, beyond which one or two are as many as a multiprocessor holds
RANDOM = 1 << 20  # different numbers that arrays are filled with

clock: Callable[[], float] = time.perf_counter  # seconds; tests put their own here


def tuned(backend: Any, group: FusionGroup, planned: KernelSource) -> KernelSource:
    """The fastest kernel of a group, `planned` where no candidate is faster or there is no device to ask."""
    if not on_device() or not tunable(group):
        return planned
    key = _key(planned)
    kept = default_cache().get_json(key)
    if isinstance(kept, dict):
        return _made(backend, group, _schedule(kept)) or planned
    found = {Schedule(): planned, **dict(variants(backend, group, planned))}
    ranked = rank(group, found)
    try:
        times = {schedule: measure(backend, group, found[schedule]) for schedule in ranked}
    except OutOfMemoryError:
        return planned
    best = min(times, key=times.__getitem__)
    if times[best] > BETTER * times[Schedule()]:
        best = Schedule()
    default_cache().put_json(key, {name: value for name, value in asdict(best).items() if value})
    return found[best]


def tunable(group: FusionGroup) -> bool:
    """Whether a group's kernel takes a schedule: those with loops or attention inside have the one that they need."""
    plain = group.kind in (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.SCAN)
    return plain or (group.kind is Kind.CONTRACTION and all(e.primitive is not attention_p for e in group.graph.eqns))


def variants(backend: Any, group: FusionGroup, planned: KernelSource) -> Iterator[tuple[Schedule, KernelSource]]:
    """Other kernels of a group that a backend makes, with the schedules that ask for them."""
    known = {_launches(planned)}
    for schedule in _schedules(group, planned):
        made = _made(backend, group, schedule)
        if made is not None and _launches(made) not in known:
            known.add(_launches(made))
            yield schedule, made


def rank(group: FusionGroup, found: dict[Schedule, KernelSource]) -> list[Schedule]:
    """The schedules that are worth a measurement, the planned one (which asks for nothing) first; the others by the cost model."""
    machine = device_machine()
    jobs = [
        Job(source, n, machine.platform, machine.arch)
        for source in found.values()
        for n in range(len(source.launch["launches"]))
    ]
    compile_together(jobs)
    scores: dict[Schedule, float] = {}
    for number, (schedule, source) in enumerate(found.items()):
        try:
            report = machine_code.report(group, source, machine)
        except ToolchainError:
            continue
        if any(launch.code.spills for launch in report.launches):
            continue
        scores[schedule] = number if group.kind is Kind.CONTRACTION else report.seconds
    others = sorted((s for s in scores if s), key=scores.__getitem__)
    return [Schedule(), *others[: MEASURED - 1]]


def device_machine() -> Machine:
    """The machine that is nearest to the device which is open."""
    arch = code.architecture()
    known = {m.arch: m for m in MACHINES.values() if isinstance(m.arch, int)}
    return known[max((a for a in known if a <= arch), default=min(known))]


def _schedules(group: FusionGroup, planned: KernelSource) -> Iterator[Schedule]:
    """What to ask a backend for: of products other tiles and parts, else half and twice as many of what a program has."""
    if group.kind is Kind.CONTRACTION:
        (dot,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT)
        for choice in candidates(extents(dot))[:RANKED]:
            tile = choice.tile.m, choice.tile.n
            yield (
                Schedule(tile=tile, stream_k=choice.streams)
                if choice.streams
                else Schedule(tile=tile, split_k=choice.splits)
            )
        return
    made = planned.schedules[group.name]
    first = made.pieces[0] if made.pieces else made
    (rows, columns), warps = first.tile or (1, 1), first.warps or 4
    if group.kind is Kind.REDUCTION and rows == 1 and warps > LONG_WARPS:
        yield from (Schedule(stages=stages) for stages in (3, 4))  # rows that are read ahead
    sizes = [1 << (side - 1).bit_length() for side in (rows, columns)]
    for height, width, factor in (
        (1, 1, 2),
        (1, 1, 0.5),
        (2, 1, 1),
        (0.5, 1, 1),
        (1, 2, 1),
        (1, 0.5, 1),
        (1, 2, 2),
        (2, 1, 2),
    ):
        tile = max(1, int(sizes[0] * height)), max(1, int(sizes[1] * width))
        shape = None if (height, width) == (1, 1) else tile
        yield Schedule(tile=shape, warps=min(32, max(1, int(warps * factor))))


def _made(backend: Any, group: FusionGroup, schedule: Schedule) -> KernelSource | None:
    made = with_schedule(backend, schedule).emit(group)
    return None if isinstance(made, Refusal) else made


def _launches(source: KernelSource) -> Any:
    return source.text, tuple(map(str, source.launch["launches"]))


def _key(source: KernelSource) -> str:
    """Equal for kernels of one text whose sizes have as many bits, on devices of one name."""
    launches = source.launch["launches"]
    text = "\n".join(
        line for line in source.text.splitlines() if not line.startswith("#")
    )  # where a user wrote it says nothing
    sizes = [[size.bit_length() for size in launch.sizes] for launch in launches]
    aligned = [launch.constants.get("ALIGNED") for launch in launches]
    dtypes = [str(dtype) for dtype in source.launch["dtypes"]]
    device = native.cuda_name(), importlib.metadata.version("triton")
    return f"schedule {text} {sizes} {aligned} {dtypes} {device}"


def _schedule(kept: dict[str, Any]) -> Schedule:
    """What was kept, as far as this version knows it."""
    known = Schedule.__dataclass_fields__
    fields: dict[str, Any] = {
        n: tuple(v) if isinstance(v, list) else v for n, v in kept.items() if n in known and n != "pieces"
    }
    return Schedule(**fields)


def measure(backend: Any, group: FusionGroup, source: KernelSource) -> float:
    """Seconds of a call on the device among many that are queued, the least of some samples."""
    slots, slot_of = assign(group.graph, (group,), {})
    plan = Plan(group.graph, (group,), (), slots, slot_of, group.graph.outvars)
    executable = Linker(backend.memory, backend.limits, library).link(plan, {group: source})
    arrays = [_filled(v.aval.shape, v.aval.dtype) for v in group.graph.invars]
    executable.call(*arrays)
    native.cuda_synchronize()
    calls = 1
    samples: list[float] = []
    while len(samples) < SAMPLES:
        start = clock()
        for _ in range(calls):
            executable.call(*arrays)
        native.cuda_synchronize()
        taken = clock() - start
        if taken < SAMPLE_SECONDS and calls < MOST_CALLS:
            calls *= 4
        else:
            samples.append(taken / calls)
    return min(samples)


def _filled(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """An array on the device: random floats, and zeros of other kinds, which are indices within any array."""
    size = math.prod(shape)
    if not is_inexact(dtype):
        return native.device_upload(np.zeros(shape, dtype))
    numbers = np.random.default_rng(0).standard_normal(min(size, RANDOM) or 1, np.float32).astype(dtype)
    return native.device_upload(np.resize(numbers, shape))
