"""Updates at evenly spaced places: windows and selections, against NumPy, alone and in loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser import lax
from fuser.numpy import asarray

COUNT = np.arange
GRIDS: list[tuple[tuple[int, ...], Any]] = [
    ((20, 30), (slice(1, -1, 2), slice(1, -1, 2))),
    ((20, 30), (slice(None, None, 3),)),
    ((20, 30, 3), (slice(None), slice(None, None, 2))),
    ((20, 30), (slice(None, None, -2), slice(5, 20))),
    ((9,), (COUNT(3, 8),)),
    ((9, 8), (COUNT(0, 9, 2)[:, None], COUNT(1, 8, 3))),
    ((9, 8), (COUNT(1, 8, 3), COUNT(0, 8, 2)[:, None])),
    ((9, 8, 5), (slice(None, None, 2), 3, slice(0, 5, 2))),
    ((12, 13), (COUNT(8, 0, -2), slice(3, 9))),
]
OTHERS: list[tuple[tuple[int, ...], Any]] = [
    ((9, 8), (COUNT(8), COUNT(8))),  # a diagonal
    ((9,), (np.array([0, 1, 3, 4]),)),
    ((4000,), (slice(None, None, 40),)),  # all would be gone through for a few
    ((400, 50), (slice(None), slice(None, None, 5))),  # in steps that processors read one by one
    ((9,), (np.array([2, 2, 2]),)),
]
NUMPY = {"set": None, "add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def written(x: np.ndarray, index: Any, name: str, new: np.ndarray) -> np.ndarray:
    out = x.copy()
    out[index] = new if name == "set" else NUMPY[name](x[index], new)  # type: ignore[misc]
    return out


def arrays(shape: tuple[int, ...], index: Any) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    x = random.standard_normal(shape).astype(np.float32)
    x.flat[::5] = -0.0
    return x, random.standard_normal(x[index].shape).astype(np.float32)


@pytest.mark.parametrize("shape, index", GRIDS)
def test_evenly_spaced_places_fuse(shape: tuple[int, ...], index: Any) -> None:
    x, new = arrays(shape, index)
    for name in NUMPY:
        function = lambda x, new, name=name: getattr(asarray(x).at[index], name)(new * 2)
        out = np.asarray(fuser.jit(function)(x, new))
        expected = written(x, index, name, new * 2)
        np.testing.assert_array_equal(out, expected)
        assert (np.signbit(out) == np.signbit(expected)).all()
    (step,) = fuser.explain(function)(x, new).steps
    assert "scatter" not in step.name


@pytest.mark.parametrize("shape, index", OTHERS)
def test_other_places_are_scattered(shape: tuple[int, ...], index: Any) -> None:
    x, new = arrays(shape, index)
    function = lambda x, new: asarray(x).at[index].max(new)
    expected = x.copy()
    np.maximum.at(expected, index, new)
    np.testing.assert_array_equal(np.asarray(fuser.jit(function)(x, new)), expected)
    assert any("scatter" in step.name for step in fuser.explain(function)(x, new).steps)


def test_sweeps_over_every_other_point_fuse_in_a_loop() -> None:
    def sweep(_: int, u: Any) -> Any:
        for i, j in ((1, 1), (2, 2), (1, 2), (2, 1)):
            inner = u[i - 1 : -1 : 2, j:-1:2][: len(u[i:-1:2])] + u[i + 1 :: 2, j:-1:2][: len(u[i:-1:2])]
            u = u.at[i:-1:2, j:-1:2].set(0.5 * inner + 0.1)
        return u

    def in_numpy(u: np.ndarray) -> np.ndarray:
        for i, j in ((1, 1), (2, 2), (1, 2), (2, 1)):
            rows = len(u[i:-1:2])
            inner = u[i - 1 : -1 : 2, j:-1:2][:rows] + u[i + 1 :: 2, j:-1:2][:rows]
            u[i:-1:2, j:-1:2] = np.float32(0.5) * inner + np.float32(0.1)
        return u

    u = np.random.default_rng(0).standard_normal((41, 38)).astype(np.float32)
    found = fuser.jit(lambda u: lax.fori_loop(0, 3, sweep, u))(u)
    expected = in_numpy(in_numpy(in_numpy(u.copy())))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    text = str(fuser.explain(lambda u: lax.fori_loop(0, 3, sweep, u))(u))
    assert "scatter" not in text.replace("regular_scatter", "")
