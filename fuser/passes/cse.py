"""Common subexpressions: equal primitives with equal parameters on equal operands are computed once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.params import freeze


def merge_common(graph: Graph) -> Graph:
    """The graph with each distinct equation once; the first occurrence, with its source line, stays."""
    renamed: dict[Var, Var] = {}
    known: dict[Any, Eqn] = {}
    kept = []
    for eqn in graph.eqns:
        invars = tuple(renamed.get(v, v) if isinstance(v, Var) else v for v in eqn.invars)
        eqn = eqn if invars == eqn.invars else replace(eqn, invars=invars)
        key = _key(eqn)
        first = known.get(key) if key is not None else None
        if first is not None and [v.aval for v in first.outvars] == [v.aval for v in eqn.outvars]:
            renamed.update(zip(eqn.outvars, first.outvars))
            continue
        if key is not None:
            known[key] = eqn
        kept.append(eqn)
    outvars = tuple(renamed.get(v, v) if isinstance(v, Var) else v for v in graph.outvars)
    return replace(graph, eqns=tuple(kept), outvars=outvars)


def _key(eqn: Eqn) -> Any:
    """What makes two equations equal; None where a parameter cannot be compared."""
    params = tuple((name, freeze(eqn.params[name])) for name in sorted(eqn.params))
    key = (eqn.primitive, params, tuple(_operand_key(v) for v in eqn.invars))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _operand_key(operand: Operand) -> Any:
    return (operand.aval, operand.val.tobytes()) if isinstance(operand, Literal) else operand
