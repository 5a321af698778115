"""Plan → Executable on the device: runs of groups that C enqueues are one step each, between torch's library calls.

In: a plan whose kernels have sources. Out: an executable over the native core's arrays. A program without library calls
is one step: all of its kernels, products, loops and branches are launched, or replayed as one graph, by one call of C.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource, Memory
from fuser.backends.link import Library, Parts, driven, lines
from fuser.backends.triton.device.assembler import Assembler, Scope, blocker, graphless
from fuser.backends.triton.device.operations import by_value, compile_kernels, load_kernels, tuples
from fuser.backends.triton.device.places import Entry, Place, Scratch, numbered
from fuser.backends.triton.transfers import Member
from fuser.ir.graph import Var
from fuser.partition.changed_operands import changes
from fuser.partition.group import FusionGroup, FusionLimits, Plan
from fuser.runtime.array import CARRIED, Array, device_array_over
from fuser.runtime.core import native
from fuser.runtime.executable import Allocation, Executable, KernelStep, LibraryStep, Step

GRAPH_FROM = 1  # operations from which one replay is cheaper than they are
GRAPH_TO = 1 << 14  # operations up to which a graph is worth its memory


class Linker:
    """Links one plan, and the bodies that stay with Python."""

    def __init__(self, memory: Memory, limits: FusionLimits, library: Library, member: Member | None = None) -> None:
        self.memory, self.limits, self.library, self.member = memory, limits, library, member

    def link(self, plan: Plan, sources: dict[FusionGroup, KernelSource]) -> Executable:
        """The plan's groups as steps: `joined` is what a call runs, `steps` what a profile does."""
        slots = itertools.count(len(plan.slots))
        consts = {plan.slot_of[v]: self.memory.constant(c) for v, c in zip(plan.graph.constvars, plan.graph.consts)}
        outputs = [plan.slot_of[plan.aliases.get(v, v)] for v in plan.outputs if isinstance(v, Var)]
        single: list[Step] = []
        joined: list[Step] = []
        for native_run, groups in _runs(plan.groups, self.limits):
            if not native_run:
                made = [self._library(plan, group, sources) for group in groups]
                single += made
                joined += made
                continue
            after = plan.groups[plan.groups.index(groups[-1]) + 1 :]
            needed = {*outputs, *(plan.slot_of[v] for group in after for v in group.graph.invars)}
            joined.append(self._program(plan, groups, sources, needed, consts, slots))
            if len(groups) == 1:
                single.append(joined[-1])
            else:
                everything = set(range(len(plan.slots)))
                single += [self._program(plan, [group], sources, everything, consts, slots) for group in groups]
        inputs = [plan.slot_of[v] for v in plan.graph.invars]
        types = [(v.aval.shape, v.aval.dtype) for v in plan.graph.invars]
        return Executable(inputs, consts, single, outputs, native.device_empty, 0, types, joined)

    def _program(
        self,
        plan: Plan,
        groups: Sequence[FusionGroup],
        sources: dict[FusionGroup, KernelSource],
        needed: set[int],
        consts: dict[int, Any],
        slots: Iterator[int],
    ) -> KernelStep:
        """One step for groups that C enqueues; slots in `needed` are read after them."""
        constants: dict[int, Place] = {}

        def constant(value: Any) -> Place:
            slot = next(slots)
            consts[slot] = self.memory.constant(value)
            constants[slot] = Place(Entry())
            return constants[slot]

        written = {plan.slot_of[v]: v for group in groups for v in group.graph.outvars if isinstance(v, Var)}
        read = dict.fromkeys(plan.slot_of[v] for group in groups for v in group.graph.invars)
        arguments = {slot: Place(Entry()) for slot in read if slot not in written}
        kept = {slot: Place(Entry()) for slot in written if slot in needed}
        assembler = Assembler(sources, self.limits, constant, self.member)
        scope = Scope(plan, {**arguments, **kept}, Scratch())
        assembler.groups(scope, groups)
        scratch = scope.scratch.packed()
        arguments |= constants
        bound = [*(p.entry for p in (*arguments.values(), *kept.values())), scope.scratch.entry]
        entries = numbered([*bound, *assembler.entries])  # type: ignore[list-item]
        allocations = [_allocation(plan, v, groups, self.limits) for slot, v in written.items() if slot in kept]
        prepared = _Prepared(scope.operations, [p.entry for p in arguments.values()])  # type: ignore[misc]
        program = native.DeviceProgram(
            len(arguments), len(kept), entries, scratch, prepared.by_value, prepared, GRAPH_FROM, GRAPH_TO
        )
        prepared.program = program
        if self.member is not None:  # or others would wait for this device's compiler
            load_kernels(scope.operations, ())
        return KernelStep(" + ".join(g.name for g in groups), program, tuple(arguments), tuple(allocations))

    def _library(self, plan: Plan, group: FusionGroup, sources: dict[FusionGroup, KernelSource]) -> LibraryStep:
        """One step of torch's, or control flow around such steps, which Python drives on tensors."""
        reads = tuple(plan.slot_of[v] for v in group.graph.invars)
        writes = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
        label = "".join(lines(group, writes)[:1])
        if group.bodies:
            function = self._driven(group, sources)
        else:
            function = _on_tensors(self.library(group, TENSORS), group)
        return LibraryStep(group.name, function, reads, tuple(plan.slot_of[v] for v in writes), label)

    def _driven(self, group: FusionGroup, sources: dict[FusionGroup, KernelSource]) -> Callable[..., Any]:
        bodies = [self._body(plan, self.link(plan, sources)) for plan in group.bodies]
        return _on_tensors(driven(group, iter(()), Parts(TENSORS, self.limits), bodies), group)

    def _body(self, plan: Plan, executable: Executable) -> Callable[..., list[Any]]:
        """A body as a function of tensors."""
        avals = [v.aval for v in plan.outputs]

        def run(*tensors: Any) -> list[Any]:
            inputs = [_placed(t, v.aval.dtype) for t, v in zip(tensors, plan.graph.invars, strict=True)]
            return [_tensor(r, a.dtype).reshape(a.shape) for r, a in zip(executable.call(*inputs), avals, strict=True)]

        return run


class _Prepared:
    """The operations of a program, made into its variants; `by_value` has a bit for each argument that may be a number."""

    def __init__(self, operations: list[Any], arguments: Sequence[Entry]) -> None:
        self.operations, self.arguments = operations, arguments
        self.by_value = sum(1 << n for n, entry in enumerate(arguments[:64]) if by_value(operations, entry))
        self.program: Any = None

    def __call__(self, numbers: int) -> None:
        keep: list[Any] = []
        chosen = {entry for n, entry in enumerate(self.arguments[:64]) if numbers >> n & 1}
        compile_kernels(self.operations, chosen)
        self.program.add_variant(numbers, tuples(self.operations, chosen, keep), tuple(keep))


class TensorMemory:
    """Where library calls work: torch's tensors on the device."""

    platform = "cuda"

    def constant(self, value: Any) -> Any:
        return self.place(value)

    def place(self, value: Any) -> Any:
        return _tensor(_placed(value, None), None)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype, label: str = "") -> Any:
        return _tensor(native.device_empty(shape, dtype, label), dtype)


TENSORS = TensorMemory()


def _placed(value: Any, dtype: Any) -> Any:
    """Memory of the native core's over what a library call gave."""
    if isinstance(value, native.DeviceArray):
        return value
    if hasattr(value, "data_ptr"):
        carried = dtype if dtype is not None and dtype in CARRIED else None
        return device_array_over(value.contiguous(), carried)
    return native.device_upload(np.asarray(value))


def _tensor(value: Any, dtype: Any) -> Any:
    return Array(value).torch()


def _on_tensors(function: Callable[..., Any], group: FusionGroup) -> Callable[..., list[Any]]:
    """A function of tensors as one of the native core's arrays."""
    dtypes = [v.aval.dtype for v in dict.fromkeys(group.graph.outvars)]

    def run(*arrays: Any) -> list[Any]:
        results = function(*(_tensor(a, None) for a in arrays))
        return [_placed(r, dtype) for r, dtype in zip(results, dtypes, strict=True)]

    return run


def _runs(groups: Sequence[FusionGroup], limits: FusionLimits) -> Iterator[tuple[bool, list[FusionGroup]]]:
    """The groups in order, in runs of those that C enqueues and of those that it does not; calls that no graph can hold are
    a run of their own, so that what stands around them is replayed."""

    def kind(group: FusionGroup) -> tuple[bool, bool]:
        enqueued = blocker(group, limits) is None
        return enqueued, enqueued and graphless(group)

    for (native_run, _), found in itertools.groupby(groups, kind):
        yield native_run, list(found)


def _allocation(plan: Plan, var: Var, groups: Sequence[FusionGroup], limits: FusionLimits) -> Allocation:
    makers = {plan.slot_of[v]: g for g in groups for v in g.graph.outvars if isinstance(v, Var)}
    own = first = plan.slot_of[var]
    label = next((f"{line}" for line in lines(makers[own], [var]) if line), "")
    before = changes(plan, limits)
    while before.get(first) in makers:  # it lies where steps have gone on up to it
        first = before[first]
    reuse = plan.reuse.get(first) if not makers[first].bodies or first in before else None
    return Allocation(own, var.aval.shape, var.aval.dtype, None if reuse in makers else reuse, None, label)
