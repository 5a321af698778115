"""The loop forms with columns side by side in the vector: for reductions along an axis that is not the densest.

Values of a row of the kernel become arrays over a block of columns; the reduced axes run outside the vector loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuser.backends.c import spell
from fuser.backends.c.emitter import Emitter
from fuser.backends.c.function import Code, Element, Part, Range, Variable, changed, code
from fuser.backends.c.schedules import aliased_scratch, chunks, masking, uniform_tests
from fuser.backends.c.schedules.compensated_sums import (
    carried,
    column_blocks,
    compensated,
    end_block,
    loops_in_blocks,
)
from fuser.backends.c.schedules.guards import guards
from fuser.backends.c.schedules.planes import ALIGNED, BLOCK, Planes, planes
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_inexact
from fuser.kernel.cost import rows_together
from fuser.kernel.kernel import ReductionSpec, Store, Sweep, reduction_identity
from fuser.kernel.operands import computed, needed, operands, own_axes

X = Variable("x", "int64_t")  # the running column
MOST_CHUNKS = 32  # chunks of the reduced axes
CHUNK = 32768  # elements in one chunk, at least: less would not outweigh its partial results
CHUNK_CELLS = 1 << 17  # cells of all chunks' partial results


def held_type(accumulator: np.dtype) -> str:
    """The C type of what a reduction carries for each column: gcc vectorises numbers, not truth values."""
    return "uint8_t" if accumulator == BOOL else spell.local(accumulator)


def combined(spec: ReductionSpec, value: Part, held: Part) -> Code:
    """What a reduction that is no position has, once it has taken in a value."""
    if spec.reduction in ("max", "min"):
        if is_inexact(spec.accumulator):
            return spell.called(f"{spec.reduction}imum_held_of_{spell.local(spec.accumulator)}", value, held)
        return code(f"({{0}} {'>' if spec.reduction == 'max' else '<'} {{1}}) ? {{0}} : {{1}}", value, held)
    return Emitter.infix(spec.reduction, held, code("({} ? 1 : 0)", value) if spec.accumulator == BOOL else value)


class OuterReduction(Emitter):
    """Parallel over blocks of columns; each block walks the reduced axes once a sweep."""

    team = True
    block = BLOCK  # columns that run side by side
    planes = Planes()
    shared_values: frozenset[Scalar] = frozenset()  # that are the same for all columns of a row
    planar: tuple[Scalar, ...] = ()  # positions of planes and what is made of them: the same for all columns of a plane
    in_whole = 0  # numbers of a vector, where rows are short and run in whole vectors under a mask
    aliased: dict[Scalar, Store]  # values of earlier sweeps that wait in the memory of results
    read: Range  # the columns whose reductions are read, from the first on, up to the last

    def form(self) -> None:
        vector = self.loops.vector
        assert vector is not None
        outer = self._outer(vector)
        self.guards = self._guards()
        self.in_whole = self._masked(vector)
        self.aliased = aliased_scratch.waiting(self, self.block)
        self.made(blocking=self.block, masking=self.in_whole or None)
        around = len(outer) + (self.planes.blocked is not None)
        self.shared(around + 1)
        self._around(outer)
        total = self.extents[vector]
        self.count("base", "0", total, f"{{}} += {self.block}")
        self.let("int64_t", "width", f"{{0}} - {{base}} < {self.block} ? {{0}} - {{base}} : {self.block}", total)
        self._count_columns()
        self.begin()
        for sweep in self.kernel.sweeps:
            self._row_part(sweep)
            if sweep.loops:
                self._narrow(sweep)
                self._columns(sweep, ("0", self.extents[self.loops.reduced[0]]))
                for reduction in sweep.reductions:
                    self._result(reduction)
        self.end()
        for _ in range(around + 1):
            self.close()

    def _outer(self, vector: Axis) -> list[Axis]:
        """The axes around the reduced ones; those between them and the vector are set apart."""
        self.planes = planes(self.kernel, self.loops)
        if self.planes.blocked is not None:
            block = self.sizes(("planes", self.planes.blocked), self.planes.block)
            self.let("int64_t", "planes", "{}", block)
        self.planar = self._planar()
        return [axis for axis in self.loops.parallel if axis is not vector and axis not in self.planes.axes]

    def _planar(self) -> tuple[Scalar, ...]:
        """What positions of planes alone change, of the values of a row: computed in each plane, not kept for each column."""
        found: dict[Scalar, None] = {}
        for node in dict.fromkeys(node for sweep in self.kernel.sweeps for node in sweep.row):
            made = all(o.op == "const" or o in found for o in operands(node)) and own_axes(node) <= {*self.planes.axes}
            if (
                made
                and node.op not in ("const", "load", "reduction", "scan", "final")
                and (node.args or own_axes(node))
            ):
                found[node] = None
        return tuple(found)

    def _around(self, outer: Sequence[Axis]) -> None:
        """Open the loops around the reduced axes, but for that over blocks of columns."""
        for axis in outer:
            self.loop(axis)
        blocked = self.planes.blocked
        if blocked is not None:
            self.count("first_plane", "0", self.extents[blocked], "{} += {planes}")

    def _count_columns(self) -> Variable:
        """Say how many columns run side by side, in all planes."""
        width = self.named("width")
        row = masking.padded(code(width), self.in_whole) if self.in_whole else code(width)
        blocked = self.planes.blocked
        if blocked is not None:
            rest = self.code("{} - {first_plane}", self.extents[blocked])
            self.let("int64_t", "beside", "{0} < {planes} ? {0} : {planes}", rest)
        for axis in self.planes.axes:
            row = code("{} * {}", row, self.named("beside") if axis is blocked else self.extents[axis])
        return self.let("int64_t", "columns", "{}", row)

    def _guards(self) -> dict[Sweep, tuple[Scalar, ...]]:
        """The tests of sweeps whose reductions some columns leave out."""
        found = {} if self.asked.forbids("guarding") or self.planes.axes else guards(self.kernel)
        if found:
            self.made(guarding=sum(len(sweep.reductions) for sweep in found))
        return found

    def begin(self) -> None:
        """What comes before the runs over a block of columns."""

    def end(self) -> None:
        """What comes after them."""

    def _masked(self, vector: Axis) -> int:
        nodes, stores, extent = self.kernel.nodes, self.kernel.stores, self.loops.extents[vector]
        reductions = sum(len(sweep.reductions) for sweep in self.kernel.sweeps)
        return masking.lanes(self, nodes, stores, extent, reductions) or masking.across(self, nodes, stores, extent)

    def _array(self, kind: str, name: str) -> Variable:
        """Declare an array over the columns."""
        return self.buffer(kind, name, self.block)

    def _across(self, span: Range | None = None, body: Sequence[Scalar] = (), tests: bool = False) -> None:
        """Open the vector loop over the columns; the axis' own name counts from the start of the array. In each plane comes first what
        `body` needs of positions of planes, and where loads begin whose `tests` columns share."""
        vector, width = self.loops.vector, code(self.named("width"))
        assert vector is not None
        whole = span in (None, self._all)
        first: Part = "0"
        if self.planes.axes:
            first = self._plane(width)
            self.define_all(needed([*body, *(o for node in body for o in operands(node))], self.planar))
        if tests:
            uniform_tests.compute(self, [*self.planar, *body])
        nodes, stores = self.kernel.nodes, self.kernel.stores
        masked = self.in_whole and whole
        self.pragma("omp simd" + ("" if masked else masking.halved(self, nodes, stores, self.loops.extents[vector])))
        if masked:
            x = self.count_masked(
                "x", code("{} + {}", first, width) if self.planes.axes else width, self.in_whole, first
            )
        elif self.planes.axes or whole:
            x = self.count("x", first, code("{} + {}", first, width) if self.planes.axes else width)
        else:
            assert span is not None
            x = self.count("x", *span)
        from_first = code("({} - {})", x, first) if self.planes.axes else x
        self.let("int64_t", self.axis_names[vector], "{base} + {}", from_first)

    def _plane(self, width: Code) -> Variable:
        """Open the loops over planes: where the columns of one begin."""
        number = code("0")
        for axis in self.planes.axes:
            if axis is self.planes.blocked:
                first = self.named("first_plane")
                self.loop(axis, code(first), self.code("{first_plane} + {beside}"))
                number = code("({} - {})", self.axes[axis], first)
            else:
                self.loop(axis)
                number = code("({} * {} + {})", number, self.extents[axis], self.axes[axis])
        row = masking.padded(width, self.in_whole) if self.in_whole else width
        return self.let("int64_t", "first_column", "{} * {}", number, row)

    def _close_across(self) -> None:
        self.close_masked()
        for _ in self.planes.axes:
            self.close()

    @property
    def _all(self) -> Range:
        return "0", self.named("columns")

    def _column(self, array: str) -> Element:
        """The element of an array that belongs to the running column."""
        return self.at(array, X)

    def _row_part(self, sweep: Sweep) -> None:
        self._side_by_side(sweep.row, sweep.row_stores)

    def _side_by_side(self, values: Sequence[Scalar], stores: Sequence[Store]) -> None:
        """Compute values of a row of the kernel as arrays over the columns, those that all of them share once: a row that is read at a
        computed index is dense then, and not gathered."""
        self._share(values)
        planar, saved = {*self.planar}, self.env
        nodes = [n for n in values if n.op != "const" and n not in self.env and n not in planar]
        for node in nodes:  # gcc takes no choice by bytes into vectors of wider numbers
            self._array(spell.held(node.dtype), self.name(node))
        if not nodes and not stores:
            return
        self.env = dict(saved)
        self._across(body=[*nodes, *(store.value for store in stores)])
        for node in nodes:
            self.define(node, self._column(self.name(node)))
            saved[node] = self.env[node] = spell.taken(node.dtype, self._column(self.name(node)))
        for store in stores:
            self.store(store)
        self._close_across()
        self.env = saved

    def _share(self, values: Sequence[Scalar]) -> None:
        """Compute what neither a column nor a reduction changes."""
        across = {self.loops.vector, *self.loops.absorbed, *self.planes.axes}
        shared = {*self.invariants(), *self.shared_values}
        for node in values:
            if node in self.env or node.op in ("const", "reduction", "scan", "final"):
                continue
            if all(o.op == "const" or o in shared for o in operands(node)) and not own_axes(node) & across:
                self.define(node)
                shared.add(node)
        self.shared_values = frozenset(shared)

    def _narrow(self, sweep: Sweep) -> None:
        """Find the columns whose reductions some choice reads: the others are not reduced."""
        needed = self.guards.get(sweep)
        self.read = self._all
        if needed is None or self.loops.vector is None or not self.follows(needed[-1], self.loops.vector):
            return
        self._side_by_side(needed, ())
        test, name = code(self.operand(needed[-1])), self.name(sweep.reductions[0])
        width = self.named("width")
        high = self.vars("int64_t", (f"{name}_low", code("0")), (f"{name}_high", code(width)))
        low = self.named(f"{name}_low")

        def at(place: Part) -> Code:
            return changed(test, lambda part: code(place) if part == X else part)

        self.do("while ({0} < {1} && !{2}) ++{0};", low, high, at(low))
        self.do("while ({1} > {0} && !{2}) --{1};", low, high, at(code("{} - 1", high)))
        self.set(low, f"-{ALIGNED}", operator="&=")
        self.read = (low, high)

    def _columns(self, sweep: Sweep, span: Range, declare: bool = True) -> None:
        """Walk the reduced axes once, the outermost over a span, with the columns inside."""
        scans = [n for n in sweep.body if n.op == "scan"]
        several = rows_together(
            sweep, TARGET, 0 if self.loops.vector is None else self.loops.extents[self.loops.vector]
        )
        blocks = column_blocks(sweep, self.loops.reduced, self.loops.extents)
        self.two_level = compensated(sweep) if blocks else []
        for node in (*sweep.reductions, *scans):
            self._start(node, declare)
        self.backwards = any(s.attr.reverse for s in scans)
        name = self.axis_names[self.loops.reduced[-1]]
        with loops_in_blocks(self, self.loops.reduced, blocks, span, self._end_block) as (low, high):
            if several:
                self.open()
                row = self.var("int64_t", name, low)
                several_rows = (
                    code(f"{{}} + {several - 1} < {{}}", row, high),
                    code(f"{{}} += {several}", row),
                )
                self.go_on(row, *several_rows)
                self._row(sweep, several)
                self.close()
                self.go_on(row, code("{} < {}", row, high), code("++{}", row))
            elif self.backwards:
                self.count_down(name, low, high)
            else:
                self.count(name, low, high)
            self._row(sweep, 1)
            self.close()
            if several:
                self.close()
        self._add_sums(sweep)

    def _end_block(self, more: Part | None) -> None:
        """Add the sums of a block of rows to those of all blocks, if `more` of them follow."""
        if more is not None:
            self.open("if ({})", more)
        self.pragma("omp simd")
        x = self.count("x", *self.read)
        for node in self.two_level:
            end_block(self, self.name(node), spell.local(node.attr.accumulator), carried(node), x)
        self.close()
        if more is not None:
            self.close()

    def _add_sums(self, sweep: Sweep) -> None:
        """The reductions of two levels as one number each."""
        reductions = [reduction for reduction in sweep.reductions if reduction in self.two_level]
        if not reductions:
            return
        self.pragma("omp simd")
        self.count("x", *self._all)
        for reduction in reductions:
            self.set(self._column(f"{self.name(reduction)}_acc"), self._whole(reduction, "acc", X))
        self.close()

    def _row(self, sweep: Sweep, count: int) -> None:
        """The columns of `count` rows beside each other, the rows in order: the accumulators are read and written once.

        Sums that round are added to each other first: an accumulator then rounds once for all of them.
        """
        saved, recalled = dict(self.env), [n for n in self.aliased if n in sweep.body and n not in sweep.kept]
        body = self._without(sweep, recalled)
        places = [self._places(body, number, count) for number in range(count)]
        quotients = [self._quotients(body, sweep.stores, number) for number in range(count if self.in_whole else 0)]
        self._across(self.read, body, tests=count == 1)
        before = dict(self.env)
        apart = {
            reduction: self.var(spell.local(reduction.attr.accumulator), f"{self.name(reduction)}_few", "0")
            for reduction in sweep.reductions
            if count > 1 and reduction.attr.compensated
        }
        held = self._held(sweep.reductions if count > 1 else ())
        axis = self.loops.reduced[-1]
        row = self.axes[axis]
        for number in range(count):
            if count > 1:
                self.axes[axis] = self._later(row, number)
                self.open()
            self.index.standing = quotients[number] if quotients else {}
            self.env |= places[number]
            for node in recalled:
                place = code(self.target(self.aliased[node]))
                found = place if self.inside is None else code("({} ? {} : 0)", self.inside, place)
                self.env[node] = self.let(spell.local(node.dtype), self.name(node), found)
            for node in body:
                if node.op == "scan":
                    self.scan_step(node, X)
                else:
                    self.define(node)
                if node in self.aliased and node in sweep.kept:
                    with self.where_inside():
                        self.set(self.target(self.aliased[node]), self.operand(node))
            for reduction in sweep.reductions:
                value = self.operand(reduction.args[0])
                if reduction in apart:
                    self.set(apart[reduction], "{0} + {1}" if number else "{1}", apart[reduction], value)
                elif reduction in held:
                    self.set(held[reduction], combined(reduction.attr, value, held[reduction]))
                else:
                    self._reduction_step(reduction, value, self.reduced_position())
            for store in sweep.stores:
                self.store(store)
            if count > 1:
                self.close()
            self.env = dict(before)
        self.axes[axis], self.index.standing = row, {}
        for reduction, few in apart.items():
            self._reduction_step(reduction, few, "")
        for reduction, value in held.items():
            self.set(self._column(f"{self.name(reduction)}_acc"), value)
        self._close_across()
        self.env, self.starts, self.held = saved, {}, {}

    @staticmethod
    def _later(row: Part, number: int) -> Part:
        """The row that comes so many after `row`."""
        return code(f"({{}} + {number})", row) if number else row

    def _places(self, body: Sequence[Scalar], number: int, count: int) -> dict[Scalar, Part]:
        """Write, before the loop over the columns, where rows at computed indices lie, of the row that comes `number` after the running
        one: compilers do not always see that the loop leaves what the indices are made of as it is."""
        vector, axis = self.loops.vector, self.loops.reduced[-1]
        assert vector is not None
        if self.planes.axes:
            return {}
        roots = [v for node in body if node.op == "load" for v in computed(node.attr.offset)]
        nodes = needed([v for v in roots if not self.follows(v, vector)], body, stop=self.env)
        nodes = [node for node in nodes if node.op != "const" and node not in self.env]
        if any(node.op == "scan" or node.dtype == BOOL for node in nodes):
            return {}
        own = {node: self.name(node) for node in nodes}
        row, env = self.axes[axis], self.env
        self.axes[axis], self.env = self._later(row, number), dict(env)
        if count > 1:
            self.names |= {node: f"{name}_{number}" for node, name in own.items()}
        self.define_all(nodes)
        found = {node: self.env[node] for node in nodes}
        self.names |= own
        self.axes[axis], self.env = row, env
        return found

    def _quotients(self, body: Sequence[Scalar], stores: Sequence[Store], number: int) -> dict[Div, Code]:
        """Quotients of places, before the loop over the columns under a mask, of the row that comes `number` after the running one."""
        axis = self.loops.reduced[-1]
        with self.standing({axis: self._later(self.axes[axis], number)}):
            return masking.quotients(self, body, stores, self.planes.axes, f"{number}_")

    def _held(self, reductions: Sequence[Scalar]) -> dict[Scalar, Variable]:
        """Accumulators that rows which are reduced together change in a register: of several arrays compilers do not always know
        that they are not the same."""
        return {
            reduction: self.var(
                held_type(reduction.attr.accumulator),
                f"{self.name(reduction)}_held",
                code(self._column(f"{self.name(reduction)}_acc")),
            )
            for reduction in reductions
            if not reduction.attr.positional and not reduction.attr.compensated
        }

    def _without(self, sweep: Sweep, recalled: Sequence[Scalar]) -> list[Scalar]:
        """The nodes of a sweep but for what is read back, and what only that needs."""
        if not recalled:
            return list(sweep.body)
        roots = [f.args[0] for f in sweep.reductions] + [s.value for s in sweep.stores]
        return [node for node in needed(roots, sweep.body, stop=set(recalled)) if node not in recalled]

    def _start(self, node: Scalar, declare: bool = True) -> None:
        """Declare and reset what a reduction or scan carries for each column."""
        spec, name = node.attr, self.name(node)
        start = spell.literal(reduction_identity(spec.reduction, spec.accumulator), spec.accumulator)
        held = f"{name}_{carried(node)}"
        position = spec.positional
        if declare and held not in self.begun:
            self.begun.add(held)
            self._array(held_type(spec.accumulator), held)
            if position:
                self._array(self._integer(), f"{name}_at")
        two_level = node in self.two_level
        if two_level and f"{name}_sum" not in self.begun:
            self.begun.add(f"{name}_sum")
            self._array(held_type(spec.accumulator), f"{name}_sum")
        self.count("x", *self._all)
        self.set(self._column(held), start)
        if position:
            self.set(self._column(f"{name}_at"), "-1")
        if two_level:
            self.set(self._column(f"{name}_sum"), start)
        self.close(flat=True)

    def _integer(self) -> str:
        """The type of a position: as narrow as the values that it stands beside allow."""
        return "int32_t" if self.loops.count(self.loops.reduced) < 1 << 31 else "int64_t"

    def _reduction_step(self, reduction: Scalar, value: Part, position: Part) -> None:
        spec, name = reduction.attr, self.name(reduction)
        accumulator = self._column(f"{name}_acc")
        if spec.positional:
            place = self._column(f"{name}_at")
            new = self.let("_Bool", f"{name}_new", self.takes_over(reduction, value, accumulator, place))
            self.set(accumulator, "{} ? {} : {}", new, value, accumulator)
            self.set(place, "{} ? {} : {}", new, position, place)
        else:
            self.set(accumulator, combined(spec, value, accumulator))

    def _result(self, reduction: Scalar) -> None:
        """The reduction's accumulators are its values from now on."""
        if reduction.attr.positional:
            place = self._column(f"{self.name(reduction)}_at")
            self.env[reduction] = code(f"(({spell.local(reduction.dtype)}){{}})", place)
        else:
            self.env[reduction] = self._column(f"{self.name(reduction)}_acc")


class SplitOuterReduction(OuterReduction):
    """Few columns over many rows: chunks of the outermost reduced axis run in parallel over all columns at once."""

    team = False
    short_loops = True

    def form(self) -> None:
        vector = self.loops.vector
        assert vector is not None
        outer = self._outer(vector)
        self._around(outer)
        self.lets("int64_t", ("base", code("0")), ("width", self.extents[vector]))
        self.in_whole = self._masked(vector)
        self.aliased = aliased_scratch.waiting(self, self.block)
        self.made(blocking=self.block, masking=self.in_whole or None)
        columns = self._count_columns()
        total = self.extents[self.loops.reduced[0]]
        self.guards = self._guards()
        room = Variable("room", "int64_t")
        most = code(f"{{0}} < {MOST_CHUNKS} ? {{0}} : {MOST_CHUNKS}", room)
        self.lets("int64_t", ("room", code(f"{CHUNK_CELLS} / {{}} + 1", columns)), ("most", most))
        least = code(f"{CHUNK} / {{}} + 1", columns)
        chunks.count(self, total, self.code("({} + {most} - 1) / {most}", total), least)
        for sweep in self.kernel.sweeps:
            self._row_part(sweep)
            if sweep.loops:
                self._chunks(sweep, total)
        for _ in range(len(outer) + (self.planes.blocked is not None)):
            self.close()

    def _array(self, kind: str, name: str) -> Variable:
        return self.buffer(kind, name, self.named("columns"))

    def _chunks(self, sweep: Sweep, total: Code) -> None:
        self._narrow(sweep)
        for reduction in sweep.reductions:
            kind, name = held_type(reduction.attr.accumulator), self.name(reduction)
            self.room(kind, f"{name}_part", self.code("{chunks} * {columns}"))
            if reduction.attr.positional:
                self.room(self._integer(), f"{name}_place", self.code("{chunks} * {columns}"))
        chunk, span = chunks.open_loop(self, total)
        for reduction in sweep.reductions:
            kind, name = held_type(reduction.attr.accumulator), self.name(reduction)
            own = "{} + {} * {columns}"
            self.pointer(f"{kind} *restrict", kind, f"{name}_acc", own, self.named(f"{name}_part"), chunk)
            if reduction.attr.positional:
                spelt, place = f"{self._integer()} *restrict", self.named(f"{name}_place")
                self.pointer(spelt, self._integer(), f"{name}_at", own, place, chunk)
        self._columns(sweep, span, declare=False)
        self.close()
        for reduction in sweep.reductions:
            name = self.name(reduction)
            self.two_level = []  # at most MOST_CHUNKS: less than a block
            self._start(reduction)
            if reduction.attr.compensated:
                chunk = self.var("int64_t", f"{name}_chunk", "0")
                self.go_on(chunk, self.code("{} + 3 < {chunks}", chunk), code("{} += 4", chunk))
                self._add_four(reduction, chunk)
                self.close()
                self.go_on(chunk, self.code("{} < {chunks}", chunk), code("++{}", chunk))
            else:
                chunk = self.count("chunk", "0", self.named("chunks"))
            self.pragma("omp simd")
            x = self.count("x", *self._all)
            row = self.code("{} * {columns}", chunk)
            part = self.let(held_type(reduction.attr.accumulator), "part", self.at(f"{name}_part", row, x))
            positions = reduction.attr.positional
            self._reduction_step(reduction, part, self.at(f"{name}_place", row, x) if positions else "0")
            self.close()
            self.close()
            self._result(reduction)

    def _add_four(self, reduction: Scalar, chunk: Variable) -> None:
        """Add the sums of four chunks, in pairs."""
        self.pragma("omp simd")
        x = self.count("x", *self._all)
        parts = [
            self.at(f"{self.name(reduction)}_part", self.code(f"({{}} + {n}) * {{columns}}", chunk), x)
            for n in range(4)
        ]
        self._reduction_step(reduction, code("(({} + {}) + ({} + {}))", *parts), "")
        self.close()
