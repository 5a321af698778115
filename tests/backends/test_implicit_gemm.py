"""Products of patches: which concatenations a product reads where their pieces lie, which are copied, and the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser.debug.bisect import bisect
from fuser.partition.group import Kind, Plan

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 40, 41, 3)).astype(np.float32)
LINE = RNG.standard_normal(5000).astype(np.float32)


def side_by_side(images: Any, extent: int, step: int = 1) -> Any:
    """The patches of `extent` × `extent` at every `step`-th place, one behind the other along the last dimension."""
    height, width = images.shape[1] - extent + 1, images.shape[2] - extent + 1
    pieces = [images[:, i : i + height : step, j : j + width : step] for i in range(extent) for j in range(extent)]
    return jnp.concatenate(pieces, axis=-1)


def weights(depth: int, columns: int) -> np.ndarray:
    return (RNG.standard_normal((depth, columns)) / depth).astype(np.float32)


def planned(function: Callable[..., Any], *args: Any) -> Plan:
    """The plan, once its results have been found to be right."""
    assert bisect(function, *args) is None
    return fuser.jit(function, backend="c").lower(*args).plan


def exact(function: Callable[..., Any], *args: Any) -> np.ndarray:
    with fuser.config.using(enable_x64=True):
        return np.asarray(fuser.jit(function, backend="reference")(*(a.astype(np.float64) for a in args)))


READ: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{
        f"{extent} × {extent}, {columns} columns": (
            lambda x, w, extent=extent: side_by_side(x, extent) @ w,
            (IMAGES, weights(3 * extent**2, columns)),
        )
        for extent, columns in ((2, 4), (3, 16), (3, 17), (5, 31), (3, 48), (2, 70))
    },
    "a bias and relu": (
        lambda x, w, b: jnp.maximum(side_by_side(x, 3) @ w + b, 0),
        (IMAGES, weights(27, 16), RNG.standard_normal(16).astype(np.float32)),
    ),
    "a bias, of 25 pieces": (
        lambda x, w, b: side_by_side(x, 5) @ w + b,
        (IMAGES, weights(75, 16), RNG.standard_normal(16).astype(np.float32)),
    ),
    "every second place": (lambda x, w: side_by_side(x, 3, 2) @ w, (IMAGES, weights(27, 32))),
    "windows of a line": (
        lambda x, w: jnp.concatenate([x[k : k + 4900, None] for k in range(20)], axis=1) @ w,
        (LINE, weights(20, 8)),
    ),
    "times a large matrix": (lambda x, w: side_by_side(x, 5) @ w, (IMAGES, weights(75, 400))),
    "one piece twice": (
        lambda x, w: jnp.concatenate([x[:, 1:], x[:, :-1], x[:, 1:], x[:, :-1]], axis=-1) @ w,
        (IMAGES, weights(12, 10)),
    ),
    "transposed weights": (lambda x, w: side_by_side(x, 3) @ w.T, (IMAGES, weights(27, 16).T.copy())),
}


@pytest.mark.parametrize("name", READ)
def test_pieces_of_one_array_are_read_where_they_lie(name: str) -> None:
    function, args = READ[name]
    plan = planned(function, *args)
    assert [group.kind for group in plan.groups] == [Kind.CONTRACTION], plan.explain()
    found = np.asarray(fuser.jit(function, backend="c")(*args))
    np.testing.assert_allclose(found, exact(function, *args), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_accumulates_in_32_bits(dtype: str) -> None:
    function, args = READ["3 × 3, 16 columns"]
    narrow = [jnp.asarray(a).astype(dtype) for a in args]
    assert len(fuser.jit(function, backend="c").lower(*narrow).plan.groups) == 1
    found = np.asarray(fuser.jit(function, backend="c")(*narrow)).astype(np.float64)
    wide = [np.asarray(a).astype(np.float32) for a in narrow]
    np.testing.assert_allclose(found, exact(function, *wide), atol=0.01 if dtype == "float16" else 0.05)


def test_float64() -> None:
    function, args = READ["a bias and relu"]
    with fuser.config.using(enable_x64=True):
        wide = [a.astype(np.float64) for a in args]
        assert len(fuser.jit(function, backend="c").lower(*wide).plan.groups) == 1
        found = np.asarray(fuser.jit(function, backend="c")(*wide))
    np.testing.assert_allclose(found, exact(function, *args), rtol=1e-12, atol=1e-13)


COPIED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "of two arrays": (
        lambda x, y, w: jnp.concatenate([x, y], axis=-1) @ w,
        (IMAGES, IMAGES + 1, weights(6, 16)),
    ),
    "that run in different directions": (
        lambda x, w: jnp.concatenate([x, x[:, ::-1]], axis=-1) @ w,
        (IMAGES, weights(6, 16)),
    ),
    "needed in memory too": (lambda x, w: ((p := side_by_side(x, 2)) @ w, p), (IMAGES, weights(12, 16))),
    "of several widths": (
        lambda x, w: jnp.concatenate([x[:, :, :40], x[:, :, 1:, 1:], x[:, :, :40, :1], x[:, :, :40, :1]], axis=-1) @ w,
        (IMAGES, weights(7, 10)),
    ),
    "that are unevenly spaced": (
        lambda x, w: jnp.concatenate([x[:, 0:37], x[:, 1:38], x[:, 3:40]], axis=-1) @ w,
        (IMAGES, weights(9, 10)),
    ),
    "along another dimension": (
        lambda x, w: jnp.concatenate([x[0, 1:], x[0, :-1]], axis=0) @ w,
        (np.repeat(IMAGES, 4, axis=-1), weights(12, 16)),
    ),
}


@pytest.mark.parametrize("name", COPIED)
def test_other_concatenations_are_copied(name: str) -> None:
    function, args = COPIED[name]
    plan = planned(function, *args)
    assert [group.kind for group in plan.groups] == [Kind.ELEMENTWISE, Kind.CONTRACTION], plan.explain()
    found = fuser.tree.leaves(fuser.jit(function, backend="c")(*args))[0]
    wanted = fuser.tree.leaves(fuser.jit(function, backend="reference")(*args))[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_inside_a_loop() -> None:
    def smooth(x: Any, w: Any) -> Any:
        def step(x: Any, _: Any) -> tuple[Any, None]:
            wide = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            return jnp.tanh(side_by_side(wide, 3) @ w), None

        return fuser.lax.scan(step, x, None, length=3)[0]

    x = np.repeat(IMAGES, 2, axis=-1)[..., :4]
    w = weights(36, 4) * 5
    found = np.asarray(fuser.jit(smooth, backend="c")(x, w))
    np.testing.assert_allclose(found, exact(smooth, x, w), rtol=1e-4, atol=1e-5)
