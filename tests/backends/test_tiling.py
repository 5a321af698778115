"""Arrays that lie crosswise in C kernels: which form is chosen, and NumPy's numbers for every permutation, type and size."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as jnp

DTYPES = [np.int8, np.bool_, np.float16, ml_dtypes.bfloat16, np.float32, np.int32, np.complex64]


def tiled(function, *arguments) -> bool:
    (source,) = fuser.jit(function).lower(*arguments).sources
    return "transpose" in source.text


def numbers(shape, dtype=np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


def test_tiles_are_for_what_lies_crosswise() -> None:
    x, wide = numbers((40, 50)), numbers((50, 40))
    assert tiled(lambda x, y: x.T + y, x, wide)
    assert tiled(lambda x: jnp.exp(x.T), x)
    assert tiled(lambda x, y: (x + 1, x.T * y), x, wide)
    assert not tiled(lambda x, y: x + y, x, x)
    assert not tiled(lambda x: x[:, ::2] * 2, x)  # strided along one axis, and dense along none
    assert not tiled(lambda x: x.T * 2, numbers((50, 3)))  # too few to fill a tile
    assert not tiled(lambda x: x.transpose(1, 0, 2) * 2, numbers((20, 30, 40)))  # rows stay whole


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(16, 16), (17, 33), (100, 70), (129, 700), (16, 1031)])
def test_transposes_of_every_type(dtype, shape) -> None:
    x, y = numbers(shape, dtype), numbers(shape[::-1], dtype)
    combine = (lambda a, b: a ^ b) if dtype == np.bool_ else (lambda a, b: a + b)
    assert tiled(lambda x, y: combine(x.T, y), x, y)
    result = np.asarray(fuser.jit(lambda x, y: combine(x.T, y))(x, y))
    assert result.dtype == np.dtype(dtype) and (result == combine(x.T, y)).all()


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_permutations(order) -> None:
    x = numbers((17, 18, 19, 20))
    np.testing.assert_array_equal(fuser.jit(lambda x: x.transpose(order) * 2)(x), x.transpose(order) * 2)


def test_results_that_lie_crosswise() -> None:
    """Both results of one kernel, one of them written through a tile; parts of results are written only where they lie."""
    x = numbers((70, 130))
    a, b = fuser.jit(lambda x: ((x + 1).T, x * 2))(x)
    np.testing.assert_array_equal(a, x.T + 1)
    np.testing.assert_array_equal(b, x * 2)


def test_symmetric_and_shifted_uses() -> None:
    x = numbers((101, 101))
    run = fuser.jit(lambda x: x.T + x + x.T[::-1] + jnp.pad(x.T, 1)[2:, :-2])
    np.testing.assert_array_equal(run(x), x.T + x + x.T[::-1] + np.pad(x.T, 1)[2:, :-2])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=4),
    st.data(),
)
def test_views_of_random_shapes(shape, data) -> None:
    """A permutation of a strided, perhaps reversed part, beside an array that lies as the result does."""
    x = numbers(shape)
    order = data.draw(st.permutations(range(len(shape))))
    part = tuple(
        slice(None, None, data.draw(st.sampled_from([1, 1, 2, -1, -3]))) if extent > 3 else slice(None)
        for extent in shape
    )
    view = lambda x: x[part].transpose(order)
    y = numbers(view(x).shape)
    np.testing.assert_array_equal(fuser.jit(lambda x, y: view(x) + y)(x, y), view(x) + y)
