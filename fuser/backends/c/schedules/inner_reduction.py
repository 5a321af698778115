"""The loop forms with one row at a time: rows, and few long rows split into chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fuser.backends.c import spell
from fuser.backends.c.emitter import Emitter
from fuser.backends.c.function import Code, Element, Part, Variable, code, joined
from fuser.backends.c.schedules import masking, pairwise
from fuser.backends.c.schedules.argreduce import FEWEST, SHORTEST, argreduce, argreduce_keys, keys_fit
from fuser.backends.c.schedules.compensated_sums import (
    another,
    carried,
    compensated,
    end_block,
    open_block,
    row_blocks,
    running,
    together_blocks,
)
from fuser.backends.c.schedules.guards import guards
from fuser.backends.c.schedules.prefetch import LINE, PIECE, prefetched
from fuser.backends.c.schedules.prefix_scan import apart, first_phase, open_loop, three_loops, two_phases
from fuser.backends.c.schedules.runtime_splitting import SplitPoint, split_point
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_complex
from fuser.kernel.kernel import Kernel, Store, Sweep, reduction_identity
from fuser.kernel.loops import Loops
from fuser.kernel.lower import operands
from fuser.kernel.schedule import NOTHING_ASKED, Schedule

KEPT_BYTES = 1 << 17  # a kept row stays in the core's own cache up to about this size
CHUNK = 8192  # reduced elements in one chunk, at least
MOST_CHUNKS = 1024


def _kept_type(reduction: Scalar) -> str:
    """The C type in which elements of a reduction wait."""
    accumulator: np.dtype = reduction.attr.accumulator
    return "int32_t" if accumulator == BOOL else spell.local(accumulator)


class InnerReduction(Emitter):
    """Parallel over rows; each sweep runs along the row with the vector on the innermost reduced axis."""

    team = True
    aliased: dict[Scalar, Store]

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True, asked: Schedule = NOTHING_ASKED) -> None:
        super().__init__(kernel, loops, threads, asked)
        self.in_vectors: set[Sweep] = set()  # sweeps whose scans run in vectors
        self.guards: dict[Sweep, tuple[Scalar, ...]] = {}  # the tests of sweeps that some rows leave out
        self.recalled: set[Scalar] = set()  # what the sweep reads from kept rows
        self.scan_rows: dict[Scalar, Variable] = {}  # of scans that run in a loop of their own

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
        if rows:
            self.shared(len(rows), "static, 4" if self.guards else "static")
        for axis in rows:
            self.loop(axis)
        for sweep in self.kernel.sweeps:
            self._row_part(sweep)
            self.define_all(self.guards.get(sweep, ()))
            if sweep.loops:
                self._row_sweep(sweep)
        for _ in rows:
            self.close()

    def _kept_rows(self) -> dict[Scalar, str]:
        """Kept nodes that fit in the core's cache, with the names of their rows."""
        nodes = [n for sweep in self.kernel.sweeps for n in sweep.kept]
        total = sum(n.dtype.itemsize for n in nodes) * self.loops.count(self.loops.reduced)
        self.kept = {n: f"kept{k}" for k, n in enumerate(nodes)} if total <= KEPT_BYTES else {}
        self.aliased = self._aliased()
        return self.kept

    def _scan_rows(self) -> None:
        """Buffers for the scans that are set apart from dear work."""
        for sweep in self.kernel.sweeps:
            scans = [n for n in sweep.body if n.op == "scan" and n not in self.scan_rows]
            total = sum(n.dtype.itemsize for n in scans) * self.loops.count(self.loops.reduced)
            alone = len(self.loops.reduced) == 1 and self._vectorises(sweep) and total <= KEPT_BYTES
            if (
                alone
                and first_phase(sweep, sweep.body, self.loops.count(self.loops.reduced)) is None
                and apart(sweep, sweep.body)
            ):
                for scan in scans:
                    kind = spell.local(np.promote_types(scan.dtype, self.running(scan)))
                    self.scan_rows[scan] = self.room(
                        kind, f"{self.name(scan)}_row", self.extents[self.loops.reduced[0]]
                    )

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

    def _row_sweep(self, sweep: Sweep, first: Part | None = None, last: Part | None = None) -> None:
        """One run along the row; with `first` and `last`, over a part of the outermost reduced axis."""
        saved = dict(self.env)
        cols = self._order()
        body = self._body(sweep)
        scans = [n for n in body if n.op == "scan"]
        extent = self.loops.extents[cols[-1]]
        first_nodes = first_phase(sweep, body, extent) if len(cols) == 1 else None
        buffered = scans and first_nodes is None and all(scan in self.scan_rows for scan in scans)
        fissioned = apart(sweep, body) if buffered else None
        sums = [n for n in compensated(sweep) if n.op == "reduction" or self.running(n) == n.attr.accumulator]
        vectorised = self._vectorises(sweep) and (not scans or first_nodes is not None)
        if first is None and vectorised and not scans and self._together(sweep, body, cols, sums):
            self._short_rows(sweep, body, cols, sums, saved)
            return
        blocks = row_blocks(sums, cols, self.loops.extents, vectorised)
        form = pairwise.form_of(self, sweep, body, sums, extent) if vectorised and not scans else None
        self.two_level = sums if blocks and form is None else []
        accumulators = {f: self._declare(f) for f in sweep.reductions}
        if form is not None:
            pairwise.declare(self, sums, blocks is not None)
        self._open_guard(sweep)
        reverse, more = self._reset_all(scans), None  # whether another block follows
        whole: tuple[Part, Part] = (first or "0", last or self.extents[cols[0]])
        if self._otherwise(sweep, body, whole, first is None, saved):
            return
        lanes, rest = self._masks(sweep, body, cols) if first is None and vectorised and not scans else (0, 0)
        closed = form is not None or fissioned is not None or lanes + rest > 0  # the innermost loop, once it is written
        ahead = prefetched(self, sweep) if first is None else []
        if ahead:
            first, last = self._prefetch(ahead, cols[0])
        for number, axis in enumerate(cols):
            span = (first or "0", last or self.extents[axis]) if number == 0 else ("0", self.extents[axis])
            if blocks is not None and axis is blocks.axis:
                span = open_block(self, blocks, span, axis is cols[-1], reverse)
                more = None if number else another(span, whole, reverse)
            if axis is cols[-1] and form is not None:
                others = {f: clause for f, clause in accumulators.items() if f not in sums}
                pairwise.add_block(self, form, sweep, body, axis, span, others)
            elif axis is cols[-1] and fissioned is not None:
                three_loops(self, sweep, body, fissioned, axis, span, list(accumulators.values()))
            elif axis is cols[-1] and first_nodes is not None:
                open_loop(self, body, axis, span, reverse)
            elif axis is cols[-1] and lanes:
                self._masked_row(sweep, body, axis, accumulators, lanes)
            elif axis is cols[-1] and rest:
                with self.standing_loads(body):
                    self.in_whole_vectors(axis, rest, lambda: self.element(sweep, body))
            elif reverse:
                self.count_down(self.axis_names[axis], *span)
            else:
                if axis is cols[-1] and vectorised and not scans:
                    self.pragma("omp simd{}", joined(list(accumulators.values()), ""))
                self.loop(axis, *span)
        if first_nodes is not None:
            self.in_vectors.add(sweep)
            two_phases(self, sweep, body, first_nodes, cols[-1])
        elif not closed:
            self.element(sweep, body, self.scan_step)
        for axis in reversed(cols):
            if not closed or axis is not cols[-1]:
                self.close()
            if blocks is not None and axis is blocks.axis:
                self._end_block(more, sums if form else None)
                self.close()
        if ahead:
            self.close()
        if form is not None:
            pairwise.join_lanes(self, sums, blocks is not None)
        self._end_sweep(sweep, saved)

    def _otherwise(
        self, sweep: Sweep, body: list[Scalar], whole: tuple[Part, Part], entire: bool, saved: dict[Scalar, Part]
    ) -> bool:
        """Write a run in a form of its own: positions of extremes, and rows that a test divides. Whether there is one."""
        if self.is_argreduce(sweep):
            self._argreduce(sweep, body, self._order()[0], whole)
            self._end_sweep(sweep, saved)
            return True
        if entire and not self.kept and (found := split_point(self, sweep)):
            self._split_sweep(sweep, found)
            self.env = saved
            return True
        return False

    def _masks(self, sweep: Sweep, body: list[Scalar], cols: list[Axis]) -> tuple[int, int]:
        """Numbers of a vector, where a short row runs in whole vectors under a mask; and where what is left of a longer row
        does, in which nothing is reduced."""
        extent = self.loops.extents[cols[-1]]
        if cols[-1] is not self.loops.vector:
            return 0, 0
        alone = sum(f.attr.reduction in ("max", "min") for f in sweep.reductions)
        plain = not sweep.reductions and len(cols) == 1
        lanes = masking.lanes(self, body, sweep.stores, extent, alone)
        rest = masking.remainder(self, body, sweep.stores, extent) if plain and not lanes else 0
        self.made(masking=lanes or rest or None)
        return lanes, rest

    def _masked_row(
        self, sweep: Sweep, body: list[Scalar], axis: Axis, clauses: Mapping[Scalar, Code], lanes: int
    ) -> None:
        """A short row under a mask. What is summed is computed into a buffer first, since gcc would add the lanes of a masked
        sum one after the other."""
        held = [f for f in sweep.reductions if f.attr.reduction not in ("max", "min")]
        buffers = {f: self.buffer(_kept_type(f), f"{self.name(f)}_row", masking.LONGEST * lanes) for f in held}
        with self.standing_loads(body):
            self.pragma("omp simd{}", joined([clauses[f] for f in sweep.reductions if f not in held], ""))
            column = self.open_masked(self.axis_names[axis], self.extents[axis], lanes)
            put = lambda buffer: lambda value: self.set(self.at(buffer, column), value)
            self.element(sweep, body, into={f: put(buffer) for f, buffer in buffers.items()})
            self.close()
            self.close()
        if held:
            self.pragma("omp simd{}", joined([clauses[f] for f in held], ""))
            self.loop(axis)
            for reduction, buffer in buffers.items():
                self.accumulate(reduction, self.at(buffer, column), "")
            self.close()

    def _together(self, sweep: Sweep, body: list[Scalar], cols: list[Axis], sums: list[Scalar]) -> bool:
        """Whether short rows along the vector, of which several are summed, keep their lanes apart until the last of them."""
        extent = self.loops.extents[cols[-1]]
        if len(cols) == 1 or cols[-1] is not self.loops.vector or not sums or list(sweep.reductions) != sums:
            return False
        whole = pairwise.lanes(sums)
        masked = masking.lanes(self, body, sweep.stores, extent) > 0
        return extent <= masking.LONGEST * whole and (masked or extent % whole == 0)

    def _short_rows(
        self, sweep: Sweep, body: list[Scalar], cols: list[Axis], sums: list[Scalar], saved: dict[Scalar, Part]
    ) -> None:
        """Sums over short rows: the lanes of a block of rows, or of all, are added up after the last of them."""
        blocks, outer = together_blocks(cols, self.loops.extents), cols[:-1]
        self.two_level, self.backwards = sums if blocks else [], False
        accumulators = {reduction: self._declare(reduction) for reduction in sweep.reductions}
        self._open_guard(sweep)
        lanes, _ = self._masks(sweep, body, cols)
        more: Part | None = None  # whether another block follows
        if blocks is None:
            self._begin_lanes(sums)
        for number, axis in enumerate(outer):
            span: tuple[Part, Part] = ("0", self.extents[axis])
            if blocks is not None and axis is blocks.axis:
                whole, span = span, open_block(self, blocks, span, False)
                more = None if number else another(span, whole, False)
                self._begin_lanes(sums)
            self.loop(axis, *span)
        self._row_of_lanes(sweep, body, cols[-1], lanes)
        for axis in reversed(outer):
            self.close()
            if blocks is not None and axis is blocks.axis:
                self._add_lanes(accumulators)
                self._end_block(more)
                self.close()
        if blocks is None:
            self._add_lanes(accumulators)
        self._end_sweep(sweep, saved)

    def _begin_lanes(self, sums: Sequence[Scalar]) -> None:
        for reduction in sums:
            size = masking.LONGEST * pairwise.lanes(sums)
            lanes = self.buffer(_kept_type(reduction), f"{self.name(reduction)}_lanes", size)
            x = self.count("x", "0", size)
            self.set(self.at(lanes.name, x), "0")
            self.close(flat=True)

    def _row_of_lanes(self, sweep: Sweep, body: list[Scalar], axis: Axis, lanes: int) -> None:
        """A short row, each element of which is added to a sum of its own."""
        extent = self.loops.extents[axis]
        counted = masking.counted(body, extent, lanes)
        with self.standing_loads(body if lanes else ()):
            self.pragma("omp simd")
            column: Part
            if counted:
                self.loop(axis, "0", str(extent))
                column = self.axes[axis]
            elif lanes:
                column = self.open_masked(self.axis_names[axis], self.extents[axis], lanes)
            else:
                self.loop(axis)
                column = self.axes[axis]

            def add(reduction: Scalar) -> Callable[[Part], None]:
                own = self.at(f"{self.name(reduction)}_lanes", column)
                return lambda value: self.set(own, "{} + {}", own, value)

            self.element(sweep, body, into={reduction: add(reduction) for reduction in sweep.reductions})
            self.close()
            if lanes and not counted:
                self.close()

    def _add_lanes(self, clauses: Mapping[Scalar, Code]) -> None:
        """Add up the lanes of each sum."""
        for reduction, clause in clauses.items():
            self.pragma("omp simd{}", clause)
            x = self.count("x", "0", masking.LONGEST * pairwise.lanes(list(clauses)))
            self.accumulate(reduction, self.at(f"{self.name(reduction)}_lanes", x), "")
            self.close()

    def _end_sweep(self, sweep: Sweep, saved: dict[Scalar, Part]) -> None:
        """Close the test that leaves the sweep out, if it has one, and name its reductions."""
        self.env = saved
        if sweep in self.guards:
            self.close()
        for reduction in sweep.reductions:
            self._finish(reduction)

    def _argreduce(self, sweep: Sweep, body: list[Scalar], axis: Axis, span: tuple[Part, Part]) -> None:
        if self.loops.extents[axis] < SHORTEST:
            argreduce_keys(self, sweep, body, axis)
        else:
            argreduce(self, sweep, body, axis, span)

    def _open_guard(self, sweep: Sweep) -> None:
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

    def _end_block(self, more: Part | None = None, trees: Sequence[Scalar] | None = None) -> None:
        """Add the sums of a block, `trees` where they are such, to those of all blocks, if `more` of them follow."""
        if more is not None:
            self.open("if ({})", more)
        if trees is not None:
            pairwise.end_blocks(self, trees)
        for node in self.two_level:
            end_block(self, self.name(node), spell.local(node.attr.accumulator), carried(node))
        if more is not None:
            self.close()

    def _prefetch(self, loads: list[Scalar], axis: Axis) -> tuple[Part, Part]:
        """Open a loop over pieces of the row, in which the same piece of the next row is asked for; gives its ends."""
        self.made(prefetching=len(loads))
        row, total = self.loops.parallel[-1], self.extents[axis]
        piece = self.count("piece", "0", total, f"{{}} += {PIECE}")
        until = self.let("int64_t", "until", f"{{0}} - {{1}} < {PIECE} ? {{0}} : {{1}} + {PIECE}", total, piece)
        axes = dict(self.axes)
        for load in loads:
            array = self.params[load.attr.param]
            self.axes |= {row: code("({} + 1)", axes[row]), axis: Variable("ahead", "int64_t")}
            place = self._offset(load.attr.param, load.attr.offset)
            step = LINE // self.kernel.params[load.attr.param].dtype.itemsize
            self.count("ahead", piece, until, f"{{}} += {step}")
            self.do("__builtin_prefetch({} + {});", array, place)
            self.close(flat=True)
            self.axes |= axes
        return piece, until

    def _split_sweep(self, sweep: Sweep, found: SplitPoint) -> None:
        """A run along the row in two loops: before and after the place where a test turns."""
        [axis] = self.loops.reduced
        total, name = self.extents[axis], f"{self.kernel.params[sweep.stores[0].param].name}_split"
        at = self.let("int64_t", f"{name}_at", self._offset(("turn", axis), found.place))
        place = self.let("int64_t", name, "{0} < 0 ? 0 : {0} > {1} ? {1} : {0}", at, total)
        for before, span in ((True, ("0", place)), (False, (place, total))):
            nodes, stores = found.piece(sweep, before)
            saved = dict(self.env)
            self.pragma("omp simd")
            self.loop(axis, *span)
            self.define_all(nodes)
            for store in stores:
                self.store(store)
            self.close()
            self.env = saved

    def is_argreduce(self, sweep: Sweep) -> bool:
        """Whether the sweep looks for positions of extremes and for nothing else, along enough elements."""
        only = sweep.reductions and not sweep.stores and not sweep.kept
        only = only and all(f.attr.reduction in ("argmax", "argmin") for f in sweep.reductions)
        cols = self._order()
        if not only or len(cols) != 1 or any(node.op == "scan" for node in sweep.body):
            return False
        extent = self.loops.extents[cols[0]]
        return extent >= SHORTEST or (extent >= FEWEST and all(map(keys_fit, sweep.reductions)))

    def _vectorises(self, sweep: Sweep) -> bool:
        return not any(
            f.attr.reduction in ("argmax", "argmin") or is_complex(f.attr.accumulator) for f in sweep.reductions
        )

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
                self.accumulate(reduction, self.operand(reduction.args[0]), position)
        for store in sweep.stores:
            self.store(store)

    def _body(self, sweep: Sweep) -> list[Scalar]:
        """The nodes to compute: not those that are read back from kept rows, nor those that only these need."""
        inside = set(sweep.body)
        self.recalled = set()
        recalled = (self.kept.keys() & inside).difference(sweep.kept)
        if not recalled:
            return list(sweep.body)
        needed: set[Scalar] = set()
        stack = [f.args[0] for f in sweep.reductions] + [s.value for s in sweep.stores]
        while stack:
            node = stack.pop()
            if node in needed or node not in inside:
                continue
            needed.add(node)
            if node not in recalled:
                stack.extend(operands(node))
        self.recalled = recalled & needed
        self.recall()
        return [n for n in sweep.body if n in needed - recalled]

    def recall(self) -> None:
        """Read what an earlier sweep kept at the running iteration."""
        for node in self.recalled:
            self.env[node] = self.kept_element(node)


class SplitInnerReduction(InnerReduction):
    """Few long rows: each sweep runs in parallel over chunks of the outermost reduced axis, then combines the chunks' results."""

    team = False

    def form(self) -> None:
        for axis in self.loops.parallel:
            self.loop(axis)
        axis, *inner = self._order()
        total = self.extents[axis]
        spread = code(f"({{}} + {MOST_CHUNKS - 1}) / {MOST_CHUNKS}", total)
        self.lets("int64_t", ("spread", spread), ("least", code(f"{CHUNK} / ({{}}) + 1", self.total(inner))))
        length = self.let("int64_t", "length", "{spread} > {least} ? {spread} : {least}")
        self.let("int64_t", "chunks", "({0} + {1} - 1) / {1}", total, length)
        for sweep in self.kernel.sweeps:
            self._row_part(sweep)
            if sweep.loops:
                self._chunks(sweep, total)
        for _ in self.loops.parallel:
            self.close()

    def _chunks(self, sweep: Sweep, total: Code) -> None:
        for reduction in sweep.reductions:
            self.buffer(spell.local(reduction.attr.accumulator), f"{self.name(reduction)}_part", MOST_CHUNKS, "")
            if reduction.attr.reduction in ("argmax", "argmin"):
                self.buffer("int64_t", f"{self.name(reduction)}_place", MOST_CHUNKS, "")
        if self.threads:
            self.pragma("omp parallel for schedule(static) num_threads({})", self.team_size())
        chunk = self.count("chunk", "0", self.named("chunks"))
        first = Variable("first", "int64_t")
        end = self.code("{0} + {length} < {1} ? {0} + {length} : {1}", first, total)
        last = self.lets("int64_t", ("first", self.code("{} * {length}", chunk)), ("last", end))
        saved = dict(self.env)
        self._row_sweep(sweep, first, last)
        for reduction in sweep.reductions:
            name = self.name(reduction)
            if reduction.attr.reduction in ("argmax", "argmin"):
                self.set(self.at(f"{name}_part", chunk), self.named(f"{name}_acc"))
                self.set(self.at(f"{name}_place", chunk), self.named(f"{name}_at"))
            else:
                self.set(self.at(f"{name}_part", chunk), self.named(name))
        self.env = saved
        self.close()
        for reduction in sweep.reductions:
            self.two_level = [reduction] if reduction.attr.compensated else []
            self._declare(reduction)
            self.count("chunk", "0", self.named("chunks"))
            position = (
                self.at(f"{self.name(reduction)}_place", chunk)
                if reduction.attr.reduction in ("argmax", "argmin")
                else "0"
            )
            self.accumulate(reduction, self.at(f"{self.name(reduction)}_part", chunk), position)
            self._end_block()
            self.close()
            self._finish(reduction)
