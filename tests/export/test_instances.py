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


CASES = {  # a function, and how many programs serve all sizes
    "softmax": (lambda x: fuser.nn.softmax(x), 1),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: fnp.sin(c) + x, x), 2),
    "mixed": (mixed, 6),
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
    monkeypatch.setattr("fuser.export.instances.Instances._compiled", fails)
    monkeypatch.setattr("fuser.api.jitted.Jitted._compile", fails)
    with config.using(check=False):
        assert all(program(fnp.ones((n, 7))).shape == (n, 7) for n in range(101, 128))
    with pytest.raises(TypeError, match="dynamic names dimension 2 of an argument of 2 dimensions"):
        fuser.jit(lambda x: x, dynamic={"x": {2: "n"}})(fnp.ones((3, 3)))


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
    with pytest.raises(RuntimeError, match="after its guards were written"):
        assert n < 7
