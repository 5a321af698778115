"""Loop coalescing of short rows: the loop over rows and the one along them become one, beside operands that all rows share.

Rows of 3, 7 or 30 numbers lie one after the other, so that a loop over all of them runs in whole vectors. What changes along a
row alone (a bias, the weights of channels) is written out for a block of rows first, and so is what changes from row to
row alone; both lie in the core's own cache. Where nothing is shared, as in a piece without the tests that kept its loops apart, rows
are one run of memory. Rows of whole vectors are counted in the text instead, where registers hold what they share.

Polychronopoulos, "Loop coalescing: a compiler transformation for parallel machines" (ICPP 1987).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.function import Part, Symbol, Variable, code
from fuser.backends.c.schedules import fission
from fuser.backends.c.target import TARGET
from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_complex
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes, index_of, needed, operands, own_axes, within_sweep

if TYPE_CHECKING:
    from fuser.backends.c.schedules.elementwise import Elementwise, Span
    from fuser.backends.c.schedules.piece import Piece

LONGEST = 64  # elements of a row: longer ones are vectors enough
ROWS = 16  # of a block at least, and what divides them: a vector's numbers, so that a block is made of whole vectors
MOST_ROWS = 1024  # of a block without values that rows share, which needs no room
FEWEST_BLOCKS = 64  # of as many rows as there is room for: writing out what they share is little beside them then
FEWEST_ROWS = 32  # for which writing out what rows share pays
SHARED_BYTES = TARGET.levels[0].capacity / 2  # of values that are written out, which each block of rows reads again
LANES = TARGET.lanes
INTERLEAVED = (2, 3, 4, 8, 16)  # elements of rows that compilers write in vectors
WORKING = 8  # registers that are not free for what rows share
X = Variable("x", "int64_t")  # the running element of a block


@dataclass(frozen=True)
class Rows:
    """`row` counts rows, `along` the elements of one; values that change along a row alone, and from row to row alone; `block`
    rows share what is written out."""

    row: Axis
    along: Axis
    repeated: tuple[Scalar, ...]
    spread: tuple[Scalar, ...]
    block: int = ROWS


def short_rows(kernel: Kernel, loops: Loops) -> Rows | None:
    """The rows that a kernel's results are made of, where they are short."""
    along = loops.vector
    if along is None or kernel.reduced or not 1 < loops.extents[along] < LONGEST:
        return None
    nodes = kernel.sweeps[0].row
    if any(is_complex(node.dtype) for node in nodes):
        return None
    for row in loops.parallel:
        if row is not along and loops.extents[row] >= FEWEST_ROWS and _dense(kernel, row, along, loops):
            return _paying(_split(kernel, row, along, loops), loops)
    return None


def in_registers(rows: Rows, loops: Loops) -> bool:
    """Whether rows are few whole vectors, of which registers hold what is repeated: rows that are counted in the text, which compilers write
    out, then read it once for all of them."""
    vectors, rest = divmod(loops.extents[rows.along], LANES)
    return rest == 0 and vectors * len(rows.repeated) <= TARGET.registers - WORKING


def _paying(rows: Rows | None, loops: Loops) -> Rows | None:
    """The rows, where what they share stays in the core's own cache. Rows of whole vectors are worth it for what changes along them
    alone, which their own loops read again for each: what changes from row to row alone stays in a register there."""
    if rows is None or (loops.extents[rows.along] % LANES == 0 and not rows.repeated):
        return None
    size = sum(node.dtype.itemsize for node in (*rows.repeated, *rows.spread))
    extent = loops.extents[rows.along]
    if size * ROWS * extent > SHARED_BYTES:
        return None
    room = min(ROWS * LONGEST, int(SHARED_BYTES) // max(size, 1)) // extent // ROWS * ROWS
    block = room if loops.extents[rows.row] >= room * FEWEST_BLOCKS else ROWS
    return replace(rows, block=block)


def _joint(index: Affine, row: Axis, along: Axis, loops: Loops) -> bool:
    """Whether neighbours along a row and from its end to the next row's begin lie side by side."""
    inside = any(isinstance(atom, Div) and index_axes(atom.base) & {row, along} for atom, _ in index.terms)
    return (
        not inside and not computed(index) and index.coefficient(row) == index.coefficient(along) * loops.extents[along]
    )


def _dense(kernel: Kernel, row: Axis, along: Axis, loops: Loops) -> bool:
    return all(s.offset.coefficient(along) == 1 and _joint(s.offset, row, along, loops) for s in kernel.stores)


def _split(kernel: Kernel, row: Axis, along: Axis, loops: Loops) -> Rows | None:
    """The values that blocks of rows share; None where an element is found in another way than by its offset in a block."""
    changes: dict[Scalar, frozenset[Axis]] = {}
    both = frozenset((row, along))
    for node in kernel.sweeps[0].row:
        own: frozenset[Axis] = frozenset()
        if node.op in ("load", "index"):
            index = index_of(node)
            own = frozenset(index_axes(index) & both)
            dense = own == both and _joint(index, row, along, loops) and (node.op == "index" or not node.args)
            if own == both and not (dense and index.coefficient(along) == 1):
                return None
        changes[node] = own.union(*(changes.get(operand, frozenset()) for operand in operands(node)))
        if node.op == "load" and changes[node] == both and own != both:
            return None  # an index or a mask that changes with the element
    read = [o for node in changes if changes[node] == both for o in operands(node)] + [s.value for s in kernel.stores]
    shared = [n for n in dict.fromkeys(read) if n.op != "const" and changes.get(n, both) not in (both, frozenset())]
    repeated, spread = (tuple(n for n in shared if changes[n] == {axis}) for axis in (along, row))
    return Rows(row, along, repeated, spread)


def write(writer: Elementwise, piece: Piece, row: Span, along: Span, share: bool) -> None:
    """The loops over blocks of rows, and in each one loop over all elements of its rows."""
    found = piece.coalescing
    assert found is not None
    blocks = {node: writer.repeated.get(node) or _room(writer, node) for node in (*found.repeated, *found.spread)}
    if found.repeated and not writer.repeated:
        _repeat(writer, piece, found, blocks, along.end)
    if share:
        writer.shared()
    most = found.block if blocks or piece.fission else MOST_ROWS
    base = writer.count("base", row.begin, row.end, f"{{}} += {most}")
    rows = writer.let("int64_t", "rows", f"{{0}} - {{1}} < {most} ? {{0}} - {{1}} : {most}", row.end, base)
    if found.spread:
        _spread(writer, piece, found, blocks)
    with writer.scope(), writer.standing({found.row: base, found.along: X}):
        for node, block in blocks.items():
            writer.env[node] = spell.taken(node.dtype, writer.at(block, X))
        nodes = _missing(writer, piece, [store.value for store in piece.stores])
        fission.write(writer, piece, ROWS * LONGEST, code("{} * {}", rows, along.end), lambda x: None, nodes)
    writer.close()


def stands_still(rows: Rows, outer: Collection[Axis]) -> bool:
    """Whether the loops around a piece change nothing of what its rows repeat."""
    changes = {axis for node in within_sweep(rows.repeated) for axis in own_axes(node)}
    return bool(rows.repeated) and changes.isdisjoint(outer)


def repeated(writer: Elementwise, piece: Piece, along: Span) -> dict[Scalar, str]:
    """Write out what changes along a row alone, for all blocks of the piece; gives the arrays."""
    found = piece.coalescing
    assert found is not None
    blocks = {node: _room(writer, node) for node in found.repeated}
    _repeat(writer, piece, found, blocks, along.end)
    return blocks


def _room(writer: Elementwise, node: Scalar) -> str:
    return writer.buffer(spell.held(node.dtype), f"{writer.name(node)}_rows", ROWS * LONGEST).name


def _missing(writer: Elementwise, piece: Piece, roots: Iterable[Scalar]) -> list[Scalar]:
    """The nodes that the roots need and that are not there yet, in order."""
    return needed(roots, [node for node in piece.nodes if node not in writer.env])


def _put(writer: Elementwise, node: Scalar, block: str, offset: Part) -> None:
    writer.set(writer.at(block, offset), spell.put(node.dtype, writer.operand(node)))


def _repeat(writer: Elementwise, piece: Piece, found: Rows, blocks: dict[Scalar, str], along: Part) -> None:
    """Compute what changes along a row alone, and write it out for each row of a block."""
    with writer.scope():
        writer.pragma("omp simd")
        writer.loop(found.along)
        writer.define_all(_missing(writer, piece, found.repeated))
        for node in found.repeated:
            _put(writer, node, blocks[node], writer.axes[found.along])
        writer.close()
    again = writer.count("again", along, code(f"{{}} * {found.block}", along))
    for node in found.repeated:
        writer.set(writer.at(blocks[node], again), writer.at(blocks[node], code("{} - {}", again, along)))
    writer.close()


def _spread(writer: Elementwise, piece: Piece, found: Rows, blocks: dict[Scalar, str]) -> None:
    """Compute what changes from row to row alone, and write it out for each element of its row. The text says how many these
    are: compilers then write rows out, and interleave those of a vector. Of some lengths they would write numbers alone: such a
    row is written as a vector, beyond its end, where the next row is written over that."""
    extent = writer.loops.extents[found.along]
    written = 1 << (extent - 1).bit_length()
    overlapping = extent not in INTERLEAVED and all(
        written * spell.local_bytes(node.dtype) <= TARGET.vector and node.dtype != BOOL for node in found.spread
    )
    if overlapping:
        _write_over(writer, piece, found, blocks, written)
        return
    with _each_row(writer, found) as turn:
        writer.define_all(_missing(writer, piece, found.spread))
        x = writer.count("x", "0", str(extent))
        for node in found.spread:
            _put(writer, node, blocks[node], code(f"{{}} * {extent} + {{}}", turn, x))
        writer.close()


def _write_over(writer: Elementwise, piece: Piece, found: Rows, blocks: dict[Scalar, str], written: int) -> None:
    """Rows as vectors of `written` elements, one after the other. What is computed of each row is computed before, in vectors of rows."""
    extent = writer.loops.extents[found.along]
    values = [node for node in found.spread if node.op != "load"]
    each = {
        node: writer.buffer(spell.local(node.dtype), f"{writer.name(node)}_each", found.block).name for node in values
    }
    if values:
        with _each_row(writer, found) as turn:
            writer.define_all(_missing(writer, piece, values))
            for node in values:
                writer.set(writer.at(each[node], turn), writer.operand(node))
    with _each_row(writer, found, simd=False) as turn:
        writer.define_all(_missing(writer, piece, [node for node in found.spread if node not in each]))
        for node in found.spread:
            value = writer.at(each[node], turn) if node in each else writer.operand(node)
            row = writer.at(blocks[node], code(f"{{}} * {extent}", turn))
            writer.do("{}(&{}, {});", Symbol(spell.spread(spell.local(node.dtype), written)), row, value)


@contextlib.contextmanager
def _each_row(writer: Elementwise, found: Rows, simd: bool = True) -> Iterator[Part]:
    """A loop over the rows of a block; gives the number of the row."""
    if simd:
        writer.pragma("omp simd")
    turn = writer.count("turn", "0", writer.named("rows"))
    place = {found.row: code("({} + {})", writer.named("base"), turn)}
    with writer.scope(), writer.standing(place), writer.index.along(found.row):
        yield turn
    writer.close()
