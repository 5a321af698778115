"""Sorting on the device: stable sorts of integers whose order is that of the values, one for each key."""

from __future__ import annotations

from typing import Any

from fuser.backends.triton.library.movement import bits
from fuser.ir.graph import Eqn
from fuser.ops.sorting import sort_p, top_k_p


def comparable(x: Any) -> Any:
    """Signed integers in the order of the values, but that -0.0 equals 0.0, and all nans are equal and last."""
    import torch

    if x.dtype.is_floating_point:
        x = torch.where(torch.isnan(x), torch.full((), float("nan"), dtype=x.dtype, device=x.device), x + 0)
    return total(x)


def total(x: Any) -> Any:
    """Signed integers in the total order of the values: nans by their sign and bits outside of the infinities, -0.0 below 0.0."""
    import torch

    unsigned = not (x.dtype.is_floating_point or x.dtype == torch.bool or x.dtype.is_signed)
    if x.dtype == torch.bool:
        return x.to(torch.uint8)
    if unsigned:
        width = 8 * x.dtype.itemsize
        return x if width == 8 else bits(x) ^ (-1 << (width - 1))
    if not x.dtype.is_floating_point:
        return x
    integers = bits(x)
    return torch.where(integers < 0, integers ^ torch.iinfo(integers.dtype).max, integers)


def _keys(x: Any) -> list[Any]:
    return [comparable(x.real), comparable(x.imag)] if x.dtype.is_complex else [comparable(x)]


def _sort(eqn: Eqn, *operands: Any) -> list[Any]:
    """By each key from the last to the first, as equal elements keep their order."""
    import torch

    dimension = eqn.params["dimension"]
    order: Any = None
    for key in reversed([key for x in operands[: eqn.params["num_keys"]] for key in _keys(x)]):
        now = key if order is None else torch.take_along_dim(key, order, dimension)
        step = torch.sort(now, dim=dimension, stable=True).indices
        order = step if order is None else torch.take_along_dim(order, step, dimension)
    return [torch.take_along_dim(bits(x), order, dimension).view(x.dtype) for x in operands]


def _top_k(eqn: Eqn, x: Any) -> list[Any]:
    """The complement of the total order ascends, so the first of equals comes first."""
    import torch

    axis = x.ndim - 1 if eqn.params.get("axis") is None else eqn.params["axis"]
    order = torch.sort(~total(x), dim=axis, stable=True).indices.narrow(axis, 0, eqn.params["k"])
    return [torch.take_along_dim(bits(x), order, axis).view(x.dtype), order.to(torch.int32)]


RULES: dict[Any, Any] = {sort_p: _sort, top_k_p: _top_k}
