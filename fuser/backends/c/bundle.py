"""A bundle of small kernels as one C function, which calls them in order; equal texts are there once.

What only later parts read lies in a block of the function's own. Where the parts together are worth threads and none is by
itself, those that do not depend on each other are shared out, one thread a part.
"""

from __future__ import annotations

import re

from fuser.backends.base import KernelSource
from fuser.backends.c.control import ALIGNMENT, LOCAL, Emit, padded
from fuser.backends.c.outline import CALLER
from fuser.backends.c.told import Scalarised, told, worst
from fuser.backends.c.writer import ADDITION, ALONE
from fuser.ir.cost import cost
from fuser.ir.graph import Var
from fuser.partition.bundle import levels
from fuser.partition.group import FusionGroup

MANY = 8  # parts from which the function that calls them is not worth optimising
SHARED = 4  # parts of equal weight that are worth sharing out, at least
SHARED_WORK = 2 * ALONE  # and the nanoseconds of one thread that they must be worth together


def emit_bundle(group: FusionGroup, emit: Emit) -> KernelSource:
    """The function `name(buffers, sizes)` of a BUNDLE."""
    return _Bundle(group, emit).source()


class _Bundle:
    """One function in the making. `places` are the texts of the addresses of values."""

    def __init__(self, group: FusionGroup, emit: Emit) -> None:
        self.group = group
        self.sizes: list[int] = []
        self.functions: dict[str, str] = {}  # text without its name: name
        self.texts: list[str] = []
        self.lines: list[str] = []
        arrays = [*group.graph.invars, *group.graph.outvars]
        self.places = {v: f"buffers[{n}]" for n, v in enumerate(arrays)}
        self.names = tuple(f"in{n}" for n in range(len(group.graph.invars)))
        self.names += tuple(f"out{n}" for n in range(len(group.graph.outvars)))
        self.emit = emit
        self.scalar: Scalarised | None = None  # of the largest part with loops that are not vectorised

    def source(self) -> KernelSource:
        self._temporaries()
        for numbers in levels(self.group.parts):
            self._level([self.group.parts[n] for n in numbers])
        comments = "".join(f"// {line}\n" for line in dict.fromkeys(str(s) for s in self.group.sources if s.file))
        caller = CALLER if len(self.group.parts) >= MANY else ""
        head = f"{comments}{caller}void {self.group.name}(void **buffers, const int64_t *sizes) {{"
        text = "\n\n".join([*self.texts, "\n".join([head, *self.lines, "}"])])
        launch = {"sizes": tuple(self.sizes), "workspace": self.sizes[0] if self.sizes[0] > LOCAL else 0}
        return KernelSource(self.group.name, text, "c", self.names, launch | told(self.scalar))

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
            self.lines.append(f"  char local[{LOCAL}] __attribute__((aligned({ALIGNMENT})));")
            self.lines.append(f"  char *const block_at = sizes[0] <= {LOCAL} ? local : buffers[{len(self.names)}];")

    def _level(self, parts: list[FusionGroup]) -> None:
        """Parts that do not depend on each other."""
        works = [_work(part) for part in parts]
        shared = sum(works) > SHARED_WORK and SHARED * max(works) <= sum(works)
        alone = shared or sum(works) <= ALONE
        calls = [self._call(part, alone) for part in parts]
        if not shared:
            self.lines += [f"  {call}" for call in calls]
            return
        self.lines += [
            "  #pragma omp parallel for schedule(dynamic) num_threads(fuser_threads)",
            f"  for (int part = 0; part < {len(calls)}; ++part)",
        ]
        self.lines += ["    switch (part) {"]
        self.lines += [f"    case {n}: {call} break;" for n, call in enumerate(calls)] + ["    }"]

    def _call(self, part: FusionGroup, alone: bool) -> str:
        """The call of one part, whose text is taken in."""
        source = self.emit(part, not alone)
        text = re.sub(r"^(//[^\n]*\n)+", "", source.text)
        bare = re.sub(rf"\b{source.name}(?=(_share)?\()", "?", text)
        name = self.functions.get(bare)
        if name is None:
            name = self.functions[bare] = source.name
            self.texts.append(text.replace(f"void {name}(", f"static void {name}("))
        first = len(self.sizes)
        self.sizes += source.launch["sizes"]
        self.scalar = worst(self.scalar, source.launch.get("scalar"))
        writes = [v for v in dict.fromkeys(part.graph.outvars) if isinstance(v, Var)]
        pointers = ", ".join(self.places[v] for v in (*part.graph.invars, *writes))
        return f"{name}((void *[]){{{pointers}}}, sizes + {first});"


def _work(part: FusionGroup) -> float:
    """About how many nanoseconds of one thread the part is worth."""
    return sum(
        ADDITION * cost(eqn) * max([v.aval.size * max(v.aval.dtype.itemsize, 4) for v in (*eqn.invars, *eqn.outvars)])
        for eqn in part.graph.eqns
    )
