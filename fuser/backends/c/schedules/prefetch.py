"""Rows that are asked for ahead: while a kernel computes with a row that the cache holds, the next one comes from memory.

A kernel that runs along each row several times waits for memory in the first run, and for arithmetic in the others. So
the last run asks for the same piece of the next row before each piece. Kernels that also write rows do not gain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.backends.c.function import Range, Variable, code
from fuser.backends.c.schedules import masking
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Sweep

if TYPE_CHECKING:
    from fuser.backends.c.emitter import Emitter

PIECE = 1024  # elements of a row that are asked for at a time
LEAST_BYTES = 1 << 22  # of what is read: less stays in a cache
LEAST_ROW_BYTES = 1 << 12  # of rows that are worth it
# Of the longest rows: two fill the nearest cache, but where functions of maths take longer than the next cache does.
MOST_ROW_BYTES = TARGET.levels[0].capacity / 2, TARGET.levels[1].capacity / 4


def loads_ahead(writer: Emitter, sweep: Sweep) -> list[Scalar]:
    """The loads whose next row is to be asked for in this sweep; none where that does not pay."""
    kernel, loops = writer.kernel, writer.loops
    if writer.asked.forbids("prefetching"):
        return []
    running = [s for s in kernel.sweeps if s.loops]
    if len(running) < 2 or sweep is not running[-1] or any(s.stores for s in running):
        return []
    if len(loops.reduced) != 1 or not loops.parallel or loops.vector is not loops.reduced[0]:
        return []
    if any(node.op == "scan" for s in running for node in s.body):
        return []
    loads = [n for n in running[0].body if n.op == "load" and _walks(n, loops.parallel[-1], loops.reduced[0])]
    row = sum(n.dtype.itemsize for n in loads) * loops.extents[loops.reduced[0]]
    most = MOST_ROW_BYTES[masking.dear(sweep.body)]
    pays = LEAST_ROW_BYTES <= row <= most and row * loops.count(loops.parallel) >= LEAST_BYTES
    return loads if pays else []


def _walks(load: Scalar, row: Axis, col: Axis) -> bool:
    """Whether the load reads an element after the other of one row after the other."""
    index = load.attr.offset
    plain = all(isinstance(atom, Axis) for atom in index.atoms) and not load.args
    return plain and index.coefficient(col) == 1 and index.coefficient(row) >= 1


def open_pieces(writer: Emitter, loads: list[Scalar], axis: Axis) -> Range:
    """Open a loop over pieces of the row, in which the same piece of the next row is asked for; gives its ends."""
    writer.made(prefetching=len(loads))
    row, total = writer.loops.parallel[-1], writer.extents[axis]
    piece = writer.count("piece", "0", total, f"{{}} += {PIECE}")
    until = writer.let("int64_t", "until", f"{{0}} - {{1}} < {PIECE} ? {{0}} : {{1}} + {PIECE}", total, piece)
    for load in loads:
        array, step = (
            writer.params[load.attr.param],
            TARGET.line // writer.kernel.params[load.attr.param].dtype.itemsize,
        )
        ahead = Variable("ahead", "int64_t")
        with writer.standing({row: code("({} + 1)", writer.axes[row]), axis: ahead}):
            place = writer._offset(load.attr.param, load.attr.offset)
        writer.count(ahead.name, piece, until, f"{{}} += {step}")
        writer.do("__builtin_prefetch({} + {});", array, place)
        writer.close(flat=True)
    return piece, until
