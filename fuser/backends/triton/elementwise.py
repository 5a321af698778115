"""Elementwise kernels: blocks along one axis, or tiles over two where neighbours in memory run along different axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.backends.triton import block_sizes as tiles
from fuser.backends.triton import exact_packs
from fuser.backends.triton.access_width import narrow_pays
from fuser.backends.triton.block_sizes import Tile
from fuser.backends.triton.emitter import Dims, Emitter, Function, widest
from fuser.ir.index import Affine, Axis, Computed
from fuser.ir.scalar import Scalar
from fuser.kernel.emitter import NOWHERE
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.schedule import NOTHING_ASKED, Schedule

NARROW_ELEMENTS = 2  # of a thread that takes one at once
_MOST_WORDS = 40  # registers of a thread for what is loaded before anything is computed


def elementwise(
    kernel: Kernel, loops: Loops, asked: Schedule = NOTHING_ASKED, number: str | None = None
) -> list[Function]:
    """The function of a kernel without reduced axes; `number` is the parameter that is a program's number, where a launch has others."""
    plane = _plane(kernel, loops)
    if plane is None:
        line = Line(kernel, loops, kernel.name)
        line.program_param = number
        tile = _narrowed(kernel, loops.parallel[0] if loops.parallel else None, tiles.line_tile(_itemsize(kernel)))
        tile = replace(tile.asked(asked), rows=1)
        return [_whole(kernel, line.write(tile), tile)]
    y, x, tile = plane
    form = Plane(kernel, loops, kernel.name)
    form.program_param = number
    tile = _narrowed(kernel, x, tile).asked(asked)
    return [_whole(kernel, form.write(y, x, tile), tile)]


class Line(Emitter):
    """One axis, or none at all."""

    pairs = frozenset("x")

    block = "BLOCK"

    def write(self, tile: Tile) -> Function:
        if not self.loops.parallel:
            self._body(tile)
            return self.finish({}, 1, 1, tile.hints)
        (axis,) = self.loops.parallel
        name, extent, count = self.axis_names[axis], self.extents[axis], self.loops.extents[axis]
        dense = any(abs(index.coefficient(axis)) == 1 for index in self._indices())
        whole = widest(self.kernel) if tile.hints and dense else 1  # elements of one access
        self.axis_dims[axis] = frozenset("x")
        self.packs = frozenset("x") if _packed(tile) else NOWHERE
        self.masks["x"] = "inside"
        self.line(f"{name} = {self.program()} * BLOCK + tl.arange(0, BLOCK)")
        self.line(f"inside = {name} < {extent}" + (f" // {whole} * {whole}" if whole > 1 else ""))
        self._body(tile)
        if whole > 1:
            self._rest(axis, tile, whole)
        return self.finish({"BLOCK": tile.columns}, -(-count // tile.columns), tile.warps, tile.hints)

    def _body(self, tile: Tile) -> None:
        sweep = self.kernel.sweeps[0]
        self.define_all(loads_first(sweep.row, tile.columns // (32 * tile.warps)))
        for store in sweep.row_stores:
            self.store(store)

    def _rest(self, axis: Axis, tile: Tile, whole: int) -> None:
        """The elements behind the last access of `whole` elements, in the last program, where there may be such."""
        extent, name = self.extents[axis], f"{self.axis_names[axis]}_end"
        self.open(f"if ALIGNED < {whole}:")
        self.open(f"if ({self.program()} + 1) * BLOCK >= {extent}:")
        self.line(f"{name} = {extent} // {whole} * {whole} + tl.arange(0, {whole})")
        self.line(f"inside_end = {name} < {extent}")
        self.axis_names[axis], self.masks["x"], self.block = name, "inside_end", str(whole)
        self.pairs = self.packs = NOWHERE  # a thread holds one element at most
        again = [node for node in self.env if self.spans(node)]
        for node in again:
            del self.env[node]
            self.names[node] = f"{self.names[node]}_end"
        self._body(tile)
        self.close()
        self.close()

    def zero(self, dim: str) -> str:
        return f"tl.zeros(({self.block},), tl.int32)"


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
        self.packs = frozenset("xy") if _packed(tile) else NOWHERE
        sweep = self.kernel.sweeps[0]
        self.define_all(loads_first(sweep.row, tile.size // (32 * tile.warps)))
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


def _whole(kernel: Kernel, function: Function, tile: Tile) -> Function:
    """The function, whose launch has no more threads than there are whole accesses in a tile, where threads take such."""
    accesses = tile.size // widest(kernel)
    threads = max(accesses, 32) if tile.hints and accesses >= 32 * tile.warps else 0
    return replace(function, launch=replace(function.launch, threads=threads))


def _packed(tile: Tile) -> bool:
    """Whether a thread holds a pack of elements of a tile or more."""
    return tile.size >= exact_packs.PACK * 32 * tile.warps


def _narrowed(kernel: Kernel, vector: Axis | None, tile: Tile) -> Tile:
    """The tile; with two elements a thread where it takes one at once, and with half as many where it computes packs: many loads of each, and two packs
    and their slow paths, take so many registers that half as many programs run at once. A convolution of 5 × 5 took an H200 56 µs with eight
    elements a thread, 62 with four and 39 with two."""
    narrow = vector is not None and narrow_pays(kernel, vector)
    if not narrow and not any(map(exact_packs.packed, kernel.nodes)):
        return tile
    half = tile.rows * tile.columns // 2
    most = min(half, NARROW_ELEMENTS * 32 * tile.warps) if narrow else half
    rows = max(1, min(tile.rows, most // tile.columns))
    return replace(tile, rows=rows, columns=max(1, min(tile.columns, most // rows)), hints=tile.hints and not narrow)


def loads_first(nodes: Sequence[Scalar], held: int) -> list[Scalar]:
    """The nodes with loads that need no computed number before all others, as far as registers hold what `held` elements a thread take of them:
    compilers move no load across the branch of a division's or a root's slow path."""
    moved: list[Scalar] = []
    words = 0
    for node in nodes:
        if node.op == "load" and not node.args and not _computed(node.attr.offset):
            words += held * -(-node.dtype.itemsize // 4)
            moved.append(node)
        if words > _MOST_WORDS:
            return list(nodes)
    return list(dict.fromkeys([*moved, *nodes]))


def _computed(index: Affine) -> bool:
    return any(isinstance(leaf, Computed) for leaf in index.leaves)


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
