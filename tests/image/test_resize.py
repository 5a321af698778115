"""jax.image against JAX."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import numbers
from differential import Row, check, check_compiled, check_derivatives, row

X = numbers(np.float32, (6, 7, 2))
SCALE, SHIFT = np.array([1.3, 0.7], np.float32), np.array([0.5, -1.0], np.float32)
METHODS = ("nearest", "linear", "cubic", "lanczos3", "lanczos5", "cubic-pytorch", "area")

ROWS: list[Row] = [
    *(row("image.resize", X, (3, 9, 2), m, grad=0, tolerance=4) for m in METHODS), *(row("image.resize", X, (12, 3, 2), m, False, tolerance=4) for m in METHODS), row("image.resize", np.arange(12).reshape(3, 4), (5, 2), "nearest"), row("image.resize", np.arange(12).reshape(3, 4), (5, 2), "linear"), row("image.resize", X.astype(np.float16), (3, 9, 2), "linear", tolerance=2),
    row("image.resize", X, (3, 9), "linear", compiled=False), row("image.resize", X, (3, 9, 2), "spline", compiled=False), *(row("image.scale_and_translate", X, (8, 8, 2), (0, 1), SCALE, SHIFT, m, grad=0, tolerance=4) for m in ("linear", "cubic", "lanczos3")), row("image.scale_and_translate", X, (8, 8, 2), (0, 1), SCALE, SHIFT, "nearest", compiled=False),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{n}-{ROWS[n]}")
def test_function(number: int) -> None:
    check(ROWS[number])


def test_derivatives_and_compiled() -> None:
    check_derivatives(ROWS)
    check_compiled(ROWS[::3])
