"""The elementwise form of a kernel that asks where it is: cut where the answers change, so that each piece knows them.

What writes a part of an array in place is one kernel over the whole array. Its inner part is then a plain loop that
vectorises, without a mask at each load, and its rims are loops of their own.
"""

from __future__ import annotations

import functools

from fuser.backends.c.rows import Elementwise
from fuser.backends.c.writer import masks, most_alone
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops
from fuser.kernel.pieces import Cut, cut

MOST = 32  # pieces of one kernel
NARROW = 4  # elements along the vector for which a vector loop is not worth its code
OUTER = 16  # outer iterations from which they are shared out, rather than those along the vector


def pieces(kernel: Kernel, loops: Loops) -> Cut | None:
    """The kernel cut into pieces; None where it is one, or where they would be many."""
    stage = kernel.stages[0]
    if loops.vector is None or any(s.param < 0 for s in stage.row_stores):
        return None
    axes = [a for a in loops.rows if a is not loops.vector] + [loops.vector]
    found = cut(stage.row, stage.row_stores, [(axis, loops.extents[axis]) for axis in axes])
    return found if 1 < len(found.whole) <= MOST else None


class Pieces(Elementwise):
    """Parallel over the outermost axis, or over the vector where there are few outer iterations."""

    @functools.cached_property
    def found(self) -> Cut:
        """The pieces; this form is for kernels that have some."""
        found = pieces(self.kernel, self.loops)
        assert found is not None
        return found

    def form(self) -> None:
        assert self.loops.vector is not None
        self.order = [a for a in self.loops.rows if a is not self.loops.vector] + [self.loops.vector]
        count = self.loops.count(tuple(self.order[:-1]))
        self.masks |= {node for leaf in self.found.whole for node in masks(leaf.nodes)}
        self.outer = self.order[0] if count >= OUTER else self.loops.vector
        self._nest(self.found, 0)

    def alone(self) -> str:
        total = " * ".join(self.extents.values()) or "1"
        most = min(most_alone(leaf.nodes, leaf.stores) for leaf in self.found.whole)
        return self.argument(f"{total} <= {most}")

    def _nest(self, piece: Cut, depth: int) -> None:
        """The loops from axis number `depth` on."""
        if depth == len(self.order):
            self._nodes(piece.nodes)
            for store in piece.stores:
                self.store(store)
            return
        axis = self.order[depth]
        whole = self.loops.extents[axis]
        parts = piece.parts if piece.axis is axis else ((0, whole - 1, piece),)
        for first, last, part in parts:
            begin = self.sizes(("from", axis, first), first)
            end = self.extents[axis] if last == whole - 1 else self.sizes(("to", axis, last + 1), last + 1)
            saved = dict(self.env)
            self._pragma(axis, last + 1 - first)
            self.loop(axis, begin, end)
            self._nest(part, depth + 1)
            self.close()
            self.env = saved

    def _pragma(self, axis: object, extent: int) -> None:
        """What stands before a loop: whether threads share it, and whether it is a vector loop."""
        shared = self.threads and axis is self.outer
        if axis is not self.loops.vector:
            if shared:
                self.line("#pragma omp for schedule(static) nowait")
        elif shared:
            self.line("#pragma omp for simd schedule(simd: static) nowait")
        elif extent > NARROW:
            self.line("#pragma omp simd")
