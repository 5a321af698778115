"""Short rows that are reduced as a tree: which kernels have such rows, and how wide they become in a tile."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.backends.c import spell
from fuser.backends.c.schedules.guards import guards
from fuser.backends.c.target import TARGET
from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_complex, is_inexact
from fuser.kernel.kernel import Kernel, ReductionSpec
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes

LONGEST = 128  # elements of a row: longer ones are vectors enough
FEWEST_ROWS = 64
ROWS = (64, 32, 16)  # of a block: as many as its tiles leave in the nearest cache
TILES_BYTES = 24 << 10  # of all tiles of a block, half of the nearest cache
FEWEST_ROUNDED = 8  # elements: fewer are added and multiplied in order, as in NumPy and JAX, and overflow where they do
ORDERLESS = ("sum", "prod", "max", "min", "and", "or", "xor")
IDEMPOTENT = ("max", "min", "and", "or")  # an element that is taken in twice changes nothing


@dataclass(frozen=True)
class PaddedRows:
    """The axis that counts rows and the one along them, of `extent` elements; `padded` elements of a row in a tile, of which
    `lanes` become one last; `block` rows that are in work at once. A row that is not padded may be no whole number of `lanes`:
    its last vector then overlaps the one before."""

    row: Axis
    along: Axis
    extent: int
    padded: int
    lanes: int
    block: int

    @property
    def whole(self) -> bool:
        """Whether rows are not padded, so that they need no tiles."""
        return self.padded == self.extent

    @property
    def vectors(self) -> list[int]:
        """Where the vectors of a row begin."""
        return [min(first, self.padded - self.lanes) for first in range(0, self.padded, self.lanes)]


def padded_rows(kernel: Kernel, loops: Loops) -> PaddedRows | None:
    """The rows that a kernel reduces, where they are short, many, and dense; None where there are no such rows."""
    if kernel.loop is not None or len(loops.reduced) != 1 or loops.vector is not loops.reduced[0] or not loops.parallel:
        return None
    along, row = loops.reduced[0], loops.parallel[-1]
    few = loops.extents[row] < FEWEST_ROWS or not 2 < loops.extents[along] <= LONGEST
    if few or not _orderless(kernel, loops.extents[along]) or not _dense(kernel, row, along) or guards(kernel):
        return None
    return _in_blocks(kernel, row, along, loops.extents[along])


def _orderless(kernel: Kernel, extent: int) -> bool:
    """Whether reductions take in their operands in any order, and nothing goes wrong where padding is computed with."""
    divided = any(n.op in ("div", "rem") and n.dtype.kind in "iu" for n in kernel.nodes)
    if divided or any(is_complex(n.dtype) or n.op == "scan" for n in kernel.nodes):
        return False
    specs = [reduction.attr for sweep in kernel.sweeps for reduction in sweep.reductions]
    rounded = any(spec.reduction in ("sum", "prod") and is_inexact(spec.accumulator) for spec in specs)
    if rounded and extent < FEWEST_ROUNDED:
        return False
    return bool(specs) and all(spec.reduction in ORDERLESS for spec in specs)


def _dense(kernel: Kernel, row: Axis, along: Axis) -> bool:
    """Whether all that follows the elements of rows has them side by side. What a row reads once may lie anywhere."""
    loads = [n for sweep in kernel.sweeps for n in sweep.body if n.op == "load"]
    written = [s for sweep in kernel.sweeps for s in sweep.stores]
    if any(load.args for load in loads) or any(store.total is not None for store in kernel.stores):
        return False
    if any(store.offset.coefficient(along) != 1 or store.offset.coefficient(row) == 0 for store in written):
        return False
    return all(
        _by_strides(offset, row, along) for offset in [*(n.attr.offset for n in loads), *(s.offset for s in written)]
    )


def _by_strides(offset: Affine, row: Axis, along: Axis) -> bool:
    divided = any(isinstance(atom, Div) and index_axes(atom.base) & {row, along} for atom, _ in offset.terms)
    return not computed(offset) and not divided and offset.coefficient(along) in (0, 1)


def _in_blocks(kernel: Kernel, row: Axis, along: Axis, extent: int) -> PaddedRows | None:
    """The widths by the widest numbers, and as many rows as leave all tiles in the nearest cache."""
    widest = widest_of(kernel)
    vector = TARGET.vector // widest
    if all(r.attr.reduction in IDEMPOTENT for sweep in kernel.sweeps for r in sweep.reductions):
        lanes, padded = min(vector, 1 << extent.bit_length() - 1), extent
    else:
        lanes = vector if extent >= vector else 1 << (extent - 1).bit_length()
        padded = -(-extent // lanes) * lanes
    tiles = sum(len(sweep.kept) + len(sweep.reductions) for sweep in kernel.sweeps)
    if padded > extent:
        followed = {
            (n.attr.param, n.attr.offset) for n in kernel.nodes if n.op == "load" and along in n.attr.offset.leaves
        }
        tiles += len(followed) + sum(len(sweep.stores) for sweep in kernel.sweeps)
    for rows in ROWS:
        if tiles * rows * padded * widest <= TILES_BYTES:
            return PaddedRows(row, along, extent, padded, lanes, rows)
    return None


def widest_of(kernel: Kernel) -> int:
    """Bytes of the widest numbers, at least those of a float32."""
    return max([4, *(n.dtype.itemsize for n in kernel.nodes if n.op != "const")])


def as_it_lies(value: Scalar, spec: ReductionSpec, along: Axis) -> bool:
    """Whether a reduction may take in the very elements of an array."""
    dtype = value.dtype
    if value.op != "load" or value.attr.offset.coefficient(along) == 0 or dtype != spec.accumulator or dtype == BOOL:
        return False
    return spell.storage(dtype) == spell.local(dtype)
