"""Schedules: what emitters made of loops, that transforms compose, and what a user asks for with `jit(schedule=)`."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import Schedule
from fuser.errors import UnsupportedError


def made(function, *arguments, schedule: Schedule | None = None, backend: str = "c") -> Schedule:
    """The schedule of the only kernel of a function."""
    (source,) = fuser.jit(function, schedule=schedule, backend=backend).lower(*arguments).sources
    (found,) = source.schedules.values()
    return found


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).random(shape, np.float32)


def deep(np, x):
    return np.exp(np.sin(x))


@pytest.mark.parametrize(
    ("function", "shape", "field"),
    [
        (lambda np, x: np.pad(x, 2) + 1, (40, 50), "index_set_splitting"),
        (lambda np, x: x.T + 1, (200, 300), "tiling"),
        (lambda np, x: x * np.arange(7, dtype=np.float32), (500, 7), "coalescing"),
        (lambda np, x: x[:, 0] + x[:, 3] * x[:, 4], (5000, 5), "staging"),
        (deep, (5000,), "fission"),
        (lambda np, x: np.concatenate([x.T.reshape(-1)[7:], x[0]]), (90, 70), "strip_mining"),
        (lambda np, x: np.exp(x) + np.arange(30, dtype=np.float32)[:, None][:, 0], (400, 30), "coalescing"),
        (lambda np, x: np.exp(x[:, :30]), (400, 64), "masking"),
        (lambda np, x: (x - 1) / 3, (3_300_000,), "streaming"),
        (lambda np, x: np.swapaxes(x, 1, 2) * 2, (300, 4, 4), "superword"),
    ],
)
def test_what_was_made_can_be_forbidden(function, shape, field) -> None:
    """Each transform is made where it pays, is not where it was forbidden, and changes no number."""
    x = numbers(*shape)
    ours = lambda x: function(fnp, x)
    found = made(ours, x)
    assert found.has(field, True)
    without = Schedule(**{field: 0})
    assert not made(ours, x, schedule=without).has(field, True)
    for schedule in (None, without):
        np.testing.assert_allclose(fuser.jit(ours, schedule=schedule)(x), function(np, x), rtol=2e-6)


def test_results_stream_where_memory_is_what_takes_time() -> None:
    """Results go past the caches where these keep little of what the kernel touches, and where it computes next to nothing; what was
    asked for is made at any size, and a result that lies over what the kernel read holds the same numbers."""
    cheap, dear = lambda x: x * 2 + 1, lambda x: fnp.exp(x * 0.5) + x
    large, small = numbers(3_300_000), numbers(50_000)
    assert made(cheap, large).streaming == 1
    assert not made(dear, large).has("streaming", True)
    assert not made(cheap, small).has("streaming", True)
    for function in (cheap, dear):
        asked = fuser.jit(function, schedule=Schedule(streaming=True), donate_argnums=0)
        assert made(function, small, schedule=Schedule(streaming=True)).streaming == 1
        np.testing.assert_allclose(asked(fnp.array(small)), fuser.jit(function)(small), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_rows_that_are_computed_alike_are_a_vector_each(dtype) -> None:
    """Permutations and copies of a row's elements under one expression are; elements that differ in what is done to them are not."""
    x, v = (numbers(203, *shape) * 100 for shape in ((2, 4), (4,)))
    with fuser.config.using(enable_x64=True):
        x, v = x.astype(dtype), v.astype(dtype)
        for alike in (lambda np, x, v: np.swapaxes(x, 1, 2) + 3, lambda np, x, v: abs(x - v[:, None]) * x):
            ours = functools.partial(alike, fnp)
            assert made(ours, x, v).superword == 8
            np.testing.assert_allclose(fuser.jit(ours)(x, v), alike(np, x, v), rtol=1e-6)
        unlike = lambda x, v: fnp.stack([v[:, 0] + v[:, 1], v[:, 2] - v[:, 3], v[:, 0] * v[:, 2], v[:, 1]], -1)
        assert not made(unlike, x, v).has("superword", True)


def test_transforms_compose() -> None:
    """A piece of a kernel that is cut is fissioned, or transposed in tiles; what a tile holds is fissioned."""
    x = numbers(4, 3000)
    rows = lambda np, x: np.concatenate([deep(np, x), np.tanh(np.sqrt(x))])
    found = made(lambda x: rows(fnp, x), x)
    assert found.index_set_splitting == 2 and found.has("fission", True)
    np.testing.assert_allclose(fuser.jit(lambda x: rows(fnp, x))(x), rows(np, x), rtol=2e-6)
    y = numbers(200, 300)
    transposed = lambda np, x: np.pad(deep(np, x.T), ((1, 2), (3, 1)))
    found = made(lambda x: transposed(fnp, x), y)
    assert found.has("tiling", True) and found.has("fission", True) and found.index_set_splitting
    np.testing.assert_allclose(fuser.jit(lambda x: transposed(fnp, x))(y), transposed(np, y), rtol=2e-6)


def test_pieces_with_functions_cost_what_they_are() -> None:
    """Each of eight rows has one function of functions: none is computed for the rows of the others."""
    x = numbers(8, 5000)
    functions = [np.sin, np.tanh, np.cos, np.sqrt]
    rows = lambda np, x: np.stack([getattr(np, functions[k % 4].__name__)(np.exp(x[k])) for k in range(8)])
    (source,) = fuser.jit(lambda x: rows(fnp, x)).lower(x).sources
    (schedule,) = source.schedules.values()
    assert schedule.index_set_splitting == 8
    np.testing.assert_allclose(fuser.jit(lambda x: rows(fnp, x))(x), rows(np, x), rtol=2e-6, atol=1e-6)


WAYS = ("inner", "outer", "split inner", "split outer")


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("way", WAYS)
def test_reductions_as_asked(way: str, axis: int | None) -> None:
    """Every way to reduce gives the same, within what another order of additions changes."""
    x = numbers(70, 90)
    function = lambda np, x: (np.exp(x).sum(axis), x.max(axis))
    ours = fuser.jit(lambda x: function(fnp, x), schedule=Schedule(reduction=way))
    if axis is None and "outer" in way:
        with pytest.raises(UnsupportedError, match=r"no kernel of .* reduction='.*outer'"):
            ours(x)
        return
    for found, wanted in zip(ours(x), function(np, x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-6)
    (source,) = ours.lower(x).sources
    assert [schedule.reduction for schedule in source.schedules.values()] == [way]


def test_any_vector_axis_and_any_combination() -> None:
    """Lanes along either axis, with transforms forbidden in all combinations."""
    x = numbers(37, 41)
    function = lambda np, x: np.pad(deep(np, x).T + x.T[::-1], ((0, 3), (2, 0)))
    names = ("index_set_splitting", "tiling", "fission", "masking")
    for vector, *forbidden in itertools.product(("i", "j"), *[(None, 0)] * len(names)):
        schedule = Schedule(vector=vector, **dict(zip(names, forbidden)))
        ours = fuser.jit(lambda x: function(fnp, x), schedule=schedule)
        np.testing.assert_allclose(ours(x), function(np, x), rtol=2e-6)


def test_refusals() -> None:
    x = numbers(50)
    with pytest.raises(UnsupportedError, match=r"no kernel of .* can have tiling=.* Its kernels: "):
        fuser.jit(lambda x: x + 1, schedule=Schedule(tiling=(8, 8)))(x)
    with pytest.raises(UnsupportedError, match="tiling"):  # tiles have sides of their own
        fuser.jit(lambda x: x.T + 1, schedule=Schedule(tiling=(8, 8)))(numbers(200, 300))
    with pytest.raises(ValueError, match="a Schedule's reduction is one of"):
        Schedule(reduction="sideways")
    with pytest.raises(ValueError, match="a Schedule's unroll_and_jam is None, False, True or a number, got 'all'"):
        fuser.jit(lambda x: x + 1, schedule=Schedule(unroll_and_jam="all"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"a Schedule's tiling is None, False, True or two numbers, got 8"):
        fuser.jit(lambda x: x + 1, schedule=Schedule(tiling=8))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"takes a fuser\.Schedule"):
        fuser.jit(lambda x: x + 1, schedule={"fission": 0})


def test_words_of_what_is_asked_for() -> None:
    assert str(Schedule(tiling=True, fission=False, masking=0)) == "some tiling; no fission; no masking"  # type: ignore[arg-type]
    assert str(Schedule(fission=2)) == "fission into 2 loops" and str(Schedule()) == "one loop"


def test_inside_loops_and_pictures() -> None:
    """Kernels of loops' bodies have schedules too, and `explain(verbose=True)` prints those of all."""
    x = numbers(300)

    def function(x):
        return fuser.lax.fori_loop(0, 3, lambda n, y: fnp.cumsum(deep(fnp, y)) / y.sum(), x)

    explained = fuser.explain(function, verbose=True)(x)
    inside = [step for outer in explained.steps for step in outer.inner]
    assert inside and all(step.schedule for step in inside if not step.reason)
    assert "schedule: " in str(explained) and "schedule: " not in str(fuser.explain(function)(x))


def test_triton_takes_tiles_and_warps() -> None:
    x = numbers(64, 500)
    softmax = lambda x: fuser.nn.softmax(x)
    usual = made(softmax, x, backend="triton")
    assert usual.tile[1] == 512 and usual.grid
    assert made(softmax, numbers(64, 300), backend="triton").tile[1] == 256 + 64
    asked = made(softmax, x, schedule=Schedule(tile=(2, 1024), warps=8), backend="triton")
    assert (asked.tile, asked.warps) == ((2, 1024), 8)
    with pytest.raises(UnsupportedError, match="tile"):  # rows are held whole
        made(softmax, x, schedule=Schedule(tile=(2, 256)), backend="triton")


@pytest.mark.parametrize("shape", [(5001, 3, 4), (700, 8, 5), (90, 2, 33)])
def test_short_rows_and_axes_around_them_are_reduced_in_one_walk(shape) -> None:
    """Sums over the first axis have all columns side by side, whatever else is read along one of their axes alone."""
    x, w = numbers(*shape), numbers(*shape[:2])

    def each(np, x, w):
        y = x * w[:, :, None]
        return np.sum(y, 0), np.max(y, 0), np.argmax(x, 0), np.cumsum(y, 0)[-1], (y - np.mean(y, 0)).any(0)

    for got, expected in zip(fuser.jit(lambda x, w: each(fnp, x, w))(x, w), each(np, x.astype(float), w)):
        np.testing.assert_allclose(got, expected, rtol=1e-4)
    sources = fuser.jit(lambda x, w: fnp.sum(x * w[:, :, None], 0), backend="c").lower(x, w).sources
    (found,) = sources[-1].schedules.values()  # what is summed may be computed before
    assert found.reduction == ("split outer" if shape[0] > 5000 else "outer")


def test_long_expressions_of_short_rows_are_unrolled() -> None:
    """A filter of 49 distances between colours keeps vectors of pixels, not of the three numbers of each."""
    x = numbers(40, 50, 3)

    def filtered(np, x):
        total = 0
        for dy, dx in itertools.product(range(7), range(7)):
            total = total + np.exp(-np.sum((x[dy : dy + 34, dx : dx + 44] - x[3:37, 3:47]) ** 2, -1))
        return total

    np.testing.assert_allclose(fuser.jit(lambda x: filtered(fnp, x))(x), filtered(np, x), rtol=1e-5)
    sources = fuser.jit(lambda x: filtered(fnp, x)).lower(x).sources
    assert not any(schedule.reduction for source in sources for schedule in source.schedules.values())


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("size", [40, 64, 130, 250])
def test_vectors_meet_matrices_in_loops(size, transposed) -> None:
    """Matrices that fit into registers and caches are read as sums of products, larger ones by the library."""
    m = numbers(size, size) / size

    def power(m):
        matrix = m.T if transposed else m
        return fuser.lax.fori_loop(0, 20, lambda _, r: matrix @ r + 0.1, fnp.ones(size))

    expected = np.ones(size)
    for _ in range(20):
        expected = (m.T if transposed else m).astype(float) @ expected + 0.1
    np.testing.assert_allclose(fuser.jit(power)(m), expected, rtol=1e-5)
    inside = [step for outer in fuser.explain(power)(m).steps for step in outer.inner]
    assert any(step.kind == "contraction" for step in inside) == (size == 250)


def test_loops_of_a_fission_read_what_they_need_alone() -> None:
    x = numbers(3000)
    (source,) = fuser.jit(lambda x, y: fnp.sin(fnp.sin(x)) * y, backend="c").lower(x, x).sources
    first, second = source.text.split("#pragma omp simd")[1:]
    assert first.count("in1[i]") == 0 and second.count("in1[i]") == 1 and "in0[i]" not in second


def test_loops_of_a_fission_store_what_they_compute() -> None:
    """A result goes to its place once, and a later loop reads it there."""
    x = numbers(3000)
    (source,) = fuser.jit(lambda x: (fnp.sin(x), fnp.cos(fnp.sin(x))), backend="c").lower(x).sources
    first, second = source.text.split("#pragma omp simd")[1:]
    assert first.count("out0[i] = ") == 1 and "out0[i] = " not in second and "cosf32" in second.replace("_", "")
    assert "out0[i]" in second and "_block" not in source.text


@pytest.mark.parametrize(
    "function", [lambda np, x: (np.sin(x), np.cos(np.sin(x)) * x), lambda np, x: (np.cos(np.sin(x)), x * 2)]
)
def test_loops_of_a_fission_store_nothing_over_what_a_later_one_reads(function) -> None:
    """A result that takes over an argument's memory waits for the last loop that reads the argument."""
    x = numbers(3000)
    found = fuser.jit(lambda x: function(fnp, x), backend="c", donate_argnums=0)(fnp.array(x))
    for ours, theirs in zip(found, function(np, x.astype(np.float64))):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6)
