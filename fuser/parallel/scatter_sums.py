"""A sum of which each device keeps its own part becomes a reduce-scatter, which sends half as much.

`dynamic_slice(psum(x), axis_index * size)`, however the offset is computed: it is evaluated for every device.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ops.collective import axis_index_p, psum_invariant_p, psum_p, psum_scatter_p
from fuser.ops.dynamic import dynamic_slice_p
from fuser.ops.movement import reshape_p
from fuser.passes.loops.carries import in_bodies
from fuser.trace.batch import axis_names

Sizes = Mapping[Any, int]


def scatter_sums(graph: Graph, sizes: Sizes) -> Graph:
    """The graph of one device of a mesh with axes of these sizes, bodies of loops too."""
    graph = in_bodies(graph, lambda body: scatter_sums(body, sizes))
    producers = {v: e for e in graph.eqns for v in e.outvars}
    uses: Counter[Any] = Counter(v for e in graph.eqns for v in e.operands())
    uses.update(v for v in graph.outvars if isinstance(v, Var))
    found: dict[Eqn, int] = {}
    for eqn in graph.eqns:
        if eqn.primitive is dynamic_slice_p and uses[eqn.invars[0]] == 1:
            dim = _own_part(eqn, producers, sizes)
            if dim is not None:
                found[eqn] = dim
    if not found:
        return graph
    sums = {producers[e.invars[0]] for e in found}  # type: ignore[index]
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        if eqn in found:
            total = rewriter.resolve(producers[eqn.invars[0]])  # type: ignore[index]
            rewriter.replace(eqn.outvars[0], _scattered(total, found[eqn], rewriter, sizes))
        elif eqn not in sums:
            rewriter.keep(rewriter.resolve(eqn))
    return rewriter.finish()


def _scattered(total: Eqn, dim: int, rewriter: Rewriter, sizes: Sizes) -> Var:
    """This device's part of a sum along a dimension."""
    (operand,), axes = total.invars, axis_names(total.params)
    parts, shape = math.prod(sizes[a] for a in axes), operand.aval.shape
    apart = (*shape[:dim], parts, shape[dim] // parts, *shape[dim + 1 :])
    divided = rewriter.add(reshape_p, operand, new_sizes=apart, dimensions=None)
    return rewriter.add(psum_scatter_p, divided, axis_name=axes, axis=dim, axis_size=parts)


def _own_part(eqn: Eqn, producers: Mapping[Any, Eqn], sizes: Sizes) -> int | None:
    """The dimension along which a slice of a sum is the device's own part; None where it is not."""
    total = producers.get(eqn.invars[0])
    if total is None or total.primitive not in (psum_p, psum_invariant_p) or total.params.get("axis_index_groups"):
        return None
    shape, kept, axes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"], axis_names(total.params)
    parts = math.prod(sizes[a] for a in axes)
    cut = [d for d, size in enumerate(kept) if size != shape[d]]
    if len(cut) != 1 or kept[cut[0]] * parts != shape[cut[0]]:
        return None
    (dim,) = cut
    offsets = _offsets(eqn.invars[1 + dim], axes, parts, producers)
    wanted = np.arange(parts) * kept[dim]
    own = offsets is not None and np.array_equal(np.clip(offsets, 0, shape[dim] - kept[dim]), wanted)
    return dim if own else None


def _offsets(start: Operand, axes: tuple[Any, ...], parts: int, producers: Mapping[Any, Eqn]) -> np.ndarray | None:
    """A number that is computed from the place along these axes alone, for every place; None for others."""
    needed: dict[Eqn, None] = {}
    places: dict[Var, None] = {}
    left = [start]
    while left:
        operand = left.pop()
        if not isinstance(operand, Var):
            continue
        eqn = producers.get(operand)
        if eqn is None:
            return None
        if eqn.primitive is axis_index_p and axis_names(eqn.params) == axes:
            places[operand] = None
        elif eqn.primitive.fusion is Fusion.ELEMENTWISE and not operand.aval.shape:
            needed[eqn] = None
            left += eqn.invars
        else:
            return None
    if not isinstance(start, Var) or not places:
        return None
    eqns = tuple(dict.fromkeys(e for e in producers.values() if e in needed))
    graph = Graph(tuple(places), (), (), eqns, (start,), "offset")
    return evaluate(graph, [np.arange(parts, dtype=np.int32)] * len(places))[0]
