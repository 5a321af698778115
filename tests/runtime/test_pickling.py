"""Compiled functions go to other processes as functions do: by name."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fuser

MODULE = """
import functools
import fuser, fuser.numpy as fnp
import numpy as np

@fuser.jit
def double(x):
    return x * 2

@functools.partial(fuser.jit, static_argnames="n", donate_argnums=0)
def power(x, n=3):
    return x ** n

@fuser.accelerate
def total(x):
    return np.cumsum(x)[-1]

def slow(x):
    return fnp.sin(x) ** 2

fast = fuser.jit(slow)
quick = fuser.accelerate(total.function)

class Model:
    @staticmethod
    @fuser.jit
    def apply(x):
        return x + 5

    def __init__(self, k):
        self.k = k

    def scale(self, x):
        return x * self.k

    def __call__(self, x):
        return x - self.k

made = fuser.jit(Model(3))
bound = fuser.jit(Model(4).scale)
partial = fuser.jit(functools.partial(slow))
"""
NAMES = ("double", "power", "total", "fast", "quick", "Model.apply", "made", "bound", "partial")


@pytest.fixture
def module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "pickled_functions.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import pickled_functions  # type: ignore[import-not-found]

    yield pickled_functions
    del sys.modules["pickled_functions"]


def found(module: Any, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), module)


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("name", NAMES)
def test_a_round_trip_computes_the_same(module: Any, name: str, protocol: int) -> None:
    function = found(module, name)
    again = pickle.loads(pickle.dumps(function, protocol))
    assert type(again) is type(function)
    assert (again is function) == (name in ("double", "power", "total", "Model.apply"))
    np.testing.assert_array_equal(np.asarray(again(np.arange(3.0))), np.asarray(function(np.arange(3.0))))
    for option in ("static_argnames", "donate_argnums", "backend", "name"):
        assert getattr(again, option) == getattr(function, option)
    assert copy.copy(function) is function and copy.deepcopy(function) is function


def test_options_travel(module: Any) -> None:
    function = fuser.jit(module.slow, donate_argnums=0, keep_unused=True, backend="reference")
    again = pickle.loads(pickle.dumps(function))
    assert (again.donate_argnums, again.keep_unused, again.backend, again.function) == (
        (0,),
        True,
        "reference",
        module.slow,
    )


POOLS = """
import multiprocessing, sys
import numpy as np
import pickled_functions as module

if __name__ == "__main__":
    module.double(1.0)
    inputs = [np.arange(3.0) + n for n in range(4)]
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        for function in (module.double, module.total, module.fast):
            results = pool.map_async(function, inputs).get(60)
            assert all(np.array_equal(r, function(x)) for r, x in zip(results, inputs))
    print("done")
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_pools_map_decorated_functions(start: str, tmp_path: pathlib.Path) -> None:
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {start} here")
    (tmp_path / "pickled_functions.py").write_text(MODULE)
    (tmp_path / "main.py").write_text(POOLS)
    path = os.pathsep.join([str(pathlib.Path(fuser.__file__).parents[1]), str(tmp_path)])
    command = [sys.executable, "main.py", start]
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.stdout == "done\n", result.stderr


def test_what_no_module_holds_is_refused_with_the_way_out() -> None:
    def local(x: Any) -> Any:
        return x

    for wrap in (fuser.jit, fuser.accelerate):
        for function, what in ((lambda x: x, "a lambda"), (local, "a local function")):
            with pytest.raises(pickle.PicklingError, match=f"{what}; define it with def at the top of a module"):
                pickle.dumps(wrap(function))


def test_cloudpickle_takes_any() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    k = 3
    again = pickle.loads(cloudpickle.dumps(fuser.jit(lambda x: x * k)))
    assert float(again(2.0)) == 6
