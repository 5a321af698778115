"""The loop forms with one row at a time: rows, and few long rows split into chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fuser.backends.c import spell
from fuser.backends.c.emitter import Emitter
from fuser.backends.c.function import Code, Element, Part, Range, Variable, code, joined
from fuser.backends.c.half_precision import unrounded
from fuser.backends.c.schedules import chunks, lane_reductions, masking, pairwise, runtime_splitting, widened_rows
from fuser.backends.c.schedules.argreduce import argreduce, is_argreduce
from fuser.backends.c.schedules.compensated_sums import (
    Blocks,
    carried,
    compensated,
    end_block,
    loops_in_blocks,
    row_blocks,
    running,
)
from fuser.backends.c.schedules.guards import guards
from fuser.backends.c.schedules.prefix_scan import (
    LITTLE_IN_STRIPS,
    apart,
    dear_again,
    first_phase,
    three_loops,
    two_phases,
)
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Kernel, Store, Sweep, reduction_identity
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, needed
from fuser.kernel.schedule import NOTHING_ASKED, Schedule

CHUNK = 8192  # reduced elements in one chunk, at least
MOST_CHUNKS = 1024
IDEMPOTENT = frozenset(("max", "min", "and", "or"))  # reductions that may take an element in twice
SCAN_STRIP = 512  # elements of a long row whose scans are set apart: strip-mined, so that their buffer stays in the nearest cache


@dataclass(frozen=True)
class Run:
    """A sweep as it runs along the row: what it computes, and over which axes, the innermost last."""

    sweep: Sweep
    body: list[Scalar]
    axes: list[Axis]
    scans: list[Scalar]
    sums: list[Scalar]  # that round, and are taken together in two levels
    phase: list[Scalar] | None  # what scans that run in vectors take in
    set_apart: list[Scalar] | None  # what scans take in that run in a loop of their own between two others
    vectorised: bool

    @property
    def axis(self) -> Axis:
        return self.axes[-1]


class InnerReduction(Emitter):
    """Parallel over rows; each sweep runs along the row with the vector on the innermost reduced axis."""

    team = True
    aliased: dict[Scalar, Store]

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True, asked: Schedule = NOTHING_ASKED) -> None:
        super().__init__(kernel, loops, threads, asked)
        self.aliased = {}
        self.in_vectors: set[Sweep] = set()  # sweeps whose scans run in vectors
        self.guards: dict[Sweep, tuple[Scalar, ...]] = {}  # the tests of sweeps that some rows leave out
        self.recalled: set[Scalar] = set()  # what the sweep reads from kept rows
        self.scan_rows: dict[
            Scalar, Variable
        ] = {}  # of scans that run in a loop of their own, and of what is dear to compute again
        self.scan_strips: set[Scalar] = set()  # those of rows too long for a buffer, which holds a strip of them

    def form(self) -> None:
        rows = self.loops.parallel
        kept = self._kept_rows()
        for node, name in kept.items():
            if node in self.aliased:
                continue
            self.room(spell.local(node.dtype), name, joined([self.extents[a] for a in self.loops.reduced], " * "))
        self._scan_rows()
        self.guards = {} if self.asked.forbids("guarding") else guards(self.kernel)
        if self.guards:
            self.made(guarding=sum(len(sweep.reductions) for sweep in self.guards))
        wide = widened_rows.widened(self)
        self.widened = {node: widened_rows.declare(self, node) for node in wide}
        self.narrowed = {store: widened_rows.declare_store(self, store) for store in widened_rows.narrowed(self, wide)}
        for node in (still := [n for n, load in wide.items() if widened_rows.standing(self, load)]):
            widened_rows.fill(self, node, wide[node])
        if rows:
            self.shared(len(rows), "static, 4" if self.guards else "static")
        for axis in rows:
            self.loop(axis)
        for node in (n for n in wide if n not in still):
            widened_rows.fill(self, node, wide[node])
        for sweep in self.kernel.sweeps:
            self._row_part(sweep)
            self.define_all(self.guards.get(sweep, ()))
            if sweep.loops:
                self._row_sweep(sweep)
            for store in (store for store in sweep.stores if store in self.narrowed):
                widened_rows.empty(self, store)
        for _ in rows:
            self.close()

    def _kept_rows(self) -> dict[Scalar, str]:
        """Kept nodes that fit in the core's cache, with the names of their rows."""
        nodes = [n for sweep in self.kernel.sweeps for n in sweep.kept]
        total = sum(n.dtype.itemsize for n in nodes) * self.loops.count(self.loops.reduced)
        self.kept = {n: f"kept{k}" for k, n in enumerate(nodes)} if total <= TARGET.scratch else {}
        self.aliased = self._aliased()
        return self.kept

    def _scan_rows(self) -> None:
        """Buffers for the scans that are set apart from dear work."""
        for sweep in self.kernel.sweeps:
            scans = [n for n in sweep.body if n.op == "scan" and n not in self.scan_rows]
            length = self.loops.count(self.loops.reduced)
            alone = len(self.loops.reduced) == 1 and self._vectorises(sweep)
            if not alone or first_phase(sweep, sweep.body, length) is not None:
                continue
            if (first := apart(sweep, sweep.body)) is None:
                continue
            held = [*scans, *dear_again(sweep, sweep.body, first)]
            in_strips = sum(n.dtype.itemsize for n in held) * length > TARGET.scratch
            if in_strips and apart(sweep, sweep.body, LITTLE_IN_STRIPS) is None:
                continue
            for node in held:
                running = self.running(node) if node.op == "scan" else node.dtype
                kind, name = spell.local(np.promote_types(node.dtype, running)), self.name(node)
                if in_strips:
                    self.scan_strips.add(node)
                    self.scan_rows[node] = self.buffer(kind, f"{name}_strip", SCAN_STRIP)
                else:
                    self.scan_rows[node] = self.room(kind, f"{name}_row", self.extents[self.loops.reduced[0]])

    def _aliased(self) -> dict[Scalar, Store]:
        """Kept nodes that wait in a result's own row, which the last sweep overwrites element by element."""
        cols = self.loops.reduced
        stores = list(self.kernel.sweeps[-1].stores) if len(cols) == 1 else []
        aliased: dict[Scalar, Store] = {}
        for node in self.kept:
            for store in stores:
                same_type = self.kernel.params[store.param].dtype == node.dtype and not is_complex(node.dtype)
                narrow = spell.storage(node.dtype) != spell.local(node.dtype)
                if same_type and not narrow and self.loops.vector is cols[0] and store.offset.coefficient(cols[0]) == 1:
                    aliased[node] = store
                    stores.remove(store)
                    break
        return aliased

    def expression(self, node: Scalar) -> Code:
        if node in self.widened:
            return widened_rows.value(self, node)
        return super().expression(node)

    def store(self, store: Store) -> None:
        if store not in self.narrowed:
            super().store(store)
            return
        with self.where_inside():
            self.set(self.at(self.narrowed[store], self.reduced_position()), self.operand(unrounded(store)))

    def kept_element(self, node: Scalar) -> Element:
        """The element of a kept row that belongs to the running iteration."""
        store = self.aliased.get(node)
        return self.at(self.kept[node], self.reduced_position()) if store is None else self.target(store)

    def keep(self, node: Scalar) -> None:
        """Put a value into its kept row."""
        with self.where_inside():
            self.set(self.kept_element(node), self.operand(node))

    def _row_part(self, sweep: Sweep) -> None:
        self.define_all(sweep.row)
        for store in sweep.row_stores:
            self.store(store)

    def _order(self) -> list[Axis]:
        """The reduced axes as the loops nest, the vector innermost."""
        cols = [a for a in self.loops.reduced if a is not self.loops.vector]
        return [*cols, self.loops.vector] if self.loops.vector in self.loops.reduced else cols  # type: ignore[list-item]

    def _run_of(self, sweep: Sweep) -> Run:
        body, axes = self._body(sweep), self._order()
        scans = [n for n in body if n.op == "scan"]
        sums = [n for n in compensated(sweep) if n.op == "reduction" or self.running(n) == n.attr.accumulator]
        phase = first_phase(sweep, body, self.loops.extents[axes[-1]]) if len(axes) == 1 else None
        buffered = phase is None and scans and all(scan in self.scan_rows for scan in scans)
        set_apart = apart(sweep, body) if buffered else None
        vectorised = self._vectorises(sweep) and (not scans or phase is not None)
        return Run(sweep, body, axes, scans, sums, phase, set_apart, vectorised)

    def _row_sweep(self, sweep: Sweep, chunk: Range | None = None) -> None:
        """One run along the row, or over a chunk of the outermost reduced axis."""
        saved = dict(self.env)
        run = self._run_of(sweep)
        whole: Range = chunk or ("0", self.extents[run.axes[0]])
        if lane_reductions.pays(self, run):
            lane_reductions.write(self, run, whole)
            self._end_sweep(sweep, saved)
            return
        in_vectors = run.vectorised or (run.set_apart is not None and not set(run.scans).intersection(run.sums))
        blocks = row_blocks(run.sums, run.axes, self.loops.extents, in_vectors)
        if self.scan_strips.issuperset(run.scans) and run.scans:
            blocks = Blocks(run.axis, SCAN_STRIP)
        tree = pairwise.form_of(self, run) if run.vectorised and not run.scans else None
        self.two_level = run.sums if blocks and tree is None else []
        clauses = {reduction: self.declare(reduction) for reduction in sweep.reductions}
        if tree is not None:
            pairwise.declare(self, run.sums, blocks is not None)
        self.open_guard(sweep)
        self._reset_all(run.scans)
        if self._otherwise(run, whole, chunk is None, saved):
            return
        innermost = self._innermost(run, tree, clauses, chunk is None)
        end = lambda more: self.end_block(more, run.sums if tree else None)
        with loops_in_blocks(self, run.axes, blocks, whole, end) as inner:
            innermost(inner)
        if tree is not None:
            pairwise.join_lanes(self, run.sums, blocks is not None)
        self._end_sweep(sweep, saved)

    def _otherwise(self, run: Run, whole: Range, entire: bool, saved: dict[Scalar, Part]) -> bool:
        """Write a run in a form of its own: positions of extremes, and rows that a test divides. Whether there is one."""
        if is_argreduce(self.loops, run.sweep):
            argreduce(self, run, whole)
            self._end_sweep(run.sweep, saved)
            return True
        if entire and not self.kept and (found := runtime_splitting.split_point(self, run.sweep)):
            runtime_splitting.write(self, run.sweep, found)
            self.env = saved
            return True
        return False

    def _innermost(
        self, run: Run, tree: pairwise.Form | None, clauses: Mapping[Scalar, Code], entire: bool
    ) -> Callable[[Range], None]:
        """What writes the innermost loop of a run over a span of its axis. `clauses` are those of reductions for `omp simd`."""
        if tree is not None:
            others = {reduction: clause for reduction, clause in clauses.items() if reduction not in run.sums}
            return lambda span: pairwise.add_block(self, tree, run, span, others)
        if run.phase is not None:
            return lambda span: two_phases(self, run, span)
        if (first := run.set_apart) is not None:
            return lambda span: three_loops(self, run, first, span, list(clauses.values()))
        lanes, rest = self.masks_of(run) if entire and run.vectorised else (0, 0)
        if lanes:
            return lambda span: self._masked_row(run, span, clauses, lanes)
        if rest:
            return lambda span: self._remainder(run, span, {}, rest)
        if entire and (rest := self._leaves(run)):
            return lambda span: self._remainder(run, span, clauses, rest)
        if (entire or len(run.axes) > 1) and (lanes := self._overlaps(run)):
            return lambda span: self._overlapping(run, span, clauses, lanes)
        return lambda span: self._plain(run, span, clauses)

    def _overlaps(self, run: Run) -> int:
        """Numbers of a vector, where the last vector of a row may overlap the one before it; else 0."""
        sweep = run.sweep
        idempotent = all(reduction.attr.reduction in IDEMPOTENT for reduction in sweep.reductions)
        plain = run.vectorised and run.axis is self.loops.vector and not (run.scans or sweep.kept)
        if not (idempotent and plain and masking.dense(self, run.body) and all(map(self._again, sweep.stores))):
            return 0
        sizes = [node.dtype.itemsize for node in run.body if node.op == "load" and node not in self.widened]
        sizes += [
            self.kernel.params[store.param].dtype.itemsize for store in sweep.stores if store not in self.narrowed
        ]
        lanes = TARGET.vector // min(sizes, default=4)
        extent = self.loops.extents[run.axis]
        whole = sweep.stores and extent % lanes == 0
        return lanes if extent >= lanes and not whole else 0

    def _again(self, store: Store) -> bool:
        """Whether an element may be stored twice: nothing reads that memory, as what waits there is, and elements lie side by side."""
        vector = self.loops.vector
        dense = vector is not None and store.offset.coefficient(vector) == 1 and not computed(store.offset)
        waiting = store in self.aliased.values()
        return dense and store.total is None and not waiting and not self.overwritten(store.param)

    def _overlapping(self, run: Run, span: Range, clauses: Mapping[Scalar, Code], lanes: int) -> None:
        """The whole vectors of a row, and once more its last elements as a vector: compilers would take what is left over one by one."""
        first, last = span
        form = f"{{1}} + ({{0}} - {{1}}) / {lanes} * {lanes}"
        whole = self.let("int64_t", f"{self.axis_names[run.axis]}_whole", form, last, first)
        again = code(f"{{}} - {lanes}", last), code(f"{{}} - {lanes} + {lanes}", last)  # a count that compilers see
        ends: tuple[Range, Range] = ((first, whole), again)
        for number, (begin, end) in enumerate(ends):
            saved = dict(self.env)
            with self.scope():
                if number:
                    self.open("if ({} < {})", whole, last)
                self.pragma("omp simd{}", joined(list(clauses.values()), ""))
                self.loop(run.axis, begin, end)
                self.element(run.sweep, run.body)
                self.close()
                if number:
                    self.close()
            self.env = saved

    def _plain(self, run: Run, span: Range, clauses: Mapping[Scalar, Code]) -> None:
        if self.backwards:
            self.count_down(self.axis_names[run.axis], *span)
        else:
            if run.vectorised:
                self.pragma("omp simd{}", joined(list(clauses.values()), ""))
            self.loop(run.axis, *span)
        self.element(run.sweep, run.body, self.scan_step)
        self.close()

    def _leaves(self, run: Run) -> int:
        """Numbers of a vector, where extremes of wide rows are taken, and what whole vectors leave is worth a mask; else 0. A last
        vector that overlaps the one before would wait until both are stored."""
        extremes = all(reduction.attr.reduction in ("max", "min") for reduction in run.sweep.reductions)
        plain = run.vectorised and run.axis is self.loops.vector and not (run.scans or run.sweep.stores)
        wide = not self.widened.keys().isdisjoint(run.body)
        return masking.vector(self, run.body, run.sweep.stores) if extremes and plain and wide else 0

    def _remainder(self, run: Run, span: Range, clauses: Mapping[Scalar, Code], lanes: int) -> None:
        """A row of which what its whole vectors leave runs under a mask."""
        told = joined(list(clauses.values()), "")
        with self.standing_loads(run.body):
            self.in_whole_vectors(run.axis, lanes, lambda: self.element(run.sweep, run.body), *span, told=told)

    def masks_of(self, run: Run) -> tuple[int, int]:
        """Numbers of a vector, where a short row runs in whole vectors under a mask; and where what is left of a longer row
        does, in which nothing is reduced."""
        if run.axis is not self.loops.vector:
            return 0, 0
        sweep, body, extent = run.sweep, run.body, self.loops.extents[run.axis]
        alone = sum(f.attr.reduction in ("max", "min") for f in sweep.reductions)
        plain = not sweep.reductions and len(run.axes) == 1
        lanes = masking.lanes(self, body, sweep.stores, extent, alone)
        rest = masking.remainder(self, body, sweep.stores, extent) if plain and not lanes else 0
        self.made(masking=lanes or rest or None)
        return lanes, rest

    def _masked_row(self, run: Run, span: Range, clauses: Mapping[Scalar, Code], lanes: int) -> None:
        """A short row under a mask. What is summed is computed into a buffer first, since gcc would add the lanes of a masked
        sum one after the other."""
        sweep, body, axis = run.sweep, run.body, run.axis
        held = [f for f in sweep.reductions if f.attr.reduction not in ("max", "min")]
        buffers = {
            f: self.buffer(spell.held(f.attr.accumulator), f"{self.name(f)}_row", masking.LONGEST * lanes) for f in held
        }
        with self.standing_loads(body):
            self.pragma("omp simd{}", joined([clauses[f] for f in sweep.reductions if f not in held], ""))
            column = self.count_masked(self.axis_names[axis], span[1], lanes)
            put = lambda buffer: lambda value: self.set(self.at(buffer, column), value)
            self.element(sweep, body, into={f: put(buffer) for f, buffer in buffers.items()})
            self.close_masked()
        if held:
            self.pragma("omp simd{}", joined([clauses[f] for f in held], ""))
            self.loop(axis, *span)
            for reduction, buffer in buffers.items():
                self.accumulate(reduction, self.at(buffer, column), "")
            self.close()

    def _end_sweep(self, sweep: Sweep, saved: dict[Scalar, Part]) -> None:
        """Close the test that leaves the sweep out, if it has one, and name its reductions."""
        self.env = saved
        if sweep in self.guards:
            self.close()
        for reduction in sweep.reductions:
            self._finish(reduction)

    def open_guard(self, sweep: Sweep) -> None:
        """Open the test that leaves the sweep out, if it has one; `_end_sweep` closes it."""
        if sweep in self.guards:
            self.open("if ({})", self.operand(self.guards[sweep][-1]))

    def _reset_all(self, scans: Sequence[Scalar]) -> bool:
        """Give scans their first values; whether they run backwards."""
        for scan in scans:
            self._reset(scan)
        self.backwards = any(s.attr.reverse for s in scans)
        return self.backwards

    def _reset(self, scan: Scalar) -> None:
        """Give a scan its first value, and a variable if it has none yet."""
        dtype = self.running(scan)
        start = spell.literal(reduction_identity(scan.attr.reduction, dtype), dtype)
        for ending in ("run", "sum") if scan in self.two_level else ("run",):
            name = f"{self.name(scan)}_{ending}"
            if name in self.begun:
                self.set(name, start)
            else:
                self.begun.add(name)
                self.var(spell.local(dtype), name, start)

    def running(self, scan: Scalar) -> np.dtype:
        return running(scan.attr, self.loops.count(self.loops.reduced))

    def end_block(self, more: Part | None = None, trees: Sequence[Scalar] | None = None) -> None:
        """Add the sums of a block, `trees` where they are such, to those of all blocks, if `more` of them follow."""
        if trees is None and not self.two_level:
            return
        if more is not None:
            self.open("if ({})", more)
        if trees is not None:
            pairwise.end_blocks(self, trees)
        for node in self.two_level:
            end_block(self, self.name(node), spell.local(node.attr.accumulator), carried(node))
        if more is not None:
            self.close()

    def _vectorises(self, sweep: Sweep) -> bool:
        return not any(f.attr.positional or is_complex(f.attr.accumulator) for f in sweep.reductions)

    def element(
        self,
        sweep: Sweep,
        body: list[Scalar],
        scan: Callable[[Scalar], None] | None = None,
        into: Mapping[Scalar, Callable[[Part], None]] | None = None,
    ) -> None:
        """What is done for one element of the row. `scan` writes a step of a prefix scan; what reductions in `into` take in is
        given to those functions instead."""
        position = self.reduced_position()
        for node in body:
            if scan is not None and node.op == "scan":
                scan(node)
            else:
                self.define(node)
            if node in self.kept and node in sweep.kept:
                self.keep(node)
        for reduction in sweep.reductions:
            if into is not None and reduction in into:
                into[reduction](self.operand(reduction.args[0]))
            else:
                with self.where_inside():
                    self.accumulate(reduction, self.operand(reduction.args[0]), position)
        for store in sweep.stores:
            self.store(store)

    def _body(self, sweep: Sweep) -> list[Scalar]:
        """The nodes to compute: not those that are read back from kept rows, nor those that only these need."""
        self.recalled = set()
        body = [n for n in sweep.body if not any(n in wide.args for wide in self.widened)]
        recalled = (self.kept.keys() & set(sweep.body)).difference(sweep.kept)
        if not recalled and self.narrowed.keys().isdisjoint(sweep.stores):
            return body
        roots = [f.args[0] for f in sweep.reductions]
        roots += [unrounded(store) if store in self.narrowed else store.value for store in sweep.stores]
        found = needed(roots, body, stop=recalled)
        self.recalled = recalled & set(found)
        self.recall()
        return [n for n in found if n not in recalled]

    def recall(self) -> None:
        """Read what an earlier sweep kept at the running iteration."""
        for node in self.recalled:
            self.env[node] = self.kept_element(node)


class SplitInnerReduction(InnerReduction):
    """Few long rows: each sweep runs in parallel over chunks of the outermost reduced axis, then combines the chunks' results."""

    team = False

    def _order(self) -> list[Axis]:
        """As the loops nest, the axis of chunks first. What reports positions takes elements in their order."""
        order = super()._order()
        if len(order) < 3 or any(r.attr.positional for sweep in self.kernel.sweeps for r in sweep.reductions):
            return order
        first = chunks.shared_axis(order[:-1], self.loops.extents)
        return [first, *(axis for axis in order if axis is not first)]

    def form(self) -> None:
        for axis in self.loops.parallel:
            self.loop(axis)
        axis, *inner = self._order()
        total = self.extents[axis]
        spread = code(f"({{}} + {MOST_CHUNKS - 1}) / {MOST_CHUNKS}", total)
        chunks.count(self, total, spread, self.least(self.total(inner)))
        for sweep in self.kernel.sweeps:
            self._row_part(sweep)
            if sweep.loops:
                self._chunks(sweep, total)
        for _ in self.loops.parallel:
            self.close()

    def least(self, inner: Code) -> Code:
        """The iterations of the outermost axis that a chunk has at least, each of `inner` elements."""
        return code(f"{CHUNK} / ({{}}) + 1", inner)

    def _chunks(self, sweep: Sweep, total: Code) -> None:
        for reduction in sweep.reductions:
            self.buffer(spell.local(reduction.attr.accumulator), f"{self.name(reduction)}_part", MOST_CHUNKS, "")
            if reduction.attr.positional:
                self.buffer("int64_t", f"{self.name(reduction)}_place", MOST_CHUNKS, "")
        chunk, span = chunks.open_loop(self, total)
        saved = dict(self.env)
        self._row_sweep(sweep, span)
        for reduction in sweep.reductions:
            name = self.name(reduction)
            if reduction.attr.positional:
                self.set(self.at(f"{name}_part", chunk), self.named(f"{name}_acc"))
                self.set(self.at(f"{name}_place", chunk), self.named(f"{name}_at"))
            else:
                self.set(self.at(f"{name}_part", chunk), self.named(name))
        self.env = saved
        self.close()
        for reduction in sweep.reductions:
            self.two_level = [reduction] if reduction.attr.compensated else []
            self.declare(reduction)
            self.count("chunk", "0", self.named("chunks"))
            position = self.at(f"{self.name(reduction)}_place", chunk) if reduction.attr.positional else "0"
            self.accumulate(reduction, self.at(f"{self.name(reduction)}_part", chunk), position)
            self.end_block()
            self.close()
            self._finish(reduction)
