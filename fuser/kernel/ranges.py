"""Interval analysis of a kernel's integers, from the ranges of its axes: which predicates are constant.

In: a scalar expression. Out: the smallest and the largest value that it may have, by interval arithmetic a few levels deep.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuser.ir.scalar import Scalar
from fuser.kernel.operands import index_of
from fuser.kernel.signs import not_positive

DEEPEST = 6  # levels of an expression: counts of shifts are seldom made of more


def value_range(node: Scalar, depth: int = DEEPEST) -> tuple[int, int]:
    """The smallest and the largest value of an integer or bool expression; those of its dtype where no more is known."""
    if node.dtype.kind not in "biu":
        raise TypeError(f"value_range needs an integer expression, got {node.dtype}")
    limits = (0, 1) if node.dtype.kind == "b" else (int(np.iinfo(node.dtype).min), int(np.iinfo(node.dtype).max))
    found = _computed(node, depth) if depth else None
    return found if found is not None and limits[0] <= found[0] and found[1] <= limits[1] else limits  # else it wraps


def known_count(node: Scalar, bits: int) -> bool:
    """Whether a count of bits is known to be at least 0 and below the width."""
    low, high = value_range(node)
    return low >= 0 and high < bits


def without_test(node: Scalar) -> Scalar:
    """A shift without the test of its count, where that is known, an exponential without that of its overflow; other nodes as they are."""
    if node.op == "exp" and node.dtype.kind == "f" and not_positive(node.args[0]):
        return replace(node, op="exp_unchecked")
    if node.op in ("shl", "shr") and known_count(node.args[1], node.dtype.itemsize * 8):
        return replace(node, op=f"{node.op}_unchecked")
    return node


def _computed(node: Scalar, depth: int) -> tuple[int, int] | None:
    if node.op == "const":
        return (int(node.attr),) * 2  # type: ignore[return-value]
    if node.op == "index":
        return index_of(node).bounds
    if node.op not in ("cast", "add", "sub", "mul", "and", "min", "max", "select"):
        return None
    args = node.args[1:] if node.op == "select" else node.args
    if any(arg.dtype.kind not in "biu" for arg in args):
        return None
    ranges = [value_range(arg, depth - 1) for arg in args]
    (low, high), (least, most) = ranges[0], ranges[-1]
    if node.op == "cast":
        return low, high
    if node.op == "add":
        return low + least, high + most
    if node.op == "sub":
        return low - most, high - least
    if node.op == "mul":
        ends = [a * b for a in (low, high) for b in (least, most)]
        return min(ends), max(ends)
    if node.op == "and":  # of two numbers not below 0 no more than either; of one such, no more than that
        tops = [top for bottom, top in ranges if bottom >= 0]
        return (0, min(tops)) if tops else None
    if node.op == "select":
        return min(low, least), max(high, most)
    pick = min if node.op == "min" else max
    return pick(low, least), pick(high, most)
