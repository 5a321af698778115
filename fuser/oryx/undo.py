"""How single equations are undone: an operand from the result and the other operands, and the logarithms of slopes.

A rule gives for each operand what was found, or None; None as a whole where the equation has no inverse there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Primitive
from fuser.numpy import linalg
from fuser.ops import elementwise as E
from fuser.ops import movement as M
from fuser.ops.conversion import copy_p
from fuser.ops.cumulative import cumsum_p
from fuser.ops.dot import dot_general_p
from fuser.ops.special import erf_inv_p
from fuser.transforms.linear import jvp


class Undone(NamedTuple):
    """A value, and for each of its elements the logarithm of what the equations behind it stretch by."""

    value: Any
    log: Any


Found = Sequence[Undone | None] | None
Rule = Callable[[Sequence[Any], Undone, dict[str, Any]], Found]


def _stretched(function: Callable[[Any], Any], out: Undone) -> Undone:
    """`function`, elementwise, of a result: its value, and the logarithm of its slope added."""
    value, slope = jvp(function, (out.value,), (fnp.ones_like(out.value),))
    return Undone(value, out.log + fnp.log(fnp.abs(slope)))


def _unary(undo: Callable[..., Any]) -> Rule:
    return lambda operands, out, params: [_stretched(lambda y: undo(y, **params), out)]


def _binary(left: Callable[[Any, Any], Any] | None, right: Callable[[Any, Any], Any] | None) -> Rule:
    """`left(out, y)` gives the first operand, `right(out, x)` the second."""

    def rule(operands: Sequence[Any], out: Undone, params: dict[str, Any]) -> Found:
        x, y = operands
        if y is not None and x is None and left is not None:
            return [_stretched(lambda o: left(o, y), out), None]
        if x is not None and y is None and right is not None:
            return [None, _stretched(lambda o: right(o, x), out)]
        return None

    return rule


def _root(out: Any, y: int) -> Any:
    """The y-th root; of an even power the one ≥ 0."""
    if y == 0:
        raise ValueError("no inverse: x ** 0 is one for all x")
    return out ** (1 / y) if y % 2 == 0 else fnp.sign(out) * fnp.abs(out) ** (1 / y)


# Even powers and absolute values are undone on the side of what is ≥ 0.
ELEMENTWISE: dict[Primitive, Rule] = {
    E.neg_p: _unary(lambda out: -out),
    E.exp_p: _unary(fnp.log),
    E.log_p: _unary(fnp.exp),
    E.expm1_p: _unary(fnp.log1p),
    E.log1p_p: _unary(fnp.expm1),
    E.tanh_p: _unary(fnp.arctanh),
    E.atanh_p: _unary(fnp.tanh),
    E.sinh_p: _unary(fnp.arcsinh),
    E.asinh_p: _unary(fnp.sinh),
    E.atan_p: _unary(fnp.tan),
    E.logistic_p: _unary(lambda out: fnp.log(out) - fnp.log1p(-out)),
    E.erf_p: _unary(lax.erf_inv),
    erf_inv_p: _unary(lax.erf),
    E.sqrt_p: _unary(fnp.square),
    E.rsqrt_p: _unary(lambda out: out**-2.0),
    E.cbrt_p: _unary(lambda out: out**3),
    E.square_p: _unary(fnp.sqrt),
    E.integer_pow_p: _unary(_root),
    copy_p: _unary(lambda out: out),
    E.add_p: _binary(lambda out, y: out - y, lambda out, x: out - x),
    E.sub_p: _binary(lambda out, y: out + y, lambda out, x: x - out),
    E.mul_p: _binary(lambda out, y: out / y, lambda out, x: out / x),
    E.div_p: _binary(lambda out, y: out * y, lambda out, x: x / out),
    E.pow_p: _binary(lambda out, y: out ** (1 / y), lambda out, x: fnp.log(out) / fnp.log(x)),
}


def _moved(back: Callable[[Any, Eqn], Any]) -> Callable[[Eqn, Sequence[Any], Sequence[Undone]], Found]:
    """Elements at other places: the value and the logarithms go back alike."""
    return lambda eqn, operands, outs: [Undone(back(outs[0].value, eqn), back(outs[0].log, eqn))]


def _shape(eqn: Eqn) -> tuple[int, ...]:
    return tuple(eqn.invars[0].aval.shape)


def _broadcast(eqn: Eqn, operands: Sequence[Any], outs: Sequence[Undone]) -> Found:
    """New dimensions of extent 1 alone: what is repeated is no one-to-one map."""
    if math.prod(_shape(eqn)) != outs[0].value.size:
        return None
    return [Undone(*(each.reshape(_shape(eqn)) for each in outs[0]))]


def _concatenate(eqn: Eqn, operands: Sequence[Any], outs: Sequence[Undone]) -> Found:
    axis = eqn.params["dimension"]
    places = np.cumsum([v.aval.shape[axis] for v in eqn.invars])[:-1].tolist()
    return [Undone(*pair) for pair in zip(*(fnp.split(each, places, axis) for each in outs[0]))]


def _split(eqn: Eqn, operands: Sequence[Any], outs: Sequence[Undone]) -> Found:
    return [Undone(*(fnp.concatenate(parts, eqn.params["axis"]) for parts in zip(*outs)))]


def _cumsum(eqn: Eqn, operands: Sequence[Any], outs: Sequence[Undone]) -> Found:
    """Differences: a triangular map with ones on the diagonal."""
    axis, value = eqn.params["axis"], outs[0].value
    value = fnp.flip(value, axis) if eqn.params.get("reverse") else value
    found = fnp.diff(value, axis=axis, prepend=fnp.zeros_like(lax.slice_in_dim(value, 0, 1, axis=axis)))
    return [Undone(fnp.flip(found, axis) if eqn.params.get("reverse") else found, outs[0].log)]


def _product(eqn: Eqn, operands: Sequence[Any], outs: Sequence[Undone]) -> Found:
    """A known square matrix times vectors (or their stack): solved, log |det| shared out over each vector's elements."""
    ((xc, yc), (xb, yb)), (x, y) = eqn.params["dimension_numbers"], operands
    first = y is None  # the matrix stands first
    matrix = x if first else y
    if (
        matrix is None
        or not (x is None or y is None)
        or matrix.ndim != 2
        or matrix.shape[0] != matrix.shape[1]
        or xb
        or yb
        or len(xc) != 1
    ):
        return None
    contracted, axis = ((xc, yc) if first else (yc, xc))[0][0], (yc if first else xc)[0]
    matrix = matrix if contracted == 1 else matrix.T  # out = matrix @ vector, for each vector
    place = 0 if first else -1  # where the result has the vectors' new elements
    columns = fnp.moveaxis(outs[0].value, place, 0)
    value = linalg.solve(matrix, columns.reshape(columns.shape[0], -1)).reshape(columns.shape)
    log = fnp.moveaxis(outs[0].log, place, 0).sum(0, keepdims=True) - linalg.slogdet(matrix)[1]
    log = fnp.broadcast_to(log / columns.shape[0], columns.shape)
    return [Undone(*(fnp.moveaxis(each, 0, axis) for each in (value, log))) if v is None else None for v in (x, y)]


STRUCTURAL: dict[Primitive, Callable[[Eqn, Sequence[Any], Sequence[Undone]], Found]] = {
    M.reshape_p: _moved(lambda out, eqn: out.reshape(_shape(eqn))),
    M.squeeze_p: _moved(lambda out, eqn: out.reshape(_shape(eqn))),
    M.transpose_p: _moved(lambda out, eqn: out.transpose(np.argsort(eqn.params["permutation"]).tolist())),
    M.rev_p: _moved(lambda out, eqn: fnp.flip(out, eqn.params["dimensions"])),
    M.broadcast_in_dim_p: _broadcast,
    M.concatenate_p: _concatenate,
    M.split_p: _split,
    E.convert_element_type_p: _moved(lambda out, eqn: out.astype(eqn.invars[0].aval.dtype)),
    cumsum_p: _cumsum,
    dot_general_p: _product,
}
