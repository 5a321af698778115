"""The loop form for reductions of short rows: pairs of neighbours of a whole block of rows are combined level by level.

A block of rows lies in the core's own cache, each row padded to whole vectors by what changes nothing. The vectors of a row
become one, and then neighbours are combined, in all rows at once, until each row is one number. A vector takes two shuffles
on its way, where it takes four if rows are transposed, and a chain of them if each row is reduced for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fuser.backends.c import spell, widening
from fuser.backends.c.function import Code, Element, Part, Range, Symbol, Variable, code
from fuser.backends.c.schedules import masking
from fuser.backends.c.schedules.outer_reduction import OuterReduction, X, combined, held_type
from fuser.backends.c.schedules.padded_rows import as_it_lies, padded_rows
from fuser.ir.index import Affine
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL
from fuser.kernel.kernel import Kernel, ReductionSpec, Store, Sweep, reduction_identity
from fuser.kernel.loops import Loops
from fuser.kernel.operands import own_axes
from fuser.kernel.schedule import NOTHING_ASKED, Schedule

PIECE = 64  # bytes that a copy moves at once
Key = tuple[int, Affine]


@dataclass(frozen=True)
class Rows:
    """Rows of a block, in a tile or where they lie in memory: `stride` from one to the next; `flat` where nothing lies between
    padded rows."""

    array: Variable
    stride: Part
    flat: bool


class ReductionTree(OuterReduction):
    """Parallel over blocks of rows; what a row has one of runs side by side in the vector."""

    short_loops = True

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True, asked: Schedule = NOTHING_ASKED) -> None:
        found = padded_rows(kernel, loops)
        assert found is not None
        self.rows = found
        self.block = found.block
        self.blocks: dict[Key, Rows] = {}  # what is read and written along rows
        self.tails: dict[Key, Rows] = {}  # the ends of rows whose whole vectors are read where they lie
        self.waiting: dict[Scalar, Rows] = {}  # kept values
        self.flat: Part | None = None  # the element of the block that is computed, where its row does not matter
        super().__init__(kernel, replace(loops, vector=found.row), threads, asked)

    # The tiles.

    def form(self) -> None:
        self.read_keys = self._read(self.kernel.nodes)
        self.written_keys = [(s.param, s.offset) for sweep in self.kernel.sweeps for s in sweep.stores]
        self.padding = {} if self.rows.whole else self._paddings()
        self.plain = {r for sweep in self.kernel.sweeps for r in sweep.reductions if self._lies_ready(r)}
        if not self.rows.whole:
            self._tiles()
        super().form()

    def _read(self, nodes: Iterable[Scalar]) -> list[Key]:
        """What nodes read along rows."""
        loads = [n for n in nodes if n.op == "load" and self._along(n.attr.offset)]
        return list(dict.fromkeys((load.attr.param, load.attr.offset) for load in loads))

    def _tiles(self) -> None:
        """Tiles of what elements are computed from and of results; of what is only reduced, for the ends of rows alone."""
        computing = [s for s in self.kernel.sweeps if s.stores or not self.plain.issuperset(s.reductions)]
        whole = {key for sweep in computing for key in self._read(sweep.body)}
        several = self.rows.padded > self.rows.lanes
        for key in dict.fromkeys((*self.read_keys, *self.written_keys)):
            if several and key in self.read_keys and key not in whole and key not in self.written_keys:
                self.tails[key] = self._tile(key, self.rows.lanes)
            else:
                self.blocks[key] = self._tile(key, self.rows.padded)

    def _along(self, offset: Affine) -> bool:
        return offset.coefficient(self.rows.along) != 0

    def _paddings(self) -> dict[Key, ReductionSpec]:
        """By what is read as it is to be reduced, the first reduction that does: tiles are padded for it once."""
        found: dict[Key, ReductionSpec] = {}
        for sweep in self.kernel.sweeps:
            for reduction in sweep.reductions:
                value = reduction.args[0]
                if as_it_lies(value, reduction.attr, self.rows.along):
                    found.setdefault((value.attr.param, value.attr.offset), reduction.attr)
        return found

    def _lies_ready(self, reduction: Scalar) -> bool:
        """Whether what a reduction takes in lies there, padded for it."""
        value, spec = reduction.args[0], reduction.attr
        if not as_it_lies(value, spec, self.rows.along):
            return False
        key = value.attr.param, value.attr.offset
        if not self.rows.whole:
            dense = self._step(key) != 0 or self.rows.padded > self.rows.lanes
            return dense and self.padding[key].reduction == spec.reduction
        return self.rows.padded > self.rows.lanes or self._step(key) == self.rows.padded

    def _step(self, key: Key) -> int:
        """From one row to the next in memory; 0 where all rows share one."""
        return key[1].coefficient(self.rows.row)

    def _tile(self, key: Key, width: int) -> Rows:
        """A tile for rows of an array, or their ends, with its padding."""
        shared = self._step(key) == 0
        count = width * (1 if shared else self.block)
        kind = spell.held(BOOL) if self._is_wide(key, width) else self.params[key[0]].type
        tile = self.buffer(kind, f"tile{len(self.blocks) + len(self.tails)}", count)
        spec = self.padding.get(key)
        x = self.count("x", "0", str(count))
        self.set(self.at(tile, x), "0" if spec is None else _identity(spec))
        self.close(flat=True)
        return Rows(tile, "0" if shared else str(width), not shared)

    def _is_wide(self, key: Key, width: int) -> bool:
        """Whether a tile has bools as numbers of 32 bits: functions of maths then run in vectors as long as theirs, where those of
        bytes would be longer than the row."""
        read = self.kernel.params[key[0]].dtype == BOOL and key[1].coefficient(self.rows.along) == 1
        whole = width == self.rows.padded and width % widening.LANES == 0
        return read and key not in self.written_keys and whole and masking.dear(self.kernel.nodes)

    def _masked(self, vector: object) -> int:
        return 0

    def begin(self) -> None:
        for key in self.read_keys:
            if key in self.tails:
                self._copy(key, self.tails[key], self.rows.extent // self.rows.lanes * self.rows.lanes)
            elif not self.rows.whole:
                self._copy(key, self.blocks[key])
            if self.rows.whole or key in self.tails:
                self._in_memory(key, "const ")
        for key in self.written_keys if self.rows.whole else ():
            self._in_memory(key, "")

    def end(self) -> None:
        for key in () if self.rows.whole else self.written_keys:
            self._copy(key, self.blocks[key], into=False)

    def _in_memory(self, key: Key, const: str) -> None:
        """Name the first element of the block's rows."""
        kind, step = self.params[key[0]].type, self._step(key)
        with self.standing({self.rows.row: self.named("base"), self.rows.along: code("0")}):
            first = Element(self.params[key[0]], self._offset(*key))
            array = self.pointer(f"{const}{kind} *", kind, f"rows{len(self.blocks)}", "&{}", first)
        stride = code(self.sizes(("factor", key[0], self.rows.row, step), step)) if step else "0"
        self.blocks[key] = Rows(array, stride, step == self.rows.padded)

    def _copy(self, key: Key, tile: Rows, begin: int = 0, into: bool = True) -> None:
        """Copy the block's rows from an element on into a tile, or out of it, in pieces of constant size."""
        x = self.count("x", "0", self.named("width") if tile.flat else "1")
        self._copy_row(key, tile, x, begin, into)
        self.close()

    def _copy_row(self, key: Key, tile: Rows, x: Part, begin: int, into: bool) -> None:
        itemsize = self.kernel.params[key[0]].dtype.itemsize
        wide = tile.array.type != self.params[key[0]].type
        piece = self.rows.extent if wide else PIECE // itemsize
        for first in range(begin, self.rows.extent, piece):
            size = min(piece, self.rows.extent - first) * itemsize
            position = code("({} + {})", self.named("base"), x)
            with self.standing({self.rows.row: position, self.rows.along: code(str(first))}):
                outside = Element(self.params[key[0]], self._offset(*key))
            inside = self.at(tile.array, code("{} * {}", x, tile.stride), str(first - begin))
            pair = (inside, outside) if into else (outside, inside)
            if wide:
                self.do(f"{{}}(&{{}}, &{{}}, {size});", Symbol(widening.widen(BOOL, np.dtype("int32"))), *pair)
            else:
                self.do(f"__builtin_memcpy(&{{}}, &{{}}, {size});", *pair)

    # Elements.

    def _place(self, rows: Rows) -> Element:
        """The element that is being computed."""
        if self.flat is not None:
            return self.at(rows.array, self.flat)
        along = self.axes[self.rows.along]
        return (
            self.at(rows.array, along)
            if rows.stride == "0"
            else self.at(rows.array, code("{} * {}", X, rows.stride), along)
        )

    def expression(self, node: Scalar) -> Code:
        rows = self.blocks.get((node.attr.param, node.attr.offset)) if node.op == "load" else None
        if rows is not None and rows.array.type != self.params[node.attr.param].type:
            return code(spell.taken(node.dtype, self._place(rows)))
        return super().expression(node) if rows is None else self.element_at(node, self._place(rows))

    def store(self, store: Store) -> None:
        rows = self.blocks.get((store.param, store.offset))
        if rows is None:
            super().store(store)
        else:
            self.set(self._place(rows), self.stored(store))

    def _columns(self, sweep: Sweep, span: Range, declare: bool = True) -> None:
        """Compute the elements of the block's rows, and reduce them."""
        made = {r: self._made_for(r) for r in sweep.reductions if r not in self.plain}
        if made or sweep.stores:
            self._elements(sweep, made)
        for reduction in sweep.reductions:
            rows = made.get(reduction)
            if rows is not None and not self.rows.whole:
                self._pad(reduction, rows)
            if rows is not None:
                self._combine(reduction, rows, None)
            else:
                access = reduction.args[0].attr
                place = access.param, access.offset
                self._combine(reduction, self.blocks[place], self.tails.get(place))

    def _made_for(self, node: Scalar) -> Rows:
        """A tile for what a reduction takes in."""
        kind = held_type(node.attr.accumulator)
        tile = self.buffer(kind, f"{self.name(node)}_in", self.block * self.rows.padded)
        return Rows(tile, str(self.rows.padded), True)

    def _kept(self, node: Scalar) -> Rows:
        tile = self.buffer(spell.held(node.dtype), f"{self.name(node)}_kept", self.block * self.rows.padded)
        return Rows(tile, str(self.rows.padded), True)

    def _elements(self, sweep: Sweep, made: dict[Scalar, Rows]) -> None:
        """Compute a sweep's elements: into the tiles of reductions, and the results."""
        recalled = [n for n in self.waiting if n in sweep.body and n not in sweep.kept]
        self.waiting |= {n: self._kept(n) for n in sweep.kept}
        body = self._without(sweep, recalled)
        flat, of_row = self._one_loop(sweep, body, recalled), dict[Scalar, Variable]()
        if flat:
            self.pragma("omp simd")
            self.flat = self.count("x", "0", self.code(f"{{width}} * {self.rows.padded}"))
        else:
            x = self.count("x", "0", self.named("width"))
            self.let("int64_t", self.axis_names[self.rows.row], "{base} + {}", x)
            of_row = self._of_row(sweep, body, recalled)
            self.pragma("omp simd")
            self.count(self.axis_names[self.rows.along], "0", str(self.rows.padded))
        with self.scope():
            self.env |= of_row
            for node in recalled:
                self.env[node] = spell.taken(node.dtype, self._place(self.waiting[node]))
            for node in body:
                self.define(node)
                if node in sweep.kept:
                    self.set(self._place(self.waiting[node]), spell.put(node.dtype, self.operand(node)))
            for reduction, rows in made.items():
                value = self.operand(reduction.args[0])
                bit = reduction.attr.accumulator == BOOL
                self.set(self._place(rows), "{} ? 1 : 0" if bit else "{}", value)
            for store in sweep.stores:
                self.store(store)
        self.flat = None
        self.close()
        if not flat:
            self.close()

    def _outside(self, sweep: Sweep, body: list[Scalar], recalled: list[Scalar]) -> list[Scalar]:
        """What the elements of a sweep need that changes from row to row alone."""
        inside = {*body, *recalled}
        roots = [r.args[0] for r in sweep.reductions] + [s.value for s in sweep.stores]
        used = dict.fromkeys(n for n in (*roots, *(a for node in body for a in node.args)) if n not in inside)
        return [n for n in used if n.op != "const" and self.follows(n, self.rows.row)]

    def _of_row(self, sweep: Sweep, body: list[Scalar], recalled: list[Scalar]) -> dict[Scalar, Variable]:
        """The row's own values, read once: gcc takes no choice by element between them and others into vectors."""
        return {
            node: self.let(spell.local(node.dtype), f"{self.name(node)}_of_row", self.operand(node))
            for node in self._outside(sweep, body, recalled)
        }

    def _one_loop(self, sweep: Sweep, body: list[Scalar], recalled: list[Scalar]) -> bool:
        """Whether no element needs to know its row, nor its position in it."""
        if self._outside(sweep, body, recalled):
            return False
        keys = {*self._read(body), *((s.param, s.offset) for s in sweep.stores)}
        own = [own_axes(n) for n in body if n.op == "index" or (n.op == "load" and not self._along(n.attr.offset))]
        return all(self.blocks[key].flat for key in keys) and not any(a & {self.rows.row, self.rows.along} for a in own)

    # Reductions.

    def _pad(self, reduction: Scalar, rows: Rows) -> None:
        """Put what changes nothing behind each row of a tile."""
        spec, rest = reduction.attr, self.rows.padded - self.rows.extent
        kind = held_type(spec.accumulator)
        padding = self.buffer(kind, f"{self.name(reduction)}_padding", rest)
        p = self.count("p", "0", str(rest))
        self.set(self.at(padding, p), _identity(spec))
        self.close(flat=True)
        x = self.count("x", "0", self.named("width"))
        place = self.at(rows.array, code(f"{{}} * {self.rows.padded}", x), str(self.rows.extent))
        self.do("__builtin_memcpy(&{}, {}, sizeof {});", place, padding, padding)
        self.close()

    def _combine(self, reduction: Scalar, rows: Rows, tail: Rows | None) -> None:
        """The levels of the tree; the last has an element a row. `tail`: where the ends of rows are that are no whole vectors."""
        name, kind = self.name(reduction), held_type(reduction.attr.accumulator)
        source, width = rows.array, self.rows.lanes
        if self.rows.padded > width:
            source = self._vectors(reduction, rows, tail)
        while width > 1:
            width //= 2
            level = f"{name}_{width}" if width > 1 else f"{name}_acc"
            target = self.buffer(kind, level, self.block * width)
            self.pragma("omp simd")
            x = self.count("x", "0", self.code(f"{{width}} * {width}") if width > 1 else self.named("width"))
            pair = [
                self.let(kind, f"{name}_{side}", self.at(source, code("2 * {}", x), *offset))
                for side, offset in (("even", ()), ("odd", ("1",)))
            ]
            self.set(self.at(target, x), combined(reduction.attr, *pair))
            self.close()
            source = target

    def _vectors(self, reduction: Scalar, rows: Rows, tail: Rows | None) -> Variable:
        """The vectors of each row as one, added up in pairs."""
        name, kind, lanes = self.name(reduction), held_type(reduction.attr.accumulator), self.rows.lanes
        target = self.buffer(kind, f"{name}_{lanes}", self.block * lanes)
        x = self.count("x", "0", self.named("width"))
        self.pragma("omp simd")
        lane = self.count("lane", "0", str(lanes))
        values = []
        for first in self.rows.vectors:
            part, begin = (rows, first) if tail is None or first + lanes <= self.rows.extent else (tail, 0)
            element = self.at(part.array, code("{} * {}", x, part.stride), str(begin), lane)
            values.append(self.let(kind, f"{name}_part{first}", element))
        while len(values) > 1:
            pairs = [values[n : n + 2] for n in range(0, len(values), 2)]
            values = [
                self.let(kind, f"{pair[0].name}s", combined(reduction.attr, *pair)) if len(pair) == 2 else pair[0]
                for pair in pairs
            ]
        self.set(self.at(target, code(f"{{}} * {lanes}", x), lane), code(values[0]))
        self.close()
        self.close()
        return target


def _identity(spec: ReductionSpec) -> Code:
    return spell.literal(reduction_identity(spec.reduction, spec.accumulator), spec.accumulator)
