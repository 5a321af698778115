"""Combinations of rows whose updates are all the same have one row of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.triton import BACKEND
from fuser.legalise import legalise
from fuser.partition.loop_forms import LoopForms

X, I, ROW = np.zeros((9, 4), np.float32), np.zeros(50, np.int32), np.zeros(4, np.float32)


def updates(function: Any, *arguments: Any) -> list[tuple[int, ...]]:
    """The shapes of the updates of all combinations."""
    graph = fuser.jit(function, backend="triton").trace(*arguments).graph
    legal = legalise(graph, BACKEND, LoopForms(BACKEND))
    return [eqn.invars[2].aval.shape for eqn in legal.eqns if eqn.primitive.name == "scatter_rows"]


@pytest.mark.parametrize(
    "function, arguments, shape",
    [
        (lambda x, i: x.at[i].add(1.0), (X, I), (1, 4)),
        (lambda x, i, v: x.at[i].max(v), (X, I, np.float32(2)), (1, 4)),
        (lambda x, i, v: x.at[i].set(v.reshape(1, 1)), (X, I, ROW[:1]), (1, 4)),
        (lambda x, i, v: x.at[i].add(v), (X, I, ROW), (1, 4)),
        (lambda x, i, v: x.at[i].add(v[:, None]), (X, I, np.zeros(50, np.float32)), (50, 4)),
        (lambda x, i: x.at[i].multiply(2.0), (X, I), (50, 4)),
        (lambda x, i: x.at[i].add(1.0, unique_indices=True), (X, I), (50, 4)),
        (lambda i: fnp.bincount(i, length=9), (I,), (1, 1)),
        (lambda i, w: fnp.bincount(i, w, length=9), (I, np.zeros(50, np.float32)), (50, 1)),
    ],
)
def test_one_row_stands_for_all(function: Any, arguments: tuple[Any, ...], shape: tuple[int, int]) -> None:
    assert updates(function, *arguments) == [shape]


def test_updates_of_all_targets_are_not_made() -> None:
    """A histogram reads its targets, and nothing else of their number."""
    plan = fuser.jit(lambda i: fnp.bincount(i, length=9), backend="triton").lower(np.zeros(5000, np.int32)).plan
    sizes = [v.aval.size for group in plan.groups for v in group.graph.invars if v.aval.size >= 5000]
    assert len(sizes) == 1  # the integers themselves
