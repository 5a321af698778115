"""Forward-mode differentiation: a Trace that carries a tangent beside each value.

Values of the function become pairs; each primitive is bound under the parent trace for the values, and its jvp rule for
the tangents. Tangents that are zero stay symbolic, so what does not depend on the inputs costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn, graphs_in
from fuser.ir.primitive import REGISTRY, Primitive
from fuser.ir.references import AbstractRef
from fuser.ir.source import through
from fuser.trace import cells
from fuser.trace.core import Trace, Tracer, _state, current, forwarded, type_of
from fuser.trace.tangent import Zero, add_tangents, as_array, differentiable, instantiate, zero_like


class JVPTracer(Tracer):
    """A value with its tangent."""

    __slots__ = ("_primal", "_tangent")

    def __init__(self, trace: Trace, primal: Any, tangent: Any) -> None:
        super().__init__(trace, type_of(primal))
        self._primal = primal
        self._tangent = tangent

    # Control flow of Python may read a value that is there; float() and item() would lose the tangent, and refuse.
    def __bool__(self) -> bool:
        return bool(self._primal)

    def __int__(self) -> int:
        return int(self._primal)

    def __index__(self) -> int:
        return self._primal.__index__()


class JVPRef(JVPTracer):
    """A Ref of the parent with the tangent of what it holds; the tangent may be a Ref as well."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        trace: Any = self._trace
        tangent = cells.read(trace.parent, self._tangent) if cells.is_ref(self._tangent) else self._tangent
        return trace.result(cells.read(trace.parent, self._primal), tangent)

    @value.setter
    def value(self, value: Any) -> None:
        trace: Any = self._trace
        primal, tangent = trace.pair(value)
        cells.write(trace.parent, self._primal, primal)
        if cells.is_ref(self._tangent):
            cells.write(trace.parent, self._tangent, instantiate(tangent))
        else:
            self._tangent = tangent

    def close(self) -> None:
        """End both."""
        cells.end(self._trace.parent, self._primal)  # type: ignore[attr-defined]


_CONSTANT_REF = (
    "performing a set/swap operation with a differentiated value on a non-differentiated array reference of type {}. "
    "Move the array reference to be an argument of the differentiated function?"
)


class JVPTrace(Trace):
    """Gives each primitive to the parent for its value, and to its jvp rule for the tangent."""

    def __init__(self, parent: Trace, name: str = "jvp") -> None:
        self.parent = parent
        self.name = name

    def pair(self, value: Any) -> tuple[Any, Any]:
        """A value and its tangent; what this trace does not follow is constant."""
        if isinstance(value, JVPTracer) and value._trace is self:
            return value._primal, value._tangent
        return value, zero_like(value)

    def result(self, primal: Any, tangent: Any) -> Any:
        return (
            primal if type(tangent) is Zero else (JVPRef if cells.is_ref(primal) else JVPTracer)(self, primal, tangent)
        )

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if not any(isinstance(a, JVPTracer) and a._trace is self for a in args):
            made = forwarded(self.parent, primitive, args, params)
            return JVPRef(self, made, zero_like(args[0])) if cells.makes_ref(primitive) else made
        if primitive.discharge is not None and (cells.makes_ref(primitive) or any(map(cells.is_ref, args))):
            return self._discharged(primitive, args, params)
        pairs = [self.pair(a) for a in args]
        primals = tuple([as_array(p) for p, _ in pairs])
        tangents = tuple([t for _, t in pairs])
        saved, _state.trace = _state.trace, self.parent
        try:
            out, tangent = differentiate(primitive, primals, tangents, params, self.name)
        finally:
            _state.trace = saved
        if primitive.multiple_results:
            return [self.result(p, t) for p, t in zip(out, tangent)]
        return self.result(out, tangent)

    def _discharged(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if cells.makes_ref(primitive):
            primal, tangent = self.pair(args[0])
            return JVPRef(self, forwarded(self.parent, primitive, (primal,), params), tangent)

        def constant(ref: Any) -> cells.Outside:
            return cells.Outside(self, ref, lambda v: type(self.pair(v)[1]) is not Zero, _CONSTANT_REF)

        if primitive.control is not None and (found := rule_over_ref(params)):
            raise UnsupportedError(
                f"{found.params.get('name', 'a custom function')} brings its own derivative and takes a Ref inside of {primitive.name}, "
                f"which cannot be differentiated ({found.source.short}); give it the value, ref[...], or write the loop in Python"
            )
        return cells.discharged(self, primitive, args, params, constant)


def rule_over_ref(params: dict[str, Any]) -> Eqn | None:
    """A call of a function with rules of its own that takes a Ref, in the graphs among the params."""
    for graph in graphs_in(params):
        for eqn in graph.eqns:
            if eqn.primitive.calls and any(type(v.aval) is AbstractRef for v in eqn.invars):
                return eqn
            if found := rule_over_ref(eqn.params):
                return found
    return None


def differentiate(
    primitive: Primitive, primals: tuple[Any, ...], tangents: tuple[Any, ...], params: dict[str, Any], name: str = "jvp"
) -> tuple[Any, Any]:
    """The primitive's result and its tangent, by its jvp rule, under the current trace."""
    rule = primitive.jvp
    if callable(rule):
        with through(name):
            return rule(primals, tangents, **params)
    out = primitive.bind(*primals, **params)
    if primitive.multiple_results:
        if not any(differentiable(type_of(o)) for o in out):
            return out, [zero_like(o) for o in out]
        primitive.rule("jvp")
    aval = type_of(out)
    if not differentiable(aval):
        return out, zero_like(out)
    if rule is None:
        if not (primitive.linear and len(primals) == 1):
            primitive.rule("jvp")
        with through(name):
            return out, primitive.bind(tangents[0], **params)
    total: Any = zero_like(out)
    with through(name):
        for function, tangent in zip(rule, tangents):
            if type(tangent) is Zero or function is None:
                continue
            part = function(tangent, *primals, out, **params)
            total = add_tangents(total, expanded(part, aval.shape))
    return out, total


def expanded(tangent: Any, shape: tuple[int, ...]) -> Any:
    """The tangent of a rank-0 operand in the result's shape."""
    if type(tangent) is Zero or tangent.shape == shape:
        return tangent
    return REGISTRY["broadcast_in_dim"].bind(tangent, shape=shape, broadcast_dimensions=())


def jvp(
    function: Callable[..., Sequence[Any]], primals: Sequence[Any], tangents: Sequence[Any], name: str = "jvp"
) -> tuple[list[Any], list[Any]]:
    """Results and their tangents (`Zero` where they are) of a flat function, at `primals` along `tangents`."""
    trace = JVPTrace(current(), name)
    saved, _state.trace = _state.trace, trace
    try:
        inputs = [trace.result(p, t) for p, t in zip(primals, tangents)]
        pairs = [trace.pair(o) for o in function(*inputs)]
    finally:
        _state.trace = saved
        trace.closed = True
    return [p for p, _ in pairs], [t for _, t in pairs]
