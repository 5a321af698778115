"""Batches of products with few columns: each is written out with the rows of its second matrix in registers, and values agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp

SIZES = [(32, 24, 4), (16, 16, 2), (20, 20, 3), (128, 7, 5), (33, 48, 7), (3, 2, 6), (9, 30, 8), (4, 5, 2)]


def text(function: Callable[..., Any], *arrays: Any) -> str:
    (source,) = fuser.jit(function, backend="c").lower(*arrays).sources
    return str(source.text)


def agree(function: Callable[..., Any], wanted: Callable[..., Any], *arrays: Any) -> None:
    """Sums of products in float64 differ by no more than so many roundings of their terms."""
    found = np.asarray(fuser.jit(function, backend="c")(*arrays))
    wide = [a.astype(np.float64) for a in arrays]
    scale = wanted(*map(np.abs, wide))
    error = np.abs(found - wanted(*wide))
    assert np.all(error <= 8 * np.finfo(arrays[0].dtype).eps * np.maximum(scale, 1e-30)), np.max(error / scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("rows, depth, columns", SIZES)
def test_channels_beside_a_last_axis_of_few(rows: int, depth: int, columns: int, dtype: Any) -> None:
    """The product is transposed on its way, so that an item's rows lie beside each other in the result alone."""
    random = np.random.default_rng(rows)
    w, x = (
        random.standard_normal((rows, depth)).astype(dtype),
        random.standard_normal((3, 50, depth, columns)).astype(dtype),
    )
    with fuser.enable_x64(dtype is np.float64):
        function = lambda w, x: fnp.einsum("oc,bhcw->bhow", w, x)
        assert "_items(" in text(function, w, x)
        agree(function, lambda w, x: np.einsum("oc,bhcw->bhow", w, x), w, x)


@pytest.mark.parametrize("rows, depth, columns", SIZES)
def test_batches_alone_and_with_what_follows(rows: int, depth: int, columns: int) -> None:
    random = np.random.default_rng(columns)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((70, rows, depth), (70, depth, columns)))
    c, bias = (random.standard_normal(shape).astype(np.float32) for shape in ((70, rows, columns), (columns,)))
    assert "_items(" in text(lambda a, b: a @ b, a, b)
    agree(lambda a, b: a @ b, lambda a, b: a @ b, a, b)
    agree(lambda a, b, c: a @ b + c, lambda a, b, c: a @ b + c, a, b, c)
    agree(lambda a, b, c: a @ b + c, lambda a, b, c: a @ b + c, a, b, bias)
    agree(lambda a, b, c: (a @ b + c).swapaxes(1, 2), lambda a, b, c: (a @ b + c).swapaxes(1, 2), a, b, c)


def test_items_whose_rows_lie_apart_in_the_result() -> None:
    """Rows of the result, one of each item, follow each other: an item's own lie far apart."""
    random = np.random.default_rng(3)
    w, x = random.standard_normal((17, 20)).astype(np.float32), random.standard_normal((60, 20, 3)).astype(np.float32)
    function = lambda w, x: fuser.lax.dot_general(w, x, (((1,), (1,)), ((), ())))
    assert "_items(" in text(function, w, x)
    agree(function, lambda w, x: np.einsum("oc,bcw->obw", w, x), w, x)


def test_many_columns_and_deep_items_are_left_to_gemm() -> None:
    a, b, deep = (np.ones(shape, np.float32) for shape in ((70, 20, 20), (70, 20, 40), (70, 20, 90)))
    assert "_items(" not in text(lambda a, b: a @ b, a, b)
    assert "_items(" not in text(lambda a, b: a @ b, deep, np.ones((70, 90, 4), np.float32))
