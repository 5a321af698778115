"""A loop's body as scalar expressions of one lane: `while` and `scan` in one form, small axes written out.

`Parts` takes an equation apart. `Expansion` evaluates its body at a lane's index; what the elements of operands and of
the carry are, a subclass says: `Counting` here, the lowering to kernels in `kernel/lower_loop.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fuser.ir import scalar as S
from fuser.ir.graph import Eqn, Graph, Operand
from fuser.ir.index import ZERO, Affine, Axis
from fuser.ir.primitive import Control
from fuser.ir.scalar import Scalar
from fuser.ops.control import split_scan, split_while
from fuser.partition.group import Layout
from fuser.partition.values import Body, Index, Refused, Subgroup


@dataclass(frozen=True)
class Parts:
    """A loop equation taken apart: `while` and `scan` in one form. `length` is None for a while."""

    body: Graph
    predicate: Graph | None
    predicate_consts: list[Operand]
    consts: list[Operand]
    initial: list[Operand]
    xs: list[Operand]
    length: int | None
    reverse: bool

    @property
    def carries(self) -> int:
        return len(self.initial)

    def row(self, time: Axis) -> Affine:
        """The index along xs and ys of the iteration `time`; without a carry the order is of no concern."""
        assert self.length is not None
        backwards = self.reverse and self.carries
        return Affine.of(self.length - 1) - Affine.of(time) if backwards else Affine.of(time)


def parts(eqn: Eqn) -> Parts:
    """The parts of a `while` or `scan` equation."""
    params = eqn.params
    if eqn.primitive.control is Control.WHILE:
        tests, consts, initial = split_while(eqn.invars, params["cond_nconsts"], params["body_nconsts"])
        return Parts(params["body_jaxpr"], params["cond_jaxpr"], tests, consts, initial, [], None, False)
    consts, initial, xs = split_scan(eqn.invars, params["num_consts"], params["num_carry"])
    return Parts(params["jaxpr"], None, [], consts, initial, xs, params["length"], params.get("reverse", False))


class Expansion:
    """The body of a loop as scalar expressions of one lane: registers written out, one expression a number.

    A subclass says what the elements of operands and of the carry are.
    """

    def __init__(
        self, pieces: Parts, layouts: Sequence[Layout], lanes: Iterable[Axis], subgroup: Axis | None = None
    ) -> None:
        self.parts = pieces
        self.lanes = set(lanes)
        self.layouts = layouts  # of the carries, then of one iteration's part of each y
        shared = self._subgroup(pieces.body, len(pieces.consts), subgroup)
        self.body = Body(pieces.body, self._body_leaf, shared)
        self.predicate = None
        if pieces.predicate is not None:
            shared = self._subgroup(pieces.predicate, len(pieces.predicate_consts), subgroup)
            self.predicate = Body(pieces.predicate, self._predicate_leaf, shared)

    def _subgroup(self, graph: Graph, consts: int, axis: Axis | None) -> Subgroup | None:
        return None if axis is None else Subgroup(axis, frozenset(graph.invars[consts : consts + self.parts.carries]))

    def operand(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        """The element of an operand of the equation."""
        raise NotImplementedError

    def placeholder(self, number: int, index: tuple[int, ...]) -> Scalar:
        """The number of carry `number` at `index` along its registers, as an iteration finds it."""
        raise NotImplementedError

    def row(self) -> Affine:
        """The running iteration's index along xs and ys."""
        raise NotImplementedError

    def held(self, layout: Layout) -> list[Axis]:
        """The axes along which a lane holds all elements."""
        return [axis for axis in layout if axis is not None and axis not in self.lanes]

    def elements(self, layout: Layout) -> Iterator[tuple[tuple[int, ...], Index]]:
        """Each index along the registers, and the index of the lane's element there."""
        held = self.held(layout)
        for at in itertools.product(*(range(a.extent) for a in held)):
            number = dict(zip(held, at))
            yield at, tuple(ZERO if a is None else Affine.of(number.get(a, a)) for a in layout)

    def following(self, number: int, index: Index) -> Scalar:
        """The value that result `number` of the body has at an index."""
        return self.body.value(self.parts.body.outvars[number], index, None)

    def continues(self, index: Index) -> Scalar:
        """Whether the lane goes on, by the predicate at an index of the carry."""
        assert self.predicate is not None and self.parts.predicate is not None
        [result] = self.parts.predicate.outvars
        return self.predicate.value(result, index[: result.aval.ndim], None)

    def _body_leaf(self, number: int, index: Index, mask: Scalar | None) -> Scalar:
        consts, carries = len(self.parts.consts), self.parts.carries
        if number < consts:
            return self.operand(self.parts.consts[number], index, mask)
        if number < consts + carries:
            return self._carry(number - consts, index)
        return self.operand(self.parts.xs[number - consts - carries], (self.row(), *index), mask)

    def _predicate_leaf(self, number: int, index: Index, mask: Scalar | None) -> Scalar:
        consts = self.parts.predicate_consts
        if number < len(consts):
            return self.operand(consts[number], index, mask)
        return self._carry(number - len(consts), index)

    def _carry(self, number: int, index: Index) -> Scalar:
        layout = self.layouts[number]
        registers = []
        for axis, i in zip(layout, index):
            if axis is None:
                continue
            if axis in self.lanes:
                assert i == Affine.of(axis), "a lane reads another lane's carry"
                continue
            if i.terms:
                raise Refused("its body reads the carry at indices that are not known")
            if not 0 <= i.offset < axis.extent:  # under a mask that never holds
                return S.constant(0, self.parts.initial[number].aval.dtype)
            registers.append(i.offset)
        return self.placeholder(number, tuple(registers))


class Counting(Expansion):
    """How many operations the written-out body has, and what they cost."""

    def __init__(
        self, pieces: Parts, layouts: Sequence[Layout], lanes: Iterable[Axis], subgroup: Axis | None = None
    ) -> None:
        super().__init__(pieces, layouts, lanes, subgroup)
        self.time = Axis(pieces.length or 0)

    def count(self) -> int:
        return len(self.operations())

    def operations(self) -> set[Scalar]:
        """The scalar operations of one iteration of a lane."""
        seen: set[Scalar] = set()
        for number, layout in enumerate(self.layouts):
            for _, index in self.elements(layout):
                stack = [self.following(number, index)]
                if self.predicate is not None:
                    stack.append(self.continues(index))
                while stack:
                    node = stack.pop()
                    if node not in seen:
                        seen.add(node)
                        stack.extend(node.args)
        return seen

    def operand(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        return Scalar("input", (), operand.aval.dtype)

    def placeholder(self, number: int, index: tuple[int, ...]) -> Scalar:
        return Scalar("input", (), self.parts.initial[number].aval.dtype)

    def row(self) -> Affine:
        return self.parts.row(self.time)


def axes_of(index: Affine) -> list[Axis]:
    """The axes inside an index."""
    return [leaf for leaf in index.leaves if isinstance(leaf, Axis)]
