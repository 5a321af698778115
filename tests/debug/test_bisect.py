"""The search for a guilty merge, on a backend that miscompiles kernels that hold two certain operations."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.backends.base import KernelSource
from fuser.backends.c import spell
from fuser.backends.c.backend import C
from fuser.debug.bisect import agreement, bisect, bisect_graph
from fuser.partition.group import FusionGroup

X = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)


def miscompiled(backend: C, group: FusionGroup) -> KernelSource:
    """The group's kernel, where square roots are absolute values."""
    wrong = spell.TABLE.changed("float", sqrt="__builtin_fabs{f}({0})")
    with mock.patch.object(spell, "TABLE", wrong):
        source = C.emit(backend, group)
    return source


class Miscompiling(C):
    """C, but a square root in a kernel with an exponential is taken for an absolute value."""

    def emit(self, group: FusionGroup) -> KernelSource:
        wrong = {"exp", "sqrt"} <= set(group.ops)
        return miscompiled(self, group) if wrong else super().emit(group)


class Broken(C):
    """C, but every square root is an absolute value."""

    def emit(self, group: FusionGroup) -> KernelSource:
        return miscompiled(self, group)


def program(x: Any) -> Any:
    y = fnp.exp(fnp.cos(x) + 2)
    return fnp.tanh(y), fnp.sin(fnp.sqrt(y) * 3) + x.sum(-1, keepdims=True)


def test_a_right_program_has_no_guilty_merge() -> None:
    assert bisect(program, X) is None


def test_the_guilty_merge_is_named() -> None:
    guilty = bisect_graph(fuser.jit(program).trace(X).graph, [X], Miscompiling())
    assert guilty is not None and guilty.number > 0 and guilty.after is not None
    operations = [{eqn.primitive.name for eqn in graph.eqns} for graph in guilty.before]
    assert len(guilty.before) == 2
    assert not any({"exp", "sqrt"} <= names for names in operations)
    assert {"exp", "sqrt"} <= {eqn.primitive.name for eqn in guilty.after.eqns}
    assert "fabsf(" in guilty.kernel
    text = str(guilty)
    assert f"FUSER_FUEL={guilty.number - 1} is right" in text and "test_bisect.py:" in text


def test_a_kernel_that_is_wrong_alone_is_said_to_be() -> None:
    guilty = bisect_graph(fuser.jit(program).trace(X).graph, [X], Broken())
    assert guilty is not None and guilty.number == 0
    assert "wrong without any merge" in str(guilty)


def test_what_counts_as_agreement() -> None:
    x = np.array([1.0, np.nan, np.inf], np.float32)
    assert agreement(x, x.copy()) and agreement(x, x * np.float32(1 + 1e-6))
    assert not agreement(x, np.array([1.0, np.nan, -np.inf], np.float32))
    assert not agreement(x, x.astype(np.float64)) and not agreement(x, x[:2])
    assert not agreement(np.array([1, 2]), np.array([1, 3]))
