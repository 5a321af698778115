"""Staging: run a Python function once on tracers and record what it did as a Graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import REGISTRY, Fusion, Primitive
from fuser.ir.source import Source, current_source
from fuser.ir.types import ArrayType, is_key
from fuser.runtime.array import Array
from fuser.runtime.reference import Ref
from fuser.trace import leaks
from fuser.trace.batch import checked_axes, named_axes
from fuser.trace.core import Trace, Tracer, _state, infer, leaked, type_of
from fuser.trace.hoisting import hoisted


class StageTracer(Tracer):
    """A value of the graph being recorded."""

    __slots__ = ("_var",)  # private: tracers have the methods of arrays, `var` among them

    def __init__(self, trace: Trace, var: Operand) -> None:
        super().__init__(trace, var.aval)
        self._var = var


class Reader(Protocol):
    """Values of what a trace records, while it does: `Trace.read` and `Trace.shown`."""

    def read(self, tracer: Any) -> np.ndarray | None: ...

    def shown(self, tracer: Any) -> str: ...


class StageTrace(Trace):
    """Records each primitive as an equation. Values from outside become literals (scalars) or consts (arrays)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.eqns: list[Eqn] = []
        self.constants: dict[int, tuple[Var, Any]] = {}
        self.reader: Reader | None = None  # where the inputs have values

    def read(self, tracer: Tracer) -> np.ndarray | None:
        return None if self.reader is None or self.closed else self.reader.read(tracer)

    def shown(self, tracer: Tracer) -> str:
        return "" if self.reader is None or self.closed else self.reader.shown(tracer)

    def new_input(self, aval: ArrayType) -> StageTracer:
        return StageTracer(self, Var(aval))

    def operand(self, value: Any) -> Operand:
        """The variable or literal that stands for `value` in this graph."""
        if isinstance(value, StageTracer) and value._trace is self:
            return value._var
        if isinstance(value, Tracer) and value._trace.closed:
            raise leaked(value)
        aval = type_of(value)
        if not aval.shape and _becomes_literal(value, aval):
            return Literal(np.asarray(value), aval)
        known = self.constants.get(id(value))
        if known is None:
            known = self.constants[id(value)] = (Var(aval), value)
        return known[0]

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if self.closed:
            raise RuntimeError(f"the trace of {self.name} has ended")
        if primitive.stage is not None:
            return primitive.stage(self, args, params)
        return self.record(primitive, args, params)

    def record(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """One more equation; its results as tracers."""
        invars = tuple([self.operand(a) for a in args])
        if checked_axes() and primitive.varying is None and primitive.fusion is not Fusion.CONTROL:
            invars = self.varied(primitive, invars)
        result = infer(primitive, tuple([v.aval for v in invars]), params)
        outvars = tuple([Var(t) for t in result]) if primitive.multiple_results else (Var(result),)
        self.eqns.append(Eqn(primitive, invars, params, outvars, current_source()))
        if primitive.multiple_results:
            return [StageTracer(self, v) for v in outvars]
        return StageTracer(self, outvars[0])

    def varied(self, primitive: Primitive, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """The operands of one equation, those that are the same for all devices taken as each one's own where others vary.

        ValueError where the setting `auto_pcast` is off; constants are excepted.
        """
        axes = frozenset[Any]().union(*(v.aval.vma for v in operands))
        if all(axes <= v.aval.vma for v in operands):
            return operands
        if not config.auto_pcast and any(v.aval.vma != axes for v in operands if isinstance(v, Var)):
            found = ", ".join(f"{v.aval} varying along {sorted(v.aval.vma, key=str)}" for v in operands)
            raise ValueError(
                f"Primitive {primitive.name} requires varying manual axes to match, but got {found} ({current_source().short}); apply "
                "lax.pcast(x, axis, to='varying'), or leave the setting auto_pcast on"
            )
        return tuple(self.cast(v, [n for n in named_axes() if n in axes - v.aval.vma]) for v in operands)

    def cast(self, operand: Operand, missing: Sequence[Any]) -> Operand:
        """A value as each device's own along more axes."""
        reduced = operand.aval.mat.reduced
        for name, axes in (
            ("reduced_vary_cast", tuple(n for n in missing if n in reduced)),
            ("pvary", tuple(n for n in missing if n not in reduced)),
        ):
            if axes:
                primitive, params = REGISTRY[name], {"axes": axes}
                var = Var(infer(primitive, (operand.aval,), params))
                self.eqns.append(Eqn(primitive, (operand,), params, (var,), current_source()))
                operand = var
        return operand

    def origin(self, tracer: Tracer) -> Source | None:
        """The line of the equation that gave a value; None for inputs."""
        var = getattr(tracer, "_var", None)
        return next((eqn.source for eqn in self.eqns if any(v is var for v in eqn.outvars)), None)

    def graph(self, invars: Sequence[Var], outputs: Sequence[Any]) -> Graph:
        """What was recorded, with these inputs and outputs."""
        outvars = tuple(self.operand(value) for value in outputs)
        constants = tuple(self.constants.values())
        return Graph(
            tuple(invars),
            tuple(v for v, _ in constants),
            tuple(c for _, c in constants),
            tuple(self.eqns),
            outvars,
            self.name,
            ("traced",),
        )


def _becomes_literal(value: Any, aval: ArrayType) -> bool:
    """Whether a scalar from outside stands in the graph; a text is no place for a key, and `make_jaxpr` hoists Arrays."""
    if isinstance(value, Tracer) or type(value) is Ref or is_key(aval.dtype):
        return False
    return type(value) is not Array or not hoisted(value)


def stage(
    function: Callable[..., Sequence[Any]],
    avals: Sequence[ArrayType],
    name: str = "main",
    late: Sequence[StageTracer] = (),
) -> Graph:
    """The graph of `function`, which takes one tracer a type in `avals` and returns a flat sequence of values.

    `late` are inputs that the function itself has made (`new_input`) while it ran; they follow the others.
    A tracer that outlives the call raises UnexpectedTracerError where it is used.
    """
    trace = StageTrace(name)
    graph = _recorded(trace, function, avals, late)
    if config.check_tracer_leaks:
        leaks.check(trace)
    return graph


def _recorded(
    trace: StageTrace, function: Callable[..., Sequence[Any]], avals: Sequence[ArrayType], late: Sequence[StageTracer]
) -> Graph:
    saved, _state.trace = _state.trace, trace
    try:
        inputs = [trace.new_input(aval) for aval in avals]
        outputs = function(*inputs)
        return trace.graph([i._var for i in (*inputs, *late)], outputs)  # type: ignore[misc]
    finally:
        _state.trace = saved
        trace.closed = True


def is_array(value: Any) -> bool:
    """Whether `value` is something that an operation takes: an Array, a tracer, or a NumPy array or scalar."""
    return isinstance(value, (Array, Tracer, np.ndarray, np.generic)) or type(value) is Ref
