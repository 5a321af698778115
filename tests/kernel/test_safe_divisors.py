"""Which divisors are surely neither so large nor so small that their reciprocals lose digits."""

from collections.abc import Callable
from typing import Any

import pytest

import fuser
import fuser.numpy as fnp
from fuser.ir.types import FLOATS, ArrayType, bfloat16
from fuser.kernel.lower import lower
from fuser.kernel.safe_divisors import is_safe_divisor

F32 = FLOATS[2]


def divisors(function: Callable[..., Any], dtype: Any = F32) -> list[bool]:
    """Of each division of a program of one kernel, whether its divisor is safe."""
    (group,) = fuser.jit(function, backend="triton").lower(ArrayType((64, 100), dtype)).plan.groups
    return [is_safe_divisor(node.args[1]) for node in lower(group).nodes if node.op == "div"]


def exponentials(x: Any) -> Any:
    return fnp.exp(x - x.max(-1, keepdims=True))


@pytest.mark.parametrize("dtype", [F32, bfloat16, FLOATS[0]])
def test_a_softmax_divides_by_a_moderate_number(dtype: Any) -> None:
    assert divisors(lambda x: exponentials(x) / exponentials(x).sum(-1, keepdims=True), dtype) == [True]


def test_square_roots_are_moderate() -> None:
    assert divisors(lambda x: x / fnp.sqrt((x * x).sum(-1, keepdims=True))) == [True]
    assert divisors(lambda x: x / fnp.sqrt((x * x).sum(-1, keepdims=True)), FLOATS[3]) == [False]


@pytest.mark.parametrize(
    "sum_of",
    [
        lambda x: x,
        fnp.exp,
        lambda x: exponentials(x) * x,  # weighted
        lambda x: fnp.exp(x - x.min(-1, keepdims=True)),
        lambda x: fnp.exp(2 * x - x.max(-1, keepdims=True)),  # of other numbers than the maximum is of
        lambda x: fnp.exp(x - x.astype(bfloat16).max(-1, keepdims=True).astype("float32")),  # of rounded numbers
    ],
)
def test_other_sums_are_not(sum_of: Callable[[Any], Any]) -> None:
    assert divisors(lambda x: x / sum_of(x).sum(-1, keepdims=True)) == [False]
