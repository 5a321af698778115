"""Objects that an accelerated function makes and returns: each call gives new ones, with arrays in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate
from tests.interop.oracle import same

X = np.array([1.0, 4.0, 2.0])


class Mean:
    kind = "running"

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.names = 0, np.zeros(size), ["a"]

    def push(self, x: Any) -> None:
        self.count += 1
        self.mean = self.mean + (x - self.mean) / self.count


@dataclass
class Fit:
    slope: Any
    parts: Any
    of: Any = None


class Slotted:
    __slots__ = ("value",)


def pushed(x: Any) -> Any:
    mean = Mean(3)
    for scale in (1.0, 2.0, 4.0):
        mean.push(scale * x)
    return mean


def nested(x: Any) -> Any:
    return Fit(x * 2, [x.sum(), {"b": Fit(x[1:], None)}]), x + 1


def twice(x: Any) -> Any:
    fit = Fit(x * 2, 1)
    return fit, [fit]


def slotted(x: Any) -> Any:
    made = Slotted()
    made.value = x * 2
    return made


def holds_a_function(x: Any) -> Any:
    return Fit(x * 2, lambda: x)


def _plain(value: Any) -> Any:
    if isinstance(value, (Mean, Fit)):
        return {"": type(value).__name__, **{name: _plain(v) for name, v in vars(value).items()}}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(v) for v in value)
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("function", [pushed, nested])
def test_each_call_makes_its_own(function: Any) -> None:
    compiled = accelerate(function, fallback="error", measure=False)
    first = compiled(X)
    for x in (X, X + 1, X):
        found = compiled(x)
        same(_plain(function(x)), _plain(found))
        assert found is not first
    same(_plain(function(X)), _plain(first))


def test_what_shares_or_hides_its_state_runs_as_it_is_written() -> None:
    found = accelerate(twice, measure=False)(X)
    assert found[0] is found[1][0] and (found[0].slope == X * 2).all()
    assert (accelerate(slotted, measure=False)(X).value == X * 2).all()
    assert (accelerate(holds_a_function, measure=False)(X).parts() == X).all()


def test_objects_of_the_callers_are_returned_as_they_are() -> None:
    mean = Mean(3)
    compiled = accelerate(lambda m, x: (m, m.mean + x), measure=False)
    for _ in range(3):
        found, total = compiled(mean, X)
        assert found is mean and (total == X).all()
