"""LOOP kernels: each element of a tile runs the whole loop, the carry in registers, until no element of the tile goes on."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.backends.tpu import spell
from fuser.backends.tpu.emitter import Axes, Emitter
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL
from fuser.kernel.kernel import Carry, Loop
from fuser.kernel.operands import needed


class LoopKernel(Emitter):
    """The body of a kernel with a loop."""

    def write(self) -> None:
        assert self.kernel.loop is not None
        loop = self.kernel.loop
        before, after = self.kernel.sweeps
        self.define_all(before.row)
        self.names_of = [f"carry{c.node.attr.number}" for c in loop.carries]
        initial = [self._settled(c.initial, c) for c in loop.carries]
        for axis in self.tiling.order:
            self.axis(axis)  # where all functions inside can see it
        if loop.time is not None:
            self._counted(loop, initial)
        else:
            self._while(loop, initial)
        for node in after.row:
            if node.op == "final":
                self._enter(node, f"carry{node.attr.number}")
        self.define_all(n for n in after.row if n.op != "final")
        for store in after.row_stores:
            self.store(store)

    def _counted(self, loop: Loop, initial: Sequence[str]) -> None:
        with self.scope():
            assert loop.time is not None
            self.open("def iteration(time, carry):")
            self._begin_iteration(loop)
            self.define_all(loop.body)
            for store in loop.stores:
                self.store(store)
            self.line(f"return {_tuple(self._settled(c.following, c) for c in loop.carries)}")
            self.close()
        target = _tuple(self.names_of) if self.names_of else "_"
        self.line(f"{target} = lax.fori_loop(0, {loop.time.extent}, iteration, {_tuple(initial)})")

    def _while(self, loop: Loop, initial: Sequence[str]) -> None:
        """The lanes that go on are part of the carry, as integers: Mosaic hands on no masks."""
        saved = dict(self.env)
        count = len(loop.predicates)
        self.open("def decide(*carry):")
        self._begin_iteration(loop)
        self.define_all(needed(loop.predicates, loop.body))
        self.line(f"return {_tuple(map(self._going, loop.predicates))}")
        self.close()
        self.env = dict(saved)
        self.open("def test(carry):")
        self.line("return " + " | ".join(f"(jnp.max(carry[{n}]) > 0)" for n in range(count)))
        self.close()
        self.open("def iteration(carry):")
        self.line(f"going, carry = carry[:{count}], carry[{count}:]")
        self._begin_iteration(loop)
        self.define_all(loop.body)
        for store in loop.stores:
            self.store(store)
        following = []
        for number, carry in enumerate(loop.carries):
            self.line(f"next{number} = {self._settled(carry.following, carry)}")
            going = f"going[{carry.guard}]" if carry.node.attr.axes else f"jnp.max(going[{carry.guard}])"
            following.append(f"jnp.where({going} > 0, next{number}, carry[{number}])")
        self.line(f"carry = {_tuple(following)}")
        self.line("return (*decide(*carry), *carry)")
        self.close()
        self.env = saved
        self.line(f"carry = {_tuple(initial)}")
        names = _tuple([*("_" for _ in range(count)), *self.names_of])
        self.line(f"{names} = lax.while_loop(test, iteration, (*decide(*carry), *carry))")

    def _begin_iteration(self, loop: Loop) -> None:
        """Name the carry as the iteration finds it; bools come as integers."""
        for number, carry in enumerate(loop.carries):
            text = f"carry[{number}]"
            if carry.node.dtype == BOOL:
                self.line(f"carry{number}_holds = {text} != 0")
                text = f"carry{number}_holds"
            self.env[carry.node] = text
            self.varies[carry.node] = self._axes(carry.node)

    def _axes(self, node: Scalar) -> Axes:
        return frozenset(self.tiling.order) if node.attr.axes else frozenset()

    def _enter(self, node: Scalar, name: str) -> None:
        self.env[node] = f"({name} != 0)" if node.dtype == BOOL else name
        self.varies[node] = self._axes(node)

    def _going(self, predicate: Scalar) -> str:
        """Which elements go on, as integers; those beyond the edges do not."""
        everywhere = frozenset(self.tiling.order)
        text, mask = self.array(predicate, everywhere), self.inside(everywhere)
        return f"({text}{' & ' + mask if mask else ''}).astype(jnp.int32)" if mask else f"({text}).astype(jnp.int32)"

    def _settled(self, value: Scalar, carry: Carry) -> str:
        """A value with exactly the type and the shape that the carry has in every iteration."""
        dtype = carry.node.dtype
        text = self.array(value, self._axes(carry.node))
        if dtype == BOOL:
            return f"({text}).astype(jnp.int32)"
        wide = spell.storage(spell.local(dtype))
        rounded = f".astype({spell.storage(dtype)})" if spell.local(dtype) != dtype else ""
        return f"({text}){rounded}.astype({wide})"


def _tuple(texts: object) -> str:
    found = list(texts)  # type: ignore[call-overload]
    return f"({', '.join(found)}{',' if len(found) == 1 else ''})"
