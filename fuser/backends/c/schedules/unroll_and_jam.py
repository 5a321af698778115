"""The elementwise form for long chains of cheap operations: several vectors interleaved, operation by operation.

A chain is longer than what a processor looks ahead, so that it waits for each result with nothing else to do. With the
operations of several vectors in turn it has: 1.9 times as fast for 20 iterations of z² + c.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.backends.c import spell
from fuser.backends.c.function import Variable, code
from fuser.backends.c.schedules.elementwise import BLOCK, Elementwise
from fuser.backends.c.schedules.loop_kernel import LoopKernel
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.lower import operands

REGISTER = 64  # bytes of a vector
REGISTERS = 28  # that values can be held in at once
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


class UnrollAndJam(Elementwise):
    """Parallel as the elementwise form; blocks of the vector are computed in the core's own cache, and leave from there."""

    attributes = LoopKernel.attributes

    @staticmethod
    def interleaved(kernel: Kernel, loops: Loops) -> int:
        """How many vectors are interleaved; 0 where the plain form does as well."""
        sweep, vector = kernel.sweeps[0], loops.vector
        if vector is None or loops.extents[vector] < SHORT or not all(map(_plain, sweep.row)):
            return 0
        if not all(_dense(store, vector, loops) for store in sweep.row_stores) or _chain(sweep.row) < WAITING:
            return 0
        alive, length = _alive(sweep.row, sweep.row_stores), len(sweep.row)
        found = min(MOST, REGISTERS // max(alive, 1), MOST_TEXT // max(length, 1))
        return found if found >= FEWEST else 0

    def form(self) -> None:
        vector = self.loops.vector
        assert vector is not None
        axes = self.open_outer(vector)
        self._blocks(vector, not axes)
        for _ in axes:
            self.close()

    def _blocks(self, vector: Axis, alone: bool) -> None:
        sweep, total, name = self.kernel.sweeps[0], self.extents[vector], self.axis_names[vector]
        row = [n for n in sweep.row if n not in self.env]
        lanes = REGISTER // max(n.dtype.itemsize for n in sweep.row)
        count = self.interleaved(self.kernel, self.loops)
        step = lanes * count
        block = BLOCK // step * step
        self.blocks(total, block)
        self._declare_results("block", block)
        width = self.named("width")
        at = self.count("at", "0", width, f"{{}} += {step}", f"{{}} + {step} <= {{}}")
        self._declare_results("part", step)
        self.pragma("omp simd")
        lane = self.count("lane", "0", lanes)
        self.pragma(f"GCC unroll {count}")
        turn = self.count("turn", "0", count)
        element = code(f"{{}} + {lanes} * {{}}", lane, turn)
        x = Variable("x", "int64_t")
        self.lets("int64_t", ("x", element), (name, self.code("{base} + {at} + {}", x)))
        self._elements(row, "part")
        self.close()
        self.close()
        self.pragma("omp simd")
        self.count("x", "0", step)
        for result in self._results:
            self.set(self.at(f"{result}_block", at, x), self.at(f"{result}_part", x))
        self.close(flat=True)
        self.close()
        self.pragma("omp simd")
        self.count("x", code(f"{{}} / {step} * {step}", width), width)
        self.let("int64_t", name, "{base} + {}", x)
        self._elements(row, "block")
        self.close()
        for store in sweep.row_stores:
            self._leave(store, vector, alone)
        self.close()

    @property
    def _results(self) -> list[str]:
        return [self.kernel.params[store.param].name for store in self.kernel.sweeps[0].row_stores]

    def _declare_results(self, what: str, extent: int) -> None:
        for store in self.kernel.sweeps[0].row_stores:
            self.block_of(store, extent, what)

    def _elements(self, row: Sequence[Scalar], into: str) -> None:
        with self.scope():
            self.define_all(row)
            for store in self.kernel.sweeps[0].row_stores:
                param, value = self.kernel.params[store.param], self.operand(store.value)
                self.set(self.at(f"{param.name}_{into}", self.named("x")), spell.store(param.dtype, value))

    def _leave(self, store: Store, vector: Axis, alone: bool) -> None:
        """A result's block goes to its place."""
        if alone and self._streams(store, vector):
            self.stream(store)
            return
        self.pragma("omp simd")
        x = self.count("x", "0", self.named("width"))
        self.let("int64_t", self.axis_names[vector], "{base} + {}", x)
        self.set(self.target(store), self.at(f"{self.params[store.param].name}_block", x))
        self.close()


def _plain(node: Scalar) -> bool:
    """Whether the node is cheap, and no narrower than what vectors are made of here."""
    if node.op in LEAVES:
        return not node.args and node.dtype.kind in "biuf" and node.dtype.itemsize in (1, 4, 8)
    return node.op in CHEAP and (node.dtype.kind == "b" or node.dtype.itemsize in (4, 8))


def _dense(store: Store, vector: Axis, loops: Loops) -> bool:
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


def _alive(nodes: Sequence[Scalar], stores: Sequence[Store]) -> int:
    """The most values that are needed later at one time, as the nodes stand."""
    last = {o: k for k, node in enumerate(nodes) for o in operands(node) if o.op != "const"}
    last |= dict.fromkeys((s.value for s in stores), len(nodes))
    alive, most = 0, 0
    ends: dict[int, int] = {}
    for k, node in enumerate(nodes):
        if node in last:
            alive += 1
            ends[last[node]] = ends.get(last[node], 0) + 1
        most = max(most, alive)
        alive -= ends.pop(k, 0)
    return most
