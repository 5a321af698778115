"""The loop form for reductions of short rows that lie one after the other: many rows side by side in the vector.

A block of rows is transposed into a tile in the core's own cache, and reduced there column by column, so that no vector is
half empty and none is reduced to a number. Results as long as the rows leave through tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.backends.c import spell
from fuser.backends.c.function import Code, Element, Part, Symbol, Variable, code
from fuser.backends.c.schedules.outer_reduction import OuterReduction, X
from fuser.backends.c.schedules.tiling import TRANSPOSED
from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes

SHORTEST, LONGEST = 16, 63  # elements of a row: shorter ones are unrolled, longer ones are vectors enough
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
    loads = [n for n in kernel.nodes if n.op == "load"]
    stores = list(kernel.stores)
    tiled: dict[Scalar | Store, Affine] = {}
    for member in (*loads, *stores):
        offset = member.attr.offset if isinstance(member, Scalar) else member.offset
        if isinstance(member, Scalar) and (member.args or computed(offset)):
            return None
        if any(isinstance(atom, Div) and index_axes(atom.base) & {row, along} for atom, _ in offset.terms):
            return None
        if offset.coefficient(along) == 0:
            continue
        if offset.coefficient(row) == 0 and isinstance(member, Scalar):
            continue
        param = kernel.params[member.attr.param if isinstance(member, Scalar) else member.param]
        if (offset.coefficient(along), offset.coefficient(row)) != (1, extent):
            return None
        if param.dtype.itemsize * 8 not in TRANSPOSED:
            return None
        tiled[member] = offset
    distinct = {(m.attr.param if isinstance(m, Scalar) else m.param, offset) for m, offset in tiled.items()}
    if not tiled or len(distinct) > MOST_TILES:
        return None
    return SideBySide(
        row,
        along,
        tuple(m for m in tiled if isinstance(m, Scalar)),
        tuple(m for m in tiled if isinstance(m, Store)),
    )


class StagedRows(OuterReduction):
    """Parallel over blocks of rows; each block walks along its rows once a sweep, with the rows in the vector."""

    block = ROWS

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True) -> None:
        found = rows_side_by_side(kernel, loops)
        assert found is not None
        self.rows = found
        self.tile_of: dict[tuple[int, Affine], Variable] = {}
        super().__init__(kernel, replace(loops, vector=found.row), threads)

    def _masked(self, vector: Axis) -> int:
        return 0

    def begin(self) -> None:
        axes = dict(self.axes)
        self.axes |= {self.rows.row: self.named("base"), self.rows.along: code("0")}
        for load in self.rows.loads:
            param, offset = load.attr.param, load.attr.offset
            if (param, offset) not in self.tile_of:
                tile = self.tile_of[param, offset] = self._tile(param)
                begin = code("&{}", Element(self.params[param], self._offset(param, offset)))
                self._move("rows_in", param, begin, self._stride(param), tile, str(ROWS))
        for store in self.rows.stores:
            if (store.param, store.offset) not in self.tile_of:
                self.tile_of[store.param, store.offset] = self._tile(store.param)
        self.axes |= axes

    def end(self) -> None:
        axes = dict(self.axes)
        self.axes |= {self.rows.row: self.named("base"), self.rows.along: code("0")}
        for store in self.rows.stores:
            tile = self.tile_of[store.param, store.offset]
            begin = code("&{}", Element(self.params[store.param], self._offset(store.param, store.offset)))
            self._move("rows_out", store.param, tile, str(ROWS), begin, self._stride(store.param))
        self.axes |= axes

    def _tile(self, param: int) -> Variable:
        array = self.params[param]
        return self.buffer(array.type, f"tile{len(self.tile_of)}", (LONGEST + 1) * ROWS)

    def _stride(self, param: int) -> Code:
        """The stride between rows; the same size argument as in offsets."""
        extent = self.loops.extents[self.rows.along]
        return self.sizes(("factor", param, self.rows.row, extent), extent)

    def _move(self, function: str, param: int, source: Part, step: Part, target: Part, ld: Part) -> None:
        bits = self.kernel.params[param].dtype.itemsize * 8
        self.do("{}({}, {}, {}, {}, {width});", Symbol(f"{function}{bits}"), source, step, target, ld)

    def _in_tile(self, param: int, offset: Affine) -> Element:
        return self.at(self.tile_of[param, offset], self.code(f"{{}} * {ROWS}", self.axes[self.rows.along]), X)

    def expression(self, node: Scalar) -> Code:
        if node in self.rows.loads:
            element = self._in_tile(node.attr.param, node.attr.offset)
            return spell.load(self.kernel.params[node.attr.param].dtype, element)
        return super().expression(node)

    def store(self, store: Store) -> None:
        if store in self.rows.stores:
            value = spell.store(self.kernel.params[store.param].dtype, self.operand(store.value))
            self.set(self._in_tile(store.param, store.offset), value)
        else:
            super().store(store)
