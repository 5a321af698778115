"""Reductions and scans: programs that hold whole rows, and programs that walk long rows piece by piece.

The block is [rows, columns]: columns run along the reduced axes whatever lies along memory, so that a reduction down
the columns of a matrix has the same text as one along its rows and differs only in its block's shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fuser.backends.triton import spell
from fuser.backends.triton.block_sizes import MOST_WARPS, Tile
from fuser.backends.triton.emitter import Dims, Emitter, Function, required
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, bfloat16, is_inexact
from fuser.kernel.centred import Centred
from fuser.kernel.kernel import Kernel, ReductionSpec, Store, Sweep, reduction_identity
from fuser.kernel.loops import Loops
from fuser.kernel.online import Online
from fuser.kernel.operands import operands

POSITIONS = ("argmax", "argmin")
ROW, COLUMN = "r", "c"
HALVES, FLOAT32 = (FLOATS[0], bfloat16), FLOATS[2]
WORDS = {"prod": "combine_prod", "logaddexp": "log_add_exp"}


@dataclass
class Part:
    """A part of the columns that a program holds: what names end in, its extent as text, and what is known of its elements."""

    suffix: str
    extent: str
    axis_names: dict[Axis, str] = field(default_factory=dict)
    env: dict[Any, Any] = field(default_factory=dict)
    masks: dict[str, str] = field(default_factory=dict)


class Rows(Emitter):
    """Whole rows in registers: every sweep runs on the same block, loaded once.

    A row between two powers of two has two parts: one block that lies within it, and the rest, whose last elements are masked.
    """

    def __init__(self, kernel: Kernel, loops: Loops, name: str, tile: Tile) -> None:
        super().__init__(kernel, loops, name)
        self.tile = tile
        self.parts = [Part("", "COLUMNS"), Part("_end", "REST")][: 2 if tile.rest else 1]
        self.inside = self.parts[0]  # the part that is being written

    def write(self) -> Function:
        self.line(f"program = {self.program()}")
        programs = self.row_block()
        self.all_columns()
        self.sweep_all()
        function = self.finish(self.constants(), programs, self.tile.warps, self.tile.hints)
        wider = replace(function.launch, warps=2 * self.tile.warps)  # half as many elements a thread
        smaller = (wider,) if MOST_WARPS // 2 <= self.tile.warps < MOST_WARPS else ()
        return replace(function, launch=replace(function.launch, smaller=smaller))

    def all_columns(self) -> None:
        """Name the columns of each part; only those of the last one can lie outside."""
        exact = not self.tile.rest and self.tile.columns == self.loops.count(self.loops.reduced)
        for part in self.parts:
            with self.within_part(part):
                begin = "COLUMNS + " if part.suffix else ""
                self.columns(
                    f"{begin}tl.arange(0, {part.extent})[None, :]", masked=part is self.parts[-1] and not exact
                )

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
        for sweep in self.kernel.sweeps:
            self.row_part(sweep)
            for part in self.parts:
                with self.within_part(part):
                    for node in sweep.body:
                        self.scan(node) if node.op == "scan" else self.define(node)
                    for reduction in sweep.reductions:
                        self.reduction(reduction)
                    for store in sweep.stores:
                        self.store(store)

    def constants(self) -> dict[str, int]:
        rest = {"REST": self.tile.rest} if self.tile.rest else {}
        return {"ROWS": self.tile.rows, "COLUMNS": self.tile.columns} | rest

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

    def operation(self, node: Scalar, args: list[str]) -> str:
        """Rows divide by what they share through its reciprocal, and 16-bit numbers have exponentials of the special function
        unit, whose error is below 2⁻¹⁶."""
        if node.op == "exp" and node.dtype in HALVES:
            self.ptx = True
            return f"half_exp({args[0]}, PTX)"
        if (
            node.op == "cast"
            and node.dtype == bfloat16
            and COLUMN in self.spans(node)
            and spell.local(node.args[0].dtype) == "tl.float32"
        ):
            self.ptx = True
            return f"rounded_bfloat16({args[0]}, PTX)"
        shared = node.op == "div" and COLUMN in self.spans(node) and COLUMN not in self.spans(node.args[1])
        if shared and node.dtype in (*HALVES, FLOAT32) and args[1].isidentifier():
            return self._shared_quotient(node, *args)
        return super().operation(node, args)

    def _shared_quotient(self, node: Scalar, dividend: str, divisor: str) -> str:
        half = node.dtype in HALVES
        names = [f"{part}_{divisor}" for part in (("scale", "inverse") if half else ("scale", "negated", "reciprocal"))]
        key = ("reciprocal", names[-1])
        if key not in self.env:
            self.line(f"{', '.join(names)} = {'half_reciprocal' if half else 'reciprocal_parts'}({divisor})")
            self.env[key] = names
        if _moderate(node.args[1]):
            names[0] = "1.0"
        return f"{dividend} * {names[0]} * {names[1]}" if half else f"shared_quotient({dividend}, {', '.join(names)})"

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
        return self.within(value, identity(spec))

    def reduction(self, reduction: Scalar) -> None:
        """The reduction of a block's rows, in one go; of one with two parts, that of both with the second."""
        spec, name, (operand,) = reduction.attr, self.name(reduction), reduction.args
        self.varies[reduction] = self.spans(operand) - {COLUMN}
        value = self.element(operand, spec)
        first, last = self.inside is self.parts[0], self.inside is self.parts[-1]
        own = f"{name}_main" if not last else name if first else f"{name}_end"
        if spec.reduction in POSITIONS:
            self.line(f"{own}_value = {value}")
            at = self.within(f"column{self.inside.suffix}", "-1")
            self.line(f"{own}_at = tl.broadcast_to({at}, {own}_value.shape)")
            self._reduce_position(reduction, own)
            if last and not first:
                pairs = f"{name}_main_value, {name}_main_at, {own}_value, {own}_at"
                self.line(f"{name}_value, {name}_at = combine_{spec.reduction}({pairs})")
            if last:
                self._position(reduction)
        elif first:
            self.line(f"{own} = {reduced(spec, value)}{self._narrow(reduction) if last else ''}")
        else:
            self.line(f"{own} = {reduced(spec, value)}")
            combine = WORDS.get(spec.reduction, f"combine_{spec.reduction}")
            self.line(f"{name} = {combine}({name}_main, {own}){self._narrow(reduction)}")
        if last:
            self.env[reduction] = name

    def _reduce_position(self, reduction: Scalar, name: str) -> None:
        pair = f"({name}_value, {name}_at)"
        self.line(f"{name}_value, {name}_at = tl.reduce({pair}, 1, combine_{reduction.attr.reduction}, keep_dims=True)")

    def _position(self, reduction: Scalar) -> None:
        name = self.name(reduction)
        self.line(f"{name} = {name}_at.to({spell.local(reduction.dtype)})")

    def _narrow(self, node: Scalar) -> str:
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
        self.line(f"{name} = {text}{self._narrow(node)}")
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


class LongRows(Rows):
    """Rows longer than a block: each sweep walks along them, piece by piece, and keeps running results for each lane.

    A sum in `online` is relative to its lane's largest element so far, until the row's is known; one of `squares` to an early one of its
    lane's. Where rows lie along memory, the neighbours that a thread reads at once share a lane, and are reduced before they join it.
    """

    def __init__(
        self,
        kernel: Kernel,
        loops: Loops,
        name: str,
        tile: Tile,
        online: Mapping[Scalar, Online] | None = None,
        squares: Mapping[Scalar, Centred] | None = None,
    ) -> None:
        super().__init__(kernel, loops, name, tile)
        self.online = online or {}
        self.squares = squares or {}
        # What a thread reads at once is reduced first; a kernel that reads no rows has no alignment that says how much that is.
        vector = loops.vector
        rows = vector is not None and any(abs(index.coefficient(vector)) == 1 for index in self._indices())
        self.grouped = tile.hints and vector in loops.reduced and rows
        self.shape = "(ROWS, COLUMNS // ALIGNED)" if self.grouped else "(ROWS, COLUMNS)"  # of lanes

    def write(self) -> Function:
        self.line(f"program = {self.program()}")
        programs = self.row_block()
        for sweep in self.kernel.sweeps:
            self.row_part(sweep)
            if sweep.loops:
                self.walk(sweep, "0", " * ".join(self.extents[a] for a in self.loops.reduced))
        return self.finish(self.constants(), programs, self.tile.warps, self.tile.hints)

    def walk(self, sweep: Sweep, first: str, last: str) -> None:
        """Run a sweep over the columns from `first` up to `last`."""
        for reduction in sweep.reductions:
            self._start(reduction)
        scans = scans_of(sweep)
        for node in scans:
            self.start_carry(node)
            if node.attr.compensated:
                self.line(f"{self.name(node)}_lost = tl.zeros((ROWS, 1), {working(node.attr)})")
        with self.scope():
            self.open(f"for start in range({first}, {last}, COLUMNS):")
            begin = "start"
            if any(s.attr.reverse for s in scans):
                begin = f"tl.cdiv({last}, COLUMNS) * COLUMNS - COLUMNS - start" + (
                    f" + {first}" if first != "0" else ""
                )
            cut = (
                self.loops.count(self.loops.reduced) % self.tile.columns != 0
            )  # the last piece of all, and no other one
            self.columns(f"{begin} + tl.arange(0, COLUMNS)[None, :]", masked=cut)
            later = {node for reduction in sweep.reductions for node in self._elements(reduction)}
            for node in self.body(sweep):
                if node not in later:
                    self.scan(node, f"{self.name(node)}_carry") if node.op == "scan" else self.define(node)
            for reduction in sweep.reductions:
                self._step(reduction)
            for store in sweep.stores:
                self.store(store)
            self.close()
        for reduction in sweep.reductions:
            self._end(reduction)

    def start_carry(self, scan: Scalar) -> None:
        """What a scan carries before the first piece."""
        spec = scan.attr
        self.line(f"{self.name(scan)}_carry = tl.full((ROWS, 1), {identity(spec)}, {working(spec)})")

    def body(self, sweep: Sweep) -> list[Scalar]:
        roots = [f.args[0] for f in sweep.reductions] + [s.value for s in sweep.stores]
        return required(roots, sweep.body)

    def _start(self, reduction: Scalar) -> None:
        spec, name = reduction.attr, self.name(reduction)
        if spec.reduction in POSITIONS:
            self.line(f"{name}_value = tl.full((ROWS, COLUMNS), {identity(spec)}, {working(spec)})")
            self.line(f"{name}_at = tl.full((ROWS, COLUMNS), -1, {'tl.int64' if self.wide else 'tl.int32'})")
            return
        self.line(f"{name}_run = tl.full({self.shape}, {identity(spec)}, {working(spec)})")
        zeros = ["lost"] if spec.compensated else []
        zeros += ["shift"] if reduction in self.online else []
        zeros += ["pivot", "near", "count"] if reduction in self.squares else []
        for part in zeros:
            self.line(f"{name}_{part} = tl.zeros({self.shape}, {working(spec)})")

    def joined(self, value: str, reduction: str) -> str:
        """The elements of a piece as one a lane."""
        if not self.grouped:
            return value
        groups = "(ROWS, COLUMNS // ALIGNED, ALIGNED)"
        return f"tl.reduce(tl.reshape({value}, {groups}), 2, {WORDS.get(reduction, f'combine_{reduction}')})"

    def spread(self, lanes: str) -> str:
        """What lanes have, for each element of a piece."""
        if not self.grouped:
            return lanes
        groups = "(ROWS, COLUMNS // ALIGNED, ALIGNED)"
        return f"tl.reshape(tl.broadcast_to(tl.expand_dims({lanes}, 2), {groups}), (ROWS, COLUMNS))"

    def _step(self, reduction: Scalar) -> None:
        """Take one piece into the running results."""
        if reduction in self.online:
            self._step_online(reduction)
            return
        if reduction in self.squares:
            self._step_squares(reduction)
            return
        spec, name, (operand,) = reduction.attr, self.name(reduction), reduction.args
        value = self.element(operand, spec)
        if spec.reduction in POSITIONS:
            self.line(f"{name}_next = {value}")
            at = self.within("column", "-1")
            self.line(f"{name}_value, {name}_at = combine_{spec.reduction}({name}_value, {name}_at, {name}_next, {at})")
        elif spec.compensated:
            self.line(f"{name}_run, {name}_lost = two_sum({name}_run, {name}_lost, {self.joined(value, 'sum')})")
        else:
            combine = WORDS.get(spec.reduction, f"combine_{spec.reduction}")
            self.line(f"{name}_run = {combine}({name}_run, {self.joined(value, spec.reduction)})")

    def _elements(self, reduction: Scalar) -> tuple[Scalar, ...]:
        relative = self.online.get(reduction) or self.squares.get(reduction)
        return relative.elements if relative is not None else ()

    def _step_squares(self, reduction: Scalar) -> None:
        """Take one piece into sums of distances to the lanes' pivots, which are early elements, and of their squares."""
        spec, name = reduction.attr, self.name(reduction)
        self.line(f"{name}_next = {self.element(self.squares[reduction].number, spec)}")
        pivot = self.joined(f"{name}_next", "max")
        self.line(f"{name}_pivot = tl.where({name}_count == 0, {pivot}, {name}_pivot)")
        away = self.within(f"{name}_next - {self.spread(f'{name}_pivot')}", "0.0")
        self.line(f"{name}_next = {away}")
        squares = self.joined(f"{name}_next * {name}_next", "sum")
        self.line(f"{name}_run, {name}_lost = two_sum({name}_run, {name}_lost, {squares})")
        self.line(f"{name}_near = {name}_near + {self.joined(f'{name}_next', 'sum')}")
        self.line(f"{name}_count = {name}_count + {self._inside(working(spec))}")

    def _inside(self, kind: str) -> str:
        """How many elements of a piece lie within the row, for each lane."""
        if COLUMN not in self.masks:
            return "ALIGNED" if self.grouped else "1"
        inside = f"{self.masks[COLUMN]}.to({kind})"
        return self.joined(f"tl.broadcast_to({inside}, (ROWS, COLUMNS))", "sum") if self.grouped else inside

    def around(self, reduction: Scalar, centre: str) -> str:
        """The row's sum of squares of distances to a centre, from its lanes."""
        name = self.name(reduction)
        self.line(f"{name}_mean = {name}_near / tl.maximum({name}_count, 1.0)")
        self.line(f"{name}_own = {self.lanes(reduction)} - {name}_near * {name}_mean")
        self.line(f"{name}_own = tl.maximum({name}_own, 0.0, propagate_nan=tl.PropagateNan.ALL)")
        self.line(f"{name}_away = ({name}_pivot - {centre}) + {name}_mean")
        lanes = f"tl.where({name}_count > 0, {name}_own + {name}_count * ({name}_away * {name}_away), 0.0)"
        return reduced(reduction.attr, lanes)

    def centre(self, reduction: Scalar) -> str:
        """The centre of a sum of squares, whose base is there."""
        relative = self.squares[reduction]
        self.define_all(relative.chain)
        return f"({self.operand(relative.centre)}).to({working(reduction.attr)})"

    def _step_online(self, reduction: Scalar) -> None:
        """Take one piece into sums relative to the lanes' maxima, which have taken it in before."""
        online, name, kind = self.online[reduction], self.name(reduction), working(reduction.attr)
        largest, lanes = f"{self.name(online.maximum)}_run", frozenset((ROW, COLUMN))
        shift = self.shift(online, largest, lanes, f"{name}_at")
        self.line(f'{name}_next = tl.where({largest} == float("-inf"), 0.0, ({shift}).to({kind}))')
        with self.scope():
            if self.grouped:
                self.line(f"{name}_wide = {self.spread(f'{name}_next')}")
            self.env[online.shift], self.varies[online.shift] = f"{name}_{'wide' if self.grouped else 'next'}", lanes
            self.define_all(online.elements)
            value = self.element(reduction.args[0], reduction.attr)
        for part in ("run", "lost"):
            self.line(f"{name}_{part} = {rescaled(f'{name}_{part}', f'{name}_shift', f'{name}_next')}")
        self.line(f"{name}_shift = {name}_next")
        self.line(f"{name}_run, {name}_lost = two_sum({name}_run, {name}_lost, {self.joined(value, 'sum')})")

    def shift(self, online: Online, maximum: str, dims: Dims, prefix: str) -> str:
        """The shift of an online sum where the maximum is that text, which varies along `dims`."""
        return shifted(self, online, maximum, dims, prefix)

    def _end_online(self, reduction: Scalar) -> None:
        """The sums of a row, whose maximum is there."""
        online, name = self.online[reduction], self.name(reduction)
        self.define_all(online.chain)
        self.line(f"{name}_lanes = {self.lanes(reduction)}")
        self.whole_online(reduction, f"{name}_lanes", f"{name}_shift")
        self.env[reduction] = name

    def whole_online(self, reduction: Scalar, sums: str, before: str) -> None:
        """An online sum from parts that are relative to the shifts `before`; of −∞ alone it is 0, or nan where the shift is −∞."""
        online, name, kind = self.online[reduction], self.name(reduction), working(reduction.attr)
        shift = f"({self.operand(online.shift)}).to({kind})"
        self.line(f"{name}_whole = {reduced(reduction.attr, rescaled(sums, before, shift))}")
        largest = self.env[online.maximum]
        nothing = f"{name}_whole + libdevice.exp(({largest}).to({kind}) - {shift})"
        self.line(f'{name}_whole = tl.where({largest} == float("-inf"), {nothing}, {name}_whole)')
        self.line(f"{name} = {name}_whole{self._narrow(reduction)}")

    def _end(self, reduction: Scalar) -> None:
        """Reduce the lanes' results."""
        spec, name = reduction.attr, self.name(reduction)
        self.varies[reduction] = frozenset(ROW)
        if reduction in self.online:
            self._end_online(reduction)
            return
        if reduction in self.squares:
            self.line(f"{name} = {self.around(reduction, self.centre(reduction))}{self._narrow(reduction)}")
        elif spec.reduction in POSITIONS:
            self._reduce_position(reduction, name)
            self._position(reduction)
        else:
            self.line(f"{name} = {reduced(spec, self.lanes(reduction))}{self._narrow(reduction)}")
        self.env[reduction] = name

    def lanes(self, reduction: Scalar) -> str:
        """The result of each lane."""
        run = f"{self.name(reduction)}_run"
        return f"whole_sum({run}, {self.name(reduction)}_lost)" if reduction.attr.compensated else run


def shifted(emitter: Emitter, online: Online, maximum: str, dims: Dims, prefix: str) -> str:
    """The shift of an online sum where the maximum is that text, which varies along `dims`; what it is made of is computed into
    names with the prefix."""
    if online.shift is online.maximum:
        return maximum
    names = {node: emitter.name(node) for node in online.chain}
    with emitter.scope():
        emitter.env[online.maximum], emitter.varies[online.maximum] = maximum, dims
        for number, node in enumerate(online.chain):
            emitter.env.pop(node, None)
            emitter.names[node] = f"{prefix}{number}"
        emitter.define_all(online.chain)
        found: str = emitter.operand(online.shift)
    emitter.names |= names
    return found


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


def _moderate(node: Scalar) -> bool:
    """Whether a number is surely one whose reciprocal is neither subnormal nor infinite, or 0, infinite or nan: a square root."""
    return (node.op == "sqrt" and node.dtype != FLOATS[3]) or (
        node.op == "cast" and is_inexact(node.dtype) and _moderate(node.args[0])
    )


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


def rescaled(sums: str, before: str, after: str) -> str:
    """Sums of exponentials relative to shifts `before` as relative to `after`; 0 stays 0, whatever the factor."""
    return f"tl.where({sums} == 0.0, 0.0, {sums} * libdevice.exp({before} - {after}))"
