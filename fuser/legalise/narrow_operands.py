"""Arrays of small numbers that a scan reads along its iterations, copied so that they lie along its lanes. Graph → Graph.

Lanes read a transposed array each at a place of its own. Numbers of four bytes and more are gathered into a vector; smaller ones are read
one after the other in every iteration, where a copy through tiles takes a fraction of that once.
"""

from __future__ import annotations

from fuser.ir.graph import Eqn, Graph, Operand
from fuser.ir.primitive import Control
from fuser.ir.target import Target
from fuser.legalise.copies import with_copies
from fuser.partition.access_cost import narrow_crossing
from fuser.partition.axes import Views


def with_narrow_operands(graph: Graph, target: Target) -> Graph:
    """The graph with such copies where they take less than what they save."""
    scans = [eqn for eqn in graph.eqns if eqn.primitive.control is Control.SCAN]
    wanted = {v for eqn in scans for v in _slices(eqn) if _narrow(v, target)}
    if not wanted:
        return graph
    fits = lambda operand, views: operand not in wanted or not _crosses(operand, views)
    return with_copies(graph, lambda eqn: eqn in scans, fits)


def _slices(eqn: Eqn) -> tuple[Operand, ...]:
    """The operands of which each iteration reads a slice."""
    return eqn.invars[eqn.params["num_consts"] + eqn.params["num_carry"] :]


def _narrow(operand: Operand, target: Target) -> bool:
    aval = operand.aval
    lanes = aval.size // aval.shape[0] if aval.shape and aval.shape[0] else 0
    price = narrow_crossing(aval.size, aval.dtype.itemsize, aval.nbytes, target)
    return lanes >= target.lanes and price is not None


def _crosses(operand: Operand, views: Views) -> bool:
    """Whether iterations run along the memory of what the operand is a view of."""
    dimensions = views(operand).dimensions
    return dimensions is not None and next((d for d in reversed(dimensions) if d is not None), None) == 0
