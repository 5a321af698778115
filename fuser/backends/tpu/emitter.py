"""What all forms of Pallas kernels share: lines, names, values, loads, masks and stores. A form is a subclass.

A value is an array with one dimension an axis of the tile, of extent 1 along those where it does not vary; JAX's
broadcasting does the rest. Blocks overhang ragged edges: what is read there is nothing, and what is written there is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from fuser.backends.tpu import spell
from fuser.backends.tpu.blocks import Windows
from fuser.backends.tpu.tiling import AxisIndex, Refused, Tiling
from fuser.ir.index import Affine, Axis, Computed, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, KEY
from fuser.kernel.emitter import NOWHERE as NONE
from fuser.kernel.emitter import BlockEmitter
from fuser.kernel.kernel import Kernel, Store

Axes = frozenset[Axis]
INT = 1 << 31
MOST_LOOKED_UP = 4096  # elements of a table that is searched for each row


class Emitter(BlockEmitter):
    """Writes the body of one kernel. Nodes vary along axes."""

    depth = 2

    def __init__(self, kernel: Kernel, tiling: Tiling, windows: Windows) -> None:
        super().__init__(kernel)
        self.tiling = tiling
        self.windows = windows
        self.words: dict[Scalar, tuple[str, str]] = {}  # of random keys: the texts of their words
        self.scratch: list[str] = []

    # The parts of a text.

    def body(self) -> list[str]:
        """The lines, behind those that name the program's position in the grid where it is used."""
        words = set(re.findall(r"\w+", " ".join(self.lines)))
        pad = "    " * self.depth
        names = enumerate(self.windows.grid.names)
        return [*(f"{pad}{name} = pl.program_id({n})" for n, name in names if name in words), *self.lines]

    # Values.

    def constant(self, node: Scalar) -> str:
        return spell.literal(node.attr, node.dtype)

    def array(self, node: Scalar, axes: Axes) -> str:
        """A node as an array that spans at least `axes`."""
        shape = self.tiling.shape(axes | self.spans(node))
        if node.op == "const":
            return f"jnp.full({shape}, {self.operand(node)}, {spell.storage(spell.local(node.dtype))})"
        if axes <= self.spans(node):
            return self.operand(node)
        return f"jnp.broadcast_to({self.operand(node)}, {shape})"

    def define(self, node: Scalar) -> None:
        if node.op == "const" or node in self.env or self._key_word(node):
            return
        if node.dtype.itemsize == 8 and node.dtype != spell.POSITION:
            raise Refused(f"it computes with numbers of 64 bits, {node.dtype.name}")
        super().define(node)

    def position(self, node: Scalar) -> str:
        text, self.varies[node] = self.number(node.attr, node.dtype)
        return text

    def arguments(self, node: Scalar) -> list[str]:
        if all(a.op == "const" for a in node.args):
            return [spell.typed(a.attr, a.dtype) for a in node.args]
        return super().arguments(node)

    def operation(self, node: Scalar, args: list[str]) -> str:
        text: str = spell.TABLE.operation(node, args)
        return text

    def _key_word(self, node: Scalar) -> bool:
        """Whether the node is part of a random key, whose two words other machines hold in one number of 64 bits."""
        if node.op == "load" and node.dtype == KEY:
            param, where = self.tiling.access(node.attr)
            if where:
                raise Refused("it draws from many random keys, which are pairs of words")
            name, shape = self.windows.main(param, where).name, self.tiling.shape(NONE)
            self.words[node] = f"jnp.full({shape}, {name}[0, 0])", f"jnp.full({shape}, {name}[0, 1])"
        elif node.op == "bitcast" and node.args[0].op == "const" and node.dtype == KEY:
            both, shape = int(node.args[0].attr), self.tiling.shape(NONE)
            first, second = (f"jnp.full({shape}, jnp.uint32({n}))" for n in (both & 0xFFFFFFFF, both >> 32))
            self.words[node] = first, second
        elif node.op == "bitcast" and node.args[0] in self.words:
            self.words[node] = self.words[node.args[0]]
        elif node.op == "shr" and node.args[0] in self.words:  # by 16 and again by 16: the second word
            first, second = self.words[node.args[0]]
            self.words[node] = ("", second) if first else (second, "")
        elif node.op == "cast" and node.args[0] in self.words and node.dtype == np.uint32:
            self.line(f"{self.name(node)} = {self.words[node.args[0]][0]}")
            self.env[node] = self.name(node)
            return True
        else:
            return False
        self.env[node] = ""
        return True

    # Indices.

    def axis(self, axis: Axis) -> str:
        """The indices along an axis as an array of integers, made once in the kernel's outermost block."""
        if axis not in self.tiling.order:
            return "time"
        number = self.tiling.order.index(axis)
        shape = self.tiling.shape(frozenset((axis,)))
        text = f"lax.broadcasted_iota(jnp.int32, {shape}, {number})"
        if axis in self.tiling.cut:
            text += f" + {self.windows.position(axis)} * {self.tiling.extents[axis]}"
        key = f"place{number}"
        if key not in self.env:
            self.line(f"{key} = {text}")
            self.env[key] = key
        return key

    def number(self, index: Affine, dtype: np.dtype) -> tuple[str, Axes]:
        """An index as an integer of `dtype`, and the axes along which it varies."""
        low, high = index.bounds
        if low < -INT or high >= INT:
            raise Refused("its positions need more than 32 bits")
        text = self._affine(index)
        plain = spell.storage(dtype) == "jnp.int32" and index.terms
        return text if plain else f"jnp.asarray({text}).astype({spell.storage(dtype)})", self.index_spans(index)

    def _affine(self, index: Affine) -> str:
        parts = []
        for atom, factor in index.terms:
            if isinstance(atom, Div):
                function = "floor_div" if index.divides_negative else "lax.div"
                text = f"{function}({self._affine(atom.base)}, jnp.int32({atom.divisor}))"
            elif isinstance(atom, Computed):
                text = (
                    f"{self.operand(atom.value)}.astype(jnp.int32)"
                    if atom.value.op != "const"
                    else self.operand(atom.value)
                )
            else:
                text = self.axis(atom)
            parts.append(text if factor == 1 else f"{factor} * {text}")
        if index.offset or not parts:
            parts.append(str(index.offset))
        return " + ".join(parts)

    def span_of(self, axis: Axis) -> Axes:
        return frozenset((axis,)) & frozenset(self.tiling.order)

    def inside(self, axes: Iterable[Axis]) -> str:
        """The mask of the elements that exist, where tiles overhang some of the axes; else nothing."""
        ragged = [a for a in self.tiling.order if a in set(axes) and a.extent % self.tiling.extents[a]]
        return " & ".join(f"({self.axis(a)} < {a.extent})" for a in ragged)

    # Memory.

    def load(self, node: Scalar) -> str:
        """The elements of an array along the tile's axes, in the type in which values are computed."""
        param, where = self.tiling.access(node.attr)
        axes = frozenset(p.axis for p in where if p.axis in self.tiling.order)
        self.varies[node] = axes
        dtype = self.kernel.params[param].dtype
        text = self._read(param, where)
        if not where:  # a single number, widened before the kernel
            return f"{text} != 0" if dtype == BOOL else text
        text += ".astype(jnp.int32)" if dtype == BOOL else ".astype(jnp.float32)" if spell.local(dtype) != dtype else ""
        if len(where) == 1 and where[0].value is not None:
            text = self._looked_up(node, text, where[0])
            return f"{text} != 0" if dtype == BOOL else text
        for d, p in enumerate(where):
            if p.value is not None:
                text = self._searched(node, text, where, d, p.value)
                axes = self.varies[node] = axes | self.spans(p.value)
        text = self._arranged(text, param, where, axes)
        return f"{text} != 0" if dtype == BOOL else text

    def _read(self, param: int, where: tuple[AxisIndex, ...]) -> str:
        """The part of the blocks that an access reads, padded where it reaches beyond the array."""
        window = self.windows.main(param, where)
        shape = self.kernel.params[param].shape
        if not shape:
            return f"jnp.full({self.tiling.shape(NONE)}, {window.name}[0, 0])"
        cuts, pads, base = [], [], ""
        for d, (p, size) in enumerate(zip(where, window.block)):
            if p.axis is not None and p.axis is self.tiling.time:
                if d == len(where) - 1 and len(where) > 1:
                    raise Refused(f"an iteration reads {window.name} along its lanes")
                start = "time" if p.sign > 0 else f"{p.shift} - time"
                cuts.append(f"pl.ds({start}{f' + {p.shift}' if p.shift and p.sign > 0 else ''}, 1)")
                pads.append((0, 0))
            elif p.value is not None:
                cuts.append(":")
                pads.append((0, 0))
            elif p.axis is None or p.axis not in self.tiling.cut:
                count = 1 if p.axis is None else p.axis.extent
                low = 0 if p.axis is None and size == 1 else p.shift
                cuts.append(_cut(max(0, min(low, size - 1)), max(1, min(low + count, size)), size))
                pads.append((min(max(-low, 0), count - 1), min(max(low + count - size, 0), count - 1)))
            else:
                base, cut = self._with_halo(base, param, where, d)
                cuts.append(cut)
                pads.append((0, 0))
        text = f"{base or window.name}[{'...' if set(cuts) == {':'} else ', '.join(cuts)}]"
        text = base if base and set(cuts) == {":"} else text
        return f"jnp.pad({text}, {tuple(pads)})" if any(map(any, pads)) else text

    def _searched(self, node: Scalar, text: str, where: tuple[AxisIndex, ...], d: int, value: Scalar) -> str:
        """The element at a computed index of each row: the sum of the row with everything else at 0."""
        rows = [p.axis for p in where]
        if not self.spans(value) <= {a for a in rows if a is not None} or node.dtype.kind == "u":
            raise Refused(f"it reads {self.kernel.params[node.attr.param].name} at computed indices")
        block = tuple(self.tiling.extents[a] if a is not None else 1 for a in rows)
        block = (*block[:d], self.kernel.params[node.attr.param].shape[d], *block[d + 1 :])
        here = tuple(self.tiling.extents[a] if a is not None and a in self.spans(value) else 1 for a in rows)
        shape = self.tiling.shape(self.spans(value))
        at = self.array(value, frozenset())
        at = at if shape == here else f"{at}.reshape({here})"
        name = self.name(node)
        self.line(
            f"{name}_here = lax.broadcasted_iota(jnp.int32, {block}, {d}) == {at}{f' + {where[d].shift}' if where[d].shift else ''}"
        )
        return f"jnp.sum(jnp.where({name}_here, {text}, 0), axis={d}, keepdims=True)"

    def _looked_up(self, node: Scalar, table: str, index: AxisIndex) -> str:
        """The element of a table for each row: its lanes are searched, next to every row."""
        param, value = self.kernel.params[node.attr.param], index.value
        assert value is not None
        *rows, lanes = self.tiling.order
        if not rows or lanes in self.spans(value) or param.shape[0] > MOST_LOOKED_UP or node.dtype.kind == "u":
            raise Refused(f"it reads {param.name} at computed indices")
        self.varies[node] = self.spans(value)
        row, last = (*(1 for _ in rows), param.shape[0]), len(rows)
        wide = (*self.tiling.shape(self.spans(value))[:-1], param.shape[0])
        name, more = self.name(node), f" + {index.shift}" if index.shift else ""
        at = self.array(value, frozenset())
        self.line(f"{name}_here = lax.broadcasted_iota(jnp.int32, {wide}, {last}) == {at}{more}")
        return f"jnp.sum(jnp.where({name}_here, {table}.reshape({row}), 0), axis={last}, keepdims=True)"

    def _with_halo(self, base: str, param: int, where: tuple[AxisIndex, ...], d: int) -> tuple[str, str]:
        """The block with the rows that shifted reads need beside it, joined once; and the cut along dimension `d`."""
        axis = where[d].axis
        assert axis is not None
        shifts = [p[d].shift for n, p in self.tiling.accesses if n == param and p[d].axis is axis]
        if not any(shifts):
            return base, ":"
        if base:
            raise Refused(f"it reads {self.kernel.params[param].name} at shifted indices along two axes that tiles cut")
        window, rows = self.windows.main(param, where), self.tiling.granule(axis)
        pieces = [f"{window.name}[...]"]
        before = rows if min(shifts) < 0 else 0
        if before:
            pieces.insert(0, f"{self.windows.beside(param, where, 'before', d).name}[...]")
        if max(shifts) > 0:
            pieces.append(f"{self.windows.beside(param, where, 'after', d).name}[...]")
        key = f"{window.name}_around"
        if key not in self.env:
            self.line(f"{key} = jnp.concatenate([{', '.join(pieces)}], axis={d})")
            self.env[key] = key
        start = before + where[d].shift
        return key, f"{start}:{start + self.tiling.extents[axis]}"

    def _arranged(self, text: str, param: int, where: tuple[AxisIndex, ...], axes: Axes) -> str:
        """The elements in the shape of a value: dimensions in the tile's order, and those where it does not vary."""
        if any(p.axis is self.tiling.time for p in where if p.axis is not None) and any(p.value for p in where):
            raise Refused("an iteration reads at computed indices")
        found = [p.axis for p in where if p.axis in self.tiling.order]
        wanted = [a for a in self.tiling.order if a in axes]
        here = tuple(self.tiling.extents[p.axis] if p.axis in self.tiling.order else 1 for p in where)  # type: ignore[index]
        if found != wanted:
            wide = [a for a in found if self.tiling.extents[a] > 1]  # type: ignore[index]
            if wide != [a for a in wanted if self.tiling.extents[a] > 1]:
                if len(found) != 2 or len(here) != 2:
                    raise Refused(f"it reads {self.kernel.params[param].name} with its dimensions in another order")
                text, here = f"jnp.swapaxes({text}, 0, 1)", here[::-1]
        shape = self.tiling.shape(axes)
        return text if shape == here or not where else f"{text}.reshape({shape})"

    def store(self, store: Store) -> None:
        """Write a value to the block of its parameter."""
        param, where = self.tiling.access(store)
        target = self.kernel.params[param]
        axes = frozenset(p.axis for p in where if p.axis in self.tiling.order)
        if not self.spans(store.value) <= axes:
            raise Refused(f"{target.name} would be written several times")
        window = self.windows.output(param, where)
        text = self.array(store.value, axes)
        here = tuple(
            1 if p.axis is None or p.axis not in self.tiling.order else self.tiling.extents[p.axis] for p in where
        )
        found = [p.axis for p in where if p.axis in self.tiling.order]
        shape = self.tiling.shape(axes)
        turned = [a for a in found if self.tiling.extents[a] > 1] != [
            a for a in self.tiling.order if a in axes and self.tiling.extents[a] > 1
        ]  # type: ignore[index]
        here = here or (1, 1)
        if target.dtype == BOOL and (turned or shape != here):
            text = f"({text}).astype(jnp.int32)"  # Mosaic aborts on masks that change their shape
        if turned:
            if len(found) != 2 or len(where) != 2 or len(shape) != 2:
                raise Refused(f"it writes {target.name} with its dimensions in another order")
            text, shape = f"jnp.swapaxes({text}, 0, 1)", shape[::-1]
        text = text if shape == here else f"({text}).reshape({here})"
        if target.dtype == BOOL:  # narrowed last: Mosaic moves no bytes between lanes
            text = f"({text}).astype(jnp.int8)"
        elif spell.local(target.dtype) != target.dtype:
            text = f"({text}).astype({spell.storage(target.dtype)})"
        self.line(f"{window.name}[{self._target(where, window.block)}] = {text}")

    def _target(self, where: tuple[AxisIndex, ...], block: tuple[int, ...]) -> str:
        cuts = []
        for p, size in zip(where, block):
            if p.value is not None or (p.shift and (p.axis is None or p.axis is not self.tiling.time) and size > 1):
                raise Refused("it writes at shifted indices")
            if p.axis is not None and p.axis is self.tiling.time:
                start = "time" if p.sign > 0 else f"{p.shift} - time"
                cuts.append(f"pl.ds({start}{f' + {p.shift}' if p.shift and p.sign > 0 else ''}, 1)")
            else:
                cuts.append(":")
        return "..." if set(cuts) <= {":"} else ", ".join(cuts)


def _cut(low: int, high: int, size: int) -> str:
    return ":" if (low, high) == (0, size) else f"{low}:{high}"
