"""The loop forms with one row at a time: elementwise, rows, and few long rows split into chunks."""

from __future__ import annotations

import math

from fuser.backends.c import spell
from fuser.backends.c.ahead import LINE, PIECE, asked_ahead
from fuser.backends.c.extremes import FEWEST, SHORTEST, extremes, keyed, keys_fit
from fuser.backends.c.gates import gates
from fuser.backends.c.turns import Turn, turn
from fuser.backends.c.writer import Writer
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Kernel, Param, Stage, Store, fold_identity
from fuser.kernel.loops import Loops
from fuser.kernel.lower import index_axes, operands

KEPT_BYTES = 1 << 17  # a kept row stays in the core's own cache up to about this size
BLOCK = 1024  # elements of a large result that are computed before they leave for memory
STREAM_BYTES = 1 << 25  # results from this size on are too large for a cache to keep
CHUNK = 8192  # reduced elements in one chunk, at least
MOST_CHUNKS = 1024


class Elementwise(Writer):
    """Parallel over the outer axes (or over the only one), the vector along the axis that lies densest."""

    team = True

    def form(self) -> None:
        stage = self.kernel.stages[0]
        axes = [a for a in self.loops.rows if a is not self.loops.vector]
        vector = self.loops.vector
        if vector is None:
            for node in stage.row:
                self.define(node)
            for store in stage.row_stores:
                self.store(store)
            return
        streamed = [s for s in stage.row_stores if not axes and self._streams(s, vector)]
        if streamed:
            self._in_blocks(vector, streamed)
            return
        outer = self.loops.count(tuple(axes))
        if not axes or outer < 16:
            for axis in axes:
                self.loop(axis)
            self.line("#pragma omp for simd schedule(simd: static) nowait" if self.threads else "#pragma omp simd")
        else:
            self.shared(len(axes))
            for axis in axes:
                self.loop(axis)
            self.line("#pragma omp simd")
        self.loop(vector)
        self._nodes(stage.row)
        for store in stage.row_stores:
            self.store(store)
        for _ in (*axes, vector):
            self.close()

    def open_outer(self, vector: Axis) -> list[Axis]:
        """Open the loops around the vector's, and share them out; where they are few, the next loop with them. Gives them."""
        axes = [a for a in self.loops.rows if a is not vector]
        together = bool(axes) and self.loops.count(tuple(axes)) >= 16
        for axis in () if together else axes:
            self.loop(axis)
        self.shared(len(axes) if together else 1)
        for axis in axes if together else ():
            self.loop(axis)
        return axes

    def _streams(self, store: Store, vector: Axis) -> bool:
        """Whether the store fills, one element after the other, memory too large for a cache to keep."""
        param = self.kernel.params[store.param]
        dense = store.offset.offset == 0 and all(
            axis is vector or axis in self.loops.absorbed for axis in index_axes(store.offset)
        )
        return dense and store.offset.coefficient(vector) == 1 and _bytes(param) >= STREAM_BYTES

    def _in_blocks(self, vector: Axis, streamed: list[Store]) -> None:
        """Large results leave for memory in blocks that are computed in the core's own cache."""
        stage = self.kernel.stages[0]
        total = self.extents[vector]
        self.shared()
        self.open(f"for (int64_t base = 0; base < {total}; base += {BLOCK})")
        self.line(f"const int64_t width = {total} - base < {BLOCK} ? {total} - base : {BLOCK};")
        names = {store: f"{self.kernel.params[store.param].name}_block" for store in streamed}
        for store, name in names.items():
            kind = spell.storage(self.kernel.params[store.param].dtype)
            self.line(f"{kind} {name}[{BLOCK}] __attribute__((aligned(64)));")
        self.line("#pragma omp simd")
        self.open("for (int64_t x = 0; x < width; ++x)")
        self.line(f"const int64_t {self.axis_names[vector]} = base + x;")
        self._nodes(stage.row)
        for store in stage.row_stores:
            if store in names:
                dtype = self.kernel.params[store.param].dtype
                self.line(f"{names[store]}[x] = {spell.store(dtype, self.operand(store.value))};")
            else:
                self.store(store)
        self.close()
        for store, name in names.items():
            param = self.kernel.params[store.param]
            self.line(f"stream({param.name} + base, {name}, width * sizeof({spell.storage(param.dtype)}));")
        self.close()


def _bytes(param: Param) -> int:
    return math.prod(param.shape) * param.dtype.itemsize


class Rows(Writer):
    """Parallel over rows; each stage runs along the row with the vector on the innermost reduced axis."""

    team = True
    lodged: dict[Scalar, Store]

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True) -> None:
        super().__init__(kernel, loops, threads)
        self.gates: dict[Stage, tuple[Scalar, ...]] = {}  # the tests of stages that some rows leave out

    def form(self) -> None:
        rows = self.loops.rows
        kept = self._kept_rows()
        for node, name in kept.items():
            if node in self.lodged:
                continue
            count = " * ".join(self.extents[a] for a in self.loops.cols)
            kind = spell.local(node.dtype)
            self.line(f"{kind} *restrict {name} = __builtin_alloca_with_align({count} * sizeof({kind}), 512);")
        self.gates = gates(self.kernel)
        if rows:
            self.shared(len(rows), "static, 4" if self.gates else "static")
        for axis in rows:
            self.loop(axis)
        for stage in self.kernel.stages:
            self._row_part(stage)
            self._nodes(self.gates.get(stage, ()))
            if stage.loops:
                self._row_stage(stage)
        for _ in rows:
            self.close()

    def _kept_rows(self) -> dict[Scalar, str]:
        """Kept nodes that fit in the core's cache, with the names of their rows."""
        nodes = [n for stage in self.kernel.stages for n in stage.kept]
        total = sum(n.dtype.itemsize for n in nodes) * self.loops.count(self.loops.cols)
        self.kept = {n: f"kept{k}" for k, n in enumerate(nodes)} if total <= KEPT_BYTES else {}
        self.lodged = self._lodgings()
        return self.kept

    def _lodgings(self) -> dict[Scalar, Store]:
        """Kept nodes that wait in a result's own row, which the last stage overwrites element by element."""
        cols = self.loops.cols
        stores = list(self.kernel.stages[-1].stores) if len(cols) == 1 else []
        lodged: dict[Scalar, Store] = {}
        for node in self.kept:
            for store in stores:
                same_type = self.kernel.params[store.param].dtype == node.dtype and not is_complex(node.dtype)
                narrow = spell.storage(node.dtype) != spell.local(node.dtype)
                if same_type and not narrow and self.loops.vector is cols[0] and store.offset.coefficient(cols[0]) == 1:
                    lodged[node] = store
                    stores.remove(store)
                    break
        return lodged

    def _kept_place(self, node: Scalar) -> str:
        """Where the element of a kept row stands that belongs to the running iteration."""
        store = self.lodged.get(node)
        if store is None:
            return f"{self.kept[node]}[{self._position()}]"
        return f"{self.kernel.params[store.param].name}[{self._place(store.param, store.offset)}]"

    def _row_part(self, stage: Stage) -> None:
        self._nodes(stage.row)
        for store in stage.row_stores:
            self.store(store)

    def _order(self) -> list[Axis]:
        """The reduced axes as the loops nest, the vector innermost."""
        cols = [a for a in self.loops.cols if a is not self.loops.vector]
        return [*cols, self.loops.vector] if self.loops.vector in self.loops.cols else cols  # type: ignore[list-item]

    def _row_stage(self, stage: Stage, first: str | None = None, last: str | None = None) -> None:
        """One run along the row; with `first` and `last`, over a part of the outermost reduced axis."""
        saved = dict(self.env)
        accumulators = [self._declare(f) for f in stage.folds]
        gate = self.gates.get(stage)
        if gate is not None:
            self.open(f"if ({self.operand(gate[-1])})")
        body = self._body(stage)
        scans = [n for n in body if n.op == "scan"]
        for scan in scans:
            run = f"{self.name(scan)}_run"
            kind = "" if run in self.declared else spell.local(scan.attr.accumulator) + " "
            self.declared.add(run)
            self.line(
                f"{kind}{run} = {spell.literal(fold_identity(scan.attr.fold, scan.attr.accumulator), scan.attr.accumulator)};"
            )
        cols = self._order()
        if self.in_extremes(stage):
            if self.loops.extents[cols[0]] < SHORTEST:
                keyed(self, stage, body, cols[0])
            else:
                extremes(self, stage, body, cols[0], (first or "0", last or self.extents[cols[0]]))
            self.env = saved
            if gate is not None:
                self.close()
            for fold in stage.folds:
                self._finish(fold)
            return
        reverse = self.backwards = any(s.attr.reverse for s in scans)
        if first is None and not self.kept and (found := turn(self, stage)):
            self._turning(stage, found)
            self.env = saved
            return
        asked = asked_ahead(self.kernel, self.loops, stage) if first is None else []
        if asked:
            first, last = self._ask_ahead(asked, cols[0])
        for number, axis in enumerate(cols):
            if axis is cols[-1] and not scans and self._vectorises(stage):
                self.line(f"#pragma omp simd{''.join(accumulators)}")
            span = (first or "0", last or self.extents[axis]) if number == 0 else ("0", self.extents[axis])
            name = self.axis_names[axis]
            if reverse:
                self.open(f"for (int64_t {name} = {span[1]} - 1; {name} >= {span[0]}; --{name})")
            else:
                self.loop(axis, *span)
        position = self._position()
        self._column_body(stage, body, position)
        for _ in (*cols, *asked[:1]):
            self.close()
        self.env = saved
        if gate is not None:
            self.close()
        for fold in stage.folds:
            self._finish(fold)

    def _ask_ahead(self, loads: list[Scalar], axis: Axis) -> tuple[str, str]:
        """Open a loop over pieces of the row, in which the same piece of the next row is asked for; gives its ends."""
        row, total = self.loops.rows[-1], self.extents[axis]
        self.open(f"for (int64_t piece = 0; piece < {total}; piece += {PIECE})")
        self.line(f"const int64_t until = {total} - piece < {PIECE} ? {total} : piece + {PIECE};")
        names = dict(self.axis_names)
        self.axis_names |= {row: f"({names[row]} + 1)", axis: "ahead"}
        for load in loads:
            param = self.kernel.params[load.attr.param]
            place = self._place(load.attr.param, load.attr.offset)
            step = LINE // param.dtype.itemsize
            self.line(
                f"for (int64_t ahead = piece; ahead < until; ahead += {step}) __builtin_prefetch({param.name} + {place});"
            )
        self.axis_names |= names
        return "piece", "until"

    def _turning(self, stage: Stage, found: Turn) -> None:
        """A run along the row in two loops: before and after the place where a test turns."""
        [axis] = self.loops.cols
        total, place = self.extents[axis], f"{self.kernel.params[stage.stores[0].param].name}_turn"
        self.line(f"const int64_t {place}_at = {self._place(('turn', axis), found.place)};")
        self.line(f"const int64_t {place} = {place}_at < 0 ? 0 : {place}_at > {total} ? {total} : {place}_at;")
        for before, span in ((True, ("0", place)), (False, (place, total))):
            nodes, stores = found.piece(stage, before)
            saved = dict(self.env)
            self.line("#pragma omp simd")
            self.loop(axis, *span)
            self._nodes(nodes)
            for store in stores:
                self.store(store)
            self.close()
            self.env = saved

    def in_extremes(self, stage: Stage) -> bool:
        """Whether the stage looks for positions of extremes and for nothing else, along enough elements."""
        only = stage.folds and not stage.stores and not stage.kept
        only = only and all(f.attr.fold in ("argmax", "argmin") for f in stage.folds)
        cols = self._order()
        if not only or len(cols) != 1 or any(node.op == "scan" for node in stage.body):
            return False
        extent = self.loops.extents[cols[0]]
        return extent >= SHORTEST or (extent >= FEWEST and all(map(keys_fit, stage.folds)))

    def _vectorises(self, stage: Stage) -> bool:
        return not any(f.attr.fold in ("argmax", "argmin") or is_complex(f.attr.accumulator) for f in stage.folds)

    def _column_body(self, stage: Stage, body: list[Scalar], position: str) -> None:
        for node in body:
            if node.op == "scan":
                self._scan_step(node)
            else:
                self.define(node)
            if node in self.kept and node in stage.kept:
                self.line(f"{self._kept_place(node)} = {self.operand(node)};")
        for fold in stage.folds:
            self.accumulate(fold, self.operand(fold.args[0]), position)
        for store in stage.stores:
            self.store(store)

    def _body(self, stage: Stage) -> list[Scalar]:
        """The nodes to compute: not those that are read back from kept rows, nor those that only these need."""
        inside = set(stage.body)
        recalled = (self.kept.keys() & inside).difference(stage.kept)
        if not recalled:
            return list(stage.body)
        needed: set[Scalar] = set()
        stack = [f.args[0] for f in stage.folds] + [s.value for s in stage.stores]
        while stack:
            node = stack.pop()
            if node in needed or node not in inside:
                continue
            needed.add(node)
            if node not in recalled:
                stack.extend(operands(node))
        for node in recalled & needed:
            self.env[node] = self._kept_place(node)
        return [n for n in stage.body if n in needed - recalled]


class RowsSplit(Rows):
    """Few long rows: each stage runs in parallel over chunks of the outermost reduced axis, then folds the chunks' results."""

    team = False

    def form(self) -> None:
        for axis in self.loops.rows:
            self.loop(axis)
        axis, *inner = self._order()
        count = " * ".join(self.extents[a] for a in inner) or "1"
        total = self.extents[axis]
        self.line(
            f"const int64_t spread = ({total} + {MOST_CHUNKS - 1}) / {MOST_CHUNKS}, least = {CHUNK} / ({count}) + 1;"
        )
        self.line("const int64_t length = spread > least ? spread : least;")
        self.line(f"const int64_t chunks = ({total} + length - 1) / length;")
        for number, stage in enumerate(self.kernel.stages):
            self._row_part(stage)
            if stage.loops:
                self._chunks(stage, number, total)
        for _ in self.loops.rows:
            self.close()

    def _chunks(self, stage: Stage, number: int, total: str) -> None:
        for fold in stage.folds:
            self.line(f"{spell.local(fold.attr.accumulator)} {self.name(fold)}_part[{MOST_CHUNKS}];")
            if fold.attr.fold in ("argmax", "argmin"):
                self.line(f"int64_t {self.name(fold)}_place[{MOST_CHUNKS}];")
        if self.threads:
            self.line(f"#pragma omp parallel for schedule(static) num_threads({self.team_size()})")
        self.open("for (int64_t chunk = 0; chunk < chunks; ++chunk)")
        self.line(f"const int64_t first = chunk * length, last = first + length < {total} ? first + length : {total};")
        saved = dict(self.env)
        self._row_stage(stage, "first", "last")
        for fold in stage.folds:
            name = self.name(fold)
            if fold.attr.fold in ("argmax", "argmin"):
                self.line(f"{name}_part[chunk] = {name}_acc;")
                self.line(f"{name}_place[chunk] = {name}_at;")
            else:
                self.line(f"{name}_part[chunk] = {name};")
        self.env = saved
        self.close()
        for fold in stage.folds:
            self._declare(fold)
            self.open("for (int64_t chunk = 0; chunk < chunks; ++chunk)")
            self.accumulate(fold, f"{self.name(fold)}_part[chunk]", f"{self.name(fold)}_place[chunk]")
            self.close()
            self._finish(fold)
