"""LOOP group → Kernel: what comes before the loop, one iteration, and what comes after it, as scalars of one lane.

Only carries that the results or the predicate need are kept. Nodes are sorted by when they can be had: before the loop
(what does not depend on the iteration), in each iteration, or after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fuser.config import config
from fuser.ir.graph import Eqn, Operand, Var
from fuser.ir.index import ZERO, Affine, Axis, delinearise, linearise
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.kernel.check import check
from fuser.kernel.kernel import Carried, Carry, Kernel, Loop, Store, Sweep
from fuser.kernel.lower import Demand, Sweeping, comments, params, results
from fuser.kernel.operands import computed, in_order, operands, own_axes
from fuser.kernel.substitution import Substitution
from fuser.partition.group import FusionGroup, Layout
from fuser.partition.loop import REGISTERS, SMALLEST_SUBGROUP
from fuser.partition.unroll import Expansion, Parts, parts
from fuser.partition.values import Index, deep_recursion

BEFORE, INSIDE, AFTER = 0, 1, 2


def lower_loop(group: FusionGroup) -> Kernel:
    """The loop program of a LOOP group."""
    with deep_recursion():
        kernel = _Lowering(group).kernel()
    return check(kernel) if config.check else kernel


class _Elements(Expansion):
    """One lane's expressions: elements of operands come from the group, those of the carry are `carry` nodes."""

    def __init__(
        self, demand: Demand, pieces: Parts, layouts: list[Layout], lanes: tuple[Axis, ...], time: Axis | None
    ) -> None:
        small = len(lanes) == 1 and SMALLEST_SUBGROUP <= lanes[0].extent <= REGISTERS
        small = small and all(axis is None or axis in lanes for layout in layouts for axis in layout)
        super().__init__(pieces, layouts, lanes, lanes[0] if small else None)
        self.demand = demand
        self.time = time
        self.nodes: dict[tuple[int, tuple[int, ...]], Scalar] = {}  # in the order in which they are first needed

    def operand(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        return self.demand.value(operand, index, mask)

    def placeholder(self, number: int, index: tuple[int, ...]) -> Scalar:
        key = (number, index)
        if key not in self.nodes:
            axes = frozenset(a for a in self.layouts[number] if a is not None and a in self.lanes)
            dtype = self.parts.initial[number].aval.dtype
            self.nodes[key] = Scalar("carry", (), dtype, Carried(len(self.nodes), axes))
        return self.nodes[key]

    def row(self) -> Affine:
        assert self.time is not None
        return self.parts.row(self.time)


class _Group(Demand):
    """Values of a LOOP group; those of the loop's results are `final` nodes."""

    elements: _Elements
    loop: Eqn

    def other(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        if eqn.primitive.fusion is not Fusion.CONTROL:
            return super().other(eqn, operand, index, mask)
        number = eqn.outvars.index(operand)
        if number >= self.elements.parts.carries:
            return self.elements.following(number, index[1:])
        layout = self.elements.layouts[number]
        registers = tuple(i.offset for a, i in zip(layout, index) if a is not None and a not in self.elements.lanes)
        carry = self.elements.placeholder(number, registers)
        return self.once(("final", carry), lambda: Scalar("final", (), carry.dtype, carry.attr))


class _Lowering:
    """Makes the kernel of one group."""

    def __init__(self, group: FusionGroup) -> None:
        self.group = group
        (self.eqn,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.CONTROL)
        self.parts = parts(self.eqn)
        carries = self.parts.carries
        layouts = [group.layout[v] for v in self.eqn.outvars[:carries]]
        layouts += [group.layout[v][1:] for v in self.eqn.outvars[carries:]]
        self.demand = _Group(group)
        time = None if self.parts.length is None else Axis(self.parts.length, "time")
        if carries == 0:  # iterations are lanes like others
            time = next((axis for v in self.eqn.outvars if (axis := group.layout[v][0]) is not None), time)
        self.elements = self.demand.elements = _Elements(self.demand, self.parts, layouts, group.parallel, time)
        self.predicates: dict[tuple[int, ...], Scalar] = {}

    def kernel(self) -> Kernel:
        after, inside = self._stores()
        if self.elements.time in self.group.parallel:
            return self._without_loop([*after, *inside])
        carries = self._carries()
        group = self.group
        empty = Kernel(group.name, params(group), group.parallel, (), (), comments(group))
        return with_loop(
            empty, Loop(self.elements.time, carries, tuple(self.predicates.values()), (), tuple(inside)), after
        )

    def _without_loop(self, stores: list[Store]) -> Kernel:
        """The kernel of a loop whose iterations need nothing of each other: all of them side by side."""
        group = self.group
        return Kernel(group.name, params(group), group.parallel, (), Sweeping(()).cut(stores), comments(group))

    def _stores(self) -> tuple[list[Store], list[Store]]:
        """What is written after the loop, and what each iteration writes."""
        after, inside = [], []
        first = len(self.group.graph.invars)
        for number, var in enumerate(results(self.group)):
            position = self.eqn.outvars.index(var) if var in self.eqn.outvars else -1
            if position < 0:
                index = tuple(ZERO if axis is None else Affine.of(axis) for axis in self.group.layout[var])
                value = self.demand.value(var, index, None)
                after.append(Store(first + number, linearise(index, var.aval.shape), value, index))
                continue
            for _, index in self.elements.elements(self.elements.layouts[position]):
                if position < self.parts.carries:
                    value = self.demand.value(var, index, None)
                    after.append(Store(first + number, linearise(index, var.aval.shape), value, index))
                else:
                    whole = (self.elements.row(), *index)
                    offset = linearise(whole, var.aval.shape)
                    inside.append(Store(first + number, offset, self.elements.following(position, index), whole))
        return after, inside

    def _carries(self) -> tuple[Carry, ...]:
        """The numbers that iterations hand on: those needed, those that they need, and so on."""
        found: list[Carry] = []
        nodes = self.elements.nodes
        for layout in self.elements.layouts[: self.parts.carries] if self.parts.predicate is not None else ():
            for _, index in self.elements.elements(layout):
                self._predicate(index, layout)
        while len(found) < len(nodes):
            number, registers = list(nodes)[len(found)]
            layout = self.elements.layouts[number]
            index = dict(self.elements.elements(layout))[registers]
            initial = self.demand.value(self.parts.initial[number], index, None)
            following = self.elements.following(number, index)
            guard = self._predicate(index, layout) if self.parts.predicate is not None else 0
            found.append(Carry(nodes[number, registers], initial, following, guard))
        return tuple(found)

    def _predicate(self, index: Index, layout: Layout) -> int:
        """The number of the predicate that guards a carry's element; elements along further dimensions share it."""
        assert self.parts.predicate is not None
        rank = self.parts.predicate.outvars[0].aval.ndim
        held = (i.offset for i, a in zip(index[:rank], layout) if a is not None and a not in self.elements.lanes)
        key = tuple(held)
        if key not in self.predicates:
            self.predicates[key] = self.elements.continues(index)
        return list(self.predicates).index(key)


def with_loop(kernel: Kernel, loop: Loop, after: Sequence[Store]) -> Kernel:
    """The kernel that runs `loop`, whose body is found here, and then writes `after`: nodes sorted by when they can be had."""
    when: dict[Scalar, int] = {}
    before = [c.initial for c in loop.carries]
    within = [*(c.following for c in loop.carries), *loop.predicates, *(s.value for s in loop.stores)]
    for node in in_order([*before, *within, *_offsets(loop.stores)]):
        when[node] = _time_of(node, loop.time, when)
    for node in in_order([*(s.value for s in after), *_offsets(after)], known=when):
        when[node] = _time_of(node, None, when)
    head, tail = ([n for n, time in when.items() if time == part] for part in (BEFORE, AFTER))
    body = tuple(n for n, time in when.items() if time == INSIDE and n.op != "carry")
    sweeps = (Sweep(tuple(head), (), (), (), ()), Sweep(tuple(tail), tuple(after), (), (), ()))
    return replace(kernel, sweeps=sweeps, loop=replace(loop, body=body))


def _offsets(stores: Iterable[Store]) -> list[Scalar]:
    return [value for store in stores for value in computed(store.offset)]


def _time_of(node: Scalar, time: Axis | None, when: Mapping[Scalar, int]) -> int:
    """The time from which a node can be had, of which those of its operands are known."""
    own = {"carry": INSIDE, "final": AFTER}.get(node.op, INSIDE if time in own_axes(node) else BEFORE)
    return max([own, *(when[n] for n in operands(node))])


def flattened(kernel: Kernel) -> Kernel:
    """The kernel with all its row axes as one, the indices along them computed from it."""
    assert kernel.loop is not None
    shape = tuple(axis.extent for axis in kernel.parallel)
    line = Axis(math.prod(shape))
    indices = delinearise(Affine.of(line), shape)
    renaming = Substitution(dict(zip(kernel.parallel, indices)), frozenset((line,)))
    loop = kernel.loop
    new = renaming.node
    carries = tuple(Carry(new(c.node), new(c.initial), new(c.following), c.guard) for c in loop.carries)
    return replace(
        kernel,
        parallel=(line,),
        sweeps=tuple(
            replace(s, row=renaming.nodes(s.row), row_stores=tuple(map(renaming.store, s.row_stores)))
            for s in kernel.sweeps
        ),
        loop=Loop(
            loop.time,
            carries,
            renaming.nodes(loop.predicates),
            renaming.nodes(loop.body),
            tuple(map(renaming.store, loop.stores)),
        ),
    )
