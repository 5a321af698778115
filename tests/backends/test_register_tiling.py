"""Register tiles of neighbours whose windows overlap: which kernels have them, and that they compute the same numbers, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
import fuser.lax as lax
import fuser.numpy as fnp
from fuser import Schedule
from fuser.backends.c.schedules.register_tiling import COUNTS


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


def depthwise(x, kernel, stride: int = 1, dilation: int = 1):
    numbers_of = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", None, (dilation, dilation), numbers_of, feature_group_count=x.shape[-1]
    )


def windows(x, extent: int = 3):
    """Sums of all neighbours, and the product of two."""
    height, width = (n - extent + 1 for n in x.shape)
    parts = [x[a : a + height, b : b + width] for a in range(extent) for b in range(extent)]
    return sum(parts[1:], parts[0]) - parts[1] * parts[-1]


def tiled(function, *arguments, **options):
    """The numbers of neighbours in the tiles of a kernel's pieces."""
    sources = fuser.jit(function, **options).lower(*arguments).sources
    schedules = [schedule for source in sources for schedule in source.schedules.values()]
    return {part.register_tiling for schedule in schedules for part in (schedule, *schedule.pieces)} - {None}


def test_which_kernels_have_tiles() -> None:
    kernel = numbers(3, 3, 1, 64)
    assert tiled(depthwise, numbers(1, 40, 40, 64), kernel) == {COUNTS[0]}
    assert tiled(windows, numbers(100, 130)) == {COUNTS[0]}
    assert not tiled(depthwise, numbers(1, 5, 5, 64), kernel), "too few elements"
    assert not tiled(windows, numbers(100, 1024 + 2)), "neighbours that lie in the same sets of the cache"
    assert not tiled(lambda x: x[1:] + x[:-1], numbers(100, 130)), "hardly anything is read twice"
    assert not tiled(lambda x: fnp.sin(windows(x)), numbers(100, 130)), "functions take longer than loads"
    assert not tiled(lambda x: windows(x[:, ::2]), numbers(100, 262)), "what is shuffled together"
    assert not tiled(windows, numbers(100, 130), schedule=Schedule(register_tiling=False))


def test_integers_that_are_divided_have_none() -> None:
    x = np.arange(100 * 130, dtype=np.int32).reshape(100, 130)
    assert not tiled(lambda x: windows(x) // x[1:-1, 1:-1], x)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shape", [(11, 17), (10, 16), (13, 70), (70, 33)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_tiles_of_each_count(count: int, shape: tuple[int, int], dtype: str) -> None:
    x = (numbers(*shape) * 9).astype(dtype)
    with fuser.enable_x64(True):
        plain = fuser.jit(windows, schedule=Schedule(register_tiling=False))(x)
        found = fuser.jit(windows, schedule=Schedule(register_tiling=count))(x)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(plain))
    np.testing.assert_allclose(np.asarray(found), windows(x.astype("float64")), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("window, stride, dilation", [(3, 1, 1), (3, 2, 1), (5, 1, 1), (3, 1, 2), (2, 1, 1)])
@pytest.mark.parametrize("size", [(1, 33, 33), (2, 30, 41)])
def test_depthwise_convolutions_to_the_bit(window: int, stride: int, dilation: int, size: tuple[int, int, int]) -> None:
    x, kernel = numbers(*size, 24), numbers(window, window, 1, 24)
    function = lambda x, k: depthwise(x, k, stride, dilation)
    plain = fuser.jit(function, schedule=Schedule(register_tiling=False))(x, kernel)
    np.testing.assert_array_equal(np.asarray(fuser.jit(function)(x, kernel)), np.asarray(plain))


def test_padding_meets_infinite_weights() -> None:
    """A zero of the padding times an infinite weight is nan, in a tile as elsewhere."""
    kernel = numbers(3, 3, 1, 32)
    kernel[0, 0] = np.inf
    x = np.abs(numbers(1, 40, 40, 32))
    found = np.asarray(fuser.jit(depthwise)(x, kernel))
    assert np.isnan(found[:, 0]).all() and np.isnan(found[:, :, 0]).all()
    assert np.isposinf(found[:, 1:, 1:]).all()


def test_a_result_takes_over_an_operand() -> None:
    """Neighbours are written once all of a tile is read."""
    x, y = numbers(66, 82), numbers(64, 80)
    function = lambda x, y: windows(x) * y + y
    donating = fuser.jit(function, donate_argnums=(1,))
    plain = fuser.jit(function, schedule=Schedule(register_tiling=False))(x, y)
    np.testing.assert_array_equal(np.asarray(donating(x, fnp.asarray(y))), np.asarray(plain))


def test_short_rows_of_windows_say_their_offsets() -> None:
    """The offsets of a window are numbers of the text; rows that do not read windows serve each size with one text."""
    text = lambda function, *arguments: fuser.jit(function).lower(*arguments).as_text()
    assert "+ 134]" in text(windows, numbers(100, 132))
    assert text(lambda x: x[1:] + x[:-1], numbers(100, 130)) == text(lambda x: x[1:] + x[:-1], numbers(90, 150))
