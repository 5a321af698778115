"""Which dimensions of a gather or scatter can be split together.

Batch dimensions and whole windows are split in the operand, the indices and the result alike. Where indices are split each
device gathers its own, or scatters its own updates, whose sums (maxima, minima) are then taken over the devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuser.ir.graph import Eqn
from fuser.ops.indexing import GatherDimensionNumbers, as_gather
from fuser.ops.scatter import scatter_add_p, scatter_max_p, scatter_min_p

Places = tuple[tuple[int, int], ...]
_REDUCTIONS = {scatter_add_p: "sum", scatter_max_p: "max", scatter_min_p: "min"}


def gather_links(eqn: Eqn) -> Iterator[tuple[Places, Places, str | None]]:
    """(dimensions of operands, dimensions of results, reduction) that are split together in a gather."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    for index, operand, result in _batches(eqn, numbers, eqn.outvars[0].aval.ndim):
        yield (*(((0, operand),) if operand is not None else ()), (1, index)), ((0, result),), None
    for operand, result in _windows(eqn, numbers):
        if sizes[operand] == eqn.invars[0].aval.shape[operand]:
            yield ((0, operand),), ((0, result),), None


def scatter_links(eqn: Eqn) -> Iterator[tuple[Places, Places, str | None]]:
    """The same for a scatter, whose updates have the place of a gather's result."""
    numbers, updates = as_gather(eqn.params["dimension_numbers"]), eqn.invars[2].aval
    for index, operand, update in _batches(eqn, numbers, updates.ndim):
        if operand is not None:
            yield ((0, operand), (1, index), (2, update)), ((0, operand),), None
        elif eqn.primitive in _REDUCTIONS:
            yield ((1, index), (2, update)), (), _REDUCTIONS[eqn.primitive]
    for operand, update in _windows(eqn, numbers):
        if updates.shape[update] == eqn.invars[0].aval.shape[operand]:
            yield ((0, operand), (2, update)), ((0, operand),), None


def _batches(eqn: Eqn, numbers: GatherDimensionNumbers, rank: int) -> Iterator[tuple[int, int | None, int]]:
    """Each dimension of the indices but the last: the batch dimension of the operand that goes with it, and that of the result."""
    places = [d for d in range(rank) if d not in numbers.offset_dims]
    paired: dict[int, Any] = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims))
    for index in range(eqn.invars[1].aval.ndim - 1):
        yield index, paired.get(index), places[index]


def _windows(eqn: Eqn, numbers: GatherDimensionNumbers) -> Iterator[tuple[int, int]]:
    """Each dimension of the operand along which windows begin at 0, and that of the result that it is."""
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [d for d in range(eqn.invars[0].aval.ndim) if d not in gone]
    for operand, result in zip(kept, sorted(numbers.offset_dims)):
        if operand not in numbers.start_index_map:
            yield operand, result
