"""Scatters of scatter.c beside the reference backend: every type of index, in order or not, inside or out of bounds, of elements, rows and windows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuser
from fuser.backends.c.library import prebuilt

INDICES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FORMS = ("random", "in order", "negative", "out of bounds")
COUNT, ROWS = 5_000, 100  # more than a block of scatter.c, and few enough rows for int8


def places(form: str, kind: str) -> np.ndarray:
    random = np.random.default_rng(3)
    found = random.integers(0, ROWS, COUNT)
    if form == "in order":
        found = np.sort(found)
    if form in ("negative", "out of bounds") and kind[0] == "i":
        found = found - ROWS // 2
    if form == "out of bounds":
        found = np.where(random.random(COUNT) < 0.3, found + 27, found)
    return found.astype(kind)


def both(function: Any, *arrays: np.ndarray) -> None:
    got = np.asarray(fuser.jit(function, backend="c")(*arrays))
    want = np.asarray(fuser.jit(function, backend="reference")(*arrays))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", INDICES)
def test_elements_and_rows_by_every_type_of_index(kind: str, form: str) -> None:
    random = np.random.default_rng(4)
    with fuser.enable_x64():
        at = places(form, kind)
        for shape in ((), (8,), (9, 3), (33,)):
            u = random.integers(-50, 50, (COUNT, *shape)).astype("float32")  # sums are exact in any order
            x = np.zeros((ROWS, *shape), "float32")
            for method in ("add", "max", "set"):
                for mode in ("drop", "clip"):
                    both(lambda x, i, u, m=method, d=mode: getattr(x.at[i], m)(u, mode=d), x, at, u)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", INDICES)
def test_elements_by_pairs_of_indices(kind: str, form: str) -> None:
    with fuser.enable_x64():
        at = places(form, kind)
        x = np.zeros((ROWS, ROWS), kind)
        both(lambda x, i, j: x.at[i, j].add(i + 1), x, at, at[::-1].copy())
        both(lambda x, i, j: x.at[i, :, j].min(-1), np.zeros((ROWS, 3, ROWS), kind), at, at[::-1].copy())


@pytest.mark.parametrize("kind", ("float32", "float64"))
@pytest.mark.parametrize("method", ("max", "min"))
def test_extremes_keep_nan_and_order_zeros(kind: str, method: str) -> None:
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 3.0, -3.0], kind)
    a, b = (v.reshape(-1) for v in np.meshgrid(special, special))
    with fuser.enable_x64():
        for at in (np.arange(a.size), np.repeat(np.arange(a.size), 2)):  # apart, and in runs
            u = b if at.size == b.size else np.stack([b, a], 1).reshape(-1)
            run = fuser.jit(lambda x, i, u: getattr(x.at[i], method)(u), backend="c")
            got = np.asarray(run(a, at.astype("int32"), u))
            want = a.copy()
            with np.errstate(invalid="ignore"):
                getattr(np, f"{method}imum").at(want, at, u)
            np.testing.assert_array_equal(got, want)
            least = np.signbit(a) & np.signbit(b) if method == "max" else np.signbit(a) | np.signbit(b)
            both_zero = (a == 0) & (b == 0)
            np.testing.assert_array_equal(np.signbit(got)[both_zero], least[both_zero])


def test_segments_leave_out_what_is_out_of_bounds_in_one_step() -> None:
    ids = np.array([0, -1, 2, 5, 2, -128, 127], "int8")
    run = fuser.jit(lambda x, i: fuser.ops.segment_sum(x, i, 3))
    x = np.arange(1.0, 8.0, dtype="float32")
    np.testing.assert_array_equal(np.asarray(run(x, ids)), [1, 0, 8])
    assert len(fuser.explain(run)(x, ids.astype("int32")).steps) == 1


def test_common_scatters_are_built_with_the_package_whatever_counts_their_places() -> None:
    if prebuilt._library() is None:
        pytest.skip("the package was built without its kernels")
    for kind in ("float32", "float64", "int32", "int64"):
        for how in ("add", "max", "min"):
            assert prebuilt.function("scatter", np.dtype(kind), how) is not None
    for kind, how in (
        ("float32", "mul"),
        ("float16", "add"),
        (ml_dtypes.bfloat16, "add"),
        ("uint16", "set"),
        ("uint64", "set"),
    ):
        assert prebuilt.function("scatter", np.dtype(kind), how) is not None


@pytest.mark.parametrize("width", (*range(2, 18), 32, 40))
@pytest.mark.parametrize("rows", (3, 100))
def test_rows_of_every_length_by_places_that_repeat_and_that_do_not(width: int, rows: int) -> None:
    random = np.random.default_rng(width)
    at = random.integers(-rows, rows + 2, 1_500).astype("int32")
    u = random.integers(-50, 50, (1_500, width)).astype("float32")
    x = np.zeros((rows, width), "float32")
    for places in (at, np.repeat(at, 5)[:1_500], np.maximum(at, -rows).clip(None, rows - 1)):
        both(lambda x, i, u: x.at[i].add(u), x, places, u)
        both(lambda x, i, u: x.at[i].max(u), x, places, u)


@pytest.mark.parametrize("mode", ("drop", "clip"))
@pytest.mark.parametrize("kind", ("int8", "int32", "uint16"))
@pytest.mark.parametrize("batches, count", [(1000, 4), (150, 20), (20, 100), (3, 2000), (1, 600)])
def test_updates_of_several_walks_in_short_and_long_rounds(batches: int, count: int, kind: str, mode: str) -> None:
    """Batches of scatters: the places of updates are counted by batch and by update, the innermost of which may have few rounds."""
    random = np.random.default_rng(6)
    low = 0 if kind[0] == "u" else -60
    at = random.integers(low, 60, (count, batches)).astype(kind)
    values, pairs = random.integers(-9, 9, count), random.integers(-9, 9, (count, batches, 3))
    elements = lambda at: fuser.numpy.zeros(50, np.int32).at[at].add(values.astype(np.int32), mode=mode)
    both(fuser.vmap(elements, 1), at)
    rows = lambda at, x: fuser.numpy.zeros((50, 3), np.int32).at[at].max(x, mode=mode)
    both(fuser.vmap(rows, (1, 1), 1), at, pairs.astype(np.int32))
    columns = lambda at, other: fuser.numpy.zeros((50, 40), np.int32).at[at, other].add(1, mode=mode)
    both(fuser.vmap(columns, (1, None)), at, random.integers(-50, 50, count))
