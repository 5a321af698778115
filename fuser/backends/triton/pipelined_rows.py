"""Whole rows, several by each program, of which the next are being copied to shared memory while one is reduced.

Where registers hold one long row, or two, little is on its way from memory while a program reduces and writes it; shared memory has room
for what comes next. As many programs as run at once take one row after another. What shared memory has no room for, and what all rows
share, is read when it is needed. No plan has this form unless a schedule asks for stages or measurements choose it (`tuning.py`): short rows
were slower so, long ones have not been measured.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.backends.triton.block_sizes import Tile
from fuser.backends.triton.emitter import Function, either
from fuser.backends.triton.reductions import COLUMN, ROW, Rows, whole_rows
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops

AHEAD_BYTES = (
    224 << 10
)  # of shared memory for rows ahead, where a program has all that a multiprocessor of an H100 gives
PARTS = 4  # of such a row, of which those are read ahead that shared memory has room for, three at least
ACCESS = 16  # bytes that a thread reads at once


def whole_or_pipelined(kernel: Kernel, loops: Loops, tile: Tile, stages: int | None) -> Function:
    """The function of rows that a program holds; of `stages` > 1, where rows can be read so many less one ahead, that, and one row a program
    where a GPU has no shared memory for it."""
    plain = whole_rows(kernel, loops, tile)
    parts = _parts(kernel, loops, tile, stages - 1) if stages and stages > 1 else None
    if parts is None:
        return plain
    return either([PipelinedRows(kernel, loops, f"{kernel.name}_ahead", *parts).write(), plain])


def _parts(kernel: Kernel, loops: Loops, tile: Tile, ahead: int) -> tuple[Tile, int, int] | None:
    """The tile of a row in parts, how many rows are read ahead, and how many of the last parts are not; None where most of a row could not be."""
    columns = loops.count(loops.reduced)
    varies = lambda index, axes: any(index.coefficient(axis) for axis in axes)
    loads = [node.attr for node in kernel.nodes if node.op == "load" and not node.args]
    own = {a.param for a in loads if varies(a.offset, loops.parallel) and varies(a.offset, loops.reduced)}
    sizes = [kernel.params[n].dtype.itemsize for n in own]
    # Shared memory is written by whole accesses alone.
    if tile.rows > 1 or not sizes or any(columns * size % ACCESS for size in sizes):
        return None
    block = max((1 << (columns - 1).bit_length()) // PARTS, 32 * tile.warps * ACCESS // min(sizes))
    blocks = -(-columns // block)
    late = max(0, blocks - AHEAD_BYTES // (ahead * block * sum(sizes)))
    if PARTS * late > blocks:
        return None
    return replace(tile, columns=block, blocks=blocks, rest=0), ahead, late


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
