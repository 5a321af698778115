"""Dimensions that do not fit: what is said has JAX's words, for broadcasts, scatters, splits and transforms."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fuser
from fuser import lax


@pytest.mark.parametrize(
    ("shape", "new", "dims", "words"),
    [
        ((2,), (2, 2), (0, 1), "broadcast_dimensions must have length equal to operand ndim"),
        ((2, 2), (2,), (0, 1), "target broadcast shape must have equal or higher rank to the operand shape"),
        ((2,), (2, 3), (2,), "broadcast_in_dim broadcast_dimensions must be a subset of output dimensions"),
        ((2,), (3,), (0,), "operand dimension sizes must either be 1, or be equal to their corresponding dimensions"),
        ((2, 2), (2, 2), (0, 0), "broadcast_in_dim broadcast_dimensions must not contain duplicates"),
    ],
)
def test_broadcasts(shape, new, dims, words):
    for module in (fuser, jax):
        with pytest.raises((TypeError, ValueError), match=words):
            module.lax.broadcast_in_dim(np.ones(shape, np.float32), new, dims)


NUMBERS = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}


@pytest.mark.parametrize(
    ("changes", "shapes", "words"),
    [
        ({}, ((5, 4), (3, 1), (3,)), "Updates tensor must be of rank 2; got 1."),
        ({"update_window_dims": (7,)}, ((5, 4), (3, 1), (3, 4)), "Invalid update_window_dims set in scatter op"),
        ({"inserted_window_dims": ()}, ((5, 4), (3, 1), (3, 4)), "Scatter op has window of size 1"),
        ({}, ((5, 4), (3, 2), (3, 4)), "These two numbers must be equal"),
        (
            {"scatter_dims_to_operand_dims": (4,)},
            ((5, 4), (3, 1), (3, 4)),
            "Invalid scatter_dims_to_operand_dims mapping",
        ),
        ({}, ((5, 4), (3, 1), (3, 6)), "Bounds of the window dimensions of updates"),
        ({}, ((5, 4), (3, 1), (2, 4)), "Bounds of the scatter dimensions of updates"),
        ({"operand_batching_dims": (0,)}, ((5, 4), (3, 1), (3, 4)), "must be disjoint"),
        ({"scatter_indices_batching_dims": (0, 0)}, ((5, 4), (3, 1), (3, 4)), "must not repeat"),
        ({"scatter_indices_batching_dims": (1,)}, ((5, 4), (3, 1), (3, 4)), "cannot have the index vector dimension"),
        ({"scatter_indices_batching_dims": (0,)}, ((5, 4), (3, 1), (3, 4)), "equal numbers of operand_batching_dims"),
    ],
)
def test_scatters(changes, shapes, words):
    x, indices, updates = (np.zeros(s, np.int32) for s in shapes)
    for module in (fuser, jax):
        numbers = module.lax.ScatterDimensionNumbers(**{**NUMBERS, **changes})
        with pytest.raises(TypeError, match=words):
            module.lax.scatter(x, indices, updates, numbers)


def test_dimensions_in_another_order_are_moved():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(jax.lax.broadcast_in_dim(x, (3, 2), (1, 0)), x.T)
    assert np.array_equal(lax.broadcast_in_dim(x, (3, 2), (1, 0)), x.T)


def test_other_words():
    with pytest.raises(ValueError, match="Sizes passed to split must be nonnegative"):
        lax.split(np.arange(5), (-1,))
    with pytest.raises(ValueError, match="linearized function called on tangent values inconsistent"):
        fuser.linearize(fuser.numpy.sum, np.arange(3))[1](np.ones((3, 2), np.float32))
    with pytest.raises(TypeError, match="jacfwd requires real-valued inputs"):
        fuser.jacfwd(fuser.numpy.exp)(np.complex64(1))
    assert fuser.jacfwd(lambda x: x * 1j)(2.0) == 1j
    with pytest.raises(ValueError, match="numpy masked arrays are not supported"):
        fuser.jit(lambda x: x)(np.ma.array([1, 2], mask=[True, False]))
    with pytest.raises(TypeError, match="got a generator function"):
        fuser.jit(lambda x: (yield x))
    with pytest.raises(ValueError, match="cannot intersect"):
        fuser.jit(lambda x: x, static_argnames="x", donate_argnames="x")


@pytest.mark.parametrize("tiled", [False, True])
def test_all_to_all_over_several_axes(tiled):
    x = np.arange(2 * 3 * 6 * 5).reshape(2, 3, 6, 5)

    def program(m):
        each = lambda v: m.lax.all_to_all(v, ("i", "j"), 0, 1, tiled=tiled)
        return m.vmap(m.vmap(each, axis_name="j"), axis_name="i")(x)

    assert np.array_equal(program(fuser), program(jax))
