"""The compiler on one page: a traced graph in, an Executable out, one named stage after the other."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser import passes
from fuser.backends.base import Backend, KernelFunction, KernelSource, Loaded, emit_all
from fuser.debug.dump import dump
from fuser.ir.graph import Graph, Literal, Var
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup, Kind, Plan, generated
from fuser.partition.partition import partition
from fuser.runtime import loops
from fuser.runtime.collection import no_collection
from fuser.runtime.executable import Allocation, Executable, KernelStep, LibraryStep, Step

BYTE = np.dtype(np.uint8)
Kernels = Iterator[tuple[KernelSource, KernelFunction]]


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


def lower(graph: Graph, backend: Backend, donated: Collection[int] = ()) -> Lowering:
    """Optimise, partition, emit; `donated` are the positions of inputs whose memory results may take over."""
    clock = Clock()
    with no_collection():
        optimised = clock("optimise", passes.run, graph)
        plan = clock("partition", partition, optimised, backend, donated=donated)
        sources = clock("emit", lambda: tuple(emit_all(kernel_groups(plan, backend), backend)))
    lowering = Lowering(optimised, plan, sources, clock.seconds)
    dump(graph, lowering)
    return lowering


def load(lowering: Lowering, backend: Backend, device: Any = None) -> Program:
    """Compile the kernels and link the steps."""
    clock = Clock(lowering.seconds)
    loaded = clock("load", backend.load, lowering.sources, device)
    kernels = zip(lowering.sources, loaded.functions, strict=True)
    with no_collection():
        if backend.limits.whole:
            executable = clock("link", as_one, lowering.plan, loaded, backend)
        else:
            executable = clock("link", link, lowering.plan, kernels, backend)
    return Program(lowering, loaded, executable, clock.seconds)


def kernel_groups(plan: Plan, backend: Backend) -> Iterator[FusionGroup]:
    """The groups that become kernels, those in the bodies of loops that are driven from Python among them."""
    for group in plan.groups:
        if generated(group, backend.limits):
            yield group
        else:
            for body in group.bodies:
                yield from kernel_groups(body, backend)


def link(plan: Plan, kernels: Kernels, backend: Backend) -> Executable:
    """The plan's groups as steps over its slots; `kernels` are those of the plan, in order."""
    slot, extra = plan.slot_of, itertools.count(len(plan.slots))
    steps: list[Step] = []
    label_of: dict[int, str] = {}
    for group in plan.groups:
        reads = tuple(slot[v] for v in group.graph.invars)
        writes = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
        labels = lines(group, writes)
        label_of.update(zip((slot[v] for v in writes), labels))
        if generated(group, backend.limits):
            source, function = next(kernels)
            filled = [allocation(v, plan, label) for v, label in zip(writes, labels)]
            if workspace := source.launch.get("workspace"):
                filled.append(
                    Allocation(next(extra), (workspace,), BYTE, label=f"what {group.name} works in{at(labels)}")
                )
            steps.append(KernelStep(group.name, function, reads, tuple(filled), _brief(group)))
        else:
            function = driven(group, kernels, backend) if group.bodies else backend.library(group)
            steps.append(LibraryStep(group.name, function, reads, tuple(slot[v] for v in writes), "".join(labels[:1])))
    graph = plan.graph
    consts = {slot[v]: backend.constant(c) for v, c in zip(graph.constvars, graph.consts)}
    inputs = [slot[v] for v in graph.invars]
    outputs = [slot[plan.aliases.get(v, v)] for v in plan.outputs if isinstance(v, Var)]
    types = [(v.aval.shape, v.aval.dtype) for v in graph.invars]
    joined, label = backend.joined(steps, outputs), temporaries(plan, label_of)
    return Executable(inputs, consts, steps, outputs, backend.allocate, plan.arena, types, joined, label)


def as_one(plan: Plan, loaded: Loaded, backend: Backend) -> Executable:
    """The plan as one step, for a backend whose compiler takes whole programs."""
    graph = plan.graph
    inputs = [*(plan.slot_of[v] for v in graph.invars), *(plan.slot_of[v] for v in graph.constvars)]
    outputs = tuple(range(len(plan.slots), len(plan.slots) + len(plan.outputs)))
    step = LibraryStep(graph.name, backend.whole(plan, loaded), tuple(inputs), outputs)
    consts = {plan.slot_of[v]: backend.constant(c) for v, c in zip(graph.constvars, graph.consts)}
    types = [(v.aval.shape, v.aval.dtype) for v in graph.invars]
    return Executable(inputs[: len(graph.invars)], consts, [step], outputs, backend.allocate, 0, types)


def _brief(group: FusionGroup) -> bool:
    """Whether the kernel takes a few microseconds only, so that other Python threads may as well wait."""
    looping = group.kind in (Kind.CONTROL, Kind.LOOP)
    return not looping and group.ideal_bytes <= 1 << 16 and group.flops <= 1 << 14


def allocation(var: Var, plan: Plan, label: str) -> Allocation:
    """Where a kernel's result lies."""
    slot = plan.slot_of[var]
    return Allocation(slot, var.aval.shape, var.aval.dtype, plan.reuse.get(slot), plan.offsets.get(slot), label)


def lines(group: FusionGroup, values: Sequence[Var]) -> list[str]:
    """For each value that a group computes, the user's line."""
    sources = {v: eqn.source for eqn in group.graph.eqns for v in eqn.outvars}
    return [str(sources.get(v, "")) for v in values]


def at(labels: Sequence[str]) -> str:
    """` at` the first line that is known."""
    return next((f" at {label}" for label in labels if label), "")


def temporaries(plan: Plan, label_of: dict[int, str]) -> str:
    """Whose the arena of a call is: the program's, and the line of the largest value that lies there."""
    largest = max(plan.offsets, key=lambda slot: plan.slots[slot].aval.nbytes, default=-1)
    text = f"the temporaries of {plan.graph.name}"
    return text if largest < 0 else f"{text}, the largest {plan.slots[largest].aval}{at([label_of.get(largest, '')])}"


def driven(group: FusionGroup, kernels: Kernels, backend: Backend) -> Callable[..., Any]:
    """Control flow over the executables of its bodies, step by step from Python."""
    eqn = group.graph.eqns[-1]
    params = eqn.params
    runs = [_body(plan, link(plan, kernels, backend)) for plan in group.bodies]
    if eqn.primitive.name == "while":
        run = loops.while_loop(runs[0], runs[1], params["cond_nconsts"], params["body_nconsts"])
    elif eqn.primitive.name == "cond":
        run = loops.cond(runs)
    else:
        ys = [(v.aval.shape[1:], v.aval.dtype) for v in eqn.outvars[params["num_carry"] :]]
        counts = (params["num_consts"], params["num_carry"], params["length"])
        label = str(eqn.source)
        run = loops.scan(
            runs[0], *counts, params["reverse"], ys, lambda shape, dtype: backend.allocate(shape, dtype, label)
        )
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

    def __call__(self, name: str, stage: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = stage(*args, **kwargs)
        self.seconds[name] = time.perf_counter() - start
        return result
