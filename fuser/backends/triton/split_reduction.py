"""Few long rows: each sweep is a launch of its own, shared out over chunks of the reduced axes.

A launch writes one partial result a chunk and row; the next one reduces them in a fixed order before it goes on; a scan
takes two launches, one for the chunks' totals and one that carries on from those before it. What a sweep computes of
each element is computed again by the next: nothing of the rows' length is kept between launches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fuser.backends.triton.block_sizes import Chunks, Tile
from fuser.backends.triton.emitter import Function, required
from fuser.backends.triton.long_rows import LongRows
from fuser.backends.triton.online_sums import rescaled, shifted, whole
from fuser.backends.triton.reductions import CHUNK, POSITIONS, ROW, identity, reduced, scans_of, working
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, operands
from fuser.kernel.relative_sums import RelativeSums

Scratch = dict[str, tuple[int, np.dtype]]  # name: elements and dtype, in order


def split(
    kernel: Kernel, loops: Loops, tile: Tile, chunks: Chunks, relative: RelativeSums
) -> tuple[list[Function], Scratch]:
    """One function a sweep, and the arrays of partial results between them; `relative` sums run beside what they are relative to."""
    kernel, totals = _with_totals(kernel)
    cells = loops.count(loops.parallel) * chunks.count
    scratch: Scratch = {}
    for number, reduction in enumerate(f for sweep in kernel.sweeps for f in sweep.reductions):
        scratch[f"part{number}"] = (cells, _storage(reduction))
        if reduction.attr.reduction in POSITIONS:
            scratch[f"place{number}"] = (cells, np.dtype("int64"))
    functions = []
    for number, sweep in enumerate(kernel.sweeps):
        if sweep.loops or sweep.row_stores:
            phase = Phase(kernel, loops, f"{kernel.name}_{number}", tile, relative)
            phase.of_sweep(number, chunks, scratch, totals)
            functions.append(phase.write())
    return functions, scratch


class Phase(LongRows):
    """One sweep over chunks."""

    def of_sweep(self, number: int, chunks: Chunks, scratch: Scratch, totals: dict[Scalar, Scalar]) -> None:
        """Say which sweep it is of, and where the partial results of all lie."""
        self.chunks, self.number, self.totals = chunks, number, totals
        self.numbers = {name: position for position, name in enumerate(scratch)}
        reductions = [f for sweep in self.kernel.sweeps for f in sweep.reductions]
        self.part = {reduction: position for position, reduction in enumerate(reductions)}

    def write(self) -> Function:
        sweep = self.kernel.sweeps[self.number]
        count = self.sizes(("chunks",), self.chunks.count)
        self.line(f"program = {self.program()}")
        if sweep.loops:
            self.line(f"chunk = program % {count}")
            self.line(f"program = program // {count}")
        programs = self.row_block()
        rows = " * ".join(self.extents[a] for a in self.loops.parallel) or "1"
        self._before(sweep, count, rows)
        if sweep.loops:
            programs *= self.chunks.count
            self.extra_mask["chunk"] = "(chunk == 0)"
        for store in sweep.row_stores:
            self.store(store)
        self.extra_mask.clear()
        if sweep.loops:
            pieces = self.sizes(("pieces",), self.chunks.length // self.tile.columns)
            total = " * ".join(self.extents[a] for a in self.loops.reduced)
            self.line(f"first = chunk * ({pieces} * COLUMNS)")
            self.line(f"last = tl.minimum(first + {pieces} * COLUMNS, {total})")
            self.walk(sweep, "first", "last")
        for reduction in sweep.reductions:
            self._write_part(reduction, rows)
        return self.finish(self.constants(), programs, self.tile.warps, self.tile.hints)

    def constants(self) -> dict[str, int]:
        return {**super().constants(), "CHUNKS": self.chunks.block}

    def _before(self, sweep: Sweep, count: str, rows: str) -> None:
        """What the sweep needs of a row: reductions of earlier sweeps, from their partial results, and values made of them."""
        earlier = self.kernel.sweeps[: self.number + 1]
        order = [n for s in earlier for n in (*s.row, *(s.reductions if s is not sweep else ()))]
        roots = [n for s in (*sweep.stores, *sweep.row_stores) for n in (s.value, *computed(s.offset))]
        roots += [n for node in sweep.body for n in operands(node)] + [f.args[0] for f in sweep.reductions]
        needed = required(roots, list(dict.fromkeys(order)))
        reductions = [n for n in needed if n.op == "reduction"]
        if reductions or scans_of(sweep):
            self.line("chunks = tl.arange(0, CHUNKS)[None, :]")
            inside = f"row_inside & (chunks < {count})" if self.loops.parallel else f"chunks < {count}"
            self.line(f"chunks_inside = {inside}")
        reductions = list(dict.fromkeys(n for r in reductions for n in (*self._bases(r), r)))
        for reduction in reductions:
            self._read_part(reduction, rows)
        self.define_all(n for n in needed if n.op != "reduction")

    def _bases(self, reduction: Scalar) -> list[Scalar]:
        """The reduction that a sum is relative to."""
        relative = self.relative.of(reduction)
        return [] if relative is None else [relative.base]

    def _buffer(self, name: str) -> str:
        self.scratch[name] = self.numbers[name]
        return name

    def _read_part(self, reduction: Scalar, rows: str) -> None:
        spec, name, number = reduction.attr, self.name(reduction), self.part[reduction]
        offset = f"chunks * ({rows}) + row"
        load = f"tl.load({self._buffer(f'part{number}')} + {offset}, mask=chunks_inside, other={_bare(reduction)})"
        self.varies[reduction] = frozenset("r")
        if spec.reduction in POSITIONS:
            self.line(f"{name}_value = {load}")
            self.line(f"{name}_at = tl.load({self._buffer(f'place{number}')} + {offset}, mask=chunks_inside, other=-1)")
            self._reduce_position(reduction, name)
            self._position(reduction)
        elif reduction in self.online:
            self._read_online(reduction, load)
        elif reduction in self.squares:
            self._read_squares(reduction, load)
        else:
            self.line(f"{name}_parts = {load}")
            self.line(f"{name} = {reduced(spec, f'{name}_parts')}{self.narrow(reduction)}")
        self.env[reduction] = name

    def _read_online(self, reduction: Scalar, load: str) -> None:
        """Partial sums, each relative to its own chunk's maximum, as relative to the row's."""
        online, name = self.online[reduction], self.name(reduction)
        self.line(f"{name}_parts = {load}")
        largest = f"{self.name(online.maximum)}_parts"
        before = shifted(self, online, largest, frozenset((ROW, CHUNK)), f"{name}_before")
        self.define_all(online.chain)
        whole(self, reduction, online, f"{name}_parts", f"({before}).to({working(reduction.attr)})")

    def _read_squares(self, reduction: Scalar, load: str) -> None:
        """Partial sums of squares, each around its own chunk's mean, as around the row's centre."""
        spec, name, base = reduction.attr, self.name(reduction), self.name(self.squares[reduction].base)
        total = " * ".join(self.extents[a] for a in self.loops.reduced)
        length = f"{self.sizes(('pieces',), self.chunks.length // self.tile.columns)} * COLUMNS"
        self.line(f"{name}_parts = {load}")
        self.line(
            f"{name}_count = tl.maximum(tl.minimum({length}, {total} - chunks * ({length})), 1).to({working(spec)})"
        )
        self.line(f"{name}_away = {base}_parts / {name}_count - {self.centre(reduction)}")
        whole = f"tl.where(chunks_inside, {name}_parts + {name}_count * ({name}_away * {name}_away), 0.0)"
        self.line(f"{name} = {reduced(spec, whole)}{self.narrow(reduction)}")

    def start_carry(self, scan: Scalar) -> None:
        """The reduction of the totals of all chunks that come before this one."""
        reduction, name = self.totals[scan], self.name(scan)
        rows = " * ".join(self.extents[a] for a in self.loops.parallel) or "1"
        before = "chunks > chunk" if scan.attr.reverse else "chunks < chunk"
        offset = f"{self._buffer(f'part{self.part[reduction]}')} + chunks * ({rows}) + row"
        load = f"tl.load({offset}, mask=chunks_inside & ({before}), other={_bare(reduction)})"
        self.line(f"{name}_carry = {reduced(reduction.attr, load)}")

    def _write_part(self, reduction: Scalar, rows: str) -> None:
        name, number = self.name(reduction), self.part[reduction]
        mask = ", mask=row_inside" if self.loops.parallel else ""
        offset = f"chunk * ({rows}) + row"
        value = f"{name}_value" if reduction.attr.reduction in POSITIONS else f"{name}_part"
        self.line(f"tl.store({self._buffer(f'part{number}')} + {offset}, {value}{mask})")
        if reduction.attr.reduction in POSITIONS:
            self.line(f"tl.store({self._buffer(f'place{number}')} + {offset}, {name}_at.to(tl.int64){mask})")

    def _end(self, reduction: Scalar) -> None:
        """The chunk's result stays in the type that the reduction works in."""
        spec, name = reduction.attr, self.name(reduction)
        if spec.reduction in POSITIONS:
            pair = f"({name}_value, {name}_at)"
            self.line(f"{name}_value, {name}_at = tl.reduce({pair}, 1, combine_{spec.reduction}, keep_dims=True)")
        elif reduction in self.online:
            online, largest = self.online[reduction], self.name(self.online[reduction].maximum)
            shift = shifted(self, online, f"{largest}_part", frozenset("r"), f"{name}_after")
            self.line(f"{name}_lanes = {self.lanes(reduction)}")
            lanes = rescaled(f"{name}_lanes", f"{name}_shift", f"({shift}).to({working(spec)})")
            self.line(f"{name}_part = {reduced(spec, lanes)}")
        elif reduction in self.squares:
            mean = f"{self.name(self.squares[reduction].base)}_part / (last - first).to({working(spec)})"
            self.line(f"{name}_part = {self.around(reduction, f'({mean})')}")
        else:
            self.line(f"{name}_part = {reduced(spec, self.lanes(reduction))}")


def splittable(kernel: Kernel) -> bool:
    """Whether the kernel's sweeps can be launched by chunks: no scan may run over the results of another."""
    return not any(
        node.op == "scan"
        for sweep in kernel.sweeps
        for scan in scans_of(sweep)
        for node in required(scan.args, sweep.body)
    )


def _with_totals(kernel: Kernel) -> tuple[Kernel, dict[Scalar, Scalar]]:
    """The kernel with a sweep before each new scan that reduces what the scan runs over; and each scan's reduction."""
    totals: dict[Scalar, Scalar] = {}
    sweeps: list[Sweep] = []
    for sweep in kernel.sweeps:
        new = [scan for scan in scans_of(sweep) if scan not in totals]
        for scan in new:
            spec = replace(scan.attr, reverse=False)
            totals[scan] = Scalar("reduction", scan.args, spec.accumulator, spec)
        if new:
            body = tuple(required([scan.args[0] for scan in new], sweep.body))
            sweeps.append(Sweep(sweep.row, (), body, tuple(totals[scan] for scan in new), ()))
        sweeps.append(sweep)
    return replace(kernel, sweeps=tuple(sweeps)), totals


def _storage(reduction: Scalar) -> np.dtype:
    return np.dtype(working(reduction.attr).removeprefix("tl."))


def _bare(reduction: Scalar) -> Any:
    """The reduction's identity as a number for `other`, which takes the array's type."""
    text = identity(reduction.attr)
    return text.removeprefix("tl.full((), ").rsplit(", tl.", 1)[0]
