"""Staging of interleaved accesses: several loads or stores with one common stride go through a transposed tile, block by block.

The elements of rows of 5, 7 or 12 numbers, which a kernel takes apart, lie that stride apart along the vector. A block of
rows is transposed into a tile in the core's own cache, where each of them is a run of memory, and results leave likewise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fuser.backends.c.function import Code, Element, Variable, code
from fuser.backends.c.schedules.tiling import move_rows
from fuser.backends.c.schedules.transposes import TRANSPOSED
from fuser.backends.c.target import TARGET
from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed

if TYPE_CHECKING:
    from fuser.backends.c.schedules.elementwise import Elementwise
    from fuser.backends.c.schedules.piece import Piece

LONGEST = 16  # elements of a row: those of a vector's length, of which all are needed
ROWS = 128  # of a block
FEWEST = 2  # accesses of one stride, for a tile to pay
X = Variable("x", "int64_t")  # the running row of a block


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
        if (
            not 4 < stride <= LONGEST
            or stride in TARGET.interleaved
            or computed(access.offset)
            or bits not in TRANSPOSED
        ):
            continue
        rest = access.offset - Affine.of(vector) * stride
        column = rest.offset % stride
        first = rest - column
        tile = found.setdefault((access.param, stride, first), Tile(access.param, first, stride))
        tile.members[member] = column
    yield from (tile for tile in found.values() if _enough(tile) and _there(kernel, tile, vector))


def _enough(tile: Tile) -> bool:
    """Whether enough of a row is used for a tile to pay: of the longest rows all, as each element brings a line of its own."""
    return len(tile.members) >= (tile.stride if tile.stride == LONGEST else FEWEST)


def _there(kernel: Kernel, tile: Tile, vector: Axis) -> bool:
    """Whether whole rows lie inside of the array, those of their elements that nothing reads too."""
    low, high = (tile.first + Affine.of(vector) * tile.stride).bounds
    return low >= 0 and high + tile.stride <= math.prod(kernel.params[tile.param].shape)


def read(writer: Elementwise, piece: Piece, axis: Axis) -> None:
    """Take a block's rows into tiles, from `base` on."""
    with writer.standing({axis: writer.named("base")}):
        for number, tile in enumerate(piece.tiles_in):
            room, begin = _room(writer, tile, f"tile{number}"), _begin(writer, tile, axis)
            move_rows(writer, "in", tile.param, begin, _step(writer, tile, axis), room, str(ROWS), tile.stride)
            for member, column in tile.members.items():
                writer.sources[member] = writer.at(room, str(column * ROWS), X)  # type: ignore[index]
    for number, tile in enumerate(piece.tiles_out):
        room = _room(writer, tile, f"left{number}")
        for member, column in tile.members.items():
            writer.targets[member] = writer.at(room, str(column * ROWS), X)  # type: ignore[index]


def leave(writer: Elementwise, piece: Piece, axis: Axis) -> None:
    """Take what was computed for a block out of its tiles."""
    with writer.standing({axis: writer.named("base")}):
        for number, tile in enumerate(piece.tiles_out):
            room, begin, step = writer.named(f"left{number}"), _begin(writer, tile, axis), _step(writer, tile, axis)
            move_rows(writer, "out", tile.param, room, str(ROWS), begin, step, tile.stride)


def _room(writer: Elementwise, tile: Tile, name: str) -> Variable:
    return writer.buffer(writer.params[tile.param].type, name, tile.stride * ROWS)


def _begin(writer: Elementwise, tile: Tile, axis: Axis) -> Code:
    """The first element of a block."""
    offset = tile.first + Affine.of(axis) * tile.stride
    return code("&{}", Element(writer.params[tile.param], writer._offset(tile.param, offset)))


def _step(writer: Elementwise, tile: Tile, axis: Axis) -> Code:
    """The stride between rows; the same size argument as in offsets."""
    return writer.sizes(("factor", tile.param, axis, tile.stride), tile.stride)
