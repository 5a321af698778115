"""One compiled program for many sizes: lowered with Numbers for its symbolic extents, and made for others by putting theirs in.

What comes out of the compiler is a description of an executable, nested tuples in which sizes are Numbers. For other sizes that
pass the guards it is written anew: no tracing, no pass, no planning, no text. Extents that are used as values are inputs of the
kernels, which the program has as constants of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.api import compiler
from fuser.api.stages import Traced, around
from fuser.errors import UnsupportedError
from fuser.export.extents import as_inputs
from fuser.export.sizes import with_sizes
from fuser.ir.dim import evaluated
from fuser.ir.graph import Graph
from fuser.ir.guards import Guards, TooManyGuards
from fuser.runtime.core import native
from fuser.runtime.executable import CFunction, Step

MOST_PROGRAMS = 64  # of one function, each for the sizes that pass its guards
_EXTENT = np.dtype(np.int32)


@dataclass(frozen=True, eq=False)
class Specialization:
    """A program that was lowered at some sizes for all that pass its guards: why none before served, and what it cost.

    `make` gives, for sizes that pass, what `_made` makes a program of; None for others.
    """

    make: Callable[..., Any]
    guards: Guards
    because: str
    seconds: float
    kernels: int  # that were compiled for it


class Instances:
    """Programs of a graph with symbolic extents. `traced` makes a Traced of a graph with sizes.

    `refusal` says why there are none, once that is known.
    """

    def __init__(self, graph: Graph, traced: Callable[[Graph], Traced]) -> None:
        self.graph, self.extents = as_inputs(graph)
        self.traced = traced
        self.programs: tuple[Specialization, ...] = ()  # the last that served comes first
        self.lowered: list[Specialization] = []  # in order
        self.refusal = ""

    def program(self, sizes: Mapping[str, int]) -> Any:
        """The native program for these sizes; None where `refusal` says why not."""
        if (known := self.known(sizes)) is not None or self.refusal:
            return known
        try:
            found = self._specialized(sizes)
        except TooManyGuards:
            self.refusal = "its compilation asks more of its sizes than is worth checking"
            return None
        except UnsupportedError as error:
            self.refusal = str(error)
            return None
        self.programs = (found, *self.programs[: MOST_PROGRAMS - 1])
        self.lowered = [*self.lowered[-MOST_PROGRAMS + 1 :], found]
        return _made(*found.make(**sizes))

    def known(self, sizes: Mapping[str, int]) -> Any:
        """The native program for these sizes, where one that was compiled before passes for them; else None."""
        for one in self.programs:
            if (found := one.make(**sizes)) is not None:
                if one is not self.programs[0]:
                    self.programs = (one, *[other for other in self.programs if other is not one])
                return _made(*found)
        return None

    def _because(self, sizes: Mapping[str, int]) -> str:
        """Why none of the programs serves these sizes: what the one that served last asks of them."""
        if not self.programs:
            return "the first call"
        last = self.programs[0].guards
        return f"{last.failing(sizes)} holds, and not for {in_words(last.sizes)}"

    def _specialized(self, sizes: Mapping[str, int]) -> Specialization:
        start, because, guards = time.perf_counter(), self._because(sizes), Guards(sizes)
        traced = self.traced(with_sizes(self.graph, guards.numbers))
        lowered = traced.lower()
        program = compiler.load(lowered.lowering, traced._backend)
        executable = program.executable
        if native is None or lowered.traced.state is not None:
            raise UnsupportedError("only the native core runs programs for many sizes, and only those without Refs")
        for step in executable.joined:
            if (reason := _blocker(step)) is not None:
                raise UnsupportedError(reason)
        values = tuple(evaluated(extent, guards.numbers) for extent in self.extents)
        make = guards.instance((executable.described, around(lowered.traced, program), values))
        return Specialization(make, guards, because, time.perf_counter() - start, program.loaded.compiled)


def in_words(sizes: Mapping[str, int]) -> str:
    """`n = 3, k = 4`."""
    return ", ".join(f"{name} = {int(size)}" for name, size in sizes.items())


def _blocker(step: Step) -> str | None:
    """Why a step is for one size alone: what is no kernel of the c backend has its sizes within."""
    if isinstance(step.function, CFunction):
        return f"{step.name} calls Python" if step.function.objects else None
    return f"{step.name} is no kernel of the c backend"


def _made(described: tuple[Any, ...], around: tuple[Any, ...], values: tuple[int, ...]) -> Any:
    """The native program; its last inputs are `values`, which become constants."""
    if values:
        count, inputs, consts, *rest = described
        arguments, extents = inputs[: -len(values)], inputs[-len(values) :]
        known = {slot: np.asarray(value, _EXTENT) for slot, value in zip(extents, values)}
        described = (count, arguments, consts | known, *rest)
    return native.Program(native.Executable(*described), *around)
