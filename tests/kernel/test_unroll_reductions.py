"""Short reduced axes become expressions: which kernels, and that results are NumPy's and JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import nn
from fuser.ir.target import CORE
from fuser.kernel.lower import lower
from fuser.kernel.unroll_reductions import unroll_reductions

RNG = np.random.default_rng(0)


def unrolled(function: Callable[..., Any], *args: Any) -> bool:
    """Whether the one kernel of a function has reduced axes, and none after the transformation."""
    (group,) = fuser.jit(function).lower(*args).plan.kernels
    kernel = lower(group)
    after = unroll_reductions(kernel, CORE)
    assert kernel.reduced and (after is kernel or not after.reduced)
    return after is not kernel


def rows(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("function", "x", "wanted"),
    [
        (lambda x: x.sum(1), rows(100, 4), True),
        (lambda x: x.sum(1), rows(100, 15), True),
        (lambda x: x.sum(1), rows(100, 16), False),  # fills a vector
        (
            lambda x: fnp.where(rows(100, 16) > 0, x, 0).sum(1),
            rows(100, 16),
            False,
        ),  # though the mask's bytes fill none
        (
            lambda x: fnp.where(rows(100, 16) > 0, x, 0).sum(1),
            rows(100, 16),
            False,
        ),  # though the mask's bytes fill none
        (lambda x: x.sum(1), rows(100, 17), False),
        (lambda x: x.sum(1), rows(10, 4), False),  # fewer rows than a vector has lanes
        (lambda x: x.sum(0), rows(16, 100), True),  # the vector runs along the columns anyway
        (lambda x: x.max((1, 2)), rows(25, 2, 3), True),
        (lambda x: nn.softmax(x, -1), rows(50, 6), True),
        (lambda x: x.cumsum(1), rows(50, 6), False),
        (lambda x: fnp.argmin(x, 1), rows(50, 6), True),
    ],
    ids=lambda value: "x".join(map(str, value.shape)) if isinstance(value, np.ndarray) else None,
)
def test_what_is_unrolled(function: Callable[..., Any], x: np.ndarray, wanted: bool) -> None:
    assert unrolled(function, x) is wanted


REDUCTIONS = ("sum", "prod", "max", "argmin", "all", "var")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_agree_with_jax(name: str) -> None:
    """Of several dtypes and shapes in one program, as each compilation takes its time."""
    cases: list[tuple[np.ndarray, Any]] = []
    for dtype in ("float32", "int8", "bool", "float16", "uint16"):
        for shape, axis in (((67, 3), 1), ((5, 70), 0), ((40, 2, 9, 2), (1, 3)), ((33, 7), -1)):
            if not (isinstance(axis, tuple) and name.startswith("arg")):
                x = RNG.standard_normal(shape) * 2
                cases.append(((np.abs(x) if dtype.startswith("u") else x).astype(dtype), axis))
    xs, axes = zip(*cases, strict=True)
    ours = fuser.jit(lambda xs: [getattr(fnp, name)(x, axis=axis) for x, axis in zip(xs, axes, strict=True)])(list(xs))
    for found, x, axis in zip(ours, xs, axes, strict=True):
        expected = getattr(jnp, name)(jnp.asarray(x), axis=axis)
        assert found.dtype == expected.dtype
        tolerance = 4e-3 if x.dtype == np.float16 else 2e-6
        wide = np.asarray(found, np.float64), np.asarray(expected, np.float64)
        np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance)


def test_nan_infinities_zeros_and_ties() -> None:
    choices = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0], np.float32)
    x, names = RNG.choice(choices, (500, 4)), ("max", "min", "argmax", "argmin", "sum")
    ours = fuser.jit(lambda x: [getattr(fnp, name)(x, axis=1) for name in names])(x)
    with np.errstate(invalid="ignore"):
        for name, found in zip(names, ours, strict=True):
            np.testing.assert_array_equal(found, getattr(jnp, name)(x, axis=1))


def test_several_sweeps_masks_and_gathers() -> None:
    x, i = rows(90, 5), RNG.integers(0, 5, (90, 5)).astype(np.int32)

    def program(np_: Any, x: Any, i: Any) -> Any:
        picked = np_.take_along_axis(x, i, axis=1)
        centred = picked - picked.mean(1, keepdims=True)
        padded = np_.pad(x, ((0, 0), (1, 1)))
        return (
            centred / np_.sqrt((centred**2).sum(1, keepdims=True) + 1),
            (padded[:, :-2] - padded[:, 2:]).max(1),
            x.argmax(1),
        )

    ours, theirs = fuser.jit(lambda x, i: program(fnp, x, i))(x, i), program(jnp, jnp.asarray(x), jnp.asarray(i))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


def _marked(image: Any, light: Any) -> Any:
    """Bytes of pixels of which all channels share a light, and whether any has left their range."""
    lit = image * light[..., None] * 255
    return lit.astype(fnp.uint8), (lit > 255).any(), lit.max()


@pytest.mark.parametrize(("channels", "wanted"), [(1, 1), (3, 1), (4, 1), (5, 2)])
def test_short_channels_beside_a_reduction_of_all(channels: int, wanted: int) -> None:
    image, light = np.abs(rows(20, 30, channels)) / 4, np.abs(rows(20, 30))
    (group,) = fuser.jit(_marked).lower(image, light).plan.kernels
    after = unroll_reductions(lower(group), CORE)
    extents = [axis.extent for axis in after.reduced]
    assert (channels in extents) is (wanted == 2)
    found, any_left, most = fuser.jit(_marked, backend="c")(image, light)
    lit = image * light[..., None] * 255
    np.testing.assert_array_equal(found, np.clip(lit, 0, 255).astype(np.uint8))
    assert bool(any_left) == (lit > 255).any() and float(most) == lit.max()


@pytest.mark.parametrize("columns", [2, 3, 4, 8])
def test_short_rows_of_one_run_of_memory_are_not_unrolled(columns: int) -> None:
    """Rows that lie one after the other in all arrays are one long loop, which one kernel goes along."""

    def differences(x: Any) -> Any:
        change = x[1:] - x[:-1]
        return change, fnp.any(~fnp.isfinite(change)), change.max()

    x = rows(4000, columns)
    (group,) = fuser.jit(differences).lower(x).plan.kernels
    kernel = lower(group)
    assert len(kernel.reduced) == 2 and unroll_reductions(kernel, CORE) is kernel
    change, broken, most = fuser.jit(differences, backend="c")(x)
    np.testing.assert_array_equal(change, np.diff(x, axis=0))
    assert not bool(broken) and float(most) == np.diff(x, axis=0).max()
