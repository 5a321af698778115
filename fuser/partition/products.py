"""What partition does for products that kernels read by strides alone: operands that strides cannot reach are copied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.partition.axes import View, Views
from fuser.partition.operands import with_copies


def with_strided_operands(graph: Graph, generated: Callable[[Eqn], bool]) -> Graph:
    """The graph with a copy of each operand of a `generated` product that is a view which strides do not describe."""

    def reached(operand: Operand, views: Views) -> bool:
        return isinstance(operand, Var) and strided(operand, views(operand))

    return with_copies(graph, lambda eqn: eqn.primitive.fusion is Fusion.DOT and generated(eqn), reached)


def strided(operand: Var, view: View) -> bool:
    """Whether the operand's elements lie at constant strides in its source."""
    if view.source is None:
        return False
    if not view.path:
        return True
    dummy = np.empty(view.source.aval.shape, view.source.aval.dtype)
    [found] = evaluate(Graph((view.source,), (), (), view.path, (operand,)), [dummy])
    return np.may_share_memory(dummy, found)
