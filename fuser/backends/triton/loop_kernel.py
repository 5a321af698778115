"""Kernels with a loop inside: a block of lanes along one axis, its carry in registers, one program a block.

A while runs for as long as one lane of the block does, and the lanes that have ended keep their carry. Lanes past the
end of the axis never go on, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.backends.triton import block_sizes as tiles
from fuser.backends.triton import spell
from fuser.backends.triton.emitter import NONE, Emitter, Function
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Carry, Loop
from fuser.kernel.operands import needed

_LANES = frozenset("x")


class LoopKernel(Emitter):
    """One axis of lanes, or none at all."""

    def write(self) -> Function:
        assert self.kernel.loop is not None
        loop: Loop = self.kernel.loop
        tile, count = tiles.LANES, 1
        if self.loops.parallel:
            (axis,) = self.loops.parallel
            name, count = self.axis_names[axis], self.loops.extents[axis]
            self.axis_dims[axis] = _LANES
            self.line(f"{name} = {self.program()} * BLOCK + tl.arange(0, BLOCK)")
            self.line(f"inside = {name} < {self.extents[axis]}")
            self.line("first = tl.program_id(0) == 0")
            self.masks["x"], self.extra_mask["x"] = "inside", "first"
        before, after = self.kernel.sweeps
        self.define_all(before.row)
        for carry in loop.carries:
            self.varies[carry.node] = _LANES if carry.node.attr.axes else NONE
            self.env[carry.node] = f"carry{carry.node.attr.number}"
            self.line(f"{self.env[carry.node]} = {self._settled(carry.initial, carry)}")
        self._iterations(loop)
        for node in after.row:
            if node.op == "final":
                self.varies[node] = _LANES if node.attr.axes else NONE
                self.env[node] = f"carry{node.attr.number}"
        self.define_all(after.row)
        for store in after.row_stores:
            self.store(store)
        constants = {"BLOCK": tile.columns} if self.loops.parallel else {}
        return self.finish(constants, -(-count // tile.columns), tile.warps if self.loops.parallel else 1, tile.hints)

    def zero(self, dim: str) -> str:
        return "tl.zeros((BLOCK,), tl.int32)"

    def _iterations(self, loop: Loop) -> None:
        saved = dict(self.env)
        going: list[str] = []
        if loop.time is not None:
            self.axis_names[loop.time] = "time"
            steps = self.sizes.extent(loop.time, loop.time.extent)
            self.line(f"time = tl.full((), 0, {'tl.int64' if self.wide else 'tl.int32'})")
            self.open(f"for _ in range(0, {steps}):")
        else:
            going = self._decide(loop)
            self.open(f"while {' or '.join(self._any(loop.predicates, going))}:")
        self.define_all(loop.body)
        for store in loop.stores:
            self.store(store)
        for carry in loop.carries:
            self.line(f"next{carry.node.attr.number} = {self._settled(carry.following, carry)}")
        for carry in loop.carries:
            name, following = self.env[carry.node], f"next{carry.node.attr.number}"
            chosen = f"tl.where({going[carry.guard]}, {following}, {name})" if going else following
            self.line(f"{name} = {chosen}")
        if loop.time is not None:
            self.line("time += 1")
        else:
            self.env = dict(saved)
            self._decide(loop)
        self.close()
        self.env = saved

    def _decide(self, loop: Loop) -> list[str]:
        """Which lanes go on, by the carry as it now stands."""
        self.define_all(needed(loop.predicates, loop.body))
        names = []
        for number, predicate in enumerate(loop.predicates):
            text = self.operand(predicate)
            if (predicate.op == "const" and self.loops.parallel) or self.spans(predicate):
                text = f"{text} & inside"
            names.append(f"going{number}")
            self.line(f"{names[-1]} = {text}")
        return names

    def _any(self, predicates: Sequence[Scalar], names: Sequence[str]) -> list[str]:
        wide = [bool(self.spans(p)) for p in predicates]
        return [
            f"tl.max({name}.to(tl.int32), 0) > 0" if lanes else f"{name}.to(tl.int32) > 0"
            for name, lanes in zip(names, wide)
        ]

    def _settled(self, value: Scalar, carry: Carry) -> str:
        """A value with exactly the type and the shape that the carry has in every iteration."""
        dtype = carry.node.dtype
        text = self.operand(value)
        rounded = f".to({spell.storage(dtype)})" if spell.storage(dtype) != spell.local(dtype) else ""
        text = f"({text}){rounded}.to({spell.local(dtype)})"
        if carry.node.attr.axes and not self.spans(value):
            return f"tl.broadcast_to({text}, (BLOCK,))"
        return text
