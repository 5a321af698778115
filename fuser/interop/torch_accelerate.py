"""`accelerate` for functions of torch tensors: signatures, and the way from tensors to a program's arrays and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fuser.api import _merge
from fuser.config import config
from fuser.interop.accelerate import Accelerated
from fuser.interop.context import Context
from fuser.interop.outputs import Output
from fuser.interop.torch_tensors import TracedTensor, check_gradient, refused
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array, from_torch, numpy_dtype
from fuser.trace import tree
from fuser.trace.core import Tracer
from fuser.trace.stage import is_array


class TorchAccelerated(Accelerated):
    """The same function for torch tensors; it shares its compiled programs with the one for NumPy arrays."""

    library = "torch"

    def __init__(self, numpy: Accelerated) -> None:
        super().__init__(numpy.function, numpy.static_argnums, numpy.static_argnames, numpy.fallback, numpy.backend)
        self._programs = numpy._programs
        self._device = torch.device("cpu")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        static, args, kwargs = self._split(args, kwargs)
        leaves, structure = tree.flatten((args, kwargs))
        if any(isinstance(leaf, (TracedTensor, Tracer)) for leaf in leaves):
            merged, named = _merge(static, args, kwargs)
            return self.function(*merged, **named)  # under another trace: its operations join the outer graph
        leaves = [self._admitted(leaf, n, (args, kwargs)) for n, leaf in enumerate(leaves)]
        key = (structure, static, config.backend, *[self._key_of(leaf) for leaf in leaves])
        try:
            entry = self._entries.get(key)
        except TypeError:
            raise self._unhashable_argument(static, leaves, (args, kwargs)) from None
        return self._first(key, static, structure, leaves) if entry is None else entry(leaves)

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
            return tuple(leaf.shape), leaf.dtype, leaf.device, leaf.requires_grad and torch.is_grad_enabled()
        return type(leaf) if type(leaf) in (float, complex) else (type(leaf), leaf)

    def _type_of(self, leaf: Any) -> ArrayType | None:
        if isinstance(leaf, torch.Tensor):
            return ArrayType(tuple(leaf.shape), numpy_dtype(leaf.dtype))
        return ArrayType((), np.dtype(type(leaf))) if type(leaf) in (float, complex) else None

    def _context(self, structure: Any, leaves: Sequence[Any]) -> Context:
        tensors = {n: leaf for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
        for n, leaf in tensors.items():
            title = f"argument {self._path(n, tree.unflatten(structure, range(len(leaves))))} of {self.name}"
            check_gradient(leaf, title)
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
            return leaf
        return TracedTensor(tracer, self._device, None if isinstance(leaf, torch.Tensor) else type(leaf))

    def _function(self, context: Context) -> Callable[..., Any]:
        return self.function

    def _output(self, leaf: Any) -> Output:
        if isinstance(leaf, TracedTensor):
            return Output("number" if leaf.weak else "array")
        if isinstance(leaf, torch.Tensor):
            check_gradient(leaf, f"a result of {self.name}")
            return Output("copy", leaf)
        return Output("array") if is_array(leaf) else Output("same", leaf)

    def _result_of(self, leaf: Any) -> Any:
        return leaf.value if isinstance(leaf, TracedTensor) else leaf

    def _backend_name(self) -> str:
        return self.backend or config.backend or ("triton" if self._device.type == "cuda" else "c")

    def _entry_of(self, compiled: Any, leaves: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
        dynamic = tuple(n for n, leaf in enumerate(leaves) if self._type_of(leaf) is not None)
        place = compiled.traced._backend.place
        run = _runner(compiled, self._device)

        def entry(leaves: Sequence[Any]) -> Any:
            return run([place(_memory(leaves[n])) for n in dynamic])

        return entry


def _memory(leaf: Any) -> Any:
    """The memory of an argument: an ndarray over a CPU tensor, a dense CUDA tensor, or a number as an array."""
    return from_torch(leaf)._data if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def _runner(compiled: Any, device: torch.device) -> Callable[[Sequence[Any]], Any]:
    """From arrays to the results' tree of tensors that share no memory."""
    call = compiled.executable.call
    outputs, out_tree = compiled.traced.outputs, compiled.traced.out_tree
    shapes = [aval.shape for aval in compiled.traced.graph.out_avals]

    def run(arrays: Sequence[Any]) -> Any:
        found = call(*arrays)
        seen: set[int] = set()
        computed = iter(zip(found, shapes))
        leaves = []
        for output in outputs:
            if not output.computed:
                leaves.append(output.value.clone() if output.kind == "copy" else output.value)
                continue
            array, shape = next(computed)
            tensor = Array(array).torch().reshape(shape).to(device)
            if tensor.data_ptr() in seen and tensor.numel():
                tensor = tensor.clone()
            seen.add(tensor.data_ptr())
            leaves.append(tensor.item() if output.kind == "number" else tensor)
        return tree.unflatten(out_tree, leaves)

    return run
