"""Matrix products by torch: floats and complex numbers through cuBLAS, integers exactly by float64 products of their digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.types import BOOL, COMPLEX, FLOATS, INTEGERS
from fuser.legalise.strided_operands import laid
from fuser.ops.dot import as_matrices
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup

DIGIT_BITS = 16
LONGEST = 1 << 20  # contracted elements of which sums of products of two digits are exact in float64


def product(group: FusionGroup) -> Callable[..., Any] | None:
    """The function of a group that is one product over views of its inputs; None of another one."""
    last = group.graph.eqns[-1]
    position = {var: number for number, var in enumerate(group.graph.invars)}
    if last.primitive.fusion is not Fusion.DOT or last.outvars[0].aval.dtype not in (*FLOATS, *COMPLEX):
        return None
    views = Views(group.graph.eqns)
    first, second = (_read(views, v, position) for v in last.invars)
    if first is None or second is None:
        return None
    return lambda *arrays: [multiply(last, first(arrays), second(arrays))]


def _read(views: Views, operand: Operand, position: dict[Var, int]) -> Callable[[Sequence[Any]], Any] | None:
    """An operand from the group's inputs: one of them, or a view of its memory by strides; None where they do not say."""
    view = views(operand)
    if view.source is None or view.source not in position:
        return None
    number = position[view.source]
    if not view.path:
        return lambda arrays: arrays[number]
    found = laid(view, operand)
    if found is None or any(s < 0 for s in found[0].strides):
        return None
    (shape, strides), first = (found[0].shape, found[0].strides), found[1] // operand.aval.dtype.itemsize
    return lambda arrays: arrays[number].contiguous().as_strided(shape, strides, first)


def multiply(eqn: Eqn, x: Any, y: Any) -> Any:
    """The product of two tensors that the equation says, in the dtype of its result."""
    import torch

    out = eqn.outvars[0].aval
    numbers = eqn.params["dimension_numbers"]
    if out.dtype in INTEGERS:
        return _of_integers(x, y, numbers, out.dtype).reshape(out.shape)
    dtype = torch.float32 if out.dtype == BOOL else getattr(torch, out.dtype.name)
    a, b = _matrices(x.to(dtype), y.to(dtype), numbers)
    with precise(torch):
        result = (a @ b).reshape(out.shape)
    return result > 0 if out.dtype == BOOL else result


def _of_integers(x: Any, y: Any, numbers: Any, dtype: np.dtype) -> Any:
    """The product modulo 2^bits: of signed digits in base 2^16, whose products float64 sums without rounding."""
    import torch

    a, b = _matrices(x.to(torch.int64), y.to(torch.int64), numbers)
    digits = max(1, dtype.itemsize * 8 // DIGIT_BITS)
    lefts, rights = _digits(a, digits), _digits(b, digits)
    result = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=torch.int64, device=a.device)
    for start in range(0, a.shape[-1], LONGEST):
        part = slice(start, start + LONGEST)
        for i in range(digits):
            for j in range(digits - i):
                exact = lefts[i][..., part] @ rights[j][..., part, :]
                result += exact.to(torch.int64) << (DIGIT_BITS * (i + j))
    return result.to(getattr(torch, dtype.name))


def _digits(x: Any, count: int) -> list[Any]:
    """int64 as `count` digits in float64, the lowest first: each of 0 … 2^16 - 1 but for the signed last one."""
    mask = (1 << DIGIT_BITS) - 1
    low = [((x >> (DIGIT_BITS * k)) & mask).double() for k in range(count - 1)]
    top = (x >> (DIGIT_BITS * (count - 1))) & mask
    return [*low, (top - ((top >> (DIGIT_BITS - 1)) << DIGIT_BITS)).double()]


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
