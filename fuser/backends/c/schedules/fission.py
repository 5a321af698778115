"""The elementwise form with functions of functions: a loop for each over a block that stays in the core's own cache.

A chain of several functions of maths in one loop is longer than what a processor looks ahead, so that it waits for each
result. Loops of their own let it work on many elements at once. Values go from one to the next in arrays of a block.
So do elements that are read backwards beside numbers of another size, or in steps: gcc has vectors of one size alone for those.
Elements at computed indices are read one by one in a loop without vectors: the processors' instruction for vectors of them takes
up to four times as long where its microcode guards against speculation, and no less time elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fuser.backends.c import spell
from fuser.backends.c.schedules.elementwise import BLOCK, Elementwise
from fuser.ir.index import Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_complex
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes, operands

BLOCK_BYTES = 1 << 14  # of the arrays between the loops
SHORT = 128  # elements along the vector for which several loops do not pay


class Fissioned(Elementwise):
    """Parallel as the elementwise form; the vector runs in blocks, and over each block once for each depth of functions."""

    @staticmethod
    def pays(kernel: Kernel, loops: Loops) -> bool:
        """Whether a function's result goes into another function, or elements are read backwards or at computed indices, along a
        vector that is long enough."""
        row = kernel.sweeps[0].row
        if loops.vector is None or loops.extents[loops.vector] < SHORT or any(is_complex(n.dtype) for n in row):
            return False
        return len(stages(row, backwards(kernel, loops.vector), gathers(row, loops.vector))) > 1

    def form(self) -> None:
        sweep, vector = self.kernel.sweeps[0], self.loops.vector
        assert vector is not None
        axes = self.open_outer(vector)
        streamed = [s for s in sweep.row_stores if not axes and self._streams(s, vector)]
        self._block(vector, [n for n in sweep.row if n not in self.env], streamed)
        for _ in axes:
            self.close()

    def _block(self, vector: Axis, row: Sequence[Scalar], streamed: list[Store]) -> None:
        """The loops over one block. Results are stored by the last, since an array may be read and written in place."""
        sweep, alone = self.kernel.sweeps[0], backwards(self.kernel, vector)
        single = gathers(row, vector)
        runs, cheap = stages(row, alone, single), [node for node in row if _cheap(node) and node not in alone]
        between = dict.fromkeys(self._between(runs, cheap))
        size = sum(4 if n.dtype == BOOL else max(n.dtype.itemsize, 4) for n in between)
        block = next((b for b in (BLOCK, BLOCK // 2, BLOCK // 4) if b * size <= BLOCK_BYTES), BLOCK // 8)
        total = self.extents[vector]
        self.blocks(total, block)
        for node in between:
            kind = "int32_t" if node.dtype == BOOL else spell.local(node.dtype)
            self.buffer(kind, f"{self.name(node)}_block", block)
        for store in streamed:
            self.block_of(store, block)
        for run in runs:
            if run[0] not in single:
                self.pragma("omp simd")
            x = self.count("x", "0", self.named("width"))
            if run[0] in single:
                self.do('__asm__ volatile ("");')  # which no vector loop has
            self.let("int64_t", self.axis_names[vector], "{base} + {}", x)
            self._run(run, between, cheap)
            if run is runs[-1]:
                self._results(sweep.row_stores, streamed)
            self.close()
        for store in streamed:
            self.stream(store)
        self.close()

    def _between(self, runs: Sequence[Sequence[Scalar]], cheap: Collection[Scalar]) -> list[Scalar]:
        """What later loops read, but for what costs no more to compute again."""
        number = {node: k for k, run in enumerate(runs) for node in run}
        last = len(runs) - 1
        read = {o for node in number for o in operands(node) if number.get(o, last + 1) < number[node]}
        read |= {s.value for s in self.kernel.sweeps[0].row_stores if number.get(s.value, last) < last}
        return [node for node in number if node in read and node.op != "const" and node not in cheap]

    def _run(self, run: Sequence[Scalar], between: Collection[Scalar], cheap: Sequence[Scalar]) -> None:
        """One loop's nodes; loads that an earlier loop made are made again where they are read."""
        wanted = {o for node in run for o in operands(node)} | {s.value for s in self.kernel.sweeps[0].row_stores}
        for node in cheap:
            self.env.pop(node, None)
            if node in wanted:
                self.define(node)
        for node in run:
            self.define(node)
        elements = {node: self.at(f"{self.name(node)}_block", self.named("x")) for node in run if node in between}
        for node, element in elements.items():
            self.set(element, "{} ? 1 : 0" if node.dtype == BOOL else "{}", self.env[node])
        for node, element in elements.items():
            self.env[node] = self.code("({} != 0)", element) if node.dtype == BOOL else element

    def _results(self, stores: Sequence[Store], streamed: Sequence[Store]) -> None:
        for store in stores:
            if store in streamed:
                param, value = self.kernel.params[store.param], self.operand(store.value)
                self.set(self.at(f"{param.name}_block", self.named("x")), spell.store(param.dtype, value))
            else:
                self.store(store)


def stages(
    nodes: Sequence[Scalar], alone: Collection[Scalar] = (), single: Collection[Scalar] = ()
) -> list[list[Scalar]]:
    """The nodes by the loop that computes them: one for each depth of functions of maths in functions, and one for the
    elements that are read one by one (`single`) before what needs them. Those that are to be `alone` come first."""
    stage: dict[Scalar, int] = {}  # even ones have vectors
    dear: set[Scalar] = set()  # nodes with a function in their own stage
    for node in nodes:
        before = [o for o in operands(node) if o in stage]
        at = max((stage[o] + (o in single) for o in before), default=0)
        if node in single:
            at += 1 - at % 2
        elif node.op in spell.LIBM:
            at += 2 * any(stage[o] == at and o in dear for o in before)
        if node.op in spell.LIBM or any(stage[o] == at and o in dear for o in before):
            dear.add(node)
        stage[node] = -1 if node in alone else at
    return [run for n in sorted(set(stage.values())) if (run := [node for node in nodes if stage[node] == n])]


def gathers(nodes: Sequence[Scalar], vector: Axis) -> set[Scalar]:
    """Loads whose place along the vector is computed."""
    along: set[Scalar] = set()
    for node in nodes:
        index = node.attr.offset if node.op == "load" else node.attr if node.op == "index" else None
        if any(o in along for o in operands(node)) or (index is not None and vector in index_axes(index)):
            along.add(node)
    loads = [node for node in nodes if node.op == "load" and not node.args]
    return {node for node in loads if any(value in along for value in computed(node.attr.offset))}


def backwards(kernel: Kernel, vector: Axis) -> set[Scalar]:
    """Loads that run backwards along the vector in a kernel whose other arrays have elements of another size, or backwards in
    steps beside functions of maths: gcc takes neither into vectors."""
    row = kernel.sweeps[0].row
    loads = [n for n in row if n.op == "load" and vector in {atom for atom, _ in n.attr.offset.terms}]
    stored = {kernel.params[store.param].dtype.itemsize for store in kernel.sweeps[0].row_stores}
    mixed = len({n.dtype.itemsize for n in loads} | stored) > 1
    dear = any(n.op in spell.LIBM for n in row)
    steps = {n: n.attr.offset.coefficient(vector) for n in loads if _cheap(n)}
    return {n for n, step in steps.items() if (step == -1 and mixed) or (step < -1 and dear)}


def _cheap(node: Scalar) -> bool:
    """A load or an index whose place is told by the axes alone."""
    if node.op not in ("load", "index") or node.args:
        return False
    index = node.attr.offset if node.op == "load" else node.attr
    return not computed(index) and not any(isinstance(atom, Div) for atom in index.atoms)
