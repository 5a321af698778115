"""Arrays that lie crosswise in C kernels: which form is chosen, and NumPy's numbers for every permutation, type and size."""

from __future__ import annotations

import itertools
from typing import Any

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


BACKWARDS = {
    "rows": lambda x: x[:, ::-1].T * 2,
    "columns": lambda x: x[::-1].T,
    "both": lambda x: x[::-1, ::-1].T + 1,
    "results": lambda x: ((x + 1)[::-1].T, (x + 1)[:, ::-1].T, x * 2),
}


@pytest.mark.parametrize("name", BACKWARDS)
@pytest.mark.parametrize("shape", [(16, 16), (17, 133), (129, 70)])
def test_what_lies_backwards_goes_through_tiles(name: str, shape: tuple[int, int]) -> None:
    function, x = BACKWARDS[name], numbers(shape)
    assert tiled(function, x)
    results, expected = (f(x) if isinstance(f(x), tuple) else (f(x),) for f in (fuser.jit(function), function))
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def columns(module, x, count: int, start: int = 0):
    """Computed rows as the columns of a matrix."""
    return module.stack([x[i][::-1] * 2 + (start + i) % 7 for i in range(count)], 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(17, 33), (40, 131), (64, 20)])
def test_many_columns_wait_in_a_tile(dtype, shape) -> None:
    """Pieces across which vectors run are transposed together, in part blocks too."""
    x = numbers(shape, np.int32) % 20
    x = (x > 9) if dtype == np.bool_ else x.astype(dtype)
    combine = lambda module, x: (
        (columns(module, x, len(x)), x.T ^ x.T) if dtype == np.bool_ else columns(module, x, len(x))
    )
    results = fuser.jit(lambda x: combine(jnp, x))(x)
    for a, b in zip(results, combine(np, x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_schedule_of_many_columns() -> None:
    x = numbers((40, 300))
    scheduled = lambda f: list(fuser.jit(f, backend="c").lower(x).sources[0].schedules.values())
    (made,) = scheduled(lambda x: columns(jnp, x, 40))
    assert made.index_set_splitting == 40 and made.tiling == (64, 40)
    (made,) = scheduled(lambda x: columns(jnp, x, 12))
    assert made.tiling is None
    plain = fuser.jit(lambda x: columns(jnp, x, 40), schedule=fuser.Schedule(tiling=False))
    assert "transpose" not in plain.lower(x).sources[0].text
    np.testing.assert_array_equal(plain(x), columns(np, x, 40))


@pytest.mark.parametrize("rows", [30, 16, 64])
def test_tiles_run_in_strips_of_one_quotient(rows: int) -> None:
    """The position in a tile is divided by no number: the strips from one multiple to the next are loops around the tiles."""
    x, y = numbers((20, 90, rows)), numbers((20 * rows, 90))
    mask = y % 3 > 1
    run = lambda np_, x, y, mask: (
        np_.where(mask, x.transpose(0, 2, 1).reshape(-1, 90) * 2, y).T + x.transpose(1, 0, 2).reshape(90, -1)
    )
    compiled = fuser.jit(lambda x, y, mask: run(jnp, x, y, mask), backend="c").lower(x, y, mask)
    np.testing.assert_array_equal(compiled.compile()(x, y, mask), run(np, x, y, mask))
    made = [s for source in compiled.sources for s in source.schedules.values() if s.tiling is not None]
    assert rows in [schedule.strip_mining for schedule in made]


@pytest.mark.parametrize("name", ["exp", "log", "abs", "sqrt", "tanh", "div", "mul", "conj"])
@pytest.mark.parametrize("shape", [(40, 70), (64, 64), (33, 5)])
def test_functions_of_transposed_complex_numbers_are_no_calls(name: str, shape: tuple[int, int]) -> None:
    """Compilers call a function for each number: exp(z.T) + w of 300 x 300 took 3.9 ms so, 0.26 as parts in vectors."""
    random = np.random.default_rng(8)
    z = (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype("complex64")
    w = (random.standard_normal(shape[::-1]) + 1j * random.standard_normal(shape[::-1])).astype("complex64") + 3

    def function(xnp: Any, z: Any, w: Any) -> Any:
        if name in ("div", "mul"):
            return z.T / w if name == "div" else z.T * w
        return getattr(xnp, name)(z.T) + w

    found = fuser.jit(lambda z, w: function(jnp, z, w))(z, w)
    np.testing.assert_allclose(found, function(np, z.astype(complex), w.astype(complex)), rtol=2e-6)
    [source] = fuser.jit(lambda z, w: function(jnp, z, w)).lower(z, w).sources
    assert name in ("mul", "conj") or "_Complex" not in source.text
