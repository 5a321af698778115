"""Register tiling: neighbours along the loop around the vector computed together, where they read the same elements.

Windows of neighbours overlap, and all of them meet the same weights: a stencil, a depthwise convolution, a pooling. One by one each
reads all of its window again. In turns, node by node, a tile of them reads what they share once, into a register (unroll-and-jam
with scalar replacement). Nothing is added in another order.

In: the nodes and stores of a piece. Out: those of a tile of neighbours, in the order in which they are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fuser.backends.c.schedules.unroll_and_jam import CHEAP, LEAVES, alive
from fuser.backends.c.target import TARGET
from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.index_set_splitting import attribute
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.substitution import Substitution

COUNTS = (4, 3, 2)  # neighbours of a tile, the best first
FEWEST_LOADS = 5  # an element, below which memory is waited for rather than loads
SAVING = 0.75  # of the cycles of neighbours one by one, above which tiles are not worth their text
MOST_TEXT = 600  # operations of a tile
PER_CYCLE = 2  # operations that pass while one vector is loaded
LEAST = 1 << 12  # elements of the piece, below which compiling the tile takes longer than it saves
WINDOW = 8  # elements of one array that are read for an element along the vector
SHORT_ROW = 256  # elements along the vector; to add up offsets takes less than a tenth of what longer ones take


@dataclass(frozen=True, eq=False)
class Neighbours:
    """`count` neighbours along `axis`: their nodes in turns, and their stores."""

    axis: Axis
    count: int
    nodes: tuple[Scalar, ...]
    stores: tuple[Store, ...]


def neighbours(
    nodes: Sequence[Scalar], stores: Sequence[Store], loops: Loops, asked: int | bool | None = None
) -> Neighbours | None:
    """The tile along the loop around the vector; None where there is none that may be, or that pays. A number that is `asked` for
    is taken where it may be."""
    axis = _around(loops)
    if axis is None or not _may(nodes, stores, axis):
        return None
    counts = (asked,) if type(asked) is int else COUNTS
    for count in counts:
        if count < 2 or loops.extents[axis] < 2 * count:
            continue
        tile = _tile(nodes, stores, axis, count)
        if asked or _pays(nodes, tile, loops):
            return tile
    return None


def is_window(kernel: Kernel, loops: Loops) -> bool:
    """Whether short rows read windows of an array."""
    vector = loops.vector
    if vector is None or loops.extents[vector] > SHORT_ROW or len(loops.parallel) == 1:
        return False
    loads = Counter(n.attr.param for n in kernel.nodes if n.op == "load" and vector in n.attr.offset.leaves)
    return max(loads.values(), default=0) >= WINDOW


def _around(loops: Loops) -> Axis | None:
    outer = [axis for axis in loops.parallel if axis is not loops.vector]
    return outer[-1] if outer and loops.vector in loops.parallel else None


def _may(nodes: Iterable[Scalar], stores: Sequence[Store], axis: Axis) -> bool:
    """Whether each neighbour is arithmetic on what it reads without a mask, and writes elements of its own."""
    apart = all(store.param >= 0 and store.total is None and store.offset.coefficient(axis) for store in stores)
    return apart and all(map(_plain, nodes))


def _plain(node: Scalar) -> bool:
    divides = node.op in ("div", "rem") and node.dtype.kind in "iu"
    return (
        node.op in CHEAP | LEAVES
        and not divides
        and not is_complex(node.dtype)
        and not (node.op == "load" and node.args)
    )


def _pays(nodes: Sequence[Scalar], tile: Neighbours, loops: Loops) -> bool:
    vector = loops.vector
    assert vector is not None
    single = _loads(nodes, vector)
    if single < FEWEST_LOADS or loops.count(loops.parallel) < LEAST or len(tile.nodes) > MOST_TEXT:
        return False
    if loops.extents[vector] < TARGET.vector // 4 or _same_sets(tile) or not _dense(nodes, vector):
        return False
    operations = tile.count * sum(TARGET.costs.get(n.op, 1) for n in nodes if n.op not in LEAVES) / PER_CYCLE
    before = max(tile.count * single, operations)
    after = max(_loads(tile.nodes, vector), operations)
    return after <= SAVING * before and alive(tile.nodes, tile.stores) <= TARGET.registers


def _loads(nodes: Iterable[Scalar], vector: Axis) -> int:
    """Vectors that are loaded; what stands still along the vector is loaded before it."""
    return sum(node.op == "load" and vector in node.attr.offset.leaves for node in nodes)


def _dense(nodes: Iterable[Scalar], vector: Axis) -> bool:
    """Whether vectors lie dense: others are shuffled together, which takes longer than to load them."""
    return all(n.attr.offset.coefficient(vector) in (0, 1) for n in nodes if n.op == "load")


def _same_sets(tile: Neighbours) -> bool:
    """Whether neighbours are written to the same sets of the nearest cache, which holds fewer of those than tiles need."""
    steps = ((s.offset.coefficient(tile.axis) * s.value.dtype.itemsize) for s in tile.stores)
    return any(step % TARGET.sets == 0 for step in steps)


def _tile(nodes: Sequence[Scalar], stores: Sequence[Store], axis: Axis, count: int) -> Neighbours:
    places = [Substitution({axis: Affine.of(axis) + n}) for n in range(count)]
    same: dict[Any, Scalar] = {}
    merged: list[dict[Scalar, Scalar]] = [{} for _ in places]
    order: dict[Scalar, None] = {}
    for node in nodes:
        for place, new in zip(places, merged):
            moved = place.node(node)
            args = tuple(new[a] for a in node.args)
            made = moved if args == moved.args else Scalar(moved.op, args, moved.dtype, moved.attr)
            new[node] = same.setdefault((made.op, made.dtype, attribute(made), args), made)
            order.setdefault(new[node])
    written = [
        Store(s.param, place.index(s.offset), new[s.value], tuple(map(place.index, s.index)))
        for place, new in zip(places, merged)
        for s in stores
    ]
    return Neighbours(axis, count, tuple(order), tuple(written))
