"""Short rows along the vector, side by side with those of the axes around: reduced axes are then walked once for all of them.

In: a kernel with columns side by side and its loops. Out: the axes that lie between the reduced ones and the vector, as columns.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops

BLOCK = 2048
ALIGNED = TARGET.line // 4  # columns: where reductions begin, so that vectors of them do not cross lines of a cache
SHORT_ROWS = 64  # columns of a row, up to which the axes around it are columns too
LEAST_PLANES = 4  # that are worth a block
LEAST_COLUMNS = 256  # of a block, where there are to be more blocks
LEAST_BLOCKS = 8  # that threads share evenly


class Planes(NamedTuple):
    """Parallel axes whose columns run side by side with those along the vector, outermost first; of the outermost one `block`
    places at a time."""

    axes: tuple[Axis, ...] = ()
    block: int = 0

    @property
    def rows(self) -> int:
        """How many rows along the vector run side by side."""
        return math.prod(axis.extent for axis in self.axes[1:]) * self.block if self.axes else 1

    @property
    def blocked(self) -> Axis | None:
        """The axis that is not taken whole."""
        return self.axes[0] if self.axes and self.block < self.axes[0].extent else None


def planes(kernel: Kernel, loops: Loops) -> Planes:
    """The parallel axes that lie between the reduced ones and short rows along the vector.

    A sum over the first axis of an array of n × 8 × 5 walks it once, with 40 columns side by side, where it would walk it eight times
    with five.
    """
    vector = loops.vector
    if vector not in loops.parallel or loops.extents[vector] >= SHORT_ROWS:
        return Planes()
    found = Planes()
    columns = -(-loops.extents[vector] // ALIGNED) * ALIGNED
    for axis in reversed([axis for axis in loops.parallel if axis is not vector]):
        if not _within_reduced(kernel, loops, axis):
            break
        extent, most = loops.extents[axis], BLOCK // columns
        if extent > most:
            blocks = max(-(-extent // most), min(LEAST_BLOCKS, extent * columns // LEAST_COLUMNS))
            block = -(-extent // blocks)
            return Planes((axis, *found.axes), block) if block >= LEAST_PLANES else found
        found = Planes((axis, *found.axes), extent)
        columns *= extent
    return found


def _within_reduced(kernel: Kernel, loops: Loops, axis: Axis) -> bool:
    """Whether steps along the axis are shorter than those along reduced axes, in all that is read along both."""
    offsets = [node.attr.offset for node in kernel.nodes if node.op == "load"]
    both = [
        (abs(offset.coefficient(axis)), abs(offset.coefficient(reduced)))
        for offset in offsets
        for reduced in loops.reduced
        if offset.coefficient(axis) and offset.coefficient(reduced)
    ]
    return bool(both) and all(own < reduced for own, reduced in both)
