"""Scores computed again in deep programs: as many kernels as layers ask for, right, and tables of the graph made once a pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.triton import BACKEND
from fuser.ir.evaluate import evaluate
from fuser.ir.types import ArrayType
from fuser.legalise import attention, attention_recomputation
from fuser.ops.attention import attention_p

F32 = np.dtype("float32")
FEATURES = 32


def layers(x: Any, weights: Any) -> Any:
    for *parts, last in weights:
        q, k, v = (fnp.reshape(x @ part, (2, 32, 2, 16)) for part in parts)
        x = x + fnp.reshape(fuser.nn.dot_product_attention(q, k, v, is_causal=True), x.shape) @ last
    return (x * x).sum()


def traced(count: int) -> Any:
    """The gradient of so many layers, as it is planned for a GPU before scores are looked at."""
    weights = [tuple(ArrayType((FEATURES, FEATURES), F32) for _ in range(4)) for _ in range(count)]
    function = fuser.jit(fuser.grad(layers, argnums=1), backend="triton")
    return function.lower(ArrayType((2, 32, FEATURES), F32), weights).graph


def test_layers_are_kernels_each_and_tables_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [0]
    plain = attention.Surroundings.__init__

    def counted(self: Any, graph: Any) -> None:
        made[0] += 1
        plain(self, graph)

    kernels = {}
    for count in (1, 2, 12):
        graph = traced(count)
        monkeypatch.setattr(attention.Surroundings, "__init__", counted)
        made[0] = 0
        found = attention_recomputation.with_recomputed_scores(graph, BACKEND.supports)
        monkeypatch.setattr(attention.Surroundings, "__init__", plain)
        kernels[count] = sum(eqn.primitive is attention_p for eqn in found.eqns)
        assert made[0] <= 2, f"{made[0]} tables of {count} layers"
    assert kernels == {count: 3 * count for count in kernels}


def test_gradients_of_layers_are_those_of_the_plain_graph() -> None:
    graph = traced(3)
    found = attention_recomputation.with_recomputed_scores(graph, BACKEND.supports)
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(v.aval.shape).astype(v.aval.dtype) / 4 for v in graph.invars]
    for got, want in zip(evaluate(found, arrays), evaluate(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, 2e-5, 2e-6 * np.abs(want).max())
