"""Reductions and scans: programs that hold whole rows, and programs that walk long rows piece by piece.

The block is [rows, columns]: columns run along the reduced axes whatever lies along memory, so that a reduction down
the columns of a matrix has the same text as one along its rows and differs only in its block's shape.
"""

from __future__ import annotations

from fuser.backends.triton import spell
from fuser.backends.triton.tile import Tile
from fuser.backends.triton.writer import Dims, Function, Writer, required
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import FoldSpec, Kernel, Stage, Store, fold_identity
from fuser.kernel.loops import Loops

POSITIONS = ("argmax", "argmin")
ROW, COLUMN = "r", "c"
WORDS = {"prod": "combine_prod", "logaddexp": "log_add_exp"}


class Rows(Writer):
    """Whole rows in registers: every stage runs on the same block, loaded once."""

    def __init__(self, kernel: Kernel, loops: Loops, name: str, tile: Tile) -> None:
        super().__init__(kernel, loops, name)
        self.tile = tile

    def write(self) -> Function:
        self.line(f"program = {self.program()}")
        programs = self.row_block()
        self.columns("tl.arange(0, COLUMNS)[None, :]")
        for stage in self.kernel.stages:
            self.row_part(stage)
            for node in stage.body:
                self.scan(node) if node.op == "scan" else self.define(node)
            for fold in stage.folds:
                self.fold(fold)
            for store in stage.stores:
                self.store(store)
        return self.finish(self.constants(), programs, self.tile.warps, self.tile.hints)

    def constants(self) -> dict[str, int]:
        return {"ROWS": self.tile.rows, "COLUMNS": self.tile.columns}

    def row_block(self) -> int:
        """Name the row axes of the program's block; gives the number of row blocks."""
        rows, vector = self.loops.rows, self.loops.vector
        self.masks[ROW] = "row_inside"
        if not rows:
            self.line("row = tl.arange(0, 1)[:, None]")
            self.masks.pop(ROW)
            return 1
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
        outer = [a for a in self.loops.rows if a is not vector]
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

    def columns(self, text: str) -> None:
        """Name the reduced axes of the block."""
        total = " * ".join(self.extents[a] for a in self.loops.cols)
        self.line(f"column = ({text}).to(tl.int64)" if self.wide else f"column = {text}")
        self.line(f"column_inside = column < {total}")
        self.masks[COLUMN] = "column_inside"
        self.split("column", self.loops.cols, frozenset(COLUMN))

    def row_part(self, stage: Stage) -> None:
        self.define_all(n for n in stage.row if n.op != "fold")
        for store in stage.row_stores:
            self.store(store)

    def store_dims(self, store: Store) -> Dims:
        return self.spans(store.value) | {ROW}

    def zero(self, dim: str) -> str:
        return (
            "tl.zeros((ROWS, 1), tl.int32)"
            if dim == ROW and self.loops.rows
            else "row"
            if dim == ROW
            else "tl.zeros((1, COLUMNS), tl.int32)"
        )

    # Folds.

    def element(self, node: Scalar, spec: FoldSpec) -> str:
        """What a fold takes of each element: the value in the fold's type, its identity outside the row."""
        value = self.operand(node)
        kind = working(spec)
        if spell.local(node.dtype) != kind:
            value = f"{value}.to({kind})"
        return f"tl.where(column_inside, {value}, {identity(spec)})"

    def fold(self, fold: Scalar) -> None:
        """The fold of a block's rows, in one go."""
        spec, name, (operand,) = fold.attr, self.name(fold), fold.args
        self.varies[fold] = self.spans(operand) - {COLUMN}
        value = self.element(operand, spec)
        if spec.fold in POSITIONS:
            self.line(f"{name}_value = {value}")
            at = f"tl.where(column_inside, {self.position()}, -1)"
            self.line(f"{name}_at = tl.broadcast_to({at}, {name}_value.shape)")
            self._reduce_position(fold)
        else:
            self.line(f"{name} = {reduced(spec, value)}{self._narrow(fold)}")
        self.env[fold] = name

    def _reduce_position(self, fold: Scalar) -> None:
        name = self.name(fold)
        pair = f"({name}_value, {name}_at)"
        self.line(f"{name}_value, {name}_at = tl.reduce({pair}, 1, combine_{fold.attr.fold}, keep_dims=True)")
        self.line(f"{name} = {name}_at.to({spell.local(fold.dtype)})")

    def position(self) -> str:
        """The position along the reduced axes, for argmax."""
        return "column"

    def _narrow(self, node: Scalar) -> str:
        """From the type that a fold works in to the type of its result."""
        kind = working(node.attr)
        if spell.local(node.dtype) == kind:
            return ""
        return " != 0" if node.dtype.kind == "b" else f".to({spell.local(node.dtype)})"

    # Scans.

    def scan(self, node: Scalar, carry: str = "") -> None:
        """The running fold along the rows of a block, behind what is carried from the pieces before it."""
        if node in self.env:
            return
        spec, name, (operand,) = node.attr, self.name(node), node.args
        self.varies[node] = self.spans(operand) | {COLUMN}
        reverse = ", reverse=True" if spec.reverse else ""
        combine = WORDS.get(spec.fold, f"combine_{spec.fold}")
        text = f"tl.associative_scan({self.element(operand, spec)}, 1, {combine}{reverse})"
        if carry:
            edge = "0" if spec.reverse else "COLUMNS - 1"
            self.line(f"{name}_run = {combine}({carry}, {text})")
            last = f"tl.where(tl.arange(0, COLUMNS)[None, :] == {edge}, {name}_run, 0)"
            self.line(f"{carry} = tl.sum({last}, axis=1, keep_dims=True).to({working(spec)})")
            text = f"{name}_run"
        self.line(f"{name} = {text}{self._narrow(node)}")
        self.env[node] = name


class LongRows(Rows):
    """Rows longer than a block: each stage walks along them, piece by piece, and keeps running results for each lane."""

    def write(self) -> Function:
        self.line(f"program = {self.program()}")
        programs = self.row_block()
        for stage in self.kernel.stages:
            self.row_part(stage)
            if stage.loops:
                self.walk(stage, "0", " * ".join(self.extents[a] for a in self.loops.cols))
        return self.finish(self.constants(), programs, self.tile.warps, self.tile.hints)

    def walk(self, stage: Stage, first: str, last: str) -> None:
        """Run a stage over the columns from `first` up to `last`."""
        for fold in stage.folds:
            self._start(fold)
        scans = scans_of(stage)
        for node in scans:
            self.start_carry(node)
        saved = dict(self.env)
        self.open(f"for start in range({first}, {last}, COLUMNS):")
        begin = "start"
        if any(s.attr.reverse for s in scans):
            begin = f"tl.cdiv({last}, COLUMNS) * COLUMNS - COLUMNS - start" + (f" + {first}" if first != "0" else "")
        self.columns(f"{begin} + tl.arange(0, COLUMNS)[None, :]")  # only the last piece of all can be cut short
        for node in self.body(stage):
            self.scan(node, f"{self.name(node)}_carry") if node.op == "scan" else self.define(node)
        for fold in stage.folds:
            self._step(fold)
        for store in stage.stores:
            self.store(store)
        self.close()
        self.env = saved
        for fold in stage.folds:
            self._end(fold)

    def start_carry(self, scan: Scalar) -> None:
        """What a scan carries before the first piece."""
        spec = scan.attr
        self.line(f"{self.name(scan)}_carry = tl.full((ROWS, 1), {identity(spec)}, {working(spec)})")

    def body(self, stage: Stage) -> list[Scalar]:
        roots = [f.args[0] for f in stage.folds] + [s.value for s in stage.stores]
        return required(roots, stage.body)

    def _start(self, fold: Scalar) -> None:
        spec, name = fold.attr, self.name(fold)
        suffix = "value" if spec.fold in POSITIONS else "run"
        self.line(f"{name}_{suffix} = tl.full((ROWS, COLUMNS), {identity(spec)}, {working(spec)})")
        if spec.fold in POSITIONS:
            self.line(f"{name}_at = tl.full((ROWS, COLUMNS), -1, {'tl.int64' if self.wide else 'tl.int32'})")

    def _step(self, fold: Scalar) -> None:
        """Take one piece into the running results."""
        spec, name, (operand,) = fold.attr, self.name(fold), fold.args
        value = self.element(operand, spec)
        if spec.fold in POSITIONS:
            self.line(f"{name}_next = {value}")
            at = f"tl.where(column_inside, {self.position()}, -1)"
            self.line(f"{name}_value, {name}_at = combine_{spec.fold}({name}_value, {name}_at, {name}_next, {at})")
        else:
            combine = WORDS.get(spec.fold, f"combine_{spec.fold}")
            self.line(f"{name}_run = {combine}({name}_run, {value})")

    def _end(self, fold: Scalar) -> None:
        """Fold the lanes' results."""
        spec, name = fold.attr, self.name(fold)
        self.varies[fold] = frozenset(ROW)
        if spec.fold in POSITIONS:
            self._reduce_position(fold)
        else:
            self.line(f"{name} = {reduced(spec, f'{name}_run')}{self._narrow(fold)}")
        self.env[fold] = name


def scans_of(stage: Stage) -> list[Scalar]:
    """The running folds of a stage."""
    return [n for n in stage.body if n.op == "scan"]


def working(spec: FoldSpec) -> str:
    """The type in which a fold works: small integers and bools in 32 bits."""
    dtype = spec.accumulator
    return "tl.int32" if dtype.kind in "biu" and dtype.itemsize < 4 else spell.local(dtype)


def identity(spec: FoldSpec) -> str:
    """What a fold over nothing gives, as text beside values of the working type."""
    value = fold_identity(spec.fold, spec.accumulator)
    if spec.accumulator.kind == "b":
        return str(int(value))
    text = spell.literal(value, spec.accumulator)
    return (
        text
        if spec.accumulator.itemsize < 8 or spec.accumulator.kind == "f"
        else f"tl.full((), {text}, {working(spec)})"
    )


def reduced(spec: FoldSpec, value: str) -> str:
    """The fold of a block along its columns."""
    return f"tl.reduce({value}, 1, {WORDS.get(spec.fold, f'combine_{spec.fold}')}, keep_dims=True)"
