"""Rules of integer division by powers of two, which is shifts and masks: quotients and remainders that round downwards.

NumPy's `//` and `%` are written with the machine's division, which rounds towards zero, and a correction where the signs differ.
Warren, "Hacker's Delight" (2nd edition, 2012), chapters 10-1 and 10-2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Literal, Operand
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import INTEGERS, SIGNED, UNSIGNED
from fuser.ops import elementwise as E
from fuser.passes.algebra.rule import Result, Rule, fits, is_number, like


def _below_zero_and_not_zero(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`x < 0 and x != 0` as `x < 0`."""
    for one, other in (eqn.invars, eqn.invars[::-1]):
        below, unequal = rewriter.producer(one, E.lt_p), rewriter.producer(other, E.ne_p)
        if below is None or unequal is None or below.invars[0] is not unequal.invars[0]:
            continue
        if is_number(below.invars[1], rewriter, 0) and is_number(unequal.invars[1], rewriter, 0):
            return one
    return None


def _shift(divisor: Operand, rewriter: Rewriter) -> int | None:
    """n of a divisor 2ⁿ of integers, from 2 on."""
    number = rewriter.number(divisor)
    if number is None or number.dtype not in INTEGERS or int(number) < 2 or int(number) & (int(number) - 1):
        return None
    return int(number).bit_length() - 1


def _literal(value: int, operand: Operand) -> Literal:
    return Literal(np.asarray(value, operand.aval.dtype), operand.aval.update(shape=()))


def _low_bits(remainder: Eqn, rewriter: Rewriter) -> Eqn | None:
    """The remainder's dividend under a mask of the bits below the divisor's."""
    x, divisor = remainder.invars
    shift = _shift(divisor, rewriter)
    if shift is None or x.aval.shape != remainder.outvars[0].aval.shape:
        return None
    return rewriter.make(E.and_p, x, _literal((1 << shift) - 1, x))


def _floored(eqn: Eqn, rewriter: Rewriter) -> Result:
    """The choice between a remainder and the remainder plus the divisor, and between a quotient and the quotient less one."""
    which, kept, *corrected = eqn.invars
    if len(corrected) != 1 or not fits(kept, eqn):
        return None
    if (remainder := rewriter.producer(kept, E.rem_p)) is not None:
        return _remainder(remainder, which, corrected[0], rewriter)
    if (quotient := rewriter.producer(kept, E.div_p)) is not None:
        return _quotient(quotient, which, corrected[0], rewriter)
    return None


def _remainder(remainder: Eqn, which: Operand, corrected: Operand, rewriter: Rewriter) -> Result:
    below, added = rewriter.producer(which, E.lt_p), rewriter.producer(corrected, E.add_p)
    kept, shift = remainder.outvars[0], _shift(remainder.invars[1], rewriter)
    if below is None or added is None or shift is None or not is_number(below.invars[1], rewriter, 0):
        return None
    if below.invars[0] is not kept or added.invars[0] is not kept:
        return None
    return _low_bits(remainder, rewriter) if is_number(added.invars[1], rewriter, 1 << shift) else None


def _quotient(quotient: Eqn, which: Operand, corrected: Operand, rewriter: Rewriter) -> Result:
    x, shift = quotient.invars[0], _shift(quotient.invars[1], rewriter)
    less, both = rewriter.producer(corrected, E.sub_p), rewriter.producer(which, E.and_p)
    if shift is None or less is None or both is None or x.aval.shape != quotient.outvars[0].aval.shape:
        return None
    if less.invars[0] is not quotient.outvars[0] or not is_number(less.invars[1], rewriter, 1):
        return None
    tests = [rewriter.producer(test, E.ne_p) for test in both.invars]
    if not any(_is_sign(test, x, rewriter) for test in tests):
        return None
    if not any(_is_remainder(test, x, 1 << shift, rewriter) for test in tests):
        return None
    return rewriter.make(E.shift_right_arithmetic_p, x, _literal(shift, x))


def _is_sign(test: Eqn | None, x: Operand, rewriter: Rewriter) -> bool:
    """Whether it is `sign(x) != 1`."""
    sign = None if test is None else rewriter.producer(test.invars[0], E.sign_p)
    return test is not None and sign is not None and sign.invars[0] is x and is_number(test.invars[1], rewriter, 1)


def _is_remainder(test: Eqn | None, x: Operand, divisor: int, rewriter: Rewriter) -> bool:
    """Whether it is `rem(x, divisor) != 0`, or the same of the low bits of x."""
    if test is None or not is_number(test.invars[1], rewriter, 0):
        return False
    for primitive, number in ((E.rem_p, divisor), (E.and_p, divisor - 1)):
        made = rewriter.producer(test.invars[0], primitive)
        if made is not None and made.invars[0] is x and is_number(made.invars[1], rewriter, number):
            return True
    return False


def _unsigned(eqn: Eqn, rewriter: Rewriter) -> Result:
    """Quotients and remainders of numbers that are not negative."""
    x, divisor = eqn.invars
    shift = _shift(divisor, rewriter)
    if shift is None or x.aval.dtype not in UNSIGNED:
        return None
    if eqn.primitive is E.rem_p:
        return _low_bits(eqn, rewriter)
    return rewriter.make(E.shift_right_logical_p, x, _literal(shift, x)) if fits(x, eqn) else None


def _divisible(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`rem(x, 2ⁿ) == 0` of the low bits."""
    remainder = rewriter.producer(eqn.invars[0], E.rem_p)
    if remainder is None or not is_number(eqn.invars[1], rewriter, 0):
        return None
    bits = _low_bits(remainder, rewriter)
    if bits is None:
        return None
    rewriter.keep(bits)
    return rewriter.make(eqn.primitive, bits.outvars[0], eqn.invars[1])


def _mod(x: Any) -> Any:
    remainder = E.rem_p.bind(x, like(x, 8))
    return E.select_n_p.bind(E.lt_p.bind(remainder, like(x, 0)), remainder, E.add_p.bind(remainder, like(x, 8)))


def _floor_divide(x: Any) -> Any:
    quotient, remainder = E.div_p.bind(x, like(x, 8)), E.rem_p.bind(x, like(x, 8))
    lower = E.and_p.bind(E.ne_p.bind(E.sign_p.bind(x), like(x, 1)), E.ne_p.bind(remainder, like(x, 0)))
    return E.select_n_p.bind(lower, quotient, E.sub_p.bind(quotient, like(x, 1)))


def _negative(x: Any) -> Any:
    return E.and_p.bind(E.lt_p.bind(x, like(x, 0)), E.ne_p.bind(x, like(x, 0)))


DIVISION = (
    Rule("x < 0 & x != 0", (E.and_p,), _below_zero_and_not_zero, _negative, SIGNED),
    Rule("x % 2**n", (E.select_n_p,), _floored, _mod, SIGNED),
    Rule("x // 2**n", (E.select_n_p,), _floored, _floor_divide, SIGNED),
    Rule("unsigned x / 2**n", (E.div_p,), _unsigned, lambda x: E.div_p.bind(x, like(x, 8)), UNSIGNED),
    Rule("unsigned rem(x, 2**n)", (E.rem_p,), _unsigned, lambda x: E.rem_p.bind(x, like(x, 8)), UNSIGNED),
    Rule(
        "rem(x, 2**n) == 0",
        (E.eq_p, E.ne_p),
        _divisible,
        lambda x: E.eq_p.bind(E.rem_p.bind(x, like(x, 8)), like(x, 0)),
        SIGNED,
    ),
)
