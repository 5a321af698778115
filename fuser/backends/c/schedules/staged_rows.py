"""The loop form for reductions and scans of short rows that lie one after the other: many rows side by side in the vector.

A block of rows is transposed into a tile in the core's own cache, and reduced there column by column, so that no vector is
half empty and none is reduced to a number. Results as long as the rows leave through tiles.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.backends.c.function import Code, Element, Part, Variable, code
from fuser.backends.c.schedules.outer_reduction import OuterReduction, X
from fuser.backends.c.schedules.tiling import move_rows
from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.schedule import NOTHING_ASKED, Schedule
from fuser.kernel.short_rows import LONGEST, ROWS, rows_side_by_side


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
        for load in self.rows.loads:
            key = load.attr.param, load.attr.offset
            if key not in self.tile_of:
                tile = self.tile_of[key] = self._tile(key[0])
                move_rows(self, "in", key[0], self._first(*key), self._stride(*key), tile, str(ROWS), count=self._count)
        for store in self.rows.stores:
            if (store.param, store.offset) not in self.tile_of:
                self.tile_of[store.param, store.offset] = self._tile(store.param)

    def end(self) -> None:
        for store in self.rows.stores:
            key = store.param, store.offset
            first, step = self._first(*key), self._stride(*key)
            move_rows(self, "out", key[0], self.tile_of[key], str(ROWS), first, step, count=self._count)

    @property
    def _count(self) -> Part:
        """The elements of a row."""
        return self.extents[self.rows.along]

    def _first(self, param: int, offset: Affine) -> Code:
        """Where the block's first row begins."""
        with self.standing({self.rows.row: self.named("base"), self.rows.along: code("0")}):
            return code("&{}", Element(self.params[param], self._offset(param, offset)))

    def _tile(self, param: int) -> Variable:
        array = self.params[param]
        return self.buffer(array.type, f"tile{len(self.tile_of)}", (LONGEST + 1) * ROWS)

    def _stride(self, param: int, offset: Affine) -> Code:
        """The stride between rows; the same size argument as in offsets."""
        stride = offset.coefficient(self.rows.row)
        return self.sizes(("factor", param, self.rows.row, stride), stride)

    def _in_tile(self, param: int, offset: Affine) -> Element:
        return self.at(self.tile_of[param, offset], self.code(f"{{}} * {ROWS}", self.axes[self.rows.along]), X)

    def expression(self, node: Scalar) -> Code:
        if node in self.rows.loads:
            element = self._in_tile(node.attr.param, node.attr.offset)
            return self.element_at(node, element)
        return super().expression(node)

    def target(self, store: Store) -> Element:
        return self._in_tile(store.param, store.offset) if store in self.rows.stores else super().target(store)
