"""Rows that are reduced, cut where tests of position change their answer: which are, and that they compute the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import Schedule

WHOLE = Schedule(index_set_splitting=False)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


def pieces(function: Callable, *arguments: object, **options: object) -> set[int]:
    """In how many pieces kernels that reduce are cut."""
    sources = fuser.jit(function, **options).lower(*arguments).sources
    schedules = [schedule for source in sources for schedule in source.schedules.values()]
    return {s.index_set_splitting for s in schedules if s.reduction and s.index_set_splitting}


def framed(np: Any, x: Any) -> Any:
    """Rows of which the ends are computed in other ways than the inside."""
    place = np.arange(x.shape[1])
    return np.where(place < 2, x * 2, np.where(place < x.shape[1] - 3, x * x - x, x + 1))


def sharpest(x: fnp.ndarray) -> tuple[fnp.ndarray, fnp.ndarray, fnp.ndarray]:
    """A framed picture, its largest number, and whether all of it is finite."""
    found = framed(fnp, x)
    return found, found.max(), fnp.isfinite(found).all()


@pytest.mark.parametrize("shape", [(3, 64), (40, 131), (300, 257), (1, 5000), (70, 70)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_the_same_numbers(shape: tuple[int, int], dtype: str) -> None:
    x = (10 * numbers(*shape)).astype(dtype)
    found, whole = (fuser.jit(sharpest, schedule=s)(x) for s in (None, WHOLE))
    for a, b in zip(found, whole):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    exact = framed(np, x.astype(np.float64))
    tolerance = 1e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(np.asarray(found[0], np.float64), exact, rtol=tolerance, atol=tolerance)


def test_which_rows_are_cut() -> None:
    x = numbers(300, 257)
    assert pieces(sharpest, x) == {3}, "the inside, and columns on each side"
    assert not pieces(sharpest, x, schedule=WHOLE)
    assert not pieces(sharpest, numbers(300, 30)), "short rows"
    assert not pieces(lambda x: (framed(fnp, x), framed(fnp, x).sum()), x), "sums keep their order"
    assert not pieces(lambda x: (x, x.max()), x), "nothing is asked"


def test_what_is_not_a_number_reaches_the_extreme() -> None:
    x = numbers(300, 257)
    x[299, 256] = np.nan
    for found in (fuser.jit(sharpest)(x), fuser.jit(sharpest)(x[:, ::-1].copy())):
        assert np.isnan(found[1]) and not found[2]


def test_extremes_of_each_row() -> None:
    rows = lambda x: (framed(fnp, x).max(1), framed(fnp, x).min(1))
    x = numbers(300, 257)
    assert pieces(rows, x) == {3}
    for a, b in zip(fuser.jit(rows)(x), fuser.jit(rows, schedule=WHOLE)(x)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    np.testing.assert_allclose(fuser.jit(rows)(x)[0], framed(np, x.astype(np.float64)).max(1), rtol=1e-5)


def test_checks_of_padded_rows() -> None:
    """What NumPy would warn of is found where elements beside edges are."""

    def blurred(x: np.ndarray) -> np.ndarray:
        wide = np.pad(x, ((0, 0), (2, 2)), mode="edge")
        return np.clip(np.exp(wide[:, :-4] + 6 * wide[:, 2:-2] + wide[:, 4:]) ** 0.5, 0, 1) * x

    x = numbers(300, 257) / 8
    np.testing.assert_allclose(fuser.accelerate(blurred)(x), blurred(x), rtol=1e-5)
    x[7, 256] = 1e30
    with pytest.warns(RuntimeWarning, match="overflow"):
        fuser.accelerate(blurred)(x)


def test_what_a_piece_asks_of_its_whole_row_is_asked_before_its_loop() -> None:
    """gcc made two loops of one that chooses where it reads, and ran the one without vectors: a step of Jacobi's took twice the time."""

    def step(x: fnp.ndarray) -> tuple[fnp.ndarray, fnp.ndarray, fnp.ndarray]:
        new = x.at[1:-1, 1:-1].set(0.25 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]))
        return new, abs(new - x).max(), fnp.isfinite(new - x).all()

    x = numbers(100, 100)
    (source,) = fuser.jit(step, backend="c").lower(x).sources
    assert pieces(step, x) == {3}
    assert not re.search(r"\[\([^\]]*\?", source.text), "an address is chosen for each element"
    found, most, finite = fuser.jit(step, backend="c")(x)
    want = x.astype(np.float64)
    want[1:-1, 1:-1] = 0.25 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2])
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(most, abs(want - x).max(), rtol=1e-6)
    assert finite
