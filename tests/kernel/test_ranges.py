"""Ranges of integers that a kernel computes, beside all values that they take; and shifts whose counts they make known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.ir import scalar as S
from fuser.ir.index import Affine, Axis
from fuser.kernel.ranges import known_count, value_range

A, B = Axis(5, "a"), Axis(3, "b")
INT, BYTE = np.dtype("int32"), np.dtype("uint8")


def index(axis: Axis, dtype: np.dtype = INT) -> S.Scalar:
    return S.Scalar("index", (), dtype, Affine.of(axis))


@pytest.mark.parametrize(
    ("form", "tight"),
    [
        (lambda a, b: a + b, True),
        (lambda a, b: 7 - a, True),
        (lambda a, b: a - b, True),
        (lambda a, b: (a - 2) * (b - 1), True),
        (lambda a, b: a & 3, True),
        (lambda a, b: (a + b * 8) & 7, False),
    ],
)
def test_ranges_hold_every_value(form, tight: bool) -> None:
    low, high = value_range(form(index(A), index(B)))
    values = [form(np.int32(a), np.int32(b)) for a, b in itertools.product(range(5), range(3))]
    assert low <= min(values) and max(values) <= high
    assert not tight or (low, high) == (min(values), max(values))


def test_what_may_wrap_has_the_range_of_its_dtype() -> None:
    assert value_range(S.constant(3, BYTE) - index(A, BYTE)) == (0, 255)
    assert value_range(S.constant(7, BYTE) - index(A, BYTE)) == (3, 7)
    assert not known_count(S.constant(3, BYTE) - index(A, BYTE), 8)
    with pytest.raises(TypeError, match="value_range needs an integer expression, got float32"):
        value_range(S.constant(1.0, np.dtype("float32")))


def test_counts_of_shifts_that_positions_bound_are_not_tested() -> None:
    run = fuser.jit(lambda x: (x[:, None] >> fnp.arange(8, dtype="uint8")) & 1)
    beyond = fuser.jit(lambda x: (x[:, None] >> fnp.arange(12, dtype="uint8")) & 1)
    x = np.arange(256, dtype="uint8").repeat(40)
    np.testing.assert_array_equal(np.asarray(run(x)), np.unpackbits(x[:, None], axis=1, bitorder="little"))
    want = np.concatenate([np.unpackbits(x[:, None], axis=1, bitorder="little"), np.zeros((x.size, 4), "uint8")], 1)
    np.testing.assert_array_equal(np.asarray(beyond(x)), want)
    tests = [f.lower(x).sources[0].text.count("< 8 ?") for f in (run, beyond)]
    assert tests[0] == 0 and tests[1] > 0
