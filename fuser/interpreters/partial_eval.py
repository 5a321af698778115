"""jax.interpreters.partial_eval's names: running a function where some arguments are known by their types alone.

What depends on an unknown argument is recorded; all else the trace around evaluates (or records) as always. And a graph
with those of its results that are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fuser.extend.linear_util import WrappedFun
from fuser.gaps import absent
from fuser.ir.graph import Graph
from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value
from fuser.passes.dce import drop_unread
from fuser.trace.body import pick, reads
from fuser.trace.core import _state, current, forwarded, type_of
from fuser.trace.linear import LinearTrace

__all__ = ["PartialVal", "dce_jaxpr", "trace_to_jaxpr_nounits"]


class PartialVal(NamedTuple):
    """(None, value) of what is known, (type, None) of what is not."""

    aval: ArrayType | None
    const: Any

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        """Of a value."""
        return cls(None, const)

    @classmethod
    def unknown(cls, aval: ArrayType) -> PartialVal:
        """Of a type."""
        return cls(aval, None)

    def is_known(self) -> bool:
        """Whether there is a value."""
        return self.aval is None


class _PartialTrace(LinearTrace):
    """Records what has an unknown operand, linear in it or not."""

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if not any(map(self.follows, args)):
            return forwarded(self.parent, primitive, args, params)
        if primitive.stage is not None:
            return primitive.stage(self, args, params)
        if primitive.partial is not None:
            return primitive.partial(self, args, params)
        return self.record(primitive, args, params)


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool = False
) -> tuple[Graph, list[PartialVal], list[Any]]:
    """(graph of what depends on unknown arguments, a PartialVal for each result of `fun`, the graph's constants).

    With `instantiate` every result is unknown.
    """
    trace = _PartialTrace(current(), getattr(fun, "__name__", "partial_eval"))
    saved, _state.trace = _state.trace, trace
    try:
        inputs = [trace.new_input(p.aval) for p in pvals if p.aval is not None]
        unknown = iter(inputs)
        results = fun.call_wrapped(*(p.const if p.is_known() else next(unknown) for p in pvals))
        found = [r if trace.follows(r) else as_value(r) for r in results]
        recorded = [r for r in found if instantiate or trace.follows(r)]
        graph = trace.graph([i._var for i in inputs], recorded)  # type: ignore[misc]
    finally:
        _state.trace = saved
        trace.closed = True
    unknown_results = [instantiate or trace.follows(r) for r in found]
    out = [PartialVal.unknown(type_of(r)) if u else PartialVal.known(r) for r, u in zip(found, unknown_results)]
    return graph, out, list(graph.consts)


def dce_jaxpr(
    jaxpr: Graph, used_outputs: bool | Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Graph, list[bool]]:
    """(The graph with its used results, and what they need of its equations and inputs; which inputs those are).

    Loops and branches inside are pruned too; equations with effects and all constants stay, and so do inputs that are to be
    instantiated. One bool is for all results, or all inputs.
    """
    used = [used_outputs] * len(jaxpr.outvars) if isinstance(used_outputs, bool) else used_outputs
    kept = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else instantiate
    smaller = drop_unread(pick(jaxpr, outputs=[n for n, use in enumerate(used) if use]))
    read = reads(smaller)
    used_inputs = [v in read or keep for v, keep in zip(jaxpr.invars, kept)]
    smaller = replace(smaller, constvars=jaxpr.constvars, consts=jaxpr.consts)
    return pick(smaller, [n for n, use in enumerate(used_inputs) if use]), used_inputs


__getattr__ = absent(__name__)
