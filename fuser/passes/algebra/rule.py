"""What a simplification rule is, and the parts that the rules of all families are made of.

A rule gives the same bits for every input (which nan it is aside): nan, ±inf, ±0, subnormals and integer edges
included. What holds for real numbers but not in IEEE arithmetic (x + 0, x · 0, x − x on floats) is no rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fuser.ir.graph import Eqn, Literal, Operand
from fuser.ir.primitive import Primitive
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import BOOL, FLOATS, INTEGERS, kind_of
from fuser.ops.movement import broadcast_in_dim_p

# What a rule gives: an operand that stands for the result, an equation that makes it, or None where it does not apply.
Result = Operand | Eqn | None
Sample = Callable[..., Any]


@dataclass(frozen=True)
class Rule:
    """`rewrite(eqn, rewriter)` for equations of `primitives`. `sample`, on arrays of `dtypes`, must set the rule off."""

    name: str
    primitives: tuple[Primitive, ...]
    rewrite: Callable[[Eqn, Rewriter], Result]
    sample: Sample
    dtypes: tuple[np.dtype, ...]
    shapes: tuple[tuple[int, ...], ...] = ((11,),)
    ulps: int = 0  # how far the results may lie apart, where the new form is the more exact one


REALS = (*INTEGERS, *FLOATS)
BITS = (BOOL, *INTEGERS)


def is_number(operand: Operand, rewriter: Rewriter, *values: float, sign: int = 0) -> bool:
    """Whether all elements of `operand` are known to be one of the values; with `sign`, only a zero of that sign."""
    number = rewriter.number(operand)
    if number is None or number.dtype.kind == "c" or not any(number == v for v in values):
        return False
    return not sign or number.dtype.kind in "iub" or bool(np.signbit(np.float64(number)) == (sign < 0))


def partner_of(eqn: Eqn, rewriter: Rewriter, *values: float, sign: int = 0) -> Operand | None:
    """The operand of a commutative equation whose partner is one of the numbers, if it has the result's shape."""
    for number, other in (eqn.invars, eqn.invars[::-1]):
        if is_number(number, rewriter, *values, sign=sign) and fits(other, eqn):
            return other
    return None


def fits(operand: Operand, eqn: Eqn) -> bool:
    out = eqn.outvars[0].aval
    return operand.aval.shape == out.shape and operand.aval.dtype == out.dtype


def filled(eqn: Eqn, rewriter: Rewriter, value: Any) -> Result:
    """`value` in the result's shape."""
    out = eqn.outvars[0].aval
    literal = Literal(np.asarray(value).astype(out.dtype), out.update(shape=()))
    return (
        literal
        if not out.shape
        else rewriter.make(broadcast_in_dim_p, literal, shape=out.shape, broadcast_dimensions=())
    )


def same_operands(eqn: Eqn) -> bool:
    """Whether both operands are the same variable."""
    return eqn.invars[0] is eqn.invars[1]


def is_exact(eqn: Eqn) -> bool:
    """Whether the operands are integers or bools."""
    return eqn.invars[0].aval.dtype.kind in "iub"


def all_ones(dtype: np.dtype) -> Any:
    """The bool or the integer whose bits are all set."""
    if dtype == BOOL:
        return True
    return dtype.type(-1) if kind_of(dtype) == "i" else ml_dtypes.iinfo(dtype).max


def like(x: Any, value: Any) -> Any:
    """A scalar of the dtype of `x`."""
    return np.asarray(value).astype(x.dtype)


def twice(primitive: Primitive) -> Callable[[Eqn, Rewriter], Result]:
    """`f(f(x))` as `x`."""

    def rewrite(eqn: Eqn, rewriter: Rewriter) -> Result:
        inner = rewriter.producer(eqn.invars[0], primitive)
        return inner.invars[0] if inner is not None else None

    return rewrite


def again(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`f(f(x))` as `f(x)`, with equal parameters."""
    inner = rewriter.producer(eqn.invars[0], eqn.primitive)
    return eqn.invars[0] if inner is not None and inner.params == eqn.params else None


def when(
    condition: Callable[[Eqn, Rewriter], bool], then: Callable[[Eqn, Rewriter], Result]
) -> Callable[[Eqn, Rewriter], Result]:
    return lambda eqn, rewriter: then(eqn, rewriter) if condition(eqn, rewriter) else None


def first(eqn: Eqn, rewriter: Rewriter) -> Result:
    return eqn.invars[0] if fits(eqn.invars[0], eqn) else None


def second_is(*values: float, sign: int = 0) -> Callable[[Eqn, Rewriter], bool]:
    return lambda eqn, rewriter: is_number(eqn.invars[1], rewriter, *values, sign=sign)


def first_is(*values: float, sign: int = 0) -> Callable[[Eqn, Rewriter], bool]:
    return lambda eqn, rewriter: is_number(eqn.invars[0], rewriter, *values, sign=sign)


def partner(value: Callable[[np.dtype], Any], sign: int = 0) -> Callable[[Eqn, Rewriter], Result]:
    """The other operand, where one is `value(dtype)`."""
    return lambda eqn, rewriter: partner_of(eqn, rewriter, value(eqn.invars[0].aval.dtype), sign=sign)


def absorbed(value: Callable[[np.dtype], Any]) -> Callable[[Eqn, Rewriter], Result]:
    """`value(dtype)` itself, where one operand of an integer equation is that."""

    def rewrite(eqn: Eqn, rewriter: Rewriter) -> Result:
        wanted = value(eqn.invars[0].aval.dtype)
        if is_exact(eqn) and any(is_number(v, rewriter, wanted) for v in eqn.invars):
            return filled(eqn, rewriter, wanted)
        return None

    return rewrite


def zero(dtype: np.dtype) -> Any:
    return 0


def one(dtype: np.dtype) -> Any:
    return 1


def constant(value: Any, exact: bool = True) -> Callable[[Eqn, Rewriter], Result]:
    """A number, where both operands are the same variable."""
    return lambda eqn, rewriter: (
        filled(eqn, rewriter, value) if same_operands(eqn) and (not exact or is_exact(eqn)) else None
    )
