"""Scans of short rows: many rows beside each other in vectors, by way of tiles, whatever stride lies between rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.lax as lax
import fuser.numpy as fnp
from fuser import Schedule

EXTENTS = (8, 9, 15, 16, 24, 30, 63)
COUNTS = (64, 65, 200)


def wide(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


PROGRAMS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], Any]]] = {
    "clipped": (
        lambda x: fnp.clip(fnp.cumsum(x, 1), -1, 1),
        lambda x: np.clip(np.cumsum(x, 1), -1, 1),
    ),
    "two": (
        lambda x: (fnp.maximum(fnp.cumsum(x, 1), x), fnp.cumsum(x * x, 1)),
        lambda x: (np.maximum(np.cumsum(x, 1), x), np.cumsum(x * x, 1)),
    ),
    "backwards": (
        lambda x: lax.cumsum(x, 1, reverse=True) * 2,
        lambda x: np.cumsum(x[:, ::-1], 1)[:, ::-1] * 2,
    ),
    "product": (lambda x: fnp.cumprod(1 + x * 0.1, 1), lambda x: np.cumprod(1 + x * 0.1, 1)),
    "maximum": (lambda x: lax.cummax(x, 1), lambda x: np.maximum.accumulate(x, 1)),
    "beside a sum": (
        lambda x: fnp.cumsum(x, 1) - fnp.sum(x, 1, keepdims=True),
        lambda x: np.cumsum(x, 1) - np.sum(x, 1, keepdims=True),
    ),
    "rows backwards": (
        lambda x: fnp.cumsum(x + x[::-1], 1) * 0.5,
        lambda x: np.cumsum(x + x[::-1], 1) * 0.5,
    ),
    "parts of rows": (
        lambda x: fnp.tanh(fnp.cumsum(x[1:, : x.shape[1] - 2] * x[:-1, 2:], 1)),
        lambda x: np.tanh(np.cumsum(x[1:, : x.shape[1] - 2] * x[:-1, 2:], 1)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_scans_of_short_rows(name: str) -> None:
    ours, numpy = PROGRAMS[name]
    for extent in EXTENTS:
        for count in COUNTS:
            x = np.random.default_rng(extent).standard_normal((count, extent)).astype(np.float32)
            found, wanted = fuser.jit(ours, backend="c")(x), numpy(wide(x))
            for a, b in zip(fuser.tree.leaves(found), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                np.testing.assert_allclose(wide(a), b, rtol=2e-5, atol=2e-5, err_msg=f"{count} by {extent}")


@pytest.mark.parametrize("dtype", (np.int8, np.int32, np.float64), ids=lambda d: np.dtype(d).name)
def test_scans_of_short_rows_by_dtype(dtype: Any) -> None:
    with fuser.config.using(enable_x64=True):
        for extent in EXTENTS:
            x = np.random.default_rng(extent).integers(-3, 4, (130, extent)).astype(dtype)
            found = fuser.jit(lambda x: fnp.cumsum(x, 1, dtype=dtype) + x, backend="c")(x)
            np.testing.assert_array_equal(np.asarray(found), np.cumsum(x, 1, dtype=dtype) + x)


def test_the_form_of_scans() -> None:
    def form(function: Any, *args: Any, **asked: Any) -> str | None:
        lowered = fuser.jit(function, backend="c", **asked).lower(*args)
        return next(iter(lowered.sources[0].schedules.values())).reduction

    x = np.ones((1000, 20), np.float32)
    for ours, _ in PROGRAMS.values():
        assert form(ours, x) == "rows side by side"
    assert form(PROGRAMS["two"][0], x, schedule=Schedule(reduction="inner")) == "inner"
    assert form(PROGRAMS["two"][0], np.ones((10, 20), np.float32)) == "inner"  # few rows
    assert form(PROGRAMS["two"][0], np.ones((1000, 200), np.float32)) == "inner"  # long ones
