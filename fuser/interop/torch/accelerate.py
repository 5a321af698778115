"""`accelerate` for functions of torch tensors: signatures, and the way from tensors to a program's arrays and back."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fuser.config import config
from fuser.interop.accelerate import Accelerated
from fuser.interop.guards import Reach, Test
from fuser.interop.impure import DRAWS, Refusing
from fuser.interop.numpy.checks import Checks
from fuser.interop.numpy.context import Context
from fuser.interop.objects import shadow
from fuser.interop.outputs import DECLINED, Output, Owners, happened
from fuser.interop.outside import Outside
from fuser.interop.torch.gradients import Differentiable
from fuser.interop.torch.tensors import TracedTensor, check_gradient, refused
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array, from_torch, numpy_dtype
from fuser.trace import tree
from fuser.trace.core import Tracer, current
from fuser.trace.stage import is_array


class TorchAccelerated(Accelerated):
    """The same function for torch tensors; it shares its compiled programs with the one for NumPy arrays."""

    library = "torch"

    def __init__(self, numpy: Accelerated) -> None:
        super().__init__(numpy.function, numpy.static_argnums, numpy.static_argnames, numpy.fallback, numpy.backend)
        self._programs = numpy._programs
        self._device = torch.device("cpu")

    def _answer(self, args: Any, kwargs: Any) -> Any:
        static, free, named = self._split(args, kwargs)
        leaves, structure = tree.flatten((free, named))
        if any(isinstance(leaf, (TracedTensor, Tracer)) for leaf in leaves):
            return self.function(*args, **kwargs)  # under another trace: its operations join the outer graph
        leaves = [self._admitted(leaf, n, (free, named)) for n, leaf in enumerate(leaves)]
        key = (structure, static, config.backend, modes(), *[self._key_of(leaf) for leaf in leaves])
        try:
            entry = self._entries.get(key)
        except TypeError:
            raise self._unhashable_argument(static, leaves, (free, named)) from None
        if entry is None:
            entry = self._first(key, static, structure, leaves)
        return entry(leaves, args, kwargs)

    def _twin(self, leaves: Sequence[Any]) -> Accelerated:
        return self

    def _admitted(self, leaf: Any, number: int, arguments: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            path = self._path(number, arguments)
            raise TypeError(
                f"{self.name} was called with torch tensors and NumPy arrays; pass torch.from_numpy({path}) for argument {path}"
            )
        return leaf

    def _key_of(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return tuple(leaf.shape), leaf.dtype, leaf.device
        return type(leaf) if type(leaf) in (float, complex) else (type(leaf), leaf)

    def _type_of(self, leaf: Any) -> ArrayType | None:
        if isinstance(leaf, torch.Tensor):
            return ArrayType(tuple(leaf.shape), numpy_dtype(leaf.dtype))
        return ArrayType((), np.dtype(type(leaf))) if type(leaf) in (float, complex) else None

    def _context(self, structure: Any, leaves: Sequence[Any]) -> Context:
        tensors = {n: leaf for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
        for n, leaf in tensors.items():
            title = f"argument {self._path(n, tree.unflatten(structure, range(len(leaves))))} of {self.name}"
            if leaf.layout is not torch.strided:
                raise refused(f"{title} is a sparse tensor and cannot be traced", "pass x.to_dense()")
        devices = {leaf.device for leaf in tensors.values()}
        if len(devices) > 1:
            raise TypeError(
                f"{self.name} was called with tensors on {' and '.join(sorted(map(str, devices)))}; move them to one device"
            )
        self._device = next(iter(devices), torch.device("cpu"))
        if self._device.type not in ("cpu", "cuda"):
            raise refused(
                f"{self.name} was called with a tensor on {self._device}, where no kernels run",
                "move it to the CPU or to CUDA",
            )
        return Context(self.name)

    def _argument(self, context: Context, leaf: Any, tracer: Any, number: int, names: Any) -> Any:
        if tracer is None:
            return self._followed(context, leaf, number, names)
        return TracedTensor(tracer, self._device, None if isinstance(leaf, torch.Tensor) else type(leaf))

    def _substitute(self, context: Context, baked: bool) -> Any:
        return functools.partial(_seen_outside, baked)

    def _owners(self, results: Sequence[Any]) -> Owners:
        return Owners(())

    def _output(self, context: Context, leaf: Any, owners: Owners) -> Output:
        position = context.outside.result(leaf)
        if position is not None:
            return Output("outside", position)
        if isinstance(leaf, TracedTensor):
            return Output("number" if leaf.weak else "array", aval=leaf.value.aval)
        if isinstance(leaf, torch.Tensor):
            return Output("copy", leaf)
        return Output("array") if is_array(leaf) else Output("same", leaf)

    def _result_of(self, leaf: Any) -> Any:
        return leaf.value if isinstance(leaf, TracedTensor) else leaf

    def _backend_name(self) -> str:
        return self.backend or config.backend or ("triton" if self._device.type == "cuda" else "c")

    def _status(self, checks: Checks, results: Sequence[Any], precise: bool) -> list[Any]:
        return checks.status(results, numbers=False)  # torch tells nobody of infinities and nans

    def _followed(self, context: Context, leaf: Any, number: int, names: Any) -> Any:
        if not isinstance(leaf, torch.nn.Module):
            return super()._followed(context, leaf, number, names)
        path = self._path(number, names)
        return context.outside.visit(leaf, context.outside.node(Reach.ARGUMENT, -1, number, path), path)

    def _runner(self, compiled: Any, leaves: Sequence[Any]) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
        dynamic = tuple(n for n, leaf in enumerate(leaves) if self._type_of(leaf) is not None)
        backend, count = compiled.traced._backend, compiled.traced.outside_inputs
        place, execute = backend.memory.place, compiled.executable.call
        results = _results(compiled, self._device)
        differentiable = Differentiable(compiled.traced.graph, backend, self._device)

        def call(leaves: Sequence[Any], captured: Sequence[Any]) -> Any:
            inputs = [leaves[n] for n in dynamic]
            inputs.extend(captured[:count])
            if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in inputs):
                return results(differentiable(inputs), captured[count:])
            return results(execute(*[place(_memory(value)) for value in inputs]), captured[count:])

        return call


def modes() -> tuple[Any, ...]:
    """What torch's context managers add to a signature: whether gradients are recorded, and autocast's dtype on each device."""
    cast = tuple(torch.get_autocast_dtype(kind) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
    return (torch.is_grad_enabled(), *cast)


_RANDOM = (
    *(
        "rand",
        "randn",
        "randint",
        "randperm",
        "rand_like",
        "randn_like",
        "randint_like",
        "normal",
        "bernoulli",
        "multinomial",
    ),
    *("poisson", "manual_seed", "seed", "dropout"),
)


class _Torch(types.ModuleType):
    """torch without its random numbers."""

    def __getattr__(self, name: str) -> Any:
        if name in _RANDOM:
            return Refusing(f"torch.{name}", DRAWS, "draw the numbers outside and pass them in")
        return getattr(torch, name)


def _seen_outside(baked: bool, outside: Outside, value: Any, number: int, name: str) -> Any:
    """What stands for torch's and NumPy's values that a traced function reads from outside: tensors become inputs."""
    if value is torch:
        outside.require(number, Test.IS, value)
        return _Torch("torch")
    if isinstance(value, torch.Tensor):
        return _tensor(outside, value, number, name, baked)
    if isinstance(value, torch.nn.Module):
        return shadow(outside, value, number, name)
    if isinstance(value, np.ndarray):
        outside.require(number, Test.CONTENTS, (value.dtype, value.shape, value.tobytes()))
        return value.copy()
    if type(value) is float:
        return TracedTensor(_new_input(outside, ArrayType((), np.dtype(float)), number), torch.device("cpu"), float)
    if hasattr(type(value), "within"):  # an accelerated function
        outside.require(number, Test.IS, value)
        return outside.visit(value.function, outside.held_node(value.function, name), name)
    if isinstance(value, torch.Generator):
        outside.require(number, Test.IS, value)
        return Refusing(name, DRAWS, "draw the numbers outside and pass them in")
    return NotImplemented


def _tensor(outside: Outside, value: torch.Tensor, number: int, name: str, baked: bool) -> Any:
    if baked or value.layout is not torch.strided:
        check_gradient(value, name)
        before = value.clone()
        outside.require(number, Test.HOLDS, lambda now: isinstance(now, torch.Tensor) and _equal(now, before))
        return before
    kind = (tuple(value.shape), value.dtype, value.device)
    outside.require(
        number,
        Test.HOLDS,
        lambda now: isinstance(now, torch.Tensor) and (tuple(now.shape), now.dtype, now.device) == kind,
    )
    tracer = _new_input(outside, ArrayType(tuple(value.shape), numpy_dtype(value.dtype)), number)
    return TracedTensor(tracer, value.device)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and a.layout == b.layout and torch.equal(a, b)


def _new_input(outside: Outside, aval: ArrayType, number: int) -> Any:
    tracer = current().new_input(aval)  # type: ignore[attr-defined]
    outside.capture(number)
    outside.inputs.append(tracer)
    return tracer


def _memory(leaf: Any) -> Any:
    """The memory of an argument: an ndarray over a CPU tensor, a dense CUDA tensor, or a number as an array."""
    return from_torch(leaf)._data if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def _results(compiled: Any, device: torch.device) -> Callable[[list[Any], Sequence[Any]], Any]:
    """From a program's arrays or tensors, and results from outside, to the results' tree of tensors that share no memory, or
    to DECLINED."""
    outputs, out_tree = compiled.traced.outputs, compiled.traced.out_tree
    shapes = [aval.shape for aval in compiled.traced.graph.out_avals]
    watched = compiled.traced.watched

    def results(found: list[Any], outside: Sequence[Any]) -> Any:
        if watched and happened([_memory(f) if isinstance(f, torch.Tensor) else f for f in found], watched):
            return DECLINED
        seen: set[int] = set()
        computed = iter(zip(found, shapes))
        leaves = []
        for output in outputs:
            if output.kind == "outside":
                leaves.append(outside[output.value])
                continue
            if not output.computed:
                leaves.append(output.value.clone() if output.kind == "copy" else output.value)
                continue
            array, shape = next(computed)
            tensor = array if isinstance(array, torch.Tensor) else Array(array).torch().reshape(shape).to(device)
            if tensor.data_ptr() in seen and tensor.numel():
                tensor = tensor.clone()
            seen.add(tensor.data_ptr())
            leaves.append(tensor.item() if output.kind == "number" else tensor)
        return tree.unflatten(out_tree, leaves)

    return results
