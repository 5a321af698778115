"""Reductions and scans of programs that hold whole rows; those that walk along longer ones stand in `long_rows.py`.

The block is [rows, columns]: columns run along the reduced axes whatever lies along memory, so that a reduction down
the columns of a matrix has the same text as one along its rows and differs only in its block's shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fuser.backends.triton import half_row_buffers, spell
from fuser.backends.triton.block_sizes import LONGEST_ROW, MOST_WARPS, Tile
from fuser.backends.triton.emitter import HALVES, Dims, Emitter, Function, Launch, either, widest
from fuser.backends.triton.half_row_buffers import HalfRowBuffers, sweep_stage
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, bfloat16
from fuser.kernel.exponentials import absorbed, exponentials
from fuser.kernel.kernel import Kernel, ReductionSpec, Store, Sweep, reduction_identity
from fuser.kernel.loops import Loops
from fuser.kernel.operands import operands
from fuser.kernel.padding import Padding
from fuser.kernel.safe_divisors import is_safe_divisor

POSITIONS = ("argmax", "argmin")
ROW, COLUMN = "r", "c"
CHUNK = "k"  # of a block of results of chunks, or pieces, of rows: few of them
FLOAT32 = FLOATS[2]
KEPT_REGISTERS = 64  # of a thread that keeps 64 elements as 16 bits: two rows of 32,768 on a multiprocessor
WORDS = {"prod": "combine_prod", "logaddexp": "log_add_exp"}


@dataclass
class Part:
    """A part of the columns that a program holds: what names end in, its extent as text, what comes before its columns' numbers, and
    what is known of its elements."""

    suffix: str
    extent: str
    first: str
    axis_names: dict[Axis, str] = field(default_factory=dict)
    env: dict[Any, Any] = field(default_factory=dict)
    masks: dict[str, str] = field(default_factory=dict)


def whole_rows(kernel: Kernel, loops: Loops, tile: Tile) -> Function:
    """The function of rows that a program holds; where two of the longest fit on a multiprocessor once 16-bit numbers are kept as such, that."""
    plain = Rows(kernel, loops, kernel.name, tile).write()
    if tile.warps != MOST_WARPS or tile.columns * tile.blocks + tile.rest <= LONGEST_ROW:
        return plain
    form = Rows(kernel, loops, f"{kernel.name}_kept", tile, kept=True)
    if not form.kept.stages:
        return plain
    return either([form.write(), plain])


class Rows(Emitter):
    """Whole rows in registers: every sweep runs on the same block, loaded once.

    A row between two powers of two has several parts: blocks that lie within it, and the last one, whose last elements are masked.
    """

    pairs = frozenset(COLUMN)

    def __init__(self, kernel: Kernel, loops: Loops, name: str, tile: Tile, kept: bool = False) -> None:
        super().__init__(kernel, loops, name)
        self.tile = tile
        self.parts = [
            Part(f"_part{n}" if n else "", "COLUMNS", f"{n} * COLUMNS + " if n else "") for n in range(tile.blocks)
        ]
        self.parts += [Part("_end", "REST", f"{tile.blocks} * COLUMNS + ")] if tile.rest else []
        self.inside = self.parts[0]  # the part that is being written
        # Whether each thread has a column of the rest for each of the block's columns that it has, be it of 32 in a warp or of 64.
        together = math.gcd(loops.count(loops.reduced), widest(kernel))
        self.beside = tile.rest >= 64 * tile.warps * together
        self.padding = Padding(kernel)
        self.exponentials = exponentials(kernel)
        self.absorbed = absorbed(kernel, self.exponentials)
        self.kept = HalfRowBuffers(list(map(sweep_stage, kernel.sweeps)) if kept else ())

    def write(self) -> Function:
        self.line(f"program = {self.program()}")
        programs = self.row_block()
        self.all_columns()
        self.sweep_all()
        function = self.finish(self.constants(), programs, self.tile.warps, self.tile.hints)
        return function.with_choices(self.choices(function.launch))

    def choices(self, launch: Launch) -> list[Launch]:
        """The launch, and with other numbers of elements a thread, where a GPU has no blocks of as many warps as this one, or too few registers."""
        if self.tile.warps == MOST_WARPS:
            half = replace(launch, warps=MOST_WARPS // 2)
            return [replace(half, registers=KEPT_REGISTERS)] if self.kept.stages else [launch, half]
        return [launch, replace(launch, warps=MOST_WARPS)] if self.tile.warps == MOST_WARPS // 2 else [launch]

    def all_columns(self) -> None:
        """Name the columns of each part; only those of the last one can lie outside."""
        exact = len(self.parts) == 1 and self.tile.columns == self.loops.count(self.loops.reduced)
        for part in self.parts:
            with self.within_part(part):
                columns = f"{part.first}tl.arange(0, {part.extent})[None, :]"
                self.columns(columns, masked=part is self.parts[-1] and not exact)

    @contextmanager
    def within_part(self, part: Part) -> Iterator[None]:
        """What is written inside is of one part of the columns; what varies along them is forgotten after."""
        before = self.env, self.masks, self.inside
        names = {axis: self.axis_names[axis] for axis in self.loops.reduced}
        self.env, self.masks, self.inside = self.env | part.env, self.masks | part.masks, part
        self.axis_names.update({axis: part.axis_names.get(axis, name + part.suffix) for axis, name in names.items()})
        yield
        part.masks = {COLUMN: self.masks[COLUMN]} if COLUMN in self.masks else {}
        own = {key: text for key, text in self.env.items() if isinstance(key, Scalar) and COLUMN in self.spans(key)}
        part.env, part.axis_names = own, {axis: self.axis_names[axis] for axis in self.loops.reduced}
        shared = {key: text for key, text in self.env.items() if key not in own}
        self.env, self.masks, self.inside = before[0] | shared, before[1], before[2]
        self.axis_names.update(names)

    def name(self, node: Scalar) -> str:
        return super().name(node) + (self.inside.suffix if COLUMN in self.spans(node) else "")

    def sweep_all(self) -> None:
        """All sweeps of the block."""
        for number, sweep in enumerate(self.kernel.sweeps):
            self.row_part(sweep)
            for part in self.parts:
                with self.within_part(part):
                    self.widen_kept(number)
                    for node in sweep.body:
                        self.scan(node) if node.op == "scan" else self.define(node)
                    self.keep(sweep.body)
                    for reduction in sweep.reductions:
                        self.reduction(reduction)
                    for store in sweep.stores:
                        self.store(store)

    def load(self, node: Scalar) -> str:
        text = self.load_text(node, widen=node not in self.kept.nodes)
        if node not in self.kept.nodes:
            return text
        name = f"{self.name(node)}_kept"
        self.line(f"{name} = {text}")
        self.kept.names.add(name)
        return self.by_ptx(f"widened_bfloat16({name}, PTX)")

    def keep(self, nodes: Iterable[Scalar]) -> None:
        """Keep what is computed and later sweeps read of 16-bit numbers, as such."""
        for node in (node for node in nodes if node in self.kept.nodes):
            name = self.name(node)
            if f"{name}_kept" not in self.kept.names:
                self.line(self.by_ptx(f"{name}_kept = kept_bfloat16({name}, PTX)"))
                self.kept.names.add(f"{name}_kept")

    def widen_kept(self, stage: int) -> None:
        """Widen again what a stage reads of that, with its conversions."""
        for node in self.kept.of(stage):
            name = self.name(node)
            if f"{name}_kept" in self.kept.names:
                self.line(self.by_ptx(f"{name} = {half_row_buffers.widened(f'{name}_kept', stage)}"))
        for node in [node for node in self.env if isinstance(node, Scalar) and node.op == "cast"]:
            if half_row_buffers.uncast(node) in self.kept.of(stage):
                self.line(f"{self.name(node)} = {self.expression(node)}")

    def constants(self) -> dict[str, int]:
        more = {"PARTS": self.tile.blocks} if self.tile.blocks > 1 else {}
        more |= {"REST": self.tile.rest} if self.tile.rest else {}
        return {"ROWS": self.tile.rows, "COLUMNS": self.tile.columns} | more

    def row_block(self) -> int:
        """Name the row axes of the program's block; gives the number of row blocks."""
        rows, vector = self.loops.parallel, self.loops.vector
        if not rows:
            self.line("row = tl.arange(0, 1)[:, None]")
            return 1
        if self.tile.rows > 1:  # one row a program is always inside
            self.masks[ROW] = "row_inside"
        if vector in rows and len(rows) > 1:
            assert vector is not None
            return self._vector_rows(vector)
        total = " * ".join(self.extents[a] for a in rows)
        self.line("row = program * ROWS + tl.arange(0, ROWS)[:, None]")
        self.line(f"row_inside = row < {total}")
        self.split("row", rows, frozenset(ROW))
        return -(-self.loops.count(rows) // self.tile.rows)

    def _vector_rows(self, vector: Axis) -> int:
        """Rows side by side along the axis that memory runs along; the other row axes by the program's number."""
        outer = [a for a in self.loops.parallel if a is not vector]
        name = self.axis_names[vector]
        self.line(f"blocks = tl.cdiv({self.extents[vector]}, ROWS)")
        self.line(f"{name} = (program % blocks) * ROWS + tl.arange(0, ROWS)[:, None]")
        self.line(f"row_inside = {name} < {self.extents[vector]}")
        self.axis_dims[vector] = frozenset(ROW)
        self.line("program = program // blocks")
        self.split("program", outer, frozenset())
        text = name
        size = self.extents[vector]
        for axis in reversed(outer):
            text = f"{text} + {self.axis_names[axis]} * {size}"
            size = f"{size} * {self.extents[axis]}"
        self.line(f"row = {text}")
        return -(-self.loops.extents[vector] // self.tile.rows) * self.loops.count(tuple(outer))

    def columns(self, text: str, masked: bool = True) -> None:
        """Name the reduced axes of the block; where it is `masked`, some columns lie beyond the row."""
        total = " * ".join(self.extents[a] for a in self.loops.reduced)
        column = f"column{self.inside.suffix}"
        self.line(f"{column} = ({text}).to(tl.int64)" if self.wide else f"{column} = {text}")
        if masked:
            self.masks[COLUMN] = f"column_inside{self.inside.suffix}"
            self.line(f"{self.masks[COLUMN]} = {column} < {total}")
        self.split(column, self.loops.reduced, frozenset(COLUMN))

    def within(self, value: str, otherwise: str) -> str:
        """A value of columns inside the row, `otherwise` beyond it."""
        return f"tl.where({self.masks[COLUMN]}, {value}, {otherwise})" if COLUMN in self.masks else value

    def row_part(self, sweep: Sweep) -> None:
        self.define_all(n for n in sweep.row if n.op != "reduction")
        for store in sweep.row_stores:
            self.store(store)

    def store_dims(self, store: Store) -> Dims:
        return self.spans(store.value) | {ROW}

    def define(self, node: Scalar) -> None:
        if node in self.absorbed:
            self.varies[node] = frozenset().union(*map(self.spans, node.args))
        else:
            super().define(node)

    def arguments(self, node: Scalar) -> list[str]:
        """The operands of an operation; of the exponential of a difference those of that."""
        fact = self.exponentials.get(node)
        return super().arguments(node if fact is None or fact.difference is None else fact.difference)

    def operation(self, node: Scalar, args: list[str]) -> str:
        """Rows divide by what they share through its reciprocal, and exponentials of 16 bits, and those of which only sums
        are read, are the special function unit's."""
        fact = self.exponentials.get(node)
        if fact is not None and (node.dtype in HALVES or (node.dtype == FLOAT32 and fact.summed)):
            name = f"{'summed' if fact.summed else 'half'}_exp{'_difference' if fact.difference else ''}"
            return self.by_ptx(f"{name}({', '.join(args)}, PTX)")
        if (
            node.op == "cast"
            and node.dtype == bfloat16
            and COLUMN in self.spans(node)
            and spell.local(node.args[0].dtype) == "tl.float32"
        ):
            return self.by_ptx(f"rounded_bfloat16({args[0]}, PTX)")
        shared = node.op == "div" and COLUMN in self.spans(node) and COLUMN not in self.spans(node.args[1])
        if shared and node.dtype in (*HALVES, FLOAT32) and args[1].isidentifier():
            return self._shared_quotient(node, *args)
        return super().operation(node, args)

    def _shared_quotient(self, node: Scalar, dividend: str, divisor: str) -> str:
        half, scaled = node.dtype in HALVES, not is_safe_divisor(node.args[1])
        names = [f"{part}_{divisor}" for part in (("inverse",) if half else ("negated", "reciprocal"))]
        key, scale = ("reciprocal", names[-1]), f"scale_{divisor}"
        if key not in self.env:
            made = "half_reciprocal" if half else "reciprocal_parts" if scaled else "moderate_reciprocal"
            text = f"{made}({divisor})" if scaled or not half else f"1.0 / {divisor}"
            self.line(f"{', '.join([scale] * scaled + names)} = {text}")
            self.env[key] = names
        product = f"{dividend} * {scale}" if scaled else dividend
        return f"{product} * {names[0]}" if half else f"shared_quotient({product}, {', '.join(names)})"

    def load_text(self, node: Scalar, widen: bool = True) -> str:
        text = super().load_text(node, widen)
        if COLUMN not in self.spans(node) and self.loops.parallel:
            self.once_a_row.append(node.attr.param)
        return text

    def zero(self, dim: str) -> str:
        return (
            "tl.zeros((ROWS, 1), tl.int32)"
            if dim == ROW and self.loops.parallel
            else "row"
            if dim == ROW
            else f"tl.zeros((1, {self.inside.extent}), tl.int32)"
        )

    # Reductions.

    def element(self, node: Scalar, spec: ReductionSpec) -> str:
        """What a reduction takes of each element: the value in the reduction's type, its identity outside the row."""
        value = self.operand(node)
        kind = working(spec)
        if spell.local(node.dtype) != kind:
            value = f"{value}.to({kind})"
        return value if (node, spec.reduction) in self.padding.neutral else self.within(value, identity(spec))

    def fill(self, node: Scalar) -> str:
        return spell.literal(self.padding.fills[node], node.dtype) if node in self.padding.fills else "0"

    def reduction(self, reduction: Scalar) -> None:
        """The reduction of a block's rows: of what blocks side by side have in each column, then that of the rest beside it."""
        spec, name, (operand,) = reduction.attr, self.name(reduction), reduction.args
        self.varies[reduction] = self.spans(operand) - {COLUMN}
        value = self.element(operand, spec)
        last = self.inside is self.parts[-1]
        if spec.reduction in POSITIONS:
            self._extreme(reduction, value)
            if last:
                self._position(reduction)
        else:
            text = self._joined(reduction, value)
            self.line(f"{name}{'' if last else '_main'} = {text}{self.narrow(reduction) if last else ''}")
        if last:
            self.env[reduction] = name

    def _joined(self, reduction: Scalar, value: str) -> str:
        """The reduction of the parts so far: of blocks side by side what they have in each column, until the last of them."""
        spec, name, number = reduction.attr, self.name(reduction), self.parts.index(self.inside)
        combine = WORDS.get(spec.reduction, f"combine_{spec.reduction}")
        beside = self.beside and COLUMN in self.spans(reduction.args[0])
        if number == self.tile.blocks:
            own = f"{combine}({name}_main, {value})" if beside else reduced(spec, value)
            return reduced(spec, own) if beside else f"{combine}({name}_main, {own})"
        value = f"{combine}({name}_main, {value})" if number else value
        if number < self.tile.blocks - 1:
            return value
        shape = "(ROWS, COLUMNS // REST, REST)"
        return f"tl.reduce(tl.reshape({value}, {shape}), 1, {combine})" if beside else reduced(spec, value)

    def _extreme(self, reduction: Scalar, value: str) -> None:
        """The extreme and its position of the parts so far, that of this one among them."""
        name, spec, suffix = self.name(reduction), reduction.attr, self.inside.suffix
        own = f"{name}{suffix}"
        self.line(f"{own}_value = {value}")
        at = self.within(f"column{suffix}", "-1")
        self.line(f"{own}_at = tl.broadcast_to({at}, {own}_value.shape)")
        self._reduce_position(reduction, own)
        if suffix:
            pairs = f"{name}_value, {name}_at, {own}_value, {own}_at"
            self.line(f"{name}_value, {name}_at = combine_{spec.reduction}({pairs})")

    def _reduce_position(self, reduction: Scalar, name: str) -> None:
        pair = f"({name}_value, {name}_at)"
        self.line(f"{name}_value, {name}_at = tl.reduce({pair}, 1, combine_{reduction.attr.reduction}, keep_dims=True)")

    def _position(self, reduction: Scalar) -> None:
        name = self.name(reduction)
        self.line(f"{name} = {name}_at.to({spell.local(reduction.dtype)})")

    def narrow(self, node: Scalar) -> str:
        """From the type that a reduction works in to the type of its result."""
        kind = working(node.attr)
        if spell.local(node.dtype) == kind:
            return ""
        return " != 0" if node.dtype.kind == "b" else f".to({spell.local(node.dtype)})"

    # Scans.

    def scan(self, node: Scalar, carry: str = "") -> None:
        """The prefix scan along the rows of a block, behind what is carried from the pieces before it."""
        if node in self.env:
            return
        spec, name, (operand,) = node.attr, self.name(node), node.args
        self.varies[node] = self.spans(operand) | {COLUMN}
        reverse = ", reverse=True" if spec.reverse else ""
        combine = WORDS.get(spec.reduction, f"combine_{spec.reduction}")
        text = f"tl.associative_scan({self.element(operand, spec)}, 1, {combine}{reverse})"
        if carry:
            self.line(f"{name}_run = {text}")
            self._carry(node, carry, combine)
            text = f"{name}_run"
        self.line(f"{name} = {text}{self.narrow(node)}")
        self.env[node] = name

    def _carry(self, node: Scalar, carry: str, combine: str) -> None:
        """Put what is carried before the prefix scan of a block, and carry on with its last element."""
        spec, name = node.attr, self.name(node)
        edge = "0" if spec.reverse else "COLUMNS - 1"
        last = f"tl.where(tl.arange(0, COLUMNS)[None, :] == {edge}, {name}_run, 0)"
        total = f"tl.sum({last}, axis=1, keep_dims=True).to({working(spec)})"
        if spec.compensated:
            self.line(f"{name}_total = {total}")
            self.line(f"{name}_run = {carry} + ({name}_run + tl.where({name}_lost == {name}_lost, {name}_lost, 0))")
            self.line(f"{carry}, {name}_lost = two_sum({carry}, {name}_lost, {name}_total)")
        else:
            self.line(f"{name}_run = {combine}({carry}, {name}_run)")
            self.line(f"{carry} = {total}")


def held_words(kernel: Kernel) -> int:
    """Words of 4 bytes for each element of a row that are live from one sweep to the next, at most."""
    most, defined = 0, set[Scalar]()
    for number, sweep in enumerate(kernel.sweeps):
        defined |= set(sweep.body)
        later = kernel.sweeps[number + 1 :]
        read = [arg for s in later for reduction in s.reductions for arg in reduction.args]
        read += [store.value for s in later for store in s.stores]
        read += [arg for s in later for node in s.body if node not in defined for arg in operands(node)]
        most = max(most, sum(max(1, node.dtype.itemsize // 4) for node in set(read) & defined))
    return most


def scans_of(sweep: Sweep) -> list[Scalar]:
    """The prefix scans of a sweep."""
    return [n for n in sweep.body if n.op == "scan"]


def working(spec: ReductionSpec) -> str:
    """The type in which a reduction works: small integers and bools in 32 bits."""
    dtype = spec.accumulator
    return "tl.int32" if dtype.kind in "biu" and dtype.itemsize < 4 else spell.local(dtype)


def identity(spec: ReductionSpec) -> str:
    """What a reduction over nothing gives, as text beside values of the working type."""
    value = reduction_identity(spec.reduction, spec.accumulator)
    if spec.accumulator.kind == "b":
        return str(int(value))
    text = spell.literal(value, spec.accumulator)
    return (
        text
        if spec.accumulator.itemsize < 8 or spec.accumulator.kind == "f"
        else f"tl.full((), {text}, {working(spec)})"
    )


def reduced(spec: ReductionSpec, value: str) -> str:
    """The reduction of a block along its columns."""
    return f"tl.reduce({value}, 1, {WORDS.get(spec.reduction, f'combine_{spec.reduction}')}, keep_dims=True)"
