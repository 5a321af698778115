"""Few long rows: each stage is a launch of its own, shared out over chunks of the reduced axes.

A launch writes one partial result a chunk and row; the next one folds them in a fixed order before it goes on; a scan
takes two launches, one for the chunks' totals and one that carries on from those before it. What a stage computes of
each element is computed again by the next: nothing of the rows' length is kept between launches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fuser.backends.triton.rows import POSITIONS, LongRows, identity, reduced, scans_of, working
from fuser.backends.triton.tile import Chunks, Tile
from fuser.backends.triton.writer import Function, required
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel, Stage
from fuser.kernel.loops import Loops
from fuser.kernel.lower import computed, operands

Scratch = dict[str, tuple[int, np.dtype]]  # name: elements and dtype, in order


def split(kernel: Kernel, loops: Loops, tile: Tile, chunks: Chunks) -> tuple[list[Function], Scratch]:
    """One function a stage, and the arrays of partial results between them."""
    kernel, totals = _with_totals(kernel)
    cells = loops.count(loops.rows) * chunks.count
    scratch: Scratch = {}
    for number, fold in enumerate(f for stage in kernel.stages for f in stage.folds):
        scratch[f"part{number}"] = (cells, _storage(fold))
        if fold.attr.fold in POSITIONS:
            scratch[f"place{number}"] = (cells, np.dtype("int64"))
    functions = []
    for number, stage in enumerate(kernel.stages):
        if stage.loops or stage.row_stores:
            functions.append(
                Phase(kernel, loops, f"{kernel.name}_{number}", tile, chunks, number, scratch, totals).write()
            )
    return functions, scratch


class Phase(LongRows):
    """One stage over chunks."""

    def __init__(
        self,
        kernel: Kernel,
        loops: Loops,
        name: str,
        tile: Tile,
        chunks: Chunks,
        number: int,
        scratch: Scratch,
        totals: dict[Scalar, Scalar],
    ) -> None:
        super().__init__(kernel, loops, name, tile)
        self.chunks = chunks
        self.number = number
        self.totals = totals
        self.numbers = {name: position for position, name in enumerate(scratch)}
        folds = [f for stage in kernel.stages for f in stage.folds]
        self.part = {fold: position for position, fold in enumerate(folds)}

    def write(self) -> Function:
        stage = self.kernel.stages[self.number]
        count = self.sizes(("chunks",), self.chunks.count)
        self.line(f"program = {self.program()}")
        if stage.loops:
            self.line(f"chunk = program % {count}")
            self.line(f"program = program // {count}")
        programs = self.row_block()
        rows = " * ".join(self.extents[a] for a in self.loops.rows) or "1"
        self._before(stage, count, rows)
        if stage.loops:
            programs *= self.chunks.count
            self.extra_mask["chunk"] = "(chunk == 0)"
        for store in stage.row_stores:
            self.store(store)
        self.extra_mask.clear()
        if stage.loops:
            pieces = self.sizes(("pieces",), self.chunks.length // self.tile.columns)
            total = " * ".join(self.extents[a] for a in self.loops.cols)
            self.line(f"first = chunk * ({pieces} * COLUMNS)")
            self.line(f"last = tl.minimum(first + {pieces} * COLUMNS, {total})")
            self.walk(stage, "first", "last")
        for fold in stage.folds:
            self._write_part(fold, rows)
        return self.finish(self.constants(), programs, self.tile.warps, self.tile.hints)

    def constants(self) -> dict[str, int]:
        return {**super().constants(), "CHUNKS": self.chunks.block}

    def _before(self, stage: Stage, count: str, rows: str) -> None:
        """What the stage needs of a row: folds of earlier stages, from their partial results, and values made of them."""
        earlier = self.kernel.stages[: self.number + 1]
        order = [n for s in earlier for n in (*s.row, *(s.folds if s is not stage else ()))]
        roots = [n for s in (*stage.stores, *stage.row_stores) for n in (s.value, *computed(s.offset))]
        roots += [n for node in stage.body for n in operands(node)] + [f.args[0] for f in stage.folds]
        needed = required(roots, list(dict.fromkeys(order)))
        folds = [n for n in needed if n.op == "fold"]
        if folds or scans_of(stage):
            self.line("chunks = tl.arange(0, CHUNKS)[None, :]")
            inside = f"row_inside & (chunks < {count})" if self.loops.rows else f"chunks < {count}"
            self.line(f"chunks_inside = {inside}")
        for fold in folds:
            self._read_part(fold, rows)
        self.define_all(n for n in needed if n.op != "fold")

    def _buffer(self, name: str) -> str:
        self.scratch[name] = self.numbers[name]
        return name

    def _read_part(self, fold: Scalar, rows: str) -> None:
        spec, name, number = fold.attr, self.name(fold), self.part[fold]
        place = f"chunks * ({rows}) + row"
        load = f"tl.load({self._buffer(f'part{number}')} + {place}, mask=chunks_inside, other={_bare(fold)})"
        self.varies[fold] = frozenset("r")
        if spec.fold in POSITIONS:
            self.line(f"{name}_value = {load}")
            self.line(f"{name}_at = tl.load({self._buffer(f'place{number}')} + {place}, mask=chunks_inside, other=-1)")
            self._reduce_position(fold)
        else:
            self.line(f"{name} = {reduced(spec, load)}{self._narrow(fold)}")
        self.env[fold] = name

    def start_carry(self, scan: Scalar) -> None:
        """The fold of the totals of all chunks that come before this one."""
        fold, name = self.totals[scan], self.name(scan)
        rows = " * ".join(self.extents[a] for a in self.loops.rows) or "1"
        before = "chunks > chunk" if scan.attr.reverse else "chunks < chunk"
        place = f"{self._buffer(f'part{self.part[fold]}')} + chunks * ({rows}) + row"
        load = f"tl.load({place}, mask=chunks_inside & ({before}), other={_bare(fold)})"
        self.line(f"{name}_carry = {reduced(fold.attr, load)}")

    def _write_part(self, fold: Scalar, rows: str) -> None:
        name, number = self.name(fold), self.part[fold]
        mask = ", mask=row_inside" if self.loops.rows else ""
        place = f"chunk * ({rows}) + row"
        value = f"{name}_value" if fold.attr.fold in POSITIONS else f"{name}_part"
        self.line(f"tl.store({self._buffer(f'part{number}')} + {place}, {value}{mask})")
        if fold.attr.fold in POSITIONS:
            self.line(f"tl.store({self._buffer(f'place{number}')} + {place}, {name}_at.to(tl.int64){mask})")

    def _end(self, fold: Scalar) -> None:
        """The chunk's result stays in the type that the fold works in."""
        spec, name = fold.attr, self.name(fold)
        if spec.fold in POSITIONS:
            pair = f"({name}_value, {name}_at)"
            self.line(f"{name}_value, {name}_at = tl.reduce({pair}, 1, combine_{spec.fold}, keep_dims=True)")
        else:
            self.line(f"{name}_part = {reduced(spec, f'{name}_run')}")


def splittable(kernel: Kernel) -> bool:
    """Whether the kernel's stages can be launched by chunks: no scan may run over the results of another."""
    return not any(
        node.op == "scan"
        for stage in kernel.stages
        for scan in scans_of(stage)
        for node in required(scan.args, stage.body)
    )


def _with_totals(kernel: Kernel) -> tuple[Kernel, dict[Scalar, Scalar]]:
    """The kernel with a stage before each new scan that folds what the scan runs over; and each scan's fold."""
    totals: dict[Scalar, Scalar] = {}
    stages: list[Stage] = []
    for stage in kernel.stages:
        new = [scan for scan in scans_of(stage) if scan not in totals]
        for scan in new:
            spec = replace(scan.attr, reverse=False)
            totals[scan] = Scalar("fold", scan.args, spec.accumulator, spec)
        if new:
            body = tuple(required([scan.args[0] for scan in new], stage.body))
            stages.append(Stage(stage.row, (), body, tuple(totals[scan] for scan in new), ()))
        stages.append(stage)
    return replace(kernel, stages=tuple(stages)), totals


def _storage(fold: Scalar) -> np.dtype:
    return np.dtype(working(fold.attr).removeprefix("tl."))


def _bare(fold: Scalar) -> Any:
    """The fold's identity as a number for `other`, which takes the array's type."""
    text = identity(fold.attr)
    return text.removeprefix("tl.full((), ").rsplit(", tl.", 1)[0]
