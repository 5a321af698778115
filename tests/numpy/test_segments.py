"""Reductions by segment against JAX."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import numbers
from differential import Row, check, check_compiled, check_derivatives, row

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
