"""Loops that write a few windows of a carry in each step: a scatter at one index becomes a `dynamic_update_slice`.

The window is read, changed (also where an index outside leaves it alone) and put back, so that a loop can keep the carry
where it is and write the window alone: a selection over the whole carry, which suits kernels, would copy it in each step.
So are windows of what loops inside have made of the carry.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import MOVES
from fuser.ir.rewrite import Rewriter
from fuser.ops import elementwise as E
from fuser.ops import movement as M
from fuser.ops.control import cond_p, scan_p, while_p
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.indexing import GatherScatterMode
from fuser.passes.indexing.branch_reads import reads_windows, with_writes_in_branches
from fuser.passes.indexing.canonicalize import COMBINE
from fuser.passes.indexing.forward_updates import TIMES_FEWER, reads_window
from fuser.passes.loops.iterations import Constants, Known, iterations, progression
from fuser.runtime.array import Array
from fuser.trace.stage import stage

LEAST = 64  # elements of a carry for which it pays; smaller ones may be values of their own


def scatter_to_update(graph: Graph) -> Graph:
    """The graph with such scatters in the bodies of its loops rewritten."""
    if not any(eqn.primitive in (scan_p, while_p) for eqn in graph.eqns):
        return graph
    constants = Constants(graph, graph.producers)
    return replace(graph, eqns=tuple(_with_windows(eqn, constants) for eqn in graph.eqns))


def windows_of(graph: Graph, inputs: Collection[Var]) -> Graph:
    """The graph with the scatters at one index that make results of some of its inputs rewritten: of arrays that are given away the
    window alone is to be written."""
    producers, found = graph.producers, set[Eqn]()
    for operand in graph.outvars:
        chain: list[Eqn] = []
        while (eqn := producers.get(operand)) is not None and writes_window(eqn):
            chain.append(eqn)
            operand = eqn.invars[0]
        found.update(chain if operand in inputs else ())
    if not found:
        return graph
    constants = Constants(graph, producers)
    place = {eqn: constants.value(eqn.invars[1]) for eqn in found if eqn.primitive in COMBINE}
    return replace(
        graph, eqns=tuple(n for e in graph.eqns for n in (by_window(e, place.get(e)) if e in found else (e,)))
    )


def _with_windows(eqn: Eqn, constants: Constants) -> Eqn:
    if eqn.primitive is scan_p:
        name, first, count = "jaxpr", eqn.params["num_consts"], eqn.params["num_carry"]
    elif eqn.primitive is while_p and not eqn.params["cond_jaxpr"].out_avals[0].shape:
        name, first, count = "body_jaxpr", eqn.params["body_nconsts"], len(eqn.outvars)
    else:
        return eqn
    body = _without_promotions(eqn.params[name])
    known = iterations(eqn, constants) if eqn.primitive is scan_p else {}
    found = set(_window_writes(body, first, count, known))
    if not found:
        return eqn
    eqns = [new for inner in body.eqns for new in (by_window(inner) if inner in found else (inner,))]
    body = with_writes_in_branches(replace(body, eqns=tuple(eqns)), {v for e in found for v in e.outvars})
    return replace(eqn, params={**eqn.params, name: body})


def _without_promotions(body: Graph) -> Graph:
    """The body without conversions of arrays that change nothing but whether a type is weak: a carry's initial value made it so."""
    rewriter = Rewriter(body)
    for eqn in body.eqns:
        [operand, *_], [out, *_] = eqn.invars or (None,), eqn.outvars or (None,)
        if eqn.primitive is E.convert_element_type_p and out.aval.shape and operand.aval.dtype == out.aval.dtype:  # type: ignore[union-attr]
            rewriter.replace(out, rewriter.current(operand))  # type: ignore[arg-type]
        else:
            rewriter.keep(rewriter.resolve(eqn))
    return rewriter.finish()


def _window_writes(body: Graph, first: int, count: int, known: Known) -> Iterator[Eqn]:
    """The scatters at one index that take a carry and, one after the other, give it back; of small carries those that write ever
    other places and that nothing else reads, whose iterations may run side by side."""
    producers, read_by = body.producers, readers(body)
    for carry, out in zip(body.invars[first : first + count], body.outvars[:count]):
        chain = writes_from(out, producers, read_by)
        start, earlier = origin(chain[0].invars[0] if chain else out, producers)
        chain = [*earlier, *chain]
        if not chain or start is not carry:
            continue
        if len(chain) == 1 and carry.aval.size < LEAST:
            chain = [e for e in chain if len(read_by[carry]) == 1 and _counts(e.invars[1], producers, known)]
        elif carry.aval.size < LEAST:
            continue
        yield from chain


def origin(operand: Operand, producers: Mapping[Operand, Eqn]) -> tuple[Operand, list[Eqn]]:
    """The array that loops, and choices between them, have made `operand` of, one after the other, each as a carry of its own, and
    the writes of windows before them; `operand` itself where the last to make it is none of these."""
    writes: list[Eqn] = []
    array = operand
    while (eqn := producers.get(array)) is not None:
        n = eqn.outvars.index(array)  # type: ignore[arg-type]
        if eqn.primitive is scan_p and n < eqn.params["num_carry"]:
            array = eqn.invars[eqn.params["num_consts"] + n]
        elif eqn.primitive is while_p and not eqn.params["cond_jaxpr"].out_avals[0].shape:
            array = eqn.invars[eqn.params["cond_nconsts"] + eqn.params["body_nconsts"] + n]
        elif eqn.primitive is cond_p and (place := _chosen(eqn, n)) is not None:
            array = eqn.invars[place]
        elif array is not operand and writes_window(eqn):
            writes.append(eqn)
            array = eqn.invars[0]
        else:
            break
    return array, writes


def _chosen(eqn: Eqn, result: int) -> int | None:
    """The operand of a choice that each branch, by itself or by loops, makes a result of."""
    places: set[int | None] = set()
    for branch in eqn.params["branches"]:
        start = origin(branch.outvars[result], branch.producers)[0]
        places.add(next((n for n, v in enumerate(branch.invars, 1) if v is start), None))
    return places.pop() if len(places) == 1 else None


def readers(graph: Graph) -> dict[Operand, list[Eqn | None]]:
    """The equations that read each value; None for the graph's results."""
    found: dict[Operand, list[Eqn | None]] = {}
    for eqn in graph.eqns:
        for v in dict.fromkeys(eqn.operands()):
            found.setdefault(v, []).append(eqn)
    for out in graph.outvars:
        found.setdefault(out, []).append(None)
    return found


def writes_from(
    out: Operand, producers: Mapping[Operand, Eqn], read_by: Mapping[Operand, Sequence[Eqn | None]]
) -> list[Eqn]:
    """The writes of windows, in their order, that make a result of some array. What reads a value between two of them, as the next
    write does itself (`by_window`), is a window that can be read without it (`forward_updates`)."""
    found: list[Eqn] = []
    while (eqn := producers.get(out)) is not None and writes_window(eqn):
        after = list(read_by[out])
        if found:
            after.remove(found[-1])
        few = not found or (_writes_few(eqn) and _writes_few(found[-1]))
        if not few or not (all(_reads_block(e, out, read_by) for e in after) if found else after == [None]):
            break
        found.append(eqn)
        out = eqn.invars[0]
    return found[::-1]


def writes_window(eqn: Eqn) -> bool:
    if eqn.primitive is dynamic_update_slice_p:
        return True
    single = eqn.primitive in COMBINE and eqn.invars[1].aval.ndim == 1
    return single and not eqn.params["dimension_numbers"].operand_batching_dims


def _writes_few(eqn: Eqn) -> bool:
    """Whether what is written has one element or all of them in each dimension, or is a small part."""
    extents = eqn.invars[1].aval.shape if eqn.primitive is dynamic_update_slice_p else _extents(eqn)
    whole = eqn.invars[0].aval
    narrow = all(size in (1, extent) for size, extent in zip(extents, whole.shape))
    return narrow or math.prod(extents) * TIMES_FEWER <= whole.size


def _reads_block(eqn: Eqn | None, array: Operand, read_by: Mapping[Operand, Sequence[Eqn | None]]) -> bool:
    """Whether an equation reads a block that `forward_updates` reads without the writes before it, by itself, of a static slice, or in
    the branches of a choice."""
    if eqn is not None and eqn.primitive is cond_p:
        return reads_windows(eqn, array)
    if eqn is None or eqn.primitive not in (M.slice_p, dynamic_slice_p):
        return False
    if reads_window(eqn):
        return True
    within = eqn.primitive is M.slice_p and set(eqn.params["strides"] or (1,)) == {1}
    whole = eqn.invars[0].aval.size
    return within and all(
        e is not None and e.primitive is dynamic_slice_p and e.outvars[0].aval.size * TIMES_FEWER <= whole
        for e in read_by.get(eqn.outvars[0], [None])
    )


def _extents(eqn: Eqn) -> tuple[int, ...]:
    """The shape of the window that a scatter at one index writes."""
    inserted, kept = eqn.params["dimension_numbers"].inserted_window_dims, iter(eqn.invars[2].aval.shape)
    return tuple(1 if d in inserted else next(kept) for d in range(eqn.invars[0].aval.ndim))


def _counts(indices: Operand, producers: Mapping[Operand, Eqn], known: Known) -> bool:
    """Whether an index moves evenly from iteration to iteration."""
    eqn = producers.get(indices)
    parts = [indices] if eqn is None or eqn.primitive is not M.concatenate_p else list(eqn.invars)
    spread = [producers.get(part) for part in parts]
    numbers = [e.invars[0] if e is not None and e.primitive.movement in MOVES else None for e in spread]
    steps = [None if n is None else progression(n, known) for n in numbers]
    return sum(step is not None and step[1] != 0 for step in steps) == 1


def by_window(eqn: Eqn, place: np.ndarray | None = None) -> Sequence[Eqn]:
    """A scatter at one index, where known at `place`, as equations on its window, the last of which is the update; an update is itself."""
    if eqn.primitive is dynamic_update_slice_p:
        return [eqn]
    aval, indices, updates = (v.aval for v in eqn.invars)
    numbers, mode = eqn.params["dimension_numbers"], GatherScatterMode.from_any(eqn.params["mode"])
    extents = _extents(eqn)
    lasts = {d: aval.shape[d] - extents[d] for d in numbers.scatter_dims_to_operand_dims}
    known = dict(zip(lasts, () if place is None else place.tolist()))
    surely = bool(known) and all(0 <= at <= lasts[d] for d, at in known.items())  # inside

    def written(operand: Any, indices: Any, new: Any) -> list[Any]:
        zero = Array(np.zeros((), indices.dtype))
        starts = [zero] * aval.ndim
        for n, d in enumerate(numbers.scatter_dims_to_operand_dims):
            if surely:
                starts[d] = Array(np.asarray(known[d], indices.dtype))
                continue
            part = M.slice_p.bind(indices, start_indices=(n,), limit_indices=(n + 1,), strides=None)
            starts[d] = M.reshape_p.bind(part, new_sizes=(), dimensions=None)
        window = dynamic_slice_p.bind(operand, *starts, slice_sizes=extents)
        new = M.reshape_p.bind(new, new_sizes=extents, dimensions=None) if updates.shape != extents else new
        new = COMBINE[eqn.primitive](window, new)
        if mode is GatherScatterMode.FILL_OR_DROP and not surely:
            for d, end in lasts.items():
                last = Array(np.asarray(end, indices.dtype))
                inside = E.and_p.bind(E.ge_p.bind(starts[d], zero), E.le_p.bind(starts[d], last))
                new = E.select_n_p.bind(inside, window, new)
        return [dynamic_update_slice_p.bind(operand, new, *starts)]

    graph = stage(written, [aval, indices, updates], "window")
    outside: dict[Var, Operand] = dict(zip(graph.invars, eqn.invars))
    outside[graph.outvars[0]] = eqn.outvars[0]  # type: ignore[index]
    made = []
    for inner in graph.eqns:
        invars = tuple(v if isinstance(v, Literal) else outside.get(v, v) for v in inner.invars)
        outvars = tuple(outside.get(v, v) for v in inner.outvars)
        made.append(Eqn(inner.primitive, invars, inner.params, outvars, eqn.source))  # type: ignore[arg-type]
    return made
