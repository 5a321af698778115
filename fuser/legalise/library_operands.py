"""What partition does for library calls that native functions serve: their operands dense in memory, one value, or a line.

A scatter takes an array or updates that are one value everywhere as that value; a sort takes positions along its
dimension as such. All other operands that are views get a copy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand
from fuser.ir.primitive import MOVES, Primitive
from fuser.legalise.copies import with_copies
from fuser.ops.movement import iota_p
from fuser.ops.scatter import SCATTERS
from fuser.ops.sorting import sort_p
from fuser.partition.axes import Views


def with_read_operands(graph: Graph, calls: frozenset[Primitive]) -> Graph:
    """The graph with a copy of each operand of the `calls` that they cannot read as it is."""
    for primitive in sorted(calls & {eqn.primitive for eqn in graph.eqns}, key=str):
        own = _ACCEPTED.get(primitive, _nothing)
        for eqn in [e for e in graph.eqns if e.primitive is primitive]:
            graph = _prepared(graph, eqn, own)
    return graph


def _prepared(graph: Graph, call: Eqn, accepted: Callable[[Eqn, Operand, Views], bool]) -> Graph:
    def fits(operand: Operand, views: Views) -> bool:
        view = views(operand)
        return (view.source is not None and view.dense) or accepted(call, operand, views)

    return with_copies(graph, lambda eqn: eqn.outvars == call.outvars, fits)


def uniform(operand: Operand, views: Views) -> np.ndarray | None:
    """The one value of an operand that is the same number everywhere."""
    if isinstance(operand, Literal):
        return np.asarray(operand.val, operand.aval.dtype)
    view = views(operand)
    if view.source is not None or not view.path or any(eqn.primitive.movement not in MOVES for eqn in view.path):
        return None
    [value] = view.path[0].invars
    return np.asarray(value.val, operand.aval.dtype) if isinstance(value, Literal) else None


def counting(operand: Operand, dimension: int, views: Views) -> bool:
    """Whether the operand's elements are their positions along a dimension."""
    path = views(operand).path
    return (
        len(path) == 1
        and path[0].primitive is iota_p
        and path[0].params["dimension"] == dimension
        and operand.aval.dtype.itemsize in (4, 8)
        and operand.aval.dtype.kind in "iu"
    )


def _nothing(call: Eqn, operand: Operand, views: Views) -> bool:
    return False


def _of_sort(call: Eqn, operand: Operand, views: Views) -> bool:
    alone = len(call.invars) == 2 and call.params["num_keys"] == 1 and call.invars[1] is operand
    return alone and counting(operand, call.params["dimension"], views)


def _of_scatter(call: Eqn, operand: Operand, views: Views) -> bool:
    return operand is not call.invars[1] and uniform(operand, views) is not None


_ACCEPTED = {
    sort_p: _of_sort,
    **dict.fromkeys(SCATTERS, _of_scatter),
}
