"""Positions and extremes of truth values in a loop whose rows are written out: chains that read each once, which compilers take in linear time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import jit, lax
from fuser.ir import scalar as S
from fuser.partition.values import extreme_index

X = np.random.default_rng(0).normal(size=50)


def test_positions_of_truth_values_in_a_loop() -> None:
    def body(i: Any, carry: Any) -> Any:
        first, last, many = carry
        first += fnp.argmax(first * 0.1 + i < X)
        return (
            first,
            last + fnp.argmin(first * 0.1 + i > X),
            many + fnp.max(first * 0.01 < X) + fnp.min(first * 0.01 - 5 < X),
        )

    found = jit(lambda: lax.fori_loop(0, 20, body, (0, 0, 0)))()
    first = last = many = 0
    for i in range(20):
        first += int(np.argmax(first * 0.1 + i < X))
        last += int(np.argmin(first * 0.1 + i > X))
        many += int(np.max(first * 0.01 < X)) + int(np.min(first * 0.01 - 5 < X))
    assert tuple(map(int, found)) == (first, last, many)


@pytest.mark.parametrize("reduction", ["argmax", "argmin"])
def test_a_position_of_truth_values_reads_each_once(reduction: str) -> None:
    number = np.dtype(np.int64)
    terms = [S.constant(n, number) < S.constant(3, number) for n in range(6)]
    nodes, stack = {}, [extreme_index(reduction, terms, number)]
    while stack:
        node = stack.pop()
        if id(node) not in nodes:
            nodes[id(node)] = node
            stack += node.args
    readers = [sum(any(arg is term for arg in node.args) for node in nodes.values()) for term in terms]
    assert max(readers) == 1
