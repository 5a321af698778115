"""The compiler on one page: a traced graph in, an Executable out, one named stage after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fuser import passes
from fuser.backends.base import Backend, KernelSource, Loaded
from fuser.debug.dump import dump
from fuser.ir.graph import Graph, Var
from fuser.partition.group import FusionGroup, Kind, Plan
from fuser.partition.partition import partition
from fuser.runtime.executable import Allocation, Executable, KernelStep, LibraryStep, Step

GENERATED = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.SCAN, Kind.LOOP)


@dataclass(frozen=True, eq=False)
class Lowering:
    """A program up to its kernel texts: everything that needs no device."""

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


def lower(graph: Graph, backend: Backend) -> Lowering:
    """Optimise, partition, emit."""
    clock = Clock()
    optimised = clock("optimise", passes.run, graph)
    plan = clock("partition", partition, optimised, backend)
    sources = clock("emit", lambda: tuple(backend.emit(group) for group in plan.groups if generated(group, backend)))
    lowering = Lowering(optimised, plan, sources, clock.seconds)
    dump(graph, lowering)
    return lowering


def load(lowering: Lowering, backend: Backend, device: Any = None) -> Program:
    """Compile the kernels and link the steps."""
    clock = Clock(lowering.seconds)
    loaded = clock("load", backend.load, lowering.sources, device)
    executable = clock("link", link, lowering.plan, lowering.sources, loaded, backend)
    return Program(lowering, loaded, executable, clock.seconds)


def generated(group: FusionGroup, backend: Backend) -> bool:
    """Whether the group becomes a generated kernel rather than a library call."""
    return group.kind in GENERATED or (group.kind is Kind.CONTRACTION and backend.limits.dots and not group.reason)


def link(plan: Plan, sources: Sequence[KernelSource], loaded: Loaded, backend: Backend) -> Executable:
    """The plan's groups as steps over its slots."""
    slot = plan.slot_of
    functions = iter(loaded.functions)
    steps: list[Step] = []
    for group in plan.groups:
        reads = tuple(slot[v] for v in group.graph.invars)
        writes = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
        if generated(group, backend):
            filled = tuple(Allocation(slot[v], v.aval.shape, v.aval.dtype, plan.reuse.get(slot[v])) for v in writes)
            steps.append(KernelStep(group.name, next(functions), reads, filled))
        else:
            steps.append(LibraryStep(group.name, backend.library(group), reads, tuple(slot[v] for v in writes)))
    graph = plan.graph
    consts = {slot[v]: backend.constant(c) for v, c in zip(graph.constvars, graph.consts)}
    inputs = [slot[v] for v in graph.invars]
    outputs = [slot[plan.aliases.get(v, v)] for v in plan.outputs if isinstance(v, Var)]
    return Executable(inputs, consts, steps, outputs, backend.allocate)


class Clock:
    """Runs a stage and notes its seconds."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})

    def __call__(self, name: str, stage: Any, *args: Any) -> Any:
        start = time.perf_counter()
        result = stage(*args)
        self.seconds[name] = time.perf_counter() - start
        return result
