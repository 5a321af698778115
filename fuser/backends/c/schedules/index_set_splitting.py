"""The elementwise form of a kernel that asks where it is: cut where the answers change, so that each piece knows them.

What writes a part of an array in place is one kernel over the whole array. Its inner part is then a plain loop that
vectorises, without a mask at each load, and its rims are loops of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from fuser.backends.c.emitter import masks, most_alone
from fuser.backends.c.function import Code, Part, Symbol, Variable, code
from fuser.backends.c.schedules import masking
from fuser.backends.c.schedules.elementwise import Elementwise
from fuser.ir.index import Axis
from fuser.kernel.index_set_splitting import Cut, cut
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.loops import Loops

MOST = 32  # pieces that a kernel is cut into whatever it computes
MORE = 2  # times the nodes of the kernel that all pieces may have where there are more: arrays put together from many
MANY = 8  # pieces from which each thread goes through all of them for its own share of the iterations
NARROW = 4  # elements along the vector for which a vector loop is not worth its code
BLOCK = 64  # iterations across narrow pieces that are done with before the next
# A thread's first iteration, and the next thread's.
OWN, OTHERS = Variable("own", "int64_t"), Variable("others", "int64_t")
OUTER = 16  # outer iterations from which they are shared out, rather than those along the vector


def index_set_split(kernel: Kernel, loops: Loops) -> Cut | None:
    """The kernel cut into pieces; None where it is one, or where they would be more work to write than the whole."""
    sweep = kernel.sweeps[0]
    if loops.vector is None or any(s.param < 0 for s in sweep.row_stores):
        return None
    found = _cut(sweep, loops, _order(loops))
    if found is not None and (inner := _across(found, loops)) is not None:
        found = _cut(sweep, loops, [a for a in _order(loops) if a is not inner] + [inner])
    return found


def _cut(sweep: Sweep, loops: Loops, order: Sequence[Axis]) -> Cut | None:
    nodes = len(sweep.row)
    axes = [(axis, loops.extents[axis]) for axis in order]
    found = cut(sweep.row, sweep.row_stores, axes, (MORE + MOST) * nodes)
    if found is None or found.axis is None:
        return None
    whole = found.whole
    return found if len(whole) <= MOST or sum(len(leaf.nodes) for leaf in whole) <= MORE * nodes else None


def _order(loops: Loops) -> list[Axis]:
    """The axes with the vector's innermost."""
    assert loops.vector is not None
    return [a for a in loops.parallel if a is not loops.vector] + [loops.vector]


def _across(found: Cut, loops: Loops) -> Axis | None:
    """The axis that vectors run along instead, where the pieces are many, narrow and side by side along the usual one."""
    wide = [axis for axis in loops.parallel if axis is not loops.vector and loops.extents[axis] > NARROW]
    if not wide or loops.vector is None or found.axis is not loops.vector or len(found.parts) <= MANY:
        return None
    return wide[-1] if loops.extents[loops.vector] <= NARROW * len(found.parts) else None


class IndexSetSplit(Elementwise):
    """Parallel over the outermost axis, or over the vector where there are few outer iterations."""

    most_sizes = 1 << 20  # pieces that differ in their places alone are one function (`outline`)
    dealt = False  # whether each thread goes through all pieces for its own share of the iterations

    @functools.cached_property
    def found(self) -> Cut:
        """The pieces; this form is for kernels that have some."""
        found = index_set_split(self.kernel, self.loops)
        assert found is not None
        return found

    def form(self) -> None:
        self.order = _order(self.loops)
        inner = _across(self.found, self.loops)
        if inner is not None:
            self.order = [a for a in self.order if a is not inner] + [inner]
        self.vector = self.order[-1]
        self.masks |= {node for leaf in self.found.whole for node in masks(leaf.nodes)}
        count = self.loops.count(tuple(self.order[:-1]))
        self.outer = self.order[0] if count >= OUTER and inner is None else self.vector
        self.dealt = self.threads and len(self.found.whole) > MANY
        if self.dealt:
            extent, thread, threads = (
                self.extents[self.outer],
                *map(Symbol, ("omp_get_thread_num", "omp_get_num_threads")),
            )
            self.let("int64_t", OWN.name, "{} * {}() / {}()", extent, thread, threads)
            self.let("int64_t", OTHERS.name, "{} * ({}() + 1) / {}()", extent, thread, threads)
        if inner is not None:
            self._in_blocks_of(inner)
        else:
            self._nest(self.found, 0)

    def alone(self) -> Code:
        most = min(most_alone(leaf.nodes, leaf.stores) for leaf in self.found.whole)
        return self.argument(code(f"{{}} <= {most}", self.total()))

    def _in_blocks_of(self, inner: Axis) -> None:
        """All pieces for a block of the inner axis before the next, whose results then share cache lines."""
        first, end = (OWN, OTHERS) if self.dealt else ("0", self.extents[inner])
        block = self.count("block", first, end, f"{{}} += {BLOCK}")
        self.let("int64_t", "behind", f"{{0}} + {BLOCK} < {{1}} ? {{0}} + {BLOCK} : {{1}}", block, end)
        self._nest(self.found, 0)
        self.close()

    def _nest(self, piece: Cut, depth: int) -> None:
        """The loops from axis number `depth` on."""
        if depth == len(self.order):
            self.define_all(piece.nodes)
            for store in piece.stores:
                self.store(store)
            return
        axis = self.order[depth]
        whole = self.loops.extents[axis]
        parts = piece.parts if piece.axis is axis else ((0, whole - 1, piece),)
        blocked = axis is self.vector is not self.loops.vector
        for first, last, part in parts:
            begin: Part = self.sizes(("from", axis, first), first)
            end: Part = self.extents[axis] if last == whole - 1 else self.sizes(("to", axis, last + 1), last + 1)
            with self.scope():
                shared = self.dealt and axis is self.outer
                if blocked:
                    begin, end = _later(first, begin, self.named("block")), _earlier(end, self.named("behind"))
                elif shared and first < last:
                    begin, end = _later(first, begin, OWN), _earlier(end, OTHERS)
                if first == last and not blocked and (shared or not self.threads or axis is not self.outer):
                    self.open(code("if ({0} <= {1} && {1} < {2})", OWN, begin, OTHERS) if shared else "")
                    self.let("int64_t", self.axis_names[axis], begin)
                else:
                    self._pragma(axis, last + 1 - first)
                    lanes = 0 if shared or blocked else self._lanes(part, axis, last + 1 - first)
                    if lanes:
                        self.count_masked(self.axis_names[axis], end, lanes, begin)
                    else:
                        self.loop(axis, begin, end)
                self._nest(part, depth + 1)
                self.close_masked()

    def _lanes(self, part: Cut, axis: Axis, extent: int) -> int:
        """Numbers of a vector, where a short run along the vector takes whole vectors under a mask."""
        if axis is not self.loops.vector or part.axis is not None or (self.threads and axis is self.outer):
            return 0
        return masking.lanes(self, part.nodes, part.stores, extent)

    def _pragma(self, axis: Axis, extent: int) -> None:
        """What stands before a loop: whether threads share it, and whether it is a vector loop."""
        shared = self.threads and axis is self.outer and not self.dealt
        if axis is not self.vector:
            if shared:
                self.pragma("omp for schedule(static) nowait")
        elif shared:
            self.pragma("omp for simd schedule(simd: static) nowait")
        elif extent > NARROW:
            self.pragma("omp simd")


def _later(first: int, begin: Part, second: Variable) -> Part:
    return second if first == 0 else code("{0} > {1} ? {0} : {1}", begin, second)


def _earlier(first: Part, second: Variable) -> Code:
    return code("({0} < {1} ? {0} : {1})", first, second)
