"""Gathers of single elements that read each component of their indices where it is computed. Graph → Graph.

`x[i, j]` joins its indices along a last dimension. A kernel that computed i and j for itself would have to ask of each element of
what is joined whether it comes of i or of j; so such a gather takes as many arrays of indices as it has components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Var
from fuser.ops.indexing import gather_p
from fuser.ops.movement import concatenate_p
from fuser.passes.dce import drop_dead


def with_index_components(graph: Graph, supported: Callable[[Eqn], bool]) -> Graph:
    """The graph with the supported gathers of single elements on the components that their indices are joined of."""
    joined = {eqn.outvars[0]: eqn.invars for eqn in graph.eqns if _joins_components(eqn)}
    changed: dict[Eqn, Eqn] = {}
    for eqn in graph.eqns:
        if (
            eqn.primitive is gather_p
            and eqn.invars[1] in joined
            and set(eqn.params["slice_sizes"]) == {1}
            and supported(eqn)
        ):
            changed[eqn] = replace(eqn, invars=(eqn.invars[0], *joined[eqn.invars[1]]))
    return drop_dead(replace(graph, eqns=tuple(changed.get(eqn, eqn) for eqn in graph.eqns))) if changed else graph


def _joins_components(eqn: Eqn) -> bool:
    last = eqn.outvars[0].aval.ndim - 1
    return (
        eqn.primitive is concatenate_p
        and eqn.params["dimension"] == last
        and all(isinstance(v, Var) and v.aval.shape[last] == 1 for v in eqn.invars)
    )
