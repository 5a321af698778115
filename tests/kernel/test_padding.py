"""What masked loads give beyond a row, and which reductions need no choice there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.ir.types import FLOATS, ArrayType, bfloat16
from fuser.kernel.lower import lower
from fuser.kernel.padding import Padding

F32 = FLOATS[2]


def chosen(function: Callable[..., Any], *dtypes: Any) -> list[bool]:
    """Of each reduction of a program of one kernel, whether it needs a choice."""
    types = [ArrayType((64, 1000), np.dtype(d)) for d in dtypes or (F32,)]
    (group,) = fuser.jit(function, backend="triton").lower(*types).plan.groups
    kernel = lower(group)
    padding = Padding(kernel)
    reductions = [r for sweep in kernel.sweeps for r in sweep.reductions]
    return [(r.args[0], r.attr.reduction) not in padding.neutral for r in reductions]


def relative(x: Any) -> Any:
    return fnp.exp(x - x.max(-1, keepdims=True))


@pytest.mark.parametrize("dtype", [F32, bfloat16, FLOATS[0], "int32", "int8"])
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_a_reduction_of_what_is_loaded_needs_none(name: str, dtype: Any) -> None:
    assert chosen(lambda x: getattr(x, name)(-1), dtype) == [name == "prod" and dtype == "int8"]


@pytest.mark.parametrize("dtype", [F32, bfloat16])
def test_a_maximum_and_sums_of_exponentials_relative_to_it_need_none(dtype: Any) -> None:
    assert chosen(lambda x: fuser.nn.softmax(x, -1), dtype) == [False, False]
    assert chosen(lambda x: fuser.nn.logsumexp(x, -1), dtype) == [False, False]
    assert chosen(lambda x, y: (relative(x) * y).sum(-1), dtype, dtype) == [False, False]


def test_products_of_what_is_loaded() -> None:
    assert chosen(lambda x, y: (x * y).sum(-1), F32, F32) == [False]
    assert chosen(lambda x: (x * x).sum(-1)) == [False]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1).sum(-1),
        lambda x: fnp.exp(x).sum(-1),
        lambda x: fnp.cos(x).sum(-1),
        lambda x: (1 / x).sum(-1),
        lambda x: (x * fnp.arange(1000.0)[::-1] ** -1).sum(-1),  # inf beyond the row
    ],
)
def test_other_elements_need_one(function: Any) -> None:
    assert chosen(function) == [True]


def test_one_number_serves_one_reduction() -> None:
    assert chosen(lambda x: (x.max(-1), x.min(-1))) == [False, True]
    assert chosen(lambda x: (x.sum(-1), x.max(-1))) == [False, True]


def test_exponentials_relative_to_another_number_need_one() -> None:
    assert chosen(lambda x: fnp.exp(x - x.min(-1, keepdims=True)).sum(-1))[-1]
    assert chosen(lambda x: fnp.exp(2 * x - x.max(-1, keepdims=True)).sum(-1))[-1]
    guarded = lambda x: fnp.exp(x - fnp.where(x.max(-1, keepdims=True) > 0, x.max(-1, keepdims=True), -fnp.inf)).sum(-1)
    assert chosen(guarded)[-1]
