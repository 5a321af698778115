"""Operations on GPU arrays outside `jit`: each primitive runs as a kernel of its own, kept by the types of its operands.

Kernels serve every size, so that a new shape is planned anew, which takes a millisecond, but compiles nothing. Arrays on
the host stay with NumPy's eval rules; where operands are mixed, all of them go to the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.backends.base import Backend
from fuser.backends.triton.library import library
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType
from fuser.legalise import legalise
from fuser.partition.group import Kind, Plan
from fuser.partition.partition import partition
from fuser.runtime.array import Array
from fuser.runtime.executable import Allocation, Executable, KernelStep, LibraryStep, Step
from fuser.trace.core import EVALUATION, infer, type_of

MOST = 4096  # programs that are kept

Program = Callable[..., list[Any]]


def install(backend: Backend) -> None:
    """Let operations on the GPU's arrays run on the GPU from now on."""
    if EVALUATION.override is None:
        EVALUATION.override = Eager(backend)


class Eager:
    """What evaluation asks first; NotImplemented leaves an operation to the host."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.programs: dict[Any, tuple[Program, list[ArrayType]]] = {}

    def __call__(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if not any(isinstance(a, Array) and not isinstance(a._data, np.ndarray) for a in args):
            return NotImplemented
        avals = tuple(type_of(a) for a in args)
        try:
            key = (primitive, avals, tuple(sorted((k, _hashable(v)) for k, v in params.items())))
            known = self.programs.get(key)
        except TypeError:  # parameters that hold graphs or arrays
            return NotImplemented
        if known is None:
            if len(self.programs) >= MOST:
                self.programs.clear()
            known = self.programs[key] = self._program(primitive, avals, params)
        program, results = known
        data = [a._data if isinstance(a, Array) else np.asarray(a) for a in args]
        computed = program(*(self.backend.memory.place(d) for d in data))
        arrays = [Array(r, aval.weak_type, aval.dtype) for r, aval in zip(computed, results)]
        return arrays if primitive.multiple_results else arrays[0]

    def _program(
        self, primitive: Primitive, avals: tuple[Any, ...], params: dict[str, Any]
    ) -> tuple[Program, list[ArrayType]]:
        out = infer(primitive, avals, params)
        inputs = tuple(Var(aval) for aval in avals)
        outputs = tuple(Var(aval) for aval in (out if primitive.multiple_results else (out,)))
        graph = Graph(inputs, (), (), (Eqn(primitive, inputs, params, outputs),), outputs, f"eager_{primitive.name}")
        plan = partition(legalise(graph, self.backend), self.backend)
        return _reshaping(plan, _executable(plan, self.backend)), [v.aval for v in outputs]


def _executable(plan: Plan, backend: Backend) -> Executable:
    sources: dict[Any, Any] = {
        group: backend.emit(group)
        for group in plan.groups
        if group.kind not in (Kind.LIBRARY, Kind.CONTROL) and not group.reason
    }
    functions = dict(zip(sources, backend.load(list(sources.values())).functions))
    steps: list[Step] = []
    for group in plan.groups:
        reads = tuple(plan.slot_of[v] for v in group.graph.invars)
        writes = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
        if group in functions:
            outputs = tuple(Allocation(plan.slot_of[v], v.aval.shape, v.aval.dtype) for v in writes)
            steps.append(KernelStep(group.name, functions[group], reads, outputs))
        else:
            steps.append(
                LibraryStep(group.name, library(group, backend.memory), reads, tuple(plan.slot_of[v] for v in writes))
            )
    results = [plan.slot_of[plan.aliases.get(v, v)] for v in plan.outputs if isinstance(v, Var)]
    return Executable([plan.slot_of[v] for v in plan.graph.invars], {}, steps, results, backend.memory.allocate)


def _reshaping(plan: Plan, executable: Executable) -> Program:
    shapes = [v.aval.shape for v in plan.outputs]
    return lambda *arrays: [r.reshape(s) for r, s in zip(executable.call(*arrays), shapes)]


def _hashable(value: Any) -> Any:
    value = tuple(value) if isinstance(value, list) else value
    hash(value)
    return value
