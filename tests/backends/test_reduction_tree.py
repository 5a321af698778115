"""Reductions of short rows as a tree over padded rows: its values, when it is chosen, and when not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import Schedule
from fuser.backends.c.schedules.padded_rows import PaddedRows, padded_rows
from fuser.errors import UnsupportedError
from fuser.kernel.loops import arrange
from fuser.kernel.lower import lower
from fuser.kernel.schedule import NOTHING_ASKED

TREE = Schedule(reduction="tree")
RANDOM = np.random.default_rng(5)


def schedules(f: Callable[..., Any], *args: Any, asked: Schedule = NOTHING_ASKED) -> list[Schedule]:
    lowered = fuser.jit(f, backend="c", schedule=asked).lower(*args)
    return [schedule for source in lowered.sources for schedule in source.schedules.values()]


def way(f: Callable[..., Any], rows: int, extent: int, dtype: Any = np.float32) -> str | None:
    (schedule,) = schedules(f, np.zeros((rows, extent), dtype))
    return schedule.reduction


def several(np: Any, x: Any, w: Any, b: Any) -> tuple[Any, ...]:
    """What is reduced as it lies, what is computed first, values that rows share, and results of elements."""
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 0.1)
    return (
        x.max(-1),
        x.min(-1) * b,
        x.sum(-1),
        (x * w).sum(-1),
        (x > 0).all(-1),
        (x > 1).any(-1),
        scaled * w + b[:, None],
    )


@pytest.mark.parametrize("extent", [5, 6, 9, 12, 15, 17, 24, 31, 33, 64, 100, 128])
def test_rows_of_all_lengths(extent: int) -> None:
    """200 rows are no whole number of blocks; no padding takes part."""
    x, w, b = RANDOM.standard_normal((200, extent)), RANDOM.standard_normal(extent), RANDOM.standard_normal(200)
    args = [a.astype(np.float32) for a in (x, w, b)]
    wide = [a.astype(np.float64) for a in args]
    for f, wanted in zip(_each(several), several(np, *wide)):
        found = np.asarray(fuser.jit(f, backend="c")(*args))
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6 * extent)


def _each(f: Callable[..., tuple[Any, ...]]) -> list[Callable[..., Any]]:
    return [lambda *args, n=n: f(fnp, *args)[n] for n in range(7)]


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int8, np.uint16, np.bool_])
@pytest.mark.parametrize("extent", [10, 40])
def test_rows_of_other_types(dtype: Any, extent: int) -> None:
    x = RANDOM.integers(-5, 6, (130, extent))
    x = x > 0 if dtype is np.bool_ else x.astype(dtype)

    def f(np: Any, x: Any) -> tuple[Any, ...]:
        return x.sum(-1), x.max(-1), x.min(-1), (x > 1).any(-1), (x != 0).all(-1)

    with fuser.enable_x64():
        for n, wanted in enumerate(f(np, x)):
            found = np.asarray(fuser.jit(lambda x, n=n: f(fnp, x)[n], backend="c")(x))
            np.testing.assert_array_equal(found, wanted)


def test_nan_and_infinities_are_kept() -> None:
    x = np.full((70, 12), -np.inf, np.float32)
    x[3, 5], x[4, 0], x[5, 11], x[6, 7] = np.nan, np.nan, np.nan, 2
    for f in (lambda x: x.max(-1), lambda x: (-x).min(-1), lambda x: (x + x).max(-1)):
        np.testing.assert_array_equal(np.asarray(fuser.jit(f, backend="c")(x)), f(x))


@pytest.mark.parametrize("extent", [5, 7, 13, 17, 31, 40, 100])
def test_vectors_of_a_row_may_overlap_where_an_element_counts_twice(extent: int) -> None:
    """The last vector begins before the one before it ends; nan is found in all of them, and nothing of the next row is."""
    x = RANDOM.standard_normal((130, extent)).astype(np.float32)
    x[np.arange(extent), np.arange(extent)] = np.nan
    x[::7, 0] = np.inf
    for f in (lambda x: x.max(-1), lambda x: (x * 2).min(-1), lambda x: (x > -1).all(-1), lambda x: (x > 2).any(-1)):
        assert schedules(f, x, asked=TREE)[0].reduction == "tree"
        np.testing.assert_array_equal(np.asarray(fuser.jit(f, backend="c", schedule=TREE)(x)), f(x))


def test_rows_that_are_only_compared_are_not_padded() -> None:
    def rows(f: Callable[..., Any], extent: int) -> PaddedRows:
        [group] = fuser.jit(f, backend="c").lower(np.zeros((100, extent), np.float32)).plan.groups
        kernel = lower(group)
        found = padded_rows(kernel, arrange(kernel))
        assert found is not None
        return found

    assert (rows(lambda x: x.max(-1), 40).vectors, rows(lambda x: x.max(-1), 40).whole) == ([0, 16, 24], True)
    assert rows(lambda x: x.min(-1), 13).vectors == [0, 5]
    assert (rows(lambda x: x.sum(-1), 40).vectors, rows(lambda x: x.sum(-1), 40).whole) == ([0, 16, 32], False)
    assert rows(lambda x: x.max(-1) + x.sum(-1), 40).padded == 48
    assert rows(lambda x: fnp.sin(x).max(-1), 30).padded == 32  # what is left of a row has no vectors of functions
    assert rows(lambda x: fnp.sin(x).max(-1), 32).whole


def test_rows_apart_in_memory_and_shared_by_all() -> None:
    x, w = RANDOM.standard_normal((3, 90, 24)).astype(np.float32), RANDOM.standard_normal(24).astype(np.float32)

    def f(x: Any, w: Any) -> tuple[Any, ...]:
        return x[:, :, 2:14].max(-1), x[:, ::-1, 1:17].max(-1), (x[:, ::2] * w).max(-1), x[1:].min(-1)

    for n, wanted in enumerate(f(x, w)):
        found = fuser.jit(lambda x, w, n=n: f(x, w)[n], backend="c", schedule=TREE)(x, w)
        np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize("extent", [6, 12, 20, 40, 50, 64])
def test_rows_of_which_an_element_is_picked_are_short_rows_all_the_same(extent: int) -> None:
    """What a row reads once, at a computed place or in another array, keeps its elements from no form; some indices lie outside."""
    x, labels = (
        RANDOM.standard_normal((150, extent)).astype(np.float32),
        RANDOM.integers(0, extent, 150).astype(np.int32),
    )
    labels[:5], weights = [-1, -extent, 0, extent - 1, 2], RANDOM.standard_normal(300).astype(np.float32)

    def loss(x: Any, labels: Any, weights: Any) -> Any:
        scores = fuser.nn.log_softmax(x)
        return -fnp.take_along_axis(scores, labels[:, None], 1)[:, 0] * weights[::-2]

    wide = x.astype(np.float64)
    scores = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    wanted = -scores[np.arange(150), labels] * weights[::-2]
    for asked in (NOTHING_ASKED, TREE, Schedule(reduction="rows side by side"), Schedule(reduction="inner")):
        try:
            found = np.asarray(fuser.jit(loss, backend="c", schedule=asked)(x, labels, weights))
        except UnsupportedError:
            assert asked is not NOTHING_ASKED  # rows of 6 are no rows side by side, and unrolled where nothing is asked
            continue
        np.testing.assert_allclose(
            found, wanted, rtol=0, atol=32 * 2**-24 * np.abs(scores).max() * np.abs(weights).max()
        )
    chosen = {schedule.reduction for schedule in schedules(loss, x, labels, weights)}
    assert chosen <= ({None} if extent < 8 else {"tree", "rows side by side"})


def test_results_take_over_the_memory_of_what_is_reduced() -> None:
    x = RANDOM.standard_normal((300, 12)).astype(np.float32)
    step = fuser.jit(lambda x: x / fnp.abs(x).max(-1, keepdims=True), backend="c", donate_argnums=0)
    np.testing.assert_allclose(np.asarray(step(fnp.array(x))), x / np.abs(x).max(-1, keepdims=True), rtol=1e-6)


def test_a_tree_is_chosen_by_price() -> None:
    assert way(lambda x: x.max(-1), 1000, 16) == way(lambda x: x.sum(-1), 1000, 16) == "tree"
    assert way(lambda x: x.sum(-1), 1000, 12) is None  # padding costs more than transposing in registers
    assert way(lambda x: x.max(-1), 1000, 40) == way(lambda x: x.max(-1), 1000, 14) == "tree"
    assert way(lambda x: (x > 0).all(-1), 1000, 16) == "tree" and way(lambda x: (x > 0).all(-1), 1000, 5) is None
    assert way(lambda x: x.max(-1), 1000, 4) is None  # interleaved in registers
    assert way(lambda x: fuser.nn.logsumexp(x, -1), 1000, 17) == "rows side by side"  # padding costs exponentials
    softmax, norm = fuser.nn.softmax, lambda x: x / fnp.sqrt((x * x).sum(-1, keepdims=True))
    assert [way(softmax, 1000, extent) for extent in (12, 20, 40, 60)] == [*["rows side by side"] * 2, "tree", "tree"]
    assert [way(norm, 1000, extent) for extent in (20, 40, 64)] == ["rows side by side", "tree", "inner"]
    assert way(lambda x: x.sum(-1), 1000, 20) == way(lambda x: x.sum(-1), 1000, 100) == "tree"
    assert way(lambda x: x.sum(-1), 1000, 7) is None  # added in order
    assert way(lambda x: x.argmax(-1), 1000, 20) == "rows side by side"
    assert way(lambda x: x.max(-1), 1000, 300) == way(lambda x: x.max(-1), 20, 64) == "inner"


def test_integers_are_not_divided_by_padding() -> None:
    x = RANDOM.integers(1, 9, (100, 12)).astype(np.int32)
    found = fuser.jit(lambda x: (100 // x).max(-1), backend="c")(x)
    np.testing.assert_array_equal(np.asarray(found), (100 // x).max(-1))
    assert way(lambda x: (100 // x).max(-1), 100, 12, np.int32) != "tree"
