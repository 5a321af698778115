"""Loops that become one kernel: which `while` and `scan` equations can, along which axes, or the reason why not.

Each element of the carry must depend on elements of the carry at its own index alone: then every index is a lane, which
runs the whole loop by itself. Along a small axis a lane may hold several elements ("registers"), which may be mixed.
The indices come from the rules that kernels are made with: the body is evaluated on indices, and its reads are noted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fuser.ir.cost import kind
from fuser.ir.graph import Eqn, Graph, Operand, graphs_in
from fuser.ir.index import ZERO, Affine, Axis, Computed
from fuser.ir.primitive import Control, Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.target import Target, duration
from fuser.ir.work import USUAL_STEPS, elements, least_operations, seconds_in_kernels
from fuser.partition.group import Layout
from fuser.partition.in_place_updates import is_one_step
from fuser.partition.unroll import Counting, Parts, axes_of, parts
from fuser.partition.values import Body, Index, Refused, deep_recursion

REGISTERS = 64  # numbers of the carry that one lane may hold
SMALLEST_SUBGROUP = 4  # lanes that a vector is worth
MOST_OPERATIONS = 3000  # scalar operations of one iteration of a lane
MOST_OF_NESTS = (
    300  # the same for a subgroup with loops in its body, where a compiler takes longer than calls of the inner ones
)
MOST_READS = (
    4 * MOST_OPERATIONS
)  # values at indices that are looked at; shifted reads in a loop in the body double with each step
REPEATED = (
    32  # times the work of an iteration as written that lanes may do together: vectors and threads do them at once
)
SMALL_WORK = 4096  # operations of all lanes in one iteration that are less than calling kernels step by step

Supports = Callable[[Eqn], str | None]


@dataclass(frozen=True)
class LoopForm:
    """How a loop runs inside one kernel: its lanes, the axes along each result, and how it reads its operands.

    `layouts` has one entry a result; axes in it that are no lane are those of iterations and of registers. `reads` are
    the indices at which the operands of the equation are read: by position, in lanes where the kernel reads each element once.
    """

    lanes: tuple[Axis, ...]
    layouts: tuple[Layout, ...]
    reads: dict[Operand, list[Index]]
    repeated: frozenset[Operand]  # operands that are read anew in each iteration
    time: Axis | None
    length: int | None

    def times(self, operand: Operand, index: Index, size: int) -> int:
        """How many times each element of a value of `size` elements is read at `index`, about."""
        held = {a for i in index for a in axes_of(i)} - {*self.lanes, self.time}
        count = math.prod(a.extent for a in (*self.lanes, *held))
        if operand in self.repeated:
            count *= USUAL_STEPS if self.length is None else self.length
        return max(1, round(count / max(size, 1)))


def loop_form(eqn: Eqn, supports: Supports, subgroups: bool = False, target: Target | None = None) -> LoopForm | str:
    """The form of a loop equation inside one kernel, or the reason why it has none; `subgroups` as in FusionLimits. With a
    `target`, one without lanes must take no longer than its body as kernels."""
    if eqn.primitive.control not in (Control.WHILE, Control.SCAN):
        return f"{eqn.primitive.name} runs one of its branches"
    if is_one_step(eqn):
        return "its one step writes a part of its carry in place"
    pieces = parts(eqn)
    graphs = [pieces.body] if pieces.predicate is None else [pieces.predicate, pieces.body]
    try:
        if any(v.aval.size == 0 for v in eqn.outvars[: pieces.carries]):
            raise Refused("its carry has no elements")
        for graph in graphs:
            _supported(graph, supports)
        if sum(map(least_operations, graphs)) > MOST_OPERATIONS:
            raise Refused(f"unrolled, one iteration has more than {MOST_OPERATIONS} operations")
        with deep_recursion():
            return _Tracing(eqn, pieces, subgroups, target).form()
    except Refused as refusal:
        return str(refusal)


def _supported(graph: Graph, supports: Supports) -> None:
    for eqn in graph.eqns:
        if eqn.primitive.fusion is Fusion.CONTROL:
            for inner in graphs_in(eqn.params):
                _supported(inner, supports)
        elif eqn.primitive.fusion is not Fusion.DOT and (reason := supports(eqn)) is not None:
            raise Refused(f"in its body {reason}")
        elif eqn.outvars[0].aval.size == 0:
            raise Refused(f"{eqn.primitive.name} in its body has no elements")


class _Probe(Body):
    """A body on indices: reductions take one step along an axis of their own, which is one of registers."""

    reduced: list[Axis]
    looked_at: list[int]  # how many values so far, one counter for all graphs of a body

    def _compute(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        self.looked_at[0] += 1
        if self.looked_at[0] > MOST_READS:
            raise Refused(f"unrolled, one iteration has more than {MOST_OPERATIONS} operations")
        return super()._compute(operand, index, mask)

    def inside(
        self, graph: Graph, leaf: Callable[[int, Index, Scalar | None], Scalar], shared: Iterable[int] = ()
    ) -> Body:
        return _probe(graph, leaf, self.reduced, self.looked_at)

    def indices(self, extents: Sequence[int]) -> Iterator[Index]:
        axes = [Axis(extent) for extent in extents]
        self.reduced += axes
        yield tuple(map(Affine.of, axes))

    def running(self, eqn: Eqn, index: Index, mask: Scalar | None) -> Scalar:
        _, axis, _ = eqn.primitive.rule("lower")(**eqn.params)
        self.reduced += axes_of(index[axis])
        (first,) = next(self.indices([eqn.outvars[0].aval.shape[axis]]))
        return self.value(eqn.invars[0], (*index[:axis], first, *index[axis + 1 :]), mask)


def _probe(
    graph: Graph, leaf: Callable[[int, Index, Scalar | None], Scalar], reduced: list[Axis], looked_at: list[int]
) -> _Probe:
    probe = _Probe(graph, leaf)
    probe.reduced, probe.looked_at = reduced, looked_at
    return probe


@dataclass
class _Classes:
    """Axes that must be the same one, and which of them a lane holds whole."""

    parent: dict[Axis, Axis] = field(default_factory=dict)
    held: dict[Axis, str] = field(default_factory=dict)  # by representative: why

    def copy(self) -> _Classes:
        return _Classes(dict(self.parent), dict(self.held))

    def find(self, axis: Axis) -> Axis:
        while axis in self.parent:
            axis = self.parent[axis]
        return axis

    def unite(self, a: Axis, b: Axis) -> None:
        a, b = self.find(a), self.find(b)
        if a is not b:
            self.parent[b] = a
            if b in self.held:
                self.held.setdefault(a, self.held[b])

    def hold(self, axis: Axis, reason: str) -> None:
        self.held.setdefault(self.find(axis), reason)

    def lane(self, axis: Axis) -> bool:
        return self.find(axis) not in self.held


class _Tracing:
    """One analysis: evaluates the body on indices, then sorts axes into lanes and registers."""

    def __init__(self, eqn: Eqn, pieces: Parts, subgroups: bool, target: Target | None) -> None:
        self.eqn = eqn
        self.target = target
        self.parts = pieces
        self.classes = _Classes()
        self.reduced: list[Axis] = []
        self.carry_axes = [_axes(v.aval.shape) for v in eqn.outvars[: pieces.carries]]
        self.time = None if pieces.length is None else Axis(pieces.length)
        self.y_axes = [_axes(v.aval.shape[1:]) for v in eqn.outvars[pieces.carries :]]
        self.carry_reads: list[tuple[int, Index]] = []
        self.reads: dict[Operand, list[Index]] = {}
        self.repeated: set[Operand] = set()
        self.looked_at = [0]
        self.subgroups = subgroups
        self.nested = any(step.primitive.control is Control.SCAN for step in pieces.body.eqns)
        self.least = least_operations(pieces.body)

    def form(self) -> LoopForm:
        self._evaluate()
        self._unify()
        self._share_states()
        lanes = self._lanes()
        subgroup = self._subgroup() if self.subgroups and not self._apart() else None
        if subgroup is None:
            try:
                self._check_size(lanes)
            except Refused:
                subgroup = self._subgroup() if self.subgroups and lanes else None
                if subgroup is None:
                    raise
        if subgroup is not None:
            lanes = [subgroup]
        if self.time is not None and not self.parts.carries and self.time.extent != 1:
            lanes = [self.time, *lanes]  # no iteration needs another one
            self.repeated = set()
        layouts = [self._resolved(axes) for axes in self.carry_axes]
        time = None if self.time is not None and self.time.extent == 1 and not self.parts.carries else self.time
        layouts += [(time, *self._resolved(axes)) for axes in self.y_axes]
        reads = {operand: [self._renamed(i) for i in indices] for operand, indices in self.reads.items()}
        return LoopForm(tuple(lanes), tuple(layouts), reads, frozenset(self.repeated), self.time, self.parts.length)

    # Evaluation on indices.

    def _evaluate(self) -> None:
        body = _probe(self.parts.body, self._body_leaf, self.reduced, self.looked_at)
        results = self.parts.body.outvars
        for operand, axes in zip(results, [*self.carry_axes, *self.y_axes]):
            body.value(operand, _index(axes), None)
        for operand, axes in zip(self.parts.initial, self.carry_axes):
            self._note(operand, _index(axes))
        if self.parts.predicate is not None:
            self._evaluate_predicate(self.parts.predicate)

    def _evaluate_predicate(self, predicate: Graph) -> None:
        probe = _probe(predicate, self._predicate_leaf, self.reduced, self.looked_at)
        rank = predicate.outvars[0].aval.ndim
        for axes in self.carry_axes:
            probe.value(predicate.outvars[0], _index(axes[:rank]), None)
        for axes in self.carry_axes[1:]:
            for a, b in zip(self.carry_axes[0][:rank], axes):
                if a is not None and b is not None:
                    self.classes.unite(a, b)

    def _body_leaf(self, number: int, index: Index, mask: Scalar | None) -> Scalar:
        consts, carries = len(self.parts.consts), self.parts.carries
        if number < consts:
            return self._outer(self.parts.consts[number], index)
        if number < consts + carries:
            return self._carry(number - consts, index)
        assert self.time is not None
        return self._outer(self.parts.xs[number - consts - carries], (self.parts.row(self.time), *index), True)

    def _predicate_leaf(self, number: int, index: Index, mask: Scalar | None) -> Scalar:
        consts = self.parts.predicate_consts
        return self._outer(consts[number], index) if number < len(consts) else self._carry(number - len(consts), index)

    def _outer(self, operand: Operand, index: Index, repeated: bool = False) -> Scalar:
        self._note(operand, index)
        if repeated or any(isinstance(leaf, Computed) for i in index for leaf in i.leaves):
            self.repeated.add(operand)
        return Scalar("input", (), operand.aval.dtype)

    def _note(self, operand: Operand, index: Index) -> None:
        found = self.reads.setdefault(operand, [])
        if index not in found:
            found.append(index)

    def _carry(self, number: int, index: Index) -> Scalar:
        for axis, position in zip(self.carry_axes[number], index):
            other = position.axis()
            if axis is not None and axis.extent > REGISTERS and (other is None or other.extent != axis.extent):
                self._meet(axis, position)  # certain to be refused: no need to look further
                self._check_size([])
            if axis is not None and other in self.reduced:
                self._check_nest(self.least)
        self.carry_reads.append((number, index))
        return Scalar("input", (), self.parts.initial[number].aval.dtype)

    # From reads to classes of axes.

    def _unify(self) -> None:
        for reduction in self.reduced:
            self.classes.hold(reduction, f"its body reduces over the carry along an axis of {reduction.extent}")
        for number, index in self.carry_reads:
            for axis, position in zip(self.carry_axes[number], index):
                if axis is not None:
                    self._meet(axis, position)
        for axes in self._all():
            seen: set[Axis] = set()
            for own in (a for a in axes if a is not None):
                if self.classes.find(own) in seen:
                    self.classes.hold(own, f"its body reads the carry along another axis of {own.extent}")
                seen.add(self.classes.find(own))

    def _meet(self, own: Axis, position: Affine) -> None:
        """The carry is read at `position` along its axis `own`."""
        other = position.axis()
        if other is not None and other.extent == own.extent:
            self.classes.unite(own, other)
            return
        if any(isinstance(leaf, Computed) for leaf in position.leaves):
            raise Refused("its body reads the carry at computed indices")
        reason = f"its body reads the carry at shifted or reshaped indices along an axis of {own.extent}"
        self.classes.hold(own, reason)
        for axis in axes_of(position):
            self.classes.hold(axis, reason)

    def _lanes(self) -> list[Axis]:
        """The lanes: those of the result with the most of them; the other results' must be among them."""
        wide = [[self.classes.find(a) for a in axes if a is not None and self.classes.lane(a)] for axes in self._all()]
        lanes = max(wide, key=lambda axes: (math.prod(a.extent for a in axes), len(axes)), default=[])
        for axes in wide:
            self._fit(axes, lanes)
        return lanes

    def _share_states(self) -> None:
        """Hold the axes that lie along ys alone, where that costs less: lanes along them would each carry the same state."""
        if self.target is None:
            return
        written = self.classes.copy()
        self._lanes()  # axes that can run with the lanes of others are one with them from here on
        carried = {self.classes.find(a) for axes in self.carry_axes for a in axes if a is not None}
        along = {self.classes.find(a) for axes in self.y_axes for a in axes if a is not None and self.classes.lane(a)}
        if any(map(self.classes.lane, carried)) and along - carried:
            repeated = self._seconds(self.target)
            for axis in along - carried:
                self.classes.hold(axis, f"its lanes would repeat a state along an axis of {axis.extent}")
            shared = self.classes.copy()
            if self._seconds(self.target) < repeated:
                written = shared
        self.classes = written

    def _seconds(self, target: Target) -> float:
        """About what an iteration takes as the classes are, whose lanes this finds; without end where lanes would hold too much."""
        try:
            lanes = self._lanes()
            if any(count > REGISTERS for count in self._held_numbers()):
                return math.inf
            layouts = [self._resolved(axes) for axes in self._all()]
            operations = Counting(self.parts, layouts, lanes).operations()
        except Refused:
            return math.inf
        vectors = -(-math.prod(axis.extent for axis in lanes) // target.lanes)
        work = sum(target.compute(kind(node), node.dtype.itemsize) for node in operations)
        return max(vectors * target.lanes * work, target.latency * target.operations * work / target.chains)

    def _held_numbers(self) -> list[int]:
        """How many numbers of each result a lane holds, then of all of them; 0 of one without an axis that is held."""
        held = [[a.extent for a in axes if a is not None and not self.classes.lane(a)] for axes in self._all()]
        counts = [math.prod(extents) if extents else 0 for extents in held]
        return [*counts, sum(counts)]

    def _apart(self) -> bool:
        """Whether lanes carry states of their own, or there is nothing to carry: else each would repeat what all need."""
        carried = [axis for axes in self.carry_axes for axis in axes if axis is not None]
        return any(self.classes.lane(axis) for axis in carried) or (not carried and bool(self._lanes()))

    def _fit(self, axes: list[Axis], lanes: list[Axis]) -> None:
        """Let independent axes of equal extent run together with the lanes, the innermost first."""
        axes = [self.classes.find(a) for a in axes]
        for axis in reversed(axes):
            if axis in lanes or self.classes.find(axis) in lanes:
                continue
            free = [lane for lane in reversed(lanes) if lane.extent == axis.extent and lane not in axes]
            if not free or any({axis, free[0]} <= {self.classes.find(a) for a in own if a} for own in self._all()):
                if axis.extent > REGISTERS:
                    raise Refused("its carries run along different axes")
                self.classes.hold(axis, "its carries run along different axes")
                continue
            self.classes.unite(free[0], axis)
            axes = [self.classes.find(a) for a in axes]

    def _all(self) -> list[tuple[Axis | None, ...]]:
        return [*self.carry_axes, *self.y_axes]

    def _subgroup(self) -> Axis | None:
        """The one axis along which all results of a loop without lanes lie, if its lanes can run as a subgroup.

        Refused where that would be long because of loops in the body: without a subgroup it would be longer still.
        """
        subgroup = self._vector()
        if subgroup is None:
            return None
        layouts = [tuple(a and subgroup for a in axes) for axes in self._all()]
        try:
            count = Counting(self.parts, layouts, [subgroup], subgroup).count()
        except Refused:
            return None
        self._check_nest(count)
        if count > MOST_OPERATIONS:
            return None
        self.classes = _Classes()
        for own in itertools.chain.from_iterable(self._all()):
            if own is not None and own is not subgroup:
                self.classes.unite(subgroup, own)
        return subgroup

    def _vector(self) -> Axis | None:
        """The first axis of the results, if each of them has but this one, and it is a small vector's."""
        held = [[a for a in axes if a is not None] for axes in self._all()]
        first = next((axes[0] for axes in held if axes), None)
        if first is None or not SMALLEST_SUBGROUP <= first.extent <= REGISTERS:
            return None
        return first if all(len(axes) <= 1 and all(a.extent == first.extent for a in axes) for axes in held) else None

    def _check_nest(self, operations: int) -> None:
        """A vector's elements that depend on each other must not be a long nest written out."""
        if self.subgroups and self.nested and operations > MOST_OF_NESTS and self._vector():
            raise Refused(f"unrolled, one iteration of its nest has more than {MOST_OF_NESTS} operations")

    def _check_size(self, lanes: list[Axis]) -> None:
        *counts, total = self._held_numbers()
        for axes, count in zip(self._all(), counts):
            if count > REGISTERS:
                longest = max((a for a in axes if a is not None and not self.classes.lane(a)), key=lambda a: a.extent)
                raise Refused(
                    f"{self.classes.held[self.classes.find(longest)]}, and at most {REGISTERS} numbers of it stay in registers"
                )
        if total > REGISTERS:
            raise Refused(f"a lane would hold {total} numbers of the carry, and at most {REGISTERS} stay in registers")
        together = math.prod(axis.extent for axis in lanes)
        self._check_work(self.least * together)
        # Without axes in registers too: what is read from a table, or from another lane, shows only when written out.
        operations = Counting(self.parts, [self._resolved(axes) for axes in self._all()], lanes).operations()
        if len(operations) > MOST_OPERATIONS:
            raise Refused(f"unrolled, one iteration has more than {MOST_OPERATIONS} operations")
        self._check_work(len(operations) * together)
        if total > 1 and self.target is not None:
            self._check_price(operations, together, self.target)

    def _check_price(self, operations: Iterable[Scalar], lanes: int, target: Target) -> None:
        """Numbers of one lane are computed one after the other, and each lane computes all that it holds, where kernels have vectors
        and compute each number once."""
        vector = target.vector // 4
        times = target.in_turn * target.scalar if lanes == 1 else -(-lanes // vector) * vector / target.margin
        written = times * sum(target.compute(kind(node), node.dtype.itemsize) for node in operations)
        graphs = [self.parts.body] if self.parts.predicate is None else [self.parts.predicate, self.parts.body]
        kernels = sum(seconds_in_kernels(graph, target) for graph in graphs)
        if written > kernels:
            who = "one lane" if lanes == 1 else f"each of {lanes} lanes"
            raise Refused(
                f"written out for {who}, an iteration takes {duration(written)}, as kernels {duration(kernels)}"
            )

    def _check_work(self, operations: int) -> None:
        """All lanes together must not do much more than the body as written: what one of them needs, others need not."""
        if operations <= SMALL_WORK or not self.parts.carries:
            return
        graphs = [self.parts.body] if self.parts.predicate is None else [self.parts.predicate, self.parts.body]
        written = sum(map(elements, graphs))
        if operations > REPEATED * max(written, 1):
            raise Refused(
                f"its lanes would do {operations} operations in each iteration, and its body as written {written}"
            )

    def _resolved(self, axes: tuple[Axis | None, ...]) -> Layout:
        """Lanes by the axis that stands for them; axes of registers as they are, each for itself."""
        return tuple(a if a is None or not self.classes.lane(a) else self.classes.find(a) for a in axes)

    def _renamed(self, index: Index) -> Index:
        replacement = {a: Affine.of(self.classes.find(a)) for i in index for a in axes_of(i)}
        return tuple(i.substitute(replacement) for i in index)  # type: ignore[arg-type]


def _axes(shape: tuple[int, ...]) -> tuple[Axis | None, ...]:
    return tuple(None if extent == 1 else Axis(extent) for extent in shape)


def _index(axes: tuple[Axis | None, ...]) -> Index:
    return tuple(ZERO if axis is None else Affine.of(axis) for axis in axes)
