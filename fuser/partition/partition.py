"""Graph → Plan: greedy in program order, then one sweep over groups that share inputs.

Each equation starts as a draft of its own and joins the drafts that made its operands, the most bytes first, unless
`blocker` gives a reason. Movement equations belong to no draft: they are copied into each group that looks through them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.source import Source
from fuser.ops.elementwise import copy_p
from fuser.partition.axes import Views, is_view
from fuser.partition.buffers import assign, place
from fuser.partition.bundle import bundled
from fuser.partition.calls import with_read_operands
from fuser.partition.control import bodies, with_dense_operands
from fuser.partition.draft import Draft, Uses, blocker, escaping, gain, join, looped, product, single, solid
from fuser.partition.group import FUSIBLE, Decision, FusionGroup, Kind, Plan, inner_eqns
from fuser.partition.loop import LoopForm, loop_form
from fuser.partition.patches import patched
from fuser.partition.products import with_strided_operands
from fuser.partition.wraps import with_wraps_inside

_LIBRARY_KINDS = {Fusion.DOT: Kind.CONTRACTION, Fusion.LIBRARY: Kind.LIBRARY, Fusion.CONTROL: Kind.CONTROL}


def partition(
    graph: Graph, backend: Any, prefix: str = "k", donated: Collection[int] = (), launches: bool = True
) -> Plan:
    """The fusion groups of `graph` for a backend (its `limits` and `supports`), and every refused merge.

    Names of groups start with `prefix`; the bodies of control flow are plans of their own. `donated` are the positions of
    inputs whose memory the caller gives away. Without `launches`, kernels are called from native code, where a call costs
    nothing and small ones need not share one.
    """
    forms = _loop_forms(graph, backend)
    if backend.limits.control:
        graph = with_dense_operands(graph, lambda eqn: isinstance(forms[eqn.outvars[0]], str))
    if backend.limits.strided_dots:
        graph = with_strided_operands(graph, lambda eqn: backend.supports(eqn) is None)
    graph = with_read_operands(with_wraps_inside(graph, backend.limits.calls), backend.limits.calls)
    graph, aliases = _with_copies(graph)
    drafting = Drafting(graph, backend, forms)
    drafts, decisions = drafting.run()
    ordered = _ordered(drafts, graph)
    groups = tuple(
        _with_bodies(_finish(draft, drafting.uses, drafting.views, f"{prefix}{number}"), backend, f"{prefix}{number}")
        for number, draft in enumerate(ordered)
    )
    if launches:
        results = [aliases.get(v, v) for v in graph.outvars if isinstance(v, Var)]
        groups = bundled(groups, results, backend.limits, drafting.allowed)
    slots, slot_of = assign(graph, groups, aliases)
    memory = place(graph, groups, slots, slot_of, donated, backend.limits)
    return Plan(
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


def _loop_forms(graph: Graph, backend: Any) -> dict[Var, LoopForm | str]:
    """For each control equation, by its first result: how it becomes one kernel with its loop inside, or why it does not."""
    forms: dict[Var, LoopForm | str] = {}
    for eqn in graph.eqns:
        if eqn.primitive.fusion is Fusion.CONTROL:
            made = sum(isinstance(form, LoopForm) for form in forms.values())
            no_fuel = 0 <= config.fuel <= made
            form = (
                "the merges allowed by FUSER_FUEL are used up"
                if no_fuel
                else loop_form(eqn, backend.supports, backend.limits.teams)
            )
            forms[eqn.outvars[0]] = form
    return forms


def _with_copies(graph: Graph) -> tuple[Graph, dict[Var, Var]]:
    """The graph with a copy of each result that is a view, a literal or an input; and the results that only need another shape.

    A result that holds a computed value's elements in the same order shares its memory; the second dict says whose.
    """
    views = Views(graph.eqns)
    computed = {v for eqn in graph.eqns if not is_view(eqn) for v in eqn.outvars}
    eqns, outvars, aliases = list(graph.eqns), [], {}
    copies: dict[Operand, Var] = {}
    for operand in graph.outvars:
        view = views(operand)
        if isinstance(operand, Var) and operand in computed:
            outvars.append(operand)
            continue
        if isinstance(operand, Var) and view.dense and view.source in computed and view.source is not None:
            aliases[operand] = view.source
            outvars.append(operand)
            continue
        if operand not in copies:
            copies[operand] = Var(operand.aval)
            line = next((e.source for e in reversed(graph.eqns) if operand in e.outvars), Source())
            eqns.append(Eqn(copy_p, (operand,), {}, (copies[operand],), line))
        outvars.append(copies[operand])
    return graph.updated("outputs", eqns=tuple(eqns), outvars=tuple(outvars)), aliases


class Drafting:
    """The greedy pass. `drafts` maps a number to its draft; `ancestors` are bitmasks over those numbers."""

    def __init__(self, graph: Graph, backend: Any, forms: dict[Var, LoopForm | str]) -> None:
        self.graph = graph
        self.forms = forms
        self.backend = backend
        self.limits = backend.limits
        self.views = Views(graph.eqns)
        self.anchors = [eqn for eqn in graph.eqns if not is_view(eqn)]
        self.uses = _uses(graph, self.anchors, self.views)
        self.drafts: dict[int, Draft] = {}
        self.ancestors: dict[int, int] = {}
        self.home: dict[Var, int] = {}
        self.parent: dict[int, int] = {}
        self.decisions: list[Decision] = []
        loops = sum(isinstance(form, LoopForm) for form in forms.values())
        self.fuel = config.fuel if config.fuel < 0 else max(config.fuel - loops, 0)
        self.refused: list[tuple[int, int, Decision]] = []

    def run(self) -> tuple[list[Draft], list[Decision]]:
        for number, eqn in enumerate(self.anchors):
            draft = self._new(number, eqn)
            for producer in self._producers(draft):
                self._try(self._find(producer), self._find(number))
        self._sweep()
        self._reconsider()
        return list(self.drafts.values()), self.decisions

    def allowed(self) -> bool:
        """Whether FUSER_FUEL allows one more merge, which is counted."""
        found = self.fuel != 0
        self.fuel -= self.fuel > 0
        return found

    def _find(self, number: int) -> int:
        """The draft that draft `number` has become part of."""
        while number in self.parent:
            number = self.parent[number]
        return number

    def _new(self, number: int, eqn: Eqn) -> Draft:
        kind = _LIBRARY_KINDS.get(eqn.primitive.fusion)
        reason = self.backend.supports(eqn)
        if kind is None and reason is not None:
            kind = Kind.LIBRARY
        form: LoopForm | str | None = None
        if kind is Kind.CONTROL:
            form = self.forms[eqn.outvars[0]]
        if isinstance(form, LoopForm):
            draft = looped(number, eqn, self.views, form, self.uses)
        elif isinstance(form, str):
            draft = solid(number, eqn, self.views, kind, form)  # type: ignore[arg-type]
        elif kind is None:
            draft = single(number, eqn, self.views)
        elif kind is Kind.CONTRACTION and self.limits.dots and reason is None:
            draft = product(number, eqn, self.views)
        else:
            draft = solid(number, eqn, self.views, kind, _reason(eqn, kind, reason))
        mask = 0
        for var in draft.inputs:
            if var in self.home:
                home = self._find(self.home[var])
                mask |= self.ancestors[home] | 1 << home
        self.drafts[number] = draft
        self.ancestors[number] = mask
        for var in eqn.outvars:
            self.home[var] = number
        return draft

    def _producers(self, draft: Draft) -> list[int]:
        """The drafts that made the operands, those that save the most bytes first."""
        homes = {self._find(self.home[v]) for v in draft.inputs if v in self.home}
        return list(homes) if len(homes) < 2 else sorted(homes, key=lambda n: (-gain(self.drafts[n], draft), -n))

    def _try(self, a: int, b: int) -> None:
        """Merge draft `b` into draft `a`, which it reads from, or record why not."""
        if a == b:
            return
        first, second = self.drafts[a], self.drafts[b]
        reason = None if self._patched(first, second) else blocker(first, second, self.uses, self.limits)
        if reason is None and self._path_between(a, b):
            reason = "another kernel must run between them"
        if reason is None and self.fuel == 0:
            reason = "the merges allowed by FUSER_FUEL are used up"
        if reason is not None:
            self.refused.append((a, b, Decision(_label(first), _label(second), reason)))
            self.decisions.append(self.refused[-1][2])
            return
        self._merge(a, b)

    def _patched(self, a: Draft, b: Draft) -> bool:
        """Whether `b` is a product that reads the pieces which `a` lays side by side where they are."""
        if not self.limits.patch_bytes or b.kind is not Kind.CONTRACTION or b.reason or len(a.eqns) + len(b.eqns) != 2:
            return False
        ([eqn], [dot]) = a.eqns, b.eqns
        alone = dot.invars[0] is eqn.outvars[0] and not escaping(a, b, self.uses)
        return alone and patched(dot, eqn, self.views, self.limits.patch_bytes) is not None

    def _reconsider(self) -> None:
        """Try once more what was refused while the drafts were small: a value that is needed once a row, say."""
        gone: set[int] = set()
        for a, b, decision in self.refused:
            first, second = self._find(a), self._find(b)
            if first != second and self.ancestors[second] >> first & 1 and self.fuel != 0:
                drafts = self.drafts[first], self.drafts[second]
                if blocker(*drafts, self.uses, self.limits) is None and not self._path_between(first, second):
                    self._merge(first, second)
            if self._find(a) == self._find(b):
                gone.add(id(decision))
        self.decisions = [d for d in self.decisions if id(d) not in gone]

    def _path_between(self, a: int, b: int) -> bool:
        """Whether a third draft needs `a` and is needed by `b`: the last of such drafts makes an operand of `b`."""
        makers = {self._find(self.home[v]) for v in self.drafts[b].inputs if v in self.home}
        return any(maker != a and self.ancestors[maker] >> a & 1 for maker in makers)

    def _merge(self, a: int, b: int) -> None:
        self.fuel -= self.fuel > 0
        self.drafts[a] = join(self.drafts[a], self.drafts.pop(b), self.uses)
        self.parent[b] = a
        old, new = 1 << b, 1 << a
        gained = self.ancestors.pop(b) & ~new & ~self.ancestors[a]
        self.ancestors[a] |= gained
        inherited = self.ancestors[a]
        if gained or b != len(self.parent) + len(self.drafts) - 1:  # else nothing can come after `b` yet
            for number, mask in self.ancestors.items():
                if mask & old:
                    self.ancestors[number] = mask & ~old | new | inherited
                elif gained and mask & new:
                    self.ancestors[number] = mask | inherited

    def _sweep(self) -> None:
        """Merge groups that read the same arrays and do not depend on each other."""
        readers: dict[Var, list[int]] = {}
        for number, draft in sorted(self.drafts.items()):
            if draft.kind in FUSIBLE:
                for var in draft.reads:
                    if var.aval.shape:
                        readers.setdefault(var, []).append(number)
        for numbers in readers.values():
            for a, b in itertools.pairwise(numbers):
                a, b = self._find(a), self._find(b)
                if a != b and not self._related(a, b) and self.fuel != 0:
                    first, second = self.drafts[a], self.drafts[b]
                    if not _same_domain(first, second) or not _same_time(first, second):
                        continue
                    reason = blocker(first, second, self.uses, self.limits)
                    if reason is None:
                        self._merge(a, b)
                    else:
                        self.decisions.append(Decision(_label(first), _label(second), reason))

    def _related(self, a: int, b: int) -> bool:
        return bool(self.ancestors[a] >> b & 1 or self.ancestors[b] >> a & 1)


def _reason(eqn: Eqn, kind: Kind, reason: str | None) -> str:
    """Why an equation is no generated kernel; control flow learns that when its bodies are planned."""
    return "" if kind is Kind.CONTROL else reason or f"{eqn.primitive.name} is a library call"


def _same_domain(a: Draft, b: Draft) -> bool:
    """Whether two independent drafts run over the same axes, as far as the arrays that both read tell."""
    shared = [v for v in a.reads.keys() & b.reads.keys() if len(a.reads[v]) == len(b.reads[v]) == 1]
    covered = {x for v in shared for x in next(iter(b.reads[v]))}
    return set(b.axes) <= covered and len(a.axes) == len(b.axes)


def _same_time(a: Draft, b: Draft) -> bool:
    """Whether no optimization barrier sets the two apart: what is computed again late must not move to the first time."""
    return {scope for _, scope in a.barred} == {scope for _, scope in b.barred}


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
    return Uses({v: frozenset(s) for v, s in of.items()}, {eqn: n for n, eqn in enumerate(anchors)})


def _label(draft: Draft) -> str:
    """The draft's operations and the line of its last equation, for a person."""
    found = dict[str, None]()
    for eqn in draft.eqns:
        found[eqn.primitive.name] = None
        if len(found) > 4:
            break
    names = list(found)
    text = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    line = draft.eqns[-1].source.short if draft.eqns[-1].source.file else ""
    return f"{text} ({line})" if line else text


def _ordered(drafts: list[Draft], graph: Graph) -> list[Draft]:
    """Drafts so that each comes after those that it needs; otherwise in program order."""
    position = {eqn: n for n, eqn in enumerate(graph.eqns)}
    home = {v: draft for draft in drafts for eqn in draft.eqns for v in eqn.outvars}
    result: list[Draft] = []
    state: dict[Draft, int] = {}
    for draft in drafts:
        draft.eqns.sort(key=position.__getitem__)
    for root in sorted(drafts, key=lambda d: position[d.eqns[0]]):
        stack = [root]
        while stack:
            draft = stack[-1]
            if state.get(draft) == 2:
                stack.pop()
                continue
            needs = [home[v] for v in draft.inputs if v in home and state.get(home[v]) != 2]
            if state.get(draft) == 1 or not needs:
                assert not needs, "the drafts depend on each other in a circle"
                state[draft] = 2
                result.append(draft)
                stack.pop()
            else:
                state[draft] = 1
                stack.extend(sorted(needs, key=lambda d: -position[d.eqns[0]]))
    return result


def _with_bodies(group: FusionGroup, backend: Any, prefix: str) -> FusionGroup:
    """A group of control flow with its bodies planned, and the reason why it cannot run natively, if there is one."""
    if backend.limits.whole:
        if group.kind is not Kind.CONTROL:
            return backend.settle(group)  # type: ignore[no-any-return]
        plans, _ = _planned(bodies(group.graph.eqns[-1], native=False), backend, prefix, True)
        return replace(group, bodies=plans, reason="", refusal=group.reason)
    if group.kind is Kind.LIBRARY and backend.native(group) is None:
        return replace(group, reason="")
    if group.kind is not Kind.CONTROL:
        return group
    if not backend.limits.control:
        return replace(group, reason=f"{group.ops[-1]} runs step by step in NumPy")
    eqn = group.graph.eqns[-1]
    plans, reason = _planned(bodies(eqn, native=True), backend, prefix, False)
    if reason:
        plans, _ = _planned(bodies(eqn, native=False), backend, prefix, True)
    return replace(group, bodies=plans, reason=reason, refusal=group.reason)


def _planned(graphs: dict[str, Graph], backend: Any, prefix: str, launches: bool) -> tuple[tuple[Plan, ...], str]:
    """Plans of bodies, and the reason why some group of theirs is not native."""
    plans = tuple(partition(body, backend, f"{prefix}_{name}_", launches=launches) for name, body in graphs.items())
    reasons = (backend.native(inner) for plan in plans for inner in plan.groups)
    return plans, next((r for r in reasons if r is not None), "")


def _finish(draft: Draft, uses: Uses, views: Views, number: str) -> FusionGroup:
    """The draft as a group, with its own graph: movement equations copied in, inputs and outputs named."""
    eqns: dict[Eqn, None] = {}
    for eqn in draft.eqns:
        for operand in eqn.invars:
            eqns.update(dict.fromkeys(views(operand).path))
        eqns[eqn] = None
    produced = {v for eqn in eqns for v in eqn.outvars}
    inputs = tuple(dict.fromkeys(v for eqn in eqns for v in eqn.operands() if v not in produced))
    outputs = tuple(v for eqn in draft.eqns for v in eqn.outvars if v in draft.open)
    name = _name(draft, number)
    sub = Graph(inputs, (), (), tuple(eqns), outputs, name)
    inside = inner_eqns(draft.eqns) if draft.kind is Kind.LOOP else draft.eqns
    sources = tuple(dict.fromkeys(eqn.source for eqn in inside))
    return FusionGroup(draft.kind, sub, tuple(draft.rows), tuple(draft.cols), name, sources, draft.layout, draft.reason)


def _name(draft: Draft, number: str) -> str:
    """`k0_sub_exp_div`: the number of the group and its last few distinct operations."""
    names = [
        n for n in dict.fromkeys(eqn.primitive.name for eqn in draft.eqns) if n not in ("copy", "convert_element_type")
    ]
    words = "_".join(names[-4:]) or draft.eqns[-1].primitive.name
    return f"{number}_{''.join(c if c.isalnum() else '_' for c in words)}"
