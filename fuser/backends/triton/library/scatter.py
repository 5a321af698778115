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
from fuser.ops.indexing import GatherScatterMode, fill_of, gather_p, layout_of
from fuser.ops.scatter_rows import scatter_rows_p
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
    kept = torch.where(_ends(ordered), ordered, len(out) - 1)
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


def _rows(eqn: Eqn, operand: Any, targets: Any, updates: Any) -> Any:
    """Rows that are replaced or summed as they are, so that their targets are sorted, else element by element: halves in float32,
    integers as signed ones, extremes in their total order."""
    import torch

    if updates.numel() == 0 or operand.numel() == 0:
        return operand.clone()
    combine, ordered = COMBINED[eqn.params["reduction"]]
    kind = _computed(torch, operand.dtype, combine, ordered)
    rows, width = operand.shape
    updates = updates.expand(targets.shape[0], width)
    targets = targets.view(torch.int32).long()
    if (negative := eqn.params.get("negative", "beyond")) != "beyond":
        targets = torch.where(targets < 0, targets + rows if negative == "from the end" else 0, targets)
    targets = (targets & 0xFFFFFFFF).clamp(max=rows)  # one row more, for those beyond the last
    out, updates = kind(operand), kind(updates)
    out = torch.cat([out, out[:1]])
    if combine in (_replaced, _added):
        out = combine(out, targets, updates)
    else:
        flat = (targets[:, None] * width + torch.arange(width, device=operand.device)).reshape(-1)
        out = combine(out.reshape(-1), flat, updates.reshape(-1)).reshape(rows + 1, width)
    out = out[:-1]
    if kind is total:  # which is its own inverse
        out = total(out.view(operand.dtype))
    return out.view(operand.dtype) if out.dtype.itemsize == operand.dtype.itemsize else out.to(operand.dtype)


def _computed(torch: Any, dtype: Any, combine: Callable[..., Any], ordered: bool) -> Callable[..., Any]:
    """What the elements are combined as."""
    if combine is _replaced:
        return bits
    if dtype in (torch.float16, torch.bfloat16) and not ordered:
        return lambda x: x.float()
    if dtype.is_floating_point or dtype.is_complex:
        return lambda x: x
    return total if ordered else bits


# How rows are combined, and whether as integers in the order of the values.
COMBINED: dict[str, tuple[Callable[..., Any], bool]] = {
    "replace": (_replaced, False),
    "sum": (_added, False),
    "prod": (_segmented(lambda x, y: x * y), False),
    "min": (_extreme("min"), True),
    "max": (_extreme("max"), True),
}
RULES: dict[Any, Any] = {gather_p: _gather, scatter_rows_p: _rows}
