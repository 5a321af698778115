"""The elementwise form for long chains of cheap operations: several vectors abreast, their operations in turn.

A chain is longer than what a processor looks ahead, so that it waits for each result with nothing else to do. With the
operations of several vectors in turn it has: 1.9 times as fast for 20 iterations of z² + c.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.backends.c import spell
from fuser.backends.c.looped import Looped
from fuser.backends.c.rows import BLOCK, Elementwise
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.lower import operands

REGISTER = 64  # bytes of a vector
REGISTERS = 28  # that values can be held in at once
WAITING = 90  # cycles of a chain from which a processor, which looks some 250 operations ahead, has to wait
MOST, FEWEST = 4, 2  # vectors abreast
SHORT = 1024  # elements along the vector below which this does not pay
MOST_TEXT = 1200  # operations of all vectors abreast: gcc takes a quarter of a second for them
CHEAP = frozenset(
    ("neg", "abs", "floor", "ceil", "round", "trunc", "not", "add", "sub", "mul", "div", "sqrt", "fma", "max", "min")
    + ("and", "or", "xor", "shl", "shr", "sar", "eq", "ne", "lt", "le", "gt", "ge", "select", "cast", "bitcast")
)
LEAVES = frozenset(("const", "index", "load"))
LATENCY = {"div": 6, "sqrt": 6, "select": 1, "neg": 1, "abs": 1, "bitcast": 0}  # cycles; 3 of other floating point


class Abreast(Elementwise):
    """Parallel as the elementwise form; blocks of the vector are computed in the core's own cache, and leave from there."""

    attributes = Looped.attributes

    @staticmethod
    def count(kernel: Kernel, loops: Loops) -> int:
        """How many vectors go abreast; 0 where the plain form does as well."""
        stage, vector = kernel.stages[0], loops.vector
        if vector is None or loops.extents[vector] < SHORT or not all(map(_plain, stage.row)):
            return 0
        if not all(_dense(store, vector, loops) for store in stage.row_stores) or _chain(stage.row) < WAITING:
            return 0
        alive, length = _alive(stage.row, stage.row_stores), len(stage.row)
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
        stage, total, name = self.kernel.stages[0], self.extents[vector], self.axis_names[vector]
        row = [n for n in stage.row if n not in self.env]
        lanes = REGISTER // max(n.dtype.itemsize for n in stage.row)
        count = self.count(self.kernel, self.loops)
        step = lanes * count
        block = BLOCK // step * step
        self.open(f"for (int64_t base = 0; base < {total}; base += {block})")
        self.line(f"const int64_t width = {total} - base < {block} ? {total} - base : {block};")
        self._declare_results("block", block)
        self.open(f"for (int64_t at = 0; at + {step} <= width; at += {step})")
        self._declare_results("part", step)
        self.line("#pragma omp simd")
        self.open(f"for (int64_t lane = 0; lane < {lanes}; ++lane)")
        self.line(f"#pragma GCC unroll {count}")
        self.open(f"for (int64_t turn = 0; turn < {count}; ++turn)")
        self.line(f"const int64_t x = lane + {lanes} * turn, {name} = base + at + x;")
        self._elements(row, "part")
        self.close()
        self.close()
        self.line("#pragma omp simd")
        copies = (f"{p}_block[at + x] = {p}_part[x];" for p in self._results)
        self.line(f"for (int64_t x = 0; x < {step}; ++x) {{ {' '.join(copies)} }}")
        self.close()
        self.line("#pragma omp simd")
        self.open(f"for (int64_t x = width / {step} * {step}; x < width; ++x)")
        self.line(f"const int64_t {name} = base + x;")
        self._elements(row, "block")
        self.close()
        for store in stage.row_stores:
            self._leave(store, vector, alone)
        self.close()

    @property
    def _results(self) -> list[str]:
        return [self.kernel.params[store.param].name for store in self.kernel.stages[0].row_stores]

    def _declare_results(self, what: str, extent: int) -> None:
        for store in self.kernel.stages[0].row_stores:
            param = self.kernel.params[store.param]
            self.line(f"{spell.storage(param.dtype)} {param.name}_{what}[{extent}] __attribute__((aligned(64)));")

    def _elements(self, row: Sequence[Scalar], into: str) -> None:
        saved = dict(self.env)
        self._nodes(row)
        for store in self.kernel.stages[0].row_stores:
            param = self.kernel.params[store.param]
            self.line(f"{param.name}_{into}[x] = {spell.store(param.dtype, self.operand(store.value))};")
        self.env = saved

    def _leave(self, store: Store, vector: Axis, alone: bool) -> None:
        """A result's block goes to its place."""
        param, name = self.kernel.params[store.param], self.axis_names[vector]
        if alone and self._streams(store, vector):
            self.line(f"stream({param.name} + base, {param.name}_block, width * sizeof({spell.storage(param.dtype)}));")
            return
        self.line("#pragma omp simd")
        self.open("for (int64_t x = 0; x < width; ++x)")
        self.line(f"const int64_t {name} = base + x;")
        self.line(f"{param.name}[{self._place(store.param, store.offset)}] = {param.name}_block[x];")
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
