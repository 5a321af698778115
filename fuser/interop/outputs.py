"""From what a traced function returned to what each call returns: arrays, NumPy scalars, Python numbers, constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.backends.base import Backend
from fuser.compile import Program
from fuser.interop.traced import TracedArray
from fuser.ir.graph import Var
from fuser.runtime.array import Array, to_numpy
from fuser.trace import tree
from fuser.trace.core import Tracer


@dataclass(frozen=True)
class Output:
    """One leaf of the results: "array", "scalar" or "number" of a program's output; "copy" or "same" of a constant."""

    kind: str
    value: Any = None

    @property
    def computed(self) -> bool:
        """Whether a program computes it."""
        return self.kind in ("array", "scalar", "number")

    @classmethod
    def of(cls, leaf: Any) -> Output:
        """How to give `leaf` back on each call."""
        if isinstance(leaf, TracedArray):
            if leaf.known:
                value = leaf.value
                return cls("same", value[()]) if leaf.scalar else cls("copy", np.array(value))
            return cls("number" if leaf.weak else "scalar" if leaf.scalar else "array")
        if isinstance(leaf, (Tracer, Array)):
            return cls("array")
        return cls("copy", np.array(leaf)) if isinstance(leaf, np.ndarray) else cls("same", leaf)


def runner(
    program: Program, outputs: tuple[Output, ...], out_tree: Any, backend: Backend
) -> Callable[[Sequence[Any]], Any]:
    """A function from the list of input arrays to the results' tree. Results never share memory."""
    call = program.executable.call if backend.platform == "cpu" else _through(program, backend)
    makers = _makers(program, outputs)
    if len(outputs) == 1 and outputs[0].computed and out_tree == tree.structure(0):
        (make,) = makers
        if make is None:
            return lambda arrays: call(*arrays)[0]
        return lambda arrays: make(call(*arrays)[0])

    def run(arrays: Sequence[Any]) -> Any:
        computed = iter(call(*arrays))
        leaves = []
        for output, make in zip(outputs, makers):
            if output.computed:
                value = next(computed)
                leaves.append(value if make is None else make(value))
            else:
                leaves.append(output.value.copy() if output.kind == "copy" else output.value)
        return tree.unflatten(out_tree, leaves)

    return run


def _through(program: Program, backend: Backend) -> Callable[..., list[np.ndarray]]:
    """The program's call with arrays taken to the device and results brought back."""
    run, place = program.executable.call, backend.place
    return lambda *arrays: [np.array(to_numpy(Array(result))) for result in run(*map(place, arrays))]


def _makers(program: Program, outputs: tuple[Output, ...]) -> list[Callable[[Any], Any] | None]:
    """For each output what is done to the program's array: None for nothing."""
    plan = program.lowering.plan
    seen: set[Any] = set()
    makers: list[Callable[[Any], Any] | None] = []
    variables = iter(plan.outputs)
    for output in outputs:
        if not output.computed:
            makers.append(None)
            continue
        operand = next(variables)
        memory = plan.aliases.get(operand, operand) if isinstance(operand, Var) else operand
        makers.append(_maker(output, operand.aval.shape, memory is not operand, memory in seen))
        seen.add(memory)
    return makers


def _maker(output: Output, shape: tuple[int, ...], reshapes: bool, shared: bool) -> Callable[[Any], Any] | None:
    if output.kind == "scalar":
        return lambda value: value.reshape(())[()]
    if output.kind == "number":
        return lambda value: value.item()
    if shared:
        return lambda value: value.reshape(shape).copy()
    return (lambda value: value.reshape(shape)) if reshapes else None
