"""Rules of one-hot rows, `where(k == iota, x, 0)`: what gradients of an indexed loss are made of.

A row has one element that counts, so its sum needs no walk along the row; and a function of a choice between numbers is
a choice between numbers.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.graph import Eqn, Literal, Operand
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import FLOATS, INTEGERS
from fuser.ops import elementwise as E
from fuser.ops import movement as M
from fuser.ops import reduce as R
from fuser.ops.conversion import convert_element_type_p
from fuser.passes.algebra.rule import REALS, Result, Rule, is_exact, is_number, like


def _through_choice(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`f(where(c, 2, 0))` as `where(c, f(2), f(0))`; of several operands one is the choice, the others are numbers."""
    chosen = [n for n, v in enumerate(eqn.invars) if rewriter.producer(v, E.select_n_p) is not None]
    if len(chosen) != 1:
        return None
    (at,) = chosen
    choice = rewriter.producer(eqn.invars[at], E.select_n_p)
    assert choice is not None
    others = [rewriter.number(v) for v in eqn.invars]
    cases = [rewriter.number(v) for v in choice.invars[1:]]
    if any(v is None for n, v in enumerate(others) if n != at) or any(v is None for v in cases):
        return None
    out = eqn.outvars[0].aval
    made: list[Operand] = []
    for case in cases:
        operands = [case if n == at else number for n, number in enumerate(others)]
        with np.errstate(all="ignore"):
            value = np.asarray(eqn.primitive.rule("eval")(*operands, **eqn.params))
        made.append(Literal(value, out.update(shape=())))
    return rewriter.make(E.select_n_p, choice.invars[0], *made)


def _sum(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`sum(where(k == iota, x, 0))` along the iota as `where(0 <= k < n, x, 0)`."""
    choice = rewriter.producer(eqn.invars[0], E.select_n_p)
    if choice is None or len(choice.invars) != 3 or not is_number(choice.invars[1], rewriter, 0):
        return None
    which, zero, value = choice.invars
    test = rewriter.producer(which, E.eq_p)
    if test is None or which.aval.shape != eqn.invars[0].aval.shape:
        return None
    if test.invars[0].aval.dtype not in INTEGERS or not all(v.aval.shape for v in test.invars):
        return None
    for counted, place in (test.invars, test.invars[::-1]):
        for axis in eqn.params["axes"]:
            same = _constant_along(place, axis, rewriter) and _constant_along(value, axis, rewriter)
            if same and _counts_along(counted, axis, rewriter):
                return _chosen(eqn, place, zero, value, axis, rewriter)
    return None


def _chosen(eqn: Eqn, place: Operand, zero: Operand, value: Operand, axis: int, rewriter: Rewriter) -> Result:
    last = min(eqn.invars[0].aval.shape[axis] - 1, np.iinfo(place.aval.dtype).max)
    scalar = place.aval.update(shape=())
    place, value, zero = (_first(v, axis, rewriter) for v in (place, value, zero))
    low = rewriter.add(E.ge_p, place, Literal(0, scalar))
    high = rewriter.add(E.le_p, place, Literal(last, scalar))
    inside = rewriter.add(E.and_p, low, high)
    choice = rewriter.add(E.select_n_p, inside, zero, value)
    if not is_exact(eqn):  # a sum begins at 0: of -0.0 alone it is 0.0
        choice = rewriter.add(E.add_p, choice, Literal(0, choice.aval.update(shape=())))
    if any(e != 1 for d, e in enumerate(choice.aval.shape) if d in eqn.params["axes"]):
        return rewriter.make(eqn.primitive, choice, **eqn.params)
    return rewriter.make(M.reshape_p, choice, new_sizes=eqn.outvars[0].aval.shape, dimensions=None)


def _first(operand: Operand, axis: int, rewriter: Rewriter) -> Operand:
    """The first elements along an axis, which keeps its position, of an operand that is the same along it."""
    if not operand.aval.shape:
        return operand
    shape = tuple(1 if d == axis else e for d, e in enumerate(operand.aval.shape))
    spread = rewriter.producers[operand]  # type: ignore[index]
    return rewriter.add(spread.primitive, spread.invars[0], **{**spread.params, "shape": shape})


def _constant_along(operand: Operand, axis: int, rewriter: Rewriter) -> bool:
    """Whether an operand is known to be the same along an axis."""
    if not operand.aval.shape:
        return True
    spread = rewriter.producer(operand, M.broadcast_in_dim_p)
    if spread is None:
        return False
    dimensions = spread.params["broadcast_dimensions"]
    return axis not in dimensions or spread.invars[0].aval.shape[dimensions.index(axis)] == 1


def _counts_along(operand: Operand, axis: int, rewriter: Rewriter) -> bool:
    """Whether the elements of an operand are 0, 1, 2, … along an axis."""
    counted = rewriter.producer(operand, M.iota_p)
    if counted is not None:
        within = operand.aval.shape[axis] - 1 <= np.iinfo(operand.aval.dtype).max
        return within and bool(counted.params["dimension"] == axis)
    spread = rewriter.producer(operand, M.broadcast_in_dim_p)
    if spread is None or axis not in spread.params["broadcast_dimensions"]:
        return False
    inner = spread.params["broadcast_dimensions"].index(axis)
    whole = spread.invars[0].aval.shape[inner] == operand.aval.shape[axis]
    return whole and _counts_along(spread.invars[0], inner, rewriter)


ONE_HOT: tuple[Rule, ...] = (
    Rule(
        "f(where(c, 2, 0))",
        (E.neg_p, E.mul_p, convert_element_type_p),
        _through_choice,
        lambda x: E.neg_p.bind(E.select_n_p.bind(E.lt_p.bind(x, like(x, 1)), like(x, 2), like(x, 0))),
        REALS,
    ),
    Rule(
        "sum(where(k == iota, x, 0))",
        (R.reduce_sum_p,),
        _sum,
        lambda k, x: R.reduce_sum_p.bind(
            E.select_n_p.bind(
                E.eq_p.bind(
                    M.iota_p.bind(dtype=np.dtype("int8"), shape=(2, 7, 4), dimension=1),
                    M.broadcast_in_dim_p.bind(
                        E.convert_element_type_p.bind(k, new_dtype=np.dtype("int8"), weak_type=False),
                        shape=(2, 7, 4),
                        broadcast_dimensions=(0, 2),
                    ),
                ),
                like(x, 0),
                M.broadcast_in_dim_p.bind(x, shape=(2, 7, 4), broadcast_dimensions=(0, 2)),
            ),
            axes=(1,),
        ),
        (*INTEGERS, *FLOATS),
        ((2, 4),),
    ),
)
