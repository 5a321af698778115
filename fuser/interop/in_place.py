"""Programs that write where the caller's arrays lie: an accelerated function in which whole large arrays are written, as it runs often.

At first such a function's results are computed apart, and stored once it is known that NumPy need not answer. After a few calls there
are two more programs, one that only looks for events and one that has the arrays' memory for its results. The faster way stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from fuser.compile import load, lower
from fuser.config import config
from fuser.interop.outputs import DECLINED, Declined, happened, runner
from fuser.interop.writes import Result, Write
from fuser.ir.graph import Var
from fuser.partition.group import Plan

LEAST_BYTES = 1 << 18  # that are written in one call
FIRST_CALLS = 3
COMPARED_CALLS = 3  # of each way

Run = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]


def with_memory_of_arguments(run: Run, traced: Any) -> Run:
    """`run`, or what becomes of it once it has been called a few times."""
    if not takes_memory_of_arguments(traced):
        return run
    return _Tiered(run, lambda: _in_place(traced, _positions(traced)))


def takes_memory_of_arguments(traced: Any) -> bool:
    """Whether there are arrays of the caller's in whose memory results may come to lie."""
    return bool(_positions(traced)) and traced._backend.memory.platform == "cpu"


def _positions(traced: Any) -> dict[int, int]:
    """The inputs that are written as a whole, with the numbers of the results that they become."""
    first = len(traced.graph.outvars) - traced.watched - traced.write_results
    found = {}
    for write in traced.writes:
        result = _whole(write)
        if result is not None and traced.graph.invars[write.input].aval.shape == result.shape:
            found[write.input] = first + result.number
    avals = [traced.graph.invars[position].aval for position in found]
    size = sum(aval.size * aval.dtype.itemsize for aval in avals)
    return found if size >= LEAST_BYTES else {}


def _whole(write: Write) -> Result | None:
    step = write.steps[0]
    whole = len(write.steps) == 1 and not step.reads and len(step.index) == 1 and step.index[0] is Ellipsis
    return step.value if whole and isinstance(step.value, Result) else None


def _in_place(traced: Any, positions: dict[int, int]) -> Run | None:
    """What runs the two programs; None where no result could lie in its argument's memory."""
    results = len(traced.graph.outvars) - traced.watched
    with config.using(enable_x64=True):
        lowering = lower(
            replace(traced.graph, outvars=traced.graph.outvars[:results]), traced._backend, tuple(positions)
        )
        taken = _taken(lowering.plan, positions)
        if not taken:
            return None
        writing = load(lowering, traced._backend)
        looking = None
        if traced.watched:
            graph = replace(traced.graph, outvars=traced.graph.outvars[results:])
            looking = load(lower(graph, traced._backend), traced._backend)

    def call(*arrays: Any) -> Any:
        if looking is not None and happened(looking.executable.call(*arrays), traced.watched):
            raise Declined
        return writing.executable.call(*arrays, writable=taken)

    parts = ("outputs", "out_tree", "shared", "writes", "outside_inputs", "_backend")
    unwatched = SimpleNamespace(watched=0, **{name: getattr(traced, name) for name in parts})
    run = runner(writing, unwatched, call)

    def declining(arrays: Sequence[Any], leaves: Sequence[Any], captured: Sequence[Any]) -> Any:
        try:
            return run(arrays, leaves, captured)
        except Declined:
            return DECLINED

    return declining


def _taken(plan: Plan, positions: dict[int, int]) -> tuple[int, ...]:
    """The inputs in whose memory no other result lies than the one that is written there."""
    slots = {plan.slot_of[plan.graph.invars[position]]: position for position in positions}
    inside: dict[int, list[int]] = {position: [] for position in positions}
    for number, operand in enumerate(plan.outputs):
        if not isinstance(operand, Var):
            continue
        slot = plan.slot_of[plan.aliases.get(operand, operand)]
        while slot in plan.reuse:
            slot = plan.reuse[slot]
        if slot in slots:
            inside[slots[slot]].append(number)
    return tuple(position for position, numbers in inside.items() if numbers == [positions[position]])


class _Tiered:
    """A run that is compared with another after some calls, of which the faster stays."""

    def __init__(self, run: Run, other: Callable[[], Run | None]) -> None:
        self.run, self.other = run, other
        self.calls = 0
        self.ways: list[Run] = []
        self.seconds = [np.inf, np.inf]

    def __call__(self, arrays: Sequence[Any], leaves: Sequence[Any], captured: Sequence[Any]) -> Any:
        self.calls += 1
        if self.calls <= FIRST_CALLS or not (way := self._way()):
            return self.run(arrays, leaves, captured)
        start = time.perf_counter()
        result = self.ways[way - 1](arrays, leaves, captured)
        self.seconds[way - 1] = min(self.seconds[way - 1], time.perf_counter() - start)
        if self.calls == FIRST_CALLS + 2 * COMPARED_CALLS:
            self.run = self.ways[int(self.seconds[1] < self.seconds[0])]
        return result

    def _way(self) -> int:
        """1 or 2 where that way is to be timed in this call, else 0."""
        if self.calls == FIRST_CALLS + 1:
            other = self.other()
            self.ways = [self.run] if other is None else [self.run, other]
        compares = len(self.ways) == 2 and self.calls <= FIRST_CALLS + 2 * COMPARED_CALLS
        return 1 + self.calls % 2 if compares else 0
