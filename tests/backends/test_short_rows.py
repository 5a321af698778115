"""Rows of a few elements: blocks of rows, tiles and masks, against the reference backend; and what leaves no room for them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.nn as nn
import fuser.numpy as fnp
from fuser.config import config

EXTENTS = (2, 3, 7, 16, 30, 65, 239)


def rows(x: Any, b: Any, y: Any, w: Any) -> tuple[Any, ...]:
    """x: rows by extent; b: extent; y: blocks by rows by extent; w: rows."""
    return (
        fnp.tanh(x + b),
        (x > b) | (x < 0.1),
        fnp.where(b > 0, b * 0.5, x) * w[:, None],
        fnp.exp(b)[None, :] * fnp.sqrt(w)[:, None] + x,
        nn.softmax(x, -1),
        x.sum(-1),
        (x * b).max(-1),
        fnp.exp(x).min(-1),
        x.argmax(-1),
        (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * b,
        fnp.maximum(y[:, 1:] - y[:, :-1], b).max(1),
        fnp.exp(y).sum(1),
        nn.softmax(y, 1),
        y.argmin(1),
        fnp.cumsum(x, -1),
        fnp.cumsum(y, 1),
        (x > b).all(-1),
        (y > b).any(1),
        x[:, ::-1] * b,
        fnp.prod(1 + x * 0.1, -1),
    )


def arguments(extent: int, dtype: Any, count: int = 137) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(extent)
    shapes = ((count, extent), (extent,), (11, 13, extent), (count,))
    return tuple((random.random(shape) * 4 + 0.01).astype(dtype) for shape in shapes)


def agree(function: Any, args: tuple[Any, ...], tolerance: float) -> None:
    got = fuser.jit(function)(*args)
    with config.using(backend="reference"):
        want = fuser.jit(function)(*args)
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.dtype == b.dtype
        a, b = (np.asarray(v).astype(np.float64) for v in (a, b))
        np.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=f"result {number}")


@pytest.mark.parametrize("extent", EXTENTS)
def test_all_forms(extent: int) -> None:
    agree(rows, arguments(extent, np.float32), 6e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 3e-2), ("float16", 8e-3)])
@pytest.mark.parametrize("extent", [30])
def test_narrow_floats(extent: int, dtype: str, tolerance: float) -> None:
    agree(rows, tuple(fnp.asarray(a, dtype) for a in arguments(extent, np.float32)), tolerance)


@pytest.mark.parametrize("extent", [5, 21])
def test_doubles(extent: int) -> None:
    with config.using(enable_x64=True):
        agree(rows, arguments(extent, np.float64), 1e-14)


def integers(x: Any, b: Any, y: Any, w: Any) -> tuple[Any, ...]:
    return x + b, x * w[:, None], x // b, x % b, (x & b) == 0, x.sum(-1), x.max(-1), y.min(1), y.argmax(1), (x ^ b) >> 1


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
@pytest.mark.parametrize("extent", [3, 30])
def test_integers(extent: int, dtype: Any) -> None:
    agree(integers, tuple(a.astype(dtype) + dtype(1) for a in arguments(extent, np.float32)), 0)


def booleans(x: Any, b: Any, y: Any, w: Any) -> tuple[Any, ...]:
    return x & b, x | ~b, fnp.where(b, x, w[:, None]), x.any(-1), y.all(1), x.sum(-1), y ^ b


@pytest.mark.parametrize("extent", [3, 7, 30, 65])
def test_truth_values(extent: int) -> None:
    agree(booleans, tuple(a > 2 for a in arguments(extent, np.float32)), 0)


def test_special_values_stay_in_their_row() -> None:
    """What a mask hides, or what lies in a tile beside a row, is not in the row's result."""
    x, b, y, w = arguments(7, np.float32, 1000)
    for bad in (np.nan, np.inf, -np.inf, 1e-42):
        x[::3], y[:, ::2], b[3] = bad, bad, -bad
        with np.errstate(all="ignore"):
            agree(rows, (x, b, y, w), 8e-6)


@pytest.mark.parametrize("extent", [3, 7, 13, 30])
def test_donated_memory(extent: int) -> None:
    """A result may take over the memory of the array that it is computed from."""
    x, b, _, w = arguments(extent, np.float32, 5000)
    for function in (
        lambda x, b, w: fnp.tanh(x + b) * w[:, None],
        lambda x, b, w: nn.softmax(x * b, -1),
        lambda x, b, w: x[:, :1] + x,
    ):
        want = fuser.jit(function)(x, b, w)
        got = fuser.jit(function, donate_argnums=0)(fnp.array(x), b, w)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("count", [1, 17, 64, 129])
def test_counts_of_rows(count: int) -> None:
    """The last block of rows is not whole; tiles read no further than the array."""
    agree(rows, arguments(7, np.float32, count), 6e-6)


def test_strided_columns() -> None:
    """Some columns of a table whose rows have a few elements, from an offset on."""

    def columns(x: Any) -> tuple[Any, ...]:
        flat = x.reshape(-1)
        return (
            x[:, 2] + x[:, 5],
            x[:, 1] * x[:, 6] - x[:, 0],
            flat[3::7] - flat[1::7][: len(flat[3::7])],
            fnp.sin(x[5:, 6]),
        )

    for count in (100, 501):
        agree(columns, (arguments(7, np.float32, count)[0],), 1e-6)


def test_columns_alone_in_blocks_of_vectors() -> None:
    """Accumulators of short rows in whole vectors, where no array is read under the mask."""
    x = np.random.default_rng(0).random((7, 40, 12)).astype(np.float32)
    i = np.arange(12)
    agree(
        lambda x: (fnp.where(i > 3, 1.5, fnp.exp(x)).prod(1), fnp.broadcast_to(fnp.exp(i * 0.1), (9, 12)).sum(0)),
        (x,),
        1e-5,
    )


def along_rows(x: Any, b: Any, y: Any, w: Any) -> tuple[Any, ...]:
    """Reductions along rows beside what rows share, several of them, of several axes, and of rows that lie apart."""
    z = y * b
    return (
        y.sum(-1),
        nn.softmax(z, -1),
        (z - z.max(-1, keepdims=True)).min(-1),
        y[:, ::2].sum(-1),
        y[:, :, 1:].max(-1),
        y.sum((1, 2)),
        fnp.exp(x).argmin(-1) + w,
        (x * w[:, None]).sum(-1) * w,
        fnp.log(fnp.exp(x - 3).sum(-1)),
        x / x.sum(-1, keepdims=True) + b,
        fnp.where(x > b, x, -x).mean(-1),
        x.T.sum(0),
        (x[1:] - x[:-1]).var(-1),
    )


@pytest.mark.parametrize(("extent", "count"), [(16, 200), (17, 63), (30, 200), (31, 64), (63, 65)])
def test_rows_side_by_side(extent: int, count: int) -> None:
    agree(along_rows, arguments(extent, np.float32, count), 8e-6)


def test_rows_side_by_side_by_dtype() -> None:
    for dtype in (np.int32, np.int8, np.uint16, np.bool_):
        args = tuple((a > 2 if dtype is np.bool_ else a.astype(dtype)) for a in arguments(30, np.float32, 300))
        agree(lambda x, b, y, w: (x.sum(-1), x.max(-1), x.argmax(-1), (x ^ b).any(-1), y.min(-1)), args, 0)


def test_the_form_of_rows_side_by_side() -> None:
    text = fuser.jit(lambda x: nn.softmax(x, -1)).lower(np.ones((1000, 20), np.float32)).sources[0].text
    assert "rows_in32" in text and "rows_out32" in text
    text = fuser.jit(lambda x: nn.softmax(x, -1)).lower(np.ones((1000, 300), np.float32)).sources[0].text
    assert "rows_in32" not in text


def shifted(x: Any, kept: Any) -> tuple[Any, ...]:
    """Rows beside their neighbours, of which some are hidden: pieces of one element, and a test of one byte."""
    edge = fnp.full((len(x), 1), -1e30, x.dtype)
    before = fnp.concatenate([edge, x[:, :-1]], 1)
    second = fnp.where(kept, fnp.concatenate([edge, edge, x[:, :-2]], 1), edge)
    both = fnp.logaddexp(x, before)
    return fnp.logaddexp(both, second), fnp.exp(before - both)


@pytest.mark.parametrize("extent", (5, 25, 63))
def test_short_rows_beside_their_neighbours_run_whole(extent: int) -> None:
    x = np.random.default_rng(extent).standard_normal((41, extent)).astype(np.float32)
    agree(shifted, (x, x > 0), 1e-5)
    (source,) = fuser.jit(shifted, backend="c").lower(x, x > 0).sources
    (schedule,) = source.schedules.values()
    assert schedule.masking and not schedule.index_set_splitting


@pytest.mark.parametrize("rows, channels", ((12, 3), (40, 3), (40, 7)))
def test_rows_of_channels_with_edges_are_vectors(rows: int, channels: int) -> None:
    def step(x: Any, v: Any, s: Any) -> tuple[Any, ...]:
        force = fnp.zeros_like(x).at[:, :-1].add(s[:, 1:]).at[:, 1:].add(-s[:, :-1]) + fnp.arange(channels) * 0.1
        v = ((v + 0.05 * force) * 0.99).at[0].set(0)
        return x + 0.05 * v, v

    args = tuple(np.random.default_rng(n).standard_normal((rows, rows, channels)).astype(np.float32) for n in range(3))
    agree(step, args, 1e-5)
    for source in fuser.jit(step, backend="c").lower(*args).sources:
        lines = source.text.splitlines()
        masked = [n for n, line in enumerate(lines) if "< padded(" in line]
        assert all(
            "omp simd" in lines[n - 1] for n in masked
        )  # or gcc asks first whether the rows overlap, which they do


@pytest.mark.parametrize(("side", "written_out"), [(3, True), (4, True), (8, True), (14, False)])
def test_means_of_small_images_write_their_rows_out(side: int, written_out: bool) -> None:
    """A depthwise convolution and the mean of its image: rows of at most half a vector have no mask."""
    random = np.random.default_rng(side)
    x, w = random.normal(size=(2, 5, side + 2, side + 2)), random.normal(size=(5, 9))

    def pooled(x: Any, w: Any) -> Any:
        windows = [x[:, :, i : i + side, j : j + side] for i in range(3) for j in range(3)]
        y = sum(part * w[:, n, None, None] for n, part in enumerate(windows))
        return y, y.mean((2, 3))

    narrow = (x.astype(np.float32), w.astype(np.float32))
    for found, wanted in zip(fuser.jit(pooled)(*narrow), pooled(x, w)):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=2e-5, atol=2e-5)
    text = "".join(source.text for source in fuser.jit(pooled).lower(*narrow).sources)
    assert ("padded" not in text) is written_out


def neighbours(x: Any, y: Any) -> tuple[Any, ...]:
    """Rows beside the rows before and behind them, which are themselves at the ends; a few rows written, and all but two."""
    before, behind = fnp.concatenate([x[:1], x[:-1]]), fnp.concatenate([x[1:], x[-1:]])
    return x * 0.5 + (before + behind) * 0.25, fnp.maximum(x, y), y.at[2:5].set(0), x.at[1:-1].add(y[2:] * y[:-2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("count", [137, 3001])
def test_rows_in_pieces_beside_neighbours(extent: int, count: int, dtype: Any) -> None:
    with config.using(enable_x64=True):
        random = np.random.default_rng(extent)
        x, y = ((random.random((count, extent)) * 9).astype(dtype) for _ in range(2))
        agree(neighbours, (x, y), 1e-6 if dtype == np.float32 else 1e-14)


def test_rows_of_a_piece_without_tests_are_one_run_of_memory() -> None:
    """What keeps the loops of a kernel apart is asked at its ends alone."""
    x = np.ones((3000, 8), np.float32)

    def smooth(x: Any) -> Any:
        return x * 0.5 + (fnp.concatenate([x[:1], x[:-1]]) + fnp.concatenate([x[1:], x[-1:]])) * 0.25

    (source,) = fuser.jit(smooth, backend="c").lower(x).sources
    (schedule,) = source.schedules.values()
    assert schedule.index_set_splitting == 3
    assert [piece.coalescing is not None for piece in schedule.pieces or (schedule,)].count(True) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("extent", [13, 27, 61])
def test_rows_with_computed_indices_run_under_a_mask(extent: int, dtype: Any) -> None:
    """Functions of maths, elements at computed indices and a boundary of one element: in whole vectors, not one by one."""
    random = np.random.default_rng(extent)
    x, table = random.standard_normal(extent).astype(dtype), random.standard_normal(50).astype(dtype)
    places = random.integers(-50, 50, extent).astype(np.int32)
    with fuser.enable_x64(dtype is np.float64):

        def step(x: Any, _: Any, t: Any, i: Any) -> Any:
            return fnp.logaddexp(x, fnp.concatenate([fnp.array([-1e30], dtype), x[:-1]])) + t[i], None

        f = fuser.jit(lambda x, t, i: fuser.lax.scan(lambda x, n: step(x, n, t, i), x, length=3)[0])
        [loop] = [one for one in fuser.explain(f, verbose=True)(x, table, places).steps if one.inner]
        assert any("under a mask" in one.schedule for one in loop.inner)
        wanted = x.astype(np.float64)
        for _ in range(3):
            wanted = np.logaddexp(wanted, np.concatenate([[-1e30], wanted[:-1]])) + table[places]
        np.testing.assert_allclose(
            np.asarray(f(x, table, places)), wanted, rtol=0, atol=(1e-5 if dtype is np.float32 else 1e-13)
        )


def depthwise(x: Any, k: Any) -> Any:
    """A convolution of each channel by itself, written over slices: nine rows of weights, which all pixels share."""
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    return sum(x[:, i : i + rows, j : j + columns] * k[..., i, j, :] for i in range(3) for j in range(3))


@pytest.mark.parametrize("channels", [2, 3, 8, 16, 20, 32, 48, 64])
def test_what_many_rows_repeat_is_read_once_for_all_of_them(channels: int) -> None:
    """Coalesced into one loop, beside blocks of what is repeated; neighbours of rows of whole vectors are computed together instead."""
    random = np.random.default_rng(channels)
    x, k = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 40, 37, channels), (3, 3, channels)))
    (source,) = fuser.jit(depthwise, backend="c").lower(x, k).sources
    (schedule,) = source.schedules.values()
    tiled = channels % 16 == 0
    room = 9 * 16 * channels * 4 <= 24_000
    assert bool(schedule.coalescing) is (room and not tiled)
    assert schedule.has("register_tiling", True) is tiled
    wanted = depthwise(x.astype(np.float64), k.astype(np.float64))
    scale = depthwise(np.abs(x).astype(np.float64), np.abs(k).astype(np.float64))
    error = np.abs(np.asarray(fuser.jit(depthwise, backend="c")(x, k)) - wanted)
    assert np.all(error <= 10 * np.finfo(np.float32).eps * scale)


@pytest.mark.parametrize("channels", [3, 16, 20])
def test_what_rows_repeat_may_change_with_outer_loops(channels: int) -> None:
    """Weights of an image's own are written out for each image."""
    random = np.random.default_rng(channels)
    x, k = random.standard_normal((5, 40, 37, channels)), random.standard_normal((5, 1, 1, 3, 3, channels))
    x, k = x.astype(np.float32), k.astype(np.float32)
    scale = depthwise(np.abs(x).astype(np.float64), np.abs(k).astype(np.float64))
    error = np.abs(np.asarray(fuser.jit(depthwise)(x, k)) - depthwise(x.astype(np.float64), k.astype(np.float64)))
    assert np.all(error <= 10 * np.finfo(np.float32).eps * scale)


@pytest.mark.parametrize("extent", [16, 32, 48, 64])
def test_rows_of_whole_vectors(extent: int) -> None:
    agree(rows, arguments(extent, np.float32), 6e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("extent", [2, 3, 4, 5, 7, 8, 9, 12, 15])
def test_sums_over_several_short_rows_have_a_sum_for_each_lane(extent: int, dtype: Any) -> None:
    """The lanes of a row are not added up before the last row: a sum over rows of 4 took one addition after the other."""
    random = np.random.default_rng(extent)
    x = random.standard_normal((3, 300, 4, extent)).astype(dtype)
    with fuser.enable_x64(dtype is np.float64):
        sums = lambda x: (x.sum((1, 3)), (x * x + 1).sum((1, 3)), (x[:, ::2] * 0.5).mean((1, 3)))
        assert lane_accumulators(lambda x: (x.sum((1, 3)), x + 1), x) or extent * x.itemsize > 64  # bytes of a vector
        wide = x.astype(np.float64)
        bound = (300 + 16) * np.finfo(dtype).eps  # a lane's additions, and of the lanes
        for found, wanted, scale in zip(fuser.jit(sums, backend="c")(x), sums(wide), sums(np.abs(wide)), strict=True):
            assert np.all(np.abs(np.asarray(found) - wanted) <= bound * scale)


def lane_accumulators(function: Any, *args: Any) -> int:
    """Reductions of the function's kernels that have an accumulator for each lane."""
    sources = fuser.jit(function, backend="c").lower(*args).sources
    return sum(schedule.lane_accumulators or 0 for source in sources for schedule in source.schedules.values())


REDUCED: dict[str, tuple[str, Any]] = {
    "max": ("float32", lambda x: x.max((1, 3))),
    "min": ("float64", lambda x: x.min((1, 3))),
    "max of bytes": ("int8", lambda x: x.max((1, 3))),
    "sum of integers": ("int32", lambda x: x.sum((1, 3))),
    "sum of short integers": ("int16", lambda x: x.sum((1, 3))),
    "product": ("int32", lambda x: (x % 4 + 2).prod((1, 3))),
    "any": ("bool", lambda x: x.any((1, 3))),
    "all": ("bool", lambda x: x.all((1, 3))),
    "count": ("float32", lambda x: (x > 2).sum((1, 3))),
    "two": ("float32", lambda x: x.max((1, 3)) - x.min((1, 3))),
}


@pytest.mark.parametrize("extent", [3, 7, 9, 14, 16, 17, 30])
@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("rows, columns", [(50, 3), (2, 90)])
def test_reductions_over_several_short_rows_have_an_accumulator_for_each_lane(
    name: str, extent: int, rows: int, columns: int
) -> None:
    """A maximum over rows of 10 made a number of each row's vector, and took seven times as long. What reads the operand as
    well keeps the reduction one."""
    dtype, reduced = REDUCED[name]
    random = np.random.default_rng(extent)
    x = random.integers(-100, 100, (4, rows, columns, extent)).astype(dtype)
    if dtype == "bool":
        x = random.random(x.shape) < 1 / (rows * extent)
        x = ~x if name == "all" else x
    with fuser.enable_x64(True):
        together = lambda x: (reduced(x), x ^ x[:1] if x.dtype == bool else x + x[:1])
        np.testing.assert_array_equal(np.asarray(fuser.jit(together, backend="c")(x)[0]), reduced(x))
        np.testing.assert_array_equal(np.asarray(fuser.jit(reduced, backend="c")(x)), reduced(x))
        if (
            rows == 50 and 4 < extent < 16
        ):  # wide blocks are added to each other, long rows reduced first, others written out
            assert lane_accumulators(together, x) == (2 if name == "two" else 1)


@pytest.mark.parametrize("extent", [3, 10, 17])
@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_in_one_of_several_short_rows_is_an_extreme(name: str, extent: int) -> None:
    x = np.random.default_rng(extent).standard_normal((3, 40, 5, extent)).astype(np.float32)
    x[0, 3, 1, extent - 1], x[2, 39, 4, 0] = np.nan, np.nan
    x[1, :, 0] = -np.inf if name == "max" else np.inf
    reduced = lambda x: getattr(x, name)((1, 3))
    for function in (reduced, lambda x: (reduced(x), x * 2)[0]):
        np.testing.assert_array_equal(np.asarray(fuser.jit(function, backend="c")(x)), reduced(x))


def test_lane_accumulators_of_chunks() -> None:
    """Few results of many short rows, shared out in chunks: each chunk's sum took one addition after the other."""
    x = np.random.default_rng(8).standard_normal((1, 30_000, 2, 4)).astype(np.float32)
    function = lambda x: (x.sum((1, 3)), x.max((1, 3)), x + 1)
    assert lane_accumulators(function, x)
    found = fuser.jit(function, backend="c")(x)
    wide = x.astype(np.float64)
    bound = (30_000 / 1024 + 64) * np.finfo(np.float32).eps * np.abs(wide).sum((1, 3))
    assert np.all(np.abs(np.asarray(found[0]) - wide.sum((1, 3))) <= bound)
    np.testing.assert_array_equal(np.asarray(found[1]), x.max((1, 3)))


def test_groups_of_few_channels_are_normalised() -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal((2, 12, 11, 24)).astype(np.float32)

    def normalised(x: Any) -> Any:
        y = x.reshape(2, 12, 11, 6, 4)
        y = (y - y.mean((1, 2, 4), keepdims=True)) / (y.var((1, 2, 4), keepdims=True) + 1e-5) ** 0.5
        return y.reshape(x.shape)

    np.testing.assert_allclose(fuser.jit(normalised)(x), normalised(x.astype(np.float64)), 0, 2e-5)


@pytest.mark.parametrize("extent", [31, 45, 77, 130])
def test_many_functions_in_rows_that_end_within_a_vector(extent: int) -> None:
    """Compilers call functions for vectors outside of branches alone; what is beyond the row is computed, and goes nowhere."""
    x = np.random.default_rng(extent).standard_normal((50, extent)).astype(np.float32)

    def program(np: Any, x: Any) -> Any:
        terms = sum(np.exp(np.sin(x * (i + 1))) for i in range(12))
        largest = terms.max(1, keepdims=True)
        return terms / terms.sum(1, keepdims=True), largest, np.sin(terms - largest)[:, 1:] + x[:, :-1]

    found = fuser.jit(lambda x: program(fnp, x), backend="c")(x)
    for ours, wanted in zip(found, program(np, x.astype(np.float64)), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("extent", [2, 3, 5, 8, 11, 20, 31, 63])
def test_what_rows_have_one_of_is_written_out_in_vectors_of_rows(extent: int) -> None:
    """A pixel's grey level was written three times by a loop of its own, which took three times as long as the rest."""
    random = np.random.default_rng(extent)
    x, g = (random.standard_normal(shape).astype(np.float32) for shape in ((37, 5, extent), (37, 5)))
    scaled = lambda x, g: (x - g[..., None]) * 1.5 + g[..., None]
    (source,) = fuser.jit(scaled, backend="c").lower(x, g).sources
    (schedule,) = source.schedules.values()
    assert schedule.coalescing == 16
    vectors = {5: "spread_8_float", 11: "spread_16_float"}  # lengths that compilers would write number by number
    assert vectors.get(extent, f"< {extent}; ++") in source.text
    np.testing.assert_allclose(np.asarray(fuser.jit(scaled, backend="c")(x, g)), scaled(x, g), 0, 2e-6)
    chosen = lambda x, g: fnp.where(g[..., None] > 0, x, -x)
    want = np.where(g[..., None] > 0, x, -x)
    np.testing.assert_array_equal(np.asarray(fuser.jit(chosen, backend="c")(x, g)), want)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("extent", [3, 5, 7, 12])
def test_many_rows_share_a_block(extent: int, dtype: str) -> None:
    """Blocks are larger the narrower and the more the rows are, and what they share, loaded or computed, ends in its own row."""
    random = np.random.default_rng(extent)
    x, b, g = (
        random.integers(0, 2 if dtype == "bool" else 9, s).astype(dtype) for s in ((70_001, extent), extent, 70_001)
    )
    loaded = lambda x, b, g: (x + b) * g[:, None] if dtype != "bool" else (x | b) & g[:, None]
    made = lambda x, b, g: (x + g[:, None]) * (g * 2 + 1)[:, None] if dtype != "bool" else x ^ ~g[:, None]
    for function in (loaded, made):
        run = fuser.jit(function, backend="c")
        want = fuser.jit(function, backend="reference")(x, b, g)
        np.testing.assert_array_equal(np.asarray(run(x, b, g)), np.asarray(want))
    (schedule,) = fuser.jit(loaded, backend="c").lower(x, b, g).sources[0].schedules.values()
    assert schedule.coalescing is None or (schedule.coalescing % 16 == 0 and schedule.coalescing > 16)


def test_what_rows_share_is_read_with_their_stride_in_the_text():
    """Channels three elements apart: compilers load and shuffle them where they know so, and read one by one where they do not."""

    def vivid(x: Any) -> Any:
        grey = 0.2 * x[:, 0:1] + 0.7 * x[:, 1:2] + 0.1 * x[:, 2:3]
        return grey + 1.3 * (x - grey)

    x = np.random.default_rng(0).random((1000, 3)).astype(np.float32)
    (source,) = fuser.jit(vivid, backend="c").lower(x).sources
    assert {offset or "0" for offset in re.findall(r"in0\[3 \* \(\w+ \+ \w+\)(?: \+ (\d))?\]", source.text)} == {
        "0",
        "1",
        "2",
    }
    agree(lambda x: (vivid(x),), (x,), 1e-6)


def test_short_rows_in_pieces_under_masks() -> None:
    """Pieces one after the other in one scope, each under a mask of its own."""

    def joined(x: Any, y: Any) -> Any:
        return fnp.concatenate([fnp.exp(x), fnp.tanh(x + y), fnp.sin(y), fnp.roll(fnp.log1p(fnp.abs(x)), 3, 1)], 1)

    for extent in (19, 30, 47):
        random = np.random.default_rng(extent)
        x, y = (random.standard_normal((70, extent)).astype(np.float32) for _ in range(2))
        a, b = x.astype(np.float64), y.astype(np.float64)
        wanted = np.concatenate([np.exp(a), np.tanh(a + b), np.sin(b), np.roll(np.log1p(np.abs(a)), 3, 1)], 1)
        np.testing.assert_allclose(fuser.jit(joined, backend="c")(x, y), wanted, rtol=2e-6, atol=2e-6)


def test_quotients_of_places_stand_before_loops_under_a_mask() -> None:
    """Of rows that were two axes: behind the mask they were divided for each element, ten times as long."""
    x, v = np.random.default_rng(3).standard_normal((30, 40, 50)).astype(np.float32), np.arange(1, 51, dtype=np.float32)
    jitted = fuser.jit(lambda x, v: x.transpose(1, 0, 2).reshape(-1, 50) / v, backend="c")
    np.testing.assert_array_equal(np.asarray(jitted(x, v)), x.transpose(1, 0, 2).reshape(-1, 50) / v)
    text = jitted.lower(x, v).sources[0].text
    masked = re.search(r"for \(int32_t \w+_lane.*?\n {6}}", text, re.DOTALL)
    assert masked is not None
    assert masked[0].count(" / ") == 1  # of the numbers themselves
