"""Elementwise kernels, reductions and scans: one sweep after the other on a tile.

Where a tile holds whole rows, reductions are reductions of arrays. Where tiles cut the reduced axes, the grid runs over them
once a sweep (a phase), and reductions and scans hand on what they have so far in scratch memory; the order is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.backends.tpu import spell
from fuser.backends.tpu.emitter import Axes, Emitter
from fuser.backends.tpu.tiling import LANES, SUBLANES, Refused
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_inexact
from fuser.kernel.kernel import ReductionSpec, Sweep, reduction_identity
from fuser.kernel.operands import operands

CHAIN = 64  # vectors that are added one after the other
POSITIONS = ("argmax", "argmin")
# reduction: (how two values combine, how an array is reduced)
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


class Rows(Emitter):
    """The body of a kernel without a loop."""

    def write(self) -> None:
        columns = self.tiling.cut_columns
        looping = [s for s in self.kernel.sweeps if s.loops]
        if not columns:
            for sweep in self.kernel.sweeps:
                self._whole(sweep)
            return
        last = " & ".join(f"({self.windows.grid.name(a)} == {self.tiling.blocks(a) - 1})" for a in columns)
        self.line("first = " + " & ".join(f"({self.windows.grid.name(a)} == 0)" for a in columns))
        number = -1
        for sweep in self.kernel.sweeps:
            number += sweep.loops
            at = f"(phase == {number})" if len(looping) > 1 else ""
            if sweep.loops:
                self._phase(sweep, number, at)
            elif sweep.row_stores:
                self._scoped(sweep, " & ".join(filter(None, (at, last))))

    # A tile holds whole rows.

    def _whole(self, sweep: Sweep) -> None:
        self.define_all(sweep.row)
        for store in sweep.row_stores:
            self.store(store)
        self._body(sweep)
        for reduction in sweep.reductions:
            self._reduction(reduction)
            self.line(f"{self.name(reduction)} = {self._narrowed(reduction, self.env[reduction])}")
            self.env[reduction] = self.name(reduction)
        for store in sweep.stores:
            self.store(store)

    def _body(self, sweep: Sweep) -> None:
        for node in sweep.body:
            if node.op == "scan":
                self._scan(node)
            else:
                self.define(node)

    def _reduction(self, reduction: Scalar) -> None:
        """Reduce what the tile holds along the reduced axes; `env` has the text, positions a second one as `(node, "at")`."""
        spec, (operand,) = reduction.attr, reduction.args
        axes = self.spans(operand) & set(self.tiling.order) - set(self.kernel.reduced)
        self.varies[reduction] = axes | self._rows_of(operand)
        value = self._element(operand, spec)
        along = tuple(n for n, a in enumerate(self.tiling.order) if a in self.kernel.reduced)
        where = f"axis={along if len(along) > 1 else along[0]}, keepdims=True"
        if spec.reduction in POSITIONS:
            (number,) = along
            name = self.name(reduction)
            self.line(f"{name}_element = {value}")
            self.line(f"{name}_best = {WORDS[spec.reduction][1]}({name}_element, {where})")
            place = f"place({name}_element, {name}_best, {self.axis(self.tiling.order[number])}, {number})"
            self.line(f"{name}_at = {place}")
            self.env[reduction] = f"{name}_at"
            return
        if spec.compensated and len(along) == 1:
            (number,) = along
            length = CHAIN * {1: LANES, 2: SUBLANES}.get(len(self.tiling.order) - number, 1)
            if self.tiling.extents[self.tiling.order[number]] > 2 * length:
                self.env[reduction] = f"block_sum({value}, {number}, {length})"
                return
        self.env[reduction] = _reduced(spec, value, where)

    def _rows_of(self, operand: Scalar) -> Axes:
        return frozenset(a for a in self.spans(operand) if a not in self.kernel.reduced)

    def _element(self, operand: Scalar, spec: ReductionSpec) -> str:
        """What is reduced, along all reduced axes, with the reduction's identity where nothing is."""
        value = self.array(operand, frozenset(self.kernel.reduced))
        mask = self.inside(self.kernel.reduced)
        if not mask:
            return value
        name = f"{self.name(operand)}_live"
        if name not in self.env:
            self.line(f"{name} = {mask}")
            self.env[name] = name
        identity = spell.literal(reduction_identity(spec.reduction, spec.accumulator), spec.accumulator)
        if operand.dtype == BOOL:
            return f"{value} & {name}" if identity == "False" else f"{value} | ~({name})"
        return f"jnp.where({name}, {value}, {identity})"

    def _narrowed(self, reduction: Scalar, text: str) -> str:
        """The reduction's result in its own type, which is rounded from that of its accumulator."""
        if reduction.attr.reduction in POSITIONS:
            return f"{text}.astype({spell.storage(reduction.dtype)})"
        half = spell.local(reduction.dtype) != reduction.dtype
        return f"({text}).astype({spell.storage(reduction.dtype)}).astype(jnp.float32)" if half else text

    def _scan(self, node: Scalar) -> None:
        """The prefix scan along the reduced axis; with tiles that cut it, from what the tile before handed on."""
        spec, (operand,) = node.attr, node.args
        (axis,) = self.kernel.reduced
        number = self.tiling.order.index(axis)
        self.varies[node] = self.spans(operand) | {axis}
        identity = spell.literal(reduction_identity(spec.reduction, spec.accumulator), spec.accumulator)
        name = self.name(node)
        self.line(
            f"{name} = running({self._element(operand, spec)}, {_COMBINE[spec.reduction]}, {identity}, {number}, {spec.reverse})"
        )
        if axis in self.tiling.cut:
            self._carry(node, axis, number)
        if spell.local(node.dtype) != node.dtype:
            self.line(f"{name} = {name}.astype({spell.storage(node.dtype)}).astype(jnp.float32)")
        self.env[node] = name

    def _carry(self, node: Scalar, axis: Axis, number: int) -> None:
        """Put what the tile before handed on before the prefix scan of the tile, and hand on its last element."""
        spec, name = node.attr, self.name(node)
        identity = spell.literal(reduction_identity(spec.reduction, spec.accumulator), spec.accumulator)
        carry = self._scratch(node, "carry", self.varies[node] - {axis}, spec)
        start = f"jnp.where(first, {identity}, {carry}[...])"
        end = 0 if spec.reverse else self.tiling.extents[axis] - 1
        last = f"lax.slice_in_dim({name}, {end}, {end + 1}, axis={number})"
        if not spec.compensated:
            self.line(f"{name} = {WORDS[spec.reduction][0].format(start, name)}")
            self.line(f"{carry}[...] = {last}")
            return
        lost = self._scratch(node, "lost", self.varies[node] - {axis}, spec)
        self.line(f"{name}_start, {name}_rest = {start}, jnp.where(first, {identity}, {lost}[...])")
        self.line(f"{carry}[...], {lost}[...] = two_sum({name}_start, {name}_rest, {last})")
        self.line(f"{name} = {name}_start + whole_sum({name}, {name}_rest)")

    # Tiles cut the reduced axes.

    def _phase(self, sweep: Sweep, number: int, at: str) -> None:
        """One run over the reduced axes: under `at`, where there are several."""
        with self.scope():
            self.windows.phase = number
            if at:
                self.open(f"@pl.when({at})", f"def phase{number}():")
            self._needed(sweep)
            for store in sweep.row_stores:
                self.store(store)
            self._body(sweep)
            accumulated = []
            for reduction in sweep.reductions:
                accumulated.append((reduction, self._accumulate(reduction)))
            for store in sweep.stores:
                self.store(store)
            if at:
                self.close()
        for reduction, text in accumulated:
            self.env[reduction] = text

    def _scoped(self, sweep: Sweep, condition: str) -> None:
        """What is done once a row, after the last tile of the row."""
        with self.scope():
            self.windows.phase = None
            self.open(f"@pl.when({condition})", "def finish():")
            self._needed(sweep)
            for store in sweep.row_stores:
                self.store(store)
            self.close()

    def _needed(self, sweep: Sweep) -> None:
        """The values that the sweep needs beside its own: those of earlier sweeps are computed again."""
        roots = [
            *sweep.row,
            *(s.value for s in (*sweep.row_stores, *sweep.stores)),
            *(f.args[0] for f in sweep.reductions),
        ]
        roots += list(sweep.body)
        inside = set(sweep.body)
        stack: list[tuple[Scalar, bool]] = [(root, False) for root in reversed(roots) if root not in inside]
        stack += [(n, False) for node in sweep.body for n in operands(node) if n not in inside]
        while stack:
            node, ready = stack.pop()
            if (node in self.env and not ready) or node.op == "const":
                continue
            if node.op == "reduction":
                raise Refused("it needs a reduction before it is there")
            if not ready:
                stack.append((node, True))
                stack.extend((n, False) for n in operands(node) if n not in inside)
            elif node not in self.env and node not in inside:
                if self.spans(node) and node.op == "scan":
                    raise Refused("it needs a prefix scan again in a later run")
                self.define(node)

    def _accumulate(self, reduction: Scalar) -> str:
        """Take the tile's part into the result so far; the text of the whole result."""
        spec = reduction.attr
        self._reduction(reduction)
        part, name = self.env[reduction], self.name(reduction)
        if spec.reduction in POSITIONS:
            best = self._scratch(reduction, "most", self.varies[reduction], spec)
            at = self._scratch(reduction, "where", self.varies[reduction], None)
            better = ">" if spec.reduction == "argmax" else "<"
            nan = (
                f" | (({name}_best != {name}_best) & ({best}[...] == {best}[...]))"
                if is_inexact(spec.accumulator)
                else ""
            )
            self.line(f"{name}_takes = first | ({name}_best {better} {best}[...]){nan}")
            self.line(f"{at}[...] = jnp.where({name}_takes, {name}_at, {at}[...])")
            self.line(f"{best}[...] = jnp.where({name}_takes, {name}_best, {best}[...])")
            return f"{at}[...].astype({spell.storage(reduction.dtype)})"
        so_far = self._scratch(reduction, "total", self.varies[reduction], spec)
        if spec.accumulator == BOOL:
            part = f"({part}).astype(jnp.int32)"
        self.line(f"{name}_part = {part}")
        if spec.compensated:
            lost = self._scratch(reduction, "lost", self.varies[reduction], spec)
            self.line(f"{name}_next, {name}_rest = two_sum({so_far}[...], {lost}[...], {name}_part)")
            self.line(f"{so_far}[...] = jnp.where(first, {name}_part, {name}_next)")
            self.line(f"{lost}[...] = jnp.where(first, 0, {name}_rest)")
            return self._narrowed(reduction, f"whole_sum({so_far}[...], {lost}[...])")
        combined = WORDS[spec.reduction][0].format(f"{so_far}[...]", f"{name}_part")
        self.line(f"{so_far}[...] = jnp.where(first, {name}_part, {combined})")
        return f"({so_far}[...] != 0)" if spec.accumulator == BOOL else self._narrowed(reduction, f"{so_far}[...]")

    def _scratch(self, node: Scalar, word: str, axes: Axes, spec: ReductionSpec | None) -> str:
        """A piece of vector memory that lasts from tile to tile."""
        dtype = "jnp.int32" if spec is None or spec.accumulator == BOOL else spell.storage(spec.accumulator)
        shape = self.tiling.shape(axes) if len(self.tiling.order) > 1 else (1,)
        name = f"{self.name(node)}_{word}"
        entry = f"{name}: pltpu.VMEM({shape}, {dtype})"
        if entry not in self.scratch:
            self.scratch.append(entry)
        return name


def _reduced(spec: ReductionSpec, value: str, where: str) -> str:
    """The reduction of an array; unsigned integers are turned into signed ones of the same order, which Mosaic reductions."""
    if spec.accumulator == BOOL:
        word = {"or": "jnp.any", "max": "jnp.any", "and": "jnp.all", "min": "jnp.all"}[spec.reduction]
        return f"{word}({value}, {where})"
    word = WORDS[spec.reduction][1]
    if spec.accumulator.kind != "u":
        return f"{word}({value}, {where})"
    if spec.reduction == "sum":
        return f"lax.bitcast_convert_type({word}(lax.bitcast_convert_type({value}, jnp.int32), {where}), jnp.uint32)"
    flip = "jnp.uint32(2147483648)"
    signed = f"lax.bitcast_convert_type(({value}) ^ {flip}, jnp.int32)"
    return f"(lax.bitcast_convert_type({word}({signed}, {where}), jnp.uint32) ^ {flip})"


def phases(sweeps: Sequence[Sweep]) -> int:
    """How many runs over the reduced axes a kernel makes."""
    return sum(sweep.loops for sweep in sweeps)
