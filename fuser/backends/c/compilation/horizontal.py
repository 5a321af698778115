"""Horizontal fusion: small kernels as one C function, which calls them in order; equal texts are there once.

What only later parts read lies in a block of the function's own. Where the parts together are worth threads and none is by
itself, those that do not depend on each other are shared out, one thread a part.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.backends.base import Alike, KernelSource
from fuser.backends.c.builder import Builder
from fuser.backends.c.control_flow.driver import LOCAL, Emit
from fuser.backends.c.function import (
    KEY,
    THREADS,
    Code,
    Definition,
    Function,
    Module,
    Own,
    Symbol,
    code,
    joined,
)
from fuser.backends.c.remarks import Scalarised, remark, worst
from fuser.backends.c.target import TARGET
from fuser.backends.c.team_size import TEAM_FOR
from fuser.ir.cost import seconds
from fuser.ir.graph import Var
from fuser.kernel.schedule import Schedule
from fuser.partition.buffers import ALIGNMENT, padded
from fuser.partition.group import FusionGroup
from fuser.partition.horizontal import levels

MANY = 8  # parts from which the function that calls them is not worth optimising
SHARED = 4  # parts of equal weight that are worth sharing out, at least


def emit_horizontal(group: FusionGroup, emit: Emit) -> KernelSource:
    """The function `name(buffers, sizes)` of a HORIZONTAL group."""
    return _Bundle(group, emit).source()


class _Bundle:
    """One function in the making. `places` are the texts of the addresses of values."""

    def __init__(self, group: FusionGroup, emit: Emit) -> None:
        self.group = group
        self.sizes: list[int] = []
        self.names_of: dict[str, str] = {}  # by the text of a part without its name, the name of the function
        self.parts: list[Function | Definition] = []
        self.builder = Builder()
        arrays = [*group.graph.invars, *group.graph.outvars]
        self.places = {v: f"buffers[{n}]" for n, v in enumerate(arrays)}
        self.names = tuple(f"in{n}" for n in range(len(group.graph.invars)))
        self.names += tuple(f"out{n}" for n in range(len(group.graph.outvars)))
        self.emit, self.alike = emit, Alike(group.parts)
        self.scalar: Scalarised | None = None  # of the largest part with loops that are not vectorised
        self.schedules: dict[str, Schedule] = {}  # of the parts

    def source(self) -> KernelSource:
        self._temporaries()
        for numbers in levels(self.group.parts):
            self._level([self.group.parts[n] for n in numbers])
        launch = {"sizes": tuple(self.sizes), "workspace": self.sizes[0] if self.sizes[0] > LOCAL else 0}
        launch |= remark(self.scalar)
        return KernelSource(self.group.name, self._module(), "c", self.names, launch, schedules=self.schedules)

    def _module(self) -> Module:
        comments, name = tuple(dict.fromkeys(str(s) for s in self.group.sources if s.file)), self.group.name
        calling = len(self.group.parts) >= MANY
        caller = Function(Own(), tuple(self.builder.statements), calling=calling, comments=comments)
        return Module(name, (*self.parts, caller))

    def _temporaries(self) -> None:
        """A place for each value that stays inside."""
        self.sizes.append(0)
        for part in self.group.parts:
            for var in part.graph.outvars:
                if isinstance(var, Var) and var not in self.places:
                    self.places[var] = f"block_at + sizes[{len(self.sizes)}]"
                    self.sizes.append(self.sizes[0])
                    self.sizes[0] += padded(var.aval.nbytes)
        if self.sizes[0]:
            self.builder.buffer("char", "local", LOCAL, f" __attribute__((aligned({ALIGNMENT})))")
            self.builder.do(f"char *const block_at = sizes[0] <= {LOCAL} ? local : buffers[{len(self.names)}];")

    def _level(self, parts: list[FusionGroup]) -> None:
        """Parts that do not depend on each other."""
        works = [sum(seconds(eqn, TARGET) for eqn in part.graph.eqns) for part in parts]
        shared = sum(works) > 2 * TARGET.alone and SHARED * max(works) <= sum(works)
        alone = shared or sum(works) <= TARGET.alone
        calls = [self._call(part, alone) for part in parts]
        builder = self.builder
        if not shared:
            for call in calls:
                builder.do(call)
            return
        work, most = (round(seconds * 1e9) for seconds in (sum(works), TARGET.alone))
        builder.do(
            f"#pragma omp parallel for schedule(dynamic) num_threads({{}}({work}, {most}, {{}}))", TEAM_FOR, THREADS
        )
        builder.do(f"for (int part = 0; part < {len(calls)}; ++part)")
        builder.open("switch (part)", plain=False)
        for number, call in enumerate(calls):
            builder.do(f"case {number}: {{}} break;", call)
        builder.close()

    def _call(self, part: FusionGroup, alone: bool) -> Code:
        """The call of one part, whose functions are taken in; equal ones are there once."""
        source = self.alike.source(part, self.emit, not alone)
        assert isinstance(source.code, Module)
        text = source.code.text(KEY)
        if (name := self.names_of.get(text)) is None:
            name = self.names_of[text] = source.name
            *others, entry = source.code.changed(lambda f: replace(f, comments=(), first_size=None)).named()
            assert isinstance(entry, Function)
            self.parts += [*others, replace(entry, static=True, separable=True)]
        first = len(self.sizes)
        self.sizes += source.launch["sizes"]
        self.scalar = worst(self.scalar, source.launch.get("scalar"))
        self.schedules |= source.schedules
        writes = [v for v in dict.fromkeys(part.graph.outvars) if isinstance(v, Var)]
        pointers = joined([self.places[v] for v in (*part.graph.invars, *writes)], ", ")
        return code(f"{{}}((void *[]){{{{{{}}}}}}, sizes + {first});", Symbol(name), pointers)
