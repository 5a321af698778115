"""Rules of arithmetic: identities, signs, powers, division by powers of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Literal
from fuser.ir.primitive import Primitive
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import BOOL, FLOATS, INTEGERS
from fuser.ops import elementwise as E
from fuser.passes.algebra.rule import (
    REALS,
    Result,
    Rule,
    absorbed,
    again,
    constant,
    filled,
    first,
    first_is,
    fits,
    is_number,
    like,
    one,
    partner,
    partner_of,
    same_operands,
    second_is,
    twice,
    when,
    zero,
)
from fuser.passes.analysis.sign import never_negative


def _divide_by_power_of_two(eqn: Eqn, rewriter: Rewriter) -> Result:
    x, y = eqn.invars
    number = rewriter.number(y)
    if number is None or x.aval.dtype not in FLOATS or not fits(x, eqn):
        return None
    mantissa, exponent = np.frexp(np.float64(number))
    low, high = (-14, 15) if x.aval.dtype == FLOATS[0] else (-1022, 1023) if x.aval.dtype == FLOATS[3] else (-126, 127)
    if abs(mantissa) != 0.5 or not (low <= exponent - 1 <= high and low <= 1 - exponent <= high):
        return None
    return rewriter.make(E.mul_p, x, Literal(1 / np.float64(number), y.aval.update(shape=())))


def _power(eqn: Eqn, rewriter: Rewriter) -> Result:
    x, y = eqn.invars
    if x.aval.dtype not in FLOATS or not fits(x, eqn):
        return None
    if is_number(y, rewriter, 2):
        return rewriter.make(E.square_p, x)
    if is_number(y, rewriter, 1):
        return x
    if is_number(y, rewriter, 0):
        return filled(eqn, rewriter, 1)
    if is_number(y, rewriter, -1):
        return rewriter.make(E.div_p, Literal(1, x.aval.update(shape=())), x)
    return None


def _half_power(eqn: Eqn, rewriter: Rewriter) -> Result:
    """A power by a multiple of a half, up to 3/2, of what is not negative: by square roots.

    A quotient goes first, so that nothing on the way overflows or vanishes unless the result does.
    """
    x, y = eqn.invars
    wanted = x.aval.dtype in FLOATS[2:] and fits(x, eqn) and is_number(y, rewriter, 0.5, -0.5, 1.5, -1.5)
    if not wanted or not never_negative(x, rewriter):
        return None
    if is_number(y, rewriter, -0.5):
        return rewriter.make(E.rsqrt_p, x)
    root = rewriter.add(E.sqrt_p, x)
    if is_number(y, rewriter, 0.5):
        return root
    if is_number(y, rewriter, 1.5):
        return rewriter.make(E.mul_p, x, root)
    inverse = rewriter.add(E.div_p, Literal(1, x.aval.update(shape=())), x)
    return rewriter.make(E.div_p, inverse, root)


def _powers(power: float) -> Callable[..., Any]:
    return lambda x: E.pow_p.bind(E.abs_p.bind(x), like(x, power))


def _integer_power(eqn: Eqn, rewriter: Rewriter) -> Result:
    (x,), y = eqn.invars, eqn.params["y"]
    if y == 0:
        return filled(eqn, rewriter, 1)
    if y == 1:
        return x
    return rewriter.make(E.square_p, x) if y == 2 else None


def _negated(primitive: Primitive, partner: Primitive) -> Callable[[Eqn, Rewriter], Result]:
    """`x + (−y)` as `x − y`, and `x − (−y)` as `x + y`."""

    def rewrite(eqn: Eqn, rewriter: Rewriter) -> Result:
        x, y = eqn.invars
        negation = rewriter.producer(y, E.neg_p)
        if negation is not None:
            return rewriter.make(partner, x, negation.invars[0])
        negation = rewriter.producer(x, E.neg_p) if primitive is E.add_p else None
        return rewriter.make(partner, y, negation.invars[0]) if negation is not None else None

    return rewrite


def _both_negated(eqn: Eqn, rewriter: Rewriter) -> Result:
    if eqn.invars[0].aval.dtype not in FLOATS:
        return None
    x, y = (rewriter.producer(v, E.neg_p) for v in eqn.invars)
    return rewriter.make(eqn.primitive, x.invars[0], y.invars[0]) if x is not None and y is not None else None


def _sign_ignored(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`f(−x)` and `f(|x|)` as `f(x)` for a function that does not see the sign."""
    for primitive in (E.neg_p, E.abs_p):
        inner = rewriter.producer(eqn.invars[0], primitive)
        if (
            inner is not None
            and inner.invars[0].aval.dtype == eqn.invars[0].aval.dtype
            and inner.invars[0].aval.dtype.kind != "c"
        ):
            return rewriter.make(eqn.primitive, inner.invars[0], **eqn.params)
    return None


def negate_second(eqn: Eqn, rewriter: Rewriter) -> Result:
    return rewriter.make(E.neg_p, eqn.invars[1]) if fits(eqn.invars[1], eqn) else None


def negate_first(eqn: Eqn, rewriter: Rewriter) -> Result:
    return rewriter.make(E.neg_p, eqn.invars[0]) if fits(eqn.invars[0], eqn) else None


def times_minus_one(eqn: Eqn, rewriter: Rewriter) -> Result:
    x = partner_of(eqn, rewriter, -1)
    return rewriter.make(E.neg_p, x) if x is not None and x.aval.dtype.kind != "u" else None


ARITHMETIC: tuple[Rule, ...] = (
    Rule("x * 1", (E.mul_p,), partner(one), lambda x: E.mul_p.bind(like(x, 1), x), REALS),
    Rule("x * -1", (E.mul_p,), times_minus_one, lambda x: E.mul_p.bind(x, like(x, -1)), (*FLOATS, *INTEGERS[:4])),
    Rule("x * 0", (E.mul_p,), absorbed(zero), lambda x: E.mul_p.bind(x, like(x, 0)), INTEGERS),
    Rule(
        "-x * -y",
        (E.mul_p, E.div_p),
        _both_negated,
        lambda x, y: E.mul_p.bind(E.neg_p.bind(x), E.neg_p.bind(y)),
        FLOATS,
    ),
    Rule("x / 1", (E.div_p,), when(second_is(1), first), lambda x: E.div_p.bind(x, like(x, 1)), REALS),
    Rule(
        "x / -1",
        (E.div_p,),
        when(second_is(-1), negate_first),
        lambda x: E.div_p.bind(x, like(x, -1)),
        (*FLOATS, *INTEGERS[:4]),
    ),
    Rule("x / 2**n", (E.div_p,), _divide_by_power_of_two, lambda x: E.div_p.bind(x, like(x, -4.0)), FLOATS),
    Rule("x + -0.0", (E.add_p,), partner(zero, sign=-1), lambda x: E.add_p.bind(x, like(x, -0.0)), REALS),
    Rule("x - 0.0", (E.sub_p,), when(second_is(0, sign=1), first), lambda x: E.sub_p.bind(x, like(x, 0)), REALS),
    Rule(
        "-0.0 - x",
        (E.sub_p,),
        when(first_is(0, sign=-1), negate_second),
        lambda x: E.sub_p.bind(like(x, -0.0), x),
        REALS,
    ),
    Rule("x - x", (E.sub_p,), constant(0), lambda x: E.sub_p.bind(x, x), INTEGERS),
    Rule("x + -y", (E.add_p,), _negated(E.add_p, E.sub_p), lambda x, y: E.add_p.bind(E.neg_p.bind(x), y), REALS),
    Rule("x - -y", (E.sub_p,), _negated(E.sub_p, E.add_p), lambda x, y: E.sub_p.bind(x, E.neg_p.bind(y)), REALS),
    Rule("pow(x, 2)", (E.pow_p,), _power, lambda x: E.pow_p.bind(x, like(x, 2)), FLOATS, ulps=1),
    Rule("pow(x, 1)", (E.pow_p,), _power, lambda x: E.pow_p.bind(x, like(x, 1)), FLOATS),
    Rule("pow(x, 0)", (E.pow_p,), _power, lambda x: E.pow_p.bind(x, like(x, 0)), FLOATS),
    Rule("pow(x, -1)", (E.pow_p,), _power, lambda x: E.pow_p.bind(x, np.int32(-1)), FLOATS, ulps=1),
    *(
        Rule(
            f"pow(|x|, {power})",
            (E.pow_p,),
            _half_power,
            _powers(power),
            FLOATS[2:],
            ulps=3,
        )
        for power in (0.5, -0.5, 1.5, -1.5)
    ),
    Rule("integer_pow[0]", (E.integer_pow_p,), _integer_power, lambda x: E.integer_pow_p.bind(x, y=0), REALS),
    Rule("integer_pow[1]", (E.integer_pow_p,), _integer_power, lambda x: E.integer_pow_p.bind(x, y=1), REALS),
    Rule("integer_pow[2]", (E.integer_pow_p,), _integer_power, lambda x: E.integer_pow_p.bind(x, y=2), REALS),
    Rule("-(-x)", (E.neg_p,), twice(E.neg_p), lambda x: E.neg_p.bind(E.neg_p.bind(x)), REALS),
    Rule(
        "abs(-x)",
        (E.abs_p, E.square_p, E.cos_p, E.cosh_p),
        _sign_ignored,
        lambda x: E.abs_p.bind(E.neg_p.bind(x)),
        (*FLOATS, *INTEGERS[:4]),
    ),
    Rule(
        "abs(abs(x))",
        (E.abs_p, E.floor_p, E.ceil_p, E.round_p),
        again,
        lambda x: E.abs_p.bind(E.abs_p.bind(x)),
        (*FLOATS, *INTEGERS[:4]),
    ),
    Rule(
        "max(x, x)",
        (E.max_p, E.min_p),
        when(lambda e, r: same_operands(e), first),
        lambda x: E.max_p.bind(x, x),
        (BOOL, *REALS),
    ),
)
