"""Demanded elements of reductions: sums that nobody reads (above a diagonal, say) become 0 right behind the reduction. Graph → Graph.

`where(i >= k, b - a @ x, 0)` needs no sum where i < k. As a choice right behind the reduction this is seen by a kernel that takes
row after row, which then leaves those rows out; the choice may stand far behind, with single elements read on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ops.dynamic import dynamic_slice_p
from fuser.ops.elementwise import eq_p, max_p, min_p, or_p, select_n_p
from fuser.ops.movement import broadcast_in_dim_p, iota_p

FEWEST = 64  # elements that one sum is taken of
DEEPEST = 8  # elementwise equations between a sum and its choice
MOST = 3  # reasons for which an element is read


@dataclass
class Demand:
    """The elements of a value that are read: where a mask holds, and at single indices."""

    masks: dict[Operand, None] = field(default_factory=dict)
    indices: dict[Operand, None] = field(default_factory=dict)
    seen: set[Var] = field(default_factory=set)  # values whose readers have been asked

    def __len__(self) -> int:
        return len(self.masks) + len(self.indices)


def drop_undemanded(graph: Graph) -> Graph:
    """The graph with a choice behind each reduction of which all that is read is known by masks and indices."""
    reductions = [eqn for eqn in graph.eqns if _long(eqn)]
    if not reductions:
        return graph
    users: dict[Operand, list[Eqn]] = {}
    for eqn in graph.eqns:
        for var in eqn.operands():
            users.setdefault(var, []).append(eqn)
    makers = graph.producers
    results = set(graph.outvars)
    chosen: dict[Eqn, Demand] = {}
    for reduction in reductions:
        [out] = reduction.outvars
        if all(user.primitive is select_n_p for user in users.get(out, ())):
            continue  # nothing else stands between
        demand = Demand()
        if _read(out, users, results, demand, DEEPEST) and 0 < len(demand) <= MOST and demand.masks:
            chosen[reduction] = demand
    return _rewritten(graph, chosen, makers) if chosen else graph


def _long(eqn: Eqn) -> bool:
    """Whether the equation takes a line of long sums: a reduction, or a matrix times a vector."""
    if eqn.primitive.fusion not in (Fusion.REDUCE, Fusion.DOT):
        return False
    before, out = max(v.aval.size for v in eqn.invars), eqn.outvars[0].aval
    return len(eqn.outvars) == 1 and out.ndim == 1 and out.size > 1 and before >= FEWEST * out.size


def _read(var: Var, users: dict[Operand, list[Eqn]], results: set[Operand], demand: Demand, depth: int) -> bool:
    """Enter into `demand` what is read of a value; False where that may be all of it."""
    if var in results or depth == 0 or len(demand) > MOST:
        return False
    if var in demand.seen:
        return True
    demand.seen.add(var)
    return all(_used(eqn, var, users, results, demand, depth) for eqn in users.get(var, ()))


def _used(
    eqn: Eqn, var: Var, users: dict[Operand, list[Eqn]], results: set[Operand], demand: Demand, depth: int
) -> bool:
    out = eqn.outvars[0]
    if eqn.primitive is select_n_p and len(eqn.invars) == 3:
        which, _, there = eqn.invars
        if there is var and eqn.invars.count(var) == 1 and which.aval.shape == var.aval.shape:
            demand.masks[which] = None
            return True
    if eqn.primitive is dynamic_slice_p and eqn.invars[0] is var:
        start = eqn.invars[1]
        demand.indices[start] = None
        return out.aval.size == 1 and start is not var and var.aval.size <= np.iinfo(start.aval.dtype).max
    if eqn.primitive.fusion is Fusion.ELEMENTWISE and out.aval.shape == var.aval.shape and len(eqn.outvars) == 1:
        return _read(out, users, results, demand, depth - 1)
    return False


def _rewritten(graph: Graph, chosen: dict[Eqn, Demand], makers: dict[Var, Eqn]) -> Graph:
    """The graph with the choices; what their masks are made of comes before them."""
    rewriter = Rewriter(graph)
    done: set[Eqn] = set()
    for original in graph.eqns:
        if original in done:
            continue
        demand = chosen.get(original)
        before = list(_needed(demand, makers, done, original)) if demand is not None else []
        if demand is not None and original not in before:
            for needed in before:
                rewriter.keep(rewriter.resolve(needed))
            done.update(before)
        eqn = rewriter.resolve(original)
        rewriter.keep(eqn)
        done.add(original)
        if demand is not None and original not in before:
            rewriter.replace(original.outvars[0], _choice(eqn.outvars[0], demand, rewriter))
    return rewriter.finish()


def _needed(demand: Demand, makers: dict[Var, Eqn], done: set[Eqn], reduction: Eqn) -> Iterator[Eqn]:
    """The equations, in order, that masks and indices are made by and that are not there yet; with `reduction` they are in vain."""
    seen: set[Eqn] = set()
    order: list[Eqn] = []

    def visit(operand: Operand) -> None:
        eqn = makers.get(operand) if isinstance(operand, Var) else None
        if eqn is None or eqn in done or eqn in seen:
            return
        seen.add(eqn)
        if eqn is not reduction:
            for inner in eqn.operands():
                visit(inner)
        order.append(eqn)

    for operand in (*demand.masks, *demand.indices):
        visit(operand)
    yield from order


def _choice(value: Var, demand: Demand, rewriter: Rewriter) -> Var:
    """The value where it is read, and 0 elsewhere."""
    aval = value.aval
    make = rewriter.add
    tests = [rewriter.current(mask) for mask in demand.masks]
    for index in demand.indices:
        start = rewriter.current(index)
        like = start.aval
        last = Literal(like.dtype.type(aval.size - 1), like)
        inside = make(min_p, make(max_p, start, Literal(like.dtype.type(0), like)), last)
        line = make(iota_p, dtype=like.dtype, shape=aval.shape, dimension=0)
        tests.append(make(eq_p, line, make(broadcast_in_dim_p, inside, shape=aval.shape, broadcast_dimensions=())))
    mask = tests[0]
    for test in tests[1:]:
        mask = make(or_p, mask, test)
    zero = Literal(aval.dtype.type(0), aval.update(shape=()))
    return make(select_n_p, mask, zero, value)
