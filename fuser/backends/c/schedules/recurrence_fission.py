"""Fission of a sequential loop: the recurrence apart from what depends on no earlier iteration.

Iterations run in blocks. Of each block a first loop computes the recurrence that other values need, one step after the other; a
second has vectors along the steps, for the functions of maths that no carry that it reads waits for; a third the carries that take up
their results. What a later loop needs stands in arrays of the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fuser.backends.c import spell
from fuser.backends.c.function import Part, Variable
from fuser.backends.c.schedules import masking
from fuser.backends.c.schedules.loop_kernel import LoopKernel, X
from fuser.backends.c.target import TARGET
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, is_complex
from fuser.kernel.kernel import Carry, Kernel, Loop, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, needed, operands
from fuser.kernel.schedule import NOTHING_ASKED, Schedule

STEPS = 256  # of a block, whose arrays lie in the nearest cache
FEWEST = 4  # blocks, below which the loops' beginnings count
CROSSING = 3  # additions that writing a value into an array and reading it again takes
MOST_CROSSING = 8  # values of a block in arrays


class Stage(NamedTuple):
    """One loop of a block."""

    nodes: Sequence[Scalar]
    carries: Sequence[Carry]
    stores: Sequence[Store]
    vectors: bool


class Plan(NamedTuple):
    """The loops of a block, and the values and carries that a later one needs, as they were before or in the step."""

    stages: Sequence[Stage]
    crossing: Sequence[Scalar]


def plan(kernel: Kernel, loops: Loops) -> Plan | None:
    """The loops of a block; None where one loop takes no longer."""
    loop = kernel.loop
    if loop is None or loop.time is None or loop.predicates or loops.vector is not None:
        return None
    if loop.time.extent < FEWEST * STEPS or any(is_complex(n.dtype) for n in loop.body):
        return None
    level = _levels(loop)
    apart = [n for n in loop.body if level[n] == 1]
    stores = {s: max((level.get(n, 0) for n in (s.value, *computed(s.offset))), default=0) for s in loop.stores}
    used = {(operand, level[node]) for node in loop.body for operand in operands(node)}
    used |= {(c.following, level[c.node]) for c in loop.carries}
    used |= {(n, at) for s, at in stores.items() for n in (s.value, *computed(s.offset))}
    later = {n for n, at in used if level.get(n, at) < at and n.op != "const"}
    crossing = [n for n in level if n in later]
    saved = sum(TARGET.costs.get(n.op, 1) for n in apart if n.op not in ("load", "const"))
    if not masking.dear(apart) or saved < CROSSING * (1 + len(crossing)) or len(crossing) > MOST_CROSSING:
        return None
    found = []
    for number in range(3):
        nodes = [n for n in loop.body if level[n] == number and n.op != "carry"]
        carries = [c for c in loop.carries if level[c.node] == number]
        own = [s for s in loop.stores if stores[s] == number]
        if nodes or carries or own:
            found.append(Stage(nodes, carries, own, number == 1))
    return Plan(found, crossing)


def _levels(loop: Loop) -> dict[Scalar, int]:
    """By carry and node the loop that computes it: 0, what the functions of maths wait for; 1, with vectors; 2, the rest."""
    waits = _waits(loop)
    first: set[Scalar] = {c for node in loop.body if masking.dear([node]) for c in waits[node]}
    following = {
        c.node: waits[c.following] if c.following in waits else frozenset((c.following,)) for c in loop.carries
    }
    while wider := {n for c in first for n in following[c] if n in following} - first:
        first |= wider
    recurrence = set(needed([c.following for c in loop.carries if c.node in first], loop.body))
    found = {c.node: 0 if c.node in first else 2 for c in loop.carries}
    for node in loop.body:
        if node not in found:
            found[node] = 0 if node in recurrence else 1 if waits[node] <= first else 2
    return found


def _waits(loop: Loop) -> dict[Scalar, frozenset[Scalar]]:
    """The carries of the iteration before that each node needs, itself or by others."""
    carries = {c.node for c in loop.carries}
    found: dict[Scalar, frozenset[Scalar]] = {}
    for node in loop.body:
        parts = [found.get(n, frozenset((n,)) if n in carries else frozenset()) for n in operands(node)]
        found[node] = frozenset((node,)) if node in carries else frozenset().union(*parts)
    return found


class RecurrenceFission(LoopKernel):
    """A loop without lanes in loops over blocks of its steps."""

    def __init__(
        self, found: Plan, kernel: Kernel, loops: Loops, threads: bool = True, asked: Schedule = NOTHING_ASKED
    ) -> None:
        super().__init__(kernel, loops, threads, asked)
        self.stages, self.crossing = found
        self.block_arrays: dict[Scalar, Variable] = {}
        self.made(blocking=STEPS, fission=len(self.stages))

    def _iterations(self) -> None:
        for node in self.crossing:
            if self._cheap(node):
                self.again.add(node)
            else:
                self.block_arrays[node] = self.buffer(spell.held(node.dtype), f"{self.name(node)}_all", STEPS)
        super()._iterations()

    def _count_steps(self, t: Variable, until: Part) -> None:
        self.go_on(
            t,
            self.code("{} < {}", t, until),
            self.code(f"{{0}} = {{0}} + {STEPS} < {{1}} ? {{0}} + {STEPS} : {{1}}", t, until),
        )

    def _step(self) -> None:
        t, until = self.named("t"), self.named("until")
        stop = self.let("int64_t", "stop", f"{{0}} + {STEPS} < {{1}} ? {{0}} + {STEPS} : {{1}}", t, until)
        for stage in self.stages:
            with self.scope():
                self._stage(stage, t, stop)

    def _stage(self, stage: Stage, t: Part, stop: Part) -> None:
        assert self.time is not None
        own = {*stage.nodes, *(c.node for c in stage.carries)}
        for node in self.block_arrays:
            if node not in own:
                self.env.pop(node, None)
        if stage.vectors:
            self.pragma("omp simd")
        step = self.count("step", t, stop)
        with self.standing({self.time: step}):
            self.let("int64_t", X.name, "{} - {}", step, t)
            for carry in stage.carries:
                self._keep_step(carry.node)
            for node in stage.nodes:
                self.define_all([node])
                self._keep_step(node)
            self._guarded_stores(stage.stores)
            self._hand_on(stage.carries)
        self.close()

    def _keep_step(self, node: Scalar) -> None:
        """Put a value into the block's array where a later loop needs it."""
        if node in self.block_arrays:
            self.set(self.at(self.block_arrays[node], X), spell.put(node.dtype, self.operand(node)))

    def operand(self, node: Scalar) -> Part:
        if node in self.block_arrays and node not in self.env:
            array = self.block_arrays[node]
            form = "{} != 0" if node.dtype == BOOL else "{}"
            self.env[node] = self.let(spell.local(node.dtype), f"{array.name}_x", form, self.at(array, X))
        return super().operand(node)
