"""Reduction factoring: first over the axes of the reductions that a value already depends on, then over the others. Graph → Graph.

The sum of all elements of a layer norm becomes the sum of the sums of its rows: the first joins the kernel that runs over
rows, and the second reads one number a row.
"""

from __future__ import annotations

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ops.movement import broadcast_in_dim_p, reshape_p, squeeze_p
from fuser.ops.reduce import (
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_sum_p,
    reduce_xor_p,
)

_REDUCTIONS = (reduce_sum_p, reduce_prod_p, reduce_max_p, reduce_min_p, reduce_and_p, reduce_or_p, reduce_xor_p)
Axes = frozenset[int]
NONE: Axes = frozenset()


def factor_reductions(graph: Graph) -> Graph:
    """The graph with each reduction whose operand uses reductions over some of its axes done over those first."""
    rewriter = Rewriter(graph)
    reduced: set[Var] = set()  # results of reductions, and what is made of them along the same axes
    repeated: dict[Var, Axes] = {}  # the axes along which results of reductions are repeated in a value
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        first = _first_axes(eqn, repeated)
        if first:
            eqn = _after(eqn, first, rewriter)
        rewriter.keep(eqn)
        _note(eqn, reduced, repeated)
    return rewriter.finish()


def _first_axes(eqn: Eqn, repeated: dict[Var, Axes]) -> Axes:
    """The axes to reduce over first; none where one reduction does."""
    if eqn.primitive not in _REDUCTIONS:
        return NONE
    axes = repeated.get(eqn.invars[0], NONE)  # type: ignore[arg-type]
    return axes if axes < frozenset(eqn.params["axes"]) else NONE


def _after(eqn: Eqn, first: Axes, rewriter: Rewriter) -> Eqn:
    """The reduction over the axes that are left once a new one over `first` has been taken into the graph."""
    inner = rewriter.add(eqn.primitive, eqn.invars[0], axes=tuple(sorted(first)))
    kept = [d for d in range(eqn.invars[0].aval.ndim) if d not in first]
    axes = tuple(n for n, d in enumerate(kept) if d in eqn.params["axes"])
    return Eqn(eqn.primitive, (inner,), {"axes": axes}, eqn.outvars, eqn.source)


def _note(eqn: Eqn, reduced: set[Var], repeated: dict[Var, Axes]) -> None:
    """What is known of the equation's result."""
    out = eqn.outvars[0]
    primitive, fusion = eqn.primitive, eqn.primitive.fusion
    if fusion is Fusion.REDUCE:
        reduced.add(out)
        return
    if fusion is not Fusion.ELEMENTWISE and primitive not in (broadcast_in_dim_p, reshape_p, squeeze_p):
        return
    known = [v for v in eqn.invars if isinstance(v, Var)]
    if primitive is broadcast_in_dim_p and known and known[0] in reduced:
        along = _new_axes(eqn)
        if along:
            repeated[out] = along
            return
    if any(v in reduced for v in known):
        reduced.add(out)
    if fusion is Fusion.ELEMENTWISE:
        axes = NONE.union(*(_axes_of(v, repeated) for v in known))
        if axes:
            repeated[out] = axes


def _axes_of(operand: Operand, repeated: dict[Var, Axes]) -> Axes:
    return NONE if isinstance(operand, Literal) else repeated.get(operand, NONE)


def _new_axes(eqn: Eqn) -> Axes:
    """The dimensions longer than 1 along which a broadcast repeats its operand."""
    shape, source = eqn.params["shape"], eqn.invars[0].aval.shape
    kept = {d for e, d in zip(source, eqn.params["broadcast_dimensions"]) if e == shape[d]}
    return frozenset(d for d, e in enumerate(shape) if e != 1 and d not in kept)
