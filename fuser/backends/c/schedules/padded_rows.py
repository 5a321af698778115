"""Short rows that are reduced as a tree: which kernels have such rows, and how wide they become in a tile."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.backends.c import spell
from fuser.backends.c.schedules.guards import guards
from fuser.backends.c.schedules.masking import dear
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL
from fuser.kernel.kernel import Kernel, ReductionSpec
from fuser.kernel.loops import Loops
from fuser.kernel.short_rows import rows_as_trees

ROWS = (64, 32, 16)  # of a block: as many as its tiles leave in the nearest cache
TILES_BYTES = 24 << 10  # of all tiles of a block, half of the nearest cache
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
    if not rows_as_trees(kernel, loops) or guards(kernel):
        return None
    along, row = loops.reduced[0], loops.parallel[-1]
    return _in_blocks(kernel, row, along, loops.extents[along])


def _in_blocks(kernel: Kernel, row: Axis, along: Axis, extent: int) -> PaddedRows | None:
    """The widths by the widest numbers, and as many rows as leave all tiles in the nearest cache. Rows with functions of maths are padded
    in any case: compilers compute what whole vectors leave of a row one by one, 30 sines of logarithms in six times as long."""
    widest = widest_of(kernel)
    vector = TARGET.vector // widest
    idempotent = all(r.attr.reduction in IDEMPOTENT for sweep in kernel.sweeps for r in sweep.reductions)
    if idempotent and not (extent % vector and dear(kernel.nodes)):
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
