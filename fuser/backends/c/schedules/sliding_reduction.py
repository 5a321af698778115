"""Reductions of all elements of a stencil whose neighbours share values: whether all results are finite, how large the largest is.

Chunks of rows run in parallel, each with sliding windows (`sliding_window.py`). What a reduction takes in of a shared value it takes in
where that is computed.
"""

from __future__ import annotations

from fuser.backends.c.function import Code, Range, code
from fuser.backends.c.schedules import sliding_window
from fuser.backends.c.schedules.inner_reduction import SplitInnerReduction
from fuser.ir.index import Axis
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.loops import Loops
from fuser.kernel.schedule import NOTHING_ASKED, Schedule


class SlidingReduction(SplitInnerReduction):
    """Parallel over chunks of the axis along which windows slide."""

    def __init__(
        self,
        found: sliding_window.SlidingWindow,
        kernel: Kernel,
        loops: Loops,
        threads: bool = True,
        asked: Schedule = NOTHING_ASKED,
    ) -> None:
        super().__init__(kernel, loops, threads, asked)
        self.found = found
        self.made(reduction="split inner", sliding_window=len(found.plan.kept))

    def _order(self) -> list[Axis]:
        own = self.found.plan.axes
        return [own[0], *(axis for axis in self.loops.reduced if axis not in own), own[1]]

    def least(self, inner: Code) -> Code:
        """Rows of a chunk."""
        rows = super().least(inner)
        return code(f"({{0}} > {sliding_window.CHUNK_ROWS} ? {{0}} : {sliding_window.CHUNK_ROWS})", rows)

    def _row_sweep(self, sweep: Sweep, chunk: Range | None = None) -> None:
        assert chunk is not None
        saved = dict(self.env)
        clauses = {reduction: self.declare(reduction) for reduction in sweep.reductions}
        _, *around, vector = self._order()
        for axis in around:
            self.loop(axis)
        sliding_window.rows(self, self.found, chunk, ("0", self.extents[vector]), clauses)
        for _ in around:
            self.close()
        self._end_sweep(sweep, saved)
