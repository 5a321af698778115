"""Rows longer than a program holds, held by several: each reduces its piece, publishes that, and reads what the others have published.

So rows are read once and written once, where a sweep after a reduction would read them again. A program waits for others of its row
alone, which have neighbouring tickets: at most one row's programs wait for ones that have not started, and those are fewer than the
programs that run at once. What is published is combined in the order of the pieces, so that results do not depend on who is first.
"""

from __future__ import annotations

import numpy as np

from fuser.backends.triton.block_sizes import Tile
from fuser.backends.triton.chained_scan import Clear, is_float
from fuser.backends.triton.emitter import Function
from fuser.backends.triton.reductions import POSITIONS, WORDS, Rows, identity, reduced, scans_of, working
from fuser.backends.triton.split_reduction import Scratch
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.loops import Loops


def cooperates(kernel: Kernel) -> bool:
    """Whether several programs may hold a row: 64 bits hold each reduction's result beside whether it is there."""
    reductions = [f for sweep in kernel.sweeps for f in sweep.reductions]
    fits = all(
        f.attr.reduction not in POSITIONS and (is_float(f) or f.attr.accumulator.itemsize <= 4) for f in reductions
    )
    return fits and bool(reductions) and not any(map(scans_of, kernel.sweeps))


def cooperative(kernel: Kernel, loops: Loops, tile: Tile) -> tuple[list[Function], Scratch]:
    """The functions of rows in pieces as long as the tile is wide, and the scratch memory between programs."""
    pieces = -(-loops.count(loops.reduced) // tile.columns)
    reductions = sum(len(sweep.reductions) for sweep in kernel.sweeps)
    words = 1 + reductions * loops.count(loops.parallel) * pieces
    scratch: Scratch = {"words": (words, np.dtype("int64"))}
    clear = Clear(kernel, loops, f"{kernel.name}_0", words)
    return [clear.write(), CooperativeRows(kernel, loops, f"{kernel.name}_1", tile, pieces).write()], scratch


class CooperativeRows(Rows):
    """The second launch, after that which clears the words: a piece of a row a program, by its ticket."""

    def __init__(self, kernel: Kernel, loops: Loops, name: str, tile: Tile, pieces: int) -> None:
        super().__init__(kernel, loops, name, tile)
        self.pieces, self.scratch = pieces, {"words": 0}
        reductions = [f for sweep in kernel.sweeps for f in sweep.reductions]
        self.numbers = {reduction: number for number, reduction in enumerate(reductions)}

    def program(self) -> str:
        return "ticket // PIECES"

    def row_block(self) -> int:
        return super().row_block() * self.pieces

    def all_columns(self) -> None:
        """Name the columns of the program's piece."""
        whole = self.loops.count(self.loops.reduced) % self.tile.columns == 0
        self.line("piece = ticket % PIECES")
        self.line("pieces = tl.arange(0, PIECES_BLOCK)")
        self.columns("piece * COLUMNS + tl.arange(0, COLUMNS)[None, :]", masked=not whole)

    def write(self) -> Function:
        self.line("ticket = tl.atomic_add(words, 1)" + ("" if self.wide else ".to(tl.int32)"))
        return super().write()

    def constants(self) -> dict[str, int]:
        return {**super().constants(), "PIECES": self.pieces, "PIECES_BLOCK": 1 << (self.pieces - 1).bit_length()}

    def row_part(self, sweep: Sweep) -> None:
        self.extra_mask["piece"] = "(piece == 0)"
        super().row_part(sweep)
        self.extra_mask.clear()

    def sweep_all(self) -> None:
        """All sweeps of the piece; the reductions of one are published together, before any is waited for."""
        for sweep in self.kernel.sweeps:
            self.row_part(sweep)
            self.define_all(sweep.body)
            for reduction in sweep.reductions:
                self._publish(reduction)
            for reduction in sweep.reductions:
                self._await(reduction)
            for store in sweep.stores:
                self.store(store)

    def _publish(self, reduction: Scalar) -> None:
        """Write the piece's own result where the others find it."""
        spec, name = reduction.attr, self.name(reduction)
        rows = " * ".join(self.extents[a] for a in self.loops.parallel) or "1"
        own = reduced(spec, self.element(reduction.args[0], spec))
        self.line(f"{name}_own = tl.sum({own}).to({_published(reduction)})")  # of one element: a scalar
        place = f"({self.numbers[reduction]} * ({rows}) + program) * PIECES"
        self.line(f"{name}_words = words + 1 + {place}")
        self.line(f'tl.atomic_xchg({name}_words + piece, word_of({name}_own), sem="relaxed")')

    def _await(self, reduction: Scalar) -> None:
        """Combine what all pieces of the row have published."""
        spec, name, kind = reduction.attr, self.name(reduction), _published(reduction)
        combine = WORDS.get(spec.reduction, f"combine_{spec.reduction}")
        self.line(f"{name}_parts = read_words({name}_words + pieces, pieces < PIECES)")
        nothing = f"tl.full((), {identity(spec)}, {kind})"
        parts = f"tl.where(pieces < PIECES, value_of({name}_parts, {kind}), {nothing})"
        whole = f"tl.broadcast_to(tl.reduce({parts}, 0, {combine}), (1, 1))"
        self.line(f"{name} = {whole}.to({working(spec)}){self._narrow(reduction)}")
        self.varies[reduction] = self.spans(reduction.args[0]) - {"c"}
        self.env[reduction] = name


def _published(reduction: Scalar) -> str:
    """The type in which results are published and combined: floats as float64."""
    return "tl.float64" if is_float(reduction) else working(reduction.attr)
