"""Value-range analysis of divisors: those whose reciprocal needs no scaling to stay in range.

In: a node of a kernel. Out: whether its magnitude surely lies in 2⁻¹⁰⁰ … 2¹⁰⁰, or it is 0, infinite or nan. Such a reciprocal is neither
subnormal nor infinite, so a row may be multiplied by it.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, is_inexact

DOUBLE = FLOATS[3]


def is_safe_divisor(node: Scalar) -> bool:
    """Whether a number surely has such a magnitude, or is 0, infinite or nan: a square root of 32 bits or fewer, a sum of exponentials relative to
    the largest of them (softmax), and what these are in another dtype."""
    while node.op == "cast" and is_inexact(node.dtype) and is_inexact(node.args[0].dtype):
        node = node.args[0]
    return (node.op == "sqrt" and node.dtype != DOUBLE) or _of_exponentials(node)


def _of_exponentials(node: Scalar) -> bool:
    """Whether a number is a row's Σ exp(x − max x), of which one term is 1 and no term is more; where the maximum is infinite, infinite or nan."""
    if node.op != "reduction" or node.attr.reduction != "sum":
        return False
    element = node.args[0]
    while element.op == "cast" and is_inexact(element.args[0].dtype):
        element = element.args[0]
    return element.op == "exp" and relative(element)


def relative(exponential: Scalar) -> bool:
    """Whether an exponential is exp(x − max x) of a row, or exp(x) where the maximum is infinite or nan."""
    if exponential.args[0].op != "sub":
        return False
    number, shift = exponential.args[0].args
    maximum = shift_maximum(shift)
    return maximum is not None and exact(maximum.args[0]) is exact(number)


def shift_maximum(shift: Scalar) -> Scalar | None:
    """The maximum that a row's numbers are relative to, itself or 0 in its place where it is not finite; None where it is another number."""
    found = exact(shift)
    if found.op == "select" and found.args[2].op == "const" and found.args[2].attr == 0:
        test, found = found.args[0], exact(found.args[1])
        if test.op != "lt" or test.args[1].op != "const" or test.args[1].attr != np.inf or test.args[0].op != "abs":
            return None
        if exact(test.args[0].args[0]) is not found:
            return None
    return found if found.op == "reduction" and found.attr.reduction == "max" else None


def exact(node: Scalar) -> Scalar:
    """The number that a node is in a wider dtype: a maximum of rounded numbers may lie far from what they were rounded from."""
    while node.op == "cast" and is_inexact(node.args[0].dtype) and node.args[0].dtype.itemsize < node.dtype.itemsize:
        node = node.args[0]
    return node
