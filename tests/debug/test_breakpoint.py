"""Breakpoints in programs: what the debugger prints for commands that come from a file."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp


def session(function: Any, *args: Any, commands: str) -> tuple[Any, list[str]]:
    out = io.StringIO()
    result = function(io.StringIO(commands), out, *args)
    fuser.effects_barrier()
    return result, out.getvalue().replace("(jdb) ", "").splitlines()


@pytest.mark.parametrize("jitted", [False, True])
def test_variables_of_the_functions_that_run(jitted: bool) -> None:
    def inner(y: Any, stdin: Any, stdout: Any) -> Any:
        pair = {"twice": y * 2, "name": "inner"}
        fuser.debug.breakpoint(stdin=stdin, stdout=stdout)
        return pair["twice"]

    def run(stdin: Any, stdout: Any, x: Any) -> Any:
        def outer(x: Any) -> Any:
            z = x + 1
            return inner(z, stdin, stdout)

        return (fuser.jit(outer) if jitted else outer)(x)

    commands = "p pair['twice']\npair['name']\nnp.asarray(y) - 1\np nothing\nu\np z\nd\nd\nw\nl\nc\n"
    result, lines = session(run, fnp.arange(3.0), commands=commands)
    np.testing.assert_array_equal(result, [2, 4, 6])
    assert lines[:5] == [
        "Entering jdb:",
        "Array([2., 4., 6.], dtype=float32)",
        "'inner'",
        "array([0., 1., 2.], dtype=float32)",
        "*** NameError: name 'nothing' is not defined",
    ]
    assert "in outer" in lines[5] and any(line.startswith("->") and "return inner(z" in line for line in lines)
    assert "Array([1., 2., 3.], dtype=float32)" in lines and "At bottommost frame." in lines
    frames = [line for line in lines[lines.index("Traceback:") :] if line.startswith("  File")]
    assert frames[-1].endswith("in inner") and any(line.endswith("in outer") for line in frames[:-1])
    assert sum("fuser.debug.breakpoint(stdin=stdin" in line for line in lines) == 2


def test_transforms_tokens_and_refusals() -> None:
    def mapped(stdin: Any, stdout: Any) -> Any:
        def f(x: Any) -> Any:
            fuser.debug.breakpoint(stdin=stdin, stdout=stdout, num_frames=1)
            return x * x

        return fuser.jit(fuser.vmap(fuser.grad(f)))(fnp.arange(2.0))

    result, lines = session(mapped, commands="p x\nc\np x\nc\n")
    np.testing.assert_array_equal(result, [0, 2])
    assert [line for line in lines if line.startswith("Array")] == [
        "Array(0., dtype=float32)",
        "Array(1., dtype=float32)",
    ]

    def tied(stdin: Any, stdout: Any) -> Any:
        return fuser.jit(lambda x: fuser.debug.breakpoint(token=x + 1, stdin=stdin, stdout=stdout) * 2)(3.0)

    result, lines = session(tied, commands="x\n")  # which ends: the program goes on
    assert result == 8 and "3." in lines[1]
    with pytest.raises(ValueError, match="mutually exclusive"):
        fuser.debug.breakpoint(ordered=True, token=1.0)
    with pytest.raises(ValueError, match="Invalid debugger 'web'"):
        fuser.debug.breakpoint(backend="web")
