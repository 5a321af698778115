"""Short rows that are transposed in registers: NumPy's numbers for each length and type, and where that is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import Schedule, nn
from fuser.backends.c.schedules import transposes

INTEGERS = (np.int8, np.uint16, np.int32)
LENGTHS = (5, 6, 7, 9, 11, 12, 13, 15)


def rows(count: int, extent: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.arange(count * extent).reshape(count, extent) * 37 % 101 - 50).astype(dtype)


def schedule_of(f: Any, x: np.ndarray) -> Schedule:
    (source,) = fuser.jit(f, backend="c").lower(x).sources
    (schedule,) = source.schedules.values()
    return schedule


def taken_apart(x: Any) -> Any:
    """A number of each row, from all of its elements in order."""
    total = x[:, 0]
    for n in range(1, x.shape[1]):
        total = total * 3 - x[:, n]
    return total


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("extent", LENGTHS)
def test_rows_are_read_in_vectors(extent: int, dtype: Any) -> None:
    """Blocks of 128 rows, and what is left of them: no whole block, and no whole vector."""
    for count in (128, 300):
        x = rows(count, extent, dtype)
        assert schedule_of(taken_apart, x).staging == 128
        np.testing.assert_array_equal(fuser.jit(taken_apart, backend="c")(x), taken_apart(x))


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("extent", LENGTHS)
def test_rows_are_written_in_vectors(extent: int, dtype: Any) -> None:
    reversed_rows = lambda module: lambda x: module.stack([x[:, n] * 3 for n in reversed(range(extent))], 1)
    x = rows(300, extent, dtype)
    np.testing.assert_array_equal(fuser.jit(reversed_rows(fnp), backend="c")(x), reversed_rows(np)(x))


@pytest.mark.parametrize("extent", (8, 9, 16, 17, 20, 24, 29, 40, 63))
@pytest.mark.parametrize("dtype", (np.int32, np.int16, np.uint8), ids=lambda d: np.dtype(d).name)
def test_rows_side_by_side_in_parts_of_vectors(extent: int, dtype: Any) -> None:
    """Rows of whole vectors, of halves, of quarters, and of one element more."""
    x = rows(200, extent, dtype)
    way = fuser.jit(
        lambda x: x - x.max(1, keepdims=True), backend="c", schedule=Schedule(reduction="rows side by side")
    )
    assert "rows side by side" in [s.reduction for s in way.lower(x).sources[0].schedules.values()]
    np.testing.assert_array_equal(way(x), x - x.max(1, keepdims=True))


def test_rows_that_are_read_again_stay_in_tiles() -> None:
    """Exponentials wait in the tile of the result, not in memory; rows of 8 are not unrolled, nor those of many."""
    softmax = lambda x: nn.softmax(x, 1)
    for extent in (8, 12, 20):
        x = rows(1000, extent) / 25
        assert schedule_of(softmax, x).reduction in ("rows side by side", "tree")
        found, wide = np.asarray(fuser.jit(softmax, backend="c")(x)), np.exp(x.astype(np.float64))
        np.testing.assert_allclose(found, wide / wide.sum(1, keepdims=True), rtol=2e-6)
    text = fuser.jit(softmax, backend="c").lower(rows(1000, 20)).sources[0].text
    assert text.count("out0[") == 1  # where the tile leaves


@pytest.mark.parametrize(
    ("name", "extent", "reduction"),
    [
        ("all", 5, None),
        ("count", 7, None),
        ("prod", 12, None),
        ("max", 15, "tree"),
        ("count", 20, "rows side by side"),
        ("count", 64, "tree"),
    ],
)
def test_the_form_by_what_passes_and_shuffles_cost(name: str, extent: int, reduction: str | None) -> None:
    function = {
        "all": lambda x: (x > 0).all(1),
        "count": lambda x: (x > 0).sum(1),
        "prod": lambda x: x.prod(1),
        "max": lambda x: x.max(1),
    }[name]
    x = rows(1000, extent) / 50
    made = schedule_of(function, x)
    assert (made.reduction, made.staging) == (reduction, 128 if reduction is None else None)
    found, wanted = np.asarray(fuser.jit(function, backend="c")(x)), function(x.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_narrow_results_of_part_vectors_are_no_trees() -> None:
    scaled = lambda x: ((x - x.min(1, keepdims=True)) * 2).astype("uint8")
    x = rows(500, 7)
    assert schedule_of(scaled, x).reduction != "tree"
    np.testing.assert_array_equal(fuser.jit(scaled, backend="c")(x), scaled(x))


@pytest.mark.parametrize("source", (np.float32, np.float64), ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("dtype", (np.int8, np.uint8, np.int16, np.uint16, np.int32), ids=lambda d: np.dtype(d).name)
def test_floats_become_the_nearest_integers_towards_zero(source: Any, dtype: Any) -> None:
    """Beyond the bounds the bound, of nan 0."""
    info = np.iinfo(dtype)
    ends = [
        info.min - 1,
        info.min - 0.5,
        info.min,
        info.min + 0.5,
        info.max - 0.5,
        info.max,
        info.max + 0.5,
        info.max + 1,
    ]
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1e30, -1e30, 3e9, -3e9, *ends]
    x = np.concatenate([special, np.linspace(2.0 * info.min - 3, 2.0 * info.max, 200)]).astype(source)
    with fuser.enable_x64(True):
        found = np.asarray(fuser.jit(lambda x: x.astype(dtype), backend="c")(x))
    wide = x.astype(np.float64)
    wanted = np.where(np.isnan(wide), 0, np.clip(np.trunc(wide), info.min, info.max))
    assert found.dtype == dtype and (found.astype(np.float64) == wanted).all()


def test_the_text_of_transposes_is_what_is_used() -> None:
    text = transposes.helpers(["rows_in32_5"])
    assert "rows_in32_5" in text and "block32" not in text and "rows_out" not in text
    assert transposes.helpers(["transpose64"]).count("static void") == 1 and transposes.helpers(["k0"]) == ""
    assert (
        transposes.rows_function("in", 32, 7) == "rows_in32_7"
        and transposes.rows_function("out", 32, 8) == "rows_out32"
    )
