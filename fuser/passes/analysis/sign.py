"""Sign analysis: which values are surely not negative, as sums of squares, distances and exponentials.

A value counts only if its zeros are +0.0 and it is never -∞; it may be nan. So powers of it need no case for what is negative.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.graph import Operand, Var
from fuser.ir.rewrite import Rewriter
from fuser.ops.conversion import convert_element_type_p, copy_p
from fuser.ops.cumulative import cumsum_p
from fuser.ops.dynamic import dynamic_slice_p
from fuser.ops.elementwise import (
    abs_p,
    add_any_p,
    add_p,
    cbrt_p,
    div_p,
    exp2_p,
    exp_p,
    expm1_p,
    log1p_p,
    logistic_p,
    max_p,
    min_p,
    mul_p,
    sqrt_p,
    square_p,
)
from fuser.ops.movement import broadcast_in_dim_p, reshape_p, rev_p, slice_p, squeeze_p, transpose_p
from fuser.ops.reduce import reduce_max_p, reduce_min_p, reduce_prod_p, reduce_sum_p

DEEPEST = 6  # equations that are looked through
_ALWAYS = (abs_p, exp_p, exp2_p, square_p, logistic_p)
_KEEPING = (
    sqrt_p,
    cbrt_p,
    reduce_sum_p,
    reduce_max_p,
    reduce_min_p,
    reduce_prod_p,
    cumsum_p,
    convert_element_type_p,
    log1p_p,
    expm1_p,
)
_OF_ALL = (add_p, add_any_p, mul_p, div_p, max_p, min_p)
_MOVING = (broadcast_in_dim_p, reshape_p, transpose_p, squeeze_p, slice_p, dynamic_slice_p, rev_p, copy_p)


def never_negative(operand: Operand, rewriter: Rewriter, depth: int = DEEPEST) -> bool:
    """Whether no element of a floating-point operand is negative or -0.0."""
    number = rewriter.number(operand)
    if number is not None:
        return number.dtype.kind == "f" and not np.signbit(number) and number == number
    eqn = rewriter.producers.get(operand) if isinstance(operand, Var) else None
    if eqn is None or depth == 0 or any(v.aval.dtype.kind != "f" or not v.aval.size for v in eqn.invars[:1]):
        return False  # of no elements the greatest is -∞
    primitive = eqn.primitive
    if primitive in _ALWAYS:
        return True
    if primitive is mul_p and eqn.invars[0] is eqn.invars[1]:
        return True
    if primitive in _KEEPING or primitive in _MOVING:
        return never_negative(eqn.invars[0], rewriter, depth - 1)
    return primitive in _OF_ALL and all(never_negative(v, rewriter, depth - 1) for v in eqn.invars)
