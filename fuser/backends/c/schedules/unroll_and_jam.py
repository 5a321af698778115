"""Unroll-and-jam of elementwise loops with long chains of cheap operations: several vectors interleaved, operation by operation.

A chain is longer than what a processor looks ahead, so that it waits for each result with nothing else to do. With the
operations of several vectors in turn it has: 1.9 times as fast for 20 iterations of z² + c.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fuser.backends.c.function import Part, code
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import operands

if TYPE_CHECKING:
    from fuser.backends.c.schedules.elementwise import Elementwise
    from fuser.backends.c.schedules.piece import Piece

WAITING = 90  # cycles of a chain from which a processor, which looks some 250 operations ahead, has to wait
MOST, FEWEST = 4, 2  # vectors interleaved
SHORT = 1024  # elements along the vector below which this does not pay
MOST_TEXT = 1200  # operations of all interleaved vectors: gcc takes a quarter of a second for them
CHEAP = frozenset(
    ("neg", "abs", "floor", "ceil", "round", "trunc", "not", "add", "sub", "mul", "div", "sqrt", "fma", "max", "min")
    + ("and", "or", "xor", "shl", "shr", "sar", "eq", "ne", "lt", "le", "gt", "ge", "select", "cast", "bitcast")
)
LEAVES = frozenset(("const", "index", "load"))
LATENCY = {"div": 6, "sqrt": 6, "select": 1, "neg": 1, "abs": 1, "bitcast": 0}  # cycles; 3 of other floating point
# gcc's own unroll-and-jam would put whole iterations one after the other.
ATTRIBUTES = '__attribute__((optimize("no-loop-unroll-and-jam", "schedule-insns", "sched-pressure"))) '
UNORDERED = '__attribute__((optimize("no-loop-unroll-and-jam"))) '


def attributes(live: int) -> str:
    """Of a function whose loop compilers interleave by themselves, by the values alive at one time: where registers do not hold them, to
    order operations first takes gcc three times as long, and what that gains is spilled."""
    return ATTRIBUTES if live <= TARGET.registers else UNORDERED


def interleaved(kernel: Kernel, loops: Loops) -> int:
    """How many vectors are interleaved; 0 where the plain form does as well."""
    found = most(kernel, loops)
    return found if found and _chain(kernel.sweeps[0].row) >= WAITING else 0


def most(kernel: Kernel, loops: Loops) -> int:
    """How many vectors may be interleaved: their values stay in registers, and the text is not too long."""
    sweep, vector = kernel.sweeps[0], loops.vector
    if vector is None or loops.extents[vector] < SHORT or not all(map(_plain, sweep.row)):
        return 0
    apart = len({store.param for store in sweep.row_stores}) == len(sweep.row_stores)
    if not apart or not all(_dense(store, vector) for store in sweep.row_stores):
        return 0
    live, length = alive(sweep.row, sweep.row_stores), len(sweep.row)
    found = min(MOST, TARGET.registers // max(live, 1), MOST_TEXT // max(length, 1))
    return found if found >= FEWEST else 0


def step(piece: Piece) -> int:
    """Elements of all vectors that are interleaved."""
    return TARGET.vector // max(n.dtype.itemsize for n in piece.nodes) * piece.unroll_and_jam


def write(writer: Elementwise, piece: Piece, block: int, element: Callable[[Part], object]) -> None:
    """The loops over a block, whose results wait in arrays of it: whole turns of the vectors, and what is left. `element` defines
    the axes at an offset in the block."""
    row = [n for n in piece.nodes if n not in writer.env]
    each, turns = step(piece), piece.unroll_and_jam
    lanes = each // turns
    _declare(writer, piece, "block", block)
    width = writer.named("width")
    at = writer.count("at", "0", width, f"{{}} += {each}", f"{{}} + {each} <= {{}}")
    _declare(writer, piece, "part", each)
    writer.pragma("omp simd")
    lane = writer.count("lane", "0", lanes)
    writer.pragma(f"GCC unroll {turns}")
    turn = writer.count("turn", "0", turns)
    x = writer.let("int64_t", "x", f"{{}} + {lanes} * {{}}", lane, turn)
    element(code("{} + {}", at, x))
    _elements(writer, piece, row, "part")
    writer.close()
    writer.close()
    writer.pragma("omp simd")
    writer.count("x", "0", each)
    for name in _results(writer, piece):
        writer.set(writer.at(f"{name}_block", at, x), writer.at(f"{name}_part", x))
    writer.close(flat=True)
    writer.close()
    writer.pragma("omp simd")
    x = writer.count("x", code(f"{{}} / {each} * {each}", width), width)
    element(x)
    _elements(writer, piece, row, "block")
    writer.close()
    for store in piece.stores:
        if store not in piece.streaming:
            writer.pragma("omp simd")
            element(writer.count("x", "0", width))
            writer.set(writer.target(store), writer.at(f"{writer.params[store.param].name}_block", x))
            writer.close()


def _results(writer: Elementwise, piece: Piece) -> list[str]:
    return [writer.kernel.params[store.param].name for store in piece.stores]


def _declare(writer: Elementwise, piece: Piece, what: str, extent: int) -> None:
    for store in piece.stores:
        writer.room_for(store, extent, what)


def _elements(writer: Elementwise, piece: Piece, row: Sequence[Scalar], into: str) -> None:
    with writer.scope():
        writer.define_all(row)
        for store in piece.stores:
            param = writer.kernel.params[store.param]
            writer.set(writer.at(f"{param.name}_{into}", writer.named("x")), writer.stored(store))


def _plain(node: Scalar) -> bool:
    """Whether the node is cheap, and no narrower than what vectors are made of here."""
    if node.op in LEAVES:
        return not node.args and node.dtype.kind in "biuf" and node.dtype.itemsize in (1, 4, 8)
    return node.op in CHEAP and (node.dtype.kind == "b" or node.dtype.itemsize in (4, 8))


def _dense(store: Store, vector: Axis) -> bool:
    plain = all(isinstance(atom, Axis) for atom in store.offset.atoms)
    return store.param >= 0 and plain and store.offset.coefficient(vector) == 1


def _chain(nodes: Sequence[Scalar]) -> int:
    """Cycles from the first operand to the last result, if nothing else has to be waited for."""
    ready: dict[Scalar, int] = {}
    for node in nodes:
        begins = max((ready.get(o, 0) for o in operands(node)), default=0)
        floats = any(is_inexact(o.dtype) for o in (node, *node.args))
        taken = 0 if node.op in LEAVES else LATENCY.get(node.op, 3) if floats else 5 if node.op == "mul" else 1
        ready[node] = begins + taken
    return max(ready.values(), default=0)


def alive(nodes: Sequence[Scalar], stores: Sequence[Store]) -> int:
    """The most values that are needed later at one time, as the nodes stand."""
    last = {o: k for k, node in enumerate(nodes) for o in operands(node) if o.op != "const"}
    last |= dict.fromkeys((s.value for s in stores), len(nodes))
    live, most = 0, 0
    ends: dict[int, int] = {}
    for k, node in enumerate(nodes):
        if node in last:
            live += 1
            ends[last[node]] = ends.get(last[node], 0) + 1
        most = max(most, live)
        live -= ends.pop(k, 0)
    return most
