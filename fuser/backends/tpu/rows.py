"""Elementwise kernels, reductions and scans: one stage after the other on a tile.

Where a tile holds whole rows, folds are reductions of arrays. Where tiles cut the reduced axes, the grid runs over them
once a stage (a phase), and folds and scans hand on what they have so far in scratch memory; the order is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.backends.tpu import spell
from fuser.backends.tpu.tile import Refused
from fuser.backends.tpu.writer import Axes, Writer
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_inexact
from fuser.kernel.kernel import FoldSpec, Stage, fold_identity
from fuser.kernel.lower import operands

POSITIONS = ("argmax", "argmin")
# fold: (how two values combine, how an array is folded)
WORDS = {
    "sum": ("{0} + {1}", "jnp.sum"),
    "max": ("jnp.maximum({0}, {1})", "jnp.max"),
    "min": ("jnp.minimum({0}, {1})", "jnp.min"),
    "argmax": ("jnp.maximum({0}, {1})", "jnp.max"),
    "argmin": ("jnp.minimum({0}, {1})", "jnp.min"),
    "prod": ("{0} * {1}", ""),
    "and": ("{0} & {1}", ""),
    "or": ("{0} | {1}", ""),
    "xor": ("{0} ^ {1}", ""),
    "logaddexp": ("log_add_exp({0}, {1})", ""),
}
_COMBINE = {
    "sum": "jnp.add",
    "prod": "jnp.multiply",
    "max": "jnp.maximum",
    "min": "jnp.minimum",
    "logaddexp": "log_add_exp",
}


class Rows(Writer):
    """The body of a kernel without a loop."""

    def write(self) -> None:
        columns = self.tiling.cut_columns
        looping = [s for s in self.kernel.stages if s.loops]
        if not columns:
            for stage in self.kernel.stages:
                self._whole(stage)
            return
        last = " & ".join(f"({self.windows.grid.name(a)} == {self.tiling.blocks(a) - 1})" for a in columns)
        self.line("first = " + " & ".join(f"({self.windows.grid.name(a)} == 0)" for a in columns))
        number = -1
        for stage in self.kernel.stages:
            number += stage.loops
            at = f"(phase == {number})" if len(looping) > 1 else ""
            if stage.loops:
                self._phase(stage, number, at)
            elif stage.row_stores:
                self._scoped(stage, " & ".join(filter(None, (at, last))), max(number, 0))

    # A tile holds whole rows.

    def _whole(self, stage: Stage) -> None:
        self.define_all(stage.row)
        for store in stage.row_stores:
            self.store(store)
        self._body(stage)
        for fold in stage.folds:
            self._fold(fold)
            self.line(f"{self.name(fold)} = {self._narrowed(fold, self.env[fold])}")
            self.env[fold] = self.name(fold)
        for store in stage.stores:
            self.store(store)

    def _body(self, stage: Stage) -> None:
        for node in stage.body:
            if node.op == "scan":
                self._scan(node)
            else:
                self.define(node)

    def _fold(self, fold: Scalar) -> None:
        """Fold what the tile holds along the reduced axes; `env` has the text, positions a second one as `(node, "at")`."""
        spec, (operand,) = fold.attr, fold.args
        axes = self.spans(operand) & set(self.tiling.order) - set(self.kernel.cols)
        self.varies[fold] = axes | self._rows_of(operand)
        value = self._element(operand, spec)
        along = tuple(n for n, a in enumerate(self.tiling.order) if a in self.kernel.cols)
        where = f"axis={along if len(along) > 1 else along[0]}, keepdims=True"
        if spec.fold in POSITIONS:
            (number,) = along
            name = self.name(fold)
            self.line(f"{name}_element = {value}")
            self.line(f"{name}_best = {WORDS[spec.fold][1]}({name}_element, {where})")
            place = f"place({name}_element, {name}_best, {self.axis(self.tiling.order[number])}, {number})"
            self.line(f"{name}_at = {place}")
            self.env[fold] = f"{name}_at"
            return
        self.env[fold] = _reduced(spec, value, where)

    def _rows_of(self, operand: Scalar) -> Axes:
        return frozenset(a for a in self.spans(operand) if a not in self.kernel.cols)

    def _element(self, operand: Scalar, spec: FoldSpec) -> str:
        """What is folded, along all reduced axes, with the fold's identity where nothing is."""
        value = self.array(operand, frozenset(self.kernel.cols))
        mask = self.inside(self.kernel.cols)
        if not mask:
            return value
        name = f"{self.name(operand)}_live"
        if name not in self.env:
            self.line(f"{name} = {mask}")
            self.env[name] = name
        identity = spell.literal(fold_identity(spec.fold, spec.accumulator), spec.accumulator)
        if operand.dtype == BOOL:
            return f"{value} & {name}" if identity == "False" else f"{value} | ~({name})"
        return f"jnp.where({name}, {value}, {identity})"

    def _narrowed(self, fold: Scalar, text: str) -> str:
        """The fold's result in its own type, which is rounded from that of its accumulator."""
        if fold.attr.fold in POSITIONS:
            return f"{text}.astype({spell.storage(fold.dtype)})"
        half = spell.local(fold.dtype) != fold.dtype
        return f"({text}).astype({spell.storage(fold.dtype)}).astype(jnp.float32)" if half else text

    def _scan(self, node: Scalar) -> None:
        """The running fold along the reduced axis; with tiles that cut it, from what the tile before handed on."""
        spec, (operand,) = node.attr, node.args
        (axis,) = self.kernel.cols
        number = self.tiling.order.index(axis)
        self.varies[node] = self.spans(operand) | {axis}
        identity = spell.literal(fold_identity(spec.fold, spec.accumulator), spec.accumulator)
        name = self.name(node)
        self.line(
            f"{name} = running({self._element(operand, spec)}, {_COMBINE[spec.fold]}, {identity}, {number}, {spec.reverse})"
        )
        if axis in self.tiling.cut:
            carry = self._scratch(node, "carry", self.varies[node] - {axis}, spec)
            start = f"jnp.where(first, {identity}, {carry}[...])"
            self.line(f"{name} = {WORDS[spec.fold][0].format(start, name)}")
            end = 0 if spec.reverse else self.tiling.extents[axis] - 1
            self.line(f"{carry}[...] = lax.slice_in_dim({name}, {end}, {end + 1}, axis={number})")
        if spell.local(node.dtype) != node.dtype:
            self.line(f"{name} = {name}.astype({spell.storage(node.dtype)}).astype(jnp.float32)")
        self.env[node] = name

    # Tiles cut the reduced axes.

    def _phase(self, stage: Stage, number: int, at: str) -> None:
        """One run over the reduced axes: under `at`, where there are several."""
        saved = dict(self.env)
        self.windows.phase = number
        if at:
            self.open(f"@pl.when({at})", f"def phase{number}():")
        self._needed(stage)
        for store in stage.row_stores:
            self.store(store)
        self._body(stage)
        accumulated = []
        for fold in stage.folds:
            accumulated.append((fold, self._accumulate(fold)))
        for store in stage.stores:
            self.store(store)
        if at:
            self.close()
        self.env = saved
        for fold, text in accumulated:
            self.env[fold] = text

    def _scoped(self, stage: Stage, condition: str, number: int) -> None:
        """What is done once a row, after the last tile of the row."""
        saved = dict(self.env)
        self.windows.phase = None
        self.open(f"@pl.when({condition})", "def finish():")
        self._needed(stage)
        for store in stage.row_stores:
            self.store(store)
        self.close()
        self.env = saved

    def _needed(self, stage: Stage) -> None:
        """The values that the stage needs beside its own: those of earlier stages are computed again."""
        roots = [*stage.row, *(s.value for s in (*stage.row_stores, *stage.stores)), *(f.args[0] for f in stage.folds)]
        roots += list(stage.body)
        inside = set(stage.body)
        stack: list[tuple[Scalar, bool]] = [(root, False) for root in reversed(roots) if root not in inside]
        stack += [(n, False) for node in stage.body for n in operands(node) if n not in inside]
        while stack:
            node, ready = stack.pop()
            if (node in self.env and not ready) or node.op == "const":
                continue
            if node.op == "fold":
                raise Refused("it needs a fold before it is there")
            if not ready:
                stack.append((node, True))
                stack.extend((n, False) for n in operands(node) if n not in inside)
            elif node not in self.env and node not in inside:
                if self.spans(node) and node.op == "scan":
                    raise Refused("it needs a running fold again in a later run")
                self.define(node)

    def _accumulate(self, fold: Scalar) -> str:
        """Take the tile's part into the result so far; the text of the whole result."""
        spec = fold.attr
        self._fold(fold)
        part, name = self.env[fold], self.name(fold)
        if spec.fold in POSITIONS:
            best = self._scratch(fold, "most", self.varies[fold], spec)
            at = self._scratch(fold, "where", self.varies[fold], None)
            better = ">" if spec.fold == "argmax" else "<"
            nan = (
                f" | (({name}_best != {name}_best) & ({best}[...] == {best}[...]))"
                if is_inexact(spec.accumulator)
                else ""
            )
            self.line(f"{name}_takes = first | ({name}_best {better} {best}[...]){nan}")
            self.line(f"{at}[...] = jnp.where({name}_takes, {name}_at, {at}[...])")
            self.line(f"{best}[...] = jnp.where({name}_takes, {name}_best, {best}[...])")
            return f"{at}[...].astype({spell.storage(fold.dtype)})"
        so_far = self._scratch(fold, "total", self.varies[fold], spec)
        if spec.accumulator == BOOL:
            part = f"({part}).astype(jnp.int32)"
        combined = WORDS[spec.fold][0].format(f"{so_far}[...]", f"{name}_part")
        self.line(f"{name}_part = {part}")
        self.line(f"{so_far}[...] = jnp.where(first, {name}_part, {combined})")
        return f"({so_far}[...] != 0)" if spec.accumulator == BOOL else self._narrowed(fold, f"{so_far}[...]")

    def _scratch(self, node: Scalar, word: str, axes: Axes, spec: FoldSpec | None) -> str:
        """A piece of vector memory that lasts from tile to tile."""
        dtype = "jnp.int32" if spec is None or spec.accumulator == BOOL else spell.storage(spec.accumulator)
        shape = self.tiling.shape(axes) if len(self.tiling.order) > 1 else (1,)
        name = f"{self.name(node)}_{word}"
        entry = f"{name}: pltpu.VMEM({shape}, {dtype})"
        if entry not in self.scratch:
            self.scratch.append(entry)
        return name


def _reduced(spec: FoldSpec, value: str, where: str) -> str:
    """The fold of an array; unsigned integers are turned into signed ones of the same order, which Mosaic folds."""
    if spec.accumulator == BOOL:
        word = {"or": "jnp.any", "max": "jnp.any", "and": "jnp.all", "min": "jnp.all"}[spec.fold]
        return f"{word}({value}, {where})"
    word = WORDS[spec.fold][1]
    if spec.accumulator.kind != "u":
        return f"{word}({value}, {where})"
    if spec.fold == "sum":
        return f"lax.bitcast_convert_type({word}(lax.bitcast_convert_type({value}, jnp.int32), {where}), jnp.uint32)"
    flip = "jnp.uint32(2147483648)"
    signed = f"lax.bitcast_convert_type(({value}) ^ {flip}, jnp.int32)"
    return f"(lax.bitcast_convert_type({word}({signed}, {where}), jnp.uint32) ^ {flip})"


def phases(stages: Sequence[Stage]) -> int:
    """How many runs over the reduced axes a kernel makes."""
    return sum(stage.loops for stage in stages)
