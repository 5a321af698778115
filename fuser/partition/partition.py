"""Graph → Plan: greedy in program order, then one sweep over groups that share inputs.

Each equation starts as a candidate of its own and joins the candidates that made its operands, the most bytes first, unless
`blocker` gives a reason. Movement equations belong to no candidate: they are copied into each group that looks through them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any

from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.names import identifier
from fuser.ir.primitive import Fusion
from fuser.legalise import legalise
from fuser.legalise.attention import refusals
from fuser.legalise.control_flow import bodies, changed_inputs
from fuser.legalise.implicit_gemm import patched
from fuser.ops.attention import attention_p
from fuser.ops.conversion import convert_element_type_p, copy_p
from fuser.ops.window_write import write_window_p
from fuser.partition import window_candidates
from fuser.partition.access_cost import access_blocker
from fuser.partition.axes import Views, is_view
from fuser.partition.buffers import assign, place
from fuser.partition.candidate import (
    Candidate,
    Uses,
    blocker,
    escaping,
    gain,
    join,
    looped,
    product,
    single,
    standalone,
)
from fuser.partition.check import check
from fuser.partition.group import FUSIBLE, Decision, FusionGroup, Kind, Plan, Refusal, inner_eqns
from fuser.partition.horizontal import fused_horizontally
from fuser.partition.loop import LoopForm
from fuser.partition.loop_forms import LoopForms
from fuser.partition.order import ordered
from fuser.partition.read_indices import near
from fuser.partition.rematerialization import rematerialized
from fuser.partition.review import copied, refusal, suspicious, total, worth_it
from fuser.partition.structure import structure
from fuser.partition.update_frames import take_in_updates

MOST_READERS = 8  # kernels that become one with what they read
ATTEMPTS = 3  # at computing values again, each without what readers did not take in the last time
PRICED = 32  # times each equation of a kernel is priced, in each piece, on average, while it is seen whether its parts take less
_LIBRARY_KINDS = {Fusion.DOT: Kind.CONTRACTION, Fusion.LIBRARY: Kind.LIBRARY, Fusion.CONTROL: Kind.CONTROL}


def partition(
    graph: Graph,
    backend: Any,
    loops: LoopForms | None = None,
    prefix: str = "k",
    donated: Collection[int] = (),
    launches: bool = True,
) -> Plan:
    """The fusion groups of a legal graph for a backend (its `limits` and `supports`), and every refused merge.

    Names of groups start with `prefix`; the bodies of control flow are legalised and planned for themselves. `donated` are
    the positions of inputs whose memory the caller gives away. Without `launches`, kernels are called from native code,
    where a call costs nothing and small ones need not share one. `loops` are the forms of the program's loops so far.
    """
    loops = LoopForms(backend) if loops is None else loops
    grouping, decisions = _grouped(graph, backend, loops)
    graph = grouping.graph
    candidates = grouping.reviewed(take_in_updates(grouping))
    results = {source for v in graph.outvars if (source := grouping.views(v).source) is not None}
    groups = tuple(
        _with_bodies(
            _finish(candidate, grouping.views, f"{prefix}{number}"),
            backend,
            f"{prefix}{number}",
            loops,
        )
        for number, candidate in enumerate(ordered(candidates, graph, results, backend.limits))
    )
    aliases = _aliases(graph, grouping.views)
    if launches:
        outputs = [aliases.get(v, v) for v in graph.outvars if isinstance(v, Var)]
        groups = fused_horizontally(groups, outputs, backend.limits, grouping.allowed)
    slots, slot_of = assign(graph, groups, aliases)
    memory = place(graph, groups, slots, slot_of, donated, backend.limits)
    plan = Plan(
        graph,
        groups,
        tuple(decisions),
        slots,
        slot_of,
        graph.outvars,
        aliases,
        memory.reuse,
        memory.offsets,
        memory.arena,
        backend.name,
    )
    return check(plan) if config.check else plan


def _grouped(graph: Graph, backend: Any, loops: LoopForms) -> tuple[Grouping, list[Decision]]:
    """The grouping of a graph, or of one that computes values again where that costs less than to store them."""
    grouping = Grouping(graph, backend, loops.of(graph))
    found = grouping.run()
    if config.fuel >= 0:
        return grouping, found[1]
    never: set[tuple[Eqn, Eqn]] = set()
    for _ in range(ATTEMPTS):
        candidates, uses, views = found[0], grouping.uses, grouping.views
        rewritten = rematerialized(graph, candidates, uses, views, backend.limits.target, never)
        if rewritten is None:
            break
        other = Grouping(rewritten.graph, backend, loops.of(rewritten.graph))
        again = other.run()
        apart = [c for c in again[0] if rewritten.reader.keys() >= set(c.eqns)]
        if not apart and len(again[0]) <= len(candidates):
            return other, again[1]
        if not apart:
            break
        never |= {rewritten.reader[eqn] for c in apart for eqn in c.eqns}
    return grouping, found[1]


def _aliases(graph: Graph, views: Views) -> dict[Var, Var]:
    """The results that are another value in another shape, and so share its memory; a legal graph has no other views."""
    sources = {v: views(v).source for v in graph.outvars if isinstance(v, Var)}
    return {v: source for v, source in sources.items() if source is not None and source is not v}


class Grouping:
    """The greedy pass. `candidates` maps a number to its candidate; `ancestors` are bitmasks over those numbers."""

    def __init__(self, graph: Graph, backend: Any, forms: dict[Var, LoopForm | str]) -> None:
        self.graph = graph
        self.forms = forms
        self.backend = backend
        self.limits = backend.limits
        self.views = Views(graph.eqns)
        self.anchors = [eqn for eqn in graph.eqns if not is_view(eqn)]
        self.uses = _uses(graph, self.anchors, self.views)
        self.candidates: dict[int, Candidate] = {}
        self.ancestors: dict[int, int] = {}
        self.home: dict[Var, int] = {}
        self.parent: dict[int, int] = {}
        self.decisions: list[Decision] = []
        made = sum(isinstance(form, LoopForm) for form in forms.values())
        made += sum(eqn.primitive is attention_p for eqn in graph.eqns)
        self.fuel = config.fuel if config.fuel < 0 else max(config.fuel - made, 0)
        self.refused: list[tuple[int, int, Decision]] = []

    def run(self) -> tuple[list[Candidate], list[Decision]]:
        for number, eqn in enumerate(self.anchors):
            candidate = self._new(number, eqn)
            for producer in self._producers(candidate):
                self._try(self._find(producer), self._find(number))
        self._sweep()
        self._reconsider()
        self._join_readers()
        gone = {id(decision) for a, b, decision in self.refused if self._find(a) == self._find(b)}
        self.decisions = [d for d in self.decisions if id(d) not in gone]
        if self.limits.attention:
            self.decisions += self._no_attention()
        return list(self.candidates.values()), self.decisions

    def _no_attention(self) -> list[Decision]:
        """Why products with exponentials of their rows in between are kernels of their own."""
        label = lambda eqn: f"{eqn.primitive} ({eqn.source.short})" if eqn.source.file else str(eqn.primitive)
        found = refusals(self.graph, self.backend.supports)
        return [Decision(label(a), label(b), f"no attention in one kernel: {reason}") for a, b, reason in found]

    def allowed(self) -> bool:
        """Whether FUSER_FUEL allows one more merge, which is counted."""
        found = self.fuel != 0
        self.fuel -= self.fuel > 0
        return found

    def _find(self, number: int) -> int:
        """The candidate that candidate `number` has become part of."""
        while number in self.parent:
            number = self.parent[number]
        return number

    def _new(self, number: int, eqn: Eqn) -> Candidate:
        kind = _LIBRARY_KINDS.get(eqn.primitive.fusion)
        reason = self.backend.supports(eqn)
        if kind is None and reason is not None:
            kind = Kind.LIBRARY
        form: LoopForm | str | None = None
        if kind is Kind.CONTROL:
            form = self.forms[eqn.outvars[0]]
        if isinstance(form, LoopForm):
            candidate = looped(number, eqn, self.views, form, self.uses)
        elif isinstance(form, str):
            candidate = standalone(number, eqn, self.views, kind, form)  # type: ignore[arg-type]
        elif eqn.primitive is write_window_p and self.limits.window_writes:
            candidate = window_candidates.window(number, eqn, self.views)
            for array in candidate.windows.values():
                if array in self.home:
                    maker = self.candidates[self._find(self.home[array])]
                    candidate.changed |= maker.changed | set(maker.windows.values())
        elif kind is None:
            candidate = single(number, eqn, self.views, self.limits)
        elif kind is Kind.CONTRACTION and self.limits.dots and reason is None:
            candidate = product(number, eqn, self.views, self.limits)
        else:
            candidate = standalone(number, eqn, self.views, kind, _reason(eqn, kind, reason))
            if eqn.primitive in self.limits.optional_results:
                candidate.live_out = {v for v in eqn.outvars if self.uses.of.get(v)} or candidate.live_out
        mask = 0
        for var in candidate.inputs:
            if var in self.home:
                home = self._find(self.home[var])
                mask |= self.ancestors[home] | 1 << home
        self.candidates[number] = candidate
        self.ancestors[number] = mask
        for var in eqn.outvars:
            self.home[var] = number
        return candidate

    def _producers(self, candidate: Candidate) -> list[int]:
        """The candidates that made the operands, those that save the most bytes first."""
        homes = {self._find(self.home[v]) for v in candidate.inputs if v in self.home}
        return (
            list(homes) if len(homes) < 2 else sorted(homes, key=lambda n: (-gain(self.candidates[n], candidate), -n))
        )

    def _try(self, a: int, b: int) -> None:
        """Merge candidate `b` into candidate `a`, which it reads from, or record why not."""
        if a == b:
            return
        first, second = self.candidates[a], self.candidates[b]
        reason = None if self._patched(first, second) else self._blocker(first, second)
        if reason is None and self._path_between(a, b):
            reason = "another kernel must run between them"
        if reason is None and self.fuel == 0:
            reason = "the merges allowed by FUSER_FUEL are used up"
        if reason is not None:
            self.refused.append((a, b, Decision(_label(first), _label(second), reason)))
            self.decisions.append(self.refused[-1][2])
            return
        self._merge(a, b)

    def _blocker(self, a: Candidate, b: Candidate) -> str | None:
        """Why two candidates may not share a kernel, or would take longer in one."""
        reason = window_candidates.blocker(a, b, self.uses) or blocker(a, b, self.uses, self.limits)
        return reason or access_blocker(a, b, self.uses, self.limits.target)

    def _patched(self, a: Candidate, b: Candidate) -> bool:
        """Whether `b` is a product that reads the pieces which `a` lays side by side where they are."""
        if not self.limits.strided_dots or b.kind is not Kind.CONTRACTION or b.reason or len(a.eqns) + len(b.eqns) != 2:
            return False
        ([eqn], [dot]) = a.eqns, b.eqns
        alone = dot.invars[0] is eqn.outvars[0] and not escaping(a, b, self.uses)
        return alone and patched(dot, eqn, self.views) is not None

    def _reconsider(self) -> None:
        """Try once more what was refused while the candidates were small: a value that is needed once a row, say."""
        for a, b, _ in self.refused:
            first, second = self._find(a), self._find(b)
            if first != second and self.ancestors[second] >> first & 1 and self.fuel != 0:
                candidates = self.candidates[first], self.candidates[second]
                if self._blocker(*candidates) is None and not self._path_between(first, second):
                    self._merge(first, second)

    def _join_readers(self) -> None:
        """Merge what several kernels read at constant distances with all of them, which become one: a flux with the updates that take it in."""
        for number in sorted(self.candidates, reverse=True):
            first = self.candidates[number]
            numbers = {n for v in first.live_out for n in self.uses.of.get(v, (-1,))}
            readers = sorted({self._find(n) for n in numbers if n >= 0} - {number})
            if -1 in numbers or not 1 <= len(readers) <= MOST_READERS or 0 <= self.fuel < len(readers):
                continue
            if self._joined(first, readers):
                for other in readers[1:]:
                    self._merge(readers[0], other)
                self._merge(number, readers[0])

    def _joined(self, first: Candidate, readers: Sequence[int]) -> bool:
        """Whether a kernel may be one with all that read it, where these are alike and independent."""
        found = [self.candidates[n] for n in readers]
        if not all(first.live_out & near(c) for c in found):
            return False
        if any(
            self._related(m, n) or not _alike(x, y) for (m, x), (n, y) in itertools.combinations(zip(readers, found), 2)
        ):
            return False
        both = copied(found[0])
        for other in found[1:]:
            if self._blocker(both, other) is not None:
                return False
            both = join(both, copied(other), self.uses, self.limits.target)
        return self._blocker(first, both) is None

    def _path_between(self, a: int, b: int) -> bool:
        """Whether a third candidate needs `a` and is needed by `b`: the last of such candidates makes an operand of `b`."""
        if not escaping(self.candidates[a], self.candidates[b], self.uses):
            return False  # nothing else needs `a`
        makers = {self._find(self.home[v]) for v in self.candidates[b].inputs if v in self.home}
        return any(maker != a and self.ancestors[maker] >> a & 1 for maker in makers)

    def _merge(self, a: int, b: int) -> None:
        self.fuel -= self.fuel > 0
        self.candidates[a] = join(self.candidates[a], self.candidates[b], self.uses, self.limits.target)
        self._join_ancestors(a, b)

    def _join_ancestors(self, a: int, b: int) -> None:
        """Candidate `b` is part of candidate `a` from now on."""
        del self.candidates[b]
        self.parent[b] = a
        old, new = 1 << b, 1 << a
        gained = self.ancestors.pop(b) & ~new & ~self.ancestors[a]
        self.ancestors[a] |= gained
        inherited = self.ancestors[a]
        if gained or b != len(self.parent) + len(self.candidates) - 1:  # else nothing can come after `b` yet
            for number, mask in self.ancestors.items():
                if mask & old:
                    self.ancestors[number] = mask & ~old | new | inherited
                elif gained and mask & new:
                    self.ancestors[number] = mask | inherited

    def maker(self, var: Var) -> int | None:
        """The number of the candidate that makes a value; None of inputs and of views."""
        return self._find(self.home[var]) if var in self.home else None

    def waits_for(self, candidate: Candidate, number: int) -> bool:
        """Whether a third candidate needs candidate `number`, and is needed by this one."""
        makers = {self._find(self.home[v]) for v in candidate.inputs if v in self.home}
        return any(maker != number and self.ancestors[maker] >> number & 1 for maker in makers)

    def take_in(self, a: int, b: int, value: Var, result: Var) -> None:
        """Let candidate `a` write the result of candidate `b`, an update, in the place of the value that it is made of."""
        first, second = self.candidates[a], self.candidates[b]
        kept = first.live_out - {value} | {result}
        first.eqns += second.eqns
        first.numbers |= second.numbers
        first.produced |= second.produced
        for var in second.inputs - first.produced:
            first.opaque.setdefault(var, {})[object()] = 1.0
        first.live_out = kept
        self._join_ancestors(a, b)

    def _sweep(self) -> None:
        """Merge groups that read the same arrays and do not depend on each other."""
        readers: dict[Var, list[int]] = {}
        for number, candidate in sorted(self.candidates.items()):
            if candidate.kind in FUSIBLE:
                for var in (*candidate.reads, *near(candidate)):
                    if var.aval.shape:
                        readers.setdefault(var, []).append(number)
        for numbers in readers.values():
            for a, b in itertools.pairwise(numbers):
                a, b = self._find(a), self._find(b)
                if a != b and not self._related(a, b) and self.fuel != 0:
                    first, second = self.candidates[a], self.candidates[b]
                    if not _same_domain(first, second) or not _same_time(first, second):
                        continue
                    reason = self._blocker(first, second)
                    if reason is None:
                        self._merge(a, b)
                    else:
                        self.decisions.append(Decision(_label(first), _label(second), reason))

    def _related(self, a: int, b: int) -> bool:
        return bool(self.ancestors[a] >> b & 1 or self.ancestors[b] >> a & 1)

    def reviewed(self, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates, where those whose kernels would take longer than their parts are such parts; refusals are kept."""
        if not self.limits.estimates or config.fuel >= 0:
            return candidates
        found: list[Candidate] = []
        position = {eqn: n for n, eqn in enumerate(self.graph.eqns)}
        whole: set[Hashable] = set()  # structures of kernels that are best as they are
        for candidate in candidates:
            if worth_it(candidate, self.limits.target):
                candidate.eqns.sort(key=position.__getitem__)
                found += self._parts(candidate, whole) or [candidate]
            else:
                found.append(candidate)
        return found

    def _parts(self, candidate: Candidate, whole: set[Hashable]) -> list[Candidate] | None:
        """Candidates that take less together than one of all, by estimates; None where there are none."""
        group = _finish(candidate, self.views, "k")
        key = structure(group)
        if key in whole:
            return None
        seconds = self.backend.seconds(group)
        if seconds is not None and suspicious(candidate, seconds, self.limits.target):
            again = _Priced(group.graph, self.backend, {})
            parts, decisions = again.run()
            together = total(parts, again.price)
            if together is not None and together * self.limits.target.apart < seconds:
                self.decisions += [d for d in decisions if d not in self.decisions]
                return parts
        if key is not None:
            whole.add(key)
        return None


class _Priced(Grouping):
    """The greedy pass over the equations of one kernel, in which each merge has to take less by the estimates."""

    def __init__(self, graph: Graph, backend: Any, forms: dict[Var, LoopForm | str]) -> None:
        super().__init__(graph, backend, forms)
        self.priced: dict[frozenset[Eqn], float | None] = {}
        arrays = dict.fromkeys(v for v in (*graph.invars, *graph.outvars) if isinstance(v, Var))
        self.since = dict.fromkeys(arrays, float(sum(v.aval.nbytes for v in arrays)))  # as for one kernel of them all
        self.left = PRICED * len(graph.eqns)  # equations that are priced before all further merges are refused

    def price(self, candidate: Candidate) -> float | None:
        """The seconds of a candidate's kernel."""
        key = frozenset(candidate.eqns)
        if key not in self.priced:
            self.left -= len(key) * max(1, candidate.pieces)  # each piece has a loop of them all
            known = candidate.kind in FUSIBLE
            group = _finish(candidate, self.views, "k")
            self.priced[key] = self.backend.seconds(group, self.since) if known else None
        return self.priced[key]

    def _blocker(self, a: Candidate, b: Candidate) -> str | None:
        if (reason := super()._blocker(a, b)) is not None:
            return reason
        if self.left <= 0:
            return f"more than {PRICED} estimates for each operation of a kernel take too long"
        return refusal(a, b, join(copied(a), copied(b), self.uses, self.limits.target), self.price, self.limits.target)


def _reason(eqn: Eqn, kind: Kind, reason: str | None) -> str:
    """Why an equation is no generated kernel; control flow learns that when its bodies are planned."""
    return "" if kind is Kind.CONTROL else reason or f"{eqn.primitive.name} is a library call"


def _same_domain(a: Candidate, b: Candidate) -> bool:
    """Whether two independent candidates run over the same axes, as far as the arrays that both read tell: where these are read at constant
    distances, by the extents of axes that lie in the same order."""
    if not near(a).isdisjoint((*near(b), *b.reads)) or not near(b).isdisjoint(a.reads):
        return _alike(a, b)
    shared = [v for v in a.reads.keys() & b.reads.keys() if len(a.reads[v]) == len(b.reads[v]) == 1]
    covered = {x for v in shared for x in next(iter(b.reads[v]))}
    return set(b.axes) <= covered and len(a.axes) == len(b.axes)


def _alike(a: Candidate, b: Candidate) -> bool:
    """Whether two candidates run over axes of the same extents, which lie in the same order in memory."""
    return [x.extent for x in a.order] == [x.extent for x in b.order]


def _same_time(a: Candidate, b: Candidate) -> bool:
    """Whether no optimization barrier sets the two apart: what is computed again late must not move to the first time."""
    return {scope for _, scope in a.barriers} == {scope for _, scope in b.barriers}


def _uses(graph: Graph, anchors: list[Eqn], views: Views) -> Uses:
    of: dict[Var, set[int]] = {}
    for number, eqn in enumerate(anchors):
        for operand in eqn.invars:
            source = views(operand).source
            if source is not None:
                of.setdefault(source, set()).add(number)
    for operand in graph.outvars:
        source = views(operand).source
        if source is not None:
            of.setdefault(source, set()).add(-1)
    reducing = frozenset(n for n, eqn in enumerate(anchors) if eqn.primitive.fusion is Fusion.REDUCE)
    return Uses({v: frozenset(s) for v, s in of.items()}, {eqn: n for n, eqn in enumerate(anchors)}, reducing)


def _label(candidate: Candidate) -> str:
    """The candidate's operations and the line of its last equation, for a person."""
    names = list(candidate.names)
    text = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    line = candidate.eqns[-1].source.short if candidate.eqns[-1].source.file else ""
    return f"{text} ({line})" if line else text


def _with_bodies(group: FusionGroup, backend: Any, prefix: str, loops: LoopForms) -> FusionGroup:
    """A group of control flow with its bodies planned, and the reason why it cannot run natively, if there is one."""
    limits = backend.limits
    if limits.whole:
        if group.kind is Kind.CONTROL:
            plans, _ = _planned(bodies(group.graph.eqns[-1], native=False), backend, prefix, True, loops)
            group = replace(group, bodies=plans, reason="", refusal=group.reason)
        return _emitted(group, backend)
    if group.kind is Kind.LIBRARY and group.graph.eqns[-1].primitive in limits.calls:
        source = backend.emit(group)
        refused = isinstance(source, Refusal)
        return replace(group, reason=source.reason) if refused else replace(group, reason="", emitted=source)
    if group.kind is not Kind.CONTROL:
        return group
    if not limits.control:
        return replace(group, reason=f"{group.ops[-1]} runs step by step in NumPy")
    eqn = group.graph.eqns[-1]
    plans, reason = _planned(bodies(eqn, native=True), backend, prefix, False, loops)
    if reason or limits.driven:
        given = changed_inputs(eqn) if limits.window_writes else ()
        plans, _ = _planned(bodies(eqn, native=False), backend, prefix, True, loops, given)
    group = replace(group, bodies=plans, reason=reason, refusal=group.reason)
    if not limits.driven:
        return group
    reason = backend.driven(group)
    return replace(group, reason=reason, enqueued=not reason)


def _planned(
    graphs: dict[str, Graph], backend: Any, prefix: str, launches: bool, loops: LoopForms, given: Sequence[range] = ()
) -> tuple[tuple[Plan, ...], str]:
    """Plans of bodies, and the reason why some group of theirs is not native; `given` are the inputs of each whose memory its results may
    take over."""
    each = given or [range(0)] * len(graphs)
    plans = tuple(
        partition(legalise(body, backend, loops, own), backend, loops, f"{prefix}_{name}_", launches=launches)
        for (name, body), own in zip(graphs.items(), each, strict=True)
    )
    if backend.limits.driven or backend.limits.host_steps or not backend.limits.control:
        return plans, ""
    return plans, next((inner.reason for plan in plans for inner in plan.groups if inner.reason), "")


def _emitted(group: FusionGroup, backend: Any) -> FusionGroup:
    """The group with its kernel; what the backend has no kernel for is a library step of its compiler's, with the reason."""
    source = backend.emit(group)
    if isinstance(source, Refusal):
        group = replace(group, kind=Kind.LIBRARY, reason=source.reason)
        source = backend.emit(group)
    vmem = 0 if group.bodies else source.launch["vmem"]
    return replace(group, refusal=source.note or group.refusal, vmem=vmem, emitted=source)


def _finish(candidate: Candidate, views: Views, number: str) -> FusionGroup:
    """The candidate as a group, with its own graph: movement equations copied in, inputs and outputs named."""
    eqns: dict[Eqn, None] = {}
    for eqn in candidate.eqns:
        for operand in eqn.invars:
            eqns.update(dict.fromkeys(views(operand).path))
        eqns[eqn] = None
    produced = {v for eqn in eqns for v in eqn.outvars}
    inputs = tuple(dict.fromkeys(v for eqn in eqns for v in eqn.operands() if v not in produced))
    outputs = tuple(v for eqn in candidate.eqns for v in eqn.outvars if v in candidate.live_out)
    name = _name(candidate, number)
    sub = Graph(inputs, (), (), tuple(eqns), outputs, name)
    inside = inner_eqns(candidate.eqns) if candidate.kind is Kind.LOOP else candidate.eqns
    sources = tuple(dict.fromkeys(eqn.source for eqn in inside))
    return FusionGroup(
        candidate.kind,
        sub,
        tuple(candidate.parallel),
        tuple(candidate.reduced),
        name,
        sources,
        candidate.layout,
        candidate.reason,
    )


def _name(candidate: Candidate, number: str) -> str:
    """`k0_sub_exp_div`: the number of the group and its last few distinct operations."""
    unnamed = (copy_p, convert_element_type_p)
    names = list(dict.fromkeys(eqn.primitive.name for eqn in candidate.eqns if eqn.primitive not in unnamed))
    words = "_".join(names[-4:]) or candidate.eqns[-1].primitive.name
    return f"{number}_{identifier(words)}"
