"""What each call of a function would do again, and a trace once: random numbers, clocks, files. All are refused with the line."""

from __future__ import annotations

import datetime
import itertools
import logging
import os
import random
import sys
import time
import uuid
import warnings
from collections.abc import Callable
from random import gauss
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from fuser.errors import FuserError
from fuser.interop import accelerate

X = np.arange(3.0)
RNG = np.random.default_rng(0)
COUNT = itertools.count()
GENERATED = (n for n in range(5))


def formats(x: np.ndarray) -> str:
    return f"{x.sum()}"


IMPURE: dict[str, tuple[Callable[..., Any], str]] = {
    "state of a generator": (lambda x: x + RNG.bit_generator.state["state"], "RNG.bit_generator draws"),
    "computed parameters": (lambda x: x + RNG.poisson(x), "RNG.poisson with computed parameters"),
    "computed seed": (lambda x: x + np.random.default_rng(x.sum()).random(3), "np.random.default_rng draws"),
    "default_rng": (lambda x: x + np.random.default_rng().random(3), "np.random.default_rng draws"),
    "random": (lambda x: x + random.random(), "random.random draws"),
    "name from random": (lambda x: x + gauss(0, 1), "gauss draws"),
    "time": (lambda x: x + time.time(), "time.time tells the time"),
    "name from time": (lambda x: x + perf_counter(), "perf_counter tells the time"),
    "datetime": (lambda x: x + datetime.datetime.now().second, "datetime.now tells the time"),
    "date": (lambda x: x + datetime.date.today().day, "date.today tells the time"),
    "environment": (lambda x: x + float(os.environ["HOME"]), "os.environ reads or changes"),
    "getenv": (lambda x: x + float(os.getenv("HOME", "0")), "os.getenv reads or changes"),
    "print": (lambda x: print(x) or x, "print reads or changes"),
    "input": (lambda x: x + float(input()), "input reads or changes"),
    "open": (lambda x: open("nothing").read() and x, "open reads or changes"),  # noqa: SIM115
    "stdout": (lambda x: sys.stdout.write("a") and x, "sys.stdout.write reads or changes"),
    "logging": (lambda x: logging.warning("a") or x, "logging.warning reads or changes"),
    "warnings": (lambda x: warnings.warn("a", stacklevel=1) or x, "warnings.warn reads or changes"),
    "uuid": (lambda x: x + uuid.uuid4().int, "uuid.uuid4 reads or changes"),
    "iterator": (lambda x: x + next(COUNT), "COUNT is used up"),
    "generator object": (lambda x: x + sum(GENERATED), "GENERATED is used up"),
    "np.load": (lambda x: x + np.load("a.npy"), "np.load reads or changes"),
    "format": (formats, r"has no value yet, so formatting cannot read it"),
    "str": (lambda x: str(x), r"has no value yet, so str\(\) cannot read it"),
    "repr": (lambda x: f"{x!r}", r"has no value yet, so repr\(\) cannot read it"),
}


@pytest.mark.parametrize("name", IMPURE)
def test_what_tracing_would_freeze_is_refused_with_its_line(name: str) -> None:
    function, words = IMPURE[name]
    with pytest.raises(FuserError, match=words) as caught:
        accelerate(function, fallback="error")(X)
    assert "test_impure.py:" in str(caught.value)


def test_what_only_looks_impure_is_traced() -> None:
    def function(x: np.ndarray) -> Any:
        day = datetime.datetime(2020, 1, 2)
        names = [os.path.join("a", "b"), os.sep, str(sys.maxsize)]
        return x + day.day + len(names) + (day - datetime.timedelta(1)).day + sys.float_info.epsilon + time.timezone * 0

    np.testing.assert_array_equal(accelerate(function)(X), function(X))


def test_refused_functions_may_fall_back() -> None:
    with pytest.warns(UserWarning, match="runs in segments, with Python between them in each call: RNG.poisson with"):
        drawing = accelerate(lambda x: x + RNG.poisson(x + 9), fallback="warn")
        first = drawing(X)
    assert not np.array_equal(first, drawing(X))
