"""Linearization: a Trace that records what is linear and lets its parent do all the rest at once.

`linearize` runs a jvp over a LinearTrace: values are computed as always, and the tangents' equations become a Graph from
input tangents to output tangents whose consts are the residuals. No other partial evaluation is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.ir.graph import Graph, Literal, Operand, Var
from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType
from fuser.trace.core import Trace, Tracer, _state, current, leaked, type_of
from fuser.trace.jvp import jvp
from fuser.trace.stage import StageTrace, StageTracer
from fuser.trace.tangent import Zero, as_array, differentiable


class LinearTrace(StageTrace):
    """Records each primitive that has an operand of this trace; the parent gets the others."""

    def __init__(self, parent: Trace, name: str = "linear") -> None:
        super().__init__(name)
        self.parent = parent

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

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if not any(isinstance(a, StageTracer) and a._trace is self for a in args):
            saved, _state.trace = _state.trace, self.parent
            try:
                return self.parent.process(primitive, args, params)
            finally:
                _state.trace = saved
        if primitive.partial is not None:
            return primitive.partial(self, args, params)
        return self.record(primitive, args, params)


def linear_part(
    function: Callable[..., Sequence[Any]], avals: Sequence[ArrayType], name: str = "linear"
) -> tuple[list[Any], Graph]:
    """Run a flat function on linear inputs of these types: its results, and the Graph of those that are linear.

    A result that is not linear is returned as its value and is absent from the Graph; one that is comes back as None.
    """
    trace = LinearTrace(current(), name)
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


def pruned(graph: Graph) -> Graph:
    """The graph without equations and constvars that no result needs."""
    wanted = {v for v in graph.outvars if type(v) is Var}
    kept = []
    for eqn in reversed(graph.eqns):
        if any(v in wanted for v in eqn.outvars):
            kept.append(eqn)
            wanted.update(eqn.operands())
    consts = [(v, c) for v, c in zip(graph.constvars, graph.consts) if v in wanted]
    return graph.updated(
        "pruned",
        eqns=tuple(reversed(kept)),
        constvars=tuple(v for v, _ in consts),
        consts=tuple(c for _, c in consts),
    )


class Linearized:
    """The linear part of a flat function at a point: its Graph, which inputs it takes, which outputs it gives."""

    def __init__(self, graph: Graph, inputs: list[bool], outputs: list[Any]) -> None:
        self.graph = graph
        self.inputs = inputs
        self.outputs = outputs  # None where the graph gives the tangent, else a Zero or a constant tangent

    def outputs_of(self, results: Sequence[Any]) -> list[Any]:
        """All output tangents, from those that the graph gives."""
        rest = iter(results)
        return [next(rest) if o is None else o for o in self.outputs]


def linearize(
    function: Callable[..., Sequence[Any]],
    primals: Sequence[Any],
    active: Sequence[bool] | None = None,
    name: str = "grad",
) -> tuple[list[Any], Linearized]:
    """Results of a flat function at `primals`, and its derivative there with respect to the `active` inputs."""
    primals = [as_array(p) for p in primals]
    avals = [type_of(p).update(weak_type=False) for p in primals]
    mask = [differentiable(a) and (active is None or active[n]) for n, a in enumerate(avals)]
    outs: list[Any] = []

    def tangents_of(*inputs: Any) -> list[Any]:
        rest = iter(inputs)
        tangents = [next(rest) if use else Zero(aval) for use, aval in zip(mask, avals)]
        results, out_tangents = jvp(function, primals, tangents, name)
        outs.extend(results)
        return out_tangents

    known, graph = linear_part(tangents_of, [a for a, use in zip(avals, mask) if use], name)
    return outs, Linearized(graph, mask, known)


def literal_or(environment: dict[Var, Any], operand: Operand) -> Any:
    """The operand's value."""
    return operand.val if type(operand) is Literal else environment[operand]  # type: ignore[index]
