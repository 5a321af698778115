"""Products with a vector on a GPU, which are sums: no kernel of blocks of 16 columns for the vector's one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.ir.graph import Literal
from fuser.legalise.gemv_to_reduce import with_vectors_as_sums
from fuser.ops.dot import dot_general_p
from fuser.partition.group import FusionGroup, Kind

CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "matrix and vector": ("nk,k->n", (300, 500), (500,)),
    "vector and matrix": ("k,kn->n", (500,), (500, 300)),
    "vectors": ("k,k->", (5000,), (5000,)),
    "batched": ("bnk,bk->bn", (7, 30, 50), (7, 50)),
    "two axes": ("nkl,kl->n", (30, 20, 50), (20, 50)),
}


def _planned(function: Callable[..., Any], *types: Any) -> list[FusionGroup]:
    groups: list[FusionGroup] = []
    for group in fuser.jit(function, backend="triton").lower(*types).plan.groups:
        groups += [group, *group.inner]
    return groups


def _types(case: str, dtype: str) -> list[Any]:
    return [fuser.ShapeDtypeStruct(shape, dtype) for shape in CASES[case][1:]]


@pytest.mark.parametrize("case", CASES)
def test_a_product_with_a_vector_is_a_reduction(case: str) -> None:
    function = lambda a, b: fnp.einsum(CASES[case][0], a, b)
    assert [group.kind for group in _planned(function, *_types(case, "float32"))] == [Kind.REDUCTION]


@pytest.mark.parametrize("case", CASES)
def test_sums_agree_with_numpy_in_float64(case: str) -> None:
    spec, *shapes = CASES[case]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    graph = with_vectors_as_sums(fuser.jit(lambda a, b: fnp.einsum(spec, a, b)).trace(*arrays).graph)
    assert not any(eqn.primitive is dot_general_p for eqn in graph.eqns)
    values: dict[Any, Any] = dict(zip(graph.invars, arrays, strict=True))
    for eqn in graph.eqns:
        operands = (np.asarray(v.val) if isinstance(v, Literal) else values[v] for v in eqn.invars)
        values[eqn.outvars[0]] = eqn.primitive.rule("eval")(*operands, **eqn.params)
    wanted = np.einsum(spec, *(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(values[graph.outvars[0]], wanted, rtol=1e-5, atol=1e-4)


def test_products_that_matrix_units_take_and_those_of_matrices_stay() -> None:
    matrices = fuser.ShapeDtypeStruct((512, 512), "float32")
    for function, types in (
        (lambda a, b: a @ b, (matrices, matrices)),
        (lambda a, b: a @ b, _types("matrix and vector", "bfloat16")),
    ):
        assert any("dot_general" in group.ops for group in _planned(function, *types))


def test_a_step_of_a_loop_takes_what_is_around_the_product_into_its_kernel() -> None:
    def step(k: Any, low: Any) -> Any:
        row = lax.dynamic_index_in_dim(low, k, 0, keepdims=False)
        column = fnp.where(fnp.arange(400) >= k, low @ row, 0.0)
        return lax.dynamic_update_index_in_dim(low, column, k, 1)

    groups = _planned(lambda a: lax.fori_loop(0, 400, step, a), fuser.ShapeDtypeStruct((400, 400), "float32"))
    found = [group for group in groups if "reduce_sum" in group.ops]
    assert [group.kind for group in found] == [Kind.REDUCTION] and "select_n" in found[0].ops
    assert not any(group.kind is Kind.CONTRACTION for group in groups)
