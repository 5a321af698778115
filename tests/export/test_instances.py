"""Programs that were compiled for one size and serve others: the same results as those compiled for each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.config import config
from fuser.export.dynamic import DynamicJitted
from fuser.ir.guards import Guards


def mixed(x: Any) -> Any:
    views = fnp.concatenate([x, 2 * x]), x[::-1] + 1, x[:1] * x
    return views, x.sum(0), x.mean(), fnp.argmax(x, 0), fnp.where(x > 0, x, x.shape[0])


def sizes_as_values(x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        return carry + row / x.shape[1], carry * x.shape[1]

    ends, kept = lax.scan(body, fnp.zeros(x.shape[1]), x)
    either = lax.cond(x[0, 0] > 0, lambda v: v * x.shape[1], lambda v: v - 2 * x.shape[1], x)
    total = lax.while_loop(lambda c: c[0] < x.shape[1], lambda c: (c[0] + 7, c[1] + x.shape[1] * 2), (0, x.sum()))
    return ends, kept, either, total, fnp.asarray(x.shape[1]), fnp.where(x > 0, x, x.shape[1])


CASES = {  # a function, and how many programs serve all sizes
    "softmax": (lambda x: fuser.nn.softmax(x), 1),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: fnp.sin(c) + x, x), 2),
    "mixed": (mixed, 3),
    "sizes as values": (sizes_as_values, 2),
}


@pytest.mark.parametrize("kind", CASES)
def test_results_are_those_of_programs_for_each_size(kind: str) -> None:
    function, most = CASES[kind]
    program = fuser.jit(function, dynamic={"x": {1: "n"}})
    rng = np.random.default_rng(0)
    for n in (100, 107, 333, 204, 2, 1):
        x = rng.normal(size=(4, n)).astype(np.float32)
        wanted = fuser.jit(function)(x)
        with config.using(check=False):  # what checks each pass asks for the sizes themselves
            results = program(x)
        for found, other in zip(fuser.tree.leaves(results), fuser.tree.leaves(wanted), strict=True):
            assert (found.shape, found.dtype, found.weak_type) == (other.shape, other.dtype, other.weak_type)
            np.testing.assert_array_equal(found, other)
        if n == 204:
            [known] = program.traced.values()
            assert program.refusals() == [] and len(known.instances.programs) <= most


def test_a_new_size_traces_nothing_and_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise AssertionError("this is for sizes that no program serves")

    program = fuser.jit(lambda x: fuser.nn.softmax(x), dynamic={"x": {-2: "n"}})
    assert isinstance(program, DynamicJitted)
    with config.using(check=False):
        program(fnp.ones((100, 7)))
    monkeypatch.setattr("fuser.export.instances.Instances._specialized", fails)
    monkeypatch.setattr("fuser.api.jitted.Jitted._compile", fails)
    with config.using(check=False):
        assert all(program(fnp.ones((n, 7))).shape == (n, 7) for n in range(101, 112))
    with pytest.raises(TypeError, match="dynamic names dimension 2 of an argument of 2 dimensions"):
        fuser.jit(lambda x: x, dynamic={"x": {2: "n"}})(fnp.ones((3, 3)))


def test_explain_says_why_a_size_was_lowered_anew() -> None:
    program = fuser.jit(
        lambda x: fnp.repeat(x, 2 if x.shape[0] > 8 else 3), dynamic={"x": "n", "constraints": ("n >= 9",)}
    )
    few = fuser.jit(lambda x: x * 2, dynamic={"x": {0: "n"}})
    with config.using(check=False):
        program(fnp.ones(20))
        assert [(c.signature, c.because) for c in fuser.explain(program)(fnp.ones(20)).compilations] == [
            ("f32[n] at n = 20", ("the first call",))
        ]
        for n in (4000, 1):
            few(fnp.ones((n, 4)))
        first, *others = fuser.explain(few)(fnp.ones((4, 4))).compilations
        assert first.because == ("the first call",)
        assert others[-1].signature == "f32[n,4] at n = 1"
        assert others[-1].because == ("n == 1 holds, and not for n = 4000",)
        called = fuser.jit(lambda x: fuser.pure_callback(np.sin, fnp.ones(()), x.sum()), dynamic={"x": "n"})
        called(fnp.ones(5))
        [one] = fuser.explain(called)(fnp.ones(5)).compilations
        assert "no program serves several sizes" in one.because[-1]


def test_what_goes_wrong_is_not_taken_for_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("a mistake of the compiler's own")

    monkeypatch.setattr("fuser.export.instances.with_sizes", fails)
    with pytest.raises(KeyError, match="a mistake"):
        fuser.jit(lambda x: x + 1, dynamic={"x": "n"})(fnp.ones(3))


def test_guards_hold_what_decided() -> None:
    guards = Guards({"n": 40, "m": 3})
    n, m = guards.numbers["n"], guards.numbers["m"]
    big = math.prod((n, m, 2)) > 100
    found = tuple(range(m)), n // 8 * 8 + (m == 3), -n, round(n * 0.5) if n else 0, {n: 1}.get(n), max(n, m)
    assert big and isinstance(n, int) and type(n) is not int
    instance = guards.instance((found[1], (found[2], found[3], "a", found[5])))
    assert instance(40, 3) == (41, (-40, 20, "a", 40))
    assert instance(63, 3) == (57, (-63, 32, "a", 63))
    assert instance(40, 4) is None  # range(m) took its value
    assert instance(16, 3) is None  # the product is not above 100
    assert guards.failing({"n": 16, "m": 3}) == "((n * m) * 2) <= 100" and guards.failing({"n": 63, "m": 3}) == ""
    with pytest.raises(RuntimeError, match="after its guards were written"):
        assert n < 7
