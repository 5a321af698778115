"""Windows read of an array that was just updated: read of the array as it was, and of what was written. Graph → Graph.

A loop that swaps two rows and reads a column then needs no array between: the update joins the kernel of its one other
reader, or is written in place.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.rewrite import Rewriter
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.elementwise import and_p, eq_p, max_p, min_p, select_n_p
from fuser.ops.movement import slice_p

TIMES_FEWER = 8  # elements of the window against those of the array
LONGEST = 8  # updates that one window is read through
MOST_BESIDE = 64  # updates that one slice lies beside


def forward_updates(graph: Graph) -> Graph:
    """The graph with small `dynamic_slice`s of the results of `dynamic_update_slice`s written by slices of both operands.

    A `slice` that lies beside what was written at a known place is one of the array as it was, one inside is one of what was written,
    where nobody needs the updated array as a whole.
    """
    primitives = {eqn.primitive for eqn in graph.eqns}
    if dynamic_update_slice_p not in primitives or not {dynamic_slice_p, slice_p} & primitives:
        return graph
    rewriter, read_alone = Rewriter(graph), _read_alone(graph)
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        through = None
        if eqn.primitive is slice_p and original.invars[0] in read_alone:
            through = _read_at(eqn, rewriter)
        if through is None and reads_window(eqn) and (starts := _starts(eqn, rewriter)) is not None:
            through = _read(eqn.invars[0], starts, eqn.outvars[0].aval.shape, rewriter, LONGEST)
        if through is None:
            rewriter.keep(eqn)
        else:
            rewriter.replace(original.outvars[0], through)
    return rewriter.finish()


def reads_window(eqn: Eqn) -> bool:
    """Whether an equation reads a block of an array that is much larger."""
    if eqn.primitive not in (dynamic_slice_p, slice_p) or not set(eqn.params.get("strides") or ()) <= {1}:
        return False
    return eqn.outvars[0].aval.size * TIMES_FEWER <= eqn.invars[0].aval.size


def _starts(eqn: Eqn, rewriter: Rewriter) -> Sequence[Operand] | None:
    """Where the block begins that an equation reads, in the integers of the update that it is read through; None where they do not
    hold it, or there is no update."""
    if eqn.primitive is dynamic_slice_p:
        return eqn.invars[1:]
    update = rewriter.producer(eqn.invars[0], dynamic_update_slice_p)
    starts, offsets = eqn.params["start_indices"], () if update is None else update.invars[2:]
    if not offsets or any(n > np.iinfo(o.aval.dtype).max for o, n in zip(offsets, starts)):
        return None
    return [Literal(o.aval.dtype.type(n), o.aval) for o, n in zip(offsets, starts)]


def _read_alone(graph: Graph) -> set[Operand]:
    """The results of updates of which only slices, and further updates of the kind, are ever read."""
    needed: set[Operand] = set(graph.outvars)
    for eqn in reversed(graph.eqns):
        update = eqn.primitive is dynamic_update_slice_p and eqn.outvars[0] not in needed
        kept = eqn.invars[1:] if update or eqn.primitive is slice_p else eqn.invars
        needed.update(v for v in kept if isinstance(v, Var))
    updates = (eqn.outvars[0] for eqn in graph.eqns if eqn.primitive is dynamic_update_slice_p)
    return {v for v in updates if v not in needed}


def _read_at(eqn: Eqn, rewriter: Rewriter) -> Operand | None:
    """What a static slice reads, without the updates that it lies beside or inside; None where there is none such."""
    source = eqn.invars[0]
    strides = eqn.params["strides"] or (1,) * source.aval.ndim
    sizes = eqn.outvars[0].aval.shape
    if 0 in sizes:
        return None
    starts = list(eqn.params["start_indices"])
    for _ in range(MOST_BESIDE):
        if (update := rewriter.producer(source, dynamic_update_slice_p)) is None:
            break
        x, new, *offsets = update.invars
        if not all(isinstance(offset, Literal) for offset in offsets):
            return None
        places = [_place(o, e, n) for o, e, n in zip(offsets, x.aval.shape, new.aval.shape)]
        ends = [place + extent for place, extent in zip(places, new.aval.shape)]
        limits = [start + (size - 1) * stride + 1 for start, size, stride in zip(starts, sizes, strides)]
        if any(limit <= place or end <= start for start, limit, place, end in zip(starts, limits, places, ends)):
            source = x
        elif all(place <= start and limit <= end for start, limit, place, end in zip(starts, limits, places, ends)):
            source, starts = new, [start - place for start, place in zip(starts, places)]
        else:
            return None
    if source is eqn.invars[0]:
        return None
    if sizes == source.aval.shape:
        return source
    limits = [start + (size - 1) * stride + 1 for start, size, stride in zip(starts, sizes, strides)]
    params = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": eqn.params["strides"]}
    return rewriter.add(slice_p, source, **params)


def _place(offset: Operand, extent: int, size: int) -> int:
    """Where an update at a known offset lies: moved inside."""
    assert isinstance(offset, Literal)
    return min(max(int(offset.val), 0), extent - size)


def _read(
    operand: Operand, starts: Sequence[Operand], sizes: Sequence[int], rewriter: Rewriter, left: int
) -> Operand | None:
    """The window of `operand` without the update that made it; None where that is no slice and no selection."""
    update = rewriter.producer(operand, dynamic_update_slice_p)
    if update is None or not left:
        return None
    x, new, *offsets = update.invars
    shape = x.aval.shape
    narrow = {d for d, (size, extent) in enumerate(zip(sizes, shape)) if size < extent}
    written = {d for d, (size, extent) in enumerate(zip(new.aval.shape, shape)) if size < extent}
    both = narrow & written
    if any(sizes[d] != 1 or new.aval.shape[d] != 1 or starts[d].aval.dtype != offsets[d].aval.dtype for d in both):
        return None
    new_sizes = [sizes[d] if d in narrow - both else e for d, e in enumerate(new.aval.shape)]
    window = _sliced(new, [s if d in narrow - both else _zero(s) for d, s in enumerate(starts)], new_sizes, rewriter)
    if both == written and all(starts[d] is offsets[d] for d in both):
        return window
    before = _read(x, starts, sizes, rewriter, left - 1) or _sliced(x, starts, sizes, rewriter)
    if written - both:
        into = [p if d in written - both else _zero(p) for d, p in enumerate(offsets)]
        window = rewriter.add(dynamic_update_slice_p, before, window, *into)
    tests = [
        rewriter.add(eq_p, _clamped(starts[d], shape[d], rewriter), _clamped(offsets[d], shape[d], rewriter))
        for d in sorted(both)
        if starts[d] is not offsets[d]
    ]
    if not tests:
        return window
    there = functools.reduce(lambda a, b: rewriter.add(and_p, a, b), tests)
    return rewriter.add(select_n_p, there, before, window)


def _sliced(operand: Operand, starts: Sequence[Operand], sizes: Sequence[int], rewriter: Rewriter) -> Operand:
    if tuple(sizes) == operand.aval.shape:
        return operand
    return rewriter.add(dynamic_slice_p, operand, *starts, slice_sizes=tuple(sizes))


def _clamped(start: Operand, extent: int, rewriter: Rewriter) -> Operand:
    """The place of a window of one element, moved inside as a slice moves it."""
    dtype = start.aval.dtype
    last = min(extent - 1, int(np.iinfo(dtype).max))
    if isinstance(start, Literal):
        return Literal(dtype.type(min(max(int(start.val), 0), last)), start.aval)
    raised = rewriter.add(max_p, start, _zero(start))
    return rewriter.add(min_p, raised, Literal(dtype.type(last), start.aval))


def _zero(like: Operand) -> Literal:
    return Literal(like.aval.dtype.type(0), like.aval)
