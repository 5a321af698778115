"""Positions of extremes in short rows: ties, zeros of both signs, infinities and nan in every type, as JAX has them."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser.backends.c.schedules.argreduce import FEWEST, LONGEST_BY_KEYS, SHORTEST

FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]
WHOLE = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.bool_]
ROWS = 60


def rows(dtype, n: int) -> np.ndarray:
    """Few different values, so that there are many ties."""
    random = np.random.default_rng(n)
    if dtype in FLOATS:
        values = [np.nan, -0.0, 0.0, np.inf, -np.inf, 1.0, -1.0, 1e-3, -1e-3]
        share = np.where(random.random((ROWS, 1)) < 0.5, 0, 1)  # half of the rows without nan
        return np.array(values, np.float32)[random.integers(share, len(values), (ROWS, n))].astype(dtype)
    edges = [False, True] if dtype == np.bool_ else [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1]
    return random.choice(np.array(edges), (ROWS, n)).astype(dtype)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", FLOATS + WHOLE, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("n", [FEWEST - 1, FEWEST, 7, 16, 23, SHORTEST, LONGEST_BY_KEYS, LONGEST_BY_KEYS + 1])
def test_positions(name, dtype, n) -> None:
    x = rows(dtype, n)
    ours = fuser.jit(lambda x: getattr(jnp, name)(x, 1))(x)
    np.testing.assert_array_equal(ours, getattr(jax.numpy, name)(x, 1))


@pytest.mark.parametrize("n, by_keys", [(32, True), (512, True), (LONGEST_BY_KEYS, True), (LONGEST_BY_KEYS + 1, False)])
def test_which_rows_are_looked_through_once(n, by_keys) -> None:
    """By keys, which narrow numbers have; others, and those of long rows, block by block."""
    with fuser.config.using(enable_x64=True):
        narrow, wide = (
            fuser.jit(lambda x: jnp.argmax(x, 1), backend="c").lower(np.ones((ROWS, n), dtype)).sources[0].text
            for dtype in (np.float32, np.int64)
        )
    assert ("_key" in narrow) is by_keys and "_key" not in wide


def test_both_at_once_with_work_before_and_after() -> None:
    x = rows(np.float32, 16)
    run = lambda np, x: (
        np.argmax(x * 2, 1),
        np.argmin(x * 2, 1),
        np.where(np.argmin(x, 1)[:, None] == np.arange(16), x, 5),
    )
    for ours, theirs in zip(fuser.jit(lambda x: run(jnp, x))(x), jax.jit(lambda x: run(jax.numpy, x))(x)):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n", [16, SHORTEST + 6])
def test_extremes_of_running_sums(n) -> None:
    """A running sum is no vector loop, so that its extremes are found one after the other."""
    x = np.random.default_rng(0).integers(-2, 3, (ROWS, n)).astype(np.float32)
    run = lambda np, x: np.argmax(np.cumsum(x, 1), 1)
    np.testing.assert_array_equal(fuser.jit(lambda x: run(jnp, x))(x), run(np, x))


@pytest.mark.parametrize("n", [FEWEST, 40, 300, LONGEST_BY_KEYS + 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32], ids=lambda d: np.dtype(d).name)
def test_positions_beside_sums_and_results_of_the_same_rows(n, dtype) -> None:
    """They have a loop of their own, before the one that writes."""
    x = np.random.default_rng(n).integers(-5, 6, (ROWS, n)).astype(dtype)

    def run(np, x):
        raised = np.where(x > 0, x, x + 1)
        return np.argmax(raised, 1), x.sum(1), np.maximum(x, 0), np.argmin(x, 1), raised - np.max(x, 1, keepdims=True)

    for ours, theirs in zip(fuser.jit(lambda x: run(jnp, x))(x), run(np, x)):
        np.testing.assert_array_equal(ours, theirs)
