"""Work of the compiler against the size of a program: every stage is linear or n log n in equations, pieces, axes and nesting.

Work is counted in Python calls, which a busy machine does not change; a stage that takes more than its share is stopped,
so that exponential growth fails instead of hanging. The C compiler's work is held by the text, whose longest loop body is
bounded, as compilers are not linear in that. `bench.compiletime` measures seconds against JAX.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import fuser
from bench.families import Family, families
from fuser import passes
from fuser.backends import get
from fuser.backends.base import emit_all
from fuser.config import config
from fuser.kernel.loop_buffers import with_loop_buffers
from fuser.legalise import legalise
from fuser.partition.group import inner_eqns
from fuser.partition.loop_forms import LoopForms
from fuser.partition.partition import partition

FAMILIES = families("fuser")
NESTED = [name for name in FAMILIES if name.startswith("nested") or name == "scanned convolutions"]
STAGES = ("trace", "passes", "plan", "emit")
GROWTH = 1.8  # times the work of an equation that four times the equations may bring: n log n, and rounding
START = 4000  # calls of a stage that do not depend on the size
BUDGET = 500_000  # calls of a stage that are quickly done
LONGEST_BODY = 1000  # lines of a loop without a loop inside


class TooMuchWork(Exception):
    """A stage took more calls than it may."""


def calls(budget: float, function: Callable[[], Any]) -> tuple[int, Any]:
    """The Python calls that a function takes, and what it gives. Raises TooMuchWork beyond the budget."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        if event == "call":
            count += 1
            if count > budget:
                sys.setprofile(None)
                raise TooMuchWork

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = function()
    finally:
        sys.setprofile(before)
    return count, result


@dataclass
class Growth:
    """What a program of each size took so far, by stage: calls, and characters of text."""

    equations: list[int]
    work: dict[str, list[int]]

    def budget(self, stage: str) -> float:
        """Calls that the next size may take before it is stopped."""
        taken = self.work[stage]
        return 8 * GROWTH * taken[-1] + BUDGET if taken else float("inf")

    def measure(self, family: Family, size: int, backend: Any) -> list[str]:
        """Adds a size; gives the kernels' texts."""
        program, arguments = family.make(size)
        trace = lambda: fuser.jit(program).trace(*arguments).graph
        graph = self._stage("trace", trace)
        optimised = self._stage("passes", lambda: passes.run(graph))
        loops = LoopForms(backend)
        legal = lambda: legalise(
            optimised, backend, loops
        )  # which looks at loops that become kernels; partition at others
        plan = self._stage("plan", lambda: with_loop_buffers(partition(legal(), backend, loops), backend.limits))
        emit = lambda: [s.text for s in emit_all(plan, backend)[1]]
        texts: list[str] = self._stage("emit", emit)
        self.work.setdefault("text", []).append(sum(map(len, texts)))
        nested = family.name in NESTED
        self.equations.append(size if nested else sum(1 for _ in inner_eqns(graph.eqns)))
        return texts

    def _stage(self, stage: str, function: Callable[[], Any]) -> Any:
        count, result = calls(self.budget(stage), function)
        self.work[stage].append(count)
        return result

    def check(self) -> None:
        """The largest program takes about as much an equation as the middle one."""
        _, middle, large = self.equations
        for stage, (_, before, after) in self.work.items():
            allowed = GROWTH * (before + START) * large / middle
            assert after <= allowed, f"{stage}: {before} at {middle} equations, {after} at {large}"


def bodies(text: str) -> Iterator[int]:
    """Lines of each innermost loop of a C text."""
    start = None
    for number, line in enumerate(text.split("\n")):
        if re.match(r"\s*for \(.*\{$", line):
            start = number
        elif start is not None and line.strip() == "}":
            yield number - start
            start = None


def grown(family: Family, backend: Any) -> list[str]:
    growth = Growth([], {stage: [] for stage in STAGES})
    part = 1 if family.name in NESTED else 2  # half of the sizes that `bench.compiletime` measures tell as much
    for size in family.sizes:
        texts = growth.measure(family, size // part, backend)
    growth.check()
    return texts


@pytest.mark.parametrize("name", FAMILIES)
def test_work_grows_with_the_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check", False)  # the checks between passes look at all bodies at every level
    texts = grown(FAMILIES[name], get("c"))
    assert max((lines for text in texts for lines in bodies(text)), default=0) <= LONGEST_BODY
