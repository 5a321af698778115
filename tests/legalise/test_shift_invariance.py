"""Derivatives by a row's maximum: left out where they are 0 for every value, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import jit
from fuser.ir.evaluate import evaluate
from fuser.ir.types import ArrayType
from fuser.legalise.shift_invariance import without_gradients_of_maxima

ROWS = ArrayType((2, 7, 5), np.dtype("float64"))


def softmax(x: Any) -> Any:
    e = fnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logsumexp(x: Any) -> Any:
    m = x.max(-1, keepdims=True)
    return m + fnp.log(fnp.exp(x - m).sum(-1, keepdims=True))


def scaled(x: Any) -> Any:
    e = fnp.exp(3 * x - (3 * x).max(-1, keepdims=True))
    return (e * 0.7) / (2 * e.sum(-1, keepdims=True))


def gradient(function: Callable[[Any], Any]) -> Any:
    program = lambda x, ct: fuser.vjp(function, x)[1](ct)[0]
    with fuser.enable_x64(True):
        out = jit(function).trace(ROWS).graph.outvars[0].aval
        return jit(program, backend="c").lower(ROWS, out).plan.graph


@pytest.mark.parametrize(
    ("function", "changed", "left"),  # whether the graph changes, and whether places of maxima are still asked for
    [
        (softmax, True, False),
        (scaled, True, False),
        (logsumexp, True, False),
        (lambda x: fnp.where(x > 0, softmax(x), 0), True, False),
        (lambda x: softmax(x) + x.max(-1, keepdims=True), True, True),
        (lambda x: fnp.exp(x - x.max(-1, keepdims=True)), False, True),
        (lambda x: (e := fnp.exp(x - x.max(-1, keepdims=True))) / (e.sum(-1, keepdims=True) + 1), False, True),
        (lambda x: (e := fnp.exp(x - x.max(-1, keepdims=True))) / e.sum(-2, keepdims=True), False, True),
        (lambda x: (x - x.max(-1, keepdims=True)) / x.sum(-1, keepdims=True), False, True),
        (lambda x: x.max(-1), False, True),
    ],
)
def test_what_vanishes_is_left_out(function: Callable[[Any], Any], changed: bool, left: bool) -> None:
    graph = gradient(function)
    short = without_gradients_of_maxima(graph)
    assert (short is not graph, "eq" in [eqn.primitive.name for eqn in short.eqns]) == (changed, left)
    rng = np.random.default_rng(0)
    operands = [np.round(rng.normal(size=v.aval.shape), 1) for v in graph.invars]  # ties among them
    for a, b in zip(evaluate(short, operands), evaluate(graph, operands)):
        np.testing.assert_allclose(a, b, 0, 1e-13)
