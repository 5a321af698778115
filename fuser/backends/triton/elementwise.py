"""Elementwise kernels: blocks along one axis, or tiles over two where neighbours in memory run along different axes."""

from __future__ import annotations

from fuser.backends.triton import block_sizes as tiles
from fuser.backends.triton.block_sizes import Tile
from fuser.backends.triton.emitter import Dims, Emitter, Function
from fuser.ir.index import Axis
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.schedule import NOTHING_ASKED, Schedule


def elementwise(
    kernel: Kernel, loops: Loops, asked: Schedule = NOTHING_ASKED, number: str | None = None
) -> list[Function]:
    """The function of a kernel without reduced axes; `number` is the parameter that is a program's number, where a launch has others."""
    plane = _plane(kernel, loops)
    if plane is None:
        line = Line(kernel, loops, kernel.name)
        line.program_param = number
        return [line.write(tiles.line_tile(_itemsize(kernel)).asked(asked))]
    y, x, tile = plane
    form = Plane(kernel, loops, kernel.name)
    form.program_param = number
    return [form.write(y, x, tile.asked(asked))]


class Line(Emitter):
    """One axis, or none at all."""

    pairs = frozenset("x")

    def write(self, tile: Tile) -> Function:
        count = 1
        if self.loops.parallel:
            (axis,) = self.loops.parallel
            name = self.axis_names[axis]
            self.axis_dims[axis] = frozenset("x")
            self.line(f"{name} = {self.program()} * BLOCK + tl.arange(0, BLOCK)")
            self.line(f"inside = {name} < {self.extents[axis]}")
            self.masks["x"] = "inside"
            count = self.loops.extents[axis]
        sweep = self.kernel.sweeps[0]
        self.define_all(sweep.row)
        for store in sweep.row_stores:
            self.store(store)
        constants = {"BLOCK": tile.columns} if self.loops.parallel else {}
        return self.finish(constants, -(-count // tile.columns), tile.warps if self.loops.parallel else 1, tile.hints)

    def zero(self, dim: str) -> str:
        return "tl.zeros((BLOCK,), tl.int32)"


class Plane(Emitter):
    """Two axes as a tile, the others by the program's number."""

    pairs = frozenset("x")

    def write(self, y: Axis, x: Axis, tile: Tile) -> Function:
        extents = self.loops.extents
        outer = [a for a in self.loops.parallel if a not in (y, x)]
        blocks_x, blocks_y = -(-extents[x] // tile.columns), -(-extents[y] // tile.rows)
        self.line(f"program = {self.program()}")
        self.line(f"blocks = tl.cdiv({self.extents[x]}, COLUMNS)")
        self.line(f"{self.axis_names[x]} = (program % blocks) * COLUMNS + tl.arange(0, COLUMNS)[None, :]")
        self.line("program = program // blocks")
        self.line(f"blocks = tl.cdiv({self.extents[y]}, ROWS)")
        self.line(f"{self.axis_names[y]} = (program % blocks) * ROWS + tl.arange(0, ROWS)[:, None]")
        if outer:
            self.line("program = program // blocks")
            self.split("program", outer, frozenset(), "program")
        self.line(f"inside_x = {self.axis_names[x]} < {self.extents[x]}")
        self.line(f"inside_y = {self.axis_names[y]} < {self.extents[y]}")
        self.masks = {"x": "inside_x", "y": "inside_y"}
        self.axis_dims |= {x: frozenset("x"), y: frozenset("y")}
        sweep = self.kernel.sweeps[0]
        self.define_all(sweep.row)
        for store in sweep.row_stores:
            self.store(store)
        grid = blocks_x * blocks_y
        for axis in outer:
            grid *= extents[axis]
        return self.finish({"ROWS": tile.rows, "COLUMNS": tile.columns}, grid, tile.warps, tile.hints)

    def zero(self, dim: str) -> str:
        return "tl.zeros((1, COLUMNS), tl.int32)" if dim == "x" else "tl.zeros((ROWS, 1), tl.int32)"

    def store_dims(self, store: Store) -> Dims:
        return frozenset("xy")


def _plane(kernel: Kernel, loops: Loops) -> tuple[Axis, Axis, Tile] | None:
    """The two axes of the tile (the second along memory) and its shape; None where there is but one axis."""
    if len(loops.parallel) < 2:
        return None
    vector = loops.vector if loops.vector in loops.parallel else loops.parallel[-1]
    assert vector is not None
    others = [a for a in loops.parallel if a is not vector]
    for axis in others:
        if loops.extents[axis] >= 16 and loops.extents[vector] >= 16 and _dense(kernel, axis):
            return axis, vector, tiles.TRANSPOSED
    return others[-1], vector, tiles.plane_tile(loops.extents[vector], _itemsize(kernel))


def _dense(kernel: Kernel, axis: Axis) -> bool:
    """Whether some array lies densest along the axis."""
    sweep = kernel.sweeps[0]
    loads = [n.attr.offset for n in sweep.row if n.op == "load"]
    return any(abs(index.coefficient(axis)) == 1 for index in [*loads, *(s.offset for s in sweep.row_stores)])


def _itemsize(kernel: Kernel) -> int:
    return max(param.dtype.itemsize for param in kernel.params)
