"""Work of a loop's body: scalar operations of one lane that has it written out, and elements that one iteration makes.

In: the body's graph. Out: counts that need no more than one look at each equation, so that a loop whose written-out form
is out of the question is known before it is written out, and one whose lanes would all repeat the same work is seen.
"""

from __future__ import annotations

import math

from fuser.ir.cost import cost
from fuser.ir.graph import Eqn, Graph, Var, graphs_in
from fuser.ir.primitive import Control, Fusion, Movement
from fuser.ir.target import Target

USUAL_STEPS = 64  # of a while, where a guess is needed


def least_operations(graph: Graph) -> int:
    """Scalar operations of one lane, at least: one an arithmetic equation, one an element of a reduction or of a product's
    sum, those of inner loops once a step."""
    total = 0
    for eqn in graph.eqns:
        if eqn.primitive.fusion is Fusion.ELEMENTWISE:
            total += 1
        elif eqn.primitive.fusion is Fusion.REDUCE:
            total += eqn.invars[0].aval.size // max(eqn.outvars[0].aval.size, 1)
        elif eqn.primitive.fusion is Fusion.DOT:
            total += _contracted(eqn)
        elif eqn.primitive.fusion is Fusion.CONTROL:
            total += _steps(eqn) * sum(map(least_operations, graphs_in(eqn.params)))
    return total


def elements(graph: Graph) -> int:
    """Elements that the graph's equations compute, reductions and products by what they read; a window written into an array
    counts for itself alone, as the array is written in place."""
    total = 0
    for eqn in graph.eqns:
        fusion, out = eqn.primitive.fusion, eqn.outvars[0].aval
        if fusion is Fusion.CONTROL:
            total += _steps(eqn) * sum(map(elements, graphs_in(eqn.params)))
        elif fusion is Fusion.DOT:
            total += 2 * out.size * _contracted(eqn)
        elif fusion in (Fusion.REDUCE, Fusion.SCAN):
            total += eqn.invars[0].aval.size
        elif eqn.primitive.movement is Movement.UPDATE:
            total += eqn.invars[1].aval.size
        else:
            total += sum(v.aval.size for v in eqn.outvars)
    return total


def seconds_in_kernels(graph: Graph, target: Target) -> float:
    """About what one iteration takes whose body runs as kernels: one a product, reduction or inner loop and one for all
    elementwise work, each equation in whole vectors, and the longest chain of them that wait for each other."""
    kernels, total = 1, 0.0
    ready: dict[Var, float] = {}
    for eqn in graph.eqns:
        waited = max([ready.get(v, 0.0) for v in eqn.invars if isinstance(v, Var)], default=0.0)
        fusion, size = eqn.primitive.fusion, sum(v.aval.size for v in eqn.outvars)
        delay = target.latency * (1 + cost(eqn, target) / 4) if fusion in (Fusion.ELEMENTWISE, Fusion.REDUCE) else 0.0
        ready |= dict.fromkeys(eqn.outvars, waited + delay)
        if fusion is Fusion.CONTROL:
            total += _steps(eqn) * sum(seconds_in_kernels(inner, target) for inner in graphs_in(eqn.params))
        elif fusion is Fusion.DOT:
            total += 2 * size * _contracted(eqn) / target.operations
        else:
            lanes = target.vector // 4
            total += cost(eqn, target) * -(-size // lanes) * lanes / target.operations
        if fusion in (Fusion.DOT, Fusion.REDUCE, Fusion.SCAN, Fusion.CONTROL):
            kernels += 1
    return total + max(ready.values(), default=0.0) + kernels * (target.step or target.launch)


def _steps(eqn: Eqn) -> int:
    """How often a control equation runs its graphs, at least."""
    return int(eqn.params["length"]) if eqn.primitive.control is Control.SCAN else 1


def _contracted(eqn: Eqn) -> int:
    """Terms of each element of a product."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    return math.prod(eqn.invars[0].aval.shape[d] for d in contracted)
