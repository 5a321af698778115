"""Sums and running sums of every type, along every axis, alone and beside other work: at least as accurate as in pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config
from tests.backends.test_tpu import rows_of

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.complex64, np.complex128]
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((40_000,), (0,)),
    ((5, 20_001), (1,)),
    ((20_001, 5), (0,)),
    ((3_000, 70), (0,)),
    ((70, 1_500), (1,)),
    ((50, 3, 200), (0, 2)),
    ((301, 3, 17), (0, 2)),
    ((3, 2_000, 7), (1,)),
    ((3, 40, 50, 4), (1, 2)),
]
PLAIN = [SHAPES[n] for n in (0, 1, 2, 5)]  # of types that share their loops with others
DATA = ("constant", "random", "alternating", "cancelling", "far")


def unit(dtype: Any) -> float:
    """The largest relative error of one rounding."""
    return float(ml_dtypes.finfo(dtype).eps) / 2 if np.dtype(dtype).kind != "c" else float(np.finfo(dtype).eps) / 2


def data(kind: str, shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Numbers that round badly, each in its own way."""
    rng = np.random.default_rng(seed)
    count = math.prod(shape)
    place = np.arange(count)
    numbers = {
        "constant": lambda: np.full(count, 0.1),
        "random": lambda: rng.random(count),
        "alternating": lambda: np.where(place % 2, -0.7, 0.9),
        "cancelling": lambda: rng.standard_normal(count) * np.exp(3 * rng.standard_normal(count)),
        "far": lambda: rng.random(count) + 100,
    }[kind]()
    if np.dtype(dtype) == np.float16:
        numbers = numbers / 64  # or the sums are infinite
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * rng.permutation(numbers)
    return numbers.reshape(shape).astype(dtype)


def parts(x: np.ndarray) -> Iterator[np.ndarray]:
    """Real and imaginary parts in float64."""
    x = np.asarray(x)
    if x.dtype.kind == "c":
        yield np.asarray(x.real, np.float64)
        yield np.asarray(x.imag, np.float64)
    else:
        yield x.astype(np.float64)


def lines(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """What is summed, one row a sum."""
    kept = [d for d in range(x.ndim) if d not in axes]
    count = math.prod(x.shape[d] for d in axes)
    return np.ascontiguousarray(x.transpose(*kept, *axes).reshape(-1, count))


def check_sum(got: Any, x: np.ndarray, axes: tuple[int, ...], what: str) -> None:
    """Error at most that of pairwise summation, and twice NumPy's own where it adds in pairs."""
    narrow = unit(x.dtype) if x.dtype.itemsize == 2 else 0.0
    rounding = unit(np.float32) if narrow else unit(x.dtype)
    wide = lines(x, axes).astype(np.float32) if narrow else lines(x, axes)
    pairs = np.add.reduce(wide, axis=1)
    for ours, rows, numpy in zip(parts(got), parts(wide), parts(pairs)):
        for value, row, theirs in zip(ours.reshape(-1), rows, numpy.reshape(-1)):
            exact, size = math.fsum(row), math.fsum(abs(row))
            error, other = abs(value - exact), abs(float(theirs) - exact)
            error = max(error - narrow * abs(exact), 0.0)
            assert error <= rounding * 2 * math.log2(len(row)) * size, (what, error / (rounding * size))
            assert error <= 2 * other + 12 * rounding * size, (
                what,
                error / (rounding * size),
                other / (rounding * size),
            )


def check_running(got: Any, x: np.ndarray, axis: int, what: str) -> None:
    narrow = unit(x.dtype) if x.dtype.itemsize == 2 else 0.0
    rounding = unit(np.float32) if narrow else unit(x.dtype)
    for ours, values in zip(parts(got), parts(x)):
        exact = np.cumsum(np.moveaxis(values, axis, -1).astype(np.longdouble), -1)
        size = np.cumsum(np.abs(np.moveaxis(values, axis, -1)).astype(np.longdouble), -1)
        error = np.abs(np.moveaxis(ours, axis, -1) - exact) - narrow * np.abs(exact)
        bound = rounding * 2 * (np.log2(np.arange(1, exact.shape[-1] + 1)) + 3)
        assert (error <= bound * size).all(), (what, float((error / (size * rounding)).max()))


def alone(x: Any, axes: tuple[int, ...]) -> tuple[Any, ...]:
    return (fnp.sum(x, axes),)


def fused(x: Any, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """The sum beside a running sum, an elementwise result and another sum that takes it in."""
    total = fnp.sum(x, axes, keepdims=True)
    return fnp.squeeze(total, axes), fnp.cumsum(x, axes[0]) if len(axes) == 1 else x + 1, (x - total).sum(axes), x * 2


def functions(form: Callable[..., Any], cases: list[Any], backend: str) -> Any:
    return fuser.jit(lambda xs: [form(x, axes) for x, (_, axes) in zip(xs, cases)], backend=backend)


@pytest.mark.parametrize("form", [alone, fused], ids=["alone", "fused"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("backend", ["c", "reference"])
def test_sums(backend: str, dtype: Any, form: Callable[..., Any]) -> None:
    cases = SHAPES if dtype in (np.float32, np.float64) else PLAIN
    with config.using(enable_x64=True):
        function = functions(form, cases, backend)
        for kind in DATA:
            arrays = [data(kind, shape, dtype) for shape, _ in cases]
            for x, (shape, axes), got in zip(arrays, cases, function(arrays)):
                check_sum(got[0], x, axes, f"{kind} {shape} {axes}")
                if form is fused and len(axes) == 1:
                    check_running(got[1], x, axes[0], f"{kind} {shape} {axes}, running")


INFINITE = {
    "inf": ([np.inf], np.inf),
    "-inf": ([-np.inf], -np.inf),
    "inf - inf": ([np.inf, -np.inf], np.nan),
    "nan": ([np.nan], np.nan),
    "overflow": ([3e38, 3e38], np.inf),
}


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_infinities_and_nan_stay_what_they_are(backend: str) -> None:
    shapes = [((5_000,), (0,)), ((4_000, 20), (0,)), ((2, 3_000), (1,))]

    def both(xs: Any) -> Any:
        return [(fnp.sum(x, axes), fnp.cumsum(x, axes[0])) for x, (_, axes) in zip(xs, shapes)]

    function = fuser.jit(both, backend=backend)
    for name, (values, expected) in INFINITE.items():
        arrays = [np.ones(shape, np.float32) for shape, _ in shapes]
        for x, (_, axes) in zip(arrays, shapes):
            rows = np.moveaxis(x, axes[0], 0)
            for number, value in enumerate(values):
                rows[1_500 + number] = value
        for (total, running), (shape, axes) in zip(function(arrays), shapes):
            np.testing.assert_array_equal(total, np.full(np.shape(total), expected, np.float32), f"{name} {shape}")
            running = np.moveaxis(np.asarray(running), axes[0], 0)
            assert np.isfinite(running[:1_500]).all(), name
            np.testing.assert_array_equal(running[-1], np.full(running.shape[1:], expected), f"{name} {shape}")


@pytest.mark.filterwarnings("ignore:.* has a kernel without vector instructions")
def test_a_sum_beside_a_running_sum_does_not_stop_at_2_to_the_24() -> None:
    x = fnp.ones(3 << 23, np.float32)
    running, mean = fuser.jit(lambda x: (fnp.cumsum(x)[-1], fnp.mean(x)))(x)
    assert (running, mean) == (3 << 23, 1)
    spread = fuser.jit(lambda x: fnp.broadcast_to(x[:, None], (2, 1 << 29)).sum(1))(np.ones(2, np.float32))
    assert np.asarray(spread).tolist() == [2**29, 2**29]  # more than 2**24 in each lane of a vector


FAR = {
    "var": (fnp.var, np.var),
    "std": (fnp.std, np.std),
    "norm": (lambda x, axis: fnp.linalg.norm(x, axis=axis), lambda x, axis: np.linalg.norm(x, axis=axis)),
    "mean": (fnp.mean, np.mean),
    "logsumexp": (lambda x, axis: fuser.nn.logsumexp(x, axis), None),
}


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_statistics_of_data_far_from_zero(backend: str) -> None:
    x = (np.random.default_rng(0).random((1_500, 1_700)) + 1_000).astype(np.float32)
    function = fuser.jit(lambda x: [f(x, axis) for f, _ in FAR.values() for axis in (0, 1)], backend=backend)
    found = iter(function(x))
    exact = x.astype(np.float64)
    for name, (_, numpy) in FAR.items():
        for axis in (0, 1):
            expected = numpy(exact, axis=axis) if numpy else np.log(np.exp(exact - 1_000).sum(axis)) + 1_000
            error = np.abs(np.asarray(next(found), np.float64) - expected) / np.abs(expected)
            assert error.max() < 2e-6, (name, axis, error.max())


def test_accelerated_statistics_are_as_accurate_as_numpy() -> None:
    x = (np.random.default_rng(0).random((3, 300_000)) + 1_000).astype(np.float32)
    exact = x.astype(np.float64)
    mean, variance, total, running = fuser.accelerate(lambda x: (x.mean(1), x.var(1), x.sum(), x.cumsum(1)))(x)
    np.testing.assert_allclose(mean, exact.mean(1), rtol=2e-7)
    np.testing.assert_allclose(variance, exact.var(1), rtol=1e-6)
    np.testing.assert_allclose(total, exact.sum(), rtol=2e-7)
    np.testing.assert_allclose(running, exact.cumsum(1), rtol=1e-6)


@pytest.mark.parametrize("shape", [(300_000,), (3, 20_000), (200, 1_000)], ids=lambda shape: "x".join(map(str, shape)))
def test_a_row_has_the_same_sum_beside_other_work(shape: tuple[int, ...]) -> None:
    x = data("random", shape, np.float32)
    plain = fuser.jit(lambda x: fnp.sum(x, -1))(x)
    beside = fuser.jit(lambda x: (fnp.sum(x, -1), x * 2 + 1))(x)[0]
    reduced = fuser.jit(lambda x: (fnp.sum(x, -1), fnp.max(x, -1), fnp.exp(x)))(x)[0]
    scaled = fuser.jit(lambda x: fnp.sum(x * 2, -1))(x)
    np.testing.assert_array_equal(plain, beside)
    np.testing.assert_array_equal(plain, reduced)
    np.testing.assert_array_equal(np.asarray(plain) * 2, scaled)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("extent", [300, 700, 5_000, 100_000])
def test_equal_numbers_are_added_as_accurately_as_by_numpy(extent: int, dtype: Any) -> None:
    """Their sums round in one direction all along, so that a chain of additions shows; pairs of them are exact."""
    with config.using(enable_x64=True):
        total = fuser.jit(fnp.sum)
        shifted = fuser.jit(lambda x: fnp.where(fnp.exp(x) > 0, x, 0).sum())  # computed before it is added
        ours, theirs = [], []
        for number in np.random.default_rng(0).random(40).astype(dtype):
            x = np.full(extent, number)
            exact = np.longdouble(number) * extent
            ours.append(float(abs(np.longdouble(total(x)) - exact) / exact))
            theirs.append(float(abs(np.longdouble(x.sum()) - exact) / exact))
            assert shifted(x) == total(x)
    assert np.mean(ours) <= 2 * np.mean(theirs)
    assert max(ours) <= 2 * max(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["triton", "tpu"])
def test_sums_in_the_interpreters(backend: str) -> None:
    pytest.importorskip({"triton": "triton", "tpu": "jax"}[backend])
    rows = rows_of("sums_worker", backend)
    assert len(rows) >= 2
    assert {row["case"]: row["error"] for row in rows if row["error"]} == {}


@pytest.mark.parametrize(
    "shape", [(5, 300), (5, 1_000), (3, 20_000), (1, 400_000)], ids=lambda s: "x".join(map(str, s))
)
def test_statistics_of_a_computed_row(shape: tuple[int, ...]) -> None:
    """What the first sum computes is kept for the second, which reads it where groups of vectors are."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)

    def program(x: Any) -> Any:
        y = fnp.exp(x)
        return fnp.var(y, axis=1), y - fnp.mean(y, axis=1, keepdims=True)

    wide = np.exp(x.astype(np.float64))
    spread, centred = fuser.jit(program)(x)
    np.testing.assert_allclose(np.asarray(spread), wide.var(1), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(centred), wide - wide.mean(1, keepdims=True), atol=1e-4)
    np.testing.assert_allclose(np.asarray(fuser.jit(lambda x: fnp.var(fnp.exp(x), axis=1))(x)), wide.var(1), rtol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(300, 30), (40, 3_000)], ids=lambda s: "x".join(map(str, s)))
def test_running_sums_between_dear_work(shape: tuple[int, ...], reverse: bool) -> None:
    """The scan runs in a loop of its own; functions of maths before and after it run in vectors."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)

    def program(np_: Any, x: Any) -> Any:
        turned = lambda v: np_.flip(v, -1) if reverse else v
        total = turned(np_.cumsum(turned(np_.log1p(np_.abs(x))), axis=-1))
        return np_.tanh(total * 0.01) * x, np_.exp(-total * 0.01).sum(-1), total * 2

    found = fuser.jit(lambda x: program(fnp, x))(x)
    for ours, theirs in zip(found, program(np, x.astype(np.float64)), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=2e-5, atol=2e-6)
