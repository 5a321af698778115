"""What statements of a traced function may change: variables, which are cells of its rewritten code, and memory of arrays.

A block of statements can be run on other values, and all that it changed put back: how a loop's body is traced.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.interop.control.exits import PREFIX
from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.random import KnownGenerator
from fuser.interop.numpy.rows import are_rows
from fuser.interop.numpy.times import TimeArray
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.outside import is_object

MOST_LOOKED_AT = 1000  # values in containers
_CONSTANTS = (int, float, complex, str, bytes, type(None), range, slice, type(Ellipsis), np.generic, np.dtype)
_scopes = itertools.count(1)


class Unbound:
    """A variable without a value."""


UNBOUND = Unbound()


class Variables:
    """The variables that some functions share, by name."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self.cells: dict[str, types.CellType] = {}
        for function in functions:
            closure: Any = function.__closure__ or ()  # type: ignore[attr-defined]
            self.cells |= dict(zip(function.__code__.co_freevars, closure))  # type: ignore[attr-defined]
        self.cells.pop(PREFIX + "control", None)

    def read(self) -> dict[str, Any]:
        """Their values."""
        return {name: contents(cell) for name, cell in self.cells.items()}

    def write(self, values: dict[str, Any]) -> None:
        """Give some of them these values."""
        for name, value in values.items():
            if value is not UNBOUND:
                self.cells[name].cell_contents = value
            elif contents(self.cells[name]) is not UNBOUND:
                del self.cells[name].cell_contents

    def alone(self, context: Context) -> set[str]:
        """The variables that hold an array of which nothing else in the traced function has hold."""
        found = set()
        for name, cell in self.cells.items():
            value = contents(cell)
            if type(value) is TracedArray and value._base is None:
                ours = 1 + sum(each is value for values in context.holders for each in values.values())
                if _holders(cell) - ours <= _ONE:
                    found.add(name)
        return found


def contents(cell: types.CellType) -> Any:
    """What a cell holds; UNBOUND where it holds nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND


def _holders(cell: types.CellType) -> int:
    return sys.getrefcount(cell.cell_contents)


_ONE = _holders(types.CellType(object()))


class Log:
    """The arrays from before a block that it wrote to, as they were: (array, value, version, assignments) by identity."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[TracedArray, Any, int, Any]] = {}

    def __call__(self, array: TracedArray) -> None:
        self.before.setdefault(id(array), (array, array._value, array._version, array.assignments))

    def arrays(self) -> list[TracedArray]:
        """The arrays that were written to."""
        return [array for array, *_ in self.before.values()]

    def put_back(self) -> None:
        """Give all arrays what they held before."""
        for array, *rest in self.before.values():
            array._value, array._version, array.assignments = rest


@contextlib.contextmanager
def undone(context: Context, variables: Variables) -> Iterator[Log]:
    """A block whose effects on variables and memory are put back at its end; UnsupportedError where it has others."""
    mark = len(context.holders)
    before, containers = context.held(variables.read()), _containers(variables)
    draws, log, scope = len(context.draws or ()), Log(), context.scope
    context.logs.append(log)
    context.scope = next(_scopes)
    try:
        yield log
    finally:
        context.logs.pop()
        context.scope = scope
        log.put_back()
        variables.write(before)
        changed = _put_back(containers)
        del context.holders[mark:]
    if changed:
        raise untraceable("a list, dict or object that a loop or branch on values changes cannot be traced")
    if len(context.draws or ()) != draws:
        raise untraceable("random numbers drawn in a loop or branch on values cannot be traced")


def _containers(variables: Variables) -> list[tuple[Any, Any]]:
    """Lists, dicts, objects and plain ndarrays that variables reach, each with what it holds."""
    found: list[tuple[Any, Any]] = []
    seen: set[int] = set()
    waiting = [value for value in variables.read().values() if value is not UNBOUND]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or type(value) is TracedArray:
            continue
        seen.add(id(value))
        if len(seen) > MOST_LOOKED_AT:
            raise untraceable("a loop or branch on values beside so many objects cannot be traced")
        kept, reached = _looked_into(value)
        found += kept
        waiting += reached
    return found


def _looked_into(value: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """What a value holds that may change, with a copy of it, and the values that it reaches; UnsupportedError where that is not known."""
    if type(value) is list:
        return [(value, list(value))], [] if are_rows(value) else value
    if isinstance(value, dict):
        return [(value, dict(value))], list(value.values())
    if isinstance(value, (tuple, set, frozenset)):
        return ([(value, set(value))] if type(value) is set else []), list(value)
    if type(value) is TimeArray:
        return [], [value.ticks]
    if isinstance(value, np.ndarray):
        return [(value, value.copy())], []
    if isinstance(value, types.FunctionType):
        return [], [held for cell in value.__closure__ or () if (held := contents(cell)) is not UNBOUND]
    if isinstance(value, (*_CONSTANTS, types.ModuleType, type)) or _is_own(value):
        return [], []
    if is_object(value) and hasattr(value, "__dict__"):
        return [(value.__dict__, dict(value.__dict__))], list(value.__dict__.values())
    owner = getattr(value, "__self__", None)
    if callable(value) and (owner is not None or isinstance(value, np.ufunc)):
        return [], [] if owner is None else [owner]
    if callable(value) and type(value).__module__.partition(".")[0] in ("builtins", "functools", "numpy", "scipy"):
        return [], []
    raise untraceable(
        f"a loop or branch on values beside a {type(value).__name__}, which it may change, cannot be traced"
    )


def _is_own(value: Any) -> bool:
    """Whether a value is one of fuser's that stand for what lies outside, and tell of changes themselves."""
    return type(value).__module__.startswith("fuser.") and type(value) is not KnownGenerator


def _put_back(containers: list[tuple[Any, Any]]) -> bool:
    """Give containers what they held; whether any had something else."""
    changed = False
    for container, before in containers:
        if isinstance(container, np.ndarray):
            if container.tobytes() != before.tobytes():
                container[...], changed = before, True
        elif isinstance(container, set):
            if container != before:
                container.clear()
                container.update(before)
                changed = True
        elif not _holds(container, before):
            changed = True
            if isinstance(container, list):
                container[:] = before
            else:
                container.clear()
                container.update(before)
    return changed


def _holds(container: Any, before: Any) -> bool:
    if len(container) != len(before):
        return False
    if isinstance(container, list):
        return all(a is b for a, b in zip(container, before))
    return all(key in container and container[key] is value for key, value in before.items())
