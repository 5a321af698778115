"""The schedule of a piece of an elementwise kernel: which transforms of its innermost loops pay, decided one after the other.

In: the nodes and stores of the part, as a kernel of its own, and its loops. Out: a `Piece`, which the writer only spells.
Each transform has its legality and its price in its own file; they compose: a piece of a kernel that is cut may be tiled, and
what is computed of a tile may be fissioned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fuser.backends.c.schedules import (
    coalescing,
    fission,
    register_tiling,
    sliding_window,
    staging,
    strip_mining,
    superword,
    tiling,
    unroll_and_jam,
)
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.cost import estimate
from fuser.kernel.kernel import Kernel, Store, Sweep
from fuser.kernel.loops import Loops
from fuser.kernel.operands import index_axes
from fuser.kernel.schedule import NOTHING_ASKED, Schedule
from fuser.kernel.sliding_window import Spans


@dataclass(frozen=True, eq=False)
class Piece:
    """The nodes and stores of some iterations, and the transforms of their loops; empty ones are not made."""

    nodes: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    tiling: tiling.TransposedAccess | None = None
    coalescing: coalescing.Rows | None = None
    counted: bool = False  # rows of few whole vectors, whose number of elements stands in the text
    tiles_in: tuple[staging.Tile, ...] = ()
    tiles_out: tuple[staging.Tile, ...] = ()
    fission: tuple[tuple[Scalar, ...], ...] = ()
    single: frozenset[Scalar] = frozenset()  # loads in loops without vectors
    alone: frozenset[Scalar] = frozenset()  # loads in vector loops of their own
    unroll_and_jam: int = 0
    register_tiling: register_tiling.Neighbours | None = None
    sliding_window: sliding_window.SlidingWindow | None = None
    streaming: tuple[Store, ...] = ()
    strip_mining: strip_mining.Strips | None = None
    superword: int = 0  # elements of rows that are a vector each

    @property
    def blocked(self) -> bool:
        """Whether the loop along the vector runs in blocks."""
        return bool(self.tiles_in or self.tiles_out or self.fission or self.unroll_and_jam or self.streaming)

    def inner(self, vector: Axis) -> tuple[Axis, ...]:
        """The axes whose loops are written with the piece, rather than around it."""
        if self.tiling is not None:
            return self.tiling.axis, vector
        if self.register_tiling is not None:
            return self.register_tiling.axis, vector
        if self.sliding_window is not None:
            return self.sliding_window.plan.axes
        return (vector,) if self.coalescing is None else (self.coalescing.row, vector)


def part_of(kernel: Kernel, nodes: Sequence[Scalar], stores: Sequence[Store]) -> Kernel:
    """A kernel of some of the work of an elementwise one."""
    return replace(kernel, sweeps=(Sweep(tuple(nodes), tuple(stores), (), (), ()),))


def scheduled(kernel: Kernel, loops: Loops, asked: Schedule = NOTHING_ASKED, spans: Spans | None = None) -> Piece:
    """The piece with the transforms that are asked for, or pay. `spans`: the first and last iterations of axes that are cut."""
    sweep, vector = kernel.sweeps[0], loops.vector
    piece = Piece(sweep.row, sweep.row_stores)
    if vector is None:
        return piece
    if not asked.forbids("tiling") and (crossing := tiling.transposed_accesses(kernel, loops)) is not None:
        mined = None if asked.forbids("strip_mining") else strip_mining.strips(piece.nodes, piece.stores, loops)
        return _fissioned(replace(piece, tiling=crossing, strip_mining=mined), kernel, loops, asked, fission.TILED)
    if not asked.forbids("coalescing"):
        rows = coalescing.short_rows(kernel, loops)
        whole = rows is not None and loops.extents[vector] % coalescing.LANES == 0
        if (
            whole and (found := _neighbours(piece, loops, asked)) is not None
        ):  # they share windows beside what rows repeat
            return replace(piece, register_tiling=found)
        if rows is not None and coalescing.in_registers(rows, loops):
            return replace(piece, counted=True)
        if rows is not None:
            return _fissioned(replace(piece, coalescing=rows), kernel, loops, asked, 1)
    if not asked.forbids("sliding_window"):
        found_window = sliding_window.sliding_window(kernel, loops, piece.nodes, piece.stores, spans=spans)
        if found_window is not None:
            return replace(piece, sliding_window=found_window)
    if not asked.forbids("superword") and (length := superword.row(kernel, loops)):
        return replace(piece, superword=length)
    if not asked.forbids("strip_mining") and (strips := strip_mining.strips(piece.nodes, piece.stores, loops)):
        piece = replace(piece, strip_mining=strips)
        loops = replace(loops, extents={**loops.extents, vector: strips.length})
    if not asked.forbids("staging"):
        tiles_in, tiles_out = staging.tiles(kernel, loops)
        piece = replace(piece, tiles_in=tuple(tiles_in), tiles_out=tuple(tiles_out))
    piece = _fissioned(piece, kernel, loops, asked, fission.SHORT)
    alone = len(loops.parallel) == 1 and not piece.strip_mining
    if alone and not asked.forbids("streaming"):
        leaving = {store for tile in piece.tiles_out for store in tile.members}
        streaming = tuple(s for s in piece.stores if s not in leaving and _dense(s, loops))
        apart = len({s.param for s in streaming}) == len(streaming)
        if apart and (asked.streaming or _streams(streaming, kernel)):
            piece = replace(piece, streaming=streaming)
    if piece.fission or piece.tiles_in or piece.tiles_out:
        return piece
    if not piece.blocked and not piece.strip_mining and (found := _neighbours(piece, loops, asked)) is not None:
        return replace(piece, register_tiling=found)
    count, most = asked.unroll_and_jam, unroll_and_jam.most(kernel, loops)
    if count is None:
        return replace(piece, unroll_and_jam=unroll_and_jam.interleaved(kernel, loops))
    return replace(piece, unroll_and_jam=most if count is True else min(count, most))


def _neighbours(piece: Piece, loops: Loops, asked: Schedule) -> register_tiling.Neighbours | None:
    if asked.forbids("register_tiling"):
        return None
    return register_tiling.neighbours(piece.nodes, piece.stores, loops, asked.register_tiling)


def _fissioned(piece: Piece, kernel: Kernel, loops: Loops, asked: Schedule, least: int) -> Piece:
    if asked.forbids("fission"):
        return piece
    assert loops.vector is not None
    runs = fission.runs(kernel, loops, least)
    if not runs:
        return piece
    single, alone = fission.gathers(piece.nodes, loops.vector), fission.backwards(kernel, loops.vector)
    return replace(piece, fission=tuple(map(tuple, runs)), single=frozenset(single), alone=frozenset(alone))


def _touched(kernel: Kernel) -> int:
    """Bytes of all arrays, as far as the iterations reach."""
    iterations = math.prod(axis.extent for axis in kernel.parallel)
    return sum(min(math.prod(p.shape), iterations) * p.dtype.itemsize for p in kernel.params)


def _streams(stores: Sequence[Store], kernel: Kernel) -> bool:
    """Whether caches keep little of what the kernel touches, and to read lines of its results before they are written takes longer than
    what it computes, which hides behind memory no longer."""
    touched = _touched(kernel)
    if not stores or touched < TARGET.streamed:
        return False
    found = estimate(kernel, TARGET)
    iterations = math.prod(axis.extent for axis in kernel.parallel)
    size = iterations * sum(kernel.params[store.param].dtype.itemsize for store in stores)
    return found is not None and found.arithmetic < TARGET.stream(size, touched)


def _dense(store: Store, loops: Loops) -> bool:
    """Whether the store fills an array one element after the other. Rows of their own, beside what they share, gain nothing."""
    vector, axes = loops.vector, set(index_axes(store.offset)) - loops.absorbed
    assert vector is not None
    return axes == {vector} and store.offset.offset == 0 and store.offset.coefficient(vector) == 1
