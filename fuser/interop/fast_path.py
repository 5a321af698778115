"""Fast paths: calls of accelerated functions that the native core answers, without any Python of fuser's.

In: what answers a signature's calls, a compiled program or NumPy, and the arguments of one of them. Out: a `FastPath` of the native
core (runtime/core/fast_path.c) for calls with arguments like these, or None where Python is needed: draws, results that are copies of
constants, values outside that are handed back, writes at computed positions, results in the memory of arguments.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy._core import umath

from fuser.api.jitted import Jitted
from fuser.frames import hide
from fuser.interop.arguments import QUICK, is_dense, is_dynamic
from fuser.interop.entries import Signature, default_state
from fuser.interop.in_place import takes_memory_of_arguments
from fuser.interop.outputs import Declined, Output, makers_of
from fuser.interop.writes import Result, Step, Write
from fuser.runtime.core import native
from fuser.trace import tree

MOST_PATHS = 16  # of one function, the latest ones
MOST_INPUTS = 32  # of a program; the native core holds as many in its stack


class Test(enum.IntEnum):
    """How an argument is told."""

    ARRAY = 0
    DENSE_ARRAY = 1
    NUMBER = 2
    VALUE = 3


class Leaf(enum.IntEnum):
    """What a result is made of."""

    OUTPUT = 0
    MADE = 1
    SCALAR = 2
    PYTHON_NUMBER = 3
    CONSTANT = 4
    PASSED = 5


_VALUES = (int, bool, str, bytes)  # arguments that are compared by ==
_Row = tuple[int, int, Any]


def of_numpy(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The path of calls that NumPy answers; None where arguments cannot be told there."""
    arguments = _arguments(args, dense=False)
    return None if arguments is None or native is None else native.FastPath(arguments, function, None)


def of_program(entry: Signature, compiled: Any, precise: bool, args: Sequence[Any]) -> Any:
    """The path of calls that a compiled program answers, `args` being those of one; None where it needs Python."""
    traced, state = compiled.traced, default_state()
    backend = traced._backend
    if native is None or state is None or backend.memory.platform != "cpu" or backend.name == "reference":
        return None
    arguments = _arguments(args, dense=True)
    inputs = [n for n, arg in enumerate(args) if is_dynamic(arg)]
    inputs += [-1 - n for n in range(traced.outside_inputs)]
    leaves, assignments = _leaves(compiled.program, traced), _assignments(traced)
    alone = len(traced.guards.captures) == traced.outside_inputs and not (assignments and traced.outside_inputs)
    if arguments is None or leaves is None or assignments is None or not alone or traced.draws:
        return None
    if len(inputs) > MOST_INPUTS or takes_memory_of_arguments(traced):
        return None
    template = tree.unflatten(traced.out_tree, range(len(leaves)))
    flag = len(traced.graph.outvars) - traced.watched

    def declined(*args: Any) -> Any:
        return entry.declined(args, {}, precise)

    contents = (compiled.program.executable.native, tuple(inputs), flag, leaves, assignments, template)
    outside = (traced.guards.check, declined, Declined, umath._extobj_contextvar, state, native.settings_number())
    try:
        return native.FastPath(arguments, None, (*contents, *outside))
    except ValueError:  # a tree that C cannot build
        return None


class WithPaths(Jitted):
    """A function whose calls the native core looks for among paths, and passes to `_in_python` where it finds none."""

    _paths: tuple[Any, ...] = ()

    def __init_subclass__(cls) -> None:
        if native is not None:
            native.call_directly(cls)

    def _in_python(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._answer(args, kwargs)
        except Exception as error:
            raise hide(error)  # noqa: B904

    def _answer(self, args: Any, kwargs: Any) -> Any:
        """A call that no path answers."""
        raise NotImplementedError

    def _add_path(self, path: Any) -> None:
        """Look at this path first from now on; None is no path."""
        if path is not None and path not in self._paths and not path.retired:
            self._paths = (path, *[old for old in self._paths if not old.retired][: MOST_PATHS - 1])
            self._answer_by(self._paths)

    def _forget_paths(self) -> None:
        self._paths = ()
        self._answer_by(())


def _arguments(args: Sequence[Any], dense: bool) -> tuple[tuple[int, Any, tuple[int, ...]], ...] | None:
    rows: list[tuple[int, Any, tuple[int, ...]]] = []
    for arg in args:
        kind = type(arg)
        if kind is np.ndarray:
            if dense and not is_dense(arg):
                return None
            rows.append((Test.DENSE_ARRAY if dense else Test.ARRAY, arg.dtype, arg.shape))
        elif kind in _VALUES:
            rows.append((Test.VALUE, arg, ()))
        elif kind in QUICK and is_dynamic(arg):
            rows.append((Test.NUMBER, kind, ()))
        else:
            return None
    return tuple(rows)


def _leaves(program: Any, traced: Any) -> tuple[_Row, ...] | None:
    outputs: tuple[Output, ...] = traced.outputs
    makers, shared_makers = makers_of(program, outputs, traced.shared)
    computed = sum(output.computed for output in outputs)
    memory = Counter((o.kind, o.value[0]) for o in outputs if o.kind in ("view", "argument") and o.value[1])
    if max(memory.values(), default=0) > 1:  # a step that copies, copies once for all of them
        return None
    rows: list[_Row] = []
    number = 0
    for output, make in zip(outputs, makers):
        if output.computed:
            kind = {"scalar": Leaf.SCALAR, "number": Leaf.PYTHON_NUMBER}.get(output.kind)
            rows.append((kind if kind is not None else Leaf.OUTPUT if make is None else Leaf.MADE, number, make))
            number += 1
        elif output.kind == "view":
            position, reads = output.value
            rows.append((Leaf.MADE, computed + position, _chain((shared_makers[position], *reads))))
        elif output.kind == "argument" and output.value[0] >= 0:
            rows.append((Leaf.PASSED, *output.value))
        elif output.kind == "same":
            rows.append((Leaf.CONSTANT, 0, output.value))
        else:
            return None
    return tuple(rows)


def _chain(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def made(array: Any) -> Any:
        for step in steps:
            array = step(array)
        return array

    return made


def _assignments(traced: Any) -> tuple[Any, ...] | None:
    writes: tuple[Write, ...] = traced.writes
    if any(write.target < 0 or not all(step.fixed for step in write.steps) for write in writes):
        return None
    first = len(traced.graph.outvars) - traced.watched - traced.write_results
    return tuple(_assignment(write.target, step, first) for write in writes for step in write.steps)


def _assignment(target: int, step: Step, first: int) -> tuple[Any, ...]:
    if not isinstance(step.value, Result):
        return target, step.reads, step.index, -1, step.value, ()
    return target, step.reads, step.index, first + step.value.number, None, step.value.shape
