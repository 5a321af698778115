"""The compiler on one page: a traced graph in, an Executable out, one named stage after the other."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from fuser import passes
from fuser.backends.base import Backend, KernelSource, Loaded, emit_all, require_made, tuned
from fuser.debug.dump import dump
from fuser.ir.graph import Graph
from fuser.kernel.loop_buffers import with_loop_buffers
from fuser.legalise import legalise
from fuser.legalise.platform import on_platform
from fuser.partition.group import Plan
from fuser.partition.loop_forms import LoopForms
from fuser.partition.partition import partition
from fuser.runtime.executable import Executable
from fuser.runtime.garbage_collection import no_collection


@dataclass(frozen=True, eq=False)
class Lowering:
    """A program up to its kernel texts: everything that needs no device. The legal graph is the plan's."""

    graph: Graph
    plan: Plan
    sources: tuple[KernelSource, ...]
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled program: its lowering, what loading took, and the steps to run."""

    lowering: Lowering
    loaded: Loaded
    executable: Executable
    seconds: dict[str, float]


def lower(graph: Graph, backend: Backend, donated: Collection[int] = ()) -> Lowering:
    """Optimise, legalise, partition, emit; `donated` are the positions of inputs whose memory results may take over."""
    watch, loops = Stopwatch(), LoopForms(backend)
    with no_collection():
        optimised = passes.run(on_platform(graph, backend.memory.platform), donated)
        watch.lap("optimise")
        legal = legalise(optimised, backend, loops, donated)
        watch.lap("legalise")
        plan = partition(legal, backend, loops, donated=donated)
        plan = with_loop_buffers(plan, backend.limits)
        watch.lap("partition")
        plan, sources = emit_all(plan, backend)
        require_made(backend.asked, sources, graph.name)
        watch.lap("emit")
    lowering = Lowering(optimised, plan, sources, watch.seconds)
    dump(graph, lowering)
    return lowering


def load(lowering: Lowering, backend: Backend, device: Any = None) -> Program:
    """Measure schedules where that is asked for, compile the kernels and link the steps."""
    watch = Stopwatch(lowering.seconds)
    sources = tuned(backend, lowering.plan, lowering.sources)
    if sources is not lowering.sources:
        lowering = replace(lowering, sources=sources)
        watch.lap("tune")
    loaded = backend.load(lowering.sources, device)
    watch.lap("load")
    with no_collection():
        executable = backend.link(lowering.plan, lowering.sources, loaded)
        watch.lap("link")
    return Program(lowering, loaded, executable, watch.seconds)


class Stopwatch:
    """The seconds of stages: each from the end of the one before, or from the start."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})
        self.last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """The stage `stage` ends now."""
        now = time.perf_counter()
        self.seconds[stage], self.last = now - self.last, now
