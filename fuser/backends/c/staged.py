"""The elementwise form with functions of functions: a loop for each over a block that stays in the core's own cache.

A chain of several functions of maths in one loop is longer than what a processor looks ahead, so that it waits for each
result. Loops of their own let it work on many elements at once. Values go from one to the next in arrays of a block.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.backends.c import spell
from fuser.backends.c.rows import BLOCK, Elementwise
from fuser.ir.index import Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_complex
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.lower import computed, operands

BLOCK_BYTES = 1 << 14  # of the arrays between the loops
SHORT = 128  # elements along the vector for which several loops do not pay


class Staged(Elementwise):
    """Parallel as the elementwise form; the vector runs in blocks, and over each block once for each depth of functions."""

    @staticmethod
    def pays(kernel: Kernel, loops: Loops) -> bool:
        """Whether a function's result goes into another function, along a vector that is long enough."""
        row = kernel.stages[0].row
        if loops.vector is None or loops.extents[loops.vector] < SHORT or any(is_complex(n.dtype) for n in row):
            return False
        return len(depths(row)) > 1

    def form(self) -> None:
        stage, vector = self.kernel.stages[0], self.loops.vector
        assert vector is not None
        axes = self.open_outer(vector)
        streamed = [s for s in stage.row_stores if not axes and self._streams(s, vector)]
        self._block(vector, [n for n in stage.row if n not in self.env], streamed)
        for _ in axes:
            self.close()

    def _block(self, vector: Axis, row: Sequence[Scalar], streamed: list[Store]) -> None:
        """The loops over one block. Results are stored by the last, since an array may be read and written in place."""
        stage, runs = self.kernel.stages[0], depths(row)
        between = self._between(runs)
        size = sum(4 if n.dtype == BOOL else max(n.dtype.itemsize, 4) for n in between)
        block = next((b for b in (BLOCK, BLOCK // 2, BLOCK // 4) if b * size <= BLOCK_BYTES), BLOCK // 8)
        total = self.extents[vector]
        self.open(f"for (int64_t base = 0; base < {total}; base += {block})")
        self.line(f"const int64_t width = {total} - base < {block} ? {total} - base : {block};")
        for node in between:
            kind = "int32_t" if node.dtype == BOOL else spell.local(node.dtype)
            self.line(f"{kind} {self.name(node)}_block[{block}] __attribute__((aligned(64)));")
        for store in streamed:
            param = self.kernel.params[store.param]
            self.line(f"{spell.storage(param.dtype)} {param.name}_block[{block}] __attribute__((aligned(64)));")
        for run in runs:
            self.line("#pragma omp simd")
            self.open("for (int64_t x = 0; x < width; ++x)")
            self.line(f"const int64_t {self.axis_names[vector]} = base + x;")
            self._run(run, between, row)
            if run is runs[-1]:
                self._results(stage.row_stores, streamed)
            self.close()
        for store in streamed:
            param = self.kernel.params[store.param]
            kind = spell.storage(param.dtype)
            self.line(f"stream({param.name} + base, {param.name}_block, width * sizeof({kind}));")
        self.close()

    def _between(self, runs: Sequence[Sequence[Scalar]]) -> list[Scalar]:
        """What later loops read, but for what costs no more to compute again."""
        number = {node: k for k, run in enumerate(runs) for node in run}
        last = len(runs) - 1
        read = {o for node in number for o in operands(node) if number.get(o, last + 1) < number[node]}
        read |= {s.value for s in self.kernel.stages[0].row_stores if number.get(s.value, last) < last}
        return [node for node in number if node in read and node.op != "const" and not _cheap(node)]

    def _run(self, run: Sequence[Scalar], between: Sequence[Scalar], row: Sequence[Scalar]) -> None:
        """One loop's nodes; loads that an earlier loop made are made again where they are read."""
        wanted = {o for node in run for o in operands(node)} | {s.value for s in self.kernel.stages[0].row_stores}
        for node in row:
            if _cheap(node):
                self.env.pop(node, None)
                if node in wanted:
                    self.define(node)
        for node in run:
            self.define(node)
        for node in between:
            if node in run:
                array = f"{self.name(node)}_block[x]"
                self.line(f"{array} = {self.env[node]}{' ? 1 : 0' if node.dtype == BOOL else ''};")
        for node in between:
            if node in run:
                self.env[node] = (
                    f"({self.name(node)}_block[x] != 0)" if node.dtype == BOOL else f"{self.name(node)}_block[x]"
                )

    def _results(self, stores: Sequence[Store], streamed: Sequence[Store]) -> None:
        for store in stores:
            if store in streamed:
                param = self.kernel.params[store.param]
                self.line(f"{param.name}_block[x] = {spell.store(param.dtype, self.operand(store.value))};")
            else:
                self.store(store)


def depths(nodes: Sequence[Scalar]) -> list[list[Scalar]]:
    """The nodes by how many functions of maths stand one in the other; what stands in none goes with the first."""
    depth: dict[Scalar, int] = {}
    for node in nodes:
        found = max((depth[o] for o in operands(node) if o in depth), default=0)
        depth[node] = found + (node.op in spell.LIBM)
    count = max(depth.values(), default=0)
    runs = [[n for n in nodes if max(depth[n], 1) == k] for k in range(1, count + 1)]
    return runs or [list(nodes)]


def _cheap(node: Scalar) -> bool:
    """A load or an index whose place is told by the axes alone."""
    if node.op not in ("load", "index") or node.args:
        return False
    index = node.attr.offset if node.op == "load" else node.attr
    return not computed(index) and not any(isinstance(atom, Div) for atom in index.atoms)
