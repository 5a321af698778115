"""A plan as calls of its kernels over numbered places in memory: what launchers of every language are written from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.api.stages import Lowered
from fuser.backends.base import HOST, KernelSource
from fuser.backends.link import Parts, in_steps
from fuser.errors import UnsupportedError
from fuser.ir.graph import Var
from fuser.ir.types import ArrayType
from fuser.partition.group import FusionGroup, generated
from fuser.runtime.executable import Allocation, KernelStep

LICENCE = "http://www.apache.org/licenses/LICENSE-2.0"


@dataclass(frozen=True)
class Call:
    """One kernel's source, the places that it reads, and those that it writes."""

    source: KernelSource
    reads: tuple[int, ...]
    writes: tuple[Allocation, ...]


@dataclass(frozen=True)
class Program:
    """Calls in order; places of inputs, constants and results, with the types of what they hold for callers."""

    name: str
    inputs: tuple[tuple[int, ArrayType], ...]
    consts: tuple[tuple[int, np.ndarray], ...]
    calls: tuple[Call, ...]
    outputs: tuple[tuple[int, ArrayType], ...]
    arena: int
    lines: tuple[str, ...]  # of the user's program

    @property
    def origin(self) -> str:
        """Where the files come from, and what one may do with them."""
        from fuser import __version__

        lines = ", ".join(self.lines[:6]) or "an unknown line"
        return (
            f"{self.name}: kernels that fuser {__version__} generated from {lines}.\n"
            f"What fuser has put in is under the Apache License 2.0, {LICENCE}"
        )

    def signature(self) -> str:
        """The types of arguments and results, for readers."""
        given = ", ".join(f"in{n}: {aval.str_long()}" for n, (_, aval) in enumerate(self.inputs))
        found = ", ".join(f"out{n}: {aval.str_long()}" for n, (_, aval) in enumerate(self.outputs))
        return f"({given}) -> ({found})"


def _every(groups: Iterable[FusionGroup]) -> Iterator[FusionGroup]:
    """The groups, and those inside of them."""
    for group in groups:
        yield group
        yield from _every(group.inner)


def program_of(name: str, lowered: Lowered) -> Program:
    """The program of a plan. UnsupportedError where a step is no generated kernel."""
    plan, limits = lowered.plan, lowered.traced._backend.limits
    for group in _every(plan.groups):
        if group.reason or not generated(group, limits):
            why = group.reason or "it is no generated kernel"
            raise UnsupportedError(
                f"the step {group.name} of {name} cannot be taken away: {why} ({group.sources[0] if group.sources else '?'}); "
                "export a function without it"
            )
    kernels: Any = zip(lowered.sources, lowered.sources)
    executable = in_steps(plan, kernels, Parts(HOST, limits))
    steps = [step for step in executable.steps if isinstance(step, KernelStep)]
    calls = tuple(Call(source, s.arguments, s.outputs) for source, s in zip(lowered.sources, steps, strict=True))
    graph = plan.graph
    inputs = tuple((plan.slot_of[v], v.aval) for v in graph.invars)
    wanted = [v for v in plan.outputs if isinstance(v, Var)]
    outputs = tuple((plan.slot_of[plan.aliases.get(v, v)], v.aval) for v in wanted)
    consts = tuple((slot, np.asarray(value)) for slot, value in executable.consts.items())
    lines = tuple(dict.fromkeys(str(s) for group in plan.groups for s in group.sources if s.file))
    return Program(name, inputs, consts, calls, outputs, plan.arena, lines)
