"""What cannot be traced: every error says why, on which line, and the way out; or the function falls back to NumPy."""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser.config import config
from fuser.errors import (
    ConcretizationTypeError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnsupportedError,
)
from fuser.interop import FallbackWarning, accelerate

X = np.array([1.0, -2.0, 3.0])
OUT = ', or run the function in NumPy with fuser.accelerate(f, fallback="warn")'


def decides(x: np.ndarray) -> np.ndarray:
    if x.sum() > 0:
        return x
    return -x


def makes_complex(x: np.ndarray) -> complex:
    return complex(x[0]) + 1


def counts(x: np.ndarray) -> int:
    return len(range(x.argmax()))


def selects(x: np.ndarray) -> np.ndarray:
    return x[x > 0][1:]


def finds(x: np.ndarray) -> np.ndarray:
    return np.diff(np.nonzero(x > 0)[0])


def draws(x: np.ndarray) -> np.ndarray:
    return x + np.random.default_rng().normal(size=3)


def lists(x: np.ndarray) -> list[float]:
    return x.tolist()


def unusual(x: np.ndarray) -> np.ndarray:
    return np.apply_along_axis(np.sum, 0, x)


def partial_ufunc(x: np.ndarray) -> np.ndarray:
    return np.divide(1.0, x, where=x > 0)


CASES: dict[Callable[..., Any], tuple[type[Exception], str, str]] = {
    decides: (
        TracerBoolConversionError,
        "if x.sum",
        "a traced bool[] has no value yet, so `if` cannot read it (LINE); use np.where, or make the argument that decides static with static_argnames",
    ),
    makes_complex: (
        ConcretizationTypeError,
        "return complex",
        "a traced f64[] has no value yet, so complex() cannot read it (LINE); keep it an array, or make the argument static with static_argnames",
    ),
    counts: (
        TracerIntegerConversionError,
        "range(x",
        "a traced i64[] has no value yet, so Python cannot use it as an integer (LINE); make the argument static with static_argnames, or index with np.take",
    ),
    selects: (
        UnsupportedError,
        "return x[x > 0][1:]",
        "x[mask] or np.nonzero(mask) with a traced mask has a shape that depends on values; elementwise arithmetic with numbers and selections by the same mask, "
        "sums, means and extremes of it, x[mask] = ... and x[mask] as a result are traced, and this is not (LINE); use np.where(mask, x, y) or where=mask",
    ),
    finds: (
        UnsupportedError,
        "np.diff",
        "x[mask] or np.nonzero(mask) with a traced mask has a shape that depends on values; elementwise arithmetic with numbers and selections by the same mask, "
        "sums, means and extremes of it, x[mask] = ... and x[mask] as a result are traced, and this is not (LINE); use np.where(mask, x, y) or where=mask",
    ),
    draws: (
        UnsupportedError,
        "np.random",
        "np.random.default_rng draws from a state that tracing would freeze: every later call would get the same numbers (LINE); "
        "give it a seed, or draw the numbers outside and pass them in",
    ),
    lists: (
        ConcretizationTypeError,
        "tolist",
        "a traced f64[3] has no value yet, so .tolist() cannot read it (LINE); keep it an array, or make the argument static with static_argnames",
    ),
    unusual: (
        UnsupportedError,
        "np.apply_along_axis",
        "np.apply_along_axis cannot be traced (LINE); call it before or after the traced function",
    ),
    partial_ufunc: (
        UnsupportedError,
        "np.divide",
        "np.divide with where= and no out= leaves elements undefined (LINE); give out=np.zeros_like(x)",
    ),
}


def line_of(function: Callable[..., Any], part: str) -> str:
    """`file.py:12`, the first line of the function that holds `part`."""
    lines, start = inspect.getsourcelines(function)
    return f"test_refusals.py:{start + next(n for n, text in enumerate(lines) if part in text)}"


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_errors_say_why_where_and_the_way_out(function: Callable[..., Any]) -> None:
    kind, part, words = CASES[function]
    before = X.copy()
    with pytest.raises(kind) as caught:
        accelerate(function, fallback="error")(X)
    assert str(caught.value) == words.replace("LINE", line_of(function, part)) + OUT
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("function", [f for f in CASES if f not in (draws, partial_ufunc)], ids=lambda f: f.__name__)
def test_fallback_runs_in_numpy_and_warns_once(function: Callable[..., Any]) -> None:
    accelerated = accelerate(function, fallback="warn")
    with pytest.warns(
        FallbackWarning,
        match=re.escape(f"{function.__name__} runs in segments, with Python between them in each call: "),
    ) as caught:
        found = accelerated(X)
    assert caught[0].filename == __file__
    assert "fallback=" not in str(caught[0].message)
    for f, w in zip(
        np.atleast_1d(found) if not isinstance(found, tuple) else found,
        function(X) if isinstance(found, tuple) else np.atleast_1d(function(X)),
    ):
        np.testing.assert_array_equal(f, w)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accelerated(X)


def test_fallback_shows_the_users_own_errors() -> None:
    def wrong(x: np.ndarray) -> np.ndarray:
        return x + np.ones(4)

    with warnings.catch_warnings(), pytest.raises(ValueError, match="operands could not be broadcast together"):
        warnings.simplefilter("error")
        accelerate(wrong, fallback="warn")(X)


def _writes_and_raises(x: np.ndarray) -> None:
    x[0] = 7
    x[3] = 1


def _adds_in_place(x: np.ndarray) -> np.ndarray:
    counts = np.zeros(3, int)
    counts += x
    return counts


def _catches(x: np.ndarray) -> str:
    try:
        np.linalg.cholesky(-np.eye(3) * x)
    except np.linalg.LinAlgError as error:
        words = str(error)
    return words + str(x.shape)


RAISING = (
    lambda x: x + np.ones(4),
    lambda x: x @ np.ones(4),
    lambda x: x[7],
    lambda x: x[0, 1],
    lambda x: x.reshape(2, 2),
    lambda x: np.zeros_like(x).__setitem__(slice(2), x),
    lambda x: x.astype(int) ** -1,
    lambda x: x.sum().__setitem__(0, 1),
    lambda x: {"a": 1}["b"],
    _adds_in_place,
    _writes_and_raises,
)


@pytest.mark.parametrize("function", RAISING)
def test_numpys_own_errors(function: Callable[..., Any]) -> None:
    accelerated = accelerate(function)
    for _ in range(2):
        ours, theirs = X.copy(), X.copy()
        with pytest.raises(Exception) as wanted:
            function(theirs)
        with pytest.raises(type(wanted.value), match=re.escape(str(wanted.value))) as found:
            accelerated(ours)
        assert type(found.value) is type(wanted.value)
        np.testing.assert_array_equal(ours, theirs)


def test_errors_that_only_a_trace_raises() -> None:
    accelerated = accelerate(_catches)
    for _ in range(3):
        assert accelerated(X) == _catches(X)
    assert "in segments" in accelerated.explain()


def test_errors_that_end() -> None:
    settings: dict[str, float] = {}
    scaled = accelerate(lambda x: x * settings["scale"])
    with pytest.raises(KeyError):
        scaled(X)
    settings["scale"] = 2.0
    for _ in range(3):
        np.testing.assert_array_equal(scaled(X), X * 2)
    assert "compiled whole" in scaled.explain()


def test_arguments_that_are_no_arrays() -> None:
    with pytest.raises(UnsupportedError, match=re.escape("argument x of <lambda> of dtype object cannot be traced")):
        accelerate(lambda x: x, fallback="error")(np.array([None]))
    with pytest.raises(
        UnsupportedError,
        match=re.escape(
            "argument x of <lambda> of dtype longdouble cannot be traced".replace("longdouble", "float128")
        ),
    ):
        accelerate(lambda x: x, fallback="error")(np.ones(2, np.longdouble))
    with pytest.raises(
        UnsupportedError, match="argument x of <lambda> is a MaskedArray, whose rules differ from those of ndarray"
    ):
        accelerate(lambda x: x, fallback="error")(np.ma.array([1.0]))
    with pytest.raises(
        TypeError, match="argument s of <lambda> is a set, which is no array and cannot be compared from call to call"
    ):
        accelerate(lambda x, s: x, fallback="error")(X, {1})
    with pytest.raises(TypeError, match="accelerate takes a function, got a int"):
        accelerate(3)
    with pytest.raises(ValueError, match='fallback is "segments", "warn" or "error", got \'never\''):
        accelerate(lambda x: x, fallback="never")


@pytest.mark.parametrize(
    "argument", [np.ma.array([1.0, 2.0], mask=[0, 1]), {1.5}, bytearray(b"ab"), np.rec.array([("a", "b")])]
)
def test_arguments_that_make_no_signature_run_in_numpy(argument: Any) -> None:
    accelerated = accelerate(lambda s: (type(s), len(s), s))
    assert accelerated(argument)[0] is type(argument) and accelerated(argument)[2] is argument
    assert re.search(f"by NumPy, as .*argument s of <lambda> is a {type(argument).__name__}", accelerated.explain())


def test_tracebacks_end_in_the_users_line() -> None:
    with config.using(traceback="short"), pytest.raises(UnsupportedError) as caught:
        accelerate(unusual, fallback="error")(X)
    assert caught.traceback[-1].path.name == "test_refusals.py"
    assert caught.traceback[-1].name == "unusual"


@pytest.mark.parametrize("options", [{}, {"fallback": "error"}, {"measure": False}])
def test_errors_of_numpy_show_the_users_frames_alone(options: dict[str, Any]) -> None:
    @accelerate(**options)
    def mistaken(x):
        return x @ np.ones(5)

    for _ in range(3):
        with pytest.raises((ValueError, TypeError)) as caught:
            mistaken(X)
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert [name for name in names if name != "_in_python"] == [names[0], "mistaken"]
