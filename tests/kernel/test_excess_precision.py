"""Sums of 16-bit numbers take their terms with the digits that they were computed with."""

from __future__ import annotations

from typing import Any

import fuser
import fuser.numpy as fnp
from fuser.ir.types import ArrayType, bfloat16
from fuser.kernel.excess_precision import with_unrounded_sums
from fuser.kernel.kernel import Kernel
from fuser.kernel.lower import lower

ROWS = ArrayType((64, 500), bfloat16)


def sums(function: Any) -> list[int]:
    """How often what each sum of a function's kernel adds up is rounded to 16 bits, once such sums are unrounded."""
    lowered = fuser.jit(function, backend="triton").lower(ROWS)
    (group,) = lowered.plan.groups
    kernel: Kernel = with_unrounded_sums(lower(group))
    found = []
    for reduction in (r for sweep in kernel.sweeps for r in sweep.reductions if r.attr.reduction == "sum"):
        node, roundings = reduction.args[0], 0
        while node.op == "cast":
            roundings += node.dtype == bfloat16
            (node,) = node.args
        found.append(roundings)
    return found


def test_a_sum_of_computed_numbers_does_not_round_them() -> None:
    assert sums(lambda x: fnp.exp(x).sum(-1)) == [0]
    assert sums(lambda x: fnp.exp(x) / fnp.exp(x).sum(-1, keepdims=True)) == [0]


def test_what_is_converted_by_hand_is_rounded_before() -> None:
    wide = lambda x: fnp.exp(x).astype("float32")
    assert sums(lambda x: wide(x).sum(-1)) == [1]  # the sum has digits of its own
    both = lambda x: (wide(x).sum(-1).astype(x.dtype), wide(x).sum(-1))
    assert sums(both) == [1]
