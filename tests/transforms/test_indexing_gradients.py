"""Gradients of fuser.numpy's indexing, updates, sorting and reductions against real JAX, at once and jitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fuser

_rng = np.random.default_rng(3)
X = _rng.normal(size=(5, 6)).astype(np.float32)
V = _rng.normal(size=(6,)).astype(np.float32)
W = _rng.normal(size=(3, 6)).astype(np.float32)
TIED = np.array([[1, 2, 2, 0, 2], [3, 3, 1, 0, 3]], np.float32)
ROWS = np.array([3, 0, 3], np.int32)
COLUMNS = np.array([[5], [0], [2], [2], [1]], np.int32)
LABELS = np.array([5, 0, 2, -2, 1], np.int32)

# name: (function of the library's numpy module and the operands, operands); floats are differentiated by
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "x[i]": (lambda np_, x: x[2] ** 2, (X,)),
    "x[-1, 1:5:2]": (lambda np_, x: np_.sin(x[-1, 1:5:2]), (X,)),
    "x[::-1, ::-2]": (lambda np_, x: x[::-1, ::-2] ** 2, (X,)),
    "x[:, None, 0]": (lambda np_, x: x[:, None, 0] ** 2, (X,)),
    "x[traced]": (lambda np_, x, i: x[i] ** 2, (X, np.int32(3))),
    "x[traced, 1:]": (lambda np_, x, i: x[i, 1:] ** 2, (X, np.int32(-2))),
    "x[rows]": (lambda np_, x, i: x[i] ** 2, (X, ROWS)),
    "x[rows, columns]": (lambda np_, x, i: x[np_.arange(5), i] ** 2, (X, LABELS)),
    "x[:, rows]": (lambda np_, x, i: x[:, i] ** 3, (X, ROWS)),
    "take": (lambda np_, x, i: np_.take(x, i, axis=1) ** 2, (X, ROWS)),
    "take clip": (lambda np_, x, i: np_.take(x, i + 4, axis=1, mode="clip") ** 2, (X, ROWS)),
    "take_along_axis": (lambda np_, x, i: np_.take_along_axis(x, i, 1) ** 2, (X, COLUMNS)),
    "take_along_axis of several": (
        lambda np_, x, i: np_.take_along_axis(x, np_.concatenate([i, i + 1, i], 1), 1) ** 2,
        (X, COLUMNS),
    ),
    "at set": (lambda np_, x, v: x.at[1].set(v) ** 2, (X, V)),
    "at set traced": (lambda np_, x, v, i: x.at[i].set(v) ** 2, (X, V, np.int32(3))),
    "at set slice": (lambda np_, x, v: x.at[1:4].set(v * 2) ** 2, (X, V)),
    "at set rows": (lambda np_, x, w, i: x.at[i].set(w) ** 2, (X, W, ROWS)),
    "at add": (lambda np_, x, w, i: x.at[i].add(w) ** 2, (X, W, ROWS)),
    "at add label": (lambda np_, x, v, i: x.at[np_.arange(5), i].add(v[:5]) ** 2, (X, V, LABELS)),
    "at mul": (lambda np_, x, v: x.at[:, 2].mul(v[:5]) ** 2, (X, V)),
    "at mul rows": (lambda np_, x, v: x.at[np_.array([0, 2])].mul(v, unique_indices=True) ** 2, (X, V)),
    "at min": (lambda np_, x, w, i: x.at[i].min(w) ** 2, (X, W, ROWS)),
    "at max": (lambda np_, x, w, i: x.at[i].max(w) ** 2, (X, W, ROWS)),
    "at max of ties": (lambda np_, x: x.at[0].max(x[1]) ** 2, (TIED,)),
    "at get fill": (lambda np_, x, i: x.at[i + 2].get(mode="fill", fill_value=1.0) ** 2, (X, ROWS)),
    "sort": (lambda np_, x: np_.sort(x, axis=0) * np_.arange(6.0), (X,)),
    "sort of ties": (lambda np_, x: np_.sort(x, axis=1) * np_.arange(5.0), (TIED,)),
    "argsort": (lambda np_, x: np_.take_along_axis(x, np_.argsort(x, axis=1), 1) * np_.arange(6.0), (X,)),
    "median": (lambda np_, x: np_.median(x, axis=1), (X,)),
    "quantile": (lambda np_, x: np_.quantile(x, 0.3, axis=0), (X,)),
    "cumsum": (lambda np_, x: np_.cumsum(x, axis=1) ** 2, (X,)),
    "cumprod": (lambda np_, x: np_.cumprod(x, axis=1), (TIED,)),
    "prod": (lambda np_, x: np_.prod(x, axis=1), (TIED,)),
    "prod of all": (lambda np_, x: np_.prod(x), (X,)),
    "max": (lambda np_, x: np_.max(x, axis=1), (TIED,)),
    "min of all": (lambda np_, x: np_.min(x), (TIED,)),
    "ptp": (lambda np_, x: np_.ptp(x, axis=0), (X,)),
    "pad": (lambda np_, x: np_.pad(x, ((1, 2), (0, 1))) ** 2, (X,)),
    "roll": (lambda np_, x: np_.roll(x, 2, axis=1) * np_.arange(6.0), (X,)),
    "stack and split": (lambda np_, x: np_.stack(np_.split(x, 2, axis=1)[::-1]) ** 3, (X,)),
    "tile and repeat": (lambda np_, x: np_.tile(np_.repeat(x, 2, axis=0), (1, 2)) ** 2, (X,)),
    "matmul": (lambda np_, x, w: np_.matmul(x, w.T) ** 2, (X, W)),
    "einsum": (lambda np_, x, w: np_.einsum("ij,kj->ik", x, w) ** 2, (X, W)),
}


def gradients(lib: Any, name: str) -> Callable[..., Any]:
    function, operands = PROGRAMS[name]
    active = tuple(n for n, o in enumerate(operands) if o.dtype.kind == "f")
    loss = lambda *xs: (function(lib.numpy, *xs) * 0.7).sum()
    return lambda *xs: (lib.grad(loss, active)(*xs), lib.jvp(lib.grad(loss), xs, tuple(_tangent(x) for x in xs))[1])


def _tangent(x: Any) -> Any:
    if np.dtype(x.dtype).kind != "f":
        return np.zeros(x.shape, jax.dtypes.float0)
    return (np.arange(x.size, dtype=np.float32).reshape(x.shape) % 7 - 3) / 3


_known: dict[str, Any] = {}


def oracle(name: str) -> Any:
    if name not in _known:
        _known[name] = jax.jit(gradients(jax, name))(*PROGRAMS[name][1])
    return _known[name]


def agree(name: str, found: Any) -> None:
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(oracle(name)), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), name
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_gradients_agree_with_jax(name: str) -> None:
    agree(name, gradients(fuser, name)(*map(fuser.numpy.asarray, PROGRAMS[name][1])))


@pytest.mark.parametrize("part", range(3))
def test_jitted_gradients_agree_with_jax(part: int) -> None:
    names = list(PROGRAMS)[part::3]
    program = lambda given: [gradients(fuser, name)(*operands) for name, operands in zip(names, given)]
    for name, found in zip(names, fuser.jit(program)([PROGRAMS[name][1] for name in names])):
        agree(name, found)
