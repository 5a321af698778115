"""Warnings with numbers: functions that are compiled again and again, and large arrays that they close over."""

import re
import warnings

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import ShapeDtypeStruct, config, jit, pallas
from fuser.api import advice
from fuser.errors import PerformanceWarning
from fuser.runtime import executable as executables
from fuser.runtime.core import native


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


def test_kernels_by_hand_in_a_loop():
    """Different kernels are not taken for one that is compiled again."""
    shape = ShapeDtypeStruct((3,), np.float32)

    def scaled(count):
        def kernel(x, o):
            o[...] = x[...] * count

        pallas.pallas_call(kernel, shape)(np.ones(3, np.float32))

    def others():
        for text in range(9):
            space = {}
            exec(f"def kernel(x, o): o[...] = x[...] * {text}", space)
            pallas.pallas_call(space["kernel"], shape)(np.ones(3, np.float32))

    assert told(others) == []
    [text] = told(lambda: [scaled(count) for count in range(9)])
    assert re.match(
        r"the kernel kernel \(test_advice.py:\d+\) was given to pallas_call 8 times and compiled anew", text
    )
    assert "call it within a function under fuser.jit" in text


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


def ones(*shape):
    return fnp.asarray(np.ones(shape, np.float32))


VAIN = "; donate only what a result of the same shape and dtype replaces"


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        (lambda x: x.sum(), lambda: (ones(3),), "12 bytes are given away in vain: x (f32[3]): no result is f32[3]"),
        (
            lambda x: x.T + 1,
            lambda: (ones(600, 600),),
            "k0_add (HERE) reads it in another order than it writes the result",
        ),
        (
            lambda x: fnp.cumsum(x, 0),
            lambda: (ones(600, 600),),
            "k0_cumsum (HERE) reads parts of it after it has written others",
        ),
        (lambda x: x.reshape(-1) * 2, lambda: (ones(2, 3),), "no result is f32[2,3] (one of as many bytes is f32[6])"),
        (
            lambda x, y: {"s": x["w"] + x["v"], "y": y},
            lambda: ({"w": ones(600, 600), "v": ones(600, 600)}, 1.0),
            "x['v'] (f32[600,600]): other arguments gave their memory to the results that are f32[600,600]",
        ),
    ],
)
def test_donation_in_vain(function, arguments, reason):
    donating = jit(function, donate_argnums=0)
    [text] = told(lambda: donating(*arguments()))  # arrays that no test of this process took would be in use in others
    assert reason.replace("HERE", f"test_advice.py:{function.__code__.co_firstlineno}") in text, text
    assert VAIN in text and text.startswith("<lambda> takes over the memory of ")


def test_donation_that_happens_is_not_worth_a_word():
    step = jit(lambda state, x: ({"w": state["w"] - x, "n": state["n"] + 1}, x.shape[0]), donate_argnums=0)
    x = ones(600, 600)

    def run():
        state = {"w": ones(600, 600), "n": ones()}
        for _ in range(3):
            state, _ = step(state, x)

    assert told(run) == []
    assert told(lambda: jit(lambda x: x.T + 1, donate_argnums=0)(ones(30, 30))) == []  # in vain, and cheap
    swapped = jit(lambda x, y: (y, x), donate_argnums=(0, 1))
    assert told(lambda: swapped(ones(600, 600), ones(600, 600))) == []


def test_many_arrays_donated_in_vain():
    total = jit(lambda xs: sum(x.sum() for x in xs), donate_argnums=0)
    [text] = told(lambda: total([ones(n, 1 << 18) for n in range(1, 7)]))
    assert text.startswith(
        "<lambda> takes over the memory of 0 of 6 donated arrays; 21 MiB are given away in vain: "
        "xs[5] (f32[6,262144]): no result is f32[6,262144]; xs[4] "
    )
    assert "; and 2 more; donate only" in text


@pytest.mark.parametrize("core", [True, False], ids=["native", "python"])
def test_donated_memory_that_others_hold(core, monkeypatch):
    if not core:
        monkeypatch.setattr(executables, "native", None)
    elif native is None:
        pytest.skip("there is no native core")
    step = jit(lambda state: {k: v + 1 for k, v in state.items()}, donate_argnums=0)
    held = []

    def run(hold, count=1):
        for _ in range(count):
            x, y = ones(600, 600), ones(600, 600)
            held[:] = [np.asarray(y)] if hold else []
            assert float(step({"w": x, "v": y})["v"][0, 0]) == 2 and x.is_deleted()

    assert told(lambda: run(False, 3)) == []
    [text] = told(lambda: run(True, 3))
    assert re.fullmatch(
        r"state\['v'\] \(f32\[600,600\], 1.37 MiB\) was donated to <lambda> while its memory is still held elsewhere \(by an ndarray "
        r"or a tensor, as np.asarray gives, or by another array\), so the result takes new memory; drop what holds it, or "
        r"donate a copy \(test_advice.py:\d+\)",
        text,
    )
    assert (held[0] == 1).all()
