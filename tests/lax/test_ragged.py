"""Products of groups, scatters of functions and the options of svd, against JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fuser

RNG = np.random.default_rng(0)
SIZES = np.array([2, 1, 0, 3], np.int32)
EACH = np.array([[2, 1, 0, 3], [1, 1, 1, 1], [0, 0, 5, 0]], np.int32)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# lhs, rhs, group sizes, dot_general's numbers, the ragged dimension, the group dimensions
CASES: dict[str, tuple[Any, ...]] = {
    "rows": (numbers(7, 5), numbers(4, 5, 2), SIZES, (((1,), (1,)), ((), ())), (0,), (0,)),
    "batched rows": (numbers(3, 7, 5), numbers(4, 3, 5, 2), EACH, (((2,), (2,)), ((0,), (1,))), (1,), (0,)),
    "summands": (numbers(7, 5), numbers(7, 2), SIZES, (((0,), (0,)), ((), ())), (0,), ()),
    "batched summands": (numbers(3, 5, 7), numbers(3, 7, 2), EACH, (((2,), (1,)), ((0,), (0,))), (2,), ()),
    "batch": (numbers(7, 4, 5), numbers(7, 5, 2), SIZES, (((2,), (1,)), ((0,), (0,))), (0,), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_ragged_dot_general(name: str) -> None:
    x, y, sizes, dot, ragged, groups = CASES[name]

    def program(m: Any) -> Any:
        own = m.lax.RaggedDotDimensionNumbers(dot, ragged, groups)
        f = lambda a, b: m.lax.ragged_dot_general(a, b, m.numpy.asarray(sizes), own)
        value = f(m.numpy.asarray(x), m.numpy.asarray(y))
        return (value, m.grad(lambda a: (f(a, y) ** 2).sum())(x)) if groups else (value,)  # JAX has no other gradients

    for found, wanted in zip(program(fuser), program(jax)):
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_ragged_dot_general_refuses_what_does_not_fit() -> None:
    x, y, sizes, dot, _, groups = CASES["rows"]
    for ragged, own, text in (
        ((0, 1), groups, "exactly one lhs ragged"),
        ((0,), (), "exactly one rhs group dimension"),
    ):
        with pytest.raises(TypeError, match=text):
            fuser.lax.ragged_dot_general(x, y, sizes, fuser.lax.RaggedDotDimensionNumbers(dot, ragged, own))


def test_scatter_apply() -> None:
    def program(m: Any) -> Any:
        own = m.lax.ScatterDimensionNumbers((), (0,), (0,))
        return m.lax.scatter_apply(
            m.numpy.arange(6.0), m.numpy.array([[1], [4], [9]]), m.numpy.cos, own, update_shape=(3,)
        )

    np.testing.assert_allclose(program(fuser), program(jax), rtol=1e-6)


def test_options_of_svd() -> None:
    svd, kinds, x = fuser.lax.linalg.svd, fuser.lax.linalg.SvdAlgorithm, numbers(4, 3)
    whole = svd(x, compute_uv=False)
    np.testing.assert_allclose(
        svd(x, compute_uv=False, subset_by_index=(0, 2), algorithm=kinds.QR), whole[:2], rtol=1e-6
    )
    with pytest.raises(NotImplementedError, match="Jacobi and Polar"):
        svd(x, algorithm=kinds.JACOBI)
