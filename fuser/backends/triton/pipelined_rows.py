"""Whole rows, several by each program, of which the next are being copied to shared memory while one is reduced.

Where registers hold one long row, or two, little is on its way from memory while a program reduces and writes it; shared memory has room
for what comes next. As many programs as run at once take one row after another. What shared memory has no room for, and what all rows
share, is read when it is needed.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.backends.triton.block_sizes import FEW, MOST_WARPS, Tile
from fuser.backends.triton.emitter import Function, either
from fuser.backends.triton.reductions import COLUMN, ROW, Rows, whole_rows
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops

AHEAD = 2  # rows that are being read while one is reduced
AHEAD_BYTES = 224 << 10  # of shared memory for these, where a program has all that a multiprocessor of an H100 gives
LONG_BYTES = 48 << 10  # of what is read of a row, from which two rows are as many as a multiprocessor holds
PARTS = 4  # of such a row, of which those are read ahead that shared memory has room for, three at least
ACCESS = 16  # bytes that a thread reads at once


def whole_or_pipelined(kernel: Kernel, loops: Loops, tile: Tile) -> Function:
    """The function of rows that a program holds, by programs that read ahead where rows are long and each takes several; where a GPU has no
    shared memory for that, one row a program."""
    plain = whole_rows(kernel, loops, tile)
    parts = _read_ahead(kernel, loops, tile)
    if parts is None:
        return plain
    return either([PipelinedRows(kernel, loops, f"{kernel.name}_ahead", *parts).write(), plain])


def _read_ahead(kernel: Kernel, loops: Loops, tile: Tile) -> tuple[Tile, int, int] | None:
    """The tile of a long row in parts, how many rows are read ahead, and how many of the last parts are not; None where plain programs do."""
    columns, rows = loops.count(loops.reduced), loops.count(loops.parallel)
    varies = lambda index, axes: any(index.coefficient(axis) for axis in axes)
    loads = [node.attr for node in kernel.nodes if node.op == "load" and not node.args]
    own = {a.param for a in loads if varies(a.offset, loops.parallel) and varies(a.offset, loops.reduced)}
    sizes = [kernel.params[n].dtype.itemsize for n in own]
    if tile.rows > 1 or tile.warps != MOST_WARPS or rows < 2 * FEW or columns * sum(sizes) < LONG_BYTES:
        return None
    if any(columns * size % ACCESS for size in sizes):  # shared memory is written by whole accesses alone
        return None
    block = max((1 << (columns - 1).bit_length()) // PARTS, 32 * MOST_WARPS * ACCESS // min(sizes))
    blocks = -(-columns // block)
    late = max(0, blocks - AHEAD_BYTES // (AHEAD * block * sum(sizes)))
    if PARTS * late > blocks:
        return None
    return replace(tile, columns=block, blocks=blocks, rest=0), AHEAD, late


class PipelinedRows(Rows):
    """Blocks of whole rows, one after another, `ahead` of which are being read while one is reduced, but for their `late` last parts."""

    def __init__(
        self, kernel: Kernel, loops: Loops, name: str, tile: Tile, ahead: int, late: int = 0, kept: bool = False
    ) -> None:
        super().__init__(kernel, loops, name, tile, kept)
        self.ahead, self.late = ahead, self.parts[len(self.parts) - late :]

    def write(self) -> Function:
        rows = " * ".join(self.extents[a] for a in self.loops.parallel)
        self.all_columns()
        with self.scope():
            blocks = f"tl.range(tl.program_id(0), tl.cdiv({rows}, ROWS), tl.num_programs(0), num_stages=STAGES)"
            self.open(f"for program in {blocks}:")
            programs = self.row_block()
            self.sweep_all()
            self.close()
        constants = {**self.constants(), "STAGES": self.ahead + 1}
        function = self.finish(constants, programs, self.tile.warps, self.tile.hints)
        return replace(function, launch=replace(function.launch, persistent=True))

    def load(self, node: Scalar) -> str:
        text = super().load(node)
        dims = self.spans(node)
        ahead = {ROW, COLUMN} <= dims and self.inside not in self.late
        return text if ahead or not dims else self._when_needed(node, text)

    def _when_needed(self, node: Scalar, text: str) -> str:
        """The value of a load that is not made ahead: one within a branch never is. Where the other branch has a constant, LLVM's work on
        what follows has no end."""
        name = f"{self.name(node)}_late"
        for branch in ("if program >= 0:  # always", "else:"):
            self.open(branch)
            self.line(f"{name} = {text}")
            self.close()
        return name
