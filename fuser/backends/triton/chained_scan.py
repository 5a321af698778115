"""Scans of few long rows in one pass: a program scans one chunk, and waits for what the programs before it have published.

Each publishes its chunk's total, and the last one of a group of chunks the total of all up to there; a chunk's carry is that of the
groups before, with the totals of its own group before it, always in the same order, so that results do not depend on who is first.
A program waits for ones alone that have started before it, by tickets. Merrill and Garland, "Single-pass parallel prefix scan with
decoupled look-back" (2016). A word of 64 bits is a value and whether it is there: `ABSENT` is no value that arithmetic gives.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuser.backends.triton import spell
from fuser.backends.triton.block_sizes import Tile
from fuser.backends.triton.emitter import Emitter, Function
from fuser.backends.triton.reductions import COLUMN, WORDS, Rows, identity, reduced, scans_of, working
from fuser.backends.triton.split_reduction import Scratch
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops

GROUP = 256  # chunks whose totals a program reads at once
CLEARED = Tile(1, 1024, 4)  # words that a program of the first launch makes absent


def chainable(kernel: Kernel) -> bool:
    """Whether a kernel is one sweep with scans and no reductions, whose results 64 bits hold beside whether they are there."""
    if len(kernel.sweeps) != 1 or kernel.sweeps[0].reductions:
        return False
    scans = scans_of(kernel.sweeps[0])
    return bool(scans) and all(is_float(scan) or scan.attr.accumulator.itemsize <= 4 for scan in scans)


def chained(kernel: Kernel, loops: Loops, tile: Tile) -> tuple[list[Function], Scratch]:
    """The functions that scan chunks as long as the tile is wide, and the scratch memory between them."""
    chunks = -(-loops.count(loops.reduced) // tile.columns)
    rows, groups = loops.count(loops.parallel), -(-chunks // GROUP)
    words = 1 + len(scans_of(kernel.sweeps[0])) * rows * (chunks + groups)
    scratch: Scratch = {"words": (words, np.dtype("int64"))}
    clear = Clear(kernel, loops, f"{kernel.name}_0", words)
    return [clear.write(), Chained(kernel, loops, f"{kernel.name}_1", tile, chunks).write()], scratch


class Clear(Emitter):
    """The first launch: no ticket is given, and no word is there."""

    def __init__(self, kernel: Kernel, loops: Loops, name: str, words: int) -> None:
        super().__init__(kernel, loops, name)
        self.words, self.scratch = words, {"words": 0}

    def write(self) -> Function:
        self.line("word = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)")
        inside = f"mask=word < {self.sizes(('words',), self.words)}"
        self.line(f"tl.store(words + word, tl.where(word == 0, 0, ABSENT).to(tl.int64), {inside})")
        constants = {"COLUMNS": CLEARED.columns, "ABSENT": -1}
        function = self.finish(constants, -(-self.words // CLEARED.columns), CLEARED.warps, False)
        return replace(function, launch=replace(function.launch, elements=self.words))


class Chained(Rows):
    """The second launch: each program scans the chunk that its ticket says."""

    def __init__(self, kernel: Kernel, loops: Loops, name: str, tile: Tile, chunks: int) -> None:
        super().__init__(kernel, loops, name, tile)
        self.chunks, self.scratch = chunks, {"words": 0}
        self.scans = {scan: number for number, scan in enumerate(scans_of(kernel.sweeps[0]))}

    def write(self) -> Function:
        chunks = self.sizes(("chunks",), self.chunks)
        self.line('ticket = tl.atomic_add(words, 1, sem="relaxed")' + ("" if self.wide else ".to(tl.int32)"))
        self.line(f"chunk = ticket % {chunks}")
        self.line(f"program = ticket // {chunks}")
        rows = self.row_block()
        (sweep,) = self.kernel.sweeps
        place = f"({chunks} - 1 - chunk)" if self._reverse() else "chunk"
        self.columns(f"{place} * COLUMNS + tl.arange(0, COLUMNS)[None, :]")
        self.line("group = chunk // GROUP")
        self.line("earlier = group * GROUP + tl.arange(0, GROUP)")
        self.line("last_group = group - 1 + tl.arange(0, 1)")
        self.sweep_all()
        assert not sweep.reductions
        return self.finish(self.constants(), rows * self.chunks, self.tile.warps, self.tile.hints)

    def _reverse(self) -> bool:
        return next(iter(self.scans)).attr.reverse

    def constants(self) -> dict[str, int]:
        return {**super().constants(), "GROUP": GROUP}

    def scan(self, node: Scalar, carry: str = "") -> None:
        """The prefix scan of a chunk behind the total of all chunks before it."""
        spec, name, (operand,) = node.attr, self.name(node), node.args
        self.varies[node] = self.spans(operand) | {COLUMN}
        combine = WORDS.get(spec.reduction, f"combine_{spec.reduction}")
        reverse = ", reverse=True" if spec.reverse else ""
        wide = "tl.float64" if is_float(node) else working(spec)
        chunks, number = self.sizes(("chunks",), self.chunks), self.scans[node]
        rows = " * ".join(self.extents[a] for a in self.loops.parallel) or "1"
        totals = f"words + 1 + ({number} * ({rows}) + program) * ({chunks} + tl.cdiv({chunks}, GROUP))"
        self.line(f"{name}_next = {self.element(operand, spec)}")
        self.line(f"{name}_run = tl.associative_scan({name}_next, 1, {combine}{reverse})")
        self.line(f"{name}_total = tl.sum({reduced(spec, f'{name}_next')}).to({wide})")  # of one element: a scalar
        self.line(f"{name}_words = {totals}")
        self.line(f'tl.atomic_xchg({name}_words + chunk, word_of({name}_total), sem="relaxed")')
        self.line(f"{name}_before = read_words({name}_words + earlier, earlier < chunk)")
        empty = f"tl.full((), {identity(spec)}, {wide})"
        parts = f"tl.where(earlier < chunk, value_of({name}_before, {wide}), {empty})"
        self.line(f"{name}_carry = tl.reduce({parts}, 0, {combine})")
        self.line(f"{name}_groups = read_words({name}_words + {chunks} + last_group, last_group >= 0)")
        groups = f"tl.where(last_group >= 0, value_of({name}_groups, {wide}), {empty})"
        self.line(f"{name}_carry = {combine}(tl.reduce({groups}, 0, {combine}), {name}_carry)")
        self.open("if chunk % GROUP == GROUP - 1:")
        whole = f"word_of({combine}({name}_carry, {name}_total))"
        self.line(f'tl.atomic_xchg({name}_words + {chunks} + group, {whole}, sem="relaxed")')
        self.close()
        kind = working(spec)
        self.line(f"{name}_whole = {name}_carry.to({kind})")
        if (
            spec.reduction == "sum" and kind == "tl.float32"
        ):  # what the carry has beyond a float32 goes to the smaller sums
            self.line(f"{name}_lost = ({name}_carry - {name}_whole.to({wide})).to({kind})")
            self.line(f"{name}_run = {name}_run + tl.where({name}_lost == {name}_lost, {name}_lost, 0.0)")
        self.line(f"{name} = {combine}({name}_whole, {name}_run){self.narrow(node)}")
        self.env[node] = name


def is_float(scan: Scalar) -> bool:
    """Whether a scan or a reduction works in float32 or float64."""
    return spell.local(scan.attr.accumulator) in ("tl.float32", "tl.float64")
