"""Gathers and scatters as movement and selection, so that they fuse. Graph → Graph.

An index that counts along its own dimension (`x[arange(n), label]`) becomes a batching dimension; a scatter of at most one
window a row becomes a selection, one of a single window an update of a slice; a gather from evenly spaced places becomes slices
and windows; and another gather of a computed value computes only what it reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.rewrite import Rewriter
from fuser.ops import elementwise as E
from fuser.ops import movement as M
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.indexing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    fill_of,
    gather_p,
    placed,
    selectable,
    window_sizes,
)
from fuser.ops.scatter import scatter_add_p, scatter_max_p, scatter_min_p, scatter_mul_p, scatter_p
from fuser.passes.analysis.affine import components
from fuser.passes.indexing.regular_gather import as_windows
from fuser.passes.indexing.regular_scatter import as_regular
from fuser.trace.stage import stage

COMBINE: dict[Primitive, Callable[[Any, Any], Any]] = {
    scatter_p: lambda x, update: update,
    scatter_add_p: E.add_p.bind,
    scatter_mul_p: E.mul_p.bind,
    scatter_min_p: E.min_p.bind,
    scatter_max_p: E.max_p.bind,
}
# A gather computes its elements anew where the operand has this many times more, by at most so many equations.
TIMES_FEWER, MOST_EQUATIONS = 8, 64


def canonicalize_indexing(graph: Graph) -> Graph:
    """The graph with gathers and scatters in the forms that fuse."""
    rewriter = Rewriter(graph)
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        if eqn.primitive is gather_p:
            result = _at_even_places(eqn, rewriter)
            if result is None:
                eqn = _by_rows(eqn, rewriter)
                result = _sunk(eqn, rewriter)
        elif eqn.primitive in COMBINE:
            eqn = _by_rows(eqn, rewriter)
            index = rewriter.constant(eqn.invars[1])
            result = None if index is None else _at_known(eqn, rewriter, index)
            result = result or _selected(eqn, rewriter) or _at_one_index(eqn, rewriter)
        else:
            result = None
        if result is None:
            rewriter.keep(eqn)
        else:
            rewriter.replace(original.outvars[0], result)
    return rewriter.finish()


def canonicalize_known(graph: Graph, known: Mapping[Operand, Any]) -> Graph:
    """The graph with its scatters of one window at a known index, or to evenly spaced places, as updates of slices and selections."""
    rewriter = Rewriter(graph)
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        there = eqn.primitive in COMBINE and eqn.invars[1] in known
        result = _at_known(eqn, rewriter, np.asarray(known[eqn.invars[1]])) if there else None
        if result is None:
            rewriter.keep(eqn)
        else:
            rewriter.replace(original.outvars[0], result)
    return rewriter.finish()


# Indices that count.


def _by_rows(eqn: Eqn, rewriter: Rewriter) -> Eqn:
    """The gather or scatter with start components that are iotas along an index dimension as batching dimensions."""
    joined = rewriter.producer(eqn.invars[1], M.concatenate_p)
    numbers = eqn.params["dimension_numbers"]
    last = eqn.invars[1].aval.ndim - 1
    if joined is None or joined.params["dimension"] != last or any(v.aval.shape[-1] != 1 for v in joined.invars):
        return eqn
    windows, collapsed, starts, own, others = numbers
    kept = []
    for part, d in zip(joined.invars, starts):
        along = _counted(part, rewriter)
        if (
            along is None
            or d not in collapsed
            or along in others
            or eqn.invars[0].aval.shape[d] != part.aval.shape[along]
        ):
            kept.append((part, d))
        else:
            own, others = (*own, d), (*others, along)
    if not kept or len(kept) == len(joined.invars):
        return eqn
    collapsed = tuple(d for d in collapsed if d not in own)
    parts = [p for p, _ in kept]
    indices = parts[0] if len(parts) == 1 else rewriter.add(M.concatenate_p, *parts, dimension=last)
    order = np.argsort(own)
    own, others = tuple(own[n] for n in order), tuple(others[n] for n in order)
    changed = type(numbers)(windows, collapsed, tuple(d for _, d in kept), own, others)
    params = {**eqn.params, "dimension_numbers": changed}
    return replace(eqn, invars=(eqn.invars[0], indices, *eqn.invars[2:]), params=params)


def _counted(operand: Operand, rewriter: Rewriter) -> int | None:
    """The dimension along which the elements of `operand` are 0, 1, 2, …; None if they are something else."""
    eqn = rewriter.producers.get(operand) if isinstance(operand, Var) else None
    if eqn is None:
        return None
    if eqn.primitive is M.iota_p:
        return int(eqn.params["dimension"])
    if eqn.primitive is not M.broadcast_in_dim_p:
        return None
    inner = _counted(eqn.invars[0], rewriter)
    if inner is None:
        return None
    outer = int(eqn.params["broadcast_dimensions"][inner])
    return outer if eqn.invars[0].aval.shape[inner] == operand.aval.shape[outer] else None


# Scatters of one window a row.


def _selected(eqn: Eqn, rewriter: Rewriter) -> Operand | None:
    """A scatter whose windows cannot meet, as a selection between the operand and what is written."""
    x, indices, updates = eqn.invars
    numbers = GatherDimensionNumbers(*eqn.params["dimension_numbers"])
    aval, sizes = x.aval, window_sizes(x.aval, updates.aval, eqn.params["dimension_numbers"])
    if not updates.aval.size or not selectable(aval, indices.aval.shape, numbers, sizes):
        return None
    mode = GatherScatterMode.from_any(eqn.params["mode"])
    combine = COMBINE[eqn.primitive]

    def selection(*values: Any) -> list[Any]:
        operand, indices, new = values
        mask, wide = placed(new, aval, indices, numbers, sizes, mode)
        written = combine(operand, wide)
        return [written if mask is None else E.select_n_p.bind(mask, operand, written)]

    return _spliced(stage(selection, [v.aval for v in eqn.invars], "selection"), eqn, rewriter)


def _at_one_index(eqn: Eqn, rewriter: Rewriter, known: np.ndarray | None = None) -> Operand | None:
    """A scatter of one window, as a dynamic_update_slice where it is known or tested to be in bounds."""
    x, indices, updates = eqn.invars
    numbers = eqn.params["dimension_numbers"]
    if not updates.aval.size or any(e != 1 for e in indices.aval.shape[:-1]):
        return None
    sizes = window_sizes(x.aval, updates.aval, numbers)
    component = {d: k for k, d in enumerate(numbers.scatter_dims_to_operand_dims)}
    bounds = [x.aval.shape[d] - sizes[d] for d in component]
    known = rewriter.constant(indices) if known is None else known
    line = None if known is None else known.reshape(-1)
    inside = None if line is None else all(0 <= start <= high for start, high in zip(line, bounds))
    clips = GatherScatterMode.from_any(eqn.params["mode"]) is GatherScatterMode.CLIP
    if inside is False and not clips:
        return x
    combine = COMBINE[eqn.primitive]

    def update(*values: Any) -> list[Any]:
        operand, indices, new = values
        flat = M.reshaped(indices, (len(component),))
        given = [_element(flat, k) if line is None else line[k] for k in range(len(component))]
        starts = [given[component[d]] if d in component else np.zeros((), indices.dtype) for d in range(x.aval.ndim)]
        block = M.reshaped(new, tuple(sizes))
        if eqn.primitive is not scatter_p:
            block = combine(dynamic_slice_p.bind(operand, *starts, slice_sizes=tuple(sizes)), block)
        out = dynamic_update_slice_p.bind(operand, block, *starts)
        if clips or inside or not component:
            return [out]
        mask = functools.reduce(E.and_p.bind, (_between(g, high) for g, high in zip(given, bounds)))
        return [E.select_n_p.bind(mask, operand, out)]

    return _spliced(stage(update, [v.aval for v in eqn.invars], "update"), eqn, rewriter)


def _at_known(eqn: Eqn, rewriter: Rewriter, indices: np.ndarray) -> Operand | None:
    """A scatter of one window, or to evenly spaced places."""
    result = _at_one_index(eqn, rewriter, indices)
    if result is None and (graph := as_regular(eqn, indices, COMBINE[eqn.primitive])) is not None:
        result = _spliced(graph, eqn, rewriter)
    return result


def _element(line: Any, k: int) -> Any:
    return M.reshaped(M.slice_p.bind(line, start_indices=(k,), limit_indices=(k + 1,), strides=None), ())


def _between(start: Any, high: int) -> Any:
    """Whether integers lie in 0 … high."""
    last = min(high, np.iinfo(start.dtype).max)
    return E.and_p.bind(E.ge_p.bind(start, _integer(start, 0)), E.le_p.bind(start, _integer(start, last)))


def _spliced(graph: Graph, eqn: Eqn, rewriter: Rewriter) -> Operand | None:
    """The one result of a small graph on the operands of `eqn`, taken into the program; None if it closes over an array,
    as a padding value of random keys is."""
    if graph.constvars:
        return None
    (out,) = rewriter.splice(graph, eqn.invars, rewriter.source)
    return out


# Gathers from evenly spaced places.


def _at_even_places(eqn: Eqn, rewriter: Rewriter) -> Operand | None:
    """The gather as slices and windows."""
    starts = components(eqn.invars[1], rewriter)
    graph = None if starts is None else as_windows(eqn, starts)
    return None if graph is None else _spliced(graph, eqn, rewriter)


# Gathers of computed values.


def _sunk(eqn: Eqn, rewriter: Rewriter) -> Operand | None:
    """The gather of an elementwise result as that operation on gathered operands, where it reads few elements."""
    x = eqn.invars[0]
    mode = GatherScatterMode.from_any(eqn.params["mode"])
    fills = mode is GatherScatterMode.FILL_OR_DROP
    few = eqn.outvars[0].aval.size * TIMES_FEWER <= x.aval.size
    if not few or not _elementwise(x, rewriter) or (fills and eqn.params["dimension_numbers"].offset_dims):
        return None
    reader = _Reader(eqn, rewriter)
    value = reader.read(x)
    if value is None:
        return None
    made = {e.outvars[0]: e for e in reader.eqns}
    rewriter.eqns += reader.eqns
    rewriter.producers.update(made)  # type: ignore[arg-type]
    return _filled_outside(value, eqn, rewriter) if fills else value


def _elementwise(operand: Operand, rewriter: Rewriter) -> Eqn | None:
    eqn = rewriter.producers.get(operand) if isinstance(operand, Var) else None
    return eqn if eqn is not None and eqn.primitive.fusion is Fusion.ELEMENTWISE else None


class _Reader:
    """Makes the equations that compute the gathered elements of a value."""

    def __init__(self, gather: Eqn, rewriter: Rewriter) -> None:
        self.gather = gather
        self.rewriter = rewriter
        self.eqns: list[Eqn] = []
        self.known: dict[Operand, Operand | None] = {}
        self.dimensions_of = _dimensions_of(gather)

    def make(self, primitive: Primitive, *operands: Operand, **params: Any) -> Operand:
        self.eqns.append(self.rewriter.make(primitive, *operands, **params))
        return self.eqns[-1].outvars[0]

    def read(self, operand: Operand) -> Operand | None:
        """The gathered elements; None if that takes too many equations."""
        if not operand.aval.shape:
            return operand
        if operand not in self.known:
            self.known[operand] = self._read(operand) if len(self.eqns) < MOST_EQUATIONS else None
        return self.known[operand]

    def _read(self, operand: Operand) -> Operand | None:
        eqn = _elementwise(operand, self.rewriter)
        if eqn is not None:
            operands = [self.read(v) for v in eqn.invars]
            return None if None in operands else self.make(eqn.primitive, *operands, **eqn.params)  # type: ignore[arg-type]
        repeated = self._repeated(self.rewriter.producer(operand, M.broadcast_in_dim_p))
        if repeated is not None:
            return repeated
        params = {**self.gather.params, "mode": GatherScatterMode.CLIP, "fill_value": None}
        return self.make(gather_p, operand, self.gather.invars[1], **params)

    def _repeated(self, spread: Eqn | None) -> Operand | None:
        """Of a value repeated along all dimensions that are indexed: itself, along the dimensions of the result."""
        if spread is None:
            return None
        dimension_of = self.dimensions_of
        (source,) = spread.invars
        dims = [d for e, d in zip(source.aval.shape, spread.params["broadcast_dimensions"]) if e != 1]
        if any(d not in dimension_of for d in dims):
            return None
        to = tuple(dimension_of[d] for d in dims)
        if to != tuple(sorted(to)):
            return None
        shape = tuple(e for e in source.aval.shape if e != 1)
        if shape != source.aval.shape:
            source = self.make(M.reshape_p, source, new_sizes=shape, dimensions=None)
        out = self.gather.outvars[0].aval.shape
        return self.make(M.broadcast_in_dim_p, source, shape=out, broadcast_dimensions=to)


def _dimensions_of(gather: Eqn) -> dict[int, int]:
    """The dimension of the result along which each dimension of the operand runs unchanged."""
    numbers, out = gather.params["dimension_numbers"], gather.outvars[0].aval
    batch = [d for d in range(out.ndim) if d not in numbers.offset_dims]
    found = {d: batch[k] for d, k in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims)}
    without = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    windows = [d for d in range(gather.invars[0].aval.ndim) if d not in without]
    for d, window in zip(windows, numbers.offset_dims):
        if d not in numbers.start_index_map and out.shape[window] == gather.invars[0].aval.shape[d]:
            found[d] = window
    return found


def _filled_outside(value: Operand, eqn: Eqn, rewriter: Rewriter) -> Operand:
    """`value` where the indices of the gather are in bounds, else what it fills with."""
    x, indices = eqn.invars
    numbers, dtype = eqn.params["dimension_numbers"], x.aval.dtype
    fill = np.asarray(fill_of(dtype, eqn.params["fill_value"])).astype(dtype)
    extents = [x.aval.shape[d] for d in numbers.start_index_map]
    shape = eqn.outvars[0].aval.shape
    aval = x.aval.update(shape=())

    def outside(*values: Any) -> list[Any]:
        (starts,) = values
        mask: Any = None
        for number, extent in enumerate(extents):
            low, high = [0] * starts.ndim, list(starts.shape)
            low[-1], high[-1] = number, number + 1
            part = M.slice_p.bind(starts, start_indices=tuple(low), limit_indices=tuple(high), strides=None)
            part = M.reshaped(part, shape)
            inside = _between(part, extent - 1)
            mask = inside if mask is None else E.and_p.bind(mask, inside)
        return [mask]

    whole = replace(eqn, invars=(indices,))
    mask = _spliced(stage(outside, [indices.aval], "outside"), whole, rewriter)
    assert mask is not None  # integers alone
    return rewriter.add(E.select_n_p, mask, Literal(fill[()], aval), value)


def _integer(like: Any, value: int) -> np.ndarray:
    return np.asarray(value, like.dtype)
