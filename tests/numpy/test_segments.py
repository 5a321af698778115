"""Reductions by segment against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import numbers
from differential import Row, check, check_compiled, check_derivatives, row

import fuser
import fuser.numpy as fnp

IDS = np.array([0, 3, 0, 2, -1, 9, 3], np.int32)
DATA = numbers(np.float32, (7, 2))
NAMES = ("segment_sum", "segment_prod", "segment_max", "segment_min")
ROWS: list[Row] = [
    *(row(f"ops.{name}", DATA, IDS, 5, grad=() if name == "segment_prod" else 0) for name in NAMES),
    *(
        row(f"ops.{name}", numbers(kind, (7,)), IDS, num_segments=4)
        for name in NAMES
        for kind in ("int8", "uint8", "float16")
    ),
    *(row(f"ops.{name}", DATA, IDS, num_segments=5, bucket_size=3) for name in NAMES),
    *(row(f"ops.{name}", numbers(bool, (7,)), IDS, num_segments=4) for name in NAMES[2:]),
    row("ops.segment_sum", DATA, IDS, 5, mode="clip"),
    row("ops.segment_sum", DATA, np.abs(IDS), compiled=False),
    row("ops.segment_sum", DATA, IDS, -1, compiled=False),
]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{n}-{ROWS[n]}")
def test_segments(number: int) -> None:
    check(ROWS[number])


@pytest.mark.slow
def test_compiled_segments() -> None:
    check_compiled(ROWS)


def test_derivatives_of_segments() -> None:
    check_derivatives(ROWS)


def combined(at: Any, how: str, rows: Any) -> Any:
    return getattr(at, how)(rows)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 20, 31, 33])
def test_rows_combined_with_rows_of_all_widths(width: int, dtype: str) -> None:
    """Each part of a vector of a row: results, nan and the signs of zeros as in JAX."""
    random = np.random.default_rng(width)
    x = random.integers(-3, 4, (300, width)).astype(np.float64)
    with fuser.enable_x64(dtype == "float64"), jax.enable_x64(dtype == "float64"):
        if dtype[0] in "fb":
            x[random.random(x.shape) < 0.3] = -0.0
            x[random.random(x.shape) < 0.01] = np.nan
        x = np.asarray(jnp.asarray(np.abs(x) if dtype == "uint8" else x, dtype))
        ids = random.integers(0, 70, 300).astype(np.int32)
        for name in ("max", "min", "add"):
            mine = fuser.jit(lambda x, i, how=name: combined(fnp.zeros((70, width), dtype).at[i], how, x))(x, ids)
            theirs = jax.jit(lambda x, i, how=name: combined(jnp.zeros((70, width), dtype).at[i], how, x))(x, ids)
            a, b = np.asarray(mine).astype(np.float64), np.asarray(theirs).astype(np.float64)
            np.testing.assert_array_equal(a, b)
            there = ~np.isnan(b)
            np.testing.assert_array_equal(np.signbit(a[there]), np.signbit(b[there]), name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@pytest.mark.parametrize("largest", [True, False])
def test_extremes_of_numbers_that_come_one_by_one(dtype: str, largest: bool) -> None:
    """Whichever of two is the greater, nan among them, and zeros with the sign that JAX gives them."""
    random = np.random.default_rng(3)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 3.5, -2.5] if dtype[0] == "f" else [0, 1, 7, 100])
    values, places = random.choice(special, 6000).astype(dtype), random.integers(0, 1500, 6000).astype(np.int32)
    if dtype[0] == "f":
        values[random.integers(0, 6000, 40)] = np.nan
    name = "segment_max" if largest else "segment_min"
    with fuser.enable_x64(), jax.enable_x64():
        ours = fuser.jit(lambda v, p: getattr(fuser.ops, name)(v, p, 1500))(values, places)
        theirs = jax.jit(lambda v, p: getattr(jax.ops, name)(v, p, 1500))(values, places)
    np.testing.assert_array_equal(ours, theirs)
    there = ~np.isnan(np.asarray(theirs, np.float64))
    signs = (np.signbit(np.asarray(x, np.float64))[there] for x in (ours, theirs))
    np.testing.assert_array_equal(*signs)
