"""Constant folding: equations on literals are computed now, by their eval rules.

Only single numbers are folded: a literal broadcast to a shape stays a broadcast, and iotas stay, since index arithmetic
costs a kernel nothing and an array would have to be read. Results without elements are constants too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand
from fuser.ir.primitive import MOVES, Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ops.conversion import bitcast_convert_type_p
from fuser.ops.movement import broadcast_in_dim_p

_FOLDED = (Fusion.ELEMENTWISE, Fusion.MOVEMENT, Fusion.REDUCE, Fusion.SCAN)


def fold_constants(graph: Graph) -> Graph:
    """The graph without equations on literals alone; elementwise operands that are broadcast literals become literals."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        result = _folded(eqn, rewriter)
        if isinstance(result, Literal):
            rewriter.replace(eqn.outvars[0], result)
        else:
            rewriter.keep(result)
    return rewriter.finish()


def _folded(eqn: Eqn, rewriter: Rewriter) -> Eqn | Literal:
    """The equation in its simplest form: a literal, a broadcast literal, or itself on literals."""
    primitive = eqn.primitive
    if primitive.fusion not in _FOLDED or primitive.multiple_results or not eqn.invars or primitive.eval is None:
        return eqn
    out = eqn.outvars[0].aval
    if 0 in out.shape or (any(0 in v.aval.shape for v in eqn.invars[:1]) and primitive.fusion is Fusion.REDUCE):
        return _spread(eqn, _of_nothing(eqn))
    if primitive.fusion is not Fusion.ELEMENTWISE:
        if not out.shape and all(isinstance(v, Literal) for v in eqn.invars):
            return _literal(eqn, [v.val for v in eqn.invars])  # type: ignore[union-attr]
        if primitive.movement in MOVES and not isinstance(eqn.invars[0], Literal):
            value = rewriter.number(eqn.invars[0])
            return eqn if value is None else _spread(eqn, Literal(value, eqn.invars[0].aval.update(shape=())))
        return eqn
    numbers = [rewriter.number(v) for v in eqn.invars]
    if all(n is None for n in numbers):
        return eqn
    if all(n is not None for n in numbers):
        if primitive is bitcast_convert_type_p and out.shape != eqn.invars[0].aval.shape:
            return eqn
        return _spread(eqn, _literal(eqn, numbers))
    return _on_literals(eqn, numbers)


def _of_nothing(eqn: Eqn) -> Literal:
    """The one number that a result without elements, or a fold over nothing, may be taken for."""
    out = eqn.outvars[0].aval
    if 0 in out.shape:
        return Literal(np.zeros((), out.dtype), out.update(shape=()))
    empty = np.zeros(eqn.invars[0].aval.shape, eqn.invars[0].aval.dtype)
    return Literal(np.asarray(eqn.primitive.rule("eval")(empty, **eqn.params)).flat[0], out.update(shape=()))


def _literal(eqn: Eqn, numbers: list[np.generic | None]) -> Literal:
    with np.errstate(all="ignore"):
        value = eqn.primitive.rule("eval")(*(np.asarray(n) for n in numbers), **eqn.params)
    return Literal(np.asarray(value).reshape(()), eqn.outvars[0].aval.update(shape=()))


def _spread(eqn: Eqn, value: Literal) -> Eqn | Literal:
    """The equation's result as a literal, broadcast where it has a shape."""
    shape = eqn.outvars[0].aval.shape
    if not shape:
        return value
    return replace(
        eqn, primitive=broadcast_in_dim_p, invars=(value,), params={"shape": shape, "broadcast_dimensions": ()}
    )


def _on_literals(eqn: Eqn, numbers: list[np.generic | None]) -> Eqn:
    """The equation with broadcast literals read as literals, where another operand still gives the shape."""
    shape = eqn.outvars[0].aval.shape
    if not any(n is None and v.aval.shape == shape for v, n in zip(eqn.invars, numbers)):
        return eqn
    operands: list[Operand] = [
        v if n is None or isinstance(v, Literal) else Literal(n, v.aval.update(shape=()))
        for v, n in zip(eqn.invars, numbers)
    ]
    return replace(eqn, invars=tuple(operands))
