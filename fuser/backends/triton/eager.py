"""Operations on GPU arrays outside `jit`: each primitive runs as a kernel of its own, kept by the types of its operands.

Kernels serve every size, so that a new shape is planned anew, which takes a millisecond, but compiles nothing. Arrays on
the host stay with NumPy's eval rules; where operands are mixed, all of them go to the GPU. What makes an array of numbers
runs there too where arrays are a GPU's by default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.backends.base import Backend, emit_all
from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType
from fuser.legalise import legalise
from fuser.partition.group import Plan
from fuser.partition.partition import partition
from fuser.runtime.array import Array, on_gpu
from fuser.runtime.core import native
from fuser.runtime.device import default_platform
from fuser.runtime.executable import Executable
from fuser.trace.core import EVALUATION, infer, type_of

MOST = 4096  # programs that are kept
DEVICE_ARRAY = None if native is None else native.DeviceArray

Program = Callable[..., list[Any]]


def install(backend: Backend) -> None:
    """Let operations on the GPU's arrays run on the GPU from now on."""
    if not isinstance(EVALUATION.on_gpu, Eager):
        EVALUATION.on_gpu = Eager(backend)


class Eager:
    """What evaluation asks; NotImplemented leaves an operation to the host."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.programs: dict[Any, tuple[Program, list[ArrayType]]] = {}

    def __call__(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        avals = tuple(type_of(a) for a in args)
        if not any(isinstance(a, Array) and on_gpu(a._data) for a in args) and not _begins(primitive, avals, params):
            return NotImplemented
        try:
            key = (
                native.cuda_device() if native is not None else 0,
                primitive,
                avals,
                tuple(sorted((k, _hashable(v)) for k, v in params.items())),
            )
            known = self.programs.get(key)
        except TypeError:  # parameters that hold graphs or arrays
            return NotImplemented
        if known is None:
            if len(self.programs) >= MOST:
                self.programs.clear()
            known = self.programs[key] = self._program(primitive, avals, params)
        program, results = known
        data = [a._data if isinstance(a, Array) else np.asarray(a) for a in args]
        if not all(type(d) is DEVICE_ARRAY for d in data):
            place = self.backend.memory.place
            data = [place(d) for d in data]
        computed = program(*data)
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


def _begins(primitive: Primitive, avals: tuple[Any, ...], params: dict[str, Any]) -> bool:
    """Whether the operation makes an array of numbers alone, where arrays are a GPU's unless they are told where to."""
    if any(aval.shape for aval in avals) or config.backend not in (None, "", "triton") or default_platform() != "cuda":
        return False
    out = infer(primitive, avals, params)
    return any(aval.shape for aval in (out if primitive.multiple_results else (out,)))


def _executable(plan: Plan, backend: Backend) -> Executable:
    plan, sources = emit_all(plan, backend)
    return backend.link(plan, sources, backend.load(sources))


def _reshaping(plan: Plan, executable: Executable) -> Program:
    """The executable, with results of which one is another's memory in a shape of its own."""
    if all(v in plan.slot_of and plan.aliases.get(v, v) is v for v in plan.outputs):
        return executable.call
    shapes = [v.aval.shape for v in plan.outputs]
    return lambda *arrays: [r.reshape(s) for r, s in zip(executable.call(*arrays), shapes)]


def _hashable(value: Any) -> Any:
    value = tuple(value) if isinstance(value, list) else value
    hash(value)
    return value
