"""C kernels with their loop inside against the reference: lanes that stop by themselves, dtypes, odd sizes, random bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.config import config
from fuser.ir.types import ArrayType
from fuser.partition.group import Kind
from tests.backends.loop_cases import COMPLEX, DTYPES, EDGES, ONE_KERNEL, WITH_LANES, while_of

F32 = np.dtype("float32")

UNROLLED = ("no iterations", "one iteration")  # known while tracing: there is no loop
CASES = {**WITH_LANES, **DTYPES, **COMPLEX, **EDGES}
# A few operations an iteration: relative errors of float16 and bfloat16 are of one rounding each.
TOLERANCE = {"float16": 2e-2, "bfloat16": 2e-1, "float32": 2e-6, "complex64": 1e-5}


def run(function: Callable[..., Any], args: tuple[Any, ...], backend: str) -> list[np.ndarray]:
    with config.using(backend=backend, enable_x64=True):
        return [np.asarray(leaf) for leaf in fuser.tree.leaves(fuser.jit(function)(*args))]


@pytest.mark.parametrize("name", CASES)
def test_a_loop_kernel_agrees_with_the_reference(name: str) -> None:
    function, args = CASES[name]
    with config.using(backend="c", enable_x64=True):
        plan = fuser.jit(function).lower(*args).plan
        assert [g.kind for g in plan.groups] == [Kind.LOOP] or name in UNROLLED, plan.explain()
    for got, want in zip(run(function, args, "c"), run(function, args, "reference"), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        limit = TOLERANCE.get(got.dtype.name, 1e-13)
        if got.dtype.kind in "iub":
            assert (got == want).all()
        else:
            wide = np.complex128 if got.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), limit, limit)


def keys(function: Callable[..., Any], *args: Any) -> list[str]:
    return [source.key for source in fuser.jit(function).lower(*args).sources]


def test_a_new_number_of_steps_or_lanes_compiles_nothing() -> None:
    def steps(length: int, lanes: int) -> list[str]:
        xs = np.zeros((length, lanes), np.float32)
        return keys(lambda x, xs: lax.scan(lambda c, z: (c * 0.5 + z, c), x, xs), xs[0], xs)

    assert len({tuple(steps(length, lanes)) for length in (7, 100, 5000) for lanes in (64, 100, 12345)}) == 1

    def planes(count: int, rows: int, columns: int) -> list[str]:
        x = np.zeros((rows, columns), np.float32)
        return keys(lambda x, w: lax.fori_loop(0, count, lambda i, v: v * w + i, x), x, x[0])

    assert len({tuple(planes(*n)) for n in ((3, 5, 70), (900, 7, 640), (31, 200, 65))}) == 1
    assert len({tuple(planes(*n)) for n in ((3, 5, 17), (900, 70, 30), (31, 200, 21))}) == 1


def test_a_traced_bound_compiles_nothing_new() -> None:
    function = fuser.jit(lambda x, n: lax.fori_loop(0, n, lambda i, v: v * 0.5 + i, x))
    x = np.ones(100, np.float32)
    results = [np.asarray(function(x, np.int32(n))) for n in (0, 1, 50)]
    assert len(function._programs) == 1
    assert results[0][0] == 1.0 and results[1][0] == 0.5


def test_a_few_lanes_wake_no_thread() -> None:
    """The parallel region begins only where there is more than one block."""
    xs = np.zeros((10_000, 8), np.float32)
    (source,) = fuser.jit(lambda x, xs: lax.scan(lambda c, z: (c * 0.5 + z, c), x, xs)).lower(xs[0], xs).sources
    assert "shares = sizes[0] <= 8 ||" in source.text
    (source,) = fuser.jit(lambda a: lax.while_loop(lambda s: s < 9, lambda s: s + 1, a)).lower(np.float32(0)).sources
    assert "omp" not in source.text


def test_lanes_that_end_early_keep_their_carry() -> None:
    """Each lane counts its own steps; a lane that never begins is left as it is."""
    start = np.array([1, 2, 3, 1024, -5, 0], np.float32)
    count = while_of(
        lambda x, n: x > 1, lambda x, n: (x * 0.5, n + 1), ArrayType((6,), F32), ArrayType((6,), np.dtype("int32"))
    )
    x, n = fuser.jit(count)(start, np.zeros(6, np.int32))
    assert np.asarray(n).tolist() == [0, 1, 2, 10, 0, 0]
    assert np.asarray(x).tolist() == [1.0, 1.0, 0.75, 1.0, -5.0, 0.0]


UNARY = [
    lambda v: v * 0.5,
    lambda v: fnp.minimum(abs(v), 3.0),
    lambda v: -v,
    lambda v: v * v * 0.25,
    lambda v: fnp.where(v > 0, v, v * 0.1),
    lambda v: fnp.floor(v * 4) * 0.25,
    lambda v: (v.astype("int32") % 7).astype("float32"),
]
BINARY = [
    lambda v, w: v * 0.5 + w * 0.25,
    lambda v, w: fnp.maximum(v, w),
    lambda v, w: fnp.where(v < w, v, w - 1),
    lambda v, w: v - w * 0.5,
]


@st.composite
def programs(draw: Any) -> tuple[Callable[..., Any], tuple[np.ndarray, ...]]:
    """A loop over random carries: lanes, rows of few elements, scalars; with xs, ys, consts and a reduction perhaps."""
    lanes = draw(st.sampled_from([(), (1,), (3,), (8,), (70,), (5, 9), (3, 4), (2, 130)]))
    shapes = [lanes, draw(st.sampled_from([lanes, lanes[1:], ()]))]
    small = draw(st.booleans()) and len(lanes) > 0 and lanes[-1] <= 9
    length = draw(st.integers(0, 6))
    choices = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=6))
    reverse, by_while = draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    args = tuple(rng.standard_normal(s).astype(np.float32) for s in (*shapes, lanes, (length, *lanes)))

    def step(a: Any, b: Any, const: Any, x: Any, i: Any) -> tuple[Any, Any]:
        values = [a, b]
        for unary, binary, which in choices:
            values[which] = UNARY[unary](values[which])
            values[0] = BINARY[binary](values[0], values[1] if which else const)
        total = values[0].sum(-1, keepdims=True) * 0.1 if small else 0.0
        return values[0] * 0.5 + x + total + i * 0.125, values[1] * 0.5 + 1

    def scanned(a: Any, b: Any, const: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            new = step(carry[0], carry[1], const, x, carry[2])
            return (*new, carry[2] + 1), new[0] - const

        return lax.scan(body, (a, b, fnp.float32(0)), xs, reverse=reverse)

    def counted(a: Any, b: Any, const: Any, xs: Any) -> Any:
        return lax.while_loop(
            lambda carry: carry[2] < length,
            lambda carry: (*step(carry[0], carry[1], const, const, carry[2]), carry[2] + 1),
            (a, b, fnp.float32(0)),
        )

    return (counted if by_while else scanned), args


@settings(max_examples=25, deadline=None, derandomize=True)
@given(programs())
def test_random_bodies(program: tuple[Callable[..., Any], tuple[np.ndarray, ...]]) -> None:
    function, args = program
    lowered = fuser.jit(function, backend="c").lower(*args)
    assert Kind.CONTROL not in [g.kind for g in lowered.plan.groups], lowered.plan.explain()
    for got, want in zip(run(function, args, "c"), run(function, args, "reference"), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


# libm's functions are another implementation than NumPy's; half precision is rounded once an iteration; NumPy
# contracts products of complex numbers.
NOT_EXACT = {
    "a small matrix times the carry",
    "rows times a small matrix",
    "work before and after",
    "inputs computed for each step",
    "iterations that need nothing of each other",
    "float16 lanes",
    "bfloat16 lanes",
    *COMPLEX,
}


def test_arithmetic_gives_the_bits_of_the_reference() -> None:
    """Many iterations later not a bit differs: no contraction, no other order of operations."""
    different = {
        name
        for name, (function, args) in {**ONE_KERNEL, **CASES}.items()
        for got, want in zip(run(function, args, "c"), run(function, args, "reference"), strict=True)
        if got.tobytes() != want.tobytes()
    }
    assert different <= NOT_EXACT
