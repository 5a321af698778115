"""The loop forms with columns side by side in the vector: for reductions along an axis that is not the densest.

Values of a row of the kernel become arrays over a block of columns; the reduced axes run outside the vector loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuser.backends.c import spell
from fuser.backends.c.gates import gates
from fuser.backends.c.writer import Writer
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_inexact
from fuser.kernel.kernel import Stage, Store, fold_identity

BLOCK = 2048  # columns that run side by side
UNROLLED, MOST_UNROLLED = 4, 12  # rows that are folded in at once, and the most values an element that this is done for
MOST_CHUNKS = 32  # chunks of the reduced axes
CHUNK = 8192  # elements in one chunk, at least: less would not outweigh its partial results
CHUNK_CELLS = 1 << 17  # cells of all chunks' partial results
ALIGNED = 16  # columns: where folds begin, so that vectors of them do not cross lines of a cache


def _held(accumulator: np.dtype) -> str:
    """The C type of what a fold carries for each column: gcc vectorises numbers, not truth values."""
    return "uint8_t" if accumulator == BOOL else spell.local(accumulator)


class Columns(Writer):
    """Parallel over blocks of columns; each block walks the reduced axes once a stage."""

    team = True
    read = ("0", "width")  # the columns whose folds are read, from the first on, up to the last

    def form(self) -> None:
        vector = self.loops.vector
        assert vector is not None
        outer = [a for a in self.loops.rows if a is not vector]
        self.gates = gates(self.kernel)
        self.shared(len(outer) + 1)
        for axis in outer:
            self.loop(axis)
        total = self.extents[vector]
        self.open(f"for (int64_t base = 0; base < {total}; base += {BLOCK})")
        self.line(f"const int64_t width = {total} - base < {BLOCK} ? {total} - base : {BLOCK};")
        for stage in self.kernel.stages:
            self._row_part(stage)
            if stage.loops:
                self._narrow(stage)
                self._columns(stage, "0", None)
                for fold in stage.folds:
                    self._result(fold)
        for _ in (*outer, vector):
            self.close()

    def _array(self, kind: str, name: str) -> None:
        """Declare an array over the columns."""
        self.line(f"{kind} {name}[{BLOCK}] __attribute__((aligned(64)));")

    def _across(self, span: tuple[str, str] = ("0", "width")) -> None:
        """Open the vector loop over the columns; the axis' own name counts from the start of the array."""
        vector = self.loops.vector
        assert vector is not None
        self.line("#pragma omp simd")
        self.open(f"for (int64_t x = {span[0]}; x < {span[1]}; ++x)")
        self.line(f"const int64_t {self.axis_names[vector]} = base + x;")

    def _row_part(self, stage: Stage) -> None:
        self._side_by_side(stage.row, stage.row_stores)

    def _side_by_side(self, values: Sequence[Scalar], stores: Sequence[Store]) -> None:
        """Compute values of a row of the kernel as arrays over the columns."""
        nodes = [n for n in values if n.op != "const" and n not in self.env]
        for node in nodes:
            self._array(spell.local(node.dtype), self.name(node))
        if not nodes and not stores:
            return
        self._across()
        for node in nodes:
            self.define(node, f"{self.name(node)}[x]")
        for store in stores:
            self.store(store)
        self.close()

    def _narrow(self, stage: Stage) -> None:
        """Find the columns whose folds some choice reads: the others are not folded."""
        needed = self.gates.get(stage)
        self.read = ("0", "width")
        if needed is None or self.loops.vector is None or not self.follows(needed[-1], self.loops.vector):
            return
        self._side_by_side(needed, ())
        test = self.operand(needed[-1])
        low, high = (f"{self.name(stage.folds[0])}_{end}" for end in ("low", "high"))
        self.line(f"int64_t {low} = 0, {high} = width;")
        self.line(f"while ({low} < {high} && !{test.replace('[x]', f'[{low}]')}) ++{low};")
        self.line(f"while ({high} > {low} && !{test.replace('[x]', f'[{high} - 1]')}) --{high};")
        self.line(f"{low} &= -{ALIGNED};")
        self.read = (low, high)

    def _columns(self, stage: Stage, first: str, last: str | None, declare: bool = True) -> None:
        """Walk the reduced axes once, with the columns inside."""
        scans = [n for n in stage.body if n.op == "scan"]
        for node in (*stage.folds, *scans):
            self._start(node, declare)
        reverse = self.backwards = any(s.attr.reverse for s in scans)
        several = not scans and not stage.stores and len(stage.body) <= MOST_UNROLLED
        for number, axis in enumerate(self.loops.cols):
            name = self.axis_names[axis]
            low, high = (first, last or self.extents[axis]) if number == 0 else ("0", self.extents[axis])
            if several and axis is self.loops.cols[-1]:
                self.open("")
                self.line(f"int64_t {name} = {low};")
                self.open(f"for (; {name} + {UNROLLED - 1} < {high}; {name} += {UNROLLED})")
                self._row(stage, UNROLLED)
                self.close()
                self.open(f"for (; {name} < {high}; ++{name})")
            elif reverse:
                self.open(f"for (int64_t {name} = {high} - 1; {name} >= {low}; --{name})")
            else:
                self.loop(axis, low, high)
        self._row(stage, 1)
        for _ in range(len(self.loops.cols) + several):
            self.close()

    def _row(self, stage: Stage, count: int) -> None:
        """The columns of `count` rows beside each other, the rows in order: the accumulators are read and written once."""
        self._across(self.read)
        saved = dict(self.env)
        axis = self.loops.cols[-1]
        name = self.axis_names[axis]
        for number in range(count):
            if count > 1:
                self.axis_names[axis] = f"({name} + {number})" if number else name
                self.open("")
            for node in stage.body:
                if node.op == "scan":
                    self._scan_step(node, f"{self.name(node)}_run[x]")
                else:
                    self.define(node)
            for fold in stage.folds:
                self._fold_step(fold, self.operand(fold.args[0]), self._position())
            for store in stage.stores:
                self.store(store)
            if count > 1:
                self.close()
            self.env = dict(saved)
        self.axis_names[axis] = name
        self.close()

    def _start(self, node: Scalar, declare: bool = True) -> None:
        """Declare and reset what a fold or scan carries for each column."""
        spec, name = node.attr, self.name(node)
        start = spell.literal(fold_identity(spec.fold, spec.accumulator), spec.accumulator)
        carried = f"{name}_run" if node.op == "scan" else f"{name}_acc"
        position = spec.fold in ("argmax", "argmin")
        if declare and carried not in self.declared:
            self.declared.add(carried)
            self._array(_held(spec.accumulator), carried)
            if position:
                self._array(self._integer(), f"{name}_at")
        reset = f"{carried}[x] = {start};" + (f" {name}_at[x] = -1;" if position else "")
        self.line(f"for (int64_t x = 0; x < width; ++x) {{ {reset} }}")

    def _integer(self) -> str:
        """The type of a position: as narrow as the values that it stands beside allow."""
        return "int32_t" if self.loops.count(self.loops.cols) < 1 << 31 else "int64_t"

    def _fold_step(self, fold: Scalar, value: str, position: str) -> None:
        spec, name = fold.attr, self.name(fold)
        accumulator = f"{name}_acc[x]"
        inexact = is_inexact(spec.accumulator)
        if spec.fold in ("argmax", "argmin"):
            self.line(f"const _Bool {name}_new = {self.takes_over(fold, value, accumulator, f'{name}_at[x]')};")
            self.line(f"{accumulator} = {name}_new ? {value} : {accumulator};")
            self.line(f"{name}_at[x] = {name}_new ? {position} : {name}_at[x];")
        elif spec.fold in ("max", "min"):
            sign = ">" if spec.fold == "max" else "<"
            nan = f" | ({value} != {value})" if inexact else ""
            self.line(f"{accumulator} = (({value} {sign} {accumulator}){nan}) ? {value} : {accumulator};")
        else:
            value = f"({value} ? 1 : 0)" if spec.accumulator == BOOL else value
            self.line(f"{accumulator} = {self.infix(spec.fold, accumulator, value)};")

    def _result(self, fold: Scalar) -> None:
        """The fold's accumulators are its values from now on."""
        if fold.attr.fold in ("argmax", "argmin"):
            self.env[fold] = f"(({spell.local(fold.dtype)}){self.name(fold)}_at[x])"
        else:
            self.env[fold] = f"{self.name(fold)}_acc[x]"


class ColumnsSplit(Columns):
    """Few columns over many rows: chunks of the outermost reduced axis run in parallel over all columns at once."""

    team = False

    def form(self) -> None:
        vector = self.loops.vector
        assert vector is not None
        outer = [a for a in self.loops.rows if a is not vector]
        for axis in outer:
            self.loop(axis)
        self.line(f"const int64_t base = 0, width = {self.extents[vector]};")
        total = self.extents[self.loops.cols[0]]
        self.gates = gates(self.kernel)
        self.line(
            f"const int64_t room = {CHUNK_CELLS} / width + 1, most = room < {MOST_CHUNKS} ? room : {MOST_CHUNKS};"
        )
        self.line(f"const int64_t spread = ({total} + most - 1) / most, least = {CHUNK} / width + 1;")
        self.line("const int64_t length = spread > least ? spread : least;")
        self.line(f"const int64_t chunks = ({total} + length - 1) / length;")
        for stage in self.kernel.stages:
            self._row_part(stage)
            if stage.loops:
                self._chunks(stage, total)
        for _ in outer:
            self.close()

    def _array(self, kind: str, name: str) -> None:
        self.line(f"{kind} *restrict {name} = __builtin_alloca_with_align(width * sizeof({kind}), 512);")

    def _chunks(self, stage: Stage, total: str) -> None:
        self._narrow(stage)
        for fold in stage.folds:
            kind = _held(fold.attr.accumulator)
            self.line(
                f"{kind} *restrict {self.name(fold)}_part = __builtin_alloca_with_align(chunks * width * sizeof({kind}), 512);"
            )
            if fold.attr.fold in ("argmax", "argmin"):
                self.line(
                    f"{self._integer()} *restrict {self.name(fold)}_place = "
                    "__builtin_alloca_with_align(chunks * width * 8, 512);"
                )
        if self.threads:
            self.line(f"#pragma omp parallel for schedule(static) num_threads({self.team_size()})")
        self.open("for (int64_t chunk = 0; chunk < chunks; ++chunk)")
        self.line(f"const int64_t first = chunk * length, last = first + length < {total} ? first + length : {total};")
        for fold in stage.folds:
            kind = _held(fold.attr.accumulator)
            self.line(f"{kind} *restrict {self.name(fold)}_acc = {self.name(fold)}_part + chunk * width;")
            if fold.attr.fold in ("argmax", "argmin"):
                self.line(
                    f"{self._integer()} *restrict {self.name(fold)}_at = {self.name(fold)}_place + chunk * width;"
                )
        self._columns(stage, "first", "last", declare=False)
        self.close()
        for fold in stage.folds:
            self._start(fold)
            self.open("for (int64_t chunk = 0; chunk < chunks; ++chunk)")
            self.line("#pragma omp simd")
            self.open("for (int64_t x = 0; x < width; ++x)")
            kind = _held(fold.attr.accumulator)
            self.line(f"const {kind} part = {self.name(fold)}_part[chunk * width + x];")
            self._fold_step(fold, "part", f"{self.name(fold)}_place[chunk * width + x]")
            self.close()
            self.close()
            self._result(fold)
