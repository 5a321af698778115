"""The loop form for reductions of short rows that lie one after the other: many rows side by side in the vector.

A block of rows is transposed into a tile in the core's own cache, and reduced there column by column, so that no vector is
half empty and none is reduced to a number. Results as long as the rows leave through tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.backends.c.function import Code, Element, Variable, code
from fuser.backends.c.schedules.outer_reduction import OuterReduction, X
from fuser.backends.c.schedules.tiling import move_rows
from fuser.backends.c.schedules.transposes import TRANSPOSED
from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes
from fuser.kernel.schedule import NOTHING_ASKED, Schedule

SHORTEST, LONGEST = 8, 63  # elements of a row: shorter ones are unrolled, longer ones are vectors enough
ROWS = 64  # of a block
MOST_TILES = 3  # that the core's own cache holds


@dataclass(frozen=True)
class SideBySide:
    """The axis that counts rows, the one along them, and the accesses that go through tiles, by parameter and offset."""

    row: Axis
    along: Axis
    loads: tuple[Scalar, ...]
    stores: tuple[Store, ...]


def rows_side_by_side(kernel: Kernel, loops: Loops) -> SideBySide | None:
    """The rows of a kernel that are short, many, and lie one after the other; None where there are no such rows."""
    if len(loops.reduced) != 1 or loops.vector is not loops.reduced[0]:
        return None
    (along,) = loops.reduced
    extent = loops.extents[along]
    if not SHORTEST <= extent <= LONGEST or any(is_complex(n.dtype) or n.op == "scan" for n in kernel.nodes):
        return None
    for row in loops.parallel:
        if loops.extents[row] >= ROWS:
            return _found(kernel, row, along, extent)
    return None


def _found(kernel: Kernel, row: Axis, along: Axis, extent: int) -> SideBySide | None:
    loads = [n for sweep in kernel.sweeps for n in sweep.body if n.op == "load"]  # not what a row reads once
    if any(load.args or computed(load.attr.offset) for load in loads):
        return None
    tiled: dict[bool, list[Scalar | Store]] = {False: [], True: []}
    distinct: set[tuple[int, Affine]] = set()
    members: list[Scalar | Store] = [*loads, *kernel.stores]
    for member in members:
        written, access = isinstance(member, Store), member if isinstance(member, Store) else member.attr
        offset: Affine = access.offset
        if any(isinstance(atom, Div) and index_axes(atom.base) & {row, along} for atom, _ in offset.terms):
            return None
        if offset.coefficient(along) == 0 or (offset.coefficient(row) == 0 and not written):
            continue  # once a row, or the same for all rows
        dense = (offset.coefficient(along), offset.coefficient(row)) == (1, extent)
        if not dense or kernel.params[access.param].dtype.itemsize * 8 not in TRANSPOSED:
            return None
        tiled[written].append(member)
        distinct.add((access.param, offset))
    if not distinct or len(distinct) > MOST_TILES:
        return None
    return SideBySide(row, along, tuple(tiled[False]), tuple(tiled[True]))  # type: ignore[arg-type]


class StagedRows(OuterReduction):
    """Parallel over blocks of rows; each block walks along its rows once a sweep, with the rows in the vector."""

    block = ROWS

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True, asked: Schedule = NOTHING_ASKED) -> None:
        found = rows_side_by_side(kernel, loops)
        assert found is not None
        self.rows = found
        self.tile_of: dict[tuple[int, Affine], Variable] = {}
        super().__init__(kernel, replace(loops, vector=found.row), threads, asked)

    def _masked(self, vector: Axis) -> int:
        return 0

    def begin(self) -> None:
        extent = self.loops.extents[self.rows.along]
        for load in self.rows.loads:
            key = load.attr.param, load.attr.offset
            if key not in self.tile_of:
                tile = self.tile_of[key] = self._tile(key[0])
                move_rows(self, "in", key[0], extent, self._first(*key), self._stride(key[0]), tile, str(ROWS))
        for store in self.rows.stores:
            if (store.param, store.offset) not in self.tile_of:
                self.tile_of[store.param, store.offset] = self._tile(store.param)

    def end(self) -> None:
        extent = self.loops.extents[self.rows.along]
        for store in self.rows.stores:
            key = store.param, store.offset
            first, step = self._first(*key), self._stride(key[0])
            move_rows(self, "out", key[0], extent, self.tile_of[key], str(ROWS), first, step)

    def _first(self, param: int, offset: Affine) -> Code:
        """Where the block's first row begins."""
        with self.standing({self.rows.row: self.named("base"), self.rows.along: code("0")}):
            return code("&{}", Element(self.params[param], self._offset(param, offset)))

    def _tile(self, param: int) -> Variable:
        array = self.params[param]
        return self.buffer(array.type, f"tile{len(self.tile_of)}", (LONGEST + 1) * ROWS)

    def _stride(self, param: int) -> Code:
        """The stride between rows; the same size argument as in offsets."""
        extent = self.loops.extents[self.rows.along]
        return self.sizes(("factor", param, self.rows.row, extent), extent)

    def _in_tile(self, param: int, offset: Affine) -> Element:
        return self.at(self.tile_of[param, offset], self.code(f"{{}} * {ROWS}", self.axes[self.rows.along]), X)

    def expression(self, node: Scalar) -> Code:
        if node in self.rows.loads:
            element = self._in_tile(node.attr.param, node.attr.offset)
            return self.element_at(node, element)
        return super().expression(node)

    def target(self, store: Store) -> Element:
        return self._in_tile(store.param, store.offset) if store in self.rows.stores else super().target(store)
