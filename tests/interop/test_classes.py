"""Classes whose instances a traced function makes: their methods are traced, and their effects are those in Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate
from tests.interop.oracle import agree, same

INFLOW = np.random.default_rng(0).random((12, 40))


class Reservoir:
    capacity = 3.0
    names = ("level", "spilled")

    def __init__(self, size: int) -> None:
        self.level = np.zeros(size)
        self.spilled = np.zeros(size)

    @classmethod
    def filled(cls, level: Any) -> Any:
        made = cls(len(level))
        made.level += level
        return made

    @property
    def free(self) -> Any:
        return self.capacity - self.level

    @free.setter
    def free(self, value: Any) -> None:
        self.level[:] = self.capacity - value

    @staticmethod
    def excess(level: Any, capacity: Any) -> Any:
        out = np.zeros(len(level))
        out[:] = np.maximum(level - capacity, 0)
        return out

    def fill(self, inflow: Any) -> Any:
        self.level += inflow
        over = self.excess(self.level, self.capacity)
        self.level -= over
        self.spilled += over
        return over

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Reservoir):
            return NotImplemented
        made = type(self)(len(self.level))
        made.level[...] = self.level + other.level
        return made


def run(inflow: Any) -> Any:
    reservoir, total = Reservoir(inflow.shape[1]), 0.0
    for row in inflow:
        total += reservoir.fill(row).sum()
    return reservoir.level, reservoir.spilled, reservoir.free, total


def kinds(inflow: Any) -> Any:
    first, second = Reservoir.filled(inflow[0]), Reservoir.filled(inflow[1])
    first.free = inflow[2]
    both = first + second
    return (
        both.level,
        isinstance(both, Reservoir),
        type(both) is Reservoir,
        issubclass(type(both), Reservoir),
        both.names,
    )


@pytest.mark.parametrize("function", [run, kinds])
def test_methods_are_traced(function: Any) -> None:
    for backend in ("c", "reference"):
        agree(function, INFLOW, backend=backend)
    compiled = accelerate(function, measure=False)
    for _ in range(2):
        same(function(INFLOW), compiled(INFLOW))
    assert "compiled whole" in compiled.explain() and compiled._signatures()[0].traces == 1


def test_instances_are_returned_and_taken() -> None:
    def both(given: Any, inflow: Any) -> Any:
        made = Reservoir.filled(inflow[0])
        assert isinstance(given, Reservoir)
        return made + given, made

    compiled = accelerate(both, measure=False)
    for _ in range(3):
        given = Reservoir.filled(INFLOW[1])
        found, wanted = compiled(given, INFLOW), both(given, INFLOW)
        for mine, theirs in zip(found, wanted):
            assert type(mine) is Reservoir and vars(mine).keys() == vars(theirs).keys()
            same(theirs.level, mine.level)
            same(theirs.fill(INFLOW[0]), mine.fill(INFLOW[0]))


def test_changes_of_a_class_are_seen() -> None:
    compiled = accelerate(run, measure=False)
    try:
        for Reservoir.capacity in (3.0, 3.0, 2.0):
            same(run(INFLOW), compiled(INFLOW))
        original = Reservoir.excess
        Reservoir.excess = staticmethod(lambda level, capacity: np.zeros(len(level)))
        same(run(INFLOW), compiled(INFLOW))
        Reservoir.excess = staticmethod(original)
    finally:
        Reservoir.capacity = 3.0
    same(run(INFLOW), compiled(INFLOW))


class Counted:
    made = 0

    def __init__(self, x: Any) -> None:
        Counted.made += 1
        self.x = np.cumsum(x)


class Named:
    def __init__(self, x: Any) -> None:
        self.x = np.zeros(3) + x

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, "_" + name, value)


class Derived(Reservoir):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.level = np.ones(size)


@dataclass
class Settings:
    scale: float = 2.0
    shift: Any = field(default_factory=lambda: np.ones(40))

    def apply(self, x: Any) -> Any:
        out = np.zeros(40)
        out += x * self.scale + self.shift
        return out


def test_other_classes_run_as_they_are() -> None:
    def derived(x: Any) -> Any:
        made = Derived(40)
        made.level = made.level + x[0]
        return made.level, made.free

    for function in (lambda x: Named(x[0, 0])._x, derived, lambda x: Settings(3.0).apply(x[0])):
        agree(function, INFLOW, backend="c")
        compiled = accelerate(function, measure=False)
        for _ in range(3):
            same(function(INFLOW), compiled(INFLOW))


def test_a_class_that_counts_its_instances_counts_each() -> None:
    Counted.made = 0
    compiled = accelerate(lambda x: Counted(x).x, measure=False)
    for turn in range(5):
        same(np.cumsum(INFLOW), compiled(INFLOW))
        assert Counted.made == turn + 1


def test_classes_of_a_closure_refer_to_themselves() -> None:
    class Node:
        def __init__(self, x: Any) -> None:
            self.x = np.zeros(40) + x

        def twice(self) -> Any:
            return Node(self.x * 2) if isinstance(self, Node) else None

    def function(x: Any) -> Any:
        return Node(x[0]).twice().twice().x

    agree(function, INFLOW, backend="c")
    compiled = accelerate(function, measure=False)
    same(function(INFLOW), compiled(INFLOW))
    assert "compiled whole" in compiled.explain()


def test_classes_are_arguments() -> None:
    def function(kind: Any, x: Any) -> Any:
        made = kind(40)
        made.level += x[0]
        return made.level, kind is Reservoir, isinstance(made, Reservoir)

    compiled = accelerate(function, measure=False)
    for kind in (Reservoir, Derived, Reservoir):
        for _ in range(2):
            same(function(kind, INFLOW), compiled(kind, INFLOW))
