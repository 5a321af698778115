"""Tiling for transposed accesses: what is dense along another axis than the vector goes through square tiles.

A tile is transposed in registers as it is read, so that whole cache lines move on both sides, and lies in the core's own
cache while the block is computed. Results with a transposed access are computed into tiles and leave through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.function import Code, Element, Part, Symbol, Variable, code
from fuser.backends.c.schedules import fission, masking, transposes
from fuser.backends.c.schedules.transposes import TRANSPOSED
from fuser.ir.index import Axis, Div
from fuser.ir.scalar import Scalar
from fuser.kernel.cost import LEAST_TILED
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes

if TYPE_CHECKING:
    from fuser.backends.c.emitter import Emitter
    from fuser.backends.c.schedules.elementwise import Elementwise, Span
    from fuser.backends.c.schedules.piece import Piece

ALONG = 512  # bytes of a tile along the axis that is dense in memory: shorter runs lose a third, longer ones the cache
WIDTH = 64  # elements of a tile along the vector
MOST_TILES = 8
X, Y = Variable("x", "int64_t"), Variable("y", "int64_t")  # the running column and row of a tile


@dataclass(frozen=True)
class TransposedAccess:
    """What lies dense along `axis` and apart along the vector."""

    axis: Axis
    loads: tuple[Scalar, ...]
    stores: tuple[Store, ...]


def transposed_accesses(kernel: Kernel, loops: Loops) -> TransposedAccess | None:
    """The accesses that are worth tiles, all along one axis; None where there are none."""
    vector = loops.vector
    if vector is None or kernel.reduced or loops.extents[vector] < LEAST_TILED:
        return None
    free = [n for n in kernel.nodes if n.op == "load" and not n.args]  # what is read under a mask may not be there
    best: TransposedAccess | None = None
    for axis in loops.parallel:
        if axis is vector or loops.extents[axis] < LEAST_TILED:
            continue
        loads = tuple(n for n in free if crosses(n.attr, kernel, vector, axis, loops))
        stores = tuple(s for s in kernel.stores if crosses(s, kernel, vector, axis, loops))
        if best is None or len(loads) + len(stores) > len(best.loads) + len(best.stores):
            best = TransposedAccess(axis, loads[:MOST_TILES], stores)
    return best if best is not None and (best.loads or best.stores) else None


def crosses(access: Access | Store, kernel: Kernel, vector: Axis, axis: Axis, loops: Loops) -> bool:
    """Whether an access is dense along `axis`, forwards or backwards, and strided along the vector, by plain strides."""
    offset = access.offset
    plain = all(isinstance(atom, Axis) or not _inside(atom, vector, axis, loops) for atom, _ in offset.terms)
    known = kernel.params[access.param].dtype.itemsize * 8 in TRANSPOSED
    return known and plain and abs(offset.coefficient(axis)) == 1 and abs(offset.coefficient(vector)) > 1


def _inside(atom: object, vector: Axis, axis: Axis, loops: Loops) -> bool:
    """Whether a floor division or a computed integer changes within a tile."""
    if isinstance(atom, Div):
        return bool(index_axes(atom.base) & {vector, axis, *loops.absorbed}) or bool(computed(atom.base))
    return True


def sides(kernel: Kernel, found: TransposedAccess) -> tuple[int, int]:
    """Height and width of the tiles."""
    sizes = [n.dtype.itemsize for n in found.loads] + [kernel.params[s.param].dtype.itemsize for s in found.stores]
    return ALONG // max(sizes), WIDTH * (2 if max(sizes) < 4 else 1)


def write(writer: Elementwise, piece: Piece, across: Span, along: Span) -> None:
    """The loops over tiles of a span of both axes, and in each over its rows, with the vector along the axis of most accesses."""
    found = piece.tiling
    assert found is not None
    height, width = sides(writer.kernel, found)
    corners: dict[Axis, Part] = {}
    for span, count, side in ((across, "height", height), (along, "width", width)):
        corners[span.axis] = writer.count(f"{count}_from", span.begin, span.end, f"{{}} += {side}")
    for span, count, side in ((across, "height", height), (along, "width", width)):
        rest = code("{} - {}", span.end, corners[span.axis])
        writer.let("int64_t", count, f"{{0}} < {side} ? {{0}} : {side}", rest)
    if copied := _copied(writer.kernel, found, along.axis):
        _copy(writer, *copied, across, along, corners)
        return
    leaving: dict[Store, Variable] = {}
    for number, load in enumerate(found.loads):
        array = writer.params[load.attr.param]
        tile = writer.buffer(array.type, f"tile{number}", height * width)
        with _first(writer, load.attr, across, corners):
            begin, step = (
                code("&{}", Element(array, writer._offset(load.attr.param, load.attr.offset))),
                _step(writer, load.attr, along),
            )
        first, ld = _rows_of(writer, tile, width, _backwards(load.attr, across.axis))
        _transpose(writer, load.attr.param, begin, step, first, ld, "{height}, {width}")
        writer.sources[load] = writer.at(tile, code(f"{{}} * {width}", Y), X)
    for store in found.stores:
        array = writer.params[store.param]
        tile = leaving[store] = writer.buffer(array.type, f"tile_{array.name}{len(leaving) or ''}", height * width)
        writer.targets[store] = writer.at(tile, code(f"{{}} * {width}", Y), X)
    narrow = [n for n in masking.narrow_loads(writer, piece.nodes, piece.stores, True) if n not in writer.sources]
    others = [node for node in piece.nodes if node not in narrow]
    lanes = masking.tiled(writer, others, piece.stores, along.extent, {*found.loads, *found.stores})
    writer.made(masking=lanes or None)
    _rows(writer, piece, across.axis, along.axis, corners, width, lanes, narrow if lanes else ())
    for store, tile in leaving.items():
        with _first(writer, store, across, corners):
            begin, step = code("&{}", writer.target(store)), _step(writer, store, along)
        first, ld = _rows_of(writer, tile, width, _backwards(store, across.axis))
        _transpose(writer, store.param, first, ld, begin, step, "{width}, {height}")
    writer.close()
    writer.close()


def _backwards(access: Access | Store, axis: Axis) -> bool:
    """Whether elements lie in memory in the opposite order to that of the axis."""
    return access.offset.coefficient(axis) < 0


@contextmanager
def _first(writer: Elementwise, access: Access | Store, across: Span, corners: Mapping[Axis, Part]) -> Iterator[None]:
    """Stand where the element of a tile is that comes first in memory."""
    if not _backwards(access, across.axis):
        with writer.standing(corners):
            yield
        return
    last = writer.code("({} + {height} - 1)", corners[across.axis])
    with writer.standing({**corners, across.axis: last}):
        yield


def _rows_of(writer: Elementwise, tile: Variable, width: int, backwards: bool) -> tuple[Part, str]:
    """The row of a tile that is moved first, and the stride to the next one."""
    if not backwards:
        return tile, str(width)
    return code("&{}", writer.at(tile, writer.code(f"({{height}} - 1) * {width}"))), str(-width)


def _copied(kernel: Kernel, found: TransposedAccess, vector: Axis) -> tuple[Scalar, Store] | None:
    """The load and the store of a kernel that does nothing else, and whose store is dense along the vector."""
    if len(kernel.stores) != 1 or kernel.nodes != found.loads or len(found.loads) != 1:
        return None
    (load,), (store,) = found.loads, kernel.stores
    return (load, store) if store.value is load and store.offset.coefficient(vector) == 1 else None


def _copy(
    writer: Elementwise, load: Scalar, store: Store, across: Span, along: Span, corners: Mapping[Axis, Part]
) -> None:
    """Transpose a tile of memory into memory: a tile between would be read while its neighbours' stores are under way."""
    with _first(writer, load.attr, across, corners):
        source, target = (
            code("&{}", Element(writer.params[access.param], writer._offset(access.param, access.offset)))
            for access in (load.attr, store)
        )
    ld = _step(writer, store, across)
    ld = code("-{}", ld) if _backwards(load.attr, across.axis) else ld
    _transpose(writer, load.attr.param, source, _step(writer, load.attr, along), target, ld, "{height}, {width}")
    writer.close()
    writer.close()


def _rows(
    writer: Elementwise,
    piece: Piece,
    across: Axis,
    along: Axis,
    corners: Mapping[Axis, Part],
    width: int,
    lanes: int,
    narrow: Sequence[Scalar],
) -> None:
    """The rows of a tile, one after the other, each in whole vectors of `lanes` numbers if there are any; `narrow` loads are read into
    32 bits first, once for all rows where these share them."""
    element = lambda x: writer.let("int64_t", writer.axis_names[along], "{} + {}", corners[along], x)
    shared = [node for node in narrow if across not in index_axes(node.attr.offset)]
    _widen(writer, shared, width, element)
    y = writer.count("y", "0", writer.named("height"))
    writer.let("int64_t", writer.axis_names[across], "{} + {}", corners[across], y)
    _widen(writer, [node for node in narrow if node not in shared], width, element)
    fission.write(writer, piece, width, writer.named("width"), element, lanes=lanes)
    writer.close()


def _widen(writer: Elementwise, nodes: Sequence[Scalar], width: int, element: Callable[[Part], object]) -> None:
    """Read what each node loads of a tile's row into numbers of 32 bits."""
    for node in nodes:
        row = writer.buffer(spell.held(node.dtype), f"{writer.name(node)}_row", width)
        with writer.scope():
            writer.pragma("omp simd")
            x = writer.count("x", "0", writer.named("width"))
            element(x)
            writer.set(writer.at(row, x), spell.put(node.dtype, writer.expression(node)))
            writer.close()
        writer.wide[node] = writer.at(row, X)


def _transpose(writer: Emitter, number: int, source: Part, step: Part, target: Part, ld: Part, counts: str) -> None:
    bits = writer.kernel.params[number].dtype.itemsize * 8
    writer.do(f"{{}}({{}}, {{}}, {{}}, {{}}, {counts});", Symbol(f"transpose{bits}"), source, step, target, ld)


def _step(writer: Emitter, access: Access | Store, along: Span) -> Code:
    """The stride along the vector; the same size argument as in the place."""
    coefficient = access.offset.coefficient(along.axis)
    return writer.sizes(("factor", access.param, along.axis, coefficient), coefficient)


def move_rows(
    writer: Emitter,
    side: str,
    param: int,
    source: Part,
    step: Part,
    target: Part,
    ld: Part,
    stride: int = 0,
    count: Part = "",
) -> None:
    """Take the rows of a block of `width` rows into a tile (side "in"), or out of it ("out"). They are either of `stride` elements that
    lie one after the other, or of `count` elements, the last of a row anywhere ahead of the next row."""
    bits = writer.kernel.params[param].dtype.itemsize * 8
    function = transposes.rows_function(side, bits, stride)
    if function.endswith(f"_{stride}"):
        writer.do("{}({}, {}, {}, {}, {width});", Symbol(function), source, step, target, ld)
    else:
        apart = step if side == "in" else ld
        writer.do("{}({}, {}, {}, {}, {width}, {});", Symbol(function), source, step, target, ld, count or apart)
