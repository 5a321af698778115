"""Sums of columns beside reductions of rows: what shares a kernel on a backend that has such kernels, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import jit
from fuser.ir.types import ArrayType
from fuser.partition.column_sums import column_sums
from fuser.partition.group import Kind


def plan(function: Callable[..., Any], *shapes: tuple[int, ...], backend: str = "triton") -> Any:
    avals = (ArrayType(shape, np.dtype("float32")) for shape in shapes)
    return jit(function, backend=backend).lower(*avals).plan


def normal(x: Any) -> Any:
    return x / x.sum(-1, keepdims=True)


def test_one_kernel_writes_rows_and_the_sums_of_columns() -> None:
    found = plan(lambda x, y: (normal(x), (x * x).sum(0), (normal(x) * y).sum(0)), (512, 100), (512, 100))
    (group,) = found.groups
    assert group.kind is Kind.REDUCTION
    assert len(column_sums(group)) == 2
    assert [a.extent for a in group.parallel] == [512] and [a.extent for a in group.reduced] == [100]


def test_what_reads_a_sum_of_columns_is_a_kernel_after_it() -> None:
    found = plan(lambda x: (normal(x), x.sum(0) * 2), (512, 100))
    assert len(found.groups) == 2 and not column_sums(found.groups[1])
    centred = plan(lambda x: normal(x) - x.sum(0), (512, 100))
    assert len(centred.groups) == 2


@pytest.mark.parametrize(
    ("function", "shape", "backend"),
    [
        (lambda x: (normal(x), (x * x).sum(0)), (512, 100), "c"),
        (lambda x: (normal(x), (x * x).sum(0)), (20, 100), "triton"),  # few rows
        (lambda x: (normal(x), (x * x).sum(0)), (512, 9000), "triton"),  # no registers for a row and its sums
        (lambda x: (normal(x), x.max(0)), (512, 100), "triton"),
        (lambda x: (x / x.sum(0), (x * x).sum(1)), (100, 512), "triton"),  # across memory
        (lambda x: (fnp.cumsum(x, 1), x.sum(0)), (512, 100), "triton"),
    ],
)
def test_others_stay_apart(function: Callable[..., Any], shape: tuple[int, ...], backend: str) -> None:
    found = plan(function, shape, backend=backend)
    assert len(found.groups) >= 2
    assert not any(column_sums(group) for group in found.groups)
