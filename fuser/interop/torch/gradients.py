"""Gradients of accelerated functions: a traced graph as an operation of torch's autograd.

The forward program gives the results and the residuals of its derivative, the backward one takes those and cotangents. Where
torch asks for derivatives of the gradients too, they are computed from the inputs, by an operation of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import fuser.numpy as fnp
from fuser.api.stages import Traced
from fuser.backends.base import Backend
from fuser.compile import Lowering, load, lower
from fuser.config import config
from fuser.ir.graph import Graph, Var
from fuser.ir.types import ArrayType, is_inexact
from fuser.runtime.array import Array, from_torch
from fuser.runtime.garbage_collection import no_collection
from fuser.trace import tree
from fuser.trace.replay import replay
from fuser.trace.stage import stage
from fuser.transforms.linear import vjp

Tensors = list[torch.Tensor]


class Differentiable:
    """A graph called with tensors: torch records how its results depend on those that require gradients."""

    def __init__(self, graph: Graph, backend: Backend, device: torch.device) -> None:
        self.graph, self.backend, self.device = graph, backend, device
        self._derivatives: dict[tuple[int, ...], _Derivative] = {}

    def __call__(self, values: Sequence[Any]) -> Tensors:
        """The results for tensors, and numbers in their place, of the types of the graph's inputs."""
        tensors = [_tensor(value, aval, self.device) for value, aval in zip(values, self.graph.in_avals, strict=True)]
        wanted = tuple(n for n, t in enumerate(tensors) if t.requires_grad and is_inexact(self.graph.in_avals[n].dtype))
        derivative = self._derivatives.get(wanted)
        if derivative is None:
            derivative = self._derivatives[wanted] = _Derivative(self, wanted)
        return list(_Operation.apply(derivative, *tensors))  # type: ignore[no-untyped-call]


class _Derivative:
    """A graph with its derivative by the inputs `wanted`."""

    def __init__(self, source: Differentiable, wanted: tuple[int, ...]) -> None:
        self.source, self.wanted = source, wanted
        self.inexact = tuple(n for n, aval in enumerate(source.graph.out_avals) if is_inexact(aval.dtype))
        self.structure: Any = None
        graph = self._staged(self._with_residuals, source.graph.in_avals)
        count = len(source.graph.outvars)
        self.residual_avals = [v.aval for v in graph.outvars[count:]]
        self.origins = _origins(graph, count)  # of residuals: ("input" or "result", number)
        made = {n: v for v, (kind, n) in zip(graph.outvars[count:], self.origins) if kind == "result" and n >= count}
        self.forward = self._program(graph.updated("residuals", outvars=(*graph.outvars[:count], *made.values())))
        self._backward: Callable[[Sequence[torch.Tensor]], Tensors] | None = None
        self._again: Differentiable | None = None

    def _staged(self, function: Callable[..., Any], avals: Sequence[ArrayType]) -> Graph:
        with config.using(enable_x64=True), no_collection():
            return stage(function, list(avals), f"{self.source.graph.name}")

    def _program(self, graph: Graph) -> Callable[[Sequence[torch.Tensor]], Tensors]:
        return program(graph, self.source.backend, self.source.device)

    def _pulled(self, *inputs: Any) -> tuple[list[Any], Any]:
        """The results, and the pullback of the inexact ones by the inputs that are wanted."""

        def chosen(*values: Any) -> Any:
            arguments = list(inputs)
            for n, value in zip(self.wanted, values):
                arguments[n] = value
            found = replay(self.source.graph, *arguments)
            return [found[n] for n in self.inexact], found

        _, pull, found = vjp(chosen, *[inputs[n] for n in self.wanted], has_aux=True)
        return found, pull

    def _with_residuals(self, *inputs: Any) -> list[Any]:
        found, pull = self._pulled(*inputs)
        residuals, self.structure = tree.flatten(pull)
        return [*found, *residuals]

    @property
    def cotangents(self) -> list[ArrayType]:
        """The types of the cotangents of inexact results."""
        avals = self.source.graph.out_avals
        return [ArrayType(avals[n].shape, avals[n].dtype) for n in self.inexact]

    def backward(self, residuals: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]) -> Tensors:
        """The cotangents of the inputs wanted, from the residuals."""
        if self._backward is None:
            count = len(self.residual_avals)

            def pulled(*values: Any) -> list[Any]:
                return conjugated(tree.unflatten(self.structure, values[:count])(conjugated(values[count:])))

            self._backward = self._program(self._staged(pulled, [*self.residual_avals, *self.cotangents]))
        return self._backward([*residuals, *cotangents])

    def again(self, inputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]) -> Tensors:
        """The same from the inputs, so that torch can differentiate it."""
        if self._again is None:
            count = len(inputs)

            def pulled(*values: Any) -> list[Any]:
                return conjugated(self._pulled(*values[:count])[1](conjugated(values[count:])))

            graph = self._staged(pulled, [*self.source.graph.in_avals, *self.cotangents])
            self._again = Differentiable(graph, self.source.backend, self.source.device)
        return self._again([*inputs, *cotangents])


def conjugated(values: Sequence[Any]) -> list[Any]:
    """torch's cotangents of complex numbers are the conjugates of those of `vjp`."""
    return [fnp.conj(v) if v.dtype.kind == "c" else v for v in values]


def _origins(graph: Graph, count: int) -> list[tuple[str, int]]:
    """Where each result of the graph after the first `count` comes from: an input, or a result's number without repetition."""
    inputs = {v: n for n, v in enumerate(graph.invars)}
    results: dict[Any, int] = {}
    for n, v in enumerate(graph.outvars[:count]):
        results.setdefault(v, n)
    found, following = [], count
    for v in graph.outvars[count:]:
        if isinstance(v, Var) and v in inputs:
            found.append(("input", inputs[v]))
        elif isinstance(v, Var) and v in results:
            found.append(("result", results[v]))
        else:
            found.append(("result", following))
            if isinstance(v, Var):
                results[v] = following
            following += 1
    return found


class _Operation(torch.autograd.Function):
    """`derivative` is a _Derivative, the tensors are the inputs of its graph."""

    @staticmethod
    def forward(context: Any, derivative: _Derivative, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = len(derivative.source.graph.outvars)
        results = derivative.forward(tensors)
        context.derivative, context.count = derivative, count
        context.save_for_backward(*tensors, *results)
        exact = [r for n, r in enumerate(results[:count]) if n not in derivative.inexact]
        context.mark_non_differentiable(*exact)
        return tuple(results[:count])

    @staticmethod
    def backward(context: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        derivative: _Derivative = context.derivative
        saved = context.saved_tensors
        inputs = saved[: len(derivative.source.graph.invars)]
        given = [cotangents[n] for n in derivative.inexact]
        if torch.is_grad_enabled():
            found = derivative.again(inputs, given)
        else:
            results = saved[len(inputs) :]
            found = derivative.backward(
                [(inputs if k == "input" else results)[n] for k, n in derivative.origins], given
            )
        gradients: list[torch.Tensor | None] = [None] * len(inputs)
        for n, gradient in zip(derivative.wanted, found):
            gradients[n] = gradient
        return None, *gradients


def program(graph: Graph, backend: Backend, device: torch.device) -> Callable[[Sequence[torch.Tensor]], Tensors]:
    """A graph compiled: from tensors to tensors that share no memory with others."""
    with config.using(enable_x64=True):
        lowering = lower(Traced(graph, None, None, (), backend).graph, backend)
        call, place = load(lowering, backend).executable.call, backend.memory.place
    shapes = [aval.shape for aval in graph.out_avals]
    shared = shared_results(lowering, len(shapes))

    def run(tensors: Sequence[torch.Tensor]) -> Tensors:
        found = call(*[place(from_torch(tensor.detach())._data) for tensor in tensors])
        made = [Array(array).torch().reshape(shape).to(device) for array, shape in zip(found, shapes)]
        for n in shared:
            made[n] = made[n].clone()
        return made

    return run


def shared_results(lowering: Lowering, count: int) -> list[int]:
    """Which of the first `count` results own no memory of theirs: an input, a constant, or what an earlier result is too."""
    plan = lowering.plan
    seen: set[Any] = {*plan.graph.invars, *plan.graph.constvars}
    found = []
    for n, operand in enumerate(plan.outputs[:count]):
        memory = plan.aliases.get(operand, operand) if isinstance(operand, Var) else operand
        if not isinstance(memory, Var) or memory in seen:
            found.append(n)
        else:
            seen.add(memory)
    return found


def _tensor(value: Any, aval: ArrayType, device: torch.device) -> torch.Tensor:
    """A number as a tensor, and a tensor on the device of the program's."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.from_numpy(np.asarray(value, aval.dtype)).to(device)
