"""Constant propagation into loop bodies: a scatter at a constant index, or at affine ones, becomes an update of slices.

A loop takes the constants that its body names as operands, behind which their values are out of sight; here the bodies
see them, at any depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Control
from fuser.passes.indexing.canonicalize import canonicalize_known
from fuser.passes.indexing.regular_scatter import MOST_INDICES


def propagate_constants(graph: Graph) -> Graph:
    """The graph with such scatters in the bodies of its loops rewritten."""
    return _placed(graph, dict(zip(graph.constvars, graph.consts)))


def _placed(graph: Graph, known: Mapping[Operand, Any]) -> Graph:
    if not known:
        return graph
    eqns = tuple(_with_known(eqn, known) for eqn in graph.eqns)
    return graph if eqns == graph.eqns else replace(graph, eqns=eqns)


def _with_known(eqn: Eqn, known: Mapping[Operand, Any]) -> Eqn:
    params = eqn.params
    if eqn.primitive.control is Control.SCAN:
        name, operands = "jaxpr", eqn.invars[: params["num_consts"]]
    elif eqn.primitive.control is Control.WHILE:
        first = params["cond_nconsts"]
        name, operands = "body_jaxpr", eqn.invars[first : first + params["body_nconsts"]]
    else:
        return eqn
    body: Graph = params[name]
    inside: dict[Operand, Any] = {
        var: known[operand] for var, operand in zip(body.invars, operands) if operand in known and _is_place(var)
    }
    if not inside:
        return eqn
    return replace(eqn, params={**params, name: canonicalize_known(_placed(body, inside), inside)})


def _is_place(var: Var) -> bool:
    return var.aval.size <= MOST_INDICES and np.dtype(var.aval.dtype).kind in "iu"
