"""Combinations of rows read the indices that a program wraps or limits to 0, where a kernel wrote targets of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.backends.triton import BACKEND
from fuser.ir.graph import Eqn, Graph, Literal
from fuser.legalise import legalise
from fuser.partition.loop_forms import LoopForms

ROWS = 13
INDICES = np.array([0, 3, 12, 13, -1, -13, -14, 5, 3, 2**31 - 1, -(2**31)], np.int32)
VALUES = np.arange(1, len(INDICES) + 1, dtype=np.float32)


def _legal(function: Callable[..., Any], *arrays: Any) -> Graph:
    return legalise(fuser.jit(function, backend="triton").trace(*arrays).graph, BACKEND, LoopForms(BACKEND))


def _combination(graph: Graph) -> Eqn:
    (found,) = (eqn for eqn in graph.eqns if eqn.primitive.name == "scatter_rows")
    return found


def _evaluated(graph: Graph, *arrays: Any) -> np.ndarray:
    values: dict[Any, Any] = dict(zip(graph.invars, arrays, strict=True))
    for eqn in graph.eqns:
        operands = (np.asarray(v.val) if isinstance(v, Literal) else values[v] for v in eqn.invars)
        values[eqn.outvars[0]] = eqn.primitive.rule("eval")(*operands, **eqn.params)
    return np.asarray(values[graph.outvars[0]])


def _dropped(i: Any, v: Any) -> Any:
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    return lax.scatter_add(fnp.zeros(ROWS, np.float32), i[:, None], v, numbers, mode="drop")


CASES: dict[str, tuple[Callable[..., Any], str]] = {
    "wrapped": (lambda i, v: fnp.zeros(ROWS).at[i].add(v), "from the end"),
    "limited": (lambda i, v: fnp.zeros(ROWS).at[fnp.maximum(i, 0)].add(v, mode="drop"), "first"),
    "weights": (lambda i, v: fnp.bincount(i, v, length=ROWS), "first"),
    "as they are": (_dropped, "beyond"),
}


def _wanted(negative: str, indices: np.ndarray) -> np.ndarray:
    wide = indices.astype(np.int64)
    wide = np.where(wide < 0, {"from the end": wide + ROWS, "first": 0 * wide, "beyond": wide}[negative], wide)
    inside = (wide >= 0) & (wide < ROWS)
    return np.bincount(wide[inside], VALUES[inside], ROWS)


@pytest.mark.parametrize("case", CASES)
def test_indices_are_read_as_they_are(case: str) -> None:
    function, negative = CASES[case]
    graph = _legal(function, INDICES, VALUES)
    eqn = _combination(graph)
    assert eqn.params.get("negative") == negative and eqn.invars[1].aval.dtype == np.int32
    assert not {"lt", "select_n", "max", "convert_element_type"} & {e.primitive.name for e in graph.eqns}
    np.testing.assert_array_equal(_evaluated(graph, INDICES, VALUES), _wanted(negative, INDICES))
    plan = fuser.jit(function, backend="triton").lower(INDICES, VALUES).plan
    assert (
        sum(v.aval.size == len(INDICES) for g in plan.groups for v in g.graph.outvars) <= 1
    )  # the updates' copy at most


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint32", "int64"])
@pytest.mark.parametrize("case", CASES)
def test_indices_of_other_dtypes_mean_the_same(case: str, dtype: str) -> None:
    function, negative = CASES[case]
    with fuser.enable_x64():
        indices = INDICES.astype(dtype)
        if dtype == "int64":
            indices[3] = 2**32 + 3  # what 32 bits would take for a row
        found = _evaluated(_legal(function, indices, VALUES), indices, VALUES)
    if case == "weights" and dtype in ("uint32", "int64"):
        indices = indices.astype(np.int32)  # as in JAX
    np.testing.assert_array_equal(found, _wanted(negative, indices))


def test_what_wraps_by_another_number_or_is_limited_otherwise_stays() -> None:
    for function in (
        lambda i, v: _dropped(fnp.where(i < 0, i + 5, i), v),
        lambda i, v: _dropped(fnp.maximum(i, 1), v),
    ):
        graph = _legal(function, INDICES, VALUES)
        assert {"select_n", "max"} & {e.primitive.name for e in graph.eqns}
        targets = (
            np.maximum(INDICES, 1)
            if any(e.primitive.name == "max" for e in graph.eqns)
            else np.where(INDICES < 0, INDICES + 5, INDICES)
        )
        np.testing.assert_array_equal(_evaluated(graph, INDICES, VALUES), _wanted("beyond", targets))


def test_clipped_and_several_components_are_computed_before() -> None:
    clipped = _legal(lambda i, v: fnp.zeros(ROWS).at[i].add(v, mode="clip"), INDICES, VALUES)
    pairs = _legal(lambda i, v: fnp.zeros((ROWS, 3)).at[i, i].add(v), INDICES, VALUES)
    for graph in (clipped, pairs):
        assert _combination(graph).invars[1].aval.dtype == np.uint32
