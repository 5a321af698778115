"""`triton_call`: a Triton kernel of the user's, launched on the operands' and the results' memory.

On a GPU it is a step of the program on its stream; elsewhere Triton's interpreter runs it (TRITON_INTERPRET=1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir.names import function_name
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.ops.ffi import sequential
from fuser.runtime.array import Array, to_numpy, torch_dtype
from fuser.trace.batch import size_of


@dataclass(frozen=True)
class Kernel:
    """A kernel with what its launch takes beside arrays: `arguments` has None for an array, else (value,)."""

    function: Any
    grid: Any
    arguments: tuple[tuple[Any] | None, ...]
    meta: tuple[tuple[str, Any], ...]
    zeroed: tuple[int, ...]

    @property
    def name(self) -> str:
        """For messages."""
        return function_name(innermost(self.function))


def innermost(kernel: Any) -> Any:
    """The Python function of a kernel, whatever decorators stand around it."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def interpreted() -> bool:
    """Whether Triton's kernels run in its interpreter."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def launch(kernel: Kernel, operands: Sequence[Any], results: Sequence[Any], aliases: Sequence[tuple[int, int]]) -> None:
    """Launch the kernel on tensors: its arguments in order, then the results, which it writes."""
    for operand, result in aliases:
        results[result].copy_(operands[operand])
    for n in kernel.zeroed:
        results[n].zero_()
    shared = {operand: results[result] for operand, result in aliases}
    tensors = iter(shared.get(n, tensor) for n, tensor in enumerate(operands))
    arguments = [next(tensors) if a is None else a[0] for a in kernel.arguments]
    function, meta = kernel.function, dict(kernel.meta)
    if interpreted():
        function, meta = chosen(function, meta, [*arguments, *results])
    grid = kernel.grid
    own = _declared(function, meta)
    function[grid](*arguments, *results, **own)


def chosen(function: Any, meta: dict[str, Any], arguments: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """The kernel without its autotuner and heuristics, and what these choose: the interpreter takes the first configuration."""
    while hasattr(function, "fn") and (hasattr(function, "configs") or hasattr(function, "values")):
        named = dict(zip(getattr(function, "arg_names", ()), arguments))
        if hasattr(function, "configs"):
            meta = {**function.configs[0].all_kwargs(), **meta}
        else:
            meta = {**{k: value({**named, **meta}) for k, value in function.values.items()}, **meta}
        function = function.fn
    return function, meta


def _declared(function: Any, meta: dict[str, Any]) -> dict[str, Any]:
    """What the interpreter takes: options of the compiler are none of the kernel's parameters."""
    if not interpreted():
        return meta
    names = getattr(function, "arg_names", None) or innermost(function).__code__.co_varnames
    return {key: value for key, value in meta.items() if key in names}


def _eval(
    *arrays: np.ndarray, kernel: Kernel, result_avals: Sequence[ArrayType], input_output_aliases: Any, **params: Any
) -> list[np.ndarray]:
    import torch

    if not interpreted() and not torch.cuda.is_available():
        raise UnsupportedError(
            f"the Triton kernel {kernel.name} needs a GPU, and torch sees none; set TRITON_INTERPRET=1 before triton is "
            "imported to run it slowly in Triton's interpreter"
        )
    device = "cpu" if interpreted() else "cuda"
    operands = [_tensor(torch, np.array(to_numpy(a), order="C"), device) for a in arrays]
    results = [torch.empty(a.shape, dtype=torch_dtype(a.dtype), device=device) for a in result_avals]
    launch(kernel, operands, results, input_output_aliases)
    return [to_numpy(Array(r, dtype=a.dtype)).reshape(a.shape) for r, a in zip(results, result_avals)]


def _tensor(torch: Any, array: np.ndarray, device: str) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)


def on_device(params: dict[str, Any]) -> Callable[..., list[Any]]:
    """The launch as a function of tensors on the GPU."""
    kernel, avals, aliases = params["kernel"], params["result_avals"], params["input_output_aliases"]

    def run(*tensors: Any) -> list[Any]:
        import torch

        results = [torch.empty(a.shape, dtype=torch_dtype(a.dtype), device=_device(tensors)) for a in avals]
        launch(kernel, [t.contiguous() for t in tensors], results, aliases)
        return results

    return run


def _device(tensors: Sequence[Any]) -> Any:
    return tensors[0].device if tensors else "cpu" if interpreted() else "cuda"


def _type(*avals: ArrayType, result_avals: Sequence[ArrayType], **params: Any) -> tuple[ArrayType, ...]:
    return tuple(result_avals)


def _refused(*args: Any, kernel: Kernel, **params: Any) -> Any:
    raise ValueError(
        f"the Triton kernel {kernel.name} has no derivative; define one with custom_vjp or custom_jvp, whose rules may call kernels"
    )


def _batch(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
    size = size_of(operands, dims)
    return sequential(triton_call_p, operands, dims, size, params), [0] * len(params["result_avals"])


triton_call_p: Primitive = register(
    Primitive(
        "triton_call",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_type,
        eval=_eval,
        jvp=_refused,
        transpose=_refused,
        batch=_batch,
    )
)
