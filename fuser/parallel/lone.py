"""Collectives over one device: what each gets is what it brought, in the shape of the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fuser.ir.graph import Eqn, Graph
from fuser.ir.rewrite import Rewriter
from fuser.ops.collective import is_meeting, ppermute_p
from fuser.ops.movement import reshape_p
from fuser.trace.batch import axis_names


def without_lone(graph: Graph, sizes: Mapping[Any, int]) -> Graph:
    """The graph of one device of a mesh with axes of these sizes, without collectives in which it would be alone."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        if _is_lone(eqn, sizes):
            (operand,), (result,) = eqn.invars, eqn.outvars
            same = operand.aval.shape == result.aval.shape
            alike = operand if same else rewriter.add(reshape_p, operand, new_sizes=result.aval.shape, dimensions=None)
            rewriter.replace(result, alike)
        else:
            rewriter.keep(eqn)
    return rewriter.finish()


def _is_lone(eqn: Eqn, sizes: Mapping[Any, int]) -> bool:
    if not is_meeting(eqn) or len(eqn.outvars) > 1 or math.prod(sizes[n] for n in axis_names(eqn.params)) > 1:
        return False
    return eqn.primitive is not ppermute_p or bool(eqn.params["perm"])
