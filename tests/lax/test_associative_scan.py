"""associative_scan beside JAX: chunks and what is left behind them, axes, directions, trees, derivatives, and how it is planned."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.partition.group import Kind

RNG = np.random.default_rng(0)


def linear(a: Any, b: Any) -> Any:
    return a[0] * b[0], a[1] * b[0] + b[1]


SHAPES = (
    ((5000,), 0),
    ((4999,), 0),
    ((3, 6007), 1),
    ((6007, 3), 0),
    ((20, 3, 400), 1),
    ((300, 40), 0),
    ((9,), 0),
    ((1,), 0),
)


@pytest.mark.parametrize("shape, axis", SHAPES, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrences(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    x = (RNG.standard_normal(shape) * 0.5).astype(np.float32)
    found = fuser.jit(lambda x: lax.associative_scan(linear, (x, x + 1), reverse, axis))(x)
    expected = jax.lax.associative_scan(linear, (x, x + 1), reverse, axis)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


FUNCTIONS: dict[str, Any] = {
    "add": lambda m: m.numpy.add,
    "maximum": lambda m: lambda a, b: m.numpy.maximum(b, a),
    "minimum": lambda m: m.lax.min,
    "exclusive or": lambda m: lambda a, b: a ^ b,
    "last nonzero": lambda m: lambda a, b: m.numpy.where(b == 0, a, b),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_functions_and_dtypes(name: str, dtype: str) -> None:
    if (name == "exclusive or" and dtype == "float32") or (name == "minimum" and dtype == "bool"):
        return
    x = (RNG.standard_normal((5003,)) * 2).round().astype(dtype)
    if dtype == "float32":
        x[[100, 4000]] = np.inf, np.nan
    found = fuser.jit(lambda x: lax.associative_scan(FUNCTIONS[name](fuser), x))(x)
    expected = jax.lax.associative_scan(FUNCTIONS[name](jax), x)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_slices_of_several_ranks_products_and_closures() -> None:
    scale, vectors = RNG.uniform(0.5, 1, (4500,)).astype(np.float32), RNG.standard_normal((4500, 2)).astype(np.float32)
    matrices = (RNG.standard_normal((40, 3, 3)) * 0.5).astype(np.float32)

    def program(m: Any, scale: Any, vectors: Any, matrices: Any, k: Any) -> Any:
        gated = lambda a, b: (a[0] * b[0], a[1] * b[0][:, None] + b[1])
        closed = lambda a, b: a * k + b * k
        return (
            m.lax.associative_scan(gated, (scale, vectors)),
            m.lax.associative_scan(lambda a, b: a @ b, matrices),
            m.lax.associative_scan(closed, vectors),
        )

    arguments = scale, vectors, matrices, np.float32(1)
    found = fuser.tree.leaves(fuser.jit(lambda *a: program(fuser, *a))(*arguments))
    expected = jax.tree.leaves(jax.jit(lambda *a: program(jax, *a))(*arguments))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_derivatives_and_batches() -> None:
    x = (RNG.standard_normal((2, 4603)) * 0.5).astype(np.float32)

    def loss(m: Any) -> Any:
        return lambda x: (m.vmap(lambda x: m.lax.associative_scan(linear, (x, x))[1])(x) ** 2).sum()

    found, expected = fuser.jit(fuser.grad(loss(fuser)))(x), jax.grad(loss(jax))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    found = fuser.jit(lambda x: fuser.jvp(loss(fuser), (x,), (x,)))(x)[1]
    np.testing.assert_allclose(found, jax.jvp(loss(jax), (x,), (x,))[1], rtol=1e-3)


def test_chunks_walk_side_by_side() -> None:
    x = np.ones(10_007, np.float32)
    plan = fuser.jit(lambda x: lax.associative_scan(linear, (x, x))[1]).lower(x).plan
    assert len(plan.kernels) <= 10 and sum(g.kind is Kind.LOOP for g in plan.kernels) >= 2
    plan = fuser.jit(lambda x: lax.associative_scan(fnp.add, x)).lower(x).plan
    assert len(plan.kernels) == 1
