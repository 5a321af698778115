"""Rows longer than a program holds, held by several: each reduces its piece, publishes that, and reads what the others have published.

So rows are read once and written once, where a sweep after a reduction would read them again. A program waits for others of its row
alone, which have neighbouring tickets: at most one row's programs wait for ones that have not started, and those are fewer than the
programs that run at once. What is published is combined in the order of the pieces, so that results do not depend on who is first.

A sum of exponentials relative to the row's maximum is published relative to the piece's own, and one of squares of distances to the
mean relative to the piece's own, beside these: one wait does for both. What was exponentiated takes a factor once the row's are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fuser.backends.triton import spell
from fuser.backends.triton.block_sizes import MOST_PIECES, ONE_WAVE, Tile
from fuser.backends.triton.chained_scan import Clear, is_float
from fuser.backends.triton.emitter import Function, Launch
from fuser.backends.triton.online_sums import near, shifted, whole
from fuser.backends.triton.reductions import CHUNK, COLUMN, POSITIONS, WORDS, Rows, identity, reduced, scans_of, working
from fuser.backends.triton.split_reduction import Scratch
from fuser.backends.triton.target import TARGET
from fuser.ir.scalar import Scalar
from fuser.kernel.cost import iteration
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.loops import Loops
from fuser.kernel.online import Online
from fuser.kernel.relative_sums import RelativeSums, with_relative_sums

# Seconds from what one program publishes to its use by another, by way of the second cache of a GPU that is busy with memory.
WAIT = 1.5e-6
REGISTERS = 64  # of a thread, which holds 32 elements: what programs wait for is hidden by as many as run at once
NARROW_REGISTERS = (88, 96)  # of one that holds 64 elements of 16 bits, so that more bytes of rows are held at once


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
    programs = loops.count(loops.parallel) * pieces
    words = 1 + sum(len(sweep.reductions) for sweep in kernel.sweeps) * programs
    scratch: Scratch = {"words": (words, np.dtype("int64"))}
    clear = Clear(kernel, loops, f"{kernel.name}_0", words)
    kernel, relative = _with_fewer_waits(kernel, programs, tile)
    rows = CooperativeRows(kernel, loops, f"{kernel.name}_1", tile, pieces, relative)
    return [clear.write(), rows.write()], scratch


def _with_fewer_waits(kernel: Kernel, programs: int, tile: Tile) -> tuple[Kernel, RelativeSums]:
    """The kernel with sums beside what they are relative to, where the waits that this saves take longer than what is computed
    again; and how these sums are relative."""
    moved, relative = with_relative_sums(kernel)
    later = {node for sweep in moved.sweeps[1:] for node in sweep.body}
    again = iteration(
        dict.fromkeys(n for r in relative.online.values() for n in r.elements if n in later and n.op != "exp"),
        (),
        TARGET,
    )
    again += len({r.exponential for r in relative.online.values()} & later) * TARGET.compute("mul", 4)
    sooner = _seconds(moved, programs, tile, again) < _seconds(kernel, programs, tile, 0.0)
    return (moved, relative) if sooner else (kernel, RelativeSums())


def _seconds(kernel: Kernel, programs: int, tile: Tile, again: float) -> float:
    """Seconds of memory or arithmetic, whichever is longer, and of the waits of one program after another; `again`: seconds an element
    of what is computed twice."""
    nodes = dict.fromkeys(node for sweep in kernel.sweeps for node in sweep.body)
    elements = programs * tile.columns
    arithmetic = elements * (iteration([node for node in nodes if node.op != "load"], (), TARGET) + again)
    moved = sum(math.prod(param.shape) * param.dtype.itemsize for param in kernel.params)
    at_once = ONE_WAVE * 8 / tile.warps
    waits = sum(bool(sweep.reductions) for sweep in kernel.sweeps)
    return max(arithmetic, moved / TARGET.levels[-1].bandwidth) + waits * WAIT * programs / at_once


class CooperativeRows(Rows):
    """The second launch, after that which clears the words: a piece of a row a program, by its ticket."""

    def __init__(
        self, kernel: Kernel, loops: Loops, name: str, tile: Tile, pieces: int, relative: RelativeSums
    ) -> None:
        super().__init__(kernel, loops, name, tile)
        self.pieces, self.scratch = pieces, {"words": 0}
        self.relative, self.online, self.squares = relative, relative.online, relative.squares
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
        self.line("pieces = tl.arange(0, PIECES_BLOCK)[None, :]")
        self.columns("piece * COLUMNS + tl.arange(0, COLUMNS)[None, :]", masked=not whole)

    def write(self) -> Function:
        self.line('ticket = tl.atomic_add(words, 1, sem="relaxed")' + ("" if self.wide else ".to(tl.int32)"))
        return super().write()

    def choices(self, launch: Launch) -> list[Launch]:
        limited = [replace(launch, registers=REGISTERS), launch]
        elements = self.loops.count((*self.loops.parallel, *self.loops.reduced))
        rows = (param for param in self.kernel.params if math.prod(param.shape) >= elements)
        if max((param.dtype.itemsize for param in rows), default=4) <= 2:
            half = replace(launch, warps=max(1, launch.warps // 2))
            limited[:0] = [replace(half, registers=registers) for registers in NARROW_REGISTERS]
        return limited

    def constants(self) -> dict[str, int]:
        return {**super().constants(), "PIECES": self.pieces, "PIECES_BLOCK": 32 if self.pieces <= 32 else MOST_PIECES}

    def row_part(self, sweep: Sweep) -> None:
        self.extra_mask["piece"] = "(piece == 0)"
        super().row_part(sweep)
        self.extra_mask.clear()

    def sweep_all(self) -> None:
        """All sweeps of the piece; the reductions of one are published together, before any is waited for."""
        for sweep in self.kernel.sweeps:
            self.row_part(sweep)
            later = {node for r in sweep.reductions for node in self.relative.elements(r)}
            self.define_all(node for node in sweep.body if node not in later)
            for reduction in sweep.reductions:
                self._publish(reduction)
            if sweep.reductions:
                self._await(sweep.reductions)
            for reduction in sweep.reductions:
                self._combine(reduction)
            for store in sweep.stores:
                self.store(store)

    def _publish(self, reduction: Scalar) -> None:
        """Write the piece's own result where the others find it."""
        name = self.name(reduction)
        rows = " * ".join(self.extents[a] for a in self.loops.parallel) or "1"
        with self.scope():
            value = self._squares(reduction) if reduction in self.squares else self._elements(reduction)
        self.line(f"{name}_piece = {reduced(reduction.attr, value)}")
        self.line(f"{name}_own = tl.sum({name}_piece)")  # of one element: a scalar
        place = f"({self.numbers[reduction]} * ({rows}) + program) * PIECES"
        self.line(f"{name}_words = words + 1 + {place}")
        self.line(f'tl.atomic_xchg({name}_words + piece, word_of({name}_own), sem="relaxed")')

    def _elements(self, reduction: Scalar) -> str:
        """What a reduction takes of each element; of an online sum relative to the piece's own maximum."""
        if (relative := self.online.get(reduction)) is not None:
            name, largest = self.name(reduction), f"{self.name(relative.maximum)}_piece"
            rows = self.spans(relative.maximum.args[0]) - {COLUMN}
            shift = shifted(self, relative, largest, rows, f"{name}_at")
            self.line(f"{name}_shift = {near(shift, largest, working(reduction.attr))}")
            self.env[relative.shift], self.varies[relative.shift] = f"{name}_shift", rows
            self.define_all(relative.elements)
        return self.element(reduction.args[0], reduction.attr)

    def _squares(self, reduction: Scalar) -> str:
        """The squares of distances to the piece's own mean."""
        relative, name, kind = self.squares[reduction], self.name(reduction), working(reduction.attr)
        self.line(f"{name}_mean = {self.name(relative.base)}_piece / {self._inside('piece')}.to({kind})")
        number = self.element(relative.number, reduction.attr)
        self.line(f"{name}_next = {self.within(f'{number} - {name}_mean', '0.0')}")
        return f"{name}_next * {name}_next"

    def _inside(self, piece: str) -> str:
        """How many elements of a piece lie within the row; 1 where there is no such piece."""
        total = " * ".join(self.extents[a] for a in self.loops.reduced)
        return f"tl.maximum(tl.minimum({total} - {piece} * COLUMNS, COLUMNS), 1)"

    def _await(self, reductions: Sequence[Scalar]) -> None:
        """Read what all pieces of the row have published, as soon as all of it is there."""
        names = [self.name(reduction) for reduction in reductions]
        reads = [
            f"{name}_found = tl.load({name}_words + pieces, mask=pieces < PIECES, other=0, volatile=True)"
            for name in names
        ]
        absent = " | ".join(f"({name}_found == -1)" for name in names)
        for text in reads:
            self.line(text)
        self.open(f"while tl.max(({absent}).to(tl.int32)) != 0:")
        for text in reads:
            self.line(text)
        self.close()
        for reduction, name in zip(reductions, names, strict=True):
            kind = working(reduction.attr)
            nothing = f"tl.full((), {identity(reduction.attr)}, {kind})"
            self.line(f"{name}_parts = tl.where(pieces < PIECES, value_of({name}_found, {kind}), {nothing})")

    def _combine(self, reduction: Scalar) -> None:
        """The row's result from those of all its pieces."""
        spec, name = reduction.attr, self.name(reduction)
        self.varies[reduction] = self.spans(reduction.args[0]) - {COLUMN}
        if (relative := self.online.get(reduction)) is not None:
            self.define_all(relative.chain)
            largest, kind = f"{self.name(relative.maximum)}_parts", working(spec)
            dims = (self.spans(relative.maximum.args[0]) | {CHUNK}) - {COLUMN}
            before = near(shifted(self, relative, largest, dims, f"{name}_before"), largest, kind)
            whole(self, reduction, relative, f"{name}_parts", before)
            self._move(relative, f"{name}_shift")
        else:
            combine = WORDS.get(spec.reduction, f"combine_{spec.reduction}")
            text = f"tl.reduce({self._parts(reduction)}, 1, {combine}, keep_dims=True)"
            self.line(f"{name} = {text}{self.narrow(reduction)}")
        self.env[reduction] = name

    def _move(self, relative: Online, before: str) -> None:
        """Exponentials relative to the piece's own maximum as relative to the row's, by one factor: less than computing them again."""
        node = relative.exponential
        if node not in self.env:
            name, kind = self.name(node), spell.local(node.dtype)
            after = f"({self.operand(relative.shift)}).to(tl.float32)"
            self.line(f"{name} = ({name} * libdevice.exp({before}.to(tl.float32) - {after})).to({kind})")
            self.env[node] = name

    def _parts(self, reduction: Scalar) -> str:
        """The parts of a row's result; of a sum of squares around the row's centre: Chan, Golub and LeVeque (1983)."""
        name = self.name(reduction)
        if (relative := self.squares.get(reduction)) is None:
            return f"{name}_parts"
        self.define_all(relative.chain)
        self.line(f"{name}_count = {self._inside('pieces')}.to({working(reduction.attr)})")
        self.line(f"{name}_away = {self.name(relative.base)}_parts / {name}_count - {self.operand(relative.centre)}")
        moved = f"{name}_parts + {name}_count * ({name}_away * {name}_away)"
        return f"tl.where(pieces < PIECES, {moved}, 0.0)"
