"""The elementwise form for several accesses that are the same stride apart: blocks of rows go through tiles.

The elements of rows of 5, 7 or 12 numbers, which a kernel takes apart, lie that stride apart along the vector. A block of
rows is transposed into a tile in the core's own cache, where each of them is a run of memory, and results leave likewise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fuser.backends.c import spell
from fuser.backends.c.function import Code, Element, Variable, code
from fuser.backends.c.schedules.elementwise import Elementwise
from fuser.backends.c.schedules.tiling import TRANSPOSED, move_rows
from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed

SHUFFLED = (2, 3, 4, 8)  # strides that compilers take apart in registers
LONGEST = 16  # elements of a row
ROWS = 128  # of a block
FEWEST = 2  # accesses of one stride, for a tile to pay


@dataclass(eq=False)
class Tile:
    """Elements `first` … `first + stride - 1` of each row of a parameter, and which accesses are among them."""

    param: int
    first: Affine
    stride: int
    members: dict[Scalar | Store, int] = field(default_factory=dict)


def tiles(kernel: Kernel, loops: Loops) -> tuple[list[Tile], list[Tile]]:
    """The tiles that are read, and those that are written."""
    vector = loops.vector
    if vector is None or kernel.reduced or kernel.loop is not None or loops.extents[vector] < ROWS:
        return [], []
    loads: list[Scalar | Store] = [n for n in kernel.nodes if n.op == "load" and not n.args]
    read = list(_grouped(kernel, vector, loads))
    return read, [tile for tile in _grouped(kernel, vector, list(kernel.stores)) if len(tile.members) == tile.stride]


def _grouped(kernel: Kernel, vector: Axis, accesses: list[Scalar | Store]) -> Iterator[Tile]:
    found: dict[tuple[int, int, Affine], Tile] = {}
    for member in accesses:
        access: Access | Store = member.attr if isinstance(member, Scalar) else member
        stride = access.offset.coefficient(vector)
        bits = kernel.params[access.param].dtype.itemsize * 8
        if not 4 < stride < LONGEST or stride in SHUFFLED or computed(access.offset) or bits not in TRANSPOSED:
            continue
        rest = access.offset - Affine.of(vector) * stride
        column = rest.offset % stride
        first = rest - column
        tile = found.setdefault((access.param, stride, first), Tile(access.param, first, stride))
        tile.members[member] = column
    yield from (tile for tile in found.values() if len(tile.members) >= FEWEST and _there(kernel, tile, vector))


def _there(kernel: Kernel, tile: Tile, vector: Axis) -> bool:
    """Whether whole rows lie inside of the array, those of their elements that nothing reads too."""
    low, high = (tile.first + Affine.of(vector) * tile.stride).bounds
    return low >= 0 and high + tile.stride <= math.prod(kernel.params[tile.param].shape)


class Staged(Elementwise):
    """Parallel over blocks of rows; the vector runs over the rows of a block."""

    staged: Mapping[Scalar | Store, Element] = MappingProxyType({})

    @staticmethod
    def pays(kernel: Kernel, loops: Loops) -> bool:
        return any(tiles(kernel, loops))

    def form(self) -> None:
        vector, sweep = self.loops.vector, self.kernel.sweeps[0]
        assert vector is not None
        read, written = tiles(self.kernel, self.loops)
        axes = self.open_outer(vector)
        self.blocks(self.extents[vector], ROWS)
        width, base = self.named("width"), self.named("base")
        with self.standing({vector: base}):
            for number, tile in enumerate(read):
                room, begin = self._room(tile, f"tile{number}"), self._begin(tile, vector)
                move_rows(self, "rows_in", tile.param, begin, self._step(tile, vector), room, str(ROWS))
        rooms = {id(tile): self._room(tile, f"left{number}") for number, tile in enumerate(written)}
        self.pragma("omp simd")
        x = self.count("x", "0", width)
        self.let("int64_t", self.axis_names[vector], "{base} + {}", x)
        self.staged = {
            member: self.at(f"tile{number}", str(column * ROWS), x)
            for number, tile in enumerate(read)
            for member, column in tile.members.items()
        }
        leaving = {member: (tile, column) for tile in written for member, column in tile.members.items()}
        self.define_all(sweep.row)
        for store in sweep.row_stores:
            if store in leaving:
                tile, column = leaving[store]
                value = spell.store(self.kernel.params[store.param].dtype, self.operand(store.value))
                self.set(self.at(rooms[id(tile)], str(column * ROWS), x), value)
            else:
                self.store(store)
        self.close()
        with self.standing({vector: base}):
            for tile in written:
                begin, step = self._begin(tile, vector), self._step(tile, vector)
                move_rows(self, "rows_out", tile.param, rooms[id(tile)], str(ROWS), begin, step)
        for _ in (*axes, vector):
            self.close()

    def _room(self, tile: Tile, name: str) -> Variable:
        lanes = TRANSPOSED[self.kernel.params[tile.param].dtype.itemsize * 8]
        return self.buffer(self.params[tile.param].type, name, max(tile.stride, lanes) * ROWS)

    def _begin(self, tile: Tile, vector: Axis) -> Code:
        """The first element of a block."""
        offset = tile.first + Affine.of(vector) * tile.stride
        return code("&{}", Element(self.params[tile.param], self._offset(tile.param, offset)))

    def _step(self, tile: Tile, vector: Axis) -> Code:
        """The stride between rows; the same size argument as in offsets."""
        return self.sizes(("factor", tile.param, vector, tile.stride), tile.stride)

    def expression(self, node: Scalar) -> Code:
        if node in self.staged:
            return spell.load(self.kernel.params[node.attr.param].dtype, self.staged[node])
        return super().expression(node)
