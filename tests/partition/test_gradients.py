"""Kernels of value and gradient asked together: losses over rows and normalisations are one pass over their operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax, nn
from fuser.ir.types import ArrayType
from fuser.partition.group import Kind, Plan
from fuser.scipy.special import logsumexp
from tests.partition.test_partition import ideal, kinds, moved, planned

F32 = np.float32
RNG = np.random.default_rng(0)
X = RNG.standard_normal((48, 128)).astype(F32)
CT = RNG.standard_normal((48, 128)).astype(F32)
W = RNG.standard_normal(128).astype(F32)
LABELS = RNG.integers(-128, 128, 48).astype(np.int32)


def layer_norm(x: Any, w: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w


def rms_norm(x: Any, w: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


def with_cotangent(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's result, and the cotangent of its first argument from that of the result."""

    def both(ct: Any, x: Any, *rest: Any) -> Any:
        out, pull = fuser.vjp(lambda x: function(x, *rest), x)
        return out, pull(ct)[0]

    return both


ROWS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "logsumexp": (with_cotangent(lambda x: logsumexp(x, axis=1)), (W[:48], X)),
    "softmax": (with_cotangent(nn.softmax), (CT, X)),
    "log softmax": (with_cotangent(nn.log_softmax), (CT, X)),
    "layer norm": (with_cotangent(layer_norm), (CT, X, W)),
    "rms norm": (with_cotangent(rms_norm), (CT, X, W)),
    "max": (with_cotangent(lambda x: x.max(1)), (W[:48], X)),
    "standard deviation": (with_cotangent(lambda x: x.std(1)), (W[:48], X)),
}


@pytest.mark.parametrize("name", list(ROWS))
def test_a_value_with_its_gradient_is_one_kernel(name: str) -> None:
    function, args = ROWS[name]
    plan = planned(function, *args)
    assert kinds(plan) == [Kind.REDUCTION]
    assert moved(plan) == ideal(plan)


LOSSES: dict[str, Callable[..., Any]] = {
    "take_along_axis": lambda x, label: -fnp.take_along_axis(nn.log_softmax(x), label[:, None], 1).mean(),
    "take_along_axis of the logits": lambda x, label: (
        logsumexp(x, axis=1) - fnp.take_along_axis(x, label[:, None], 1)[:, 0]
    ).mean(),
    "x[arange, label]": lambda x, label: -nn.log_softmax(x)[fnp.arange(x.shape[0]), label].mean(),
    "one_hot": lambda x, label: -(nn.one_hot(label, x.shape[1]) * nn.log_softmax(x)).sum(1).mean(),
    "vmap of x[label]": lambda x, label: -fuser.vmap(lambda row, i: nn.log_softmax(row)[i])(x, label).mean(),
}


def one_pass(plan: Plan, rows: int) -> bool:
    """Whether all but the mean over rows is one kernel that reads the operands and writes the gradient."""
    first, *rest = plan.kernels
    small = all(v.aval.size <= rows for group in rest for v in (*group.graph.invars, *group.graph.outvars))
    extra = moved(plan) - ideal(plan)
    return first.kind is Kind.REDUCTION and len(rest) == 1 and small and extra <= 2 * 4 * rows


@pytest.mark.parametrize("name", list(LOSSES))
def test_cross_entropy_with_its_gradient_is_one_pass(name: str) -> None:
    function = fuser.value_and_grad(LOSSES[name])
    plan = planned(function, X, LABELS % 128 if name == "one_hot" else LABELS)
    assert one_pass(plan, 48), plan.explain()


def test_cross_entropy_of_many_classes_is_one_pass() -> None:
    logits = fuser.ShapeDtypeStruct((8192, 4096), np.dtype("float32"))
    labels = fuser.ShapeDtypeStruct((8192,), np.dtype("int32"))
    for name, loss in LOSSES.items():
        assert one_pass(fuser.jit(fuser.value_and_grad(loss)).lower(logits, labels).plan, 8192), name


def test_the_sum_of_a_normalisation_with_its_gradient_is_one_pass() -> None:
    for norm in (layer_norm, rms_norm, lambda x, w: nn.softmax(x) * w):
        function = fuser.value_and_grad(lambda x, w, norm=norm: (norm(x, w) ** 2).sum())
        assert one_pass(planned(function, X, W), 48)
    by_columns = fuser.value_and_grad(lambda x: (abs(x - x.mean(0)) ** 3 / x.var(0)).mean())
    assert one_pass(planned(by_columns, X), 128)


def test_a_gradient_of_indexing_is_movement() -> None:
    """Slices, elements, rows by a traced index and concatenation need no scatter, forwards or backwards."""

    def loss(x: Any, i: Any) -> Any:
        rows = fnp.concatenate([x[1:5], x[i][None], x[:, 3][:1, None] * x[2:3]])
        return (x.at[i].set(rows[0]).at[2, 3].add(1.5) ** 2).sum() + (rows * x[i, 4]).sum()

    plan = planned(fuser.grad(loss), X, np.int32(7))
    assert not [e for e in plan.graph.eqns if e.primitive.name.startswith("scatter")]
    assert Kind.LIBRARY not in kinds(plan)


def test_only_scatters_that_may_meet_stay() -> None:
    rows = RNG.integers(0, 48, 64).astype(np.int32)
    plan = planned(fuser.grad(lambda x, i: (x[i] ** 2).sum()), X, rows)
    assert Kind.LIBRARY in kinds(plan)


def test_a_gather_of_many_elements_is_not_computed_again() -> None:
    """An embedding of few tokens by an expensive table stays a gather of what is in memory."""
    rows = RNG.integers(0, 48, 480).astype(np.int32)
    plan = planned(lambda x, i: fnp.exp(x)[i], X, rows)
    assert [e.invars[0].aval for e in plan.graph.eqns if e.primitive.name == "exp"] == [ArrayType((48, 128), X.dtype)]
