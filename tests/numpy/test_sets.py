"""Distinct elements and sets of them against JAX: nan, every dtype, axes, a static size, under jit and outside."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from agreement import agree, compare, ours, same, theirs

import fuser
import fuser.numpy as fnp

ARRAYS = {
    "i32": np.array([3, 1, 3, 2, 1, 7], np.int32),
    "f32": np.array([3, np.nan, 1, np.nan, -0.0, 0.0, np.inf], np.float32),
    "bf16": np.array([1, np.nan, 2, np.nan, 1], ml_dtypes.bfloat16),
    "bool": np.array([True, False, True]),
    "c64": np.array([1 + 2j, 1 + 1j, np.nan, 1 + 2j, complex(0, np.nan)], np.complex64),
    "rows": np.array([[3, 1], [3, 1], [0, 2]], np.int32),
    "empty": np.zeros(0, np.float32),
    "no columns": np.zeros((2, 0), np.float32),
    "number": np.array(3, np.float32),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("equal_nan", [True, False])
def test_unique_of_known_values(name, equal_nan):
    x = ARRAYS[name]
    for axis in (None, -1) if x.ndim else (None,):
        same("unique", x, True, True, True, axis, equal_nan=equal_nan)


@pytest.mark.parametrize("name", ARRAYS)
def test_unique_of_a_static_size_while_tracing(name):
    """The size fixes the shape, so values may be traced: fewer are cut off, more are the fill value."""
    x = ARRAYS[name]
    for size, fill in ((0, None), (2, None), (5, 9)):
        if not x.size and size and fill is None:
            continue
        given = {"size": size, "fill_value": fill}
        found = fuser.jit(lambda v, given=given: fnp.unique(v, True, True, True, **given), backend="reference")(ours(x))
        with jax.disable_jit():
            compare(found, jnp.unique(theirs(x), True, True, True, **given))


def test_unique_compiled():
    x = ARRAYS["f32"]
    found = fuser.jit(lambda v: fnp.unique_all(v, size=9, fill_value=5))(x)
    compare(found, jnp.unique_all(x, size=9, fill_value=5))


@pytest.mark.parametrize("name", ["unique_all", "unique_counts", "unique_inverse", "unique_values"])
def test_the_array_api_s_functions(name):
    same(name, ARRAYS["f32"])
    same(name, ARRAYS["i32"], size=3)
    assert type(getattr(fnp, name)(ARRAYS["i32"])).__name__.lstrip("_") == type(
        getattr(jnp, name)(ARRAYS["i32"])
    ).__name__.lstrip("_").replace("ArrayImpl", "Array")


PAIRS = [
    (np.array([3, 1, 3, 2, 1, 7], np.int32), np.array([7, 9, 1, 1], np.int8)),
    (np.array([1.5, 2, 3, np.nan, np.nan], np.float32), np.array([3, 1, 3, 2], np.int32)),
    (np.array([1, 2], np.uint8), np.array([2, 1, 1], np.float32)),
    (np.zeros(0, np.float32), np.array([4, 4], np.int8)),
    (np.array([5], np.int32), np.zeros(0, np.int32)),
    (np.array([[0, 3], [5, 5]], np.int32), np.array([5, 0], np.int32)),
]


@pytest.mark.parametrize("pair", range(len(PAIRS)))
@pytest.mark.parametrize("name", ["union1d", "setdiff1d", "setxor1d", "intersect1d"])
def test_sets(name, pair):
    """setdiff1d keeps the dtype of the first; the others have the promoted one."""
    first, second = PAIRS[pair]
    same(name, first, second)
    for size, fill in ((2, None), (6, 4)):
        if name == "intersect1d" and fill is None and not (first.size and second.size):
            continue  # JAX pads with whatever element stands first
        same(name, first, second, size=size, fill_value=fill)
    if name != "union1d":
        same(name, np.unique(first), np.unique(second), assume_unique=True)
        if first.size and second.size:
            same(name, np.unique(first), np.unique(second), assume_unique=True, size=4)


@pytest.mark.parametrize("pair", range(len(PAIRS)))
def test_positions_of_an_intersection(pair):
    same("intersect1d", *PAIRS[pair], return_indices=True)
    if all(v.size for v in PAIRS[pair]):
        same("intersect1d", *PAIRS[pair], return_indices=True, size=4)


def test_histograms_have_the_dtype_of_the_data():
    for x, bins in ((np.arange(5), np.array([0, 2.5, 4])), (np.ones(3, np.float16), np.array([0, 1, 2], np.float32))):
        agree(fnp.histogram, jnp.histogram, x, bins)
    agree(fnp.histogram, jnp.histogram, np.arange(6, dtype=np.int8), 3)
