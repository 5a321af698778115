"""Library steps on the GPU: matrix products through torch (cuBLAS), the rest by their primitives' eval rules on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.backends.base import Memory
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.types import COMPLEX, FLOATS
from fuser.legalise.strided_operands import laid
from fuser.ops.dot import as_matrices
from fuser.ops.triton_call import on_device, triton_call_p
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup
from fuser.runtime.array import Array, to_numpy


def library(group: FusionGroup, memory: Memory) -> Callable[..., Any]:
    """A function of the group's input arrays that gives the list of its outputs, in this memory."""
    place = memory.place
    last = group.graph.eqns[-1]
    position = {var: number for number, var in enumerate(group.graph.invars)}
    if last.primitive is triton_call_p:
        return _launched(last, group, place)
    if last.primitive.fusion is not Fusion.DOT or last.outvars[0].aval.dtype not in (*FLOATS, *COMPLEX):
        return _on_host(group, place)
    views = Views(group.graph.eqns)
    reads = [_read(views, v, position) for v in last.invars]
    first, second = reads
    if first is None or second is None:
        return _on_host(group, place)
    multiply = _multiply(last)
    return lambda *arrays: [multiply(first(arrays), second(arrays))]


def _read(views: Views, operand: Operand, position: dict[Var, int]) -> Callable[[Sequence[Any]], Any] | None:
    """An operand from the group's inputs: one of them, or a view of its memory by strides; None where they do not say."""
    view = views(operand)
    if view.source is None:
        return None
    number = position[view.source]
    if not view.path:
        return lambda arrays: arrays[number]
    found = laid(view, operand)
    if found is None or any(s < 0 for s in found[0].strides):
        return None
    (shape, strides), first = (found[0].shape, found[0].strides), found[1] // operand.aval.dtype.itemsize
    return lambda arrays: arrays[number].contiguous().as_strided(shape, strides, first)


def _on_host(group: FusionGroup, place: Callable[[Any], Any]) -> Callable[..., Any]:
    dtypes = [v.aval.dtype for v in group.graph.invars]

    def run(*arrays: Any) -> list[Any]:
        return [
            place(np.ascontiguousarray(v).reshape(v.shape))
            for v in evaluate(group.graph, [to_numpy(Array(a, dtype=d)) for a, d in zip(arrays, dtypes)])
        ]

    return run


def _launched(eqn: Eqn, group: FusionGroup, place: Callable[[Any], Any]) -> Callable[..., Any]:
    """A kernel of the user's on the group's inputs, which stay where they are."""
    views = Views(group.graph.eqns)
    position = {var: number for number, var in enumerate(group.graph.invars)}
    reads = [_read(views, v, position) for v in eqn.invars]
    if any(read is None for read in reads):
        return _on_host(group, place)
    run = on_device(eqn.params)
    wanted = [eqn.outvars.index(v) for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]  # type: ignore[arg-type]

    def launched(*arrays: Any) -> list[Any]:
        results = run(*(read(arrays) for read in reads if read is not None))
        return [results[n] for n in wanted]

    return launched


def _multiply(eqn: Eqn) -> Callable[[Any, Any], Any]:
    out = eqn.outvars[0].aval
    numbers = eqn.params["dimension_numbers"]

    def by_torch(x: Any, y: Any) -> Any:
        import torch

        dtype = getattr(torch, out.dtype.name)
        a, b = _matrices(x.to(dtype), y.to(dtype), numbers)
        with precise(torch):
            return (a @ b).reshape(out.shape)

    return by_torch


def _matrices(x: Any, y: Any, numbers: Any) -> tuple[Any, Any]:
    return as_matrices(_Permuting(x), _Permuting(y), numbers)  # type: ignore[arg-type,return-value]


class _Permuting:
    """A torch tensor with the two methods of an ndarray that `as_matrices` uses."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.shape = tuple(tensor.shape)
        self.ndim = tensor.ndim

    def transpose(self, *dims: int) -> _Permuting:
        return _Permuting(self.tensor.permute(*dims))

    def reshape(self, *shape: int) -> Any:
        return self.tensor.reshape(*shape)


class precise:
    """Turns TF32 off for matrix products in the block: float32 means float32 unless the user asks otherwise."""

    def __init__(self, torch: Any) -> None:
        self.settings = torch.backends.cuda.matmul

    def __enter__(self) -> None:
        self.saved = self.settings.allow_tf32
        self.settings.allow_tf32 = False

    def __exit__(self, *error: Any) -> None:
        self.settings.allow_tf32 = self.saved
