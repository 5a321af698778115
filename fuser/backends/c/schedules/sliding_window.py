"""Values that neighbours share, computed once: rows of them run ahead of the iterations that read them (`kernel/sliding_window.py`).

In: the nodes of a stencil's iteration and the spans of its loops. Out: loops over blocks of columns and chunks of rows; for each row, a loop for
each stage, which fills a row of each of its values, and one for what is left, which reads them at its places. A value that is read in
several rows has as many rows, which take turns. Threads have chunks of their own, whose first rows are computed by both neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuser.backends.c import spell
from fuser.backends.c.function import Code, Part, Range, Variable, code, joined
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops, arrange
from fuser.kernel.operands import computed, operands
from fuser.kernel.sliding_window import IDEMPOTENT, Kept, Plan, Spans, Stage, best_plan

if TYPE_CHECKING:
    from fuser.backends.c.emitter import Emitter

CHUNK_ROWS = 32  # of which the first rows of windows are computed again
MOST_COLUMNS, LEAST_COLUMNS = 2048, 256  # of a block


@dataclass(frozen=True, eq=False)
class SlidingWindow:
    """A plan, and the columns of its blocks."""

    plan: Plan
    columns: int

    @property
    def room(self) -> int:
        """Elements of a row that is kept: a block's columns and what its window reads beyond."""
        reach = max(kept.rows(-1) for kept in self.plan.kept)
        return self.columns + -(-reach // 64) * 64

    @property
    def lead(self) -> int:
        """Rows before the first one of a chunk at which the loop over rows begins."""
        return max(kept.rows(0) for kept in self.plan.kept) - 1 if len(self.plan.axes) > 1 else 0


def sliding_window(
    kernel: Kernel,
    loops: Loops,
    nodes: Sequence[Scalar],
    stores: Sequence[Store],
    reductions: Sequence[Scalar] = (),
    spans: Spans | None = None,
) -> SlidingWindow | None:
    """The windows of an iteration that save most; None where nothing is worth keeping. `spans`: what loops run over, where that is not all."""
    best = best_plan(kernel, loops, nodes, stores, TARGET, reductions, spans)
    if best is None:
        return None
    size = sum(
        math.prod(k.rows(n) for n in range(len(k.window) - 1)) * k.node.dtype.itemsize for k in best.kept if k.stored
    )
    columns = int(TARGET.scratch) // max(size, 1) // 64 * 64
    return SlidingWindow(best, min(max(columns, LEAST_COLUMNS), MOST_COLUMNS))


def of_reduction(kernel: Kernel, loops: Loops) -> SlidingWindow | None:
    """The windows of a kernel that reduces all of its elements, by what may take an element in twice."""
    running = [sweep for sweep in kernel.sweeps if sweep.loops]
    if kernel.parallel or loops.vector not in loops.reduced or len(loops.reduced) < 2 or len(running) != 1:
        return None
    [sweep] = running
    if sweep.kept or not all(r.attr.reduction in IDEMPOTENT and not r.attr.positional for r in sweep.reductions):
        return None
    return sliding_window(kernel, loops, sweep.body, sweep.stores, sweep.reductions)


def loops_with_windows(kernel: Kernel, loops: Loops) -> Loops:
    """The loops with axes apart that are one loop, where only then values of one row are near to those of the next."""
    if not loops.absorbed or _windows(kernel, loops) is not None:
        return loops
    apart = arrange(kernel, joined=False)
    return loops if _windows(kernel, apart) is None else apart


def _windows(kernel: Kernel, loops: Loops) -> SlidingWindow | None:
    if kernel.reduced:
        return of_reduction(kernel, loops)
    [sweep] = kernel.sweeps
    return sliding_window(kernel, loops, sweep.row, sweep.row_stores)


def write(writer: Emitter, found: SlidingWindow, along: Mapping[Axis, Range], share: bool) -> None:
    """The loops of a piece over the spans of its axes; threads may `share` its chunks of rows, or without rows its blocks."""
    *around, vector = found.plan.axes
    writer.open()
    if around:
        first, last = along[around[0]]
        if share:
            writer.shared()
        chunk = writer.count("chunk", first, last, f"{{}} += {CHUNK_ROWS}")
        end = writer.let(
            "int64_t", "chunk_end", f"{{0}} + {CHUNK_ROWS} < {{1}} ? {{0}} + {CHUNK_ROWS} : {{1}}", chunk, last
        )
        rows(writer, found, (chunk, end), along[vector], {})
        writer.close()
    else:
        rows(writer, found, None, along[vector], {}, share)
    writer.close()


def rows(
    writer: Emitter,
    found: SlidingWindow,
    span: Range | None,
    columns: Range,
    clauses: Mapping[Scalar, Code],
    share: bool = False,
) -> None:
    """All blocks of `columns`, and in each the rows of a span (None: there is one). `clauses`: those of reductions for `omp simd`."""
    first, last = columns
    width = writer.let("int64_t", "row_length", "{} - {}", last, first)
    blocks = writer.let("int64_t", "blocks", f"({{}} + {found.columns - 1}) / {found.columns}", width)
    if share:
        writer.shared()
    block = writer.count("block", "0", blocks)
    base = writer.let("int64_t", "base", "{} + {} * {} / {}", first, width, block, blocks)
    end = writer.let("int64_t", "base_end", "{} + {} * ({} + 1) / {}", first, width, block, blocks)
    window = _Window(writer, found, base, end, clauses)
    if span is None:
        window.row(None)
    else:
        axis, (begin, behind) = found.plan.axes[0], span
        with writer.scope():
            writer.loop(axis, code(f"{{}} - {found.lead}", begin) if found.lead else begin, behind)
            window.row(begin)
            writer.close()
    writer.close()


class _Window:
    """The kept rows of a block, and the loops that fill and read them."""

    def __init__(
        self, writer: Emitter, found: SlidingWindow, base: Variable, end: Variable, clauses: Mapping[Scalar, Code]
    ) -> None:
        self.writer, self.found, self.base, self.end, self.clauses = writer, found, base, end, clauses
        self.plan = found.plan
        self.vector = self.plan.axes[-1]
        self.around = self.plan.axes[0] if len(self.plan.axes) > 1 else None
        self.room = found.room
        self.rings: dict[Kept, Variable] = {
            kept: writer.buffer(
                spell.held(kept.node.dtype), f"{writer.name(kept.node)}_window", self._height(kept) * self.room
            )
            for kept in self.plan.kept
            if kept.stored
        }

    def _height(self, kept: Kept) -> int:
        return kept.rows(0) if self.around is not None else 1

    def row(self, begin: Part | None) -> None:
        """Fill what runs ahead of the running row, and compute that; `begin` is the first row."""
        for stage in self.plan.stages:
            self._guarded(begin, self._height(stage.kept[0]) - 1, lambda stage=stage: self._fill(stage))  # type: ignore[misc]
        self._guarded(begin, 0, self._main)

    def _guarded(self, begin: Part | None, ahead: int, body: Callable[[], None]) -> None:
        """What is done from so many rows before the first one on."""
        guarded = self.around is not None and ahead < self.found.lead
        row = self.writer.axes[self.around] if self.around is not None else ""
        if guarded:
            assert begin is not None
            self.writer.open("if ({} >= {})", row, code(f"{{}} - {ahead}", begin) if ahead else begin)
        else:
            self.writer.open()
        with self.writer.scope():
            body()
        self.writer.close()

    def _fill(self, stage: Stage) -> None:
        writer, window = self.writer, stage.window
        ahead = window[0][1] if self.around is not None else 0
        row: Part = "0"
        standing: dict[Axis, Part] = {}
        if self.around is not None:
            row = writer.axes[self.around]
            if ahead:
                row = writer.let("int64_t", "ahead", f"{{}} {'+' if ahead > 0 else '-'} {abs(ahead)}", row)
                standing = {self.around: row}
        with writer.standing(standing):
            targets = {
                kept: self._kept_row(kept, row, kept.window[0][1] - ahead if self.around is not None else 0, "row")
                for kept in stage.kept
                if kept.stored
            }
            roots = [kept.node for kept in stage.kept]
            self._read(stage.nodes, [node for node in roots if node not in stage.nodes], row)
            low, high = window[-1]

            def element() -> None:
                writer.define_all(stage.nodes)
                for kept in stage.kept:
                    value = writer.operand(kept.node)
                    if kept in targets:
                        place = writer.at(targets[kept], self._column(kept, 0))
                        writer.set(place, spell.put(kept.node.dtype, value))
                    for reduction in kept.taken:
                        writer.accumulate(reduction, value, "")

            span = _beyond(self.base, low), _beyond(self.end, high)
            taken = dict.fromkeys(r for kept in stage.kept for r in kept.taken)
            self._along(stage.nodes, (), span, [self.clauses[r] for r in taken], element)

    def _main(self) -> None:
        writer = self.writer
        row = writer.axes[self.around] if self.around is not None else "0"
        values = [v for store in self.plan.stores for v in (store.value, *computed(store.offset))]
        leaves = [leaf for _, found in self.plan.reductions for leaf in found]
        self._read(self.plan.nodes, [*values, *leaves], row)

        def element() -> None:
            writer.define_all(self.plan.nodes)
            for reduction, found in self.plan.reductions:
                for leaf in found:
                    writer.accumulate(reduction, writer.operand(leaf), "")
            for store in self.plan.stores:
                writer.store(store)

        if self.plan.stores or leaves:
            clauses = [self.clauses[reduction] for reduction, found in self.plan.reductions if found]
            self._along(self.plan.nodes, self.plan.stores, (self.base, self.end), clauses, element)

    def _kept_row(self, kept: Kept, row: Part, shift: int, what: str) -> Variable:
        """A pointer to the kept row of the place so far from `row`."""
        writer, ring, height = self.writer, self.rings[kept], self._height(kept)
        kind = ring.type
        first = kept.window[0][0] if self.around is not None else 0
        form = "&{}[0]" if height == 1 else f"&{{}}[({{}} + {shift - first}) % {height} * {self.room}]"
        return writer.pointer(
            f"{kind} *", kind, f"{writer.name(kept.node)}_{what}", form, *((ring,) if height == 1 else (ring, row))
        )

    def _column(self, kept: Kept, shift: int) -> Code:
        """The element of a kept row at the running column."""
        return code(f"{{}} - {{}} + {shift - kept.window[-1][0]}", self.writer.axes[self.vector], self.base)

    def _read(self, nodes: Sequence[Scalar], others: Iterable[Scalar], row: Part) -> None:
        """Let what these nodes need be read from kept rows."""
        writer, read, own = self.writer, self.plan.read, set(nodes)
        wanted = dict.fromkeys(
            o for o in (*(o for node in nodes for o in operands(node)), *others) if o in read and o not in own
        )
        pointers: dict[tuple[Kept, int], Variable] = {}
        for node in wanted:
            kept, shift = read[node]
            across = shift[0] if self.around is not None else 0
            if (kept, across) not in pointers:
                pointers[kept, across] = self._kept_row(kept, row, across, f"row{len(pointers)}")
            place = writer.at(pointers[kept, across], self._column(kept, shift[-1]))
            writer.env[node] = spell.taken(node.dtype, place)

    def _along(
        self,
        nodes: Sequence[Scalar],
        stores: Sequence[Store],
        span: Range,
        clauses: Sequence[Code],
        element: Callable[[], None],
    ) -> None:
        """The loop along a row in whole vectors; the last one overlaps the one before."""
        writer = self.writer
        writer.define_all(n for n in nodes if n.op != "const" and not writer.follows(n, self.vector))
        first, last = span
        lanes = self._overlaps(nodes, stores)
        parts: list[Range] = [span]
        if lanes:
            form = f"{{1}} + ({{0}} - ({{1}})) / {lanes} * {lanes}"
            whole = writer.let("int64_t", "whole", form, last, first)
            parts = [(first, whole), (code(f"{{}} - {lanes}", last), code(f"{{}} - {lanes} + {lanes}", last))]
        for number, (begin, end) in enumerate(parts):
            with writer.scope():
                if number:
                    writer.open("if ({} < {})", whole, last)
                writer.pragma("omp simd{}", joined(list(clauses), ""))
                writer.loop(self.vector, begin, end)
                element()
                writer.close()
                if number:
                    writer.close()

    def _overlaps(self, nodes: Sequence[Scalar], stores: Sequence[Store]) -> int:
        """Numbers of a vector, where the last one of a row may be computed and stored again; else 0."""
        writer = self.writer
        if getattr(writer, "dealt", False):
            return 0  # rows may be shorter than a vector
        for store in stores:
            dense = store.offset.coefficient(self.vector) == 1 and not computed(store.offset)
            if not dense or store.total is not None or writer.overwritten(store.param):
                return 0
        sizes = [node.dtype.itemsize for node in nodes if node.op == "load"]
        sizes += [writer.kernel.params[store.param].dtype.itemsize for store in stores]
        lanes = TARGET.vector // min(sizes, default=4)
        return lanes if lanes <= 64 else 0


def _beyond(place: Variable, step: int) -> Code:
    return code(f"{{}} {'+' if step > 0 else '-'} {abs(step)}", place) if step else code(place)
