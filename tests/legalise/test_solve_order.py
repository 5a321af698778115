"""Larger triangular systems are solved for transposed right sides where a library takes columns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fuser import jit, lax
from fuser.ir.check import check
from fuser.ir.evaluate import evaluate
from fuser.ir.types import ArrayType
from fuser.legalise import solve_order
from fuser.ops.triangular import triangular_solve_p
from fuser.trace.stage import stage


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("lower, transposed, unit", [*itertools.product((False, True), repeat=3)])
def test_solutions_are_those_of_the_system(
    dtype: str, lower: bool, transposed: bool, unit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solve_order, "SMALLEST", 8)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((9, 9)) + 6 * np.eye(9)).astype(dtype), rng.standard_normal((9, 4)).astype(dtype)
    params = {"left_side": True, "lower": lower, "transpose_a": transposed, "conjugate_a": False, "unit_diagonal": unit}
    types = [ArrayType(x.shape, x.dtype) for x in (a, b)]
    graph = stage(lambda a, b: [triangular_solve_p.bind(a, b, **params)], types, "solve")
    turned = solve_order.with_columns(graph)
    check(turned)
    assert [e.primitive.name for e in turned.eqns] == ["transpose", "triangular_solve", "transpose"]
    part = np.tril(a) if lower else np.triu(a)
    part = part - np.diag(np.diag(part)) + np.eye(9, dtype=dtype) if unit else part
    expected = np.linalg.solve((part.T if transposed else part).astype(np.complex128), b)
    np.testing.assert_allclose(evaluate(turned, [a, b])[0], expected, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("backend, turned", [("triton", True), ("c", False)])
def test_only_where_the_library_takes_columns(backend: str, turned: bool) -> None:
    solve = lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
    for order, right, by_columns in ((300, 20, turned), (300, 1, False), (64, 64, False)):
        types = [ArrayType((order, n), np.dtype("float32")) for n in (order, right)]
        plan = jit(solve, backend=backend).lower(*types).plan
        (eqn,) = [e for g in plan.groups for e in g.graph.eqns if e.primitive is triangular_solve_p]
        assert eqn.params["left_side"] != by_columns
