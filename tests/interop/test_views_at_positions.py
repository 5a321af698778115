"""`x[i]` where a value decides `i` is a view, as in NumPy: writing to it writes to x, and what is given back shares its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import accelerate


def row_is_set(x: Any) -> Any:
    row = x[x[:, 0].argmax()]
    row[:] = 0
    return x.sum()


def row_is_added_to(x: Any) -> Any:
    i = x.sum(1).argmax()
    x[i] += x[0]
    return x


def part_of_row(x: Any) -> Any:
    part = x[x[:, 0].argmax(), 1:]
    part *= 2
    return part.sum()


def view_of_a_view(x: Any) -> Any:
    row = x[x[:, 0].argmax()]
    row[1:][:] = 0
    row[0] += x[0, 2]
    return np.linalg.norm(row)


def two_rows(x: Any) -> Any:
    a, b = x[x.sum(1).argmax()], x[x.sum(1).argmin()]
    a[1:3] = b[:2]
    b *= 2
    return a + b


def array_without_axes(x: Any) -> Any:
    copied = x[np.asarray(x[:, 0].argmax())]
    copied[:] = 5
    return copied * 2


def row_is_returned(x: Any) -> Any:
    row = x[x.sum(1).argmax()]
    x[0] = 5
    return row


def two_elements(x: Any) -> Any:
    flat = x.reshape(-1)
    i, j = flat.argmax(), flat.argmin()
    flat[i] = 1
    flat[j] = 2
    return flat.sum()


def rows_in_a_loop(x: Any) -> Any:
    n = i = 0
    while x.max() > 0 and n < 5:
        i = (i + 3) % len(x)
        row = x[i]
        row[:] = -1
        n += 1
    return n


def elimination(x: Any) -> Any:
    for k in range(4):
        p = k + np.abs(x[k:, k]).argmax()
        if p != k:
            kept = x[k].copy()
            x[k] = x[p]
            x[p] = kept
        x[k + 1 :, k] /= x[k, k]
        x[k + 1 :, k + 1 :] -= np.outer(x[k + 1 :, k], x[k, k + 1 :])
    return x


def in_segments(x: Any) -> Any:
    found = []
    for k in range(3):
        found.append(x[x[:, k].argmin()])
        if float(found[-1].sum()) < 0:
            found[-1][:] = k
    return found


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    row_is_set, row_is_added_to, part_of_row, view_of_a_view, two_rows, array_without_axes, row_is_returned, two_elements,
    rows_in_a_loop, elimination, in_segments,
)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_as_in_numpy(function: Callable[..., Any]) -> None:
    x = np.random.default_rng(0).standard_normal((6, 5))
    accelerated = accelerate(function)
    for _ in range(3):
        theirs, mine = x.copy(), x.copy()
        expected, found = (r if isinstance(r, list) else [r] for r in (function(theirs), accelerated(mine)))
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        for e, f in zip(expected, found, strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-12)
            assert np.shares_memory(e, theirs) == np.shares_memory(f, mine)
