"""What the loop forms for short rows take: as a tree, transposed in registers or in tiles, or one row after the other.

Seconds an element on the target, without what all forms read and write in memory, by which the cheapest form is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fuser.backends.c.schedules.padded_rows import TILES_BYTES, PaddedRows, as_it_lies, widest_of
from fuser.backends.c.target import TARGET
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL
from fuser.kernel.kernel import Kernel, ReductionSpec, Sweep
from fuser.kernel.loops import arrange
from fuser.kernel.operands import needed
from fuser.kernel.short_rows import ROWS, rows_side_by_side

BLOCK_BYTES = 32 << 10  # of a block's rows, in memory and in tiles, that nearest caches hold
FREE = ("load", "const", "index")
# Additions of an operation that what is left of a row after its vectors is computed by in passing.
MOST_IN_PLACE = TARGET.costs["div"]


@dataclass(frozen=True)
class RowPrices:
    """Seconds an element of each form; infinite where a kernel cannot have it, or is known to be slow."""

    tree: float
    transposed: float
    alone: float

    @property
    def cheapest(self) -> str:
        """The name of the form in schedules; that of transposed rows where they are in tiles."""
        if self.tree < min(self.transposed, self.alone):
            return "tree"
        return "rows side by side" if self.transposed <= self.alone else "inner"


def row_prices(kernel: Kernel, found: PaddedRows, unrolled: bool) -> RowPrices:
    """The prices of a kernel with short rows. `unrolled`: transposed rows are those of a kernel without a loop along them, and
    rows are not reduced one by one."""
    read = _read(kernel.nodes, found)
    written = sum(kernel.params[store.param].dtype.itemsize for sweep in kernel.sweeps for store in sweep.stores)
    work = _work(kernel)
    beside = unrolled or rows_side_by_side(kernel, arrange(kernel)) is not None
    return RowPrices(
        _tree(kernel, found, work, read, written, unrolled),
        _transposed(kernel, found, work, read, written, unrolled) if beside else math.inf,
        math.inf if unrolled or (beside and _left_over(kernel, found)) else _alone(kernel, found, work),
    )


def _tree(kernel: Kernel, found: PaddedRows, work: float, read: int, written: int, unrolled: bool) -> float:
    """Padding is computed with, in several passes."""
    if (unrolled and found.extent in TARGET.interleaved) or _narrowed(kernel, found):
        return math.inf
    return found.padded / found.extent * (work + TARGET.stream(_moved(kernel, found, read, written), TILES_BYTES))


def _transposed(kernel: Kernel, found: PaddedRows, work: float, read: int, written: int, unrolled: bool) -> float:
    """Elements are brought into another order, in registers or by way of tiles."""
    reductions = _reductions(kernel)
    reduced = sum(TARGET.compute(f"reduce_{spec.reduction}", spec.accumulator.itemsize) for spec in reductions)
    order = TARGET.shuffled * (read + written) / 4
    if unrolled:
        return work + reduced + order
    tiles = sum(_read(sweep.body, found) for sweep in kernel.sweeps)
    tiles += written + sum(spec.accumulator.itemsize for spec in reductions)
    near = ROWS * found.extent * 2 * (read + written) <= BLOCK_BYTES
    return work + reduced + order + TARGET.stream(tiles, TILES_BYTES if near else TARGET.levels[0].capacity + 1)


def _alone(kernel: Kernel, found: PaddedRows, work: float) -> float:
    """Each row's vector becomes a number."""
    return work + TARGET.combine * len(_reductions(kernel)) / found.extent


def _left_over(kernel: Kernel, found: PaddedRows) -> bool:
    """Whether a row is no whole number of vectors, and what is left is dear: functions take a second run, what is summed goes
    through a buffer, and tests are vectors of bytes, of which more is left."""
    dear = any(node.dtype == BOOL or TARGET.costs.get(node.op, 1) > MOST_IN_PLACE for node in kernel.nodes)
    return dear and found.extent % (TARGET.vector // widest_of(kernel)) != 0


def _reductions(kernel: Kernel) -> list[ReductionSpec]:
    return [reduction.attr for sweep in kernel.sweeps for reduction in sweep.reductions]


def _work(kernel: Kernel) -> float:
    """Seconds of an element's operations; what is kept for a later sweep is computed once."""
    nodes = [node for sweep in kernel.sweeps for node in _computed(kernel, sweep)]
    return sum(TARGET.compute(node.op, node.dtype.itemsize) for node in nodes if node.op not in FREE)


def _computed(kernel: Kernel, sweep: Sweep) -> list[Scalar]:
    kept = {node for each in kernel.sweeps for node in each.kept}
    recalled = kept.intersection(sweep.body).difference(sweep.kept)
    if not recalled:
        return list(sweep.body)
    roots = [reduction.args[0] for reduction in sweep.reductions] + [store.value for store in sweep.stores]
    return [node for node in needed(roots, sweep.body, stop=recalled) if node not in recalled]


def _narrowed(kernel: Kernel, found: PaddedRows) -> bool:
    """Whether rows of less than a vector are written in fewer bytes than they are computed in, which compilers do one by one."""
    widest = widest_of(kernel)
    written = [kernel.params[store.param].dtype.itemsize for sweep in kernel.sweeps for store in sweep.stores]
    return found.lanes < TARGET.vector // widest and min(written, default=widest) < widest


def _moved(kernel: Kernel, found: PaddedRows, read: int, written: int) -> float:
    """Bytes an element that padded rows read from and write to the nearest cache in all of their passes."""
    reduced = all(_lying(sweep, found) == list(sweep.reductions) and not sweep.stores for sweep in kernel.sweeps)
    copied = found.extent % found.lanes / found.extent if reduced and found.extent > found.lanes else 1
    moved: float = 2 * written + (0 if found.whole else 2 * read * copied)
    for sweep in kernel.sweeps:
        lying = _lying(sweep, found)
        moved += sum(r.attr.accumulator.itemsize * (2 if r in lying else 4) for r in sweep.reductions)
        moved += 2 * sum(node.dtype.itemsize for node in sweep.kept)
        moved += _read(sweep.body, found) if sweep.stores or len(lying) < len(sweep.reductions) else 0
    return moved + _overlapping(kernel, found)


def _lying(sweep: Sweep, found: PaddedRows) -> list[Scalar]:
    """The reductions that take in the very elements of an array."""
    return [r for r in sweep.reductions if as_it_lies(r.args[0], r.attr, found.along)]


def _overlapping(kernel: Kernel, found: PaddedRows) -> float:
    """Bytes an element of the vectors of rows that are not full, or overlap; a core loads two vectors in the time of a store."""
    if found.padded % found.lanes == 0:
        return 0
    read = len(found.vectors) * TARGET.vector / found.extent
    return sum(max(0, read - r.attr.accumulator.itemsize) / 2 for sweep in kernel.sweeps for r in sweep.reductions)


def _read(nodes: Iterable[Scalar], found: PaddedRows) -> int:
    """Bytes an element that nodes read along rows."""
    loads = {(n.attr.param, n.attr.offset): n.dtype.itemsize for n in nodes if n.op == "load"}
    return sum(size for (_, offset), size in loads.items() if offset.coefficient(found.along))
