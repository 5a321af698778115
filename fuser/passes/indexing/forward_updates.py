"""Store-to-load forwarding: a slice of an updated array is read of the update, or of the array before it. Graph → Graph.

A loop that swaps two rows and reads a column then needs no array between: the update joins the kernel of its one other
reader, or is written in place.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import KEY
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.elementwise import add_p, and_p, eq_p, ge_p, lt_p, max_p, min_p, select_n_p, sub_p
from fuser.ops.movement import broadcast_in_dim_p, iota_p, pad_p, slice_p

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
    rewriter, read_alone, handed_out = Rewriter(graph), _read_alone(graph), set(graph.outvars)
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        through = None
        if eqn.primitive is slice_p and original.invars[0] in read_alone:
            through = _read_at(eqn, rewriter)
        if through is None and reads_window(eqn) and (starts := _starts(eqn, rewriter)) is not None:
            beside = original.invars[0] in handed_out and _made_here(eqn.invars[0], rewriter)
            depth = 0 if beside else LONGEST
            through = _read(eqn.invars[0], starts, eqn.outvars[0].aval.shape, rewriter, depth)
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


def _made_here(operand: Operand, rewriter: Rewriter) -> bool:
    """Whether an array is computed here and then changed by a few small updates. It cannot be written in the memory of an argument, and a
    read of it as it was before would keep a second array beside the updated one."""
    for _ in range(LONGEST):
        update = rewriter.producer(operand, dynamic_update_slice_p)
        if update is None or not _small(update):
            return isinstance(operand, Var) and operand in rewriter.producers
        operand = update.invars[0]
    return False


def _small(update: Eqn) -> bool:
    return update.invars[1].aval.size * TIMES_FEWER <= update.invars[0].aval.size


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
    """The window of `operand` without the update that made it; None where that is no slice and no selection, or where it takes more
    than what was written and no updates are `left` to read through."""
    update = rewriter.producer(operand, dynamic_update_slice_p)
    if update is None:
        return None
    x, new, *offsets = update.invars
    shape = x.aval.shape
    narrow = {d for d, (size, extent) in enumerate(zip(sizes, shape)) if size < extent}
    written = {d for d, (size, extent) in enumerate(zip(new.aval.shape, shape)) if size < extent}
    both = narrow & written
    if any(starts[d].aval.dtype != offsets[d].aval.dtype for d in both):
        return None
    alike = {d for d in both if starts[d] is offsets[d] and sizes[d] == new.aval.shape[d]}
    blocks = {d for d in both - alike if (sizes[d], new.aval.shape[d]) != (1, 1)}
    few = _small(update) and x.aval.dtype != KEY
    if blocks and not (few and all(starts[d].aval.dtype in _WIDE for d in blocks)):
        return None
    exact = both == written == alike
    if not (exact or left):
        return None
    new_sizes = [sizes[d] if d in narrow - both else e for d, e in enumerate(new.aval.shape)]
    window = _sliced(new, [s if d in narrow - both else _zero(s) for d, s in enumerate(starts)], new_sizes, rewriter)
    if exact:
        return window
    before = _read(x, starts, sizes, rewriter, left - 1) or _sliced(x, starts, sizes, rewriter)
    tests: list[Operand] = []
    for d in sorted(both - alike):
        own, other = (
            _clamped(place, shape[d] - size, rewriter)
            for place, size in ((starts[d], sizes[d]), (offsets[d], new.aval.shape[d]))
        )
        if d not in blocks:
            tests.append(rewriter.add(eq_p, own, other))
            continue
        moved = rewriter.add(sub_p, own, other)
        window = _moved(window, d, moved, sizes[d], rewriter)
        tests.append(_within(moved, new.aval.shape[d], d, sizes, rewriter))
    if written - both:
        into = [p if d in written - both else _zero(p) for d, p in enumerate(offsets)]
        window = rewriter.add(dynamic_update_slice_p, before, window, *into)
    if not tests:
        return window
    if blocks:
        tests = [_spread(test, (), sizes, rewriter) for test in tests]
    there = functools.reduce(lambda a, b: rewriter.add(and_p, a, b), tests)
    return rewriter.add(select_n_p, there, before, window)


_WIDE = (np.dtype(np.int32), np.dtype(np.int64))  # integers that hold differences of places


def _moved(new: Operand, d: int, moved: Operand, size: int, rewriter: Rewriter) -> Operand:
    """Along one dimension the elements of `new` from `moved` on, as many as a window has: anything where there are none."""
    around = [(size, size, 0) if k == d else (0, 0, 0) for k in range(new.aval.ndim)]
    zero = Literal(new.aval.dtype.type(0), new.aval.update(shape=()))
    padded = rewriter.add(pad_p, new, zero, padding_config=tuple(around))
    first = rewriter.add(add_p, moved, Literal(moved.aval.dtype.type(size), moved.aval))
    starts = [first if k == d else _zero(moved) for k in range(new.aval.ndim)]
    return _sliced(padded, starts, [size if k == d else e for k, e in enumerate(new.aval.shape)], rewriter)


def _within(moved: Operand, extent: int, d: int, sizes: Sequence[int], rewriter: Rewriter) -> Operand:
    """Which elements of a window, that begins `moved` places behind the first of so many, are among them."""
    positions = rewriter.add(iota_p, dtype=moved.aval.dtype, shape=(sizes[d],), dimension=0)
    places = rewriter.add(add_p, positions, _spread(moved, (), (sizes[d],), rewriter))
    low, high = (_spread(Literal(moved.aval.dtype.type(n), moved.aval), (), (sizes[d],), rewriter) for n in (0, extent))
    inside = rewriter.add(and_p, rewriter.add(ge_p, places, low), rewriter.add(lt_p, places, high))
    return _spread(inside, (d,), sizes, rewriter)


def _spread(value: Operand, dims: tuple[int, ...], shape: Sequence[int], rewriter: Rewriter) -> Operand:
    if value.aval.shape == tuple(shape):
        return value
    return rewriter.add(broadcast_in_dim_p, value, shape=tuple(shape), broadcast_dimensions=dims)


def _sliced(operand: Operand, starts: Sequence[Operand], sizes: Sequence[int], rewriter: Rewriter) -> Operand:
    if tuple(sizes) == operand.aval.shape:
        return operand
    return rewriter.add(dynamic_slice_p, operand, *starts, slice_sizes=tuple(sizes))


def _clamped(start: Operand, last: int, rewriter: Rewriter) -> Operand:
    """The place of a block, which is `last` at most, moved inside as a slice moves it."""
    dtype = start.aval.dtype
    last = min(last, int(np.iinfo(dtype).max))
    if isinstance(start, Literal):
        return Literal(dtype.type(min(max(int(start.val), 0), last)), start.aval)
    raised = rewriter.add(max_p, start, _zero(start))
    return rewriter.add(min_p, raised, Literal(dtype.type(last), start.aval))


def _zero(like: Operand) -> Literal:
    return Literal(like.aval.dtype.type(0), like.aval)
