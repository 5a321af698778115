"""The compiler on one page: a traced graph in, an Executable out, one named stage after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser import passes
from fuser.backends.base import Backend, KernelFunction, KernelSource, Loaded
from fuser.debug.dump import dump
from fuser.ir.graph import Graph, Literal, Var
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup, Kind, Plan
from fuser.partition.partition import partition
from fuser.runtime import loops
from fuser.runtime.executable import Allocation, Executable, KernelStep, LibraryStep, Step

GENERATED = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.SCAN, Kind.LOOP, Kind.BUNDLE)


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
    sources = clock("emit", lambda: tuple(backend.emit(group) for group in kernel_groups(plan, backend)))
    lowering = Lowering(optimised, plan, sources, clock.seconds)
    dump(graph, lowering)
    return lowering


def load(lowering: Lowering, backend: Backend, device: Any = None) -> Program:
    """Compile the kernels and link the steps."""
    clock = Clock(lowering.seconds)
    loaded = clock("load", backend.load, lowering.sources, device)
    executable = clock("link", link, lowering.plan, iter(loaded.functions), backend)
    return Program(lowering, loaded, executable, clock.seconds)


def generated(group: FusionGroup, backend: Backend) -> bool:
    """Whether the group becomes a generated kernel rather than a library call or a loop driven from Python."""
    if group.kind is Kind.CONTROL:
        return bool(group.bodies) and not group.reason
    return group.kind in GENERATED or (group.kind is Kind.CONTRACTION and backend.limits.dots and not group.reason)


def kernel_groups(plan: Plan, backend: Backend) -> Iterator[FusionGroup]:
    """The groups that become kernels, those in the bodies of loops that are driven from Python among them."""
    for group in plan.groups:
        if generated(group, backend):
            yield group
        else:
            for body in group.bodies:
                yield from kernel_groups(body, backend)


def link(plan: Plan, functions: Iterator[KernelFunction], backend: Backend) -> Executable:
    """The plan's groups as steps over its slots; `functions` are those of its kernels, in order."""
    slot = plan.slot_of
    steps: list[Step] = []
    for group in plan.groups:
        reads = tuple(slot[v] for v in group.graph.invars)
        writes = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
        if generated(group, backend):
            filled = tuple(Allocation(slot[v], v.aval.shape, v.aval.dtype, plan.reuse.get(slot[v])) for v in writes)
            steps.append(KernelStep(group.name, next(functions), reads, filled))
        else:
            function = driven(group, functions, backend) if group.bodies else backend.library(group)
            steps.append(LibraryStep(group.name, function, reads, tuple(slot[v] for v in writes)))
    graph = plan.graph
    consts = {slot[v]: backend.constant(c) for v, c in zip(graph.constvars, graph.consts)}
    inputs = [slot[v] for v in graph.invars]
    outputs = [slot[plan.aliases.get(v, v)] for v in plan.outputs if isinstance(v, Var)]
    return Executable(inputs, consts, steps, outputs, backend.allocate)


def driven(group: FusionGroup, functions: Iterator[KernelFunction], backend: Backend) -> Callable[..., Any]:
    """Control flow over the executables of its bodies, step by step from Python."""
    eqn = group.graph.eqns[-1]
    params = eqn.params
    runs = [_body(plan, link(plan, functions, backend)) for plan in group.bodies]
    if eqn.primitive.name == "while":
        run = loops.while_loop(runs[0], runs[1], params["cond_nconsts"], params["body_nconsts"])
    elif eqn.primitive.name == "cond":
        run = loops.cond(runs)
    else:
        ys = [(v.aval.shape[1:], v.aval.dtype) for v in eqn.outvars[params["num_carry"] :]]
        counts = (params["num_consts"], params["num_carry"], params["length"])
        run = loops.scan(runs[0], *counts, params["reverse"], ys, backend.allocate)
    gather = operands_of(group, backend)
    return lambda *arrays: run(*gather(arrays))


def operands_of(group: FusionGroup, backend: Backend) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from a control group's inputs to its equation's operands: inputs in another shape, and literals."""
    views, position = Views(group.graph.eqns), {v: n for n, v in enumerate(group.graph.invars)}
    places: list[tuple[int | None, Any]] = []
    for operand in group.graph.eqns[-1].invars:
        if isinstance(operand, Literal):
            places.append((None, backend.constant(np.asarray(operand.val))))
        else:
            source = views(operand).source
            assert source is not None
            places.append((position[source], operand.aval.shape))
    return lambda arrays: [value if n is None else arrays[n].reshape(value) for n, value in places]


def _body(plan: Plan, executable: Executable) -> Callable[..., list[Any]]:
    """A body as a function; results that share another value's memory get their own shape."""
    shapes = [v.aval.shape if v in plan.aliases else None for v in plan.outputs]

    def run(*arrays: Any) -> list[Any]:
        return [r if shape is None else r.reshape(shape) for r, shape in zip(executable.call(*arrays), shapes)]

    return run


class Clock:
    """Runs a stage and notes its seconds."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})

    def __call__(self, name: str, stage: Any, *args: Any) -> Any:
        start = time.perf_counter()
        result = stage(*args)
        self.seconds[name] = time.perf_counter() - start
        return result
