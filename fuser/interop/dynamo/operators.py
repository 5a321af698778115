"""Functions of arrays as operators of torch's: they survive torch.compile and torch.export, and have gradients.

The operator and its gradient are two entries of torch.library. Under torch.compile(backend="fuser") both have a rule, so they join
the programs around them; other backends, exported programs and eager torch call a program of their own for each signature.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuser import backends
from fuser.config import config
from fuser.errors import InconclusiveDimensionOperation
from fuser.interop.dynamo.internals import parse_schema
from fuser.interop.dynamo.rules.table import TABLE
from fuser.interop.torch.gradients import conjugated, program
from fuser.interop.torch.tensors import torch_dtype
from fuser.ir.dim import Scope, evaluated
from fuser.ir.graph import Graph
from fuser.ir.types import ArrayType, is_inexact
from fuser.runtime.array import numpy_dtype
from fuser.runtime.garbage_collection import no_collection
from fuser.trace.stage import stage
from fuser.transforms.linear import vjp

OWN: set[str] = set()  # the operators that are functions of the user's, by their names in TABLE
_BACKENDS = {"cpu": "c", "cuda": "triton"}


def operator(name: str, function: Callable[..., Any] | None = None) -> Any:
    """`function` as the operator `torch.ops.NAMESPACE.NAME`, for a `name` "namespace::name"; without `function`, a decorator.

    The function is written with fuser.numpy; its annotations say which parameters and results are `torch.Tensor`, and which
    parameters are numbers, strings or lists of them. It must not have effects. Its gradient is that of `fuser.vjp`, and is
    not differentiable. ValueError for annotations that torch.library cannot express.
    """
    if function is None:
        return functools.partial(operator, name)
    schema = torch.library.infer_schema(function, mutates_args=())
    forward = _Entry(name, schema, function)
    gradients = _Gradients(name, function, schema)
    backward = _Entry(f"{name}_backward", gradients.schema, gradients)

    def remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = list(output) if isinstance(output, (tuple, list)) else [output]
        ctx.inexact = [_is_inexact(x) for x in results]
        ctx.save_for_backward(*[x for x in inputs if isinstance(x, torch.Tensor)])
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in inputs]

    def differentiated(ctx: Any, *cotangents: Any) -> Any:
        flat = cotangents[0] if isinstance(cotangents[0], (tuple, list)) else cotangents
        given = [c for c, inexact in zip(flat, ctx.inexact) if inexact]
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved) if is_tensor else other for is_tensor, other in zip(gradients.tensors, ctx.others)]
        found = iter(backward.call(given, *inputs))
        return tuple(
            next(found) if is_tensor and _is_inexact(x) else None for is_tensor, x in zip(gradients.tensors, inputs)
        )

    forward.call.register_autograd(differentiated, setup_context=remember)
    return forward.call


class _Entry:
    """One operator: its registration, and its programs by signature."""

    def __init__(self, name: str, schema: str, function: Callable[..., Any]) -> None:
        self.function = function
        self._programs: dict[Any, Any] = {}
        self.call = torch.library.custom_op(name, self._run, mutates_args=(), schema=schema)
        self.call.register_fake(self._described)
        own = f"{name.replace('::', '.')}.default"
        OWN.add(own)
        TABLE[own] = lambda dtype, *arguments: self.function(*arguments)

    def _run(self, *arguments: Any) -> Any:
        flat, key = _signature(arguments)
        run = self._programs.get(key)
        if run is None:
            device = _device(flat)
            graph = self._graph(arguments)
            run = self._programs[key] = program(graph, backends.get(_BACKENDS[device.type]), device)
        return self._packed(run(flat))

    def _described(self, *arguments: Any) -> Any:
        """The results' types, with symbolic sizes as they follow from those of the arguments; where what the function does depends on
        a size, it becomes that of the example."""
        flat, _ = _signature(arguments)
        device = _device(flat)
        symbolic = list({str(e): e for x in flat for e in x.shape if isinstance(e, torch.SymInt)}.values())
        types = self._types_for_all_sizes(arguments, symbolic) if symbolic else None
        if types is None:
            types = [(a.shape, a.dtype) for a in self._graph(arguments).out_avals]
        return self._packed([torch.empty(shape, dtype=torch_dtype(dtype), device=device) for shape, dtype in types])

    def _types_for_all_sizes(self, arguments: Sequence[Any], symbolic: Sequence[Any]) -> list[Any] | None:
        """Shapes and dtypes of the results in terms of `symbolic`; None where they are not the same for all sizes."""
        found = []
        for witness in range(2):
            scope = Scope(witness)
            names: dict[str, Any] = {str(e): scope.variable(f"n{k}") for k, e in enumerate(symbolic)}
            extent = functools.partial(_named, names)
            try:
                avals = self._graph(arguments, extent).out_avals
            except (InconclusiveDimensionOperation, TypeError, ValueError):
                return None
            found.append([(tuple(map(str, a.shape)), a.dtype) for a in avals])
        sizes = {f"n{k}": e for k, e in enumerate(symbolic)}
        same = found[0] == found[1]
        return [(tuple(evaluated(e, sizes) for e in a.shape), a.dtype) for a in avals] if same else None

    def _packed(self, results: Sequence[Any]) -> Any:
        returns = self.call._opoverload._schema.returns
        if len(returns) == 1:
            return results[0] if str(returns[0].type) == "Tensor" else list(results)
        return tuple(results)

    def _graph(self, arguments: Sequence[Any], extent: Callable[[Any], Any] = int) -> Graph:
        flat, _ = _signature(arguments)

        def traced(*arrays: Any) -> list[Any]:
            rest = iter(arrays)
            found = self.function(*_mapped(arguments, lambda x: next(rest)))
            return list(found) if isinstance(found, (tuple, list)) else [found]

        avals = [ArrayType(tuple(extent(e) for e in x.shape), numpy_dtype(x.dtype)) for x in flat]
        with config.using(enable_x64=True), no_collection():
            return stage(traced, avals, getattr(self.function, "__name__", "operator"))


class _Gradients:
    """The cotangents of an operator's floating-point tensors, from those of its results and from its arguments."""

    def __init__(self, name: str, function: Callable[..., Any], schema: str) -> None:
        self.function = function
        self.__name__ = f"{function.__name__}_backward"
        parameters = parse_schema(f"f{schema}").arguments
        if any("Tensor[]" in str(p.type) or "List[Tensor]" in str(p.type) for p in parameters):
            raise ValueError(f"operator {name} takes a list of tensors; give each a parameter of its own")
        self.tensors = [str(p.type) == "Tensor" for p in parameters]
        self.schema = f"(Tensor[] cotangents, {schema[1 : schema.rindex('->')].strip()[:-1]}) -> Tensor[]"

    def __call__(self, cotangents: Sequence[Any], *arguments: Any) -> list[Any]:
        chosen = [n for n, x in enumerate(arguments) if self.tensors[n] and is_inexact(x.dtype)]

        def function(*values: Any) -> list[Any]:
            given = list(arguments)
            for n, value in zip(chosen, values):
                given[n] = value
            found = self.function(*given)
            found = list(found) if isinstance(found, (tuple, list)) else [found]
            return [x for x in found if is_inexact(x.dtype)]

        _, pull = vjp(function, *[arguments[n] for n in chosen])
        return conjugated(pull(conjugated(cotangents)))


def _named(names: dict[str, Any], extent: Any) -> Any:
    """The variable that stands for a symbolic size; other extents as they are."""
    return names.get(str(extent), extent) if isinstance(extent, torch.SymInt) else extent


def _device(tensors: Sequence[torch.Tensor]) -> torch.device:
    """Where an operator runs: where its tensors are, the CPU's numbers aside."""
    devices = [x.device for x in tensors]
    return next((d for d in devices if d.type != "cpu"), devices[0] if devices else torch.device("cpu"))


def _is_inexact(x: torch.Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _mapped(value: Any, made: Callable[[Any], Any]) -> Any:
    """Arguments with each tensor, in lists too, replaced."""
    if isinstance(value, torch.Tensor):
        return made(value)
    return type(value)(_mapped(v, made) for v in value) if isinstance(value, (tuple, list)) else value


def _signature(arguments: Sequence[Any]) -> tuple[list[torch.Tensor], Any]:
    """The tensors among the arguments, and what a program for them depends on."""
    tensors: list[torch.Tensor] = []

    def described(x: torch.Tensor) -> Any:
        tensors.append(x)
        return tuple(x.shape), x.dtype, x.device

    return tensors, repr(_mapped(tuple(arguments), described))
