"""Whole rows, block after block: a program reads the next rows into shared memory while it reduces those that it has in registers.

A program of one block reads, then reduces, then writes; where few of them fit on a multiprocessor, memory waits meanwhile. Here as many
programs as run at once share out all rows, and memory has something to do as long as there are any.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.backends.triton.emitter import Function
from fuser.backends.triton.reductions import Rows


class StreamedRows(Rows):
    """A loop over blocks of rows, `tile.ahead` of which are being read while one is reduced."""

    def write(self) -> Function:
        self.all_columns()
        rows = " * ".join(self.extents[a] for a in self.loops.parallel)
        blocks = f"tl.cdiv({rows}, ROWS)" if self.tile.rows > 1 else rows
        with self.scope():
            self.open(f"for program in tl.range({self.program()}, {blocks}, tl.num_programs(0), num_stages=STAGES):")
            programs = self.row_block()
            self.sweep_all()
            self.close()
        constants = {**self.constants(), "STAGES": self.tile.ahead + 1}
        function = self.finish(constants, programs, self.tile.warps, self.tile.hints)
        smaller = tuple(replace(launch, persistent=True) for launch in self.smaller(function.launch))
        return replace(function, launch=replace(function.launch, persistent=True, smaller=smaller))
