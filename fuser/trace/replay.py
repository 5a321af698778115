"""Replay: bind each equation of a Graph again, under whatever Trace is current. A graph is a function once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.source import replayed
from fuser.runtime.array import Array
from fuser.trace.explicit import Openness, resolving
from fuser.trace.hoisting import number

Binding = Callable[[Eqn, list[Any]], Any]  # an equation and its operands to what `Primitive.bind` gives


def bound(eqn: Eqn, operands: list[Any]) -> Any:
    """The equation's primitive on other operands."""
    return eqn.primitive.bind(*operands, **eqn.params)


def replay(graph: Graph, *args: Any, binding: Binding = bound) -> list[Any]:
    """The results of the graph for `args`; each equation keeps its user's line, and is done by `binding`."""
    environment: dict[Var, Any] = dict(zip(graph.constvars, graph.consts))
    environment.update(zip(graph.invars, args, strict=True))

    def read(operand: Operand) -> Any:
        if type(operand) is Literal:
            return number(Array(np.asarray(operand.val), operand.aval.weak_type))
        return environment[operand]  # type: ignore[index]

    with resolving(Openness.AMBIGUOUS):  # layouts were checked when it was recorded
        for eqn in graph.eqns:
            with replayed(eqn.source):
                result = binding(eqn, [read(v) for v in eqn.invars])
            if eqn.primitive.multiple_results:
                environment.update(zip(eqn.outvars, result))
            else:
                environment[eqn.outvars[0]] = result
    return [read(v) for v in graph.outvars]


def as_function(graph: Graph) -> Callable[..., list[Any]]:
    """`replay` of this graph."""
    return lambda *args: replay(graph, *args)
