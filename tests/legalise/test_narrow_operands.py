"""Scans over transposed arrays of small numbers: what is copied first, what is not, and results against a loop in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.lax as lax
import fuser.numpy as fnp
from fuser.partition.group import Kind

RNG = np.random.default_rng(0)


def hashed(x: Any) -> Any:
    start = fnp.full(x.shape[0], 2166136261, "uint32")
    return lax.scan(lambda h, c: ((h ^ c.astype("uint32")) * np.uint32(16777619), None), start, x.T)[0]


def kinds(function: Any, x: np.ndarray) -> list[Kind]:
    return [group.kind for group in fuser.jit(function).lower(x).plan.groups]


@pytest.mark.parametrize(
    "dtype, shape, copied",
    [
        ("uint8", (10_000, 32), True),
        ("uint16", (10_000, 32), True),
        ("uint32", (10_000, 32), False),  # is gathered
        ("uint8", (100, 8), False),  # a copy would be a launch more
        ("uint8", (4, 80_000), False),  # fewer lanes than a vector has
    ],
)
def test_small_numbers_across_memory_are_copied_where_that_takes_less(
    dtype: str, shape: tuple[int, int], copied: bool
) -> None:
    x = RNG.integers(0, 256, shape).astype(dtype)
    assert kinds(hashed, x) == ([Kind.ELEMENTWISE, Kind.LOOP] if copied else [Kind.LOOP])
    expected = np.full(shape[0], 2166136261, np.uint32)
    for column in x.T:
        expected = (expected ^ column) * np.uint32(16777619)
    np.testing.assert_array_equal(np.asarray(fuser.jit(hashed)(x)), expected)


def test_what_is_made_of_small_numbers_across_memory_is_stored() -> None:
    """A conversion before the loop has its own kernel, which reads through tiles."""

    def filtered(x: Any) -> Any:
        rows = fnp.sin(x.astype("float32").T * 0.01)
        return lax.scan(lambda h, c: (0.5 * h + c, None), fnp.zeros(x.shape[0], "float32"), rows)[0]

    x = RNG.integers(0, 256, (20_000, 32)).astype(np.uint8)
    assert kinds(filtered, x) == [Kind.ELEMENTWISE, Kind.LOOP]
    expected = np.zeros(x.shape[0])
    for column in x.T:
        expected = 0.5 * expected + np.sin(column * 0.01)
    np.testing.assert_allclose(np.asarray(fuser.jit(filtered)(x)), expected, atol=1e-5)


def test_small_numbers_along_lanes_are_read_where_they_lie() -> None:
    def summed(x: Any) -> Any:
        return lax.scan(lambda h, c: (0.5 * h + c, None), fnp.zeros(x.shape[1], "float16"), x)[0]

    assert kinds(summed, np.ones((32, 10_000), np.float16)) == [Kind.LOOP]
