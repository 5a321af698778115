"""The table of errors: its exact sums against `math.fsum`, the numbers that are generated, and a row of each result."""

from __future__ import annotations

import math

import numpy as np

from bench import accuracy


def test_rows_of_one_array() -> None:
    rows = list(accuracy._of_arrays(np.dtype(np.float32), 10**4, "constant"))
    assert [row.result for row in rows] == ["sum", "sum of rows", "sum of columns", "running sum"]
    assert all(row.good for row in rows)
    assert rows[3].numpy is not None and rows[3].numpy > rows[3].bound  # one element after the other


def test_exact_sums() -> None:
    x = accuracy.data("cancelling", 30_000, np.dtype(np.float64))
    exact = math.fsum(x)
    assert abs(float(accuracy._total(x, 0)) - exact) <= abs(exact) * 2**-50
    assert abs(float(accuracy._running(x)[-1]) - exact) <= abs(exact) * 2**-50
    np.testing.assert_allclose(accuracy._running(x)[:5_000], np.cumsum(x.astype(np.longdouble))[:5_000], rtol=1e-12)


def test_generated_numbers_have_the_sums_that_are_said() -> None:
    for kind in accuracy.DATA:
        numbers = accuracy._numbers(np, kind, np.arange(5_001, dtype=np.uint32))
        assert numbers.dtype == np.float32
        total, magnitude = accuracy._exact(kind, 5_001)
        assert abs(math.fsum(numbers) - float(total)) <= 1e-9 * float(magnitude)
        assert abs(math.fsum(abs(numbers)) - float(magnitude)) <= 1e-9 * float(magnitude)
