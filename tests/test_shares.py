"""Shares of the suite (`--share K/N`): together they are all of it, and each has a case of every test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import FEW, _shared


def cases(name: str, count: int) -> list[Any]:
    return [SimpleNamespace(nodeid=f"{name}[{n}]", get_closest_marker=lambda mark: None) for n in range(count)]


@pytest.mark.parametrize("shares", [1, 4, 8])
def test_shares_are_all_of_it(shares: int) -> None:
    tests = [cases(f"test_{count}", count) for count in (1, FEW - 1, FEW, 7, 8, 9, 100)]
    items = [item for test in tests for item in test]
    found = [[item.nodeid for item in _shared(items, number, shares)] for number in range(shares)]
    assert {name for share in found for name in share} == {item.nodeid for item in items}
    for share in found:
        assert all(any(item.nodeid in share for item in test) for test in tests)
    assert max(map(len, found)) <= sum(
        len(test) if len(test) < FEW else -(-len(test) // min(shares, len(test))) for test in tests
    )
