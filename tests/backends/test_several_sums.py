"""Several sums of one sweep, as in the gradient of a depthwise convolution's kernel: what they take in is added from registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.backends.c.target import TARGET

LAYOUTS = {
    "columns": (1, 2, (0, 1, 2)),
    "rows": (2, 3, (0, 2, 3)),
}  # the dimensions of space, and those that are summed


def sums(layout: str, window: int, height: int, width: int) -> Callable[..., Any]:
    """For each place of a window the sum of an image's part there times another image."""
    first, second, axes = LAYOUTS[layout]

    def function(x: Any, y: Any) -> Any:
        found = []
        for i, j in np.ndindex(window, window):
            part: list[slice] = [slice(None)] * 4
            part[first], part[second] = slice(i, i + height), slice(j, j + width)
            found.append((x[tuple(part)] * y).sum(axes))
        return found

    return function


def images(layout: str, window: int, height: int, width: int, channels: int, dtype: Any) -> list[np.ndarray]:
    random = np.random.default_rng(width)
    shapes = [(2, channels, height + extra, width + extra) for extra in (window - 1, 0)]
    arrays = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    return [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in arrays] if layout == "columns" else arrays


def text_of(function: Callable[..., Any], *arrays: np.ndarray) -> str:
    return "".join(source.text for source in fuser.jit(function, backend="c").lower(*arrays).sources)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("width, channels", [(7, 20), (14, 16), (33, 5), (115, 32)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_of_windows(layout: str, width: int, channels: int, dtype: Any) -> None:
    function, arrays = sums(layout, 3, 9, width), images(layout, 3, 9, width, channels, dtype)
    with fuser.enable_x64(dtype is np.float64):
        found = fuser.jit(function, backend="c")(*arrays)
    wide = [a.astype(np.float64) for a in arrays]
    bound = 80 * np.finfo(np.promote_types(dtype, np.float32)).eps  # rows of a block, lanes and blocks
    half = np.finfo(np.float16).eps if dtype is np.float16 else 0  # the products' rounding, and the result's
    for mine, wanted, scale in zip(found, function(*wide), function(*map(np.abs, wide)), strict=True):
        assert np.all(np.abs(np.asarray(mine, np.float64) - wanted) <= (bound + half) * scale)


@pytest.mark.skipif(TARGET.registers < 18, reason="an accumulator and a value of nine sums are not in registers")
def test_columns_of_several_sums_are_added_four_rows_at_a_time() -> None:
    """What each of nine sums has was read and written for each row."""
    text = text_of(sums("columns", 3, 112, 112), *images("columns", 3, 112, 112, 32, np.float32))
    assert text.count("_few = ") == 9 * (1 + 4)  # as they begin, and with each row


def test_sums_that_no_registers_hold_are_added_row_by_row() -> None:
    text = text_of(sums("columns", 5, 28, 28), *images("columns", 5, 28, 28, 32, np.float32))
    assert "_few" not in text


def test_rows_of_several_sums_are_read_where_they_lie() -> None:
    """Nine products of each element went through buffers."""
    text = text_of(sums("rows", 3, 112, 112), *images("rows", 3, 112, 112, 32, np.float32))
    assert "_lane[" in text and "_block[" not in text


@pytest.mark.parametrize("dtype, buffered", [(np.uint8, True), (np.int16, False), (np.float32, False)])
def test_sums_of_bytes_are_computed_in_vectors_of_their_own(dtype: Any, buffered: bool) -> None:
    """A loop over sixteen sums had vectors of sixteen bytes, and so of four floats: a mean of grey values took half as long again."""
    image = np.random.default_rng(0).integers(0, 100, (48, 640, 3)).astype(dtype)
    function = lambda x: (0.25 * x[..., 0] + 0.5 * x[..., 1] + 0.125 * x[..., 2]).sum()
    assert ("_block[" in text_of(function, image)) is buffered
    wide = image.astype(np.float64)
    np.testing.assert_allclose(fuser.jit(function)(image), function(wide), rtol=1e-6)


@pytest.mark.parametrize("width, dtype", [(14, np.float32), (7, np.float64), (20, np.float32), (30, np.float32)])
def test_short_rows_of_several_sums_have_the_lanes_of_their_vectors(width: int, dtype: Any) -> None:
    """Four vectors a sum were set to zero and added up, of rows of one."""
    with fuser.enable_x64(dtype is np.float64):
        text = text_of(sums("rows", 3, 14, width), *images("rows", 3, 14, width, 32, dtype))
    numbers = TARGET.vector // np.dtype(dtype).itemsize
    assert f"_lanes[{-(-width // numbers) * numbers}]" in text
