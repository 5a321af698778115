"""A sum over devices of a sum over other devices is one sum over all of them, which sends less and waits once; so are extremes.

psum(psum(x, "data"), "model") sends 2(p-1)/p + 2(q-1)/q times x from each device, the sum over both 2(pq-1)/pq times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.rewrite import Rewriter
from fuser.ops.collective import pmax_p, pmin_p, psum_invariant_p, psum_p
from fuser.passes.loops.carries import in_bodies
from fuser.trace.batch import axis_names

_KINDS = {psum_p: "sum", psum_invariant_p: "sum", pmax_p: "max", pmin_p: "min"}

Whole = tuple[Operand, frozenset[Any]]  # what is reduced first, and along which axes in all


def merge_nested_sums(graph: Graph, sizes: Mapping[Any, int]) -> Graph:
    """The graph of one device of a mesh with these axes, bodies of loops too, without reductions that only another one reads."""
    graph = in_bodies(graph, lambda body: merge_nested_sums(body, sizes))
    merged, absorbed = _nested(graph)
    if not absorbed:
        return graph
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        if eqn in absorbed:
            continue
        resolved = rewriter.resolve(eqn)
        if eqn not in merged:
            rewriter.keep(resolved)
            continue
        operand, axes = merged[eqn]
        params = {**eqn.params, "axes": tuple(n for n in sizes if n in axes)}
        rewriter.replace(eqn.outvars[0], rewriter.add(eqn.primitive, rewriter.current(operand), **params))
    return rewriter.finish()


def _nested(graph: Graph) -> tuple[dict[Eqn, Whole], set[Eqn]]:
    """The reductions that take over others, with what they reduce then; and those others."""
    uses: Counter[Operand] = Counter(v for e in graph.eqns for v in e.operands())
    uses.update(v for v in graph.outvars if isinstance(v, Var))
    merged: dict[Eqn, Whole] = {}
    absorbed: set[Eqn] = set()
    reductions: dict[Operand, tuple[Eqn, Whole]] = {}
    for eqn in graph.eqns:
        if eqn.primitive not in _KINDS or eqn.params.get("axis_index_groups"):
            continue
        operand, axes = eqn.invars[0], frozenset(axis_names(eqn.params))
        inner, (first, others) = reductions.get(operand, (eqn, (operand, axes)))
        same = inner is not eqn and _KINDS[inner.primitive] == _KINDS[eqn.primitive]
        if same and uses[operand] == 1 and not axes & others:
            absorbed.add(inner)
            operand, axes = merged[eqn] = first, axes | others
        reductions[eqn.outvars[0]] = eqn, (operand, axes)
    return merged, absorbed
