"""Warnings with numbers: functions that are compiled again and again, and large arrays that they close over."""

import re
import warnings

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import advice, config, jit
from fuser.errors import PerformanceWarning


@pytest.fixture(autouse=True)
def whatever_it_took(monkeypatch):
    monkeypatch.setattr(advice, "LEAST_SECONDS", 0.0)


def told(action):
    """The warnings of an action."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        action()
    assert all(one.category is PerformanceWarning and one.filename == __file__ for one in found)
    return [str(one.message) for one in found]


def test_shapes_that_change():
    @jit
    def scale(x):
        return 2 * x

    def run():
        for size in range(1, 10):
            scale(np.ones(size, np.float32))

    [text] = told(run)
    assert re.fullmatch(
        r"scale was traced 8 times for different arguments, \d+\.\d\d s so far \(\d kernels? w\w+ compiled\); the last time "
        r"x is f32\[8\], before f32\[7\]; pad x to a few sizes, or process it in pieces of one size \(test_advice.py:\d+\)",
        text,
    )
    assert told(run) == []


def test_static_arguments_that_change():
    power = jit(lambda x, n: x**n, static_argnames="n")
    [text] = told(lambda: [power(fnp.ones(3), n=n) for n in range(8)])
    assert "the last time static n is 7, before " in text
    assert text.split("; ")[-1].startswith("pass n as an array (not static) if no Python code depends on it")


def test_trees_and_dtypes_that_change():
    total = jit(lambda tree: sum(tree.values()))
    [text] = told(lambda: [total({str(k): fnp.ones(3) for k in range(n)}) for n in range(1, 9)])
    assert "pass the same tree of containers each time" in text
    double = jit(lambda x: x + x)
    dtypes = ["int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32"]
    [text] = told(lambda: [double(np.ones(3, dtype)) for dtype in dtypes])
    assert "give x one dtype each time, as fuser.numpy.asarray(x, dtype) does" in text


def test_jit_inside_a_loop():
    def run():
        for scale in range(9):
            jit(lambda x: x * scale)(fnp.ones(3))  # noqa: B023

    [text] = told(run)
    assert re.match(
        r"the function <lambda> \(test_advice.py:\d+\) was given to fuser.jit 8 times and compiled anew each time, "
        r"\d+\.\d\d s so far; call fuser.jit once, outside the loop, and keep what it returns \(test_advice.py:\d+\)",
        text,
    )


def test_cheap_compilations_are_not_worth_a_word(monkeypatch):
    monkeypatch.setattr(advice, "LEAST_SECONDS", 1e9)
    scale = jit(lambda x: 2 * x)
    assert told(lambda: [scale(np.ones(size, np.float32)) for size in range(9)]) == []


def test_large_captured_arrays():
    table = fnp.arange(300_000.0)
    small = fnp.ones(3)
    look_up = jit(lambda x: table[x] + small[0])
    assert told(lambda: look_up(fnp.arange(4))) == []
    with config.using(captured_constants_warn_bytes=1 << 20):
        [text] = told(lambda: look_up(fnp.arange(5)))
        assert re.fullmatch(
            r"<lambda> closes over 2 arrays of 1 MiB \(the largest, f32\[300000\], is used at test_advice.py:\d+ \(<lambda>\)\), "
            r"which each of its programs keeps; pass large arrays as arguments, or raise captured_constants_warn_bytes "
            r"\(test_advice.py:\d+\)",
            text,
        )
        assert told(lambda: look_up(fnp.arange(5))) == []
    with config.using(captured_constants_warn_bytes=-1):
        assert told(lambda: look_up(fnp.arange(6))) == []
