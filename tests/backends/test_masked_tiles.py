"""Narrow tiles beside what lies in another order: rows that are no whole number of vectors run under a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser

EXTENTS = (17, 26, 30, 33, 47, 63, 90, 100)


def crossing(x: Any, y: Any) -> tuple[Any, ...]:
    """x: blocks by rows by columns; y: the same with rows and columns exchanged."""
    t = x.swapaxes(1, 2)
    return t + y, t > 0, (t > y) & (y < 1), t.reshape(-1, t.shape[2]) * 2 + y.reshape(-1, y.shape[2])


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("rows", (40, 130))
def test_narrow_tiles(extent: int, rows: int) -> None:
    random = np.random.default_rng(extent)
    x = random.standard_normal((3, rows, extent)).astype(np.float32)
    y = random.standard_normal((3, extent, rows)).astype(np.float32)
    for dtype in (np.float32, np.float64, np.int32, np.int16):
        with fuser.config.using(enable_x64=True):
            a, b = (v.astype(dtype) if np.dtype(dtype).kind == "f" else (v * 9).astype(dtype) for v in (x, y))
            for found, wanted in zip(fuser.jit(crossing, backend="c")(a, b), crossing(a, b), strict=True):
                np.testing.assert_array_equal(np.asarray(found), wanted)


def test_integer_quotients_of_narrow_tiles_have_no_mask() -> None:
    """What lies beside a row would be divided by what nobody wrote."""
    x = np.arange(1, 1 + 3 * 40 * 30, dtype=np.int32).reshape(3, 40, 30)
    y = np.arange(1, 1 + 3 * 40 * 30, dtype=np.int32).reshape(3, 30, 40)
    divided = fuser.jit(lambda x, y: fuser.lax.div(x.swapaxes(1, 2), y), backend="c")
    np.testing.assert_array_equal(np.asarray(divided(x, y)), x.swapaxes(1, 2) // y)


def test_the_form_of_narrow_tiles() -> None:
    def masking(rows: int) -> int | None:
        x, y = np.ones((50, rows, 40), np.float32), np.ones((50, 40, rows), np.float32)
        lowered = fuser.jit(lambda x, y: (x.swapaxes(1, 2) + y) * 2, backend="c").lower(x, y)
        (schedule,) = lowered.sources[0].schedules.values()
        assert schedule.tiling
        return schedule.masking

    assert [masking(rows) for rows in (30, 40, 90)] == [16, 16, 16]
    assert [masking(rows) for rows in (32, 48, 150)] == [None, None, None]  # whole vectors, and long rows


@pytest.mark.parametrize("extent", (17, 30, 45, 64, 90))
@pytest.mark.parametrize("whole", (False, True))
def test_bools_that_choose_in_narrow_tiles(extent: int, whole: bool) -> None:
    """gcc made vectors of bytes, and one number after the other of rows that are shorter: read into 32 bits first, they take a mask."""
    random = np.random.default_rng(extent)
    x, v = (random.standard_normal(shape).astype(np.float32) for shape in ((120, 90, extent), extent))
    m = random.random(x.shape if whole else extent) > 0.5

    def chosen(xp: Any, x: Any, v: Any, m: Any) -> tuple[Any, ...]:
        d = v - x
        return xp.where(m, v, d), xp.transpose(xp.sqrt(abs(d)), (2, 1, 0))

    jitted = fuser.jit(lambda *a: chosen(fuser.numpy, *a), backend="c")
    for found, wanted in zip(jitted(x, v, m), chosen(np, x, v, m), strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)
    if not whole:
        (schedule,) = jitted.lower(x, v, m).sources[0].schedules.values()
        assert schedule.tiling
        assert schedule.masking == (16 if extent % 16 else None)
