"""Gradients of fuser.numpy, fuser.nn and fuser.scipy.special against JAX: at random points, ties, zeros and infinities.

Each row is a function of a namespace with `np`, `nn` and `special`, tried with the modules of fuser and of JAX, in 64 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.nn
import fuser.numpy
import fuser.scipy.special
from fuser.config import config

OURS = SimpleNamespace(np=fuser.numpy, nn=fuser.nn, special=fuser.scipy.special, lax=fuser.lax)
INF, NAN = np.inf, np.nan

# Where functions have kinks, poles and ties, and where exponentials overflow or vanish.
POINTS = np.array([-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 1e3, -1e3, INF, -INF, NAN])
FINITE = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0])
INSIDE = np.array([-0.75, -0.25, 0.0, 0.25, 0.75])
POSITIVE = np.array([0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 1e3])
COMPLEX = np.array([0.5 + 0.25j, -1.5 + 2j, 2 - 1j, -0.25 - 0.75j, 1.0, 1j])


def random(low: float, high: float, count: int = 9) -> np.ndarray:
    return np.random.default_rng(0).uniform(low, high, count)


def pairs(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of points, ties among them."""
    x, y = np.meshgrid(points, points)
    return x.ravel(), y.ravel()


Row = tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]


def _unary(module: str, names: str, points: np.ndarray, low: float, high: float) -> Iterator[Row]:
    for name in names.split():
        function = functools.partial(_apply, module, name)
        yield f"{module}.{name}", function, (np.concatenate([points, random(low, high)]),)


def _binary(module: str, names: str, points: np.ndarray) -> Iterator[Row]:
    for name in names.split():
        yield f"{module}.{name}", functools.partial(_apply, module, name), pairs(np.append(points, [1.7, -0.3]))


def _apply(module: str, name: str, m: Any, *args: Any) -> Any:
    return getattr(getattr(m, module), name)(*args)


ELEMENTWISE: list[Row] = [
    *_unary(
        "np",
        "abs fabs negative positive sign floor ceil rint trunc exp exp2 expm1 sin cos sinh cosh tanh arctan arcsinh square "
        "reciprocal cbrt sinc i0 deg2rad rad2deg nan_to_num real imag conj angle tan modf frexp",
        POINTS,
        -3,
        3,
    ),
    *_unary("np", "log log2 log10 log1p sqrt", POINTS, 0.1, 3),
    *_unary("np", "arcsin arccos arctanh", POINTS, -0.9, 0.9),
    *_unary("np", "arccosh", POINTS, 1, 9),
    *_unary(
        "np",
        "abs negative exp exp2 expm1 log log2 log10 log1p sqrt square reciprocal sin cos tan sinh cosh tanh arcsin arccos "
        "arctan arcsinh arccosh arctanh real imag conj sinc rint",
        COMPLEX,
        1,
        1.5,
    ),
    *_unary(
        "nn",
        "relu relu6 softplus sparse_plus sparse_sigmoid soft_sign silu mish log_sigmoid elu leaky_relu hard_tanh celu selu "
        "gelu squareplus hard_sigmoid hard_silu sigmoid identity log1mexp",
        POINTS,
        -4,
        8,
    ),
    *_unary("special", "erf erfc expit i0 i1 i0e i1e ndtr log_ndtr entr", POINTS, -4, 4),
    *_unary("special", "erfinv", INSIDE, -0.99, 0.99),
    *_unary("special", "logit ndtri", np.array([0.0, 0.25, 0.5, 0.75, 1.0, -0.5, 1.5, 1e-3, 0.1353, 0.87]), 0, 1),
    *_unary("special", "gammaln gamma digamma factorial gammasgn", np.array([0.5, 1.0, 2.0, 3.0]), 0.1, 9),
    *_binary(
        "np",
        "add subtract multiply divide maximum minimum fmax fmin hypot logaddexp logaddexp2 copysign heaviside",
        POINTS[[0, 1, 2, 4, 5, 6, 8, 12, 13, 14]],
    ),
    *_binary("np", "power float_power arctan2 remainder fmod floor_divide mod divmod", FINITE),
    *_binary("special", "xlogy xlog1py rel_entr kl_div", FINITE),
    *_binary("special", "betaln beta gammainc gammaincc", np.array([0.5, 1.0, 2.0, 3.0, 12.0])),
]


@functools.cache
def theirs(index: int) -> list[np.ndarray]:
    return _all_of_jax()[index]


def cotangent(n: int, shape: tuple[int, ...], complex_: bool) -> np.ndarray:
    rng = np.random.default_rng(n)
    values = rng.uniform(0.5, 1.5, shape)
    return np.asarray(values + 1j * rng.uniform(0.5, 1.5, shape) if complex_ else values)


@functools.cache
def _all_of_jax() -> list[list[np.ndarray]]:
    """JAX's gradients of all rows, compiled as one program."""
    import jax

    namespace = SimpleNamespace(np=jax.numpy, nn=jax.nn, special=jax.scipy.special, lax=jax.lax)

    def one(row: Row) -> Any:
        _, function, args = row
        results, pull = jax.vjp(functools.partial(function, namespace), *map(jax.numpy.asarray, args))
        given = [
            jax.numpy.asarray(cotangent(n, r.shape, r.dtype.kind == "c"))
            if r.dtype.kind in "fc"
            else np.zeros(r.shape, jax.dtypes.float0)
            for n, r in enumerate(jax.tree.leaves(results))
        ]
        return pull(jax.tree.unflatten(jax.tree.structure(results), given))

    with jax.enable_x64(True):
        found = jax.jit(lambda: [one(row) for row in ROWS])()
    return [[np.asarray(g) for g in gradients] for gradients in found]


def ours(row: Row) -> list[np.ndarray]:
    """The gradients with respect to each argument, of all results weighted by the cotangents that JAX is given."""
    _, function, args = row
    results, pull = fuser.vjp(functools.partial(function, OURS), *map(fuser.numpy.asarray, args))
    leaves, structure = fuser.tree.flatten(results)
    given = [
        fuser.numpy.asarray(cotangent(n, r.shape, r.dtype.kind == "c"))
        if r.dtype.kind in "fc"
        else np.zeros(r.shape, [("float0", np.void, 0)])
        for n, r in enumerate(leaves)
    ]
    return [np.asarray(g) for g in pull(fuser.tree.unflatten(structure, given))]


ROWS: list[Row] = [*ELEMENTWISE]


@pytest.mark.parametrize("index", range(len(ROWS)), ids=[f"{n}-{row[0]}" for n, row in enumerate(ROWS)])
def test_gradients_agree_with_jax(index: int) -> None:
    label, _, args = ROWS[index]
    with config.using(enable_x64=True):
        found = ours(ROWS[index])
    for number, (x, y) in enumerate(zip(found, theirs(index), strict=True)):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        bad = ~np.isclose(x, y, rtol=1e-9, atol=1e-9, equal_nan=True)
        if x.dtype.kind == "c":  # in which direction a complex number is infinite, and where nan, is chance
            bad &= np.isfinite(x) | np.isfinite(y)
        if bad.any():
            places = [np.asarray(a)[bad][:12] if a.shape == bad.shape else a for a in args]
            pytest.fail(f"{label}, argument {number}, at {places}: {x[bad][:12]}, JAX {y[bad][:12]}")
