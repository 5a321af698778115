"""Values that an iteration of a stencil computes at several shifted places, each computed once and kept for its readers.

The flux between two cells is what one of them loses and the other gains: it is one value, read at two places. In: an `Iteration`. Out: a `Plan`:
which values are computed ahead of the iteration that reads them first, into rows that are kept while others read them, and from where to where.
Values are told by `shifted_forms`, so that results stay the same to the last bit.

Ragan-Kelley et al., "Halide" (PLDI 2013), section 4: sliding windows and storage folding, with the order found by price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fuser.ir.cost import kind
from fuser.ir.index import Axis, Div
from fuser.ir.scalar import LEAVES, Scalar
from fuser.ir.target import Target
from fuser.ir.types import is_complex
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, needed, operands
from fuser.kernel.shifted_forms import Forms

Spans = Mapping[Axis, tuple[int, int]]  # the first and the last iteration of each loop
Window = tuple[tuple[int, int], ...]  # along each axis, the first and the last place at which a value is read
IDEMPOTENT = frozenset(("max", "min", "and", "or"))  # reductions that may take an element in twice
LEAST_SHARE = 0.1  # of what an iteration computes, below which a plan is not worth its text
LEAST_ROWS = 8
MOST_REACH = 16  # places that a window spans
MOST_NODES = 2000
FREE = frozenset(LEAVES) - {"load"}


@dataclass(frozen=True, eq=False)
class Iteration:
    """What an iteration of loops over `spans` computes, stores and reduces. `sizes`: the elements of each array; `fixed`: arrays that change
    while the kernel runs."""

    nodes: Sequence[Scalar]
    stores: Sequence[Store]
    reductions: Sequence[Scalar]
    spans: Spans
    sizes: Sequence[int]
    fixed: frozenset[int] = frozenset()


@dataclass(eq=False)
class Kept:
    """A value that is computed once: `node` where it stands, in rows kept over `window`; `members` are the nodes that it equals, with their places.
    `taken`: reductions that take it in where it is computed."""

    node: Scalar
    members: dict[Scalar, tuple[int, ...]]
    window: Window
    taken: tuple[Scalar, ...]
    readers: tuple[
        tuple[Kept | None, Scalar], ...
    ]  # who reads which member: the iteration (None), or another such value
    stored: bool = True

    def rows(self, axis: int = 0) -> int:
        """How many places along an axis are kept."""
        low, high = self.window[axis]
        return high - low + 1


@dataclass(frozen=True, eq=False)
class Stage:
    """Values of one window, which one loop computes: what it keeps, and the nodes that it needs, in order."""

    kept: tuple[Kept, ...]
    nodes: tuple[Scalar, ...]

    @property
    def window(self) -> Window:
        return self.kept[0].window


@dataclass(frozen=True, eq=False)
class Plan:
    """`stages` in order, along `axes` (the row's last); then the nodes of an iteration, its stores, and what its reductions take in.
    `saving`: additions an element that are not done again, and `total` those that are done without."""

    axes: tuple[Axis, ...]
    stages: tuple[Stage, ...]
    nodes: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    reductions: tuple[tuple[Scalar, tuple[Scalar, ...]], ...]
    saving: float
    total: float

    @property
    def kept(self) -> tuple[Kept, ...]:
        """All values that are kept."""
        return tuple(kept for stage in self.stages for kept in stage.kept)

    @cached_property
    def read(self) -> Mapping[Scalar, tuple[Kept, tuple[int, ...]]]:
        """What is read from kept rows, and at which place."""
        return {node: (kept, shift) for kept in self.kept if kept.stored for node, shift in kept.members.items()}


@dataclass(eq=False)
class _Class:
    """Nodes that are equal but for their place, and who reads which of them: the iteration (None), or a kept value."""

    order: tuple[int, int]
    nodes: list[Scalar] = field(default_factory=list)
    readers: dict[Kept | None, dict[Scalar, None]] = field(default_factory=dict)
    leaves: dict[Scalar, dict[Scalar, None]] = field(
        default_factory=dict
    )  # by reduction: those that it takes in itself


def best_plan(
    kernel: Kernel,
    loops: Loops,
    nodes: Sequence[Scalar],
    stores: Sequence[Store],
    target: Target,
    reductions: Sequence[Scalar] = (),
    spans: Spans | None = None,
) -> Plan | None:
    """The plan for these nodes of a kernel that saves most, along the vector's axis or one more; None where nothing is worth keeping.
    `spans`: what loops run over, where that is not all."""
    vector = loops.vector
    nest = (*loops.parallel, *loops.reduced)
    if vector is None or loops.count(nest) < target.windowed**2:  # compiling the loops takes longer than they save
        return None
    spans = {axis: (0, loops.extents[axis] - 1) for axis in nest} | dict(spans or {})
    around = [axis for axis in reversed(nest) if axis is not vector]
    sizes = [math.prod(param.shape) for param in kernel.params]
    iteration = Iteration(nodes, stores, reductions, spans, sizes, _changing(kernel))
    best: Plan | None = None
    for axes in [*((axis, vector) for axis in around), (vector,)]:
        if reductions and len(axes) < 2:
            continue
        found = plan(iteration, axes, target)
        if found is None or (best is not None and found.saving <= best.saving):
            continue
        across = len(axes) == 1 or reductions or any(kept.rows(0) > 1 for kept in found.kept)
        best = found if across else best
    return best


def _changing(kernel: Kernel) -> frozenset[int]:
    """Arrays whose memory a result may take over: they are read at one place an iteration."""
    offsets: dict[int, set[object]] = {}
    for node in kernel.nodes:
        if node.op == "load":
            offsets.setdefault(node.attr.param, set()).add(node.attr.offset)
    written = {kernel.params[store.param].dtype for store in kernel.stores}
    return frozenset(p for p, read in offsets.items() if len(read) == 1 and kernel.params[p].dtype in written)


def plan(iteration: Iteration, axes: Sequence[Axis], target: Target) -> Plan | None:
    """The best plan with windows along `axes`, of which the last is that of the vector; None where nothing is worth keeping."""
    if not _may(iteration, axes, target):
        return None
    found = _Planner(iteration, axes, target).plan()
    return found if found.stages and found.saving >= LEAST_SHARE * found.total else None


def _may(iteration: Iteration, axes: Sequence[Axis], target: Target) -> bool:
    nodes, spans = iteration.nodes, iteration.spans
    extents = [spans[axis][1] - spans[axis][0] + 1 for axis in axes]
    if len(nodes) > MOST_NODES or extents[-1] < target.windowed or any(extent < LEAST_ROWS for extent in extents[:-1]):
        return False
    loads = [node.attr for node in nodes if node.op == "load"]
    if len({(load.param, load.offset.terms) for load in loads}) == len(loads):
        return False  # no array is read at two places
    return all(reduction.attr.reduction in IDEMPOTENT for reduction in iteration.reductions) and not any(
        node.op in ("scan", "score", "carry", "final", "reduction") or is_complex(node.dtype) for node in nodes
    )


class _Planner:
    def __init__(self, iteration: Iteration, axes: Sequence[Axis], target: Target) -> None:
        self.iteration, self.axes, self.target = iteration, tuple(axes), target
        self.nodes = nodes = iteration.nodes
        self.forms = Forms(nodes, axes)
        self.inside = set(nodes)
        self.kept: list[Kept] = []
        self.saving = 0.0
        self._work: dict[Scalar, float] = {}
        self.classes: dict[tuple[int, int], _Class] = {}
        for node in nodes:
            form = self.forms.of[node]
            name = form.key, form.variant
            if name not in self.classes:
                self.classes[name] = _Class((form.key, self.forms.negations.get(form.variant, 0)))
            self.classes[name].nodes.append(node)

    def plan(self) -> Plan:
        taken = {reduction: self._leaves(reduction) for reduction in self.iteration.reductions}
        for store in self.iteration.stores:
            self._ask([store.value, *computed(store.offset)], None)
        for reduction, leaves in taken.items():
            for leaf in leaves:
                if leaf in self.inside:
                    self._class(leaf).leaves.setdefault(reduction, {})[leaf] = None
        for found in sorted(self.classes.values(), key=lambda c: c.order, reverse=True):
            self._decide(found)
        return self._plan(taken)

    def _class(self, node: Scalar) -> _Class:
        form = self.forms.of[node]
        return self.classes[form.key, form.variant]

    def _ask(self, nodes: Iterable[Scalar], reader: Kept | None) -> None:
        for node in nodes:
            if node in self.inside:
                self._class(node).readers.setdefault(reader, {})[node] = None

    def _leaves(self, reduction: Scalar) -> tuple[Scalar, ...]:
        """What a reduction takes in, one by one: operands of operations like its own."""
        found: dict[Scalar, None] = {}
        stack = [reduction.args[0]]
        op = reduction.attr.reduction
        while stack:
            node = stack.pop()
            apart = node.op == op and node in self.inside and node.dtype == reduction.args[0].dtype
            if apart and op in ("and", "or"):
                stack += reversed(node.args)
            else:
                found[node] = None
        return tuple(found)

    # What is kept.

    def _decide(self, found: _Class) -> None:
        """Keep a class' value, or let its readers ask for what it is made of."""
        wanted = {node for read in found.readers.values() for node in read}
        leaves = {node for read in found.leaves.values() for node in read}
        everyone = dict.fromkeys(node for node in found.nodes if node in wanted | leaves)
        if not everyone:
            return
        origin = max(everyone, key=lambda node: self.forms.shift(node, found.nodes[0]))
        members = {node: self.forms.shift(node, origin) for node in everyone}
        if self._pays(found, members) and (kept := self._keep(found, origin, members)) is not None:
            self.kept.append(kept)
            self._ask(operands(origin), kept)
            return
        for reader, read in found.readers.items():
            for node in read:
                self._ask(operands(node), reader)
        for read in found.leaves.values():
            for node in read:
                self._ask(operands(node), None)

    def _evaluations(self, found: _Class, members: Mapping[Scalar, tuple[int, ...]]) -> int:
        """How often an iteration would compute the value, were it not kept."""
        reads = {(reader, members[node]) for reader, read in found.readers.items() for node in read}
        return len(reads | {(None, members[node]) for read in found.leaves.values() for node in read})

    def _pays(self, found: _Class, members: Mapping[Scalar, tuple[int, ...]]) -> bool:
        times = self._evaluations(found, members)
        node = next(iter(members))
        if times < 2 or node.op in LEAVES:
            return False
        return (times - 1) * self.work(node) >= (self._moves(node, times) if found.readers else 0.0)

    def _moves(self, node: Scalar, times: int) -> float:
        """Additions that keeping a value and reading it so many times takes."""
        return self.target.kept * node.dtype.itemsize / 4 * (1 + times)

    def _keep(self, found: _Class, origin: Scalar, members: dict[Scalar, tuple[int, ...]]) -> Kept | None:
        """The value as one that is kept; None where it cannot be computed ahead."""
        if self.forms.of[origin].shift[-1] is None:
            return None  # one number for all of a row
        places = [
            tuple((low + step, high + step) for (low, high), step in zip(self._window(reader), members[node]))
            for reader, read in found.readers.items()
            for node in read
        ]
        leaves = [members[node] for read in found.leaves.values() for node in read]
        if leaves and not _box(leaves):
            return None
        places += [tuple((step, step) for step in place) for place in leaves]
        window = tuple((min(p[n][0] for p in places), max(p[n][1] for p in places)) for n in range(len(self.axes)))
        if any(high - low >= MOST_REACH for low, high in window) or not self._may_be_ahead(origin, window):
            return None
        if leaves and not self._exactly(window, leaves):
            return None
        times = self._evaluations(found, members)
        self.saving += (times - 1) * self.work(origin)
        readers = tuple((reader, node) for reader, read in found.readers.items() for node in read)
        return Kept(origin, members, window, tuple(found.leaves), readers)

    def _exactly(self, window: Window, leaves: Sequence[tuple[int, ...]]) -> bool:
        """Whether the window is that of what reductions take in, so that they take in no place beyond."""
        return all((min(p[n] for p in leaves), max(p[n] for p in leaves)) == window[n] for n in range(len(window)))

    def _window(self, reader: Kept | None) -> Window:
        return tuple((0, 0) for _ in self.axes) if reader is None else reader.window

    def _may_be_ahead(self, origin: Scalar, window: Window) -> bool:
        """Whether a value may be computed all over its window: of elements that are there, and stay as they are."""
        for node in needed([origin], self.nodes):
            if self.forms.of[node].opaque or (node.op in ("div", "rem") and node.dtype.kind in "iu"):
                return False
            if node.op == "load" and (
                node.attr.param in self.iteration.fixed or not (node.args or self._there(node, window))
            ):
                return False
        return True

    def _there(self, load: Scalar, window: Window) -> bool:
        moved = dict(zip(self.axes, window))
        low = high = load.attr.offset.offset
        for atom, step in load.attr.offset.terms:
            if isinstance(atom, Axis):
                if atom not in self.iteration.spans:
                    continue  # one with the vector's
                first, last = self.iteration.spans[atom]
                before, behind = moved.get(atom, (0, 0))
                ends = (first + before) * step, (last + behind) * step
            else:
                assert isinstance(atom, Div)
                ends = atom.bounds[0] * step, atom.bounds[1] * step
            low, high = low + min(ends), high + max(ends)
        return low >= 0 and high < self.iteration.sizes[load.attr.param]

    def work(self, node: Scalar) -> float:
        """Additions that computing a value takes from arrays on."""
        if node not in self._work:
            self._work[node] = sum(map(self._operation, needed([node], self.nodes)))
        return self._work[node]

    def _operation(self, node: Scalar) -> float:
        if node.op == "load":
            return 0.5 * node.dtype.itemsize / 4
        if node.op in FREE:
            return 0.0
        width = max([node.dtype.itemsize, *(arg.dtype.itemsize for arg in node.args)])
        return self.target.compute(kind(node), width) * self.target.operations

    # The plan.

    def _plan(self, taken: Mapping[Scalar, tuple[Scalar, ...]]) -> Plan:
        stages = self._stages()
        apart = {(r, node) for kept in self.kept for r in kept.taken for node in kept.members}
        rest = tuple((r, tuple(leaf for leaf in leaves if (r, leaf) not in apart)) for r, leaves in taken.items())
        roots = [v for store in self.iteration.stores for v in (store.value, *computed(store.offset))]
        roots += [leaf for _, leaves in rest for leaf in leaves]
        read = self._read()
        nodes = tuple(node for node in needed(roots, self.nodes, stop=read) if node not in read)
        total = sum(map(self._operation, self.nodes))
        return Plan(self.axes, tuple(stages), nodes, tuple(self.iteration.stores), rest, self.saving, total)

    def _read(self) -> set[Scalar]:
        return {node for kept in self.kept if kept.stored for node in kept.members}

    def _stages(self) -> list[Stage]:
        """Values of one window together, unless one needs the other elsewhere; what others need first. What is read in its own stage
        alone is not kept."""
        groups: list[list[Kept]] = []
        for kept in reversed(self.kept):
            home = next((group for group in reversed(groups) if self._joins(kept, group, groups)), None)
            if home is None:
                groups.append([kept])
            else:
                home.append(kept)
        for group in groups:
            for kept in group:
                kept.stored = any(reader not in group for reader, _ in kept.readers)
        read = self._read()
        found = []
        for group in groups:
            own = {kept.node for kept in group}
            inside = needed(own, self.nodes, stop=read - own)
            nodes = tuple(node for node in inside if node in own or node not in read)
            found.append(Stage(tuple(kept for kept in group if kept.stored or kept.taken), nodes))
        self.kept = [kept for stage in found for kept in stage.kept]
        return found

    def _joins(self, kept: Kept, group: Sequence[Kept], groups: Sequence[Sequence[Kept]]) -> bool:
        """Whether a value may be computed by the loop of these: at their places, and of nothing that comes after them."""
        if group[0].window != kept.window:
            return False
        after = groups[groups.index(group) + 1 :]  # type: ignore[arg-type]
        late = any(reader is kept for other in (o for g in after for o in g) for reader, _ in other.readers)
        beside = all(node is other.node for other in group for reader, node in other.readers if reader is kept)
        return beside and not late


def _box(places: Sequence[tuple[int, ...]]) -> bool:
    """Whether places lie one beside the other along one axis."""
    moving = [n for n in range(len(places[0])) if len({place[n] for place in places}) > 1]
    if len(moving) != 1:
        return not moving
    along = sorted({place[moving[0]] for place in places})
    return along == list(range(along[0], along[-1] + 1))
