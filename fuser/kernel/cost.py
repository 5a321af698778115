"""Seconds that a kernel takes on a target: what it computes, what it moves, what it waits for, and its launch.

In: a kernel and a Target. Out: an `Estimate`. Arithmetic, memory and waiting overlap, so that the longest of them counts
(Williams, Waterman, Patterson, "Roofline", CACM 2009, with a term for chains of dependent operations), and a share of what
computing or moving takes besides (Stengel, Treibig, Hager, Wellein, "Execution-Cache-Memory", ICS 2015).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from fuser.ir.cost import kind
from fuser.ir.index import Affine, Div
from fuser.ir.scalar import LEAVES, Scalar
from fuser.ir.target import Target
from fuser.kernel.complex_parts import split_complex
from fuser.kernel.index_set_splitting import Cut, across_pieces, cut
from fuser.kernel.kernel import Access, Kernel, Loop, Store, Sweep
from fuser.kernel.loops import SHORTEST_STRIP, Loops, arrange, of_vector
from fuser.kernel.operands import computed, in_order, index_axes, index_of, needed, operands, own_axes
from fuser.kernel.short_rows import ROWS, rows_as_trees, rows_side_by_side
from fuser.kernel.sliding_window import Spans, best_plan
from fuser.kernel.unroll_reductions import unroll_reductions

MOST_PIECES = 12  # times the nodes of a kernel, beyond which it is not written piece by piece
ROWS_TOGETHER, FEW_ROWS = 8, 4  # rows that are reduced at once: of few values, and of several reductions
MOST_STORED, LONGEST_STORED = 2, 32  # arrays that rows reduced at once are stored into, and vectors of such a row
MOST_TOGETHER = 12  # values an element that this is done for, of one reduction
MOST_ADDITIONS = 16  # that these values take, where there are no functions
A_FUNCTION, MOST_OF_FUNCTIONS = (
    16,
    40,
)  # additions that a function of maths takes at least, and values with functions at most
OWN_VALUES = 3  # the same of each further reduction: a load, what is done with it, and a conversion between them
OWN_ADDITIONS = 3
LEAST_TILED = 16  # iterations along an axis from which tiles pay
FREE = frozenset(LEAVES) - {"load"}  # nodes that are counted elsewhere, or cost nothing


@dataclass(frozen=True)
class Estimate:
    """Seconds of one run: of starting it, of computing, of moving bytes, and of operations that wait for each other; `exposed`: the
    share of the shorter of computing and moving that does not hide behind the longer."""

    launch: float
    arithmetic: float
    memory: float
    waiting: float = 0
    exposed: float = 0

    @property
    def seconds(self) -> float:
        longest = max(self.arithmetic, self.memory, self.waiting)
        return self.launch + longest + self.exposed * min(self.arithmetic, self.memory)

    @property
    def limiter(self) -> str:
        """What takes longest."""
        parts = {n: getattr(self, n) for n in ("memory", "arithmetic", "waiting", "launch")}
        return max(parts, key=parts.__getitem__)

    def __add__(self, other: Estimate) -> Estimate:
        """Of one after the other, in one launch."""
        longer = max(self.launch, other.launch)
        return Estimate(
            longer,
            self.arithmetic + other.arithmetic,
            self.memory + other.memory,
            self.waiting + other.waiting,
            max(self.exposed, other.exposed),
        )


def estimate(
    kernel: Kernel, target: Target, vectorised: bool = True, since: Sequence[float] | None = None
) -> Estimate | None:
    """What one run of a kernel takes; None where it depends on values, as a while loop does.

    `vectorised`: whether the innermost loops are, where the machine has vectors. `since`: for each parameter, the bytes that
    were touched since it was, which says what memory it comes from; without, that the kernel runs again and again.
    """
    if kernel.loop is not None and kernel.loop.time is None:
        return None
    kernel = unroll_reductions(split_complex(kernel), target)
    return _Costs(kernel, arrange(kernel), target, vectorised).total(since)


class _Costs:
    """One kernel: its loops from the outermost to the innermost, and how often each node is computed in them."""

    def __init__(self, kernel: Kernel, loops: Loops, target: Target, vectorised: bool) -> None:
        self.kernel, self.loops, self.target = kernel, loops, target
        vector = loops.vector
        nest = [*loops.parallel, *loops.reduced]
        if kernel.loop is not None:
            nest = [*loops.parallel]
        if vector in nest:  # the vector axis runs innermost, whatever it is
            nest = [*(axis for axis in nest if axis is not vector), vector]
        self.nest = nest
        self.depth = {axis: number for number, axis in enumerate(nest)}
        self.vector = nest[-1] if nest else None
        self.vectors = vectorised and self.vector is not None
        self.vectorised = self.vectors and not self._in_turn()
        self.times = [1.0]  # iterations of the loops up to each depth
        for axis in nest:
            self.times.append(self.times[-1] * loops.extents[axis])
        self.crosswise = False  # in pieces whose vectors run along another axis
        self.columns = loops.extents[self.vector] if self.vector is not None else 1  # of the running piece
        self.beside = False  # short rows along memory lie beside each other in vectors, by way of tiles
        self.trees = False  # short rows become numbers together, in halves of their vectors
        self.of_node: dict[Scalar, int] = {}
        self.passing = 0.5 / 4 / target.operations  # seconds of a byte out of the nearest level, or into it

    def total(self, since: Sequence[float] | None = None) -> Estimate:
        arithmetic = self.sweeps()
        if self.vectors and rows_side_by_side(self.kernel, self.loops) is not None:
            alone, self.beside, self.vectorised = arithmetic, True, True
            arithmetic = min(alone, self.sweeps() + self.tiles())
            self.beside = False
        if self.vectors and self.target.combine and rows_as_trees(self.kernel, self.loops):
            alone, self.trees, self.vectorised = arithmetic, True, True
            arithmetic = min(alone, self.sweeps() + self.padding())
        waiting = 0.0
        if self.kernel.loop is not None:
            assert self.kernel.loop.time is not None
            body = self.compute(self.kernel.loop.body, self.kernel.loop.stores)
            arithmetic += self.kernel.loop.time.extent * body
            waiting = self.kernel.loop.time.extent * self.chain(self.kernel.loop)
        return Estimate(self.target.launch, arithmetic, self.memory(since), waiting, self.target.exposed)

    def _in_turn(self) -> bool:
        """Whether rows along memory are too short for their prefix scans to run in vectors, nor what stands beside them."""
        short = self.vector in self.loops.reduced and self.loops.extents[self.vector] < self.target.scanned
        return short and any(node.op == "scan" for sweep in self.kernel.sweeps for node in sweep.body)

    # Arithmetic.

    def sweeps(self) -> float:
        """Seconds of the runs over the reduced axes, one after the other."""
        seconds, kept = 0.0, set[Scalar]()
        for sweep in self.kernel.sweeps:
            seconds += self.sweep(sweep, kept)
            kept |= self.kept(sweep)
        return seconds

    def tiles(self) -> float:
        """Seconds of bringing rows beside each other, each array once, and those that are written back."""
        assert self.vector is not None
        moved = {(index, param, out) for index, param, out in self._accesses() if index.coefficient(self.vector)}
        numbers = sum(self.kernel.params[param].dtype.itemsize / 4 for _, param, _ in moved)
        return self.times[-1] * numbers * self.target.shuffled

    def padding(self) -> float:
        """Seconds of what rows that are reduced as trees write and read besides: rows in tiles of whole vectors, and what is reduced where
        that is not read from there."""
        assert self.vector is not None
        sizes = [
            self.kernel.params[p].dtype.itemsize for i, p, _ in set(self._accesses()) if i.coefficient(self.vector)
        ]
        moved = 2 * sum(sizes) if self.loops.extents[self.vector] % self.target.lanes else 0
        reductions = [reduction for sweep in self.kernel.sweeps for reduction in sweep.reductions]
        moved += sum(2 * r.attr.accumulator.itemsize for r in reductions if r.args[0].op != "load")
        return self.times[-1] * self._waste() * moved * self.passing

    def sweep(self, sweep: Sweep, kept: Collection[Scalar] = ()) -> float:
        """Seconds of one run, which reads back what earlier ones `kept`."""
        if not sweep.loops:
            return self.pieces(sweep)
        body: Sequence[Scalar] = sweep.body
        total = self.compute(sweep.row, sweep.row_stores) / (self.loops.count(self.loops.reduced) if self.across else 1)
        if kept:
            roots = [f.args[0] for f in sweep.reductions] + [store.value for store in sweep.stores]
            found = needed(roots, body, stop=kept)
            body = [node for node in found if node not in kept]
            read = sum(node.dtype.itemsize for node in found if node in kept)
            total += self.times[-1] * read * self.passing
        total += self.compute(body, sweep.stores)
        everything = self.times[-1]
        rows = self.loops.count(self.loops.parallel)
        inner = self.vector in self.loops.reduced and not self.beside
        for node in sweep.reductions:
            unit = self.target.compute(f"reduce_{node.attr.reduction}", node.attr.accumulator.itemsize)
            total += unit * everything * self._waste() + (rows * self.joining(node, unit) if inner else 0)
        for node in body:
            if node.op == "scan":
                total += everything * (self.target.prefix if inner else 2 / self.target.operations)
        if self.trees:
            return total
        outer = everything / self._side_by_side()
        if self.across and (at_once := rows_together(sweep, self.target, self._side_by_side())):
            outer /= at_once
        return total + outer * self.target.loop

    def joining(self, reduction: Scalar, unit: float) -> float:
        """Seconds in which the vector of a row becomes a number; `unit`: of taking in an element. As a tree each half as many lanes are
        written, read and taken in."""
        lanes = self.target.lanes
        tree = 2 * lanes * (2 * reduction.attr.accumulator.itemsize * self.passing + unit)
        return min(tree, self.target.combine) if self.trees else self.target.combine

    def kept(self, sweep: Sweep) -> set[Scalar]:
        """What later runs read back: out of a row of its own along memory, across it out of a result that they overwrite."""
        if self.vector in self.loops.reduced:
            row = sum(n.dtype.itemsize for s in self.kernel.sweeps for n in s.kept) * self.loops.count(
                self.loops.reduced
            )
            return set(sweep.kept) if row <= self.target.scratch else set()
        axes = self.nest
        free = [
            store.value.dtype for store in self.kernel.sweeps[-1].stores if all(map(store.offset.coefficient, axes))
        ]
        found: set[Scalar] = set()
        for node in sweep.kept:
            if self.target.scratch and node.dtype in free:
                free.remove(node.dtype)
                found.add(node)
        return found

    def pieces(self, sweep: Sweep) -> float:
        """Seconds of a run without reduced axes, in which each element is computed by the piece that it is of alone."""
        axes = [(axis, self.loops.extents[axis]) for axis in self.nest]
        found = (
            cut(sweep.row, sweep.row_stores, axes, MOST_PIECES * len(sweep.row)) if self.kernel.loop is None else None
        )
        if found is None:
            return self.compute(sweep.row, sweep.row_stores)
        self.crosswise = bool(self.target.tiled) and across_pieces(found, self.loops) is not None
        seconds = sum(self.piece(leaf, spans) for spans, leaf in self._leaves(found, {}))
        self.crosswise = False
        return seconds

    def piece(self, leaf: Cut, spans: Spans) -> float:
        """Seconds of a piece, whose loops along some axes run over these spans alone: what does not change along them is computed as
        often as in the whole."""
        shares = {axis: (last - first + 1) / self.loops.extents[axis] for axis, (first, last) in spans.items()}
        times, columns, crosswise = self.times, self.columns, self.crosswise
        self.times = [
            often * math.prod(share for axis, share in shares.items() if self.depth[axis] < depth)
            for depth, often in enumerate(times)
        ]
        self.columns = round(columns * shares.get(self.vector, 1)) if self.vector is not None else columns
        self.crosswise |= self.columns == 1 and len(self.nest) > 1 and bool(self.target.tiled)  # vectors along the rows
        seconds = self.elements(leaf, spans)
        self.times, self.columns, self.crosswise = times, columns, crosswise
        return seconds

    def elements(self, leaf: Cut, spans: Spans) -> float:
        """Seconds of a piece's elements; values that neighbours share are computed once, and kept in rows for them."""
        whole = self.compute(leaf.nodes, leaf.stores)
        if self.target.kept == math.inf or not self.vectorised or self.crosswise or self.beside or self.trees:
            return whole
        found = best_plan(self.kernel, self.loops, leaf.nodes, leaf.stores, self.target, spans=spans)
        if found is None:
            return whole
        moves = sum((1 + len(k.readers)) * k.node.dtype.itemsize / 4 for k in found.kept if k.stored)
        once = sum(self.compute(stage.nodes) for stage in found.stages) + self.compute(found.nodes, found.stores)
        return min(whole, once + self.times[-1] * moves * self.target.kept / self.target.operations)

    def _leaves(self, found: Cut, spans: Spans) -> Iterator[tuple[Spans, Cut]]:
        """The pieces, each with its spans of the iterations along the axes that are cut."""
        if found.axis is None:
            yield spans, found
        for first, last, part in found.parts:
            yield from self._leaves(part, {**spans, found.axis: (first, last)})  # type: ignore[dict-item]

    @property
    def across(self) -> bool:
        """Whether the vector runs across the reduced axes: what a row takes is then computed for all of its columns, before and after
        them."""
        return bool(self.loops.reduced) and self.vector in self.loops.parallel

    def compute(self, nodes: Iterable[Scalar], stores: Iterable[Store] = ()) -> float:
        """Seconds of computing nodes wherever they change, and of writing."""
        total = 0.0
        for node in nodes:
            depth = self.depth_of(node)
            if node.op == "load":
                total += self.times[depth] * self.access(node.attr, node.dtype.itemsize, bool(node.args), depth)
            elif node.op == "index":
                total += self.times[depth] * self.divisions(node.attr, depth)
            elif node.op not in FREE:
                dear = self.target.costs.get(kind(node), 1) >= A_FUNCTION
                total += self.times[depth] * _operation(node, self.target) * self.alone(depth, dear)
        for store in stores:
            depth = self.depth_of_index(store.offset)
            depth = max(depth, self.depth_of(store.value))
            total += self.times[depth] * self.access(store, store.value.dtype.itemsize, False, depth)
        return total

    def alone(self, depth: int, dear: bool = False) -> float:
        """How much longer an operation takes than its share of a vector: where it is no part of one, or of one half empty. What is left
        over of a row is computed under a mask where that is a `dear` one, in a vector even for one number."""
        if (
            (self.crosswise or self.beside or self.trees)
            and self.vectorised
            and 0 < depth < len(self.nest) + (not self.trees)
        ):
            return 1.0
        if depth < len(self.nest) or not self.vectorised:
            return self.target.scalar
        return self._waste(dear)

    def _waste(self, dear: bool = False) -> float:
        """How much longer the vectors of a run take than its elements' shares of them: the last is not full."""
        if self.vector is None or not self.vectorised:
            return self.target.scalar
        lanes, extent = self.target.vector // 4, ROWS if self.beside else self.columns
        full, rest = divmod(extent, lanes)
        left = lanes if (dear or self.trees) and rest else min(rest * self.target.scalar, lanes)
        return (full * lanes + left) / max(extent, 1)

    def _side_by_side(self) -> int:
        """Elements of the innermost loop. Short rows of columns are reduced together, but each has a loop of its own."""
        if self.vector is None:
            return math.prod(self.loops.extents.values())
        return ROWS if self.beside else self.loops.extents[self.vector]

    def access(self, found: Access | Store, itemsize: int, masked: bool, depth: int) -> float:
        """Seconds of one element's load or store out of the nearest level, and of finding where it is."""
        target, offset = self.target, found.offset
        seconds = self.divisions(offset, depth)
        plain = itemsize * self.passing
        if self.crosswise and depth and not any(self.depth_of(value) == len(self.nest) for value in computed(offset)):
            return seconds + plain + (target.shuffled if depth == len(self.nest) else 0.0)
        if depth < len(self.nest) or self.vector is None:
            return seconds + plain * (1 if self.trees and depth else target.scalar)
        if any(self.depth_of(value) == len(self.nest) for value in computed(offset)):
            return seconds + target.gathered + self.line(found)
        stride = offset.coefficient(self.vector)
        if stride in (0, 1, -1):
            return seconds + plain * self._waste() * (2 if masked or stride < 0 else 1)
        tiled = target.tiled and not self.kernel.reduced and self.kernel.loop is None and self.columns >= LEAST_TILED
        alone = target.tiled if tiled else target.strided
        if tiled and computed(offset) and not any(abs(offset.coefficient(axis)) == 1 for axis in self.nest):
            alone = target.strided + self.line(found)  # no axis is dense: rows at computed indices have no tiles
        return seconds + min(abs(stride) * itemsize / 4 * plain * 4, alone)

    def line(self, found: Access | Store) -> float:
        """Seconds of the line of memory that an element comes with, out of the level that holds all that the access touches: the next
        row, at a computed index, is in others."""
        held = self.footprint(found.offset, found.param)
        return self.target.stream(self.target.line, held) if held > self.target.levels[0].capacity else 0.0

    def divisions(self, index: Affine, depth: int) -> float:
        """Seconds of an index's integer divisions, one number after the other; none where strips have one quotient."""
        found = [atom for atom, _ in index.terms if isinstance(atom, Div)]
        if not self.kernel.reduced and self.kernel.loop is None:
            found = [a for a in found if a.divisor < SHORTEST_STRIP or not of_vector(a, self.loops)]
        innermost = len(self.nest)
        inner = [a for a in found if innermost and self.depth_of_base(a.base) == innermost]
        return len(inner) * self.target.compute("index_div", 4) if depth == len(self.nest) else 0.0

    # Memory.

    def memory(self, since: Sequence[float] | None) -> float:
        """Seconds of moving each array once; what is written is read before, as lines of a cache are."""
        once: dict[int, float] = {}
        touched: dict[int, float] = {}
        written: set[int] = set()
        for index, param, out in self._accesses():
            apart = self.vector is not None and abs(index.coefficient(self.vector)) > 1
            size = self.footprint(index, param)
            touched[param] = max(touched.get(param, 0.0), size)
            once[param] = max(once.get(param, 0.0), size * (self.target.across if apart else 1))
            written |= {param} if out else set()
        held = sum(touched.values())
        total = 0.0
        for param, size in once.items():
            distance = max(held, since[param]) if since is not None else held
            if distance > self.target.levels[0].capacity:
                far = distance > self.target.levels[1].capacity
                total += self.target.stream(size * (self.target.allocate if param in written and far else 1), distance)
        return total

    def _accesses(self) -> Iterable[tuple[Affine, int, bool]]:
        nodes = [n for n in self.kernel.nodes if n.op == "load"]
        yield from ((n.attr.offset, n.attr.param, False) for n in nodes)
        yield from ((s.offset, s.param, True) for s in self.kernel.stores)

    def footprint(self, index: Affine, param: int) -> float:
        """Bytes that an access touches."""
        array = self.kernel.params[param]
        elements = math.prod(array.shape)
        values = computed(index)
        axes = index_axes(index).union(*(own_axes(node) for node in in_order(values)))
        time = self.kernel.loop.time if self.kernel.loop is not None else None
        extents = self.loops.extents
        touched = math.prod(extents.get(axis, axis.extent) for axis in axes if axis is not time)
        touched *= time.extent if time is not None and time in axes else 1
        alone = any(self.depth_of(value) == len(self.nest) for value in values)  # each element with its line
        return float(
            min(elements * array.dtype.itemsize, touched * (self.target.line if alone else array.dtype.itemsize))
        )

    # Waiting.

    def chain(self, loop: Loop) -> float:
        """Seconds from one iteration's numbers to the next one's, for as many lanes as there are in turn."""
        latency: dict[Scalar, float] = {}
        for node in loop.body:
            before = max([latency.get(operand, 0.0) for operand in operands(node)], default=0.0)
            carried = node.op == "carry" or any(operand in latency for operand in operands(node))
            if carried or any(arg.op == "carry" for arg in node.args):
                latency[node] = before + (self.delay(node) if node.op not in FREE else 0.0)
        longest = max([latency.get(carry.following, 0.0) for carry in loop.carries], default=0.0)
        lanes = self.loops.count(self.loops.parallel)
        return longest * max(lanes / (self.target.chains * self.target.vector / 4), 1)

    def delay(self, node: Scalar) -> float:
        return self.target.latency * (1 + self.target.costs.get(kind(node), 1) / 4)

    # Where a node changes.

    def depth_of(self, node: Scalar) -> int:
        """The depth of the innermost loop along which a node changes."""
        if node not in self.of_node:
            stack = [node]
            while stack:
                top = stack[-1]
                missing = [n for n in operands(top) if n not in self.of_node]
                if missing:
                    stack += missing
                    continue
                stack.pop()
                self.of_node[top] = self._depth_of(top)
        return self.of_node[node]

    def _depth_of(self, node: Scalar) -> int:
        found = max([self.of_node[n] for n in operands(node)], default=0)
        if node.op in ("load", "index"):
            found = max(found, self.depth_of_index(index_of(node)))
        if node.op == "reduction":
            found = max([self.depth[axis] + 1 for axis in self.loops.parallel if axis in self.depth], default=0)
        if node.op in ("carry", "final"):
            axes = [a for a in node.attr.axes if a in self.depth]
            found = max([self.depth[axis] + 1 for axis in axes], default=0)
        return found

    def depth_of_base(self, base: Affine) -> int:
        """The depth of what an index divides: of its axes, and of what is computed in it."""
        return max([self.depth_of_index(base), *(self.depth_of(value) for value in computed(base))])

    def depth_of_index(self, index: Affine) -> int:
        return max([self.depth[axis] + 1 for axis in index_axes(index) if axis in self.depth], default=0)


def rows_together(sweep: Sweep, target: Target, columns: int) -> int:
    """How many rows of so many columns are reduced at once where columns run side by side, 0 for one by one: what an element takes is so little that
    their values are in registers together. Each further reduction may take a little more, for its accumulator would be read and
    written for each row; then fewer rows share that already, in less text. A function's steps wait for each other, and rows are
    often few vectors: those of few rows fill the time, for some reads of what registers do not hold. Long rows fill it by themselves;
    stored side by side they share sets of the nearest cache, which takes up to 2.4 times as long."""
    if any(node.op == "scan" for node in sweep.body):
        return 0
    costs = [target.costs.get(node.op, 1) for node in sweep.body if node.args]
    in_registers = 2 * len(sweep.reductions) <= target.registers  # an accumulator, and what it takes in
    if max(costs, default=0) >= A_FUNCTION:
        short = len(sweep.stores) <= MOST_STORED and columns < LONGEST_STORED * target.lanes
        fits = in_registers and sum(costs) <= MOST_OF_FUNCTIONS
        return FEW_ROWS if fits and (short or not sweep.stores) else 0
    further = max(len(sweep.reductions) - 1, 0)
    most_values, most_additions = MOST_TOGETHER + OWN_VALUES * further, MOST_ADDITIONS + OWN_ADDITIONS * further
    additions = sum(costs)
    if sweep.stores or len(sweep.body) > most_values:
        return 0
    if len(sweep.body) <= MOST_TOGETHER and additions <= MOST_ADDITIONS:
        return ROWS_TOGETHER
    return FEW_ROWS if in_registers and additions <= most_additions else 0


def iteration(nodes: Iterable[Scalar], stores: Iterable[Store], target: Target) -> float:
    """Seconds of computing each node and writing each result once, whatever the extents are: in whole vectors, out of the second
    level of memory. What code that serves all sizes counts with."""
    arithmetic, moved = 0.0, 0
    for node in nodes:
        if node.op == "load":
            moved += node.dtype.itemsize
        elif node.op not in FREE and node.op != "index":
            arithmetic += _operation(node, target)
    moved += sum(2 * store.value.dtype.itemsize for store in stores)
    return max(arithmetic, target.stream(moved, target.levels[1].capacity))


def most_alone(nodes: Iterable[Scalar], stores: Iterable[Store], target: Target) -> int:
    """The number of iterations, a power of two, up to which one worker does all of them."""
    shortest = 1 / target.operations  # of work that has no price
    return 1 << max(round(math.log2(target.alone / max(iteration(nodes, stores, target), shortest))), 4)


def _operation(node: Scalar, target: Target) -> float:
    """Seconds of a node's operation, as one of a vector."""
    return target.compute(kind(node), max([node.dtype.itemsize, *(arg.dtype.itemsize for arg in node.args)]))


def together(estimates: Sequence[Estimate | None]) -> Estimate | None:
    """Of kernels that share a launch, one after the other."""
    known = [e for e in estimates if e is not None]
    return reduce(lambda a, b: a + b, known) if known and len(known) == len(estimates) else None


def shared(found: Estimate, target: Target, workers: int) -> Estimate:
    """What several workers take together, where starting them is worth it."""
    if workers < 2 or target.fork <= 0 or found.seconds <= target.alone:
        return found
    part = 1 / workers
    return replace(
        found,
        launch=found.launch + target.fork,
        arithmetic=found.arithmetic * part,
        memory=found.memory * part,
        waiting=found.waiting * part,
    )
