"""Numbers by which rows may be divided through a plain reciprocal: those that are moderate, or 0, infinite or nan.

In: a node of a kernel. Out: whether it is surely such a number. The reciprocal of a moderate one (2⁻¹⁰⁰ … 2¹⁰⁰) is neither subnormal nor
infinite, so quotients by way of it need no scale that keeps them in range.
"""

from __future__ import annotations

from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, is_inexact

DOUBLE = FLOATS[3]


def moderate(node: Scalar) -> bool:
    """Whether a number is surely moderate, or 0, infinite or nan: a square root of 32 bits or fewer, a sum of exponentials relative to
    the largest of them (softmax), and what these are in another dtype."""
    while node.op == "cast" and is_inexact(node.dtype) and is_inexact(node.args[0].dtype):
        node = node.args[0]
    return (node.op == "sqrt" and node.dtype != DOUBLE) or _of_exponentials(node)


def _of_exponentials(node: Scalar) -> bool:
    """Whether a number is a row's Σ exp(x − max x), of which one term is 1 and no term is more."""
    if node.op != "reduction" or node.attr.reduction != "sum":
        return False
    element = node.args[0]
    while element.op == "cast" and is_inexact(element.args[0].dtype):
        element = element.args[0]
    if element.op != "exp" or element.args[0].op != "sub":
        return False
    number, shift = map(_exact, element.args[0].args)
    return shift.op == "reduction" and shift.attr.reduction == "max" and _exact(shift.args[0]) is number


def _exact(node: Scalar) -> Scalar:
    """The number that a node is in a wider dtype: a maximum of rounded numbers may lie far from what they were rounded from."""
    while node.op == "cast" and is_inexact(node.args[0].dtype) and node.args[0].dtype.itemsize < node.dtype.itemsize:
        node = node.args[0]
    return node
