"""Inverses and systems of equations are operations of the program; what NumPy refuses or tells of, it answers itself."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.interop import accelerate
from tests.interop.oracle import agree

rng = np.random.default_rng(3)


def _matrices(*shape):
    return rng.normal(size=shape) + 3 * np.eye(shape[-1])


def _inverse(a):
    return np.linalg.inv(a)


def _solution(a, b):
    return np.linalg.solve(a, b)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (40, 3, 3), (2, 5, 7, 7), (40, 40)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inverses(shape, dtype):
    a = _matrices(*shape).astype(dtype)
    agree(_inverse, a, backend="c", tolerance=2e-5 if dtype == np.float32 else 1e-12)
    assert "numpy_call" not in str(accelerate(_inverse).trace(a).graph)


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (50, 4, 4), (12, 12), (30, 30), (0, 2, 2)])
def test_determinants_and_factors(shape):
    a = _matrices(*shape)
    agree(lambda a: np.linalg.det(a) * 2, a, backend="c", tolerance=1e-11)
    agree(lambda a: np.linalg.cholesky(a @ np.swapaxes(a, -1, -2)), a, backend="c", tolerance=1e-11)
    agree(lambda a: np.linalg.cholesky(np.eye(shape[-1]) * 2 + np.triu(a, 1)), a, backend="c", tolerance=1e-13)
    agree(lambda a: np.linalg.cholesky(np.eye(shape[-1]) * 2 + np.tril(a, -1) * 0.1, upper=True), a, backend="c")


def test_determinants_of_singular_matrices():
    a = _matrices(6, 3, 3)
    a[1], a[2, 1], a[3, :, 0], a[4] = 0, 0, 0, np.ones((3, 3))
    agree(lambda a: np.linalg.det(a), a, backend="c")
    for singular in a[1:5]:
        agree(lambda a: np.linalg.det(a), singular, backend="c")
    agree(lambda a: np.linalg.det(a), np.array([[1, 2], [3, 4]]), backend="c")


def test_a_matrix_that_is_not_positive():
    a = np.stack([np.eye(3)] * 9)
    a[4, 1, 1] = -1
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        accelerate(lambda a: np.linalg.cholesky(a))(a)


@pytest.mark.parametrize(
    "a, b",
    [
        ((3, 3), (3,)),
        ((3, 3), (3, 5)),
        ((4, 3, 3), (3,)),
        ((4, 3, 3), (3, 2)),
        ((4, 1, 3, 3), (5, 3, 2)),
        ((30, 30), (30,)),
    ],
)
def test_systems(a, b):
    agree(_solution, _matrices(*a), rng.normal(size=b), backend="c", tolerance=1e-12)


def test_systems_have_linalgs_dtypes():
    whole, single = np.array([[2, 1], [1, 3]], np.int8), np.array([1, 2], np.float32)
    agree(_solution, whole, single, backend="c")
    agree(_solution, whole.astype(np.float32), single, backend="c")
    agree(_inverse, whole, backend="c")


@pytest.mark.parametrize(
    "a", [np.zeros((2, 2)), np.ones((3, 3)), np.ones((2, 3)), np.ones(3), np.eye(2, dtype=np.float16)], ids=str
)
def test_errors_are_numpys(a):
    with pytest.raises(Exception) as wanted:
        _inverse(a)
    with pytest.raises(type(wanted.value), match=str(wanted.value).replace("(", r"\(").replace(")", r"\)")[:60]):
        accelerate(_inverse)(a)


def test_one_singular_matrix_of_many_is_an_error():
    a = _matrices(20, 3, 3)
    a[7, 1] = a[7, 0] = 0
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        accelerate(_solution)(a, np.ones((20, 3, 1)))


def test_nans_and_matrices_without_elements():
    a = _matrices(4, 3, 3)
    a[2, 0, 0] = np.nan
    agree(_inverse, a, backend="c")
    agree(_inverse, np.ones((0, 3, 3)), backend="c")
    agree(_solution, np.ones((2, 0, 0)), np.ones((2, 0, 1)), backend="c")


def test_a_function_that_catches_the_error():
    def inverse_or_zero(a):
        try:
            return np.linalg.inv(a)
        except np.linalg.LinAlgError:
            return np.zeros_like(a)

    f = accelerate(inverse_or_zero)
    for a in (np.eye(3) * 2, np.ones((3, 3)), np.eye(3) * 4):
        np.testing.assert_allclose(f(a), inverse_or_zero(a), rtol=1e-13)
