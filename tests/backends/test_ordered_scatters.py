"""Combinations in the order of their targets on GPUs: how many passes they take, and what these carry along."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

import fuser
from tests.backends import scatter_cases


def _ordered(reduction: str, dtype: str, rows: int, count: int, *width: int) -> list[Any]:
    """The launches of a combination of numbers in the order of their targets."""
    types = (
        scatter_cases.of(dtype, rows, *width),
        scatter_cases.of("int32", count),
        scatter_cases.of(dtype, count, *width),
    )
    sources = fuser.jit(scatter_cases.scatter(reduction), backend="triton").lower(*types).sources
    return [launch for source in sources for launch in source.launch["launches"]]


@pytest.mark.parametrize(("rows", "passes"), [(255, 1), (256, 1), (257, 2), (1 << 16, 2), (1 << 24, 3)])
def test_places_beyond_the_last_one_take_no_pass_of_their_own(rows: int, passes: int) -> None:
    launches = _ordered("multiply", "float32", rows, 1 << 20)
    assert [launch.function for launch in launches].count("move_digits") == passes


def test_single_numbers_of_32_bits_are_carried_along() -> None:
    for dtype, width, carried in (
        ("float32", (), True),
        ("int32", (), True),
        ("float16", (), False),
        ("float32", (3,), False),
    ):
        (found,) = (x for x in _ordered("multiply", dtype, 300, 1 << 20, *width) if x.function == "combine_blocks")
        assert found.constants["CARRIED"] == carried
