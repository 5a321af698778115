"""Sorting on the device by torch: orders and selections too large for the kernels of radix_sort.py and selection.py, and integers in the order of values."""

from __future__ import annotations

from typing import Any

from fuser.backends.triton.library.movement import bits
from fuser.ir.graph import Eqn
from fuser.ops.order import order_p
from fuser.ops.selection import select_largest_p


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


def _order(eqn: Eqn, keys: Any) -> list[Any]:
    """Words as signed integers in the order of the words, of which a sort reads four bytes each."""
    import torch

    if keys.dtype.is_floating_point:
        # nans as one; zeros are equal for torch, by whichever sort, and keep their signs
        found = torch.sort(torch.where(keys.isnan(), torch.nan, keys), dim=-1, stable=True)
        return [found.values, found.indices.to(torch.int32)]
    top = torch.iinfo(torch.int32).min
    found = torch.sort(keys.view(torch.int32) ^ top, dim=-1, stable=True)
    return [(found.values ^ top).view(torch.uint32), found.indices.to(torch.int32)]


def _select_largest(eqn: Eqn, keys: Any) -> Any:
    """By a stable sort of integers, largest first."""
    import torch

    found = torch.sort(total(keys), dim=-1, descending=True, stable=True).indices[..., : eqn.params["k"]]
    return torch.sort(found, dim=-1).values.to(torch.int32)


RULES: dict[Any, Any] = {order_p: _order, select_largest_p: _select_largest}
