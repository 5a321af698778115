"""What is known of a value's sign from how it is made: sums of squares, distances, exponentials are not below 0.

A value counts only if its zeros are +0.0 and it is never -∞; it may be nan. So powers of it need no case for what is negative.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.graph import Operand, Var
from fuser.ir.rewrite import Rewriter

DEEPEST = 6  # equations that are looked through
_ALWAYS = ("abs", "exp", "exp2", "square", "logistic")
_KEEPING = (
    "sqrt",
    "cbrt",
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "cumsum",
    "convert_element_type",
    "log1p",
    "expm1",
)
_OF_ALL = ("add", "add_any", "mul", "div", "max", "min")
_MOVING = (
    "broadcast_in_dim",
    "reshape",
    "transpose",
    "squeeze",
    "expand_dims",
    "slice",
    "dynamic_slice",
    "rev",
    "copy",
)


def never_negative(operand: Operand, rewriter: Rewriter, depth: int = DEEPEST) -> bool:
    """Whether no element of a floating-point operand is negative or -0.0."""
    number = rewriter.number(operand)
    if number is not None:
        return number.dtype.kind == "f" and not np.signbit(number) and number == number
    eqn = rewriter.producers.get(operand) if isinstance(operand, Var) else None
    if eqn is None or depth == 0 or any(v.aval.dtype.kind != "f" or not v.aval.size for v in eqn.invars[:1]):
        return False  # of no elements the greatest is -∞
    name = eqn.primitive.name
    if name in _ALWAYS:
        return True
    if name == "mul" and eqn.invars[0] is eqn.invars[1]:
        return True
    if name in _KEEPING or name in _MOVING:
        return never_negative(eqn.invars[0], rewriter, depth - 1)
    return name in _OF_ALL and all(never_negative(v, rewriter, depth - 1) for v in eqn.invars)
