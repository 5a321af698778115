"""Functions of arrays whose extents are symbolic: one trace serves other sizes, with what the function gives for arrays of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import random
from fuser.errors import DeserializationError, InconclusiveDimensionOperation, UnsupportedError
from fuser.export import SymbolicScope, deserialize, export, symbolic_shape
from fuser.scipy import linalg, signal, stats

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
SIZES = {"b": 3, "k": 2, "m": 5, "n": 4}


def key() -> Any:
    return random.key(7)


def definite(x: Any) -> Any:
    return x @ x.T + 3 * fnp.eye(x.shape[0])


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "average": (lambda x: fnp.average(x, 1, returned=True), ("b, n",)),
    "cov": (fnp.cov, ("b, n",)),
    "trace": (fnp.trace, ("b, n",)),
    "diagonal": (lambda x: fnp.diagonal(x, -1), ("b, n",)),
    "einsum of a diagonal": (lambda x: fnp.einsum("ii->i", x), ("n, n",)),
    "eye": (lambda x: fnp.eye(*x.shape, 1), ("b, n",)),
    "tile": (lambda x: fnp.tile(x, x.shape[0]), ("n",)),
    "roll": (lambda x: (fnp.roll(x, 3), fnp.roll(x, -1, 0), fnp.roll(x, x.shape[0] // 2, 0)), ("b, n",)),
    "fftshift": (lambda x: (fnp.fft.fftshift(x), fnp.fft.ifftshift(x)), ("b, n",)),
    "fftfreq": (lambda x: fnp.fft.fftfreq(x.shape[0]), ("n",)),
    "insert": (lambda x: (fnp.insert(x, 1, 5.0), fnp.insert(x, slice(0, 2), 5.0)), ("n",)),
    "delete": (lambda x: (fnp.delete(x, 0), fnp.delete(x, -1), fnp.delete(x, slice(0, 1))), ("n+1",)),
    "array_split": (lambda x: fnp.array_split(x, 3), ("3*n",)),
    "pad": (lambda x: fnp.pad(x, ((0, x.shape[1]), (1, 0))), ("b, n",)),
    "unravel_index": (lambda i, x: fnp.unravel_index(i, x.shape), (("k", I32), "b, n")),
    "searchsorted": (lambda x, y: fnp.searchsorted(fnp.sort(x), y, side="right"), ("n", "m")),
    "interp": (lambda x, y: fnp.interp(x, fnp.sort(y), y * 2), ("n", "m")),
    "nonzero": (lambda x: fnp.nonzero(x > 0, size=x.size), ("b, n",)),
    "unique": (lambda i: fnp.unique(i, size=3, return_counts=True), (("n", I32),)),
    "isin": (lambda x, y: fnp.isin(x, fnp.concatenate([y, x[:1]])), ("n", "m")),
    "segment_sum": (lambda x, i, y: fuser.ops.segment_sum(x, i, y.shape[0]), ("n", ("n", I32), "m")),
    "writes behind the first": (lambda x: x.at[1:].set(0.0), ("b, n",)),
    "writes from the end": (lambda x: x.at[-1].set(3.0), ("b, n",)),
    "strided writes": (lambda x: (x.at[::2].set(0.0), x.at[1::2, 0].add(1.0)), ("n, 3",)),
    "det": (lambda x: fnp.linalg.det(definite(x)), ("n, n",)),
    "slogdet": (lambda x: tuple(fnp.linalg.slogdet(definite(x))), ("n, n",)),
    "lstsq": (lambda x, y: fnp.linalg.lstsq(x, y)[0], ("n+3, 3", "n+3")),
    "block_diag": (lambda x: linalg.block_diag(x, x), ("b, n",)),
    "toeplitz": (linalg.toeplitz, ("n",)),
    "convolve2d": (lambda x, y: signal.convolve2d(x, y, mode="same"), ("b+3, n+3", "3, 3")),
    "rankdata": (stats.rankdata, ("n",)),
    "gaussian_kde": (lambda x, y: stats.gaussian_kde(x)(y), ("n+3", "m")),
    "resize": (lambda x: fuser.image.resize(x, (x.shape[0] * 2, 3), "linear"), ("b, n",)),
    "resize to the nearest": (lambda x: fuser.image.resize(x, (x.shape[0] * 2, 3), "nearest"), ("b, n",)),
    "checkpoint": (lambda x: fuser.grad(lambda v: fuser.checkpoint(lambda u: fnp.sin(u).sum())(v))(x), ("n",)),
    "normal": (lambda x: random.normal(key(), x.shape), ("b, n",)),
    "randint": (lambda x: random.randint(key(), x.shape, 0, x.shape[1]), ("b, n",)),
    "dropout": (lambda x: fnp.where(random.bernoulli(key(), 0.8, x.shape), x, 0), ("b, n",)),
    "gamma": (lambda x: random.gamma(key(), 2.0, x.shape), ("b, n",)),
    "poisson": (lambda x: random.poisson(key(), 2.0, x.shape), ("b, n",)),
    "orthogonal": (lambda x: random.orthogonal(key(), 2, x.shape), ("n",)),
    "categorical": (lambda x: random.categorical(key(), x), ("b, n",)),
    "choice": (lambda x: (random.choice(key(), x, (3,)), random.choice(key(), x, (3,), p=fuser.nn.softmax(x))), ("n",)),
    "split keys": (
        lambda x: fuser.vmap(lambda k: random.normal(k))(random.split(key(), x.shape[0])),
        ("n",),
    ),
}


def described(specs: tuple[Any, ...]) -> list[tuple[str, np.dtype]]:
    return [spec if isinstance(spec, tuple) else (spec, F32) for spec in specs]


def arrays_of(specs: tuple[Any, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    found = []
    for spec, dtype in described(specs):
        shape = tuple(eval(extent, {}, SIZES) for extent in spec.split(","))
        found.append(rng.normal(size=shape).astype(F32) if dtype == F32 else rng.integers(0, 3, shape, dtype))
    return found


@pytest.mark.parametrize("name", CASES)
def test_functions_of_symbolic_extents_are_those_of_arrays(name: str) -> None:
    function, specs = CASES[name]
    scope, arrays = SymbolicScope(), arrays_of(specs)
    types = [fuser.ShapeDtypeStruct(symbolic_shape(spec, scope=scope), dtype) for spec, dtype in described(specs)]
    found = fuser.tree.leaves(deserialize(export(fuser.jit(function))(*types).serialize()).call(*arrays))
    wanted = fuser.tree.leaves(function(*map(fnp.asarray, arrays)))
    assert [(f.shape, f.dtype) for f in found] == [(w.shape, w.dtype) for w in wanted]
    for f, w in zip(found, wanted):
        np.testing.assert_allclose(np.asarray(f, np.float64), np.asarray(w, np.float64), rtol=1e-4, atol=1e-4)


def test_one_program_draws_for_all_sizes() -> None:
    draw = fuser.jit(lambda x: random.normal(key(), x.shape), dynamic={"x": "b, n"})
    for shape in ((2, 3), (4, 7), (5, 2)):
        np.testing.assert_allclose(draw(np.zeros(shape, F32)), random.normal(key(), shape), rtol=1e-6)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"'k, j' has 2 dimensions, and it is for an array of shape \(2,\)"):
        fuser.jit(lambda x: x * 2, dynamic={"x": "k, j"})(np.ones(2, F32))
    with pytest.raises(TypeError, match=r"dynamic maps names of arguments to their shapes, .* got 'k'"):
        fuser.jit(lambda x: x * 2, dynamic="k")
    with pytest.raises(DeserializationError, match="deserialize takes bytes, got a str"):
        deserialize("a file")  # type: ignore[arg-type]


def test_what_depends_on_a_size_says_so() -> None:
    n = fuser.ShapeDtypeStruct(symbolic_shape("n"), F32)
    with pytest.raises(UnsupportedError, match=r"shape polymorphism for `permutation` .* n; .*argsort"):
        export(fuser.jit(lambda x: random.permutation(key(), x)))(n)
    with pytest.raises(InconclusiveDimensionOperation, match=r"all count from one end, got \[0, -1\]"):
        export(fuser.jit(lambda x: fnp.delete(x, [0, -1])))(n)
    with pytest.raises(InconclusiveDimensionOperation, match=r"n \* 0.5 does not"):
        export(fuser.jit(lambda x: x * (0.5 * x.shape[0])))(n)
