"""Slices whose extents are computed: windows under a mask, with NumPy's views, writes, warnings and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate
from tests.interop.oracle import agree, same

X = np.random.default_rng(0).normal(size=60)
PICTURE = np.random.default_rng(1).normal(size=(18, 23))
PLACES = np.random.default_rng(2).integers(0, 60, 30)


def trailing(x: Any, w: Any) -> Any:
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = x[max(0, i - w + 1) : i + 1].mean()
    return out


def centred(x: Any, w: Any) -> Any:
    out = np.zeros((len(x), 6))
    for i in range(len(x)):
        low, high = max(0, i - w), min(len(x), i + w + 1)
        part = x[low:high]
        out[i] = np.median(part), part.max(), part.min(), (part * part).sum(), part.std(), np.count_nonzero(part > 0)
    return out


def local(picture: Any, w: Any) -> Any:
    out = np.zeros_like(picture)
    for i in range(picture.shape[0]):
        for j in range(picture.shape[1]):
            out[i, j] = picture[max(i - w, 0) : i + w + 1, max(j - w, 0) : j + w + 1].mean()
    return out


def columns(table: Any, w: Any) -> Any:
    return np.array([table[max(0, i - w) : i + 1].mean(axis=0) for i in range(len(table))])


def one_column(table: Any, w: Any) -> Any:
    return np.array([table[max(0, i - w) : i + 1, 2].sum() for i in range(len(table))])


def painted(x: Any, places: Any, w: Any) -> Any:
    for k in range(len(places)):
        i = places[k]
        x[max(0, i - w) : i + w] += 1.0
        x[max(0, i - 1) : i + 1] = 0
        part = x[max(0, i - 2) : i]
        part *= 2
    return x


def seen_through_a_view(x: Any, w: Any) -> Any:
    out = np.zeros(len(x))
    for i in range(len(x)):
        part = x[max(0, i - w) : i + 1]
        x[i] = i
        out[i] = part.sum()
    return out


def against_another(x: Any, y: Any, w: Any) -> Any:
    out = np.zeros(len(x))
    for i in range(len(x)):
        low, high = max(0, i - w), min(i + w, len(x))
        out[i] = (x[low:high] * y[low:high]).sum()
    return out


CASES = [
    (trailing, X, 7),
    (trailing, X, 200),
    (trailing, np.arange(40), 5),
    (centred, X, 5),
    (centred, np.where(X > 1, np.nan, X), 5),
    (centred, X, 1),
    (local, PICTURE, 2),
    (columns, PICTURE, 4),
    (one_column, PICTURE, 4),
    (painted, X, PLACES, 3),
    (seen_through_a_view, X, 4),
    (against_another, X, X[::-1].copy(), 4),
]


@pytest.mark.parametrize(("function", "args"), [(case[0], case[1:]) for case in CASES])
def test_as_in_numpy(function: Any, args: Any) -> None:
    for backend in ("c", "reference"):
        agree(function, *args, backend=backend)
    compiled = accelerate(function, measure=False)
    with np.errstate(all="ignore"):
        compiled(*[a.copy() if isinstance(a, np.ndarray) else a for a in args])
    assert "compiled whole" in compiled.explain()


def test_empty_slices_warn_and_raise_as_in_numpy() -> None:
    def means(x: Any, w: Any) -> Any:
        return np.array([x[max(0, i - w) : i].mean() for i in range(len(x))])

    def largest(x: Any, w: Any) -> Any:
        return np.array([x[max(0, i - w) : i].max() for i in range(len(x))])

    compiled = accelerate(means, measure=False)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
            found = compiled(X, 3)
    same(np.isnan(found), np.arange(len(X)) == 0)
    with pytest.raises(ValueError, match="zero-size array"):
        accelerate(largest, measure=False)(X, 3)


def test_ends_before_the_array_count_from_its_end() -> None:
    def wrapped(x: Any, w: Any) -> Any:
        return np.array([x[max(i - w, -3) : i + 1].sum() for i in range(len(x))])

    agree(wrapped, X, 4, backend="c")


def test_extremes_of_no_selected_element_are_errors() -> None:
    compiled = accelerate(lambda x: x[x > 5].max(), measure=False)
    for dtype in (int, float):
        assert compiled(np.arange(10, dtype=dtype)) == 9
        with pytest.raises(ValueError, match="zero-size array"):
            compiled(np.arange(3, dtype=dtype))


def test_slices_of_any_extent_of_large_arrays_are_left_to_segments() -> None:
    """What a window as large as the array would make slower by more than a factor."""

    def few(x: Any, ends: Any) -> Any:
        total = 0.0
        for k in range(len(ends)):
            total += x[ends[k] : max(ends[k] + 2, ends[k - 1])].sum()
        return total

    large = np.random.default_rng(3).normal(size=5000)
    compiled = accelerate(few, measure=False)
    same(compiled(X, PLACES), few(X, PLACES))
    assert "compiled whole" in compiled.explain()
    other = accelerate(few, measure=False)
    same(other(large, PLACES), few(large, PLACES))
    assert "in segments" in other.explain()
