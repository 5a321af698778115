"""Sorts, top_k, scatters and positions of extremes in C against the primitives' own NumPy rules and JAX."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as fnp
from fuser import config, lax
from fuser.backends.c.library import library_calls
from fuser.ops.sorting import sort_p, top_k_p
from fuser.partition.group import Kind
from fuser.runtime.executable import KernelStep

REAL = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
SHAPES = [((0,), 0), ((1,), 0), ((300,), 0), ((20, 64), 1), ((40, 257), 1), ((257, 40), 0), ((3, 100, 5), 1)]


def values(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Random values with many ties; of floats also zeros of both signs, nans and infinities."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        edges = np.array([info.min, info.max, info.max - 1], dtype)
        return np.where(rng.random(shape) < 0.2, rng.choice(edges, shape), rng.integers(0, 9, shape).astype(dtype))
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf]).astype(dtype)
    plain = rng.standard_normal(shape).astype(dtype)
    return np.where(rng.random(shape) < 0.3, rng.choice(special, shape), plain).astype(dtype)


def same(result: object, expected: object) -> None:
    """Equal to the bit, but for which nan."""
    a, b = np.asarray(result), np.asarray(expected)
    assert a.dtype == b.dtype and a.shape == b.shape
    nan = a != a
    assert (nan == (b != b)).all()
    assert a[~nan].tobytes() == b[~nan].tobytes()


def jitted(function):
    return fuser.jit(function, backend="c")


DTYPES = [*map(np.dtype, REAL), np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize(  # three dtypes for each shape, each of them with two shapes
    "dtype, shape, dimension",
    [(DTYPES[(n + 4 * k) % len(DTYPES)], *SHAPES[n % len(SHAPES)]) for k in range(3) for n in range(0, 7)],
    ids=str,
)
def test_sorts(dtype, shape, dimension):
    rng = np.random.default_rng(len(shape))
    x, narrow, wide = (values(rng, np.dtype(d), shape) for d in (dtype, "int8", "float64"))
    with fuser.config.using(enable_x64=True):
        for operands, keys in (((x,), 1), ((x, wide), 1), ((narrow, x, wide), 2)):
            found = jitted(lambda *o: lax.sort(o, dimension=dimension, num_keys=keys))(*operands)  # noqa: B023
            expected = sort_p.rule("eval")(*operands, dimension=dimension, num_keys=keys)
            for a, b in zip(found, expected, strict=True):
                same(a, b)
        same(jitted(lambda x: fnp.argsort(x, axis=dimension))(x), np.asarray(fnp.argsort(x, axis=dimension)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 70000), st.integers(0, 3000), st.sampled_from(["float32", "int32"]))
def test_top_k_is_the_head_of_a_stable_sort(seed, n, k, dtype):
    x = values(np.random.default_rng(seed), np.dtype(dtype), (n,))
    k = min(n, k)
    for found, expected in zip(jitted(lambda x: lax.top_k(x, k))(x), top_k_p.rule("eval")(x, k=k), strict=True):
        same(found, expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 70000), st.sampled_from(["float32", "int64", "uint8"]))
def test_sorts_of_any_length_are_stable(seed, n, dtype):
    x = values(np.random.default_rng(seed), np.dtype(dtype), (n,))
    with fuser.config.using(enable_x64=True):
        found = jitted(lambda x, i: lax.sort((x, i), num_keys=1))(x, np.arange(n))
    for a, b in zip(found, sort_p.rule("eval")(x, np.arange(n), dimension=0), strict=True):
        same(a, b)


def reduced(reduction: str, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    out = x.copy()
    kept = (indices >= 0) & (indices < len(x))
    if reduction == "set":
        for i, u in zip(indices[kept], updates[kept]):
            out[i] = u
    else:
        ufunc = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}[reduction]
        ufunc.at(out, indices[kept], updates[kept])
    return out


@pytest.mark.parametrize("reduction", ["set", "add", "min", "max"])
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 7, 300, 5000]), st.sampled_from([0, 1, 513, 40000]), st.booleans())
def test_scatters_with_duplicates(reduction, seed, n, count, rows):
    rng = np.random.default_rng(seed)
    x = rng.integers(-99, 99, (n, 3) if rows else n).astype(np.float32)
    indices = rng.integers(0, n + 3, count).astype(np.int32)
    updates = rng.integers(-9, 9, (count, 3) if rows else count).astype(np.float32)
    found = jitted(lambda x, i, u: getattr(x.at[i], reduction)(u))(x, indices, updates)
    same(found, reduced(reduction, x, indices, updates))


@pytest.mark.parametrize("reduction", ["set", "add", "multiply", "max"])
@pytest.mark.parametrize("spoilt", ["no", "negative", "beyond", "swapped"])
@pytest.mark.parametrize("rows", [False, True])
def test_scatters_by_indices_in_order(reduction, spoilt, rows):
    """Each index's updates are combined; one index out of place or bounds, and they are not."""
    rng = np.random.default_rng(3)
    n, count = 4000, 30000
    x, updates = (rng.integers(1, 9, (size, 3) if rows else size).astype(np.float32) for size in (n, count))
    indices = np.sort(rng.integers(5, n, count)).astype(np.int32)
    if spoilt == "swapped":
        indices[-2:] = indices[-1], indices[-1] - 1
    elif spoilt != "no":
        place, index = {"negative": (0, -n + 1), "beyond": (-1, n)}[spoilt]
        indices[place] = index
    wrapped = np.where(indices < 0, indices + n, indices)
    found = jitted(lambda x, i, u: getattr(x.at[i], reduction)(u, indices_are_sorted=True))(x, indices, updates)
    same(found, reduced(reduction, x, wrapped, updates))


@pytest.mark.parametrize("reduction", ["add", "max"])
@pytest.mark.parametrize("mode", ["clip", "drop"])
@pytest.mark.parametrize("form", ["runs", "columns", "short columns", "one value", "few bins"])
def test_scatters_of_runs_and_single_elements(reduction, mode, form):
    """Windows of some vectors and a rest, single elements side by side or apart, and parts that are taken together."""
    rng = np.random.default_rng(5)
    n, count = (9, 20001) if form == "few bins" else (40, 1000)
    indices = rng.integers(-n, n + 5, count).astype(np.int32)
    width = {"runs": (53,), "columns": (30,), "short columns": (2,)}.get(form, ())
    x, updates = (rng.integers(-99, 99, (size, *width)).astype(np.float32) for size in (n, count))
    wrapped = np.where(indices < 0, indices + n, indices)
    if "columns" in form:
        found = jitted(lambda x, i, u: getattr(x.at[:, i], reduction)(u, mode=mode).T)(x.T, indices, updates.T)
    elif form == "one value":
        found = jitted(lambda x, i: getattr(x.at[i], reduction)(3.0, mode=mode))(x, indices)
        updates = np.full(count, 3, np.float32)
    else:
        found = jitted(lambda x, i, u: getattr(x.at[i], reduction)(u, mode=mode))(x, indices, updates)
    same(found, reduced(reduction, x, np.clip(wrapped, 0, n - 1) if mode == "clip" else wrapped, updates))


@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize("length", [2, 3, 5, 8, 9, 12, 15, 16, 17, 31, 32, 33, 50, 64])
def test_scatters_of_rows_of_all_lengths(length, mode):
    """Sums of whole numbers are exact; indices repeat, are negative, and lie outside on both sides."""
    rng = np.random.default_rng(length)
    x, updates = rng.integers(-9, 9, (40, length)), rng.integers(-9, 9, (300, length))
    indices = rng.integers(-60, 60, 300).astype(np.int32)
    wrapped = np.where(indices < 0, indices + 40, indices)
    rows = np.clip(wrapped, 0, 39) if mode == "clip" else wrapped
    inside = (rows >= 0) & (rows < 40)
    for dtype in ("float32", "int32", "float16"):
        expected = x.astype(dtype)
        np.add.at(expected, rows[inside], updates[inside].astype(dtype))
        found = jitted(lambda x, i, u: x.at[i].add(u, mode=mode))(x.astype(dtype), indices, updates.astype(dtype))
        same(found, expected)


def test_scatters_wrap_negative_indices_themselves():
    """The wrapped indices are no pass over memory; those that something else reads too are one all the same."""
    rng = np.random.default_rng(4)
    x, updates = rng.standard_normal(50).astype(np.float32), rng.integers(-9, 9, 40000).astype(np.float32)
    indices = rng.integers(-60, 60, 40000).astype(np.int32)
    expected = reduced("add", x, np.where(indices < 0, indices + 50, indices), updates)
    function = jitted(lambda x, i, u: x.at[i].add(u))
    assert [g.ops[-1] for g in function.lower(x, indices, updates).plan.groups] == ["scatter-add"]
    np.testing.assert_allclose(function(x, indices, updates), expected, rtol=1e-4, atol=1e-2)
    both = jitted(lambda x, i, u: (x.at[i].add(u), fnp.where(i < 0, i + 50, i)))(x, indices, updates)
    np.testing.assert_allclose(both[0], expected, rtol=1e-4, atol=1e-2)
    same(both[1], np.where(indices < 0, indices + 50, indices))
    reference = fuser.jit(lambda x, i, u: x.at[i].add(u), backend="reference")(x, indices, updates)
    np.testing.assert_allclose(reference, expected, rtol=1e-4, atol=1e-2)


def test_narrow_indices_are_wrapped_in_their_own_type():
    x, indices = np.zeros(200, np.float32), np.array([-1, -128, 127, 0] * 5000, np.int8)
    found = jitted(lambda x, i: x.at[i].add(1.0))(x, indices)
    expected = np.asarray(fuser.jit(lambda x, i: x.at[i].add(1.0), backend="reference")(x, indices))
    same(found, expected)


@pytest.mark.parametrize("dtype", [*REAL, "complex64", "complex128"])
def test_sums_of_all_dtypes(dtype):
    rng = np.random.default_rng(0)
    indices, x = rng.integers(0, 50, 20000).astype(np.int32), np.zeros(50, dtype)
    updates = rng.integers(0, 2, 20000).astype(dtype)
    with fuser.config.using(enable_x64=True):
        found = jitted(lambda x, i, u: x.at[i].add(u))(x, indices, updates)
    same(found, reduced("add", x, indices, updates))


@pytest.mark.parametrize("bins", [20, 30000])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch, bins, ordered, dtype):
    monkeypatch.setattr(library_calls, "cpu_count", lambda: 3)
    rng = np.random.default_rng(0)
    x, updates = rng.standard_normal(bins).astype(dtype), rng.standard_normal(100000).astype(dtype)
    indices = rng.integers(0, bins, 100000).astype(np.int32)
    indices = np.sort(indices) if ordered else indices
    before, results = config.threads, set()
    with fuser.config.using(enable_x64=True):
        function = jitted(lambda x, i, u: (x.at[i].add(u), fnp.sort(u), lax.top_k(u, 9)[1], fnp.argmax(u)))
        try:
            for threads in (1, 2, 3):
                config.update("threads", threads)
                results.add(b"".join(np.asarray(r).tobytes() for r in function(x, indices, updates)))
        finally:
            config.update("threads", before)
    assert len(results) == 1


def test_they_run_as_kernels_and_inside_loops():
    def step(carry, i):
        return fnp.sort(carry.at[i].add(1.0)), carry[0]

    lowered = jitted(lambda x: lax.scan(step, x, fnp.arange(5)))
    x = np.array([3.0, 1.0, 2.0, 5.0, 4.0], np.float32)
    compiled = lowered.lower(x).compile()
    [group] = [g for g in compiled.plan.groups if g.kind is Kind.CONTROL]
    assert not group.reason
    assert all(isinstance(s, KernelStep) for s in compiled.executable.steps)
    carry = x
    for i in range(5):
        carry = carry.copy()
        carry[i] += 1
        carry = np.sort(carry)
    same(lowered(x)[0], carry)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float16", "float32"])
@pytest.mark.parametrize("shape, axis", [((5000,), 0), ((70000,), 0), ((7, 1025), 1), ((1025, 300), 0)], ids=str)
def test_positions_of_extremes(dtype, shape, axis):
    x = values(np.random.default_rng(1), np.dtype(dtype), shape)
    for name in ("argmax", "argmin"):
        found = np.asarray(jitted(lambda x: getattr(fnp, name)(x, axis=axis))(x))  # noqa: B023
        assert (found == getattr(np, name)(x, axis=axis)).all()
