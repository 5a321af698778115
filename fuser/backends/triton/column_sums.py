"""Reductions of rows, and sums of their columns, of one pass: a program takes a strip of rows and adds up its columns.

What a program has added up lies in scratch memory; a second launch adds that up in a fixed order. As in backward kernels of layer
norm by hand: reads and writes of rows happen once.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.backends.triton.block_sizes import FEW, Tile
from fuser.backends.triton.emitter import Emitter, Function
from fuser.backends.triton.reductions import COLUMN, ROW, Rows, working
from fuser.backends.triton.split_reduction import Scratch
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops

LONGEST_STRIP = 128  # blocks of rows that are added up one after the other
MOST_AHEAD = 2  # blocks of rows that a program reads into shared memory while it reduces one
AHEAD_BYTES = 13 << 10  # of shared memory a warp for these; sixteen warps, whose sums take most registers, run at once
TOTALS = Tile(64, 32, 4)  # partial sums by columns that a program of the second launch takes at once


def totals(kernel: Kernel) -> list[Store]:
    """The sums of columns among what a kernel writes."""
    return [store for store in kernel.stores if store.total is not None]


def with_column_sums(kernel: Kernel, loops: Loops, tile: Tile) -> tuple[list[Function], Scratch]:
    """The functions of a kernel of whole rows with sums of columns, and the scratch memory between them."""
    tile = replace(tile, warps=min(16, 2 * tile.warps))
    blocks = -(-loops.count(loops.parallel) // tile.rows)
    strip = min(LONGEST_STRIP, -(-blocks // FEW))
    strips, columns = -(-blocks // strip), loops.count(loops.reduced)
    scratch: Scratch = {}
    for number, store in enumerate(totals(kernel)):
        assert store.total is not None
        scratch[f"part{number}"] = (strips * columns, store.total.accumulator)
    ahead = max(0, min(MOST_AHEAD, tile.warps * AHEAD_BYTES // max(1, _read_bytes(kernel, loops, tile)) - 1))
    first = Strips(kernel, loops, f"{kernel.name}_0", tile, strip, ahead)
    return [first.write(), Totals(kernel, loops, f"{kernel.name}_1", strips).write()], scratch


def _read_bytes(kernel: Kernel, loops: Loops, tile: Tile) -> int:
    """Bytes of what is read of a block of rows, but for what all rows share."""
    loads = [n.attr for n in kernel.nodes if n.op == "load"]
    read = {a.param for a in loads if any(a.offset.coefficient(axis) for axis in loops.parallel)}
    return sum(kernel.params[n].dtype.itemsize for n in read) * tile.rows * (tile.columns * tile.blocks + tile.rest)


class Strips(Rows):
    """The first launch: whole rows, block after block, `ahead` of which are being read while one is reduced."""

    def __init__(self, kernel: Kernel, loops: Loops, name: str, tile: Tile, strip: int, ahead: int) -> None:
        super().__init__(kernel, loops, name, tile)
        self.strip, self.ahead = strip, ahead
        self.totals = {store: number for number, store in enumerate(totals(kernel))}
        self.scratch = {f"part{number}": number for number in self.totals.values()}

    def write(self) -> Function:
        rows = " * ".join(self.extents[a] for a in self.loops.parallel)
        strip = self.sizes(("strip",), self.strip)
        self.line(f"program = {self.program()}")
        self.all_columns()
        for store, number in self.totals.items():
            assert store.total is not None
            for part in self.parts:
                self.line(f"sum{number}{part.suffix} = tl.zeros((ROWS, {part.extent}), {working(store.total)})")
        with self.scope():
            last = f"tl.minimum((program + 1) * {strip}, tl.cdiv({rows}, ROWS))"
            self.open(f"for block in tl.range(program * {strip}, {last}, num_stages=STAGES):")
            self.line("row = block * ROWS + tl.arange(0, ROWS)[:, None]")
            if self.tile.rows > 1:  # one row a block is always inside
                self.masks[ROW] = "row_inside"
                self.line(f"row_inside = row < {rows}")
            self.split("row", self.loops.parallel, frozenset(ROW))
            self.sweep_all()
            self.close()
        width = " * ".join(self.extents[a] for a in self.loops.reduced)
        for part in self.parts:
            with self.within_part(part):
                for store, number in self.totals.items():
                    position, dims = self.offset(("part", number), store.offset)
                    assert ROW not in dims
                    value = f"tl.sum(sum{number}{part.suffix}, axis=0, keep_dims=True)"
                    mask = f", mask={self.masks[COLUMN]}" if COLUMN in self.masks else ""
                    self.line(f"tl.store(part{number} + program * ({width}) + {position}, {value}{mask})")
        blocks = -(-self.loops.count(self.loops.parallel) // self.tile.rows)
        constants = {**self.constants(), "STAGES": self.ahead + 1}
        function = self.finish(constants, -(-blocks // self.strip), self.tile.warps, self.tile.hints)
        alone = replace(function.launch, constants=function.launch.constants | {"STAGES": 1})
        return replace(function, launch=replace(function.launch, smaller=(alone,) if self.ahead else ()))

    def store(self, store: Store) -> None:
        if store.total is None:
            super().store(store)
            return
        number, kind = self.totals[store], working(store.total)
        inside = " & ".join(self.masks[dim] for dim in (ROW, COLUMN) if dim in self.masks)
        value = f"tl.where({inside}, {self.operand(store.value)}, 0.0)" if inside else f"({self.operand(store.value)})"
        self.line(f"sum{number}{self.inside.suffix} += {value}.to({kind})")


class Totals(Emitter):
    """The second launch: the sums of all strips, for a few columns each program."""

    def __init__(self, kernel: Kernel, loops: Loops, name: str, strips: int) -> None:
        super().__init__(kernel, loops, name)
        self.strips = strips
        self.stores = totals(kernel)
        self.scratch = {f"part{number}": number for number in range(len(self.stores))}

    def write(self) -> Function:
        columns = self.loops.count(self.loops.reduced)
        width, strips = self.sizes(("width",), columns), self.sizes(("strips",), self.strips)
        self.line("column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]")
        self.line(f"column_inside = column < {width}")
        for number, store in enumerate(self.stores):
            assert store.total is not None
            out, kind = self.kernel.params[store.param], working(store.total)
            self.line(f"sum{number} = tl.zeros((ROWS, COLUMNS), {kind})")
            self.open(f"for start in range(0, {strips}, ROWS):")
            self.line("strip = start + tl.arange(0, ROWS)[:, None]")
            mask = f"mask=(strip < {strips}) & column_inside, other=0"
            self.line(f"sum{number} += tl.load(part{number} + strip * {width} + column, {mask})")
            self.close()
            value = f"tl.sum(sum{number}, axis=0, keep_dims=True).to({out.name}.dtype.element_ty)"
            self.line(f"tl.store({out.name} + column, {value}, mask=column_inside)")
        constants = {"ROWS": TOTALS.rows, "COLUMNS": TOTALS.columns}
        function = self.finish(constants, -(-columns // TOTALS.columns), TOTALS.warps, False)
        return replace(function, launch=replace(function.launch, elements=self.strips * columns))
