"""One compiled program for many sizes: lowered with Numbers for its symbolic extents, and made for others by putting theirs in.

What comes out of the compiler is a description of an executable, nested tuples in which sizes are Numbers. For other sizes that
pass the guards it is written anew: no tracing, no pass, no planning, no text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fuser.api import compiler
from fuser.api.stages import Traced, around
from fuser.errors import UnsupportedError
from fuser.export.sizes import with_sizes
from fuser.ir.graph import Graph
from fuser.ir.guards import Guards
from fuser.runtime.core import native
from fuser.runtime.executable import CFunction, Step

MOST_PROGRAMS = 64  # of one function, each for the sizes that pass its guards


class Instances:
    """Programs of a graph with symbolic extents. `traced` makes a Traced of a graph with sizes.

    `refusal` says why there are none, once that is known: UnsupportedError's words, or those of what went wrong.
    """

    def __init__(self, graph: Graph, traced: Callable[[Graph], Traced]) -> None:
        self.graph, self.traced = graph, traced
        self.programs: tuple[Callable[..., Any], ...] = ()  # the last that served comes first
        self.refusal = ""

    def program(self, sizes: Mapping[str, int]) -> Any:
        """The native program for these sizes; None where `refusal` says why not."""
        if (known := self.known(sizes)) is not None or self.refusal:
            return known
        try:
            make = self._compiled(Guards(sizes))
        except Exception as error:  # whatever cannot be done with Numbers is done with the sizes themselves
            self.refusal = f"{type(error).__name__}: {error}"
            return None
        self.programs = (make, *self.programs[: MOST_PROGRAMS - 1])
        return _made(make(**sizes))

    def known(self, sizes: Mapping[str, int]) -> Any:
        """The native program for these sizes, where one that was compiled before passes for them; else None."""
        for make in self.programs:
            if (found := make(**sizes)) is not None:
                if make is not self.programs[0]:
                    self.programs = (make, *[other for other in self.programs if other is not make])
                return _made(found)
        return None

    def _compiled(self, guards: Guards) -> Callable[..., Any]:
        """A function of the sizes: what `_made` makes the program of, or None."""
        traced = self.traced(with_sizes(self.graph, guards.numbers))
        lowered = traced.lower()
        program = compiler.load(lowered.lowering, traced._backend)
        executable = program.executable
        if native is None or lowered.traced.state is not None:
            raise UnsupportedError("only the native core runs programs for many sizes, and only those without Refs")
        for step in executable.joined:
            if (reason := _blocker(step)) is not None:
                raise UnsupportedError(reason)
        return guards.instance((executable.described, around(lowered.traced, program)))


def _blocker(step: Step) -> str | None:
    """Why a step is for one size alone: what is no kernel of the c backend has its sizes within."""
    if isinstance(step.function, CFunction):
        return f"{step.name} calls Python" if step.function.objects else None
    return f"{step.name} is no kernel of the c backend"


def _made(description: tuple[Any, Any]) -> Any:
    executable, rest = description
    return native.Program(native.Executable(*executable), *rest)
