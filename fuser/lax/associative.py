"""`associative_scan`: running results of an associative function, by whichever order of its calls is the quickest here.

A function that is one sum, product, maximum or minimum is the primitive of that name. An elementwise function walks: chunks side by
side, each from its beginning, then once over the chunks' results, and what comes before a chunk is put in front of it; about
two calls an element, in three kernels. Any other function, which may hold matrix products, takes Blelloch's tree of calls on
whole halves.

Blelloch, "Prefix sums and their applications" (1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fuser.ir.graph import Graph
from fuser.ir.primitive import Fusion
from fuser.lax.control import _callable, _staged, _values, _where, scan
from fuser.lax.marks import optimization_barrier
from fuser.lax.movement import concatenate
from fuser.lax.slicing import slice_in_dim
from fuser.lax.values import axis_of
from fuser.ops.cumulative import associative, cummax_p, cummin_p, cumprod_p, cumsum_p, directed
from fuser.ops.elementwise import add_p, max_p, min_p, mul_p
from fuser.ops.movement import broadcast_in_dim_p, reshape_p
from fuser.trace import tree
from fuser.trace.core import bind, type_of

Combine = Callable[[list[Any], list[Any]], list[Any]]

FEW = 8  # elements along the axis for which a tree is as good
SHORT = 1 << 12  # elements of an array that one walk takes
RUNNING = {add_p: cumsum_p, mul_p: cumprod_p, max_p: cummax_p, min_p: cummin_p}


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """The running results of the associative `fn` along an axis.

    `fn` takes and returns trees like `elems`, whole slices at a time. ValueError where the extents along `axis` differ.
    """
    _callable("associative_scan", "fn", fn)
    values, structure = _values(elems, "associative_scan")
    axis = axis_of(axis, values[0].ndim, "associative_scan")
    extents = [v.shape[axis] for v in values]
    if len(set(extents)) > 1:
        named = " and ".join(map(str, dict.fromkeys(extents)))
        raise ValueError(f"associative_scan needs elems of one extent along axis {axis}, got {named} ({_where()})")

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        return _values(fn(tree.unflatten(structure, a), tree.unflatten(structure, b)), "associative_scan")[0]

    graph = _elementwise(fn, structure, values, axis) if extents[0] > FEW else None
    if graph is None:
        run = lambda ordered: associative(combine, ordered, axis)
    elif (primitive := _known(graph, values)) is not None:
        run = lambda ordered: [bind(primitive, ordered[0], axis=axis, reverse=False)]
    else:
        run = lambda ordered: _walk(combine, ordered, axis)
    return tree.unflatten(structure, directed(run, values, axis, reverse))


def _elementwise(fn: Any, structure: Any, values: list[Any], axis: int) -> Graph | None:
    """What `fn` does with two slices, if that is elementwise and keeps types."""
    avals = [type_of(v) for v in values]
    avals = [a.update(shape=(*a.shape[:axis], 2, *a.shape[axis + 1 :])) for a in avals]
    pair = tree.structure((tree.unflatten(structure, avals), tree.unflatten(structure, avals)))
    body = _staged(fn, pair, [*avals, *avals])
    graph = body.graph
    plain = all(
        e.primitive.fusion is Fusion.ELEMENTWISE or e.primitive in (broadcast_in_dim_p, reshape_p) for e in graph.eqns
    )
    same = [(a.shape, a.dtype) for a in graph.out_avals] == [(a.shape, a.dtype) for a in avals]
    return graph if plain and same else None


def _known(graph: Graph, values: list[Any]) -> Any:
    """The primitive whose running results are those of `graph`, if there is one for these elements."""
    if (
        len(graph.eqns) != 1
        or len(values) != 1
        or len(graph.invars) != 2
        or graph.outvars[0] is not graph.eqns[0].outvars[0]
    ):
        return None
    (eqn,) = graph.eqns
    real = values[0].dtype.kind in "iuf"
    return RUNNING.get(eqn.primitive) if real and set(eqn.invars) == set(graph.invars) else None


def _walk(combine: Combine, values: list[Any], axis: int) -> list[Any]:
    """The running results of an elementwise function, by chunks where there are too few other elements to walk with."""
    shape = values[0].shape
    count, size = shape[axis], max(math.prod(v.shape) for v in values)
    lanes = math.isqrt(size) * count // size if size >= SHORT else 1
    if lanes < 2:
        return _sequential(combine, values, axis)
    chunks = min(range(lanes, min(2 * lanes, count // 2)), key=lambda n: (count % n, n), default=lanes)
    left = count % chunks
    cut = lambda arrays, start, stop: [slice_in_dim(x, start, stop, axis=axis) for x in arrays]
    whole = _chunked(combine, cut(values, 0, count - left), axis, chunks)
    if not left:
        return whole
    whole = optimization_barrier(whole)  # in one kernel every element would look for its chunk
    last = zip(cut(whole, count - left - 1, count - left), cut(values, count - left, count), strict=True)
    behind = cut(_sequential(combine, [concatenate(pair, axis) for pair in last], axis), 1, left + 1)
    return [concatenate(pair, axis) for pair in zip(whole, behind, strict=True)]


def _sequential(combine: Combine, values: list[Any], axis: int) -> list[Any]:
    """One element after the other."""

    def step(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        after = combine(carry, [x.reshape(f.shape) for x, f in zip(row, carry, strict=True)])
        return after, [x.reshape(r.shape) for x, r in zip(after, row, strict=True)]

    first = [slice_in_dim(v, 0, 1, axis=axis) for v in values]
    rows = [_moved(slice_in_dim(v, 1, v.shape[axis], axis=axis), axis, 0) for v in values]
    results = scan(step, first, rows)[1]
    return [concatenate([f, _moved(r, 0, axis)], axis) for f, r in zip(first, results, strict=True)]


def _chunked(combine: Combine, values: list[Any], axis: int, chunks: int) -> list[Any]:
    """All chunks at once, then over their last results, which then stand before the elements of the next chunk."""
    from fuser.transforms.vmap import vmap

    split = [v.reshape((*v.shape[:axis], chunks, v.shape[axis] // chunks, *v.shape[axis + 1 :])) for v in values]
    within = _sequential_chunks(combine, split, axis)
    length = split[0].shape[axis + 1]
    ends = [slice_in_dim(w, length - 1, length, axis=axis + 1) for w in within]
    ends = [x.reshape((*x.shape[: axis + 1], *x.shape[axis + 2 :])) for x in ends]
    before = _sequential(combine, [slice_in_dim(x, 0, chunks - 1, axis=axis) for x in ends], axis)
    each = vmap(combine, in_axes=(None, axis + 1), out_axes=axis + 1)
    rest = each(before, [slice_in_dim(w, 1, chunks, axis=axis) for w in within])
    heads = [slice_in_dim(w, 0, 1, axis=axis) for w in within]
    found = [concatenate([h, r], axis) for h, r in zip(heads, rest, strict=True)]
    return [x.reshape(v.shape) for x, v in zip(found, values, strict=True)]


def _sequential_chunks(combine: Combine, split: list[Any], axis: int) -> list[Any]:
    """Along `axis` + 1, for all chunks along `axis` at once."""

    def step(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        after = combine(carry, row)
        return after, after

    rows = [_moved(v, axis + 1, 0) for v in split]
    first = [r[0] for r in rows]
    results = scan(step, first, [slice_in_dim(r, 1, r.shape[0]) for r in rows])[1]
    return [
        concatenate([f.reshape((*f.shape[: axis + 1], 1, *f.shape[axis + 1 :])), _moved(r, 0, axis + 1)], axis + 1)
        for f, r in zip(first, results, strict=True)
    ]


def _moved(x: Any, source: int, target: int) -> Any:
    """An axis at another position."""
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    return x.transpose(order)
