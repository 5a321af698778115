"""Errors, warnings and values where NumPy raises, warns or converts out of range: NumPy itself is the oracle, call for call."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.errors import PerformanceWarning
from fuser.interop import accelerate
from tests.interop.oracle import same

A = np.arange(3.0)
M = np.arange(12.0).reshape(3, 4)
NAN = np.array([[np.nan, 1.0], [np.nan, np.nan]])


def told(function: Callable[..., Any], *args: Any, **errors: str) -> tuple[Any, Any, list[str]]:
    """The result of a call, the error it raised in words, and the warnings that it gave."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(**errors):  # type: ignore[arg-type]
        warnings.simplefilter("always")
        result, raised = None, None
        try:
            result = function(*args)
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
    return (
        result,
        raised,
        [f"{w.category.__name__}: {w.message}" for w in caught if w.category is not PerformanceWarning],
    )


def as_numpy(
    function: Callable[..., Any], *args: Any, calls: int = 2, backend: str = "reference", **errors: str
) -> Any:
    """Assert that each of several calls tells what NumPy tells; gives the accelerated function."""
    accelerated = accelerate(function, backend=backend)
    wanted = told(function, *args, **errors)
    for _ in range(calls):
        found = told(accelerated, *args, **errors)
        assert found[1:] == wanted[1:]
        same(wanted[0], found[0])
    return accelerated


def events(accelerated: Any) -> int:
    return sum(entry.events for entry in accelerated._entries.values())


def assigned(x: np.ndarray, *index: Any) -> np.ndarray:
    y = x.copy()
    y[index] = 1
    return y


def added(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    y = x.copy()
    np.add.at(y, index, 1)
    return y


GATHERS: dict[str, tuple[Callable[..., Any], int]] = {
    "x[i]": (lambda x, i: x[i], 3),
    "x[i] = 1": (assigned, 3),
    "x[:, i]": (lambda x, i: x[:, i], 4),
    "x[..., i]": (lambda x, i: x[..., i], 4),
    "x[i, i]": (lambda x, i: x[i, i], 3),
    "x[1, i]": (lambda x, i: x[1, i], 4),
    "x[i, None]": (lambda x, i: x[i, None], 3),
    "x[i[0]]": (lambda x, i: x[i[0]], 3),
    "x[0, i[0]]": (lambda x, i: x[0, i[0]], 4),
    "take": (lambda x, i: np.take(x, i), 12),
    "take of an axis": (lambda x, i: x.take(i, axis=1), 4),
    "take_along_axis": (lambda x, i: np.take_along_axis(x, i[:, None] + np.zeros((1, 4), int), 0), 3),
    "choose": (lambda x, i: np.choose(i, [x[0, 0], x[1, 1], x[2, 2]]), 3),
    "add.at": (lambda x, i: added(x[0], i), 4),
}


@pytest.mark.parametrize("name", GATHERS)
def test_indices_out_of_bounds_raise_as_in_numpy(name: str) -> None:
    function, extent = GATHERS[name]
    accelerated = accelerate(function, backend="reference")
    for index in (extent, -extent - 1, 2**40, -1, 0, extent - 1, -extent):
        positions = np.array([index, 0, 1])
        wanted, found = told(function, M, positions), told(accelerated, M, positions)
        assert found[1] == wanted[1]
        same(wanted[0], found[0])


def test_an_index_error_comes_from_the_users_line() -> None:
    accelerated = accelerate(lambda x, i: x[i])
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 3") as caught:
        accelerated(A, np.array([7]))
    assert caught.traceback[-1].path.name == "test_events.py"


def masked(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y[y != 0] = 1 / y[y != 0]
    return y


def ignoring(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 1 / x + np.sqrt(-x)
    ratio[~np.isfinite(ratio)] = 0
    return ratio * 2 + np.exp(x)


TELLING: dict[str, tuple[Callable[..., Any], Any]] = {
    "divide": (lambda x: 1 / x, A),
    "divide by a sum": (lambda x: x.sum() / (x * 0).sum(), A),
    "log": (np.log, A),
    "invalid sqrt": (lambda x: np.sqrt(-x), A),
    "overflow of exp": (lambda x: np.exp(x * 1000), A),
    "overflow of a product": (lambda x: (x * 1e300) * 1e300, A),
    "overflow in a cast": (lambda x: (x * 1e300).astype(np.float32), A),
    "inf - inf": (lambda x: (x + np.inf) - (x + np.inf), A),
    "hidden by where": (lambda x: np.where(x > 0, np.log(x), 0), A),
    "hidden by a maximum": (lambda x: np.maximum(np.log(x), -1), A),
    "hidden by a comparison": (lambda x: 1 / x > 1, A),
    "hidden by a slice": (lambda x: (1 / x)[1:], A),
    "hidden by a quotient": (lambda x: 1 / (1 / x), A),
    "hidden by arctan": (lambda x: np.arctan(1 / x), A),
    "hidden by nan_to_num": (lambda x: np.nan_to_num(1 / x), A),
    "sum that overflows": (lambda x: x.sum(), np.full(3, 1e308)),
    "mean of nothing": (lambda x: x.mean(), np.zeros(0)),
    "variance of one": (lambda x: x.var(ddof=1), np.zeros(1)),
    "nanmean of nan": (lambda x: np.nanmean(x, axis=1), NAN),
    "nanmax of nan": (lambda x: np.nanmax(x, axis=1), NAN),
    "nanargmax of nan": (lambda x: np.nanargmax(x, axis=1), NAN),
    "weights that sum to zero": (lambda x: np.average(x, weights=x * 0), A),
    "integers by zero": (lambda x: 1 // x + 1 % x, np.arange(3)),
    "the least integer by -1": (lambda x: x // -1, np.array([np.iinfo(np.int64).min, 5])),
    "negative integer powers": (lambda x: x**x, np.array([2, -1])),
    "integer scalars": (lambda x: x.sum() * 4 + x[0] - x[1], np.array([2**62, 5])),
    "known values": (lambda x: x + np.log(np.zeros(3)), A),
    "complex": (lambda x: 1 / (x + 0j), A),
    "matmul": (lambda x: (x * 1e300) @ (x * 1e300), A),
    "some ignored": (ignoring, np.array([0.0, 1.0, 1e3])),
    "a constant that does not fit": (lambda x: assigned_constant(x, 300), np.zeros(2, np.uint8)),
}


def assigned_constant(x: np.ndarray, value: int) -> np.ndarray:
    y = x.copy()
    y[0] = value
    return y


@pytest.mark.parametrize("name", TELLING)
def test_floating_point_errors_are_told_as_numpy_tells_them(name: str) -> None:
    function, x = TELLING[name]
    as_numpy(function, x)
    as_numpy(function, x, all="raise")
    as_numpy(function, x, all="ignore")


QUIET: dict[str, tuple[Callable[..., Any], Any]] = {
    "masked division": (masked, A),
    "division with where": (lambda x: np.divide(1, x, out=np.zeros_like(x), where=x != 0), A),
    "ignored": (ignoring, A),
    "infinite start": (lambda x: np.minimum(np.full(3, np.inf), x) + np.clip(x, -np.inf, 1), A),
    "softmax": (lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum(), A),
    "special functions": (
        lambda x: np.hypot(x, x) + np.logaddexp(x, x) + np.arctan2(x, x) + np.tanh(x) + np.sinc(x),
        A,
    ),
    "powers": (lambda x: x**0.5 + x**2 + x**3 + x**1.5 + 2.0**x, A),
    "statistics": (lambda x: np.var(x) + np.median(x) + np.percentile(x, 30) + np.std(x, ddof=1), A),
}


@pytest.mark.parametrize("name", QUIET)
def test_quiet_programs_are_answered_by_the_program(name: str) -> None:
    function, x = QUIET[name]
    assert events(as_numpy(function, x)) == 0


def test_nan_and_infinity_that_arguments_hold_are_no_events() -> None:
    def function(x: np.ndarray) -> Any:
        return np.sqrt(np.abs(x * 2)) + x.sum() - np.where(x > 0, x, 0).max(), x.mean(0), x @ x

    accelerated = accelerate(function, backend="reference")
    x = np.array([1.0, np.nan, 4.0, np.inf])
    for _ in range(6):
        assert told(accelerated, x)[1:] == told(function, x)[1:]
    (entry,) = accelerated._entries.values()
    before = entry.events

    def elementwise(x: np.ndarray) -> Any:
        return np.sqrt(x * 2) + 1 / x + np.nanmean(x) + np.nanstd(x)

    compiled = accelerate(elementwise, backend="reference")
    for _ in range(6):
        compiled(np.array([1.0, np.nan, 4.0]))
    assert events(compiled) == 2  # then operands are compared
    assert told(compiled, -x)[1:] == told(elementwise, -x)[1:]
    assert entry.events == before


def test_underflow_is_told_where_it_is_asked_for() -> None:
    as_numpy(lambda x: x * 1e-300, np.full(3, 1e-300))
    as_numpy(lambda x: x * 1e-300, np.full(3, 1e-300), under="raise")
    as_numpy(lambda x: x * 1e-300, np.full(3, 1e-300), under="warn")


def test_errors_may_be_handed_to_a_function() -> None:
    seen: list[str] = []
    with np.errstate(divide="call", call=lambda kind, flag: seen.append(kind)):
        accelerate(lambda x: 1 / x)(A)
    assert seen == ["divide by zero"]


def stored(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    y[:] = x
    return y


VALUES = [
    0.0,
    -0.5,
    2.5,
    127.5,
    300.0,
    -300.0,
    70000.0,
    -5.0,
    2.0**31,
    -(2.0**31),
    2.0**32,
    2.0**53,
    2.0**63,
    1e30,
    np.nan,
    -np.inf,
]


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"])
def test_floats_become_the_integers_that_numpy_makes_of_them(source: str, target: str) -> None:
    with np.errstate(all="ignore"):
        values = np.array(VALUES).astype(source)
    accelerated = accelerate(lambda x: x.astype(target), backend="reference")
    written = accelerate(lambda x: stored(np.zeros(x.shape, target), x), backend="reference")
    for value in values:
        x = np.full(5, value)
        wanted, found = told(lambda x: x.astype(target), x), told(accelerated, x)
        assert found[1:] == wanted[1:]
        same(wanted[0], found[0])
        same(wanted[0], told(written, x)[0])


def test_advice_after_many_events() -> None:
    accelerated = accelerate(lambda x: 1 / x, backend="reference")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(20):
            accelerated(A)
    advice = [str(w.message) for w in caught if w.category is PerformanceWarning]
    assert len(advice) == 1
    assert advice[0].startswith(
        "<lambda> has run in NumPy 16 times after its compiled program had met a floating-point error"
    )


UNARY = [
    np.sqrt,
    np.log,
    np.exp,
    np.abs,
    np.arctan,
    np.sign,
    np.floor,
    np.square,
    np.reciprocal,
    np.log1p,
    np.arcsin,
    np.tanh,
]
BINARY = [np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.hypot, np.arctan2]


@st.composite
def programs(draw: st.DrawFn) -> Callable[..., Any]:
    """Random elementwise programs with selections and reductions."""
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 11), st.integers(0, 20), st.integers(0, 20)),
            min_size=1,
            max_size=7,
        )
    )

    def program(x: np.ndarray, y: np.ndarray) -> Any:
        values = [x, y]
        for kind, which, first, second in steps:
            a, b = values[first % len(values)], values[second % len(values)]
            if kind == 0:
                values.append(UNARY[which](a))
            elif kind == 1:
                values.append(BINARY[which % len(BINARY)](a, b))
            elif kind == 2:
                values.append(np.where(a > b, a, 0.5))
            else:
                values.append(a - (b.sum() if which % 2 else b.max()))
        return values[-1], sum(v.sum() for v in values[2::2])

    return program


@settings(max_examples=25, deadline=None)
@given(
    programs(), st.lists(st.sampled_from([0.0, 1.0, -1.0, 2.5, 1e200, -1e-200, np.inf, np.nan]), min_size=4, max_size=4)
)
def test_random_programs_tell_what_numpy_tells(program: Callable[..., Any], numbers: list[float]) -> None:
    x, y = np.array(numbers[:2]), np.array(numbers[2:])
    accelerated = accelerate(program, backend="reference")
    for a, b in itertools.islice(itertools.permutations((x, y, np.array([1.0, 3.0])), 2), 4):
        wanted = told(program, a, b)
        assert told(accelerated, a, b)[1:] == wanted[1:]


@pytest.mark.parametrize("index", [7, -9, np.int64(4), [0, 4], np.array([1, -5])], ids=str)
def test_positions_that_the_trace_knows_are_held_to_the_bounds(index: Any) -> None:
    def taken(x: np.ndarray) -> Any:
        return np.take(x, index, axis=1)

    accelerated = accelerate(taken)
    for _ in range(3):
        found, wanted = told(accelerated, M), told(taken, M)
        assert found[1].split(" ")[0] == wanted[1].split(" ")[0] == "IndexError:"


def test_numbers_that_may_be_infinite_are_told_apart_once() -> None:
    """A number that nobody tells of need not be looked for in each element that is computed with it."""
    special = pytest.importorskip("scipy.special")

    def likelihood(x: np.ndarray, shape: float) -> Any:
        return np.sum((shape - 1) * np.log(x) - x - special.gammaln(shape))

    accelerated = accelerate(likelihood, measure=False)
    x = np.array([0.5, 1.0, 3.0])
    compared = [e for e in accelerated.trace(x, 2.0).graph.eqns if e.primitive.name == "ne"]
    assert not compared
    for shape in (2.0, 0.0, 2.0, 0.0, -1.0, 3.5, 0.0):  # the logarithm of a pole of the gamma function is infinite
        for values in (x, x - 0.5, x - 1):
            found, wanted = told(accelerated, values, shape), told(likelihood, values, shape)
            assert found[1:] == wanted[1:]
            np.testing.assert_allclose(found[0], wanted[0], rtol=1e-13)


def test_parts_of_windows_are_looked_at_where_they_are_read() -> None:
    """All windows hold a hundred times what is taken of them."""

    def spectra(x: np.ndarray) -> Any:
        return np.fft.rfft(np.lib.stride_tricks.sliding_window_view(x, 128)[::64] * np.hanning(128))

    accelerated = accelerate(spectra, measure=False)
    graph = accelerated.trace(np.ones(6400)).graph
    assert all(e.invars[0].aval.size < 128 * 128 for e in graph.eqns if e.primitive.name == "is_finite")
    for value in (1.0, np.inf, 1e308):
        x = np.full(6400, value)
        found, wanted = told(accelerated, x), told(spectra, x)
        assert found[1:] == wanted[1:]
        np.testing.assert_allclose(found[0], wanted[0])


def test_differences_of_neighbours_tell_of_all_that_they_are_made_of() -> None:
    def returns(prices: np.ndarray) -> np.ndarray:
        return np.diff(np.log(prices))

    for place in (0, 2, 4):  # in one of the two slices, in both, in the other
        prices = np.arange(1.0, 6.0)
        prices[place] = 0
        assert events(as_numpy(returns, prices)) > 0
    assert events(as_numpy(returns, np.arange(1.0, 6.0))) == 0
    assert str(accelerate(returns).lower(np.arange(1.0, 6.0)).graph).count("is_finite") == 1

    def ends_alone(x: np.ndarray) -> np.ndarray:
        y = np.log(x)
        return y[1:2] - y[:1]  # of which the others are no part

    assert events(as_numpy(ends_alone, np.array([1.0, 2.0, 0.0]))) > 0


def test_parts_that_are_joined_are_looked_at_once() -> None:
    def joined(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[5 * i : 5 * i + 10] * (i + 1.5) for i in range(12)])

    accelerated = accelerate(joined, measure=False)
    x = np.arange(70.0)
    assert sum(e.primitive.name == "is_finite" for e in accelerated.trace(x).graph.eqns) == 1
    for place in (0, 7, 64):
        x = np.arange(70.0)
        x[place] = 1e308
        found, wanted = told(accelerated, x), told(joined, x)
        assert found[1:] == wanted[1:]
        np.testing.assert_array_equal(found[0], wanted[0])


def test_a_kernel_stores_no_masks_of_events_that_another_reduces() -> None:
    def program(x: np.ndarray) -> np.ndarray:
        x = x.copy()
        for _ in range(4):
            a, b = x[:-2] - x[1:-1], x[2:] - x[1:-1]
            x[1:-1] += a * np.exp(-((a / 0.1) ** 2)) + b * np.exp(-((b / 0.1) ** 2))
        return x

    x = np.random.default_rng(0).random(5000)
    function = accelerate(program, measure=False)
    np.testing.assert_allclose(function(x), program(x), rtol=1e-12)
    stored = [v.aval for group in function.lower(x).plan.groups for v in group.graph.outvars]
    assert not any(aval.dtype == bool and aval.size > 1 for aval in stored)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        accelerate(program)(np.where(np.arange(5000) == 77, 1e200, x))
