"""Random functions that write through views, masks, index arrays and `out=` do what NumPy does: results, arguments, and copies made between."""

from __future__ import annotations

import copy
import linecache
import warnings
from typing import Any

import numpy as np
import pytest

from fuser import accelerate
from fuser.errors import FuserError

PROGRAMS = 150
VIEWS = ("{}", "{}[1:]", "{}[:-1]", "{}[::2]", "{}[::-1]", "{}[2:5]", "{}[1:4][::-1]", "{}[-3:]")
OF_MATRIX = (
    "m",
    "m.T",
    "m[1]",
    "m[:, 1]",
    "m[1:, :2]",
    "m[::-1]",
    "m.ravel()",
    "m.reshape(-1)[2:7]",
    "m[0][1:]",
    "m[..., -1]",
)
STATEMENTS = (
    "t = {view}; t *= {number}",
    "t = {view}; t += {b}[: len(t)] if len({b}) >= len(t) else 1",
    "{a}[{place}] = {number}",
    "{a}[{a} > {number}] = 0.5",
    "{a}[[1, 3]] = {b}[[3, 1]]",
    "{a}[i] = {b}[i] * 2",
    "np.add.at({a}, i, {number})",
    "np.multiply({a}, {number}, out={a})",
    "t = {part}; t -= {number}",
    "t = {part}; t[...] = t * 2 + {b}[0]",
    "{a}[...] = {b}[::-1] + {number}",
    "kept.append({view}.copy()); kept.append({view})",
)


def _function(rng: np.random.Generator, name: str) -> tuple[Any, str]:
    lines = ["def f(x, y, m, i):", "    kept = []"]
    for _ in range(int(rng.integers(1, 7))):
        a, b = rng.choice(["x", "y"], 2)
        parts = {
            "view": str(rng.choice(VIEWS)).format(a),
            "part": str(rng.choice(OF_MATRIX)),
            "number": round(float(rng.uniform(-2, 2)), 1),
            "place": int(rng.integers(-4, 4)),
        }
        lines.append("    " + str(rng.choice(STATEMENTS)).format(a=a, b=b, **parts))
    text = "\n".join([*lines, "    return kept, x.sum(), m", ""])
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope: dict[str, Any] = {"np": np}
    exec(compile(text, name, "exec"), scope)
    return scope["f"], text


def _flat(value: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in (*value[0], *value[1:])])


def test_random_functions_that_write() -> None:
    refused = 0
    for seed in range(PROGRAMS):
        rng = np.random.default_rng(seed)
        function, text = _function(rng, f"random_writes_{seed}.py")
        matrix = rng.uniform(-2, 2, (3, 4))
        matrix = matrix if seed % 3 else np.asfortranarray(matrix)
        ours = [rng.uniform(-2, 2, 8), rng.uniform(-2, 2, 8), matrix, rng.integers(-8, 8, 4)]
        theirs = copy.deepcopy(ours)
        accelerated = accelerate(function, backend="reference")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                try:
                    wanted = function(*copy.deepcopy(theirs))
                    found = accelerated(*ours)
                except FuserError:
                    refused += 1
                    break
                function(*theirs)
                np.testing.assert_allclose(_flat(found), _flat(wanted), 1e-9, 1e-9, err_msg=text)
                for one, other in zip(ours, theirs):
                    np.testing.assert_allclose(one, other, 1e-9, 1e-9, err_msg=text)
    assert refused < PROGRAMS // 10


@pytest.mark.parametrize("seed", range(3))
def test_random_functions_that_write_in_kernels(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    function, text = _function(rng, f"random_kernels_{seed}.py")
    ours = [rng.uniform(-2, 2, 8), rng.uniform(-2, 2, 8), rng.uniform(-2, 2, (3, 4)), rng.integers(-8, 8, 4)]
    theirs = copy.deepcopy(ours)
    np.testing.assert_allclose(_flat(accelerate(function)(*ours)), _flat(function(*theirs)), 1e-9, 1e-9, err_msg=text)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, 1e-9, 1e-9, err_msg=text)
