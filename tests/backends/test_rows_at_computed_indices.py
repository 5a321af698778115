"""Rows at computed indices that are reduced across: where they lie is found before the loop over columns, for several rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp


def reduced(module: Any, x: Any, y: Any, rows: Any) -> tuple[Any, ...]:
    return (
        module.argmax(x[rows], 0),
        module.max(x[rows] * 2, 0),
        module.sum(x[rows], 0),
        module.min(x[rows] + y[rows[::-1]], 0),
        module.sum(module.where(rows[:, None] > 3, x[rows], 0), 0),
        module.cumsum(x[rows], 0),
    )


@pytest.mark.parametrize("columns", (1, 5, 16, 64, 300, 2100))
@pytest.mark.parametrize("count", (3, 8, 64, 203))
def test_rows_at_computed_indices(columns: int, count: int) -> None:
    random = np.random.default_rng(columns + count)
    x, y = (random.integers(-9, 9, (50, columns)).astype(np.float32) for _ in range(2))
    rows = random.integers(0, 50, count).astype(np.int32)
    found = fuser.jit(lambda *args: reduced(fnp, *args), backend="c")(x, y, rows)
    for a, b in zip(found, reduced(np, x, y, rows), strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)
