"""The loops of elementwise kernels: a nest around pieces, each of which is written with the transforms of its own.

A kernel that asks where it is is cut where the answers change (`index_set_splitting.py`): what writes a part of an array in place is
one kernel over the whole array, whose inner part is then a plain loop without a mask at each load. Threads share the outermost
loops, or the innermost where they are few; where there are many pieces each thread goes through all of them for its own share.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fuser.backends.c import spell
from fuser.backends.c.emitter import Emitter
from fuser.backends.c.function import Code, Element, Part, Symbol, Variable, code, joined
from fuser.backends.c.schedules import (
    blocks,
    chunks,
    coalescing,
    masking,
    register_tiling,
    sliding_window,
    staging,
    strip_mining,
    tiled_pieces,
    tiling,
    unroll_and_jam,
)
from fuser.backends.c.schedules.index_set_splitting import index_set_split, order_of
from fuser.backends.c.schedules.piece import Piece, part_of, scheduled
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.cost import most_alone
from fuser.kernel.index_set_splitting import MANY, Cut, across_pieces
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import operands
from fuser.kernel.schedule import NOTHING_ASKED, Schedule
from fuser.kernel.sliding_window import Spans

OUTER = 16  # outer iterations from which they are shared out, rather than those along the vector
NARROW = 4  # elements along the vector for which a vector loop is not worth its code
BLOCK = 64  # iterations across narrow pieces that are done with before the next
# A thread's first iteration, and the next thread's.
OWN, OTHERS = Variable("own", "int64_t"), Variable("others", "int64_t")


@dataclass(frozen=True)
class Span:
    """Iterations `first` … `last` of an axis, and how the text writes the first and the one after the last."""

    axis: Axis
    first: int
    last: int
    begin: Part
    end: Part

    @property
    def extent(self) -> int:
        return self.last + 1 - self.first


class Elementwise(Emitter):
    """Parallel over the outer axes (or over the only one), the vector along the axis that lies densest."""

    team = True

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True, asked: Schedule = NOTHING_ASKED) -> None:
        self.cut = _cut(kernel, loops, asked)
        if register_tiling.is_window(kernel, loops):
            self.most_sizes = 0  # to add up the offsets of a window takes as long as to compute a short row
        elif self.cut.axis is not None:
            self.most_sizes = 1 << 20  # pieces that differ in their places alone are one function (`outlining`)
        super().__init__(kernel, loops, threads, asked)
        if self.cut.axis is not None and self._undivided():
            self.cut = _whole(kernel)
        self.pieces = _pieces(kernel, loops, self.cut, asked)
        if any(piece.unroll_and_jam for piece in self.pieces.values()):
            self.attributes = unroll_and_jam.ATTRIBUTES
        self.sources: dict[Scalar, Element] = {}  # loads that are read elsewhere, in tiles
        self.wide: dict[Scalar, Element] = {}  # loads of less than 32 bits that are read from wider numbers
        self.targets: dict[Store, Element] = {}  # stores that go elsewhere first, to tiles or blocks
        self.repeated: dict[Scalar, str] = {}  # arrays of what coalesced rows repeat, where they stand before all loops
        self.waiting: tiled_pieces.Waiting | None = None  # results of narrow pieces that stand in tiles
        self.single = frozenset(node for piece in self.pieces.values() for node in piece.single)
        inner = (
            across_pieces(self.cut, loops) if self.cut.axis is not None else None
        )  # the axis of vectors instead, where pieces are narrow
        self.order = order_of(loops) if inner is None else [a for a in order_of(loops) if a is not inner] + [inner]
        self.across = inner
        self.columns: list[Store] = []
        if inner is not None and not asked.forbids("tiling"):
            self.columns = tiled_pieces.waiting(kernel, loops, inner, BLOCK)
        self.taken = False  # whether the loop around shares its iterations out
        self.copying = False  # whether a test stands around that leaves out copies within one memory
        # Whether each thread goes through all pieces for its own share of the iterations.
        self.dealt = threads and len(self.pieces) > MANY

    def schedule(self) -> Schedule:
        made = _as_data(self.cut, [self.pieces[leaf] for leaf in self.cut.whole], self, super().schedule())
        if not self.columns:
            return made
        assert self.loops.vector is not None
        return replace(made, tiling=(BLOCK, self.loops.extents[self.loops.vector]))

    def form(self) -> None:
        if not self.order:
            self._elements(self.pieces[self.cut])
            return
        self.vector = self.order[-1]
        if self.cut.axis is None:
            spans = [self._span(axis, 0, self.loops.extents[axis] - 1) for axis in self.order]
            self._piece(self.pieces[self.cut], spans)
            return
        count = self.loops.count(tuple(self.order[:-1]))
        self.outer = (
            chunks.shared_axis(self.order[:-1], self.loops.extents)
            if count >= OUTER and self.across is None
            else self.vector
        )
        if self.dealt:
            functions = map(Symbol, ("omp_get_thread_num", "omp_get_num_threads"))
            extent, thread, threads = self.extents[self.outer], *functions
            self.let("int64_t", OWN.name, "{} * {}() / {}()", extent, thread, threads)
            self.let("int64_t", OTHERS.name, "{} * ({}() + 1) / {}()", extent, thread, threads)
        if self.across is None:
            self._nest(self.cut, 0, ())
        else:
            self._in_blocks_of(self.across)

    def most_alone(self) -> int:
        return min(most_alone(leaf.nodes, leaf.stores, TARGET) for leaf in self.cut.whole)

    def _undivided(self) -> bool:
        """Whether short rows that are cut along themselves alone are worth more whole, in vectors under a mask."""
        if self.asked.index_set_splitting or self.cut.axes != {self.loops.vector}:
            return False
        [sweep] = self.kernel.sweeps
        parts = [(last + 1 - first, part.nodes) for first, last, part in self.cut.parts]
        return masking.undivided(self, sweep.row, sweep.row_stores, parts)

    # The nest around pieces.

    def _span(self, axis: Axis, first: int, last: int) -> Span:
        begin: Part = "0" if first == 0 else self.sizes(("from", axis, first), first)
        whole = last == self.loops.extents[axis] - 1
        end: Part = self.extents[axis] if whole else self.sizes(("to", axis, last + 1), last + 1)
        return Span(axis, first, last, begin, end)

    def _in_blocks_of(self, inner: Axis) -> None:
        """All pieces for a block of the inner axis before the next, whose results then share cache lines."""
        first, end = (OWN, OTHERS) if self.dealt else ("0", self.extents[inner])
        block = self.count("block", first, end, f"{{}} += {BLOCK}")
        self.let("int64_t", "behind", f"{{0}} + {BLOCK} < {{1}} ? {{0}} + {BLOCK} : {{1}}", block, end)
        self.waiting = tiled_pieces.begin(self, self.columns, inner, BLOCK)
        self._nest(self.cut, 0, ())
        tiled_pieces.leave(self, self.waiting, BLOCK)
        self.waiting = None
        self.close()

    def _nest(self, cut: Cut, depth: int, spans: tuple[Span, ...]) -> None:
        """The loops from axis number `depth` on; those of `spans` are written with the pieces."""
        if depth == len(self.order):
            with self.scope():
                self._piece(self.pieces[cut], spans)
            return
        axis = self.order[depth]
        whole = self.loops.extents[axis]
        parts = cut.parts if cut.axis is axis else ((0, whole - 1, cut),)
        for first, last, part in parts:
            with self.scope():
                span, copies = (
                    self._clipped(self._span(axis, first, last)),
                    cut.axis is axis and self._unless_in_place(part),
                )
                self.copying |= copies
                self._part(part, span, depth, spans)
                if copies:
                    self.copying = False
                    self.close()

    def _part(self, part: Cut, span: Span, depth: int, spans: tuple[Span, ...]) -> None:
        """The loops of a part, over a span of axis number `depth`, and of the axes inside."""
        axis = span.axis
        if axis is self.vector or any(axis in self.pieces[leaf].inner(self.vector) for leaf in part.whole):
            self._nest(part, depth + 1, (*spans, span))
            return
        taken, shares = self.taken, self.threads and axis is self.outer and not self.dealt
        if shares:
            self.pragma("omp for schedule(static) nowait")
        self._over(span, one=not shares)
        self.taken = taken or shares
        self._nest(part, depth + 1, spans)
        self.taken = taken
        self.close()

    def _unless_in_place(self, cut: Cut) -> bool:
        """Open a test around what copies arrays alone, element by element, which has nothing to do where a result lies in the memory of what
        it copies; False where that is not all it does."""
        if self.copying:
            return False
        stores = [store for leaf in cut.whole for store in leaf.stores]
        copied = [
            s.value for s in stores if s.value.op == "load" and s.value.attr.offset == s.offset and not s.value.args
        ]
        if len(copied) < len(stores) or any(
            v.attr.param not in self.overwritten(s.param) for s, v in zip(stores, copied)
        ):
            return False
        pairs = dict.fromkeys((self.params[v.attr.param], self.params[s.param]) for s, v in zip(stores, copied))
        self.open("if ({})", joined([code("{} != {}", *pair) for pair in pairs], " || "))
        return True

    def _clipped(self, span: Span) -> Span:
        """The part of a span that belongs to the running block, or to this thread."""
        if span.axis is self.across:
            first, end = self.named("block"), self.named("behind")
        elif self.dealt and span.axis is self.outer and span.extent > 1:
            first, end = OWN, OTHERS
        else:
            return span
        return replace(span, begin=_later(span, first), end=_earlier(span.end, end))

    def _over(self, span: Span, one: bool = True) -> None:
        """Open the loop of a span; where it is `one` iteration, a block of its own."""
        clipped = span.axis is self.across
        mine = self.dealt and span.axis is self.outer
        if span.extent > 1 or clipped or not one:
            self.loop(span.axis, span.begin, span.end)
            return
        self.open(code("if ({0} <= {1} && {1} < {2})", OWN, span.begin, OTHERS) if mine else "")
        self.let("int64_t", self.axis_names[span.axis], span.begin)

    # One piece.

    def _piece(self, piece: Piece, spans: Sequence[Span]) -> None:
        """The loops of a piece over all spans, the innermost last."""
        self.masks = masking.truths(piece.nodes)  # pieces that share a load do not make the same of it
        inner = piece.inner(self.vector)
        outer = [span for span in spans if span.axis not in inner]
        along = {span.axis: span for span in spans}
        share = self.threads and not self.taken and not self.dealt
        count = math.prod(span.extent for span in outer)
        tiled = (
            piece.tiling is not None and not piece.strip_mining
        )  # strips are around the tiles, and dealt out themselves
        around = share and (tiled or count >= OUTER)
        rows = piece.coalescing
        once = rows is not None and coalescing.stands_still(rows, [span.axis for span in outer])
        if once:
            self.open()
            self.repeated = coalescing.repeated(self, piece, along[self.vector])
        if around and (rows is None or once) and (outer or tiled):
            self.shared(len(outer) + 2 if tiled else _collapsed(outer))
            share = False
        for span in outer:
            self._over(span, one=not around)
        if piece.register_tiling is not None:
            self._in_register_tiles(piece, along, share)
            for _ in outer:
                self.close()
            return
        if piece.sliding_window is not None:
            ranges = {axis: (span.begin, span.end) for axis, span in along.items()}
            sliding_window.write(self, piece.sliding_window, ranges, share)
            for _ in outer:
                self.close()
            return
        still = _still(piece, self)
        if still:
            self.open()
            self.define_all(still)
            piece = _without(piece, frozenset(still))
        if piece.strip_mining:
            ends = strip_mining.open_strips(self, along[self.vector], piece.strip_mining, share)
            along[self.vector], share = Span(self.vector, 1, piece.strip_mining.length, *ends), False
            self.strips.add(piece.strip_mining.length)
        if piece.tiling is not None:
            tiling.write(self, piece, along[piece.tiling.axis], along[self.vector])
        elif piece.coalescing is not None:
            self.open()  # for what rows share
            coalescing.write(self, piece, along[piece.coalescing.row], along[self.vector], share)
            self.close()
        elif piece.blocked:
            blocks.write(self, piece, along[self.vector], share)
        else:
            self._plain(piece, along[self.vector], share, count >= OUTER or self.cut.axis is not None)
        self.sources, self.targets, self.wide = {}, {}, {}
        if piece.strip_mining:
            strip_mining.close_strips(self)
        if still:
            self.close()
            for node in still:
                self.env.pop(node, None)
        for _ in outer:
            self.close()
        if once:
            self.close()
            self.repeated = {}

    def _in_register_tiles(self, piece: Piece, along: dict[Axis, Span], share: bool) -> None:
        """Whole tiles of neighbours, and those that are left one by one; the threads may share both."""
        tile = piece.register_tiling
        assert tile is not None
        span, taken = along[tile.axis], self.taken
        form = f"{{1}} + (({{0}} - {{1}}) > 0 ? ({{0}} - {{1}}) / {tile.count} * {tile.count} : 0)"
        with self.scope():
            self.open()
            tiled = self.let("int64_t", f"{self.axis_names[tile.axis]}_tiled", form, span.end, span.begin)
            self.taken = True
            parts = (span.begin, tiled, f"{{}} += {tile.count}"), (tiled, span.end, "++{}")
            pieces = Piece(tile.nodes, tile.stores), Piece(piece.nodes, piece.stores)
            for (first, last, step), part in zip(parts, pieces):
                with self.scope():
                    if share:
                        self.pragma("omp for schedule(static) nowait")
                    self.loop(tile.axis, first, last, step)
                    self._piece(part, (along[self.vector],))
                    self.close()
            self.close()
        self.taken = taken

    def _plain(self, piece: Piece, span: Span, share: bool, masked: bool) -> None:
        """One loop along the vector."""
        if piece.superword:
            if share:
                self.shared()
            with self.scope():
                self._over(span, one=not share)
                self.do('__asm__ volatile ("");')  # which no vector loop has
                self._elements(piece)
                self.close()
            return
        if piece.counted and not share:
            self.pragma("omp simd")
            self._run(piece, replace(span, begin="0", end=str(span.extent)))
            return
        if share:
            self.pragma("omp for simd schedule(simd: static) nowait")
            self._run(piece, span, one=False)
            return
        mine = self.dealt and span.axis is self.outer
        own = not mine and span.axis is self.loops.vector
        if own and masked and (rest := masking.remainder(self, piece.nodes, piece.stores, span.extent)):
            self.made(masking=rest)
            with self.standing_loads(piece.nodes):
                self.in_whole_vectors(span.axis, rest, lambda: self._elements(piece), span.begin, span.end)
            return
        lanes = masking.lanes(self, piece.nodes, piece.stores, span.extent, wide=True) if own else 0
        if rows := masking.narrow_loads(self, piece.nodes, piece.stores) if lanes else ():
            self.open()  # other pieces have rows of these names
            self._widen(rows, span, masking.LONGEST * lanes)
        if (span.extent > NARROW or self.cut.axis is None) and not lanes:
            self.pragma("omp simd" + masking.halved(self, piece.nodes, piece.stores, span.extent))
        if lanes:
            self.made(masking=lanes)
            with masking.standing_quotients(self, piece.nodes, piece.stores), self.scope():
                self.pragma("omp simd")
                self.count_masked(self.axis_names[span.axis], span.end, lanes, span.begin)
                self._elements(piece)
                self.close_masked()
            if rows:
                self.close()
                self.wide.clear()
            return
        self._run(piece, span)

    def _widen(self, nodes: Sequence[Scalar], span: Span, room: int) -> None:
        """Read the row of each node into numbers of 32 bits."""
        for node in nodes:
            row = self.buffer(spell.held(node.dtype), f"{self.name(node)}_row", room)
            with self.scope():
                self.pragma("omp simd")
                self.loop(span.axis, span.begin, span.end)
                x = code("{} - {}", self.axes[span.axis], span.begin)
                self.set(self.at(row, x), spell.put(node.dtype, super().expression(node)))
                self.close()
            self.wide[node] = self.at(row, code("{} - {}", self.axes[span.axis], span.begin))

    def _run(self, piece: Piece, span: Span, one: bool = True) -> None:
        self.single_element = one and span.extent == 1 and span.axis is not self.across
        with self.scope():
            self._over(span, one)
            self._elements(piece)
            self.close()
        self.single_element = False

    def _elements(self, piece: Piece) -> None:
        self.define_all(piece.nodes)
        for store in piece.stores:
            self.store(store)

    # What a piece's loops read and write elsewhere than in the arrays.

    def expression(self, node: Scalar) -> Code:
        if node in self.wide:
            return code(spell.taken(node.dtype, self.wide[node]))
        if node in self.sources:
            return self.element_at(node, self.sources[node])
        return super().expression(node)

    def target(self, store: Store) -> Element:
        tiled = self.waiting.element(self, store, BLOCK) if self.waiting is not None else None
        return tiled or super().target(store)

    def leave(self, store: Store) -> None:
        """Store a value, where results wait in a block to its place there."""
        if store not in self.targets:
            self.store(store)
            return
        self.set(self.targets[store], self.stored(store))

    def room_for(self, store: Store, extent: int, what: str = "block") -> Variable:
        """Declare an array for a part of what a store writes."""
        param = self.kernel.params[store.param]
        return self.buffer(spell.storage(param.dtype), f"{param.name}_{what}", extent)


def _collapsed(outer: Sequence[Span]) -> int:
    """Loops whose iterations threads share as one count, from which each loop's number has to be told again: the fewest with enough."""
    counts = itertools.accumulate((span.extent for span in outer), operator.mul)
    return next((n for n, count in enumerate(counts, 1) if count >= chunks.ENOUGH), len(outer))


def _cut(kernel: Kernel, loops: Loops, asked: Schedule) -> Cut:
    """The pieces of the kernel, or all of it as one. Short rows that run as one loop are not cut along themselves."""
    whole = _whole(kernel)
    found = None if asked.forbids("index_set_splitting") else index_set_split(kernel, loops)
    if found is None or len(found.whole) > MANY:
        return found or whole
    return whole if loops.vector in found.axes and coalescing.short_rows(kernel, loops) is not None else found


def _whole(kernel: Kernel) -> Cut:
    [sweep] = kernel.sweeps
    return Cut(None, (), sweep.row, sweep.row_stores)


def _pieces(kernel: Kernel, loops: Loops, cut: Cut, asked: Schedule) -> dict[Cut, Piece]:
    """The schedule of each piece. Along another axis than the usual one pieces are plain loops."""
    if cut.axis is None:
        return {cut: scheduled(kernel, loops, asked)}
    if across_pieces(cut, loops) is not None:
        return {leaf: Piece(leaf.nodes, leaf.stores) for leaf in cut.whole}
    return dict(_leaves(kernel, loops, cut, asked, {}))


def _leaves(kernel: Kernel, loops: Loops, cut: Cut, asked: Schedule, spans: Spans) -> list[tuple[Cut, Piece]]:
    if cut.axis is None:
        return [(cut, scheduled(part_of(kernel, cut.nodes, cut.stores), loops, asked, spans))]
    found = []
    for first, last, part in cut.parts:
        inside = replace(loops, extents={**loops.extents, cut.axis: last + 1 - first})
        found += _leaves(kernel, inside, part, asked, {**spans, cut.axis: (first, last)})
    return found


def _still(piece: Piece, writer: Elementwise) -> list[Scalar]:
    """What is chosen or tested along rows alone, with what it needs: compilers write a loop for each outcome of such a test, and then
    take none of them into vectors."""
    if piece.tiling is not None or piece.coalescing is not None:
        return []
    still = [n for n in piece.nodes if n.op != "const" and n not in writer.env and not writer.follows(n, writer.vector)]
    among = set(still)
    wanted: set[Scalar] = set()
    stack = [node for node in still if _tests(node)]
    while stack:
        node = stack.pop()
        if node in among and node not in wanted:
            wanted.add(node)
            stack += operands(node)
    return [node for node in still if node in wanted]


def _tests(node: Scalar) -> bool:
    """Whether what a node computes depends on a test, as functions of maths ask for arguments far away."""
    to_integer = node.op == "cast" and node.dtype.kind in "iu" and node.args[0].dtype.kind == "f"
    return node.op in ("select", "max", "min") or node.op in TARGET.costs or to_integer


def _without(piece: Piece, still: frozenset[Scalar]) -> Piece:
    """The piece without nodes that are computed before it."""
    rest = lambda nodes: tuple(node for node in nodes if node not in still)
    return replace(piece, nodes=rest(piece.nodes), fission=tuple(map(rest, piece.fission)))


def _later(span: Span, second: Variable) -> Part:
    return second if span.first == 0 else code("{0} > {1} ? {0} : {1}", span.begin, second)


def _earlier(first: Part, second: Variable) -> Code:
    return code("({0} < {1} ? {0} : {1})", first, second)


def _as_data(cut: Cut, pieces: Sequence[Piece], writer: Elementwise, made: Schedule) -> Schedule:
    """What is made of the pieces, in numbers."""
    found = list(dict.fromkeys(_piece_as_data(piece, writer) for piece in pieces))
    made = replace(made, index_set_splitting=len(pieces) if cut.axis is not None else None)
    return replace(made, **found[0].items()) if len(found) == 1 else replace(made, pieces=tuple(found))


def _piece_as_data(piece: Piece, writer: Elementwise) -> Schedule:
    return Schedule(
        tiling=None if piece.tiling is None else tiling.sides(writer.kernel, piece.tiling),
        coalescing=None if piece.coalescing is None else piece.coalescing.block,
        staging=staging.ROWS if piece.tiles_in or piece.tiles_out else None,
        fission=len(piece.fission) or None,
        unroll_and_jam=piece.unroll_and_jam or None,
        register_tiling=piece.register_tiling.count if piece.register_tiling is not None else None,
        sliding_window=len(piece.sliding_window.plan.kept) if piece.sliding_window is not None else None,
        streaming=len(piece.streaming) or None,
        strip_mining=piece.strip_mining.length if piece.strip_mining else None,
        superword=piece.superword or None,
        blocking=blocks.length(piece) if piece.blocked and piece.tiling is None and piece.coalescing is None else None,
    )
