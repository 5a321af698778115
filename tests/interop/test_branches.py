"""Branches on values and numbers of Python's in functions without a loop: one program, with NumPy's types, effects and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate

INPUTS = {
    "mixed": np.linspace(-1, 2, 5),
    "negative": np.linspace(-2, 1, 5),
    "zeros": np.zeros(5),
    "ones": np.ones(5),
    "nans": np.full(5, np.nan),
    "large": np.full(5, 1e300),
}


def python_or_scalar(x: np.ndarray) -> Any:
    if x.sum() > 0:
        return 1.0
    return x.mean()


def bool_or_scalar(x: np.ndarray) -> Any:
    if x.sum() > 0:
        return True
    return (x > -1).any()


def flagged(x: np.ndarray) -> Any:
    found = False
    if x.sum() > 0:
        found = True
    return found


def numbers(x: np.ndarray) -> Any:
    return float(x.sum()), bool(x.any()), int(x[0]), x[0].item(), x.argmax().item(), (x > 0).any().item()


def refuses(x: np.ndarray) -> Any:
    if x.sum() > 0:
        raise ValueError("positive")
    return x.max().item(), x / 2


def in_place(x: np.ndarray) -> Any:
    if x.sum() > 0:
        x *= 2
    return int(x.argmax())


def guarded(x: np.ndarray) -> Any:
    spread = x.std()
    if spread == 0:
        return np.zeros_like(x)
    return (x - x.mean()) / spread


def at_position(x: np.ndarray) -> Any:
    return x[int(x.sum())]


def drawdown(x: np.ndarray) -> Any:
    fall = np.maximum.accumulate(x) - x
    return fall.max(), int(fall.argmax())


def improved(x: np.ndarray) -> Any:
    rate = 0.5
    for _ in range(40):
        error = (x * rate).sum() - 1
        if abs(error) < 1e-9:
            break
        rate -= error / (x.sum() + 7)
    return rate


def outcome(function: Callable[..., Any], x: np.ndarray) -> tuple[Any, np.ndarray]:
    given = x.copy()
    with np.errstate(all="ignore"):
        try:
            return function(given), given
        except Exception as error:
            return error, given


def same(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            same(one, other)
    elif isinstance(wanted, Exception):
        assert str(found) == str(wanted)
    elif isinstance(wanted, int):
        assert found == wanted
    else:
        assert np.asarray(found).dtype == np.asarray(wanted).dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


FUNCTIONS = (python_or_scalar, bool_or_scalar, flagged, numbers, refuses, in_place, guarded, at_position, drawdown)


@pytest.mark.parametrize("function", (*FUNCTIONS, improved))
def test_branches_and_numbers_are_one_program(function: Callable[..., Any]) -> None:
    accelerated = accelerate(function, backend="reference", measure=False)
    for x in INPUTS.values():
        for _ in range(2):
            (found, changed), (wanted, expected) = outcome(accelerated, x), outcome(function, x)
            same(found, wanted)
            np.testing.assert_array_equal(changed, expected)
    assert "compiled whole" in accelerated.explain()


def test_a_branch_that_hands_an_argument_on_runs_in_segments() -> None:
    def unless_positive(x: np.ndarray) -> np.ndarray:
        if x.sum() > 0:
            return x * 2
        return x

    accelerated = accelerate(unless_positive, backend="reference", measure=False)
    given = np.full(3, -1.0)
    assert accelerated(given) is given and "in segments" in accelerated.explain()


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_two_arrays_of_the_same_values_after_a_branch_have_memory_of_their_own(backend: str) -> None:
    def copied(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y, z = y + 1, x * 2
        np.copyto(z, y)
        if y.sum() > 0:
            z[[1, 3]] = y[[3, 1]]
        return y[::-1], z[1:4]

    accelerated = accelerate(copied, backend=backend, measure=False, fallback="error")
    for y in (np.ones(8), -5 * np.ones(8)):
        found, wanted = accelerated(np.arange(8.0), y), copied(np.arange(8.0), y)
        same(found, wanted)
        assert not np.shares_memory(*found)


def one_side_takes_a_local(x):
    z = x * 0.5
    y = np.roll(z, 4)
    if np.allclose(z, z):
        y = z
    return y[1:4], z


def both_take_locals(x):
    z = x * 0.5
    a, b = z + 1, z + 2
    if x.sum() > 0:
        a = z
    if x.max() > 0:
        b = z
    return a, b


def a_loop_takes_a_local(x):
    z = x * 0.5
    y = z + 1
    while y.sum() > 0.5 * len(x):
        y = z
    return y, z


def two_variables_of_a_loop(x):
    y = z = x * 0.5
    while np.abs(z).max() > 0.01:
        z = z * 0.5
        y = z
    return y, z


@pytest.mark.parametrize(
    "function", [one_side_takes_a_local, both_take_locals, a_loop_takes_a_local, two_variables_of_a_loop]
)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_results_share_memory_where_values_say_so(function, sign):
    x = sign * np.linspace(0.1, 1, 8)
    accelerated = accelerate(function)
    for _ in range(3):
        found, wanted = accelerated(x.copy()), function(x.copy())
        for mine, theirs in zip(found, wanted):
            np.testing.assert_array_equal(mine, theirs)
        assert np.shares_memory(*found) == np.shares_memory(*wanted)
