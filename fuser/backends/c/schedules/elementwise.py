"""The elementwise form: parallel over outer axes, with the vector along the axis that lies densest."""

from __future__ import annotations

import math

from fuser.backends.c import spell
from fuser.backends.c.emitter import Emitter
from fuser.backends.c.function import Part, Symbol, Variable
from fuser.backends.c.schedules import masking
from fuser.ir.index import Axis
from fuser.kernel.kernel import Store, Sweep
from fuser.kernel.lower import index_axes

BLOCK = 1024  # elements of a large result that are computed before they leave for memory
STREAM_BYTES = 1 << 25  # results from this size on are too large for a cache to keep


class Elementwise(Emitter):
    """Parallel over the outer axes (or over the only one), the vector along the axis that lies densest."""

    team = True

    def form(self) -> None:
        sweep = self.kernel.sweeps[0]
        axes = [a for a in self.loops.parallel if a is not self.loops.vector]
        vector = self.loops.vector
        if vector is None:
            for node in sweep.row:
                self.define(node)
            for store in sweep.row_stores:
                self.store(store)
            return
        streamed = [s for s in sweep.row_stores if not axes and self._streams(s, vector)]
        if streamed:
            self._in_blocks(vector, streamed)
            return
        outer = self.loops.count(tuple(axes))
        lanes = 0
        if not axes or outer < 16:
            for axis in axes:
                self.loop(axis)
            self.pragma("omp for simd schedule(simd: static) nowait" if self.threads else "omp simd")
        else:
            self.shared(len(axes))
            for axis in axes:
                self.loop(axis)
            extent = self.loops.extents[vector]
            rest = masking.remainder(self, sweep.row, sweep.row_stores, extent)
            if rest:
                self.in_whole_vectors(vector, rest, lambda: self.results(sweep))
                for _ in axes:
                    self.close()
                return
            self.pragma("omp simd")
            lanes = masking.lanes(self, sweep.row, sweep.row_stores, extent)
        if lanes:
            self.count_masked(self.axis_names[vector], self.extents[vector], lanes)
        else:
            self.loop(vector)
        self.results(sweep)
        self.close_masked()
        for _ in axes:
            self.close()

    def results(self, sweep: Sweep) -> None:
        self.define_all(sweep.row)
        for store in sweep.row_stores:
            self.store(store)

    def open_outer(self, vector: Axis) -> list[Axis]:
        """Open the loops around the vector's, and share them out; where they are few, the next loop with them. Gives them."""
        axes = [a for a in self.loops.parallel if a is not vector]
        together = bool(axes) and self.loops.count(tuple(axes)) >= 16
        for axis in () if together else axes:
            self.loop(axis)
        self.shared(len(axes) if together else 1)
        for axis in axes if together else ():
            self.loop(axis)
        return axes

    def _streams(self, store: Store, vector: Axis) -> bool:
        """Whether the store fills, one element after the other, memory too large for a cache to keep."""
        param = self.kernel.params[store.param]
        dense = store.offset.offset == 0 and all(
            axis is vector or axis in self.loops.absorbed for axis in index_axes(store.offset)
        )
        return (
            dense
            and store.offset.coefficient(vector) == 1
            and math.prod(param.shape) * param.dtype.itemsize >= STREAM_BYTES
        )

    def _in_blocks(self, vector: Axis, streamed: list[Store]) -> None:
        """Large results leave for memory in blocks that are computed in the core's own cache."""
        sweep = self.kernel.sweeps[0]
        total = self.extents[vector]
        self.shared()
        self.blocks(total, BLOCK)
        blocks = {store: self.block_of(store, BLOCK) for store in streamed}
        self.pragma("omp simd")
        x = self.count("x", "0", self.named("width"))
        self.let("int64_t", self.axis_names[vector], "{base} + {}", x)
        self.define_all(sweep.row)
        for store in sweep.row_stores:
            if store in blocks:
                dtype, value = self.kernel.params[store.param].dtype, self.operand(store.value)
                self.set(self.at(blocks[store], x), spell.store(dtype, value))
            else:
                self.store(store)
        self.close()
        for store in streamed:
            self.stream(store)
        self.close()

    def blocks(self, total: Part, block: int) -> None:
        """Open a loop over blocks of an axis, from `base` on, each of `width` elements."""
        self.count("base", "0", total, f"{{}} += {block}")
        self.let("int64_t", "width", f"{{0}} - {{base}} < {block} ? {{0}} - {{base}} : {block}", total)

    def block_of(self, store: Store, extent: int, what: str = "block") -> Variable:
        """Declare an array for a part of what a store writes."""
        param = self.kernel.params[store.param]
        return self.buffer(spell.storage(param.dtype), f"{param.name}_{what}", extent)

    def stream(self, store: Store) -> None:
        """A block of a result goes to memory past the caches."""
        target = self.params[store.param]
        block, form = (
            self.named(f"{target.name}_block"),
            f"{{}}({{}} + {{base}}, {{}}, {{width}} * sizeof({target.type}));",
        )
        self.do(form, Symbol("stream"), target, block)
