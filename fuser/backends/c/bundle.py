"""A bundle of small kernels as one C function, which calls them in order; equal texts are there once.

What only later parts read lies in a block of the function's own. Where the parts together are worth threads and none is by
itself, those that do not depend on each other are shared out, one thread a part.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from fuser.backends.base import KernelSource
from fuser.backends.c.control import on_one_thread, padded
from fuser.backends.c.writer import PARALLEL_COST
from fuser.ir.cost import cost
from fuser.ir.graph import Var
from fuser.partition.bundle import levels
from fuser.partition.group import FusionGroup

Emit = Callable[[FusionGroup], KernelSource]
SHARED = 4  # parts of equal weight that are worth sharing out, at least
SHARED_COST = 4 * PARALLEL_COST  # and the additions that they must be worth together


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

    def source(self) -> KernelSource:
        self._temporaries()
        for numbers in levels(self.group.parts):
            self._level([self.group.parts[n] for n in numbers])
        if self.sizes[0]:
            self.lines.append("  if (block_at != local) free(block_at);")
        comments = "".join(f"// {line}\n" for line in dict.fromkeys(str(s) for s in self.group.sources if s.file))
        head = f"{comments}void {self.group.name}(void **buffers, const int64_t *sizes) {{"
        text = "\n\n".join([*self.texts, "\n".join([head, *self.lines, "}"])])
        return KernelSource(self.group.name, text, "c", self.names, {"sizes": tuple(self.sizes)})

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
            self.lines.append("  char local[2048] __attribute__((aligned(64)));")
            self.lines.append("  char *const block_at = block(local, sizes[0]);")

    def _level(self, parts: list[FusionGroup]) -> None:
        """Parts that do not depend on each other."""
        works = [_work(part) for part in parts]
        shared = sum(works) > SHARED_COST and SHARED * max(works) <= sum(works)
        alone = shared or sum(works) <= PARALLEL_COST
        calls = [self._call(part, alone) for part in parts]
        if not shared:
            self.lines += [f"  {call}" for call in calls]
            return
        self.lines += [
            "  #pragma omp parallel for schedule(dynamic)",
            f"  for (int part = 0; part < {len(calls)}; ++part)",
        ]
        self.lines += ["    switch (part) {"]
        self.lines += [f"    case {n}: {call} break;" for n, call in enumerate(calls)] + ["    }"]

    def _call(self, part: FusionGroup, alone: bool) -> str:
        """The call of one part, whose text is taken in."""
        source = self.emit(part)
        text = on_one_thread(source.text) if alone else source.text
        text = re.sub(r"^(//[^\n]*\n)+", "", text)
        bare = text.replace(f"{source.name}(", "?(")
        name = self.functions.get(bare)
        if name is None:
            name = self.functions[bare] = source.name
            self.texts.append(text.replace(f"void {name}(", f"static void {name}("))
        first = len(self.sizes)
        self.sizes += source.launch["sizes"]
        writes = [v for v in dict.fromkeys(part.graph.outvars) if isinstance(v, Var)]
        pointers = ", ".join(self.places[v] for v in (*part.graph.invars, *writes))
        return f"{name}((void *[]){{{pointers}}}, sizes + {first});"


def _work(part: FusionGroup) -> int:
    """About how many additions the part is worth."""
    return sum(cost(eqn) * max([v.aval.size for v in (*eqn.invars, *eqn.outvars)]) for eqn in part.graph.eqns)
