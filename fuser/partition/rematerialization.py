"""Values that kernels hand on through memory, computed again in each kernel that reads them where that costs less.

In: a graph and its candidates. Out: the graph in which what is cheap to compute again stands once for each reader, behind an
optimization barrier, so that the next partition leaves it there. Masks, coordinates and differences of rows and columns
need not lie in memory because a library's step stands between two kernels that need them.

Briggs, Cooper and Torczon, "Rematerialization" (PLDI 1992), for arrays in the place of registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from fuser.ir.cost import cost
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.target import Target
from fuser.ir.types import is_inexact
from fuser.ops.elementwise import eq_p, ne_p
from fuser.ops.remat import optimization_barrier_p, scopes
from fuser.partition.axes import DimensionMap, Views, is_view
from fuser.partition.candidate import Candidate, Uses
from fuser.partition.group import FUSIBLE, Kind
from fuser.passes.dce import drop_dead

Never = Collection[tuple[Eqn, Eqn]]

MOST_EQNS = 16  # that are written again for one value


@dataclass(eq=False)
class _Again:
    """What making a value in a reader takes: the equations, what they read from memory, and of that what no kernel stores yet."""

    eqns: dict[Eqn, None] = field(default_factory=dict)
    read: dict[Var, None] = field(default_factory=dict)
    roots: dict[Var, None] = field(default_factory=dict)


@dataclass(eq=False)
class _State:
    """What has been decided: values that are not stored any more, or now are; by reader what it computes, reads, and reads no more."""

    gone: set[Var] = field(default_factory=set)
    stored: set[Var] = field(default_factory=set)
    copied: dict[Candidate, dict[Eqn, None]] = field(default_factory=dict)
    read: dict[Candidate, set[Var]] = field(default_factory=dict)
    unread: dict[Candidate, set[Var]] = field(default_factory=dict)
    work: dict[Candidate, float] = field(default_factory=dict)  # additions of what a reader computes

    def copy(self) -> _State:
        return _State(
            set(self.gone), set(self.stored), dict(self.copied), dict(self.read), dict(self.unread), dict(self.work)
        )

    def compute(self, var: Var, reader: Candidate, again: _Again, work: Callable[[Eqn, Candidate], float]) -> None:
        """A reader makes a value for itself; `work` counts the additions that an equation takes there."""
        known = self.copied.get(reader, {})
        self.work[reader] = self.work.get(reader, 0) + sum(work(eqn, reader) for eqn in again.eqns if eqn not in known)
        self.copied[reader] = known | again.eqns
        self.read[reader] = self.read.get(reader, set()).union(again.read)
        self.unread[reader] = self.unread.get(reader, set()) | {var}
        self.stored.update(again.roots)


@dataclass(frozen=True)
class Rewritten:
    """A graph in which readers compute values again; of each equation that was added, the reader's first one and its original."""

    graph: Graph
    reader: dict[Eqn, tuple[Eqn, Eqn]]


def rematerialized(
    graph: Graph, candidates: Collection[Candidate], uses: Uses, views: Views, target: Target, never: Never
) -> Rewritten | None:
    """The graph in which readers compute what is cheaper so, but for pairs of a reader's first equation and one to be computed
    again that are in `never`; None where nothing is."""
    choice = _Choice(graph, candidates, uses, views, target, never)
    for home, values in choice.stored():
        choice.decide(home, values)
    return _rewritten(graph, choice) if choice.state.copied else None


class _Choice:
    """Decides kernel by kernel, in the order of the program: what is not stored any more cannot be read by what comes after."""

    def __init__(
        self,
        graph: Graph,
        candidates: Collection[Candidate],
        uses: Uses,
        views: Views,
        target: Target,
        never: Never,
    ) -> None:
        self.graph, self.uses, self.views, self.target, self.never = graph, uses, views, target, never
        self.home = {v: c for c in candidates for v in c.produced}
        self.by_number = {n: c for c in candidates for n in c.numbers}
        self.maker = {v: eqn for eqn in graph.eqns for v in eqn.outvars}
        self.state = _State()
        self.expensive: dict[Eqn, bool] = {}  # what is known of equations
        self.own: dict[Candidate, float] = {}  # additions of a kernel as it is, of a product those of its epilogue
        self.compared = {
            v for eqn in graph.eqns if eqn.primitive in (eq_p, ne_p) for v in (views(x).source for x in eqn.invars)
        }

    def stored(self) -> Iterable[tuple[Candidate, list[Var]]]:
        """By kernel that is generated, or product with an epilogue: the values of one size that it stores and that can be made of others."""
        found: dict[tuple[Candidate, int], list[Var]] = {}
        for eqn in self.graph.eqns:
            for var in eqn.outvars:
                home = self.home.get(var)
                if home is not None and var in home.live_out and _elementwise(home) and self._repeatable(eqn):
                    found.setdefault((home, var.aval.size), []).append(var)
        return ((home, values) for (home, _), values in found.items())

    def decide(self, home: Candidate, values: list[Var]) -> None:
        """Choose the kernels that are to compute values for themselves: all that read them, together where what makes one is most
        of what makes another, or each; or, of a value that stays, some. What is expensive to compute may be stored in their place."""
        if 1 < len(values) <= MOST_EQNS and (self._take(home, values, False) or self._take(home, values, True)):
            return
        for var in values:
            _ = self._take(home, [var], False) or self._take(home, [var], True)

    def _take(self, home: Candidate, values: list[Var], keep: bool) -> bool:
        """Whether it pays that all readers of these values make them, or of one value some; it is decided so then. With `keep` what
        takes longer to compute than to store is stored."""
        gone = {var: made for var in values if (made := self._everywhere(var, keep)) is not None}
        some = self._readers(values[0], keep) if not gone and len(values) == 1 else {}
        if not gone and not some:
            return False
        state = self.state.copy()
        state.gone.update(gone)
        readers: dict[Candidate, None] = {}
        for var, made in gone.items():
            for reader, again in made.items():
                state.compute(var, reader, again, self._work)
                readers[reader] = None
        for reader, again in some.items():
            trial = state.copy()
            trial.compute(values[0], reader, again, self._work)
            if not again.roots and self._seconds(reader, trial) < self._seconds(reader, state):
                state, readers[reader] = trial, None
        changes = [self._seconds(c, state) - self._seconds(c, self.state) for c in (home, *readers)]
        saved, lost = -sum(s for s in changes if s < 0), sum(s for s in changes if s > 0)
        if not readers or saved - self.target.margin * lost <= self.target.least * self.target.launch:
            return False
        self.state = state
        return True

    def _everywhere(self, var: Var, keep: bool) -> dict[Candidate, _Again] | None:
        """How each reader makes a value; None where one cannot, or it is a result, so that it is stored in any case."""
        numbers, home = self.uses.of.get(var, frozenset()), self.home[var]
        if -1 in numbers:
            return None
        made = self._readers(var, keep)
        outside = {self.by_number[n] for n in numbers if n >= 0} - {home}
        return made if made and len(made) == len(outside) else None

    def _readers(self, var: Var, keep: bool) -> dict[Candidate, _Again]:
        """The kernels that can make a value for themselves, and how."""
        numbers = sorted(n for n in self.uses.of.get(var, frozenset()) if n >= 0)
        outside = dict.fromkeys(c for n in numbers if (c := self.by_number[n]) is not self.home[var])
        return {c: again for c in outside if (again := self._again(var, c, keep)) is not None}

    def _repeatable(self, eqn: Eqn) -> bool:
        if len(eqn.outvars) != 1 or eqn.primitive.fusion is not Fusion.ELEMENTWISE:
            return False
        return eqn.outvars[0] not in self.compared or not is_inexact(eqn.outvars[0].aval.dtype)

    def _again(self, var: Var, reader: Candidate, keep: bool) -> _Again | None:
        """How a reader makes a value of what lies in memory; None where it cannot, or that is long."""
        if not _elementwise(reader):
            return None
        if var in reader.opaque or len(reader.reads.get(var, ())) != 1:
            return None
        again, stack = _Again(), [self.maker[var]]
        again.eqns[stack[0]] = None
        while stack:
            eqn = stack.pop()
            if keep and self._expensive(eqn):
                return None
            for operand in eqn.invars:
                view = self.views(operand)
                if view.source is not None and not _in_order(view.dimensions):
                    return None
                source = view.source
                if source is None or source in again.read or source in reader.inputs or source in reader.produced:
                    if source is not None:
                        again.read[source] = None
                    continue
                maker = self.maker.get(source)
                if maker in again.eqns:
                    continue
                if self._lies(source) and (
                    4 * source.aval.nbytes <= var.aval.nbytes
                    or source.aval.size <= 1
                    or maker is None
                    or not self._repeatable(maker)
                ):
                    again.read[source] = None
                    continue
                fixed = maker is not None and (not self._repeatable(maker) or (keep and self._expensive(maker)))
                if fixed and self.home.get(source) is self.home[var]:
                    again.read[source] = again.roots[source] = None
                    continue
                if maker is None or not self._repeatable(maker) or len(again.eqns) >= MOST_EQNS:
                    return None
                again.eqns[maker] = None
                stack.append(maker)
        return again if not any((reader.eqns[0], eqn) in self.never for eqn in again.eqns) else None

    def _work(self, eqn: Eqn, reader: Candidate) -> float:
        """Additions of making a value in a reader, which makes those of a row anew along it."""
        elements = eqn.outvars[0].aval.size
        domain = math.prod(x.extent for x in reader.axes)
        return cost(eqn, self.target) * (max(elements, domain) * max(reader.sweeps, 1) if elements > 1 else 1)

    def _expensive(self, eqn: Eqn) -> bool:
        """Whether a value takes longer to compute than to store."""
        if eqn in self.expensive:
            return self.expensive[eqn]
        out = eqn.outvars[0].aval
        seconds = cost(eqn, self.target) * out.size / self.target.operations
        self.expensive[eqn] = seconds > self.target.move(out.nbytes)
        return self.expensive[eqn]

    def _lies(self, var: Var) -> bool:
        home, state = self.home.get(var), self.state
        return home is None or var in state.stored or (var in home.live_out and var not in state.gone)

    def _seconds(self, candidate: Candidate, state: _State) -> float:
        """About what a candidate takes, of a product the work on its result alone: all else of it stays as it is."""
        product = candidate.kind is Kind.CONTRACTION
        written = (candidate.live_out | (candidate.produced & state.stored)) - state.gone
        read = set(candidate.reads) if product else candidate.inputs
        read = (read - state.unread.get(candidate, set())) | state.read.get(candidate, set())
        moving = self.target.move(sum(v.aval.nbytes for v in (read - candidate.produced - state.gone) | written))
        if candidate not in self.own:
            epilogue = [e for e in candidate.eqns if e.primitive.fusion is Fusion.ELEMENTWISE] if product else []
            each = sum(cost(e, self.target) for e in epilogue) if product else candidate.cost
            self.own[candidate] = each * math.prod(x.extent for x in candidate.axes)
        work = self.own[candidate] + state.work.get(candidate, 0)
        computing = work / self.target.operations
        return max(moving, computing) + self.target.exposed * min(moving, computing)


def _elementwise(candidate: Candidate) -> bool:
    """Whether a kernel computes element by element what it reads and writes along its axes: a product its result's epilogue."""
    return candidate.kind in FUSIBLE or (candidate.kind is Kind.CONTRACTION and not candidate.reason)


def _in_order(dimensions: DimensionMap | None) -> bool:
    """Whether an operand is read along the dimensions that it has, in their order."""
    kept = None if dimensions is None else [d for d in dimensions if d is not None]
    return kept is not None and kept == sorted(kept)


class _Copier:
    """Writes what makes a reader's values once more, before the equations that read them."""

    def __init__(self, reader: Candidate, choice: _Choice, scope: int) -> None:
        self.reader, self.choice, self.scope = reader, choice, scope
        self.copied = choice.state.copied[reader]
        self.known: dict[Operand, Operand] = {}
        self.made: dict[Eqn, Eqn] = {}  # and of what it is a copy

    def operand(self, operand: Operand) -> Operand:
        """An operand of the reader's, or of what is copied for it."""
        if isinstance(operand, Literal) or operand in self.reader.produced:
            return operand
        if operand not in self.known:
            eqn = self.choice.maker.get(operand)
            self.known[operand] = operand
            if eqn is not None and (eqn in self.copied or is_view(eqn)):
                self._copy(eqn, eqn in self.copied)
            elif eqn is not None:
                self.known[operand] = late = Var(operand.aval)
                barrier = Eqn(optimization_barrier_p, (operand,), {"scope": self.scope}, (late,), eqn.source)
                self.made[barrier] = barrier
        return self.known[operand]

    def _copy(self, eqn: Eqn, computed: bool) -> None:
        operands = tuple(self.operand(v) for v in eqn.invars)
        if computed or operands != eqn.invars:
            results = tuple(Var(v.aval) for v in eqn.outvars)
            self.known |= dict(zip(eqn.outvars, results, strict=True))
            self.made[replace(eqn, invars=operands, outvars=results)] = eqn


def _rewritten(graph: Graph, choice: _Choice) -> Rewritten:
    """The graph with copies of what makes values before the readers' equations."""
    scope, eqns, reader = next(scopes), list[Eqn](), dict[Eqn, tuple[Eqn, Eqn]]()
    copiers = {eqn: copier for c in choice.state.copied for copier in [_Copier(c, choice, scope)] for eqn in c.eqns}
    for eqn in graph.eqns:
        copier = copiers.get(eqn)
        if copier is None:
            eqns.append(eqn)
            continue
        operands = tuple(copier.operand(v) for v in eqn.invars)
        eqns += copier.made
        first = copier.reader.eqns[0]
        reader |= {copy: (first, original) for copy, original in copier.made.items() if not is_view(copy)}
        copier.made.clear()
        eqns.append(eqn if operands == eqn.invars else replace(eqn, invars=operands))
    return Rewritten(drop_dead(replace(graph, eqns=tuple(eqns))), reader)
