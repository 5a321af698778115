"""Transposition: the cotangents of a linear Graph's inputs from those of its outputs, equation by equation backwards.

Each equation that this makes names the forward line of the equation that it transposes, `via` grad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import MissingRuleError
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import REGISTRY
from fuser.ir.source import through
from fuser.runtime.array import Array
from fuser.trace.core import Tracer, type_of
from fuser.trace.explicit import resolving, rules
from fuser.trace.hoisting import number
from fuser.trace.linear import linear_part
from fuser.trace.replay import replay
from fuser.trace.tangent import Undefined, Zero, add_tangents, all_zero


def backward(graph: Graph, cotangents: Sequence[Any], name: str = "grad", taken: Any = None) -> list[Any]:
    """The cotangent (or `Zero`) of each input of a linear graph; every equation must be linear in its operands that vary.

    What `taken(equation, cotangent, operands)` says that it takes goes to no input.
    """
    values: dict[Var, Any] = dict(zip(graph.constvars, graph.consts))
    found: dict[Var, Any] = {}
    for var, cotangent in zip(graph.outvars, cotangents):
        if type(var) is Var:
            _add(found, var, cotangent)
    with resolving():
        for eqn in reversed(graph.eqns):
            given = [found.pop(v) if v in found else Zero(v.aval) for v in eqn.outvars]
            if not all_zero(given):
                with through(name, eqn.source):
                    if taken is None or not taken(eqn, given[0], lambda v: _operand(v, values)):
                        _transpose(eqn, given, values, found)
    return [found.get(v, Zero(v.aval)) for v in graph.invars]


def _add(found: dict[Var, Any], var: Var, cotangent: Any) -> None:
    if type(cotangent) is not Zero:
        extra = cotangent.aval.vma - var.aval.vma if isinstance(cotangent, Tracer) else None
        if missing := var.aval.vma - type_of(cotangent).vma if var.aval.vma else None:
            cotangent = REGISTRY["pvary"].bind(cotangent, axes=tuple(sorted(missing, key=str)))
        if extra:
            cotangent = _shared(cotangent, extra, var.aval.mat.reduced)
        if var.aval.explicit is not None:
            cotangent = rules.cotangent(cotangent, var.aval)
        known = found.get(var)
        found[var] = cotangent if known is None else add_tangents(known, cotangent)


def _shared(cotangent: Any, axes: frozenset[Any], reduced: frozenset[Any]) -> Any:
    """The cotangent of what is the same for all along these axes, of which each device has a share; left open where that is said."""
    for name, names in (("vary_unreduced_cast", axes & reduced), ("psum_invariant", axes - reduced)):
        if names:
            cotangent = REGISTRY[name].bind(cotangent, axes=tuple(sorted(names, key=str)))
    return cotangent


def _transpose(eqn: Eqn, cotangents: list[Any], values: dict[Var, Any], found: dict[Var, Any]) -> None:
    operands = [_operand(v, values) for v in eqn.invars]
    given = cotangents if eqn.primitive.multiple_results else cotangents[0]
    if eqn.primitive.transpose is None and eqn.primitive.jvp is not None:
        raise MissingRuleError(
            f"Transpose rule (for reverse-mode differentiation) for '{eqn.primitive}' not implemented: '{eqn.primitive}' "
            f"({eqn.source.short}) is not linear in what is transposed; transpose a function that is linear in all its arguments, such as the "
            "second result of fuser.linearize"
        )
    results = eqn.primitive.rule("transpose")(given, *operands, **eqn.params)
    for operand, result in zip(eqn.invars, results):
        if result is not None and type(operand) is Var and operand not in values:
            _add(found, operand, result)


def _operand(operand: Operand, values: dict[Var, Any]) -> Any:
    if type(operand) is Literal:
        return number(Array(np.asarray(operand.val), operand.aval.weak_type))
    value = values.get(operand)  # type: ignore[arg-type]
    return Undefined(operand.aval) if value is None else value


def transposed(function: Callable[..., Sequence[Any]], operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of the `Undefined` operands (None for the others) of a flat function that is linear in them.

    What does not depend on them is computed at once, under the current trace.
    """
    places = [n for n, o in enumerate(operands) if type(o) is Undefined]

    def on_linear(*inputs: Any) -> Sequence[Any]:
        full = list(operands)
        for place, value in zip(places, inputs):
            full[place] = value
        return function(*full)

    known, graph = linear_part(on_linear, [operands[n].aval for n in places], "transpose")
    wanted = [c for c, k in zip(cotangents, known) if k is None]
    results: list[Any] = [None] * len(operands)
    for place, cotangent in zip(places, backward(graph, wanted)):
        results[place] = cotangent
    return results


def transposed_graph(graph: Graph, operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """`transposed` of a graph as a function."""
    return transposed(lambda *values: replay(graph, *values), operands, cotangents)
