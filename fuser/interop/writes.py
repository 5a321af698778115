"""What a traced function wrote to arrays of the caller's, as results of the program and assignments that a call makes from them.

An array that was written by basic or array indices alone is written so again: `u[1:-1] = block` costs the block, not the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.errors import FuserError
from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.traced import Assignment, TracedArray
from fuser.interop.outside import Known
from fuser.runtime.array import Array
from fuser.trace.core import Tracer

MOST_ASSIGNMENTS = 16  # of one array: more are made in the program


class NeedsInput(FuserError):
    """A trace has written to an array outside whose contents it took to be constant; it is to be an input instead."""

    def __init__(self, path: Any) -> None:
        super().__init__("an array outside is written, so it is no constant")
        self.path = path


@dataclass(frozen=True)
class Result:
    """The program's result with this number among those for writes, in its shape."""

    number: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """`read(...read(array))[index] = value`, with Results for what the program computes."""

    reads: tuple[Callable[[Any], Any], ...]
    index: tuple[Any, ...]
    value: Any


@dataclass(frozen=True)
class Write:
    """Assignments to the array `target`: an argument's number, or -1 - n for the n-th array that the guards capture."""

    target: int
    steps: tuple[Step, ...]
    input: int  # of the program: the array

    def array(self, leaves: Sequence[Any], captured: Sequence[Any]) -> Any:
        """The array of a call."""
        return leaves[self.target] if self.target >= 0 else captured[-1 - self.target]

    def apply(self, target: Any, results: Sequence[Any]) -> None:
        """Make the assignments; `results` are the program's for writes."""
        for step in self.steps:
            value = _value(step.value, results)
            if value is target:  # where the program has written
                continue
            array = target
            for read in step.reads:
                array = read(array)
            array[tuple(_value(part, results) for part in step.index)] = value


def _value(value: Any, results: Sequence[Any]) -> Any:
    if not isinstance(value, Result):
        return value
    result = np.asarray(results[value.number])
    return result if result.shape == value.shape else result.reshape(value.shape)


def writes_of(
    context: Context, in_order: Callable[[Any], Any], traced: Sequence[int]
) -> tuple[tuple[Write, ...], list[Any]]:
    """The writes of a trace, and the values that the program has to compute for them; `traced` are the arguments that are inputs."""
    values: list[Any] = []
    made = []
    for where, array in context.written():
        target = _target(where, array)
        number = traced.index(target) if target >= 0 else len(traced) - 1 - target
        made.append(Write(target, _steps(array, values, in_order), number))
    return tuple(made), values


def _target(where: Any, array: TracedArray) -> int:
    if not isinstance(where, Known):
        return int(where)
    if where.path is not None:
        raise NeedsInput(where.path)
    raise untraceable(
        f"writing to the array {where.name}, of which the function also needs values, cannot be traced",
        f"write to a copy: {where.name}.copy()",
    )


def _steps(array: TracedArray, values: list[Any], in_order: Callable[[Any], Any]) -> tuple[Step, ...]:
    log = array.assignments
    computed = [v for a in log or () for v in (*a.index, a.value) if _is_computed(v)]
    if log is None or len(log) > MOST_ASSIGNMENTS or sum(_lifted(v).size for v in computed) > array.size:
        log = [Assignment((), (Ellipsis,), in_order(array))]
    return tuple(_step(assignment, values) for assignment in log)


def _step(assignment: Assignment, values: list[Any]) -> Step:
    def placed(value: Any) -> Any:
        if not _is_computed(value):
            return np.asarray(value) if isinstance(value, Array) else value
        values.append(_lifted(value))
        return Result(len(values) - 1, tuple(values[-1].shape))

    return Step(assignment.reads, tuple(map(placed, assignment.index)), placed(assignment.value))


def _is_computed(value: Any) -> bool:
    return isinstance(value, (Tracer, TracedArray))


def _lifted(value: Any) -> Any:
    return value.lifted() if isinstance(value, TracedArray) else value
