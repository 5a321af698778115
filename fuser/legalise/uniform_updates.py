"""Scatters of uniform updates: where all updates are one row (histograms, counts), the kernel takes that row and no copies of it.

Graph → Graph. What a target's result is then depends on how often it stands there, so that nothing is read but the targets.
Products of equal numbers are no one multiplication, and stay as they are.
"""

from __future__ import annotations

from fuser.ir.graph import Eqn, Graph, Literal, Operand
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import ArrayType
from fuser.legalise.library_operands import uniform
from fuser.ops.movement import broadcast_in_dim_p, reshape_p
from fuser.ops.scatter_rows import scatter_rows_p
from fuser.partition.axes import Views
from fuser.passes.dce import drop_dead


def with_uniform_updates(graph: Graph) -> Graph:
    """The graph with one row of updates in each combination of rows whose updates are all the same."""
    wanted = {eqn for eqn in graph.eqns if eqn.primitive is scatter_rows_p and _combines_alike(eqn)}
    if not wanted:
        return graph
    views, rewriter = Views(graph.eqns), Rewriter(graph)
    for eqn in graph.eqns:
        old, eqn = eqn, rewriter.resolve(eqn)
        if old in wanted and (row := _row(rewriter, old.invars[2], views)) is not None:
            eqn = Eqn(eqn.primitive, (*eqn.invars[:2], row), eqn.params, eqn.outvars, eqn.source)
        rewriter.keep(eqn)
    return drop_dead(rewriter.finish())


def _combines_alike(eqn: Eqn) -> bool:
    return not eqn.params["unique"] and eqn.params["reduction"] != "prod" and eqn.invars[2].aval.shape[0] > 1


def _row(rewriter: Rewriter, updates: Operand, views: Views) -> Operand | None:
    """The one row that all rows are; None where they differ."""
    one = (1, updates.aval.shape[1])
    if (value := uniform(updates, views)) is not None:
        literal = Literal(value, ArrayType((), updates.aval.dtype))
        return rewriter.add(broadcast_in_dim_p, literal, shape=one, broadcast_dimensions=())
    view = views(updates)
    if view.source is None or view.dimensions is None or 0 in view.dimensions:
        return None
    source = rewriter.current(view.source)
    if source.aval.size == 1:
        number = rewriter.add(reshape_p, source, new_sizes=(), dimensions=None)
        return rewriter.add(broadcast_in_dim_p, number, shape=one, broadcast_dimensions=())
    return rewriter.add(reshape_p, source, new_sizes=one, dimensions=None)
