"""Reductions across rows: how many rows are reduced at once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax

X = np.random.default_rng(0).standard_normal((400, 320)).astype(np.float32)


def text_of(function) -> str:
    [source] = fuser.jit(function).lower(X).sources
    return source.text


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("columns", [7, 17, 64, 100, 320])
@pytest.mark.parametrize("name", ["tanh", "exp", "sin"])
def test_four_rows_with_a_function_of_maths_are_reduced_at_once(name: str, columns: int, stored: bool) -> None:
    """A function's steps wait for each other, and a row is few vectors: 2,000 rows of 64 `tanh` in 58 us, one by one in 83."""
    x = X.reshape(-1)[: 403 * columns].reshape(-1, columns)[:311]  # a number of rows that no four divide

    def function(x):
        y = x + 1
        most, sums = getattr(fnp, name)(y).max(0), (getattr(fnp, name)(y) * 0.5).sum(0)
        return (most, sums, y) if stored else (most, sums)

    found = fuser.jit(function)(x)
    y = (x + np.float32(1)).astype(np.float64)
    values = getattr(np, name)(y)
    np.testing.assert_allclose(found[0], values.max(0), rtol=1e-6)
    np.testing.assert_allclose(found[1], values.sum(0) * 0.5, rtol=2e-6, atol=1e-6 * np.abs(values).sum(0).max())
    if stored:
        np.testing.assert_array_equal(found[2], x + np.float32(1))


def test_how_many_rows_with_functions_of_maths_are_reduced_at_once() -> None:
    """Eight copies of a polynomial have more constants than registers hold; several functions fill the time between them by themselves."""
    assert (
        text_of(lambda x: fnp.max(fnp.tanh(x), axis=0)).count("tanh_f32(") == 5
    )  # of four rows, and of what is left over
    assert text_of(lambda x: fnp.max(fuser.lax.lgamma(x), axis=0)).count("lgamma_f32(") == 1


def test_long_rows_that_are_stored_are_reduced_one_by_one() -> None:
    """Four rows side by side of 1,024 numbers, stored into four arrays, shared sets of a cache: 230 us, where one by one take 97."""

    def together(columns: int, stores: int) -> bool:
        x = np.random.default_rng(columns).standard_normal((40, columns)).astype(np.float32)
        function = lambda xp, x: (xp.max(xp.tanh(x), 0), *(x * n for n in range(1, stores + 1)))
        jitted = fuser.jit(lambda x: function(fnp, x))
        for found, wanted in zip(jitted(x), function(np, x.astype(np.float64)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        return jitted.lower(x).sources[0].text.count("tanh_f32(") > 1

    assert [together(columns, 1) for columns in (64, 300, 512, 1024)] == [True, True, False, False]
    assert [together(300, stores) for stores in (0, 2, 3)] == [True, True, False]
    assert together(1024, 0)


def test_cheap_rows_are_reduced_eight_at_a_time() -> None:
    function = lambda x: fnp.max(x * x, axis=0)
    assert text_of(function).count(" * v") == 9  # of eight rows, and of what is left over
    np.testing.assert_allclose(fuser.jit(function)(X), (X.astype(np.float64) ** 2).max(0), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [32, 24, 5])
def test_loads_under_tests_that_columns_share_begin_before_their_loop(dtype: type, columns: int) -> None:
    """Rows of a shifted image are the border's or another row's: an address chosen within the loop over columns would keep it
    from being vectorised, as a truth value from outside of it would."""
    image, wide = np.random.default_rng(3).standard_normal((2, 4, 12, 16, columns)).astype(dtype)

    def function(image, wide):
        moved = fuser.lax.pad(image[:, :-1, :-2], image.dtype.type(0), [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 0, 0)])
        chosen = fnp.where(wide > 0, fnp.tanh(moved + image), 0)
        return chosen.sum((0, 1, 2)), (chosen * wide).sum((0, 1, 2))

    with fuser.enable_x64(dtype is np.float64):
        found = fuser.jit(function)(image, wide)
        text = "".join(source.text for source in fuser.jit(function).lower(image, wide).sources)
    moved = np.pad(image.astype(np.float64)[:, :-1, :-2], [(0, 0), (1, 0), (2, 0), (0, 0)])
    chosen = np.where(wide > 0, np.tanh(moved + image), 0)
    for value, terms in zip(found, (chosen, chosen * wide)):
        atol = 8 * np.finfo(dtype).eps * np.abs(terms).sum((0, 1, 2)).max()
        np.testing.assert_allclose(value, terms.sum((0, 1, 2)), rtol=0, atol=atol)
    if columns == 32:
        assert "_start + " in text and f"_held{np.dtype(dtype).itemsize} > 0 ?" in text


def test_several_reductions_of_eight_rows_are_held_in_registers() -> None:
    """What they have so far is read and written once for eight rows, not after each."""
    function = lambda x: (x.max(0), x.min(0), (x > 1).any(0), fnp.prod(x * 0.1 + 1, axis=0))
    assert text_of(function).count("_held = ") == 4 * (1 + 8)  # as they begin, and with each row
    found = fuser.jit(function)(X)
    for mine, wanted in zip(found, (X.max(0), X.min(0), (X > 1).any(0))):
        np.testing.assert_array_equal(mine, wanted)
    np.testing.assert_allclose(found[3], np.prod(X.astype(np.float64) * 0.1 + 1, axis=0), rtol=400 * 2**-23)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_stays_in_every_column(name: str, dtype: str) -> None:
    """Of the first row, of one among eight, and of what is left over."""
    x = X.astype(dtype)
    x[[0, 11, 399], [3, 4, 5]] = np.nan
    x[200, 4], x[:, 6] = np.inf, -np.inf
    with fuser.enable_x64():
        np.testing.assert_array_equal(np.asarray(fuser.jit(lambda x: getattr(x, name)(0))(x)), getattr(x, name)(0))


def test_a_row_at_a_computed_index_is_dense_for_all_columns() -> None:
    """The index is computed once for the row's columns, so that compilers need not gather them."""
    random = np.random.default_rng(0)
    x, rows = random.integers(-9, 9, (30, 40, 50)).astype(np.float32), random.integers(-40, 40, 15).astype(np.int32)

    def program(x, rows):
        taken = x[rows]
        return taken - taken.sum(1, keepdims=True), taken.argmax(1), taken.max(1)

    (text,) = [source.text for source in fuser.jit(program).lower(x, rows % 30).sources]
    assert not re.search(r"int64_t \w+\[", text)  # no array of the index over the columns
    for found, expected in zip(fuser.jit(program)(x, rows % 30), program(x, rows % 30), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("columns, way", [(16, "outer"), (48, "outer"), (5, "inner")])
def test_lanes_run_where_no_operand_lies_apart(columns: int, way: str) -> None:
    """Along a long row one operand is dense and the other's numbers, fewer in all, lie a row apart: columns read both as they lie."""
    random = np.random.default_rng(0)
    x = random.integers(0, 255, (100, 64)).astype(np.uint8)
    y = random.integers(0, 255, (64, columns)).astype(np.uint8)

    def program(x, y):
        pairs = (x[:, :, None] >> 1) ^ (y[None] << 1) & x[:, :, None]
        return lax.reduce(pairs, np.uint8(0), lax.bitwise_xor, (1,))

    *_, source = fuser.jit(program, backend="c").lower(x, y).sources
    (schedule,) = source.schedules.values()
    assert way in schedule.reduction
    expected = np.bitwise_xor.reduce((x[:, :, None] >> 1) ^ (y[None] << 1) & x[:, :, None], axis=1)
    np.testing.assert_array_equal(fuser.jit(program, backend="c")(x, y), expected)


@pytest.mark.parametrize("columns", (5, 30, 50))
def test_positions_of_planes_are_tested_once_a_plane(columns: int) -> None:
    """Short rows of a rolled array beside a reduction: the tests were kept for each column, and all of it gathered."""
    x = np.random.default_rng(columns).standard_normal((24, 60, columns)).astype(np.float32)

    def rolled(xp: Any, x: Any) -> tuple[Any, ...]:
        r = xp.roll(x, 2, 1)
        return xp.where(r > 0, r * 0.5, x), xp.max(x, 0), xp.flip(x, 1) + xp.min(r, 0)

    jitted = fuser.jit(lambda x: rolled(fnp, x), backend="c")
    for found, wanted in zip(jitted(x), rolled(np, x), strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)
    for source in jitted.lower(x).sources:
        assert "int64_t v" not in re.sub(r"const int64_t v\w* =", "", source.text)  # no array of positions
