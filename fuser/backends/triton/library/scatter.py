"""Gather, and scatter in all modes, deterministic without atomics: updates sorted by the element they go to, and combined in their order.

An update out of bounds goes to one element more than the operand has, which is cut off: no shape depends on values, so that
nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.backends.triton.library import scalars
from fuser.backends.triton.library.movement import bits
from fuser.backends.triton.library.ordering import total
from fuser.ir.graph import Eqn
from fuser.ops.indexing import GatherScatterMode, as_gather, fill_of, gather_p, layout_of
from fuser.ops.scatter import scatter_add_p, scatter_max_p, scatter_min_p, scatter_mul_p, scatter_p, window_sizes
from fuser.runtime.array import Array, torch_dtype


def _positions(
    operand: Any, indices: Any, numbers: Any, sizes: Sequence[int], shape: tuple[int, ...], clip: bool
) -> Any:
    """For each element of the windows its flat position in the operand, int64 of `shape`; the operand's size out of bounds."""
    import torch

    layout = layout_of(numbers, operand.ndim, len(shape))
    along = lambda values: values.reshape([shape[d] if d in layout.batch else 1 for d in range(len(shape))])
    line = lambda extent, dimension, ndim: torch.arange(extent, device=operand.device).reshape(
        [-1 if d == dimension else 1 for d in range(ndim)]
    )
    flat, inside = torch.zeros((1,) * len(shape), dtype=torch.int64, device=operand.device), None
    for d, extent in enumerate(operand.shape):
        flat = flat * extent
        if (component := layout.start[d]) is not None:
            start, high = along(indices[..., component]), extent - sizes[d]
            if not clip:
                valid = (start >= 0) & (start <= high)
                inside = valid if inside is None else inside & valid
            flat = flat + start.clamp(0, max(high, 0))
        if (batching := layout.batching[d]) is not None:
            lines = line(indices.shape[batching], batching, indices.ndim - 1)
            flat = flat + along(lines.expand(indices.shape[:-1]))
        if (window := layout.window[d]) is not None:
            flat = flat + line(sizes[d], window, len(shape))
    flat = flat if inside is None else torch.where(inside, flat, operand.numel())
    return flat.expand(shape)


def _targets(eqn: Eqn, operand: Any, indices: Any, updates: Any) -> Any:
    """For each update the flat position of its element; the operand's size where its window is out of bounds."""
    import torch

    numbers = eqn.params["dimension_numbers"]
    clip = GatherScatterMode.from_any(eqn.params.get("mode")) is GatherScatterMode.CLIP
    indices = _starts(indices)
    if wraps := eqn.params.get("wraps"):
        indices = torch.where(indices < 0, indices + torch.tensor(wraps, device=indices.device), indices)
    sizes = window_sizes(eqn.invars[0].aval, updates, numbers)
    return _positions(operand, indices, as_gather(numbers), sizes, tuple(updates.shape), clip).reshape(-1)


def _starts(indices: Any) -> Any:
    """Indices as int64; those past it are out of bounds all the same."""
    import torch

    return indices.to(torch.int64)


def _gather(eqn: Eqn, operand: Any, indices: Any) -> Any:
    import torch

    out, params = eqn.outvars[0].aval, eqn.params
    fills = GatherScatterMode.from_any(params.get("mode")) is GatherScatterMode.FILL_OR_DROP
    fill = (
        np.asarray(fill_of(out.dtype, params.get("fill_value"))).astype(out.dtype) if fills else np.zeros((), out.dtype)
    )
    outside = bits(Array(fill).torch().to(operand.device)).reshape(1)
    if operand.numel() == 0:
        return outside.expand(out.shape).clone().view(torch_dtype(out.dtype))
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    flat = _positions(operand, _starts(indices), numbers, sizes, out.shape, not fills)
    return torch.cat([bits(operand).reshape(-1), outside])[flat].view(torch_dtype(out.dtype))


def _ends(ordered: Any) -> Any:
    """Where the last of each run of equal numbers is."""
    import torch

    last = torch.ones_like(ordered, dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    return last


def _replaced(out: Any, targets: Any, updates: Any) -> Any:
    """The last update of an element stays."""
    import torch

    ordered, order = torch.sort(targets, stable=True)
    kept = torch.where(_ends(ordered), ordered, out.numel() - 1)
    return out.index_put_((kept,), updates[order])


def _added(out: Any, targets: Any, updates: Any) -> Any:
    """torch sorts the positions and adds the updates of each in their order."""
    return out.index_put_((targets,), updates, accumulate=True)


def _segmented(combine: Callable[..., Any]) -> Callable[..., Any]:
    """A segmented scan by doubling over the sorted updates; what it has at the end of a segment is combined with the element."""

    def scattered(out: Any, targets: Any, updates: Any) -> Any:
        import torch

        ordered, order = torch.sort(targets, stable=True)
        total, distance = updates[order], 1
        while distance < len(total):
            same = ordered[distance:] == ordered[:-distance]
            further = torch.where(same, combine(total[:-distance], total[distance:]), total[distance:])
            total = torch.cat([total[:distance], further])
            distance *= 2
        kept = torch.where(_ends(ordered), ordered, out.numel() - 1)
        return out.index_put_((kept,), combine(out[kept], total))

    return scattered


def _extreme(name: str) -> Callable[..., Any]:
    """The larger or the smaller one, in whatever order: torch's scatter, which knows no complex numbers."""
    of_complex = _segmented(lambda x, y: scalars.extreme(name, x, y))

    def scattered(out: Any, targets: Any, updates: Any) -> Any:
        if out.is_complex():
            return of_complex(out, targets, updates)
        return out.scatter_reduce_(0, targets, updates, f"a{name}", include_self=True)

    return scattered


def _scatter(combine: Callable[..., Any], ordered: bool = False) -> Callable[..., Any]:
    """The rule that combines by `combine(out, targets, updates)`: halves in float32, integers as signed ones, with `ordered` in
    their order."""

    def rule(eqn: Eqn, operand: Any, indices: Any, updates: Any) -> Any:
        import torch

        if updates.numel() == 0 or operand.numel() == 0:
            return operand.clone()
        kind = _computed(torch, operand.dtype, combine, ordered)
        targets, first = _targets(eqn, operand, indices, updates), kind(operand).reshape(-1)
        out = torch.cat([first, first[:1]])  # and one for updates out of bounds
        out = combine(out, targets, kind(updates).reshape(-1))[:-1].reshape(operand.shape)
        if kind is total:  # which is its own inverse
            out = total(out.view(operand.dtype))
        return out.view(operand.dtype) if out.dtype.itemsize == operand.dtype.itemsize else out.to(operand.dtype)

    return rule


def _computed(torch: Any, dtype: Any, combine: Callable[..., Any], ordered: bool) -> Callable[..., Any]:
    """What the elements are combined as."""
    if combine is _replaced:
        return bits
    if dtype in (torch.float16, torch.bfloat16) and not ordered:
        return lambda x: x.float()
    if dtype.is_floating_point or dtype.is_complex:
        return lambda x: x
    return total if ordered else bits


RULES: dict[Any, Any] = {
    gather_p: _gather,
    scatter_p: _scatter(_replaced),
    scatter_add_p: _scatter(_added),
    scatter_mul_p: _scatter(_segmented(lambda x, y: x * y)),
    scatter_min_p: _scatter(_extreme("min"), ordered=True),
    scatter_max_p: _scatter(_extreme("max"), ordered=True),
}
