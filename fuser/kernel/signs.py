"""Sign analysis of a kernel's floating-point numbers: which are surely on one side of 0.

In: a scalar expression. Out: whether its value, where it is not nan, is at least 0 or at most 0. Rounding keeps to the side.
"""

from __future__ import annotations

from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact
from fuser.kernel.safe_divisors import exact

DEEPEST = 5  # levels of an expression
_NEVER_NEGATIVE = frozenset(("abs", "sqrt", "exp", "exp2", "cosh"))
_ODD = frozenset(
    ("sinh", "tanh", "asinh", "atan", "expm1", "log1p", "cbrt", "erf")
)  # functions with the sign of their operand


def not_positive(node: Scalar) -> bool:
    """Whether a real number is surely at most 0, or nan."""
    return _on_side(node, -1, DEEPEST)


def _on_side(node: Scalar, side: int, depth: int) -> bool:
    if node.op == "const":
        return bool(node.attr * side >= 0 or node.attr != node.attr)
    if side > 0 and (node.op in _NEVER_NEGATIVE or node.dtype.kind in "ub"):
        return True
    if not depth or not is_inexact(node.dtype):
        return False
    args, below = node.args, depth - 1
    match node.op:
        case "neg":
            return _on_side(args[0], -side, below)
        case "cast":
            return _on_side(args[0], side, below)
        case "mul" if args[0] is args[1]:
            return side > 0
        case "div" if args[1].op != "const" or not args[1].attr:
            return False  # by -0, which is at least 0
        case "mul" | "div":
            return any(_on_side(args[0], s, below) and _on_side(args[1], s * side, below) for s in (1, -1))
        case "add" | "min" | "max":
            of = any if node.op == ("max" if side > 0 else "min") else all
            return of(_on_side(arg, side, below) for arg in args)
        case "sub":
            extreme = ("min" if side > 0 else "max", exact(args[0]))
            return _row_extreme(args[1]) == extreme or (
                _on_side(args[0], side, below) and _on_side(args[1], -side, below)
            )
        case "select":
            return all(_on_side(arg, side, below) for arg in args[1:])
        case "reduction":
            return node.attr.reduction in ("sum", "max", "min") and _on_side(args[0], side, below)
    return node.op in _ODD and _on_side(args[0], side, below)


def _row_extreme(node: Scalar) -> tuple[str, Scalar] | None:
    """The kind of a row's extreme, and the number that it is the extreme of."""
    found = exact(node)
    return (found.attr.reduction, exact(found.args[0])) if found.op == "reduction" else None
