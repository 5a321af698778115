"""Tiling of interleaved stores: narrow pieces write to a tile, which is transposed into the result once a block.

Each piece writes a column of a result, a line of the cache apart from one element to the next. In the tile that column is a
row; it is transposed into the result once a block, so that whole lines are written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuser.backends.c.function import Element, Part, Symbol, Variable, code
from fuser.backends.c.schedules.tiling import crosses
from fuser.backends.c.target import TARGET
from fuser.ir.index import Affine, Axis
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops

if TYPE_CHECKING:
    from fuser.backends.c.schedules.elementwise import Elementwise

FEWEST = TARGET.lanes  # columns: vectors of fewer are not transposed whole
MOST_BYTES = TARGET.levels[1].capacity / 4  # of all tiles


@dataclass(frozen=True)
class Waiting:
    """What waits in tiles, by parameter and offset: `across` counts the columns, `inner` the elements of one."""

    across: Axis
    inner: Axis
    tiles: dict[tuple[int, Affine], Variable]

    def element(self, writer: Elementwise, store: Store, block: int) -> Element | None:
        """Where a store's element is in its tile; None where it has none."""
        tile = self.tiles.get((store.param, store.offset))
        if tile is None:
            return None
        row, first = code(f"{{}} * {block}", writer.axes[self.across]), writer.named("block")
        return writer.at(tile, row, code("({} - {})", writer.axes[self.inner], first))


def waiting(kernel: Kernel, loops: Loops, inner: Axis, block: int) -> list[Store]:
    """The stores whose results wait, with vectors of `block` elements along `inner`."""
    across = loops.vector
    if across is None or len(loops.parallel) != 2 or loops.extents[across] < FEWEST:
        return []
    stores = [
        s for s in kernel.stores if s.offset.coefficient(across) == 1 and crosses(s, kernel, inner, across, loops)
    ]
    size = sum(kernel.params[store.param].dtype.itemsize for store in stores)
    return stores if size * block * loops.extents[across] <= MOST_BYTES else []


def begin(writer: Elementwise, stores: list[Store], inner: Axis, block: int) -> Waiting:
    """Declare the tiles."""
    across = writer.loops.vector
    assert across is not None
    tiles = {}
    for number, store in enumerate(stores):
        kind, count = writer.params[store.param].type, writer.loops.extents[across] * block
        tiles[store.param, store.offset] = writer.buffer(kind, f"columns{number}", count)
    return Waiting(across, inner, tiles)


def leave(writer: Elementwise, found: Waiting, block: int) -> None:
    """Take a block's results out of the tiles."""
    corner: dict[Axis, Part] = {found.inner: writer.named("block"), found.across: "0"}
    for (param, offset), tile in found.tiles.items():
        step = offset.coefficient(found.inner)
        ld = writer.sizes(("factor", param, found.inner, step), step)
        with writer.standing(corner):
            first = code("&{}", Element(writer.params[param], writer._offset(param, offset)))
        function = Symbol(f"transpose{writer.kernel.params[param].dtype.itemsize * 8}")
        height, width = writer.code("{behind} - {block}"), writer.extents[found.across]
        writer.do("{}({}, {}, {}, {}, {}, {});", function, tile, str(block), first, ld, height, width)
