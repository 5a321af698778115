"""A Trace that records what is linear in its inputs and lets its parent do all the rest at once.

What comes out is a linear Graph whose consts are the residuals. No other partial evaluation is needed: derivatives
(`linearize`) and transposes (`transposed`) both rest on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from fuser.ir.graph import Graph, Operand, Var, effective
from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType
from fuser.trace.core import Trace, Tracer, _state, current, forwarded, leaked, type_of
from fuser.trace.stage import StageTrace, StageTracer


class _Direction(threading.local):
    def __init__(self) -> None:
        self.pushes = False


_direction = _Direction()


def pushes() -> bool:
    """Whether the linear graph that is being made is for tangents (`linearize`), rather than to be transposed."""
    return _direction.pushes


class LinearTrace(StageTrace):
    """Records each primitive that has an operand of this trace; the parent gets the others.

    `pushes` is what `pushes()` is for graphs that a primitive's rule parts for this trace.
    """

    def __init__(self, parent: Trace, name: str = "linear", pushes: bool | None = None) -> None:
        super().__init__(name)
        self.parent = parent
        self.pushes = _direction.pushes if pushes is None else pushes

    def follows(self, value: Any) -> bool:
        """Whether the value is linear in this trace's inputs."""
        return isinstance(value, StageTracer) and value._trace is self

    def operand(self, value: Any) -> Operand:
        """As in staging, but scalars stay values: they are residuals, not text."""
        if isinstance(value, StageTracer) and value._trace is self:
            return value._var
        if isinstance(value, Tracer) and value._trace.closed:
            raise leaked(value)
        known = self.constants.get(id(value))
        if known is None:
            known = self.constants[id(value)] = (Var(type_of(value)), value)
        return known[0]

    def varied(self, primitive: Primitive, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return operands  # transposition sums what devices contribute to a value that they share

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if not any(isinstance(a, StageTracer) and a._trace is self for a in args):
            return forwarded(self.parent, primitive, args, params)
        if primitive.partial is not None:
            saved, _direction.pushes = _direction.pushes, self.pushes
            try:
                return primitive.partial(self, args, params)
            finally:
                _direction.pushes = saved
        return self.record(primitive, args, params)


def linear_part(
    function: Callable[..., Sequence[Any]], avals: Sequence[ArrayType], name: str = "linear", pushes: bool | None = None
) -> tuple[list[Any], Graph]:
    """Run a flat function on linear inputs of these types: its results, and the Graph of those that are linear.

    A result that is not linear is returned as its value and is absent from the Graph; one that is comes back as None.
    """
    trace = LinearTrace(current(), name, pushes)
    saved, _state.trace = _state.trace, trace
    try:
        inputs = [trace.new_input(a) for a in avals]
        outputs = list(function(*inputs))
    finally:
        _state.trace = saved
        trace.closed = True
    linear = [o for o in outputs if trace.follows(o)]
    graph = trace.graph([i._var for i in inputs], linear)  # type: ignore[misc]
    return [None if trace.follows(o) else o for o in outputs], pruned(graph)


def pruned(graph: Graph, effects: bool = True) -> Graph:
    """The graph without equations and constvars that no result needs; those with `effects` stay where they are wanted."""
    wanted = {v for v in graph.outvars if type(v) is Var}
    kept = []
    for eqn in reversed(graph.eqns):
        if any(v in wanted for v in eqn.outvars) or (effects and effective(eqn)):
            kept.append(eqn)
            wanted.update(eqn.operands())
    consts = [(v, c) for v, c in zip(graph.constvars, graph.consts) if v in wanted]
    return graph.updated(
        "pruned",
        eqns=tuple(reversed(kept)),
        constvars=tuple(v for v, _ in consts),
        consts=tuple(c for _, c in consts),
    )
