"""Plan and loaded kernels → Executable: each group a step over the plan's numbered slots, which knows no IR any more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.backends.base import KernelFunction, KernelSource, Loaded, Memory
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Literal, Var
from fuser.ir.guards import has_numbers
from fuser.kernel.schedule import NOTHING_ASKED
from fuser.ops.control import cond_p, while_p
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup, FusionLimits, Kind, Plan, generated
from fuser.runtime import loops
from fuser.runtime.array import to_numpy
from fuser.runtime.cooperative import Meeting
from fuser.runtime.executable import Allocation, Executable, KernelStep, LibraryStep, Step

BYTE = np.dtype(np.uint8)
Kernels = Iterator[tuple[KernelSource, KernelFunction]]
Library = Callable[[FusionGroup, Memory], Callable[..., Any]]
Join = Callable[[Sequence[Step], Sequence[int]], Sequence[Step]]


class Stepwise:
    """The default of `link`: kernels and library calls in the plan's order."""

    memory: Memory
    limits: FusionLimits
    asked = NOTHING_ASKED

    def _library(self, group: FusionGroup, memory: Memory) -> Callable[..., Any]:
        """How a group without a kernel runs: a function of its inputs that gives its outputs."""
        return evaluated(group, memory)

    def link(self, plan: Plan, sources: Sequence[KernelSource], loaded: Loaded) -> Executable:
        kernels = zip(sources, loaded.functions, strict=True)
        return in_steps(plan, kernels, Parts(self.memory, self.limits, self._library))


def evaluated(group: FusionGroup, memory: Memory) -> Callable[..., Any]:
    """A library step by its primitives' eval rules, in NumPy: a function of the group's inputs that gives its outputs."""
    graph = group.graph
    if len(graph.eqns) == 1 and graph.eqns[0].invars == graph.invars and graph.eqns[0].outvars == graph.outvars:
        return _one(graph.eqns[0])
    return lambda *arrays: dense(evaluate(graph, arrays))


def _one(eqn: Eqn) -> Callable[..., Any]:
    """The step of one equation of the group's inputs: nothing else is looked up in a call."""
    rule, params, several = eqn.primitive.rule("eval"), eqn.params, eqn.primitive.multiple_results

    def run(*arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            result = rule(*map(to_numpy, arrays), **params)
        return dense(result if several else (result,))

    return run


def dense(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays row-major and without gaps, as kernels read them."""
    return [np.asarray(array, order="C") for array in arrays]


@dataclass(frozen=True)
class Parts:
    """What steps are linked with: a backend's memory and limits, how its library steps run, and which steps run as one."""

    memory: Memory
    limits: FusionLimits
    library: Library = evaluated
    join: Join = lambda steps, outputs: steps


def in_steps(plan: Plan, kernels: Kernels, parts: Parts) -> Executable:
    """The plan's groups as steps over its slots; `kernels` are those of the plan, in order."""
    slot, extra, memory = plan.slot_of, itertools.count(len(plan.slots)), parts.memory
    steps: list[Step] = []
    label_of: dict[int, str] = {}
    for group in plan.groups:
        reads = tuple(slot[v] for v in group.graph.invars)
        writes = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
        labels = lines(group, writes)
        label_of.update(zip((slot[v] for v in writes), labels))
        if generated(group, parts.limits):
            source, function = next(kernels)
            filled = [allocation(v, plan, label) for v, label in zip(writes, labels)]
            if workspace := source.launch.get("workspace"):
                filled.append(
                    Allocation(next(extra), (workspace,), BYTE, label=f"what {group.name} works in{at(labels)}")
                )
            steps.append(KernelStep(group.name, function, reads, tuple(filled), _keeps_gil(group)))
        else:
            function = driven(group, kernels, parts) if group.bodies else parts.library(group, memory)
            fills, label = tuple(slot[v] for v in writes), "".join(labels[:1])
            steps.append(LibraryStep(group.name, function, reads, fills, label, isinstance(function, Meeting)))
    graph = plan.graph
    consts = {slot[v]: memory.constant(c) for v, c in zip(graph.constvars, graph.consts)}
    inputs = [slot[v] for v in graph.invars]
    outputs = [slot[plan.aliases.get(v, v)] for v in plan.outputs if isinstance(v, Var)]
    types = [(v.aval.shape, v.aval.dtype) for v in graph.invars]
    joined, label = parts.join(steps, outputs), temporaries(plan, label_of)
    return Executable(inputs, consts, steps, outputs, memory.allocate, plan.arena, types, joined, label)


def as_one(plan: Plan, program: Callable[..., list[Any]], memory: Memory) -> Executable:
    """The plan as one step, a function of its inputs and constants, for a backend whose compiler takes whole programs."""
    graph = plan.graph
    inputs = [*(plan.slot_of[v] for v in graph.invars), *(plan.slot_of[v] for v in graph.constvars)]
    outputs = tuple(range(len(plan.slots), len(plan.slots) + len(plan.outputs)))
    step = LibraryStep(graph.name, program, tuple(inputs), outputs)
    consts = {plan.slot_of[v]: memory.constant(c) for v, c in zip(graph.constvars, graph.consts)}
    types = [(v.aval.shape, v.aval.dtype) for v in graph.invars]
    return Executable(inputs[: len(graph.invars)], consts, [step], outputs, memory.allocate, 0, types)


def _keeps_gil(group: FusionGroup) -> bool:
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
    if largest < 0:
        return text
    aval = plan.slots[largest].aval
    what = "of its sizes" if has_numbers(aval.shape) else aval
    return f"{text}, the largest {what}{at([label_of.get(largest, '')])}"


def driven(
    group: FusionGroup, kernels: Kernels, parts: Parts, bodies: Sequence[Callable[..., list[Any]]] = ()
) -> Callable[..., Any]:
    """Control flow over its `bodies` (the executables of its plans where none are given), step by step from Python."""
    eqn = group.graph.eqns[-1]
    params = eqn.params
    runs = bodies or [_body(plan, in_steps(plan, kernels, parts)) for plan in group.bodies]
    if eqn.primitive is while_p:
        run = loops.while_loop(runs[0], runs[1], params["cond_nconsts"], params["body_nconsts"])
    elif eqn.primitive is cond_p:
        run = loops.cond(runs)
    else:
        ys = [(v.aval.shape[1:], v.aval.dtype) for v in eqn.outvars[params["num_carry"] :]]
        counts = (params["num_consts"], params["num_carry"], params["length"])
        label = str(eqn.source)
        run = loops.scan(
            runs[0], *counts, params["reverse"], ys, lambda shape, dtype: parts.memory.allocate(shape, dtype, label)
        )
    gather = operands_of(group, parts.memory)
    return lambda *arrays: run(*gather(arrays))


def operands_of(group: FusionGroup, memory: Memory) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from a control group's inputs to its equation's operands: inputs in another shape, and literals."""
    views, position = Views(group.graph.eqns), {v: n for n, v in enumerate(group.graph.invars)}
    operands: list[tuple[int | None, Any]] = []
    for operand in group.graph.eqns[-1].invars:
        if isinstance(operand, Literal):
            operands.append((None, memory.constant(np.asarray(operand.val))))
        else:
            source = views(operand).source
            assert source is not None
            operands.append((position[source], operand.aval.shape))
    return lambda arrays: [value if n is None else arrays[n].reshape(value) for n, value in operands]


def _body(plan: Plan, executable: Executable) -> Callable[..., list[Any]]:
    """A body as a function; results that share another value's memory get their own shape."""
    shapes = [v.aval.shape if v in plan.aliases else None for v in plan.outputs]

    def run(*arrays: Any) -> list[Any]:
        return [r if shape is None else r.reshape(shape) for r, shape in zip(executable.call(*arrays), shapes)]

    return run
