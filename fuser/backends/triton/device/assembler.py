"""Groups of a plan → operations over places. Bodies of loops and branches become operations of the same program.

A counted loop writes each carry to two places in turn, so that none is copied; what its iterations read and write by
slices is reached by addresses that move on. A loop with a predicate keeps its carries in the results' memory and copies
what an iteration computed there at its end, because nobody knows in which of two places the last one would be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.triton.device.libraries import opened
from fuser.backends.triton.device.library_calls import LibraryCall, library_call, routine, sources
from fuser.backends.triton.device.operations import (
    Beside,
    Call,
    Copy,
    Exchange,
    Join,
    Kernel,
    Multiply,
    Operation,
    Point,
    Repeat,
    Sent,
    Switch,
    While,
)
from fuser.backends.triton.device.overlap import Alone, Begin, End, Step, steps
from fuser.backends.triton.device.places import ALIGNMENT, Entry, Place, Scratch
from fuser.backends.triton.device.products import product
from fuser.backends.triton.transfers import LANGUAGE, Member
from fuser.errors import DeviceError
from fuser.ir.graph import Literal, Operand, Var
from fuser.ops.collective import is_meeting
from fuser.ops.control import cond_p, scan_p, while_p
from fuser.partition.axes import Views
from fuser.partition.changed_operands import changes, is_copy, kept
from fuser.partition.group import FusionGroup, FusionLimits, Plan, generated
from fuser.runtime.core import native

MOST_NODES = 1 << 14  # of one graph, where only a graph can run the program

Sources = Mapping[FusionGroup, KernelSource]


def blocker(group: FusionGroup, limits: FusionLimits, decided: bool = False, planned: bool = False) -> str | None:
    """Why a group is no part of a device program, where `decided` says that it stands in a loop or branch that the device decides;
    None where it is. `planned`: there need be no device yet; it will have NVIDIA's libraries, whose calls graphs hold wherever
    that is a matter of trial."""
    if (generated(group, limits) and not group.bodies) or _is_empty(group):
        return None
    eqn = group.graph.eqns[-1]
    if not group.bodies:
        return _blocker_of_library(group, decided, planned)
    if eqn.primitive in (while_p, cond_p) and native.cuda_name() is not None and not native.cuda_conditional():
        return "loops and branches that the device decides came with CUDA 12.4"
    if eqn.primitive is cond_p and eqn.invars[0].aval.dtype != np.int32:
        return "a branch is chosen by an int32"
    if eqn.primitive not in (while_p, cond_p, scan_p):
        return f"{eqn.primitive.name} is driven from Python"
    if eqn.primitive in (while_p, cond_p) and _meets(group):
        return "collectives do not run where the device decides; the host asks it"
    decided = decided or eqn.primitive is not scan_p
    inside = (g for body in group.bodies for g in body.groups)
    inner = next((reason for g in inside if (reason := blocker(g, limits, decided, planned))), None)
    return inner or (
        "its graph would be too large" if _decides(group) and _nodes(group, planned) > MOST_NODES else None
    )


def _blocker_of_library(group: FusionGroup, decided: bool, planned: bool) -> str | None:
    name = group.graph.eqns[-1].primitive.name
    if (planned or opened("libcublasLt")) and product(group) is not None:
        return None
    asked, call = routine(group), None if planned else library_call(group)
    if asked is None or not (planned or call):
        return f"{name} is torch's to compute"
    waits = call.graphless if call else asked.waits
    return f"{name} waits for the device, so that no graph holds it" if decided and waits else None


def graphless(group: FusionGroup) -> bool:
    """Whether a group that is part of a device program is so by calls that no graph can hold, which C enqueues one by one."""
    if group.bodies:
        return any(graphless(g) for body in group.bodies for g in body.groups)
    return bool(group.reason) and (call := library_call(group)) is not None and call.graphless


def _is_empty(group: FusionGroup) -> bool:
    """Whether no result has an element, so that there is nothing to do."""
    return not any(v.aval.size for v in group.graph.outvars)


def _meets(group: FusionGroup) -> bool:
    """Whether devices meet in the group, or in the bodies of its loops and branches."""
    inside = (g for body in group.bodies for g in body.groups)
    return any(map(is_meeting, group.graph.eqns)) or any(map(_meets, inside))


def _nodes(group: FusionGroup, planned: bool) -> int:
    trips = group.graph.eqns[-1].params["length"] if group.graph.eqns[-1].primitive is scan_p else 1
    if group.bodies:
        return int(trips) * sum(_nodes(g, planned) for body in group.bodies for g in body.groups)
    call = (routine(group) if planned else library_call(group)) if group.reason else None
    return 1 if call is None else call.count


def _decides(group: FusionGroup) -> bool:
    """Whether the device takes decisions somewhere in the group."""
    inside = (g for body in group.bodies for g in body.groups)
    return bool(group.bodies) and (group.graph.eqns[-1].primitive is not scan_p or any(map(_decides, inside)))


@dataclass
class Scope:
    """One plan being assembled: where its slots lie, and the temporaries that no one outside sees."""

    plan: Plan
    places: dict[int, Place]
    scratch: Scratch
    operations: list[Operation] = field(default_factory=list)

    def place(self, operand: Operand) -> Place:
        """Where a value of the plan lies."""
        return self.places[self.slot(operand)]

    def slot(self, operand: Operand) -> int:
        """The slot of a value, of the one whose memory it shares."""
        assert isinstance(operand, Var)
        return self.plan.slot_of[self.plan.aliases.get(operand, operand)]


class Assembler:
    """Assembles groups; `constant` gives the place of an array that never changes. `member` is the device of a mesh."""

    def __init__(
        self, sources: Sources, limits: FusionLimits, constant: Callable[[Any], Place], member: Member | None = None
    ) -> None:
        self.sources, self.limits, self.constant, self.member = sources, limits, constant, member
        self.entries: list[Entry] = []

    def entry(self) -> Entry:
        """A new entry of the table."""
        self.entries.append(Entry())
        return self.entries[-1]

    def groups(self, scope: Scope, groups: Sequence[FusionGroup]) -> None:
        """Append the operations of groups, whose results that have no place yet are temporaries of the scope."""
        order = steps(scope.plan, groups, self.limits.target)
        lives = _lives(order)
        first_of = self._shared(scope, groups)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for number, group in enumerate(groups):
            for v in _written(group):
                slot = first_of(scope.plan.slot_of[v])
                first[slot] = min(first.get(slot, lives[number][0]), lives[number][0])
            for v in _values(group):
                slot = first_of(scope.plan.slot_of[v])
                last[slot] = max(last.get(slot, 0), lives[number][1])
        made: dict[int, list[Operation]] = {}
        for step in order:
            if isinstance(step, End):
                scope.operations.append(Join(step.event))
                continue
            for number in (step.group,) if isinstance(step, Alone) else step.groups:
                for v in _written(groups[number]):
                    slot = scope.plan.slot_of[v]
                    if slot not in scope.places:
                        source = first_of(slot)
                        if source not in scope.places:
                            scope.places[source] = scope.scratch.take(v.aval.nbytes, first[source], last[source])
                        scope.places[slot] = scope.places[source]
                made[number] = self.group(scope, groups[number], lives[number])
            if isinstance(step, Alone):
                scope.operations += made[step.group]
            else:
                inside = (operation for number in step.groups for operation in made[number])
                scope.operations.append(Beside(step.event, tuple(inside)))

    def _shared(self, scope: Scope, groups: Sequence[FusionGroup]) -> Callable[[int], int]:
        """Of a slot the first of those in whose memory steps have gone on up to it. What is written to before a result that has a place
        lies there."""
        written = {scope.plan.slot_of[v] for group in groups for v in _written(group)}
        before = changes(scope.plan, self.limits)

        def first_of(slot: int) -> int:
            while slot in written and before.get(slot) in written:
                slot = before[slot]
            return slot

        for slot in written & scope.places.keys():
            scope.places.setdefault(first_of(slot), scope.places[slot])
        return first_of

    def group(self, scope: Scope, group: FusionGroup, life: tuple[int, int]) -> list[Operation]:
        """The operations of one group, which run from one step of its scope to another."""
        if _is_empty(group) and not generated(group, self.limits):
            return []
        reads = [scope.places[scope.plan.slot_of[v]] for v in group.graph.invars]
        writes = [scope.places[scope.plan.slot_of[v]] for v in _written(group)]
        temporary: Callable[[int], Place] = lambda nbytes: scope.scratch.take(nbytes, *life)
        if is_copy(group) and reads[0] is writes[0]:
            return []
        if generated(group, self.limits):
            source = self.sources[group]
            scratch = [temporary(count * np.dtype(dtype).itemsize) for count, dtype in source.launch["scratch"]]
            if source.language == LANGUAGE:
                return [self._exchange(source, (*reads, *writes, *scratch))]
            places = (*reads, *writes, *scratch)
            begun = [(places[a], places[b]) for a, b in source.launch.get("begins_as", ())]
            nbytes = [_written(group)[b - len(reads)].aval.nbytes for _, b in source.launch.get("begins_as", ())]
            copies = [Copy(to, operand, size) for (operand, to), size in zip(begun, nbytes) if operand is not to]
            return [*copies, Kernel(source, places)]
        if not group.bodies:
            call = library_call(group)
            if call is not None:
                return self._call(group, call, reads, writes, temporary)
            return [self._multiply(group, reads, writes[0], temporary)]
        operands = self._operands(group, reads)
        made: list[Operation] = []
        scratch_of_bodies = Scratch(self.entry())
        build = {while_p: self._while, cond_p: self._cond, scan_p: self._scan}[group.graph.eqns[-1].primitive]
        results = [writes[_written(group).index(v)] for v in group.graph.outvars if isinstance(v, Var)]
        made += build(group, operands, results, scratch_of_bodies)
        return [Point(scratch_of_bodies.entry, temporary(scratch_of_bodies.packed())), *made]

    def _exchange(self, source: KernelSource, places: Sequence[Place]) -> Operation:
        """What the device sends, or its place in the mesh, which is a constant of its program."""
        asked = source.launch
        if self.member is None:
            raise DeviceError(
                f"{source.name} runs on the devices of a mesh only: call the function through shard_map or pmap"
            )
        if asked["index"]:
            own = self.member.index(asked["names"])
            return Copy(places[asked["results"][0]], self.constant(np.asarray(own, np.int32)), 4)
        own = self.member.place(asked["names"], asked["groups"])
        communicator = functools.partial(self.member.communicator, asked["names"], asked["groups"])
        each = zip(asked["transfers"], asked["operands"], asked["results"])
        return Exchange(communicator, tuple(Sent.of(t, places[a], places[b], own) for t, a, b in each))

    def _multiply(
        self, group: FusionGroup, reads: list[Place], out: Place, temporary: Callable[[int], Place]
    ) -> Operation:
        found = product(group)
        assert found is not None
        position = {v: n for n, v in enumerate(group.graph.invars)}
        a, b = (reads[position[side.source]].after(side.first) for side in (found.a, found.b))
        planned = found.planned(ALIGNMENT if a.aligned and b.aligned and out.aligned else found.dtype.itemsize)
        return Multiply(planned, a, b, out, temporary(native.blas_workspace(planned)))

    def _call(
        self,
        group: FusionGroup,
        found: LibraryCall,
        reads: list[Place],
        writes: list[Place],
        temporary: Callable[[int], Place],
    ) -> list[Operation]:
        """A library's call, after copies of what it works on in place."""
        eqn, from_inputs = group.graph.eqns[-1], sources(group)
        assert from_inputs is not None
        operands = [reads[group.graph.invars.index(source)] for source in from_inputs]
        results = [writes[_written(group).index(v)] for v in eqn.outvars]
        made: list[Operation] = []
        places = []
        for array in found.arrays:
            if array.operand is not None:
                places.append(operands[array.operand])
                continue
            places.append(
                results[array.result] if array.result is not None else temporary(max(array.nbytes, ALIGNMENT))
            )
            if array.copied is not None:
                made.append(Copy(places[-1], operands[array.copied], eqn.invars[array.copied].aval.nbytes))
        places.append(temporary(max(native.library_workspace(found.call), ALIGNMENT)))
        return [*made, Call(found.call, tuple(places))]

    def _operands(self, group: FusionGroup, reads: Sequence[Place]) -> list[Place]:
        """Where the operands of control flow lie: inputs of the group, in whatever shape, and literals."""
        views, position = Views(group.graph.eqns), {v: n for n, v in enumerate(group.graph.invars)}
        found = []
        for operand in group.graph.eqns[-1].invars:
            source = None if isinstance(operand, Literal) else views(operand).source
            if source is None:
                assert isinstance(operand, Literal)
                found.append(self.constant(np.asarray(operand.val, operand.aval.dtype)))
            else:
                found.append(reads[position[source]])
        return found

    # ---- bodies

    def _body(
        self,
        plan: Plan,
        inputs: Sequence[Place],
        results: Sequence[Place | None],
        scratch: Scratch,
        shared: Mapping[int, Place] = {},
    ) -> list[Operation]:
        """A body on places: its operations, and copies where a result is not written where it belongs. A result of None stays
        where it is computed; slots in `shared` lie there."""
        scope = Scope(plan, dict(shared), scratch)
        for var, place in zip(plan.graph.invars, inputs, strict=True):
            scope.places[plan.slot_of[var]] = place
        for var, value in zip(plan.graph.constvars, plan.graph.consts):
            scope.places[plan.slot_of[var]] = self.constant(value)
        written = {plan.slot_of[v] for group in plan.groups for v in _written(group)}
        for out, wanted in zip(plan.outputs, results, strict=True):
            slot = scope.slot(out)
            if wanted is not None and slot in written and slot not in scope.places:
                scope.places[slot] = wanted
        own = Scratch(self.entry())
        scope.scratch = own
        self.groups(scope, plan.groups)
        copies: list[Copy] = []
        for out, wanted in zip(plan.outputs, results, strict=True):
            if wanted is not None and (source := scope.place(out)) is not wanted:
                copies.append(Copy(wanted, source, out.aval.nbytes))
        block = scratch.take(own.packed(), 0, 0)
        return [Point(own.entry, block), *scope.operations, *_in_parallel(copies, scratch)]

    def _where(
        self,
        plan: Plan,
        inputs: Sequence[Place],
        scratch: Scratch,
        known: Mapping[int, Place] = {},
        shared: Mapping[int, Place] = {},
    ) -> tuple[list[Operation], list[Place]]:
        """A body whose results lie in new temporaries, but for those whose places are `known`, and these."""
        results = [known[n] if n in known else scratch.take(v.aval.nbytes, 0, 0) for n, v in enumerate(plan.outputs)]
        return self._body(plan, inputs, results, scratch, shared), results

    def _scan(
        self, group: FusionGroup, operands: list[Place], results: list[Place], scratch: Scratch
    ) -> list[Operation]:
        eqn, (plan,) = group.graph.eqns[-1], group.bodies
        consts, carries, trips = (eqn.params[name] for name in ("num_consts", "num_carry", "length"))
        made: list[Operation] = []
        inputs, rotations, strides = list(operands[:consts]), [], []
        outputs: list[Place | None] = []
        shared: dict[int, Place] = {}
        stays = {n: slots for _, n, (slots,) in kept(group, self.limits)}
        for n, (start, result, v) in enumerate(zip(operands[consts:], results[:carries], eqn.outvars[:carries])):
            if n in stays:
                made += _moved(result, start, v.aval.nbytes)
                shared |= dict.fromkeys(stays[n], result)
                inputs.append(result)
                outputs.append(result)
                continue
            if plan.outputs[n] is plan.graph.invars[consts + n]:  # no iteration changes it
                made.append(Copy(result, start, v.aval.nbytes))
                inputs.append(start)
                outputs.append(None)
                continue
            spare = scratch.take(v.aval.nbytes, 0, 0) if trips > 1 else result
            first, second = (result, spare) if trips % 2 else (spare, result)
            entries = self.entry(), self.entry(), self.entry()
            made += map(Point, entries, (start, first, second))
            if trips == 0:
                made.append(Copy(result, start, v.aval.nbytes))
            rotations.append(entries)
            inputs.append(Place(entries[0], aligned=start.aligned and result.aligned))
            outputs.append(Place(entries[1], aligned=result.aligned))

        def sliced(whole: Place, nbytes: int) -> Place:
            entry = self.entry()
            made.append(Point(entry, whole.after((trips - 1) * nbytes) if eqn.params["reverse"] and trips else whole))
            strides.append((entry, -nbytes if eqn.params["reverse"] else nbytes))
            return Place(entry, aligned=whole.aligned and nbytes % ALIGNMENT == 0)

        for operand, v in zip(operands[consts + carries :], plan.graph.invars[consts + carries :]):
            inputs.append(sliced(operand, v.aval.nbytes))
        for result, y in zip(results[carries:], plan.outputs[carries:]):
            outputs.append(sliced(result, y.aval.nbytes))
        body = self._body(plan, inputs, outputs, scratch, shared)
        return [*made, Repeat(trips, tuple(body), tuple(rotations), tuple(strides))]

    def _while(
        self, group: FusionGroup, operands: list[Place], results: list[Place], scratch: Scratch
    ) -> list[Operation]:
        eqn, (test, body) = group.graph.eqns[-1], group.bodies
        of_test, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        starts = operands[of_test + of_body :]
        stays = {n: slots for _, n, (slots,) in kept(group, self.limits)}
        shared = {slot: results[n] for n, slots in stays.items() for slot in slots}
        moves = [copy for r, s, v in zip(results, starts, eqn.outvars) for copy in _moved(r, s, v.aval.nbytes)]
        made: list[Operation] = [*_in_parallel(moves, scratch)]
        asked, (predicate, *lanes) = self._where(test, [*operands[:of_test], *results], scratch)
        inputs = [*lanes, *operands[of_test : of_test + of_body], *results]
        step, computed = self._where(body, inputs, scratch, {n: results[n] for n in stays}, shared)
        back = [copy for r, c, v in zip(results, computed, eqn.outvars) for copy in _moved(r, c, v.aval.nbytes)]
        return [*made, *asked, While(predicate, (*step, *back, *asked))]

    def _cond(
        self, group: FusionGroup, operands: list[Place], results: list[Place], scratch: Scratch
    ) -> list[Operation]:
        index, *others = operands
        made: list[Operation] = []
        shared: list[dict[int, Place]] = [{} for _ in group.bodies]
        for operand, n, slots in kept(group, self.limits):
            made += _moved(results[n], operands[operand], group.graph.eqns[-1].outvars[n].aval.nbytes)
            others[operand - 1] = results[n]
            for own, of_branch in zip(shared, slots, strict=True):
                own |= dict.fromkeys(of_branch, results[n])
        bodies = (self._body(plan, others, results, scratch, own) for plan, own in zip(group.bodies, shared))
        return [*made, Switch(index, tuple(map(tuple, bodies)))]


def _lives(order: Sequence[Step]) -> dict[int, tuple[int, int]]:
    """Of each group the steps at which its operations are enqueued and at which they are through."""
    ended: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for number, step in reversed(list(enumerate(order))):
        if isinstance(step, End):
            ended[step.event] = number
        elif isinstance(step, Begin):
            found.update(dict.fromkeys(step.groups, (number, ended[step.event])))
        else:
            found[step.group] = number, number
    return found


def _moved(to: Place, source: Place, nbytes: int) -> list[Copy]:
    """A copy, unless it is one place."""
    return [] if to is source else [Copy(to, source, nbytes)]


def _in_parallel(copies: list[Copy], scratch: Scratch) -> list[Copy]:
    """Copies of which none reads what another writes: through temporaries where one would."""
    targets = {id(copy.to) for copy in copies}
    if not any(id(copy.source) in targets for copy in copies):
        return copies
    middle = [scratch.take(copy.nbytes, 0, 0) for copy in copies]
    out = [Copy(m, copy.source, copy.nbytes) for m, copy in zip(middle, copies)]
    return [*out, *(Copy(copy.to, m, copy.nbytes) for m, copy in zip(middle, copies))]


def _written(group: FusionGroup) -> list[Var]:
    return [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]


def _values(group: FusionGroup) -> Iterator[Var]:
    yield from group.graph.invars
    yield from _written(group)
