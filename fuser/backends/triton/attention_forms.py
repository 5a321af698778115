"""The forms of an attention's kernel, the fastest first: with copies by tensor maps or without, products of weights a step behind or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from fuser.backends.triton import spell
from fuser.backends.triton.attention_kernel import (
    COLUMN,
    COLUMN_DOWN,
    DEPTH_DOWN,
    FEATURE,
    MATRIX_BYTES,
    AttentionKernel,
)
from fuser.backends.triton.block_sizes import AttentionTile
from fuser.backends.triton.emitter import Function, Launch, either
from fuser.backends.triton.tensor_maps import Copied, copied
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.attention import Attention, Side
from fuser.kernel.kernel import Kernel


def attention(kernel: Kernel, parts: Attention, orders: dict[Side, tuple[Scalar, ...]]) -> Function:
    """The function with copies by tensor maps, where arrays lie so, and behind it the one without; `orders`: of each operand its nodes."""
    plain = AttentionKernel(kernel, parts, orders, kernel.name)
    mapped = MappedAttention(kernel, parts, orders, f"{kernel.name}_mapped")
    if not mapped.copies:
        return plain.write()
    forms: list[AttentionKernel] = [mapped, plain]
    if mapped.can_be_behind:
        forms.insert(0, MappedAttention(kernel, parts, orders, f"{kernel.name}_behind", behind=True))
    return either([form.write() for form in forms])


class MappedAttention(AttentionKernel):
    """The same with copies by tensor maps of what is walked along."""

    @cached_property
    def copies(self) -> dict[Scalar, tuple[Copied, str, str, str]]:
        """Of each load its copy, the map's name, the walked dimension and the other one."""
        found: dict[Scalar, tuple[Copied, str, str, str]] = {}
        if self.wide or self.parts.itemsize > MATRIX_BYTES:
            return found
        sides = [
            (score.walked, (COLUMN, f"{DEPTH_DOWN}{number}"), score.depth[1], self.tile.depths[number])
            for number, score in enumerate(self.parts.scores)
            if self.whole(number)
        ]
        sides += [
            (total.value, (COLUMN_DOWN, f"{FEATURE}{number}"), total.features[0], self.tile.features[number])
            for number, total in enumerate(self.parts.totals)
            if len(total.features) == 1
        ]
        for side, dims, other, size in sides:
            for node, copy in self._copies(side, dims, other, size):
                found[node] = (copy, f"map{len(found)}", *dims)
        return found

    def _copies(self, side: Side, dims: tuple[str, str], other: Axis, size: int) -> Iterator[tuple[Scalar, Copied]]:
        """The copies of an operand's loads, along the walked dimension and another one with its axis and block."""
        walked = [axis for axis in self.parts.walked[dims[0] == COLUMN_DOWN] if axis.extent != 1]
        batch = [axis for axis in self.parts.axes["batch"] if axis.extent != 1]
        single = frozenset(axis for axis in self.loops.extents if axis.extent == 1)
        for node in (n for n in self.orders[side] if n.op == "load"):
            found = copied(self.kernel, node, walked, other, batch, self.loops.extents, single, (self.tile.n, size))
            if found is not None:
                yield node, found

    def load_text(self, node: Scalar, widen: bool = True) -> str:
        if node not in self.copies:
            return super().load_text(node, widen)
        copy, name, walked, other = self.copies[node]
        self.maps[name], self.varies[node] = copy.map, frozenset((walked, other))
        at = (self.begin, "0") if copy.along_k else ("0", self.begin)
        text = f"{name}.load([{', '.join([*(self.axis_names[axis] for axis in copy.batch), *at])}])"
        order = (walked, other) if copy.along_k else (other, walked)
        if copy.batch:
            text += f".reshape({self.blocks[order[0]]}, {self.blocks[order[1]]})"
        down = walked if walked == COLUMN_DOWN else other
        text = text if order[0] == down else f"tl.trans({text})"
        return text + (spell.widened(self.kernel.params[node.attr.param].dtype) if widen else "")

    def _with_tile(self, launch: Launch, tile: AttentionTile) -> Launch:
        maps, copies = [], {name: copy for copy, name, *_ in self.copies.values()}
        for copy in map(copies.__getitem__, self.maps):
            *outer, rows, columns = copy.map.block
            block = (*outer, tile.n, columns) if copy.along_k else (*outer, rows, tile.n)
            maps.append(replace(copy.map, block=block))
        return replace(super()._with_tile(launch, tile), maps=tuple(maps))
