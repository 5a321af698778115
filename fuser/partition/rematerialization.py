"""Values that kernels hand on through memory, computed again in each kernel that reads them where that costs less.

In: a graph and its candidates. Out: the graph in which what is cheap to compute again stands once for each reader, behind an
optimization barrier, so that the next partition leaves it there. Masks, coordinates and differences of rows and columns
need not lie in memory because a library's step stands between two kernels that need them.

Briggs, Cooper and Torczon, "Rematerialization" (PLDI 1992), for arrays in the place of registers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
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
from fuser.partition.group import FUSIBLE
from fuser.passes.dce import drop_dead

MOST_EQNS = 16  # that are written again for one value


@dataclass(eq=False)
class _Again:
    """What making a value in a reader takes: the equations, what they read from memory, and additions an element."""

    eqns: dict[Eqn, None] = field(default_factory=dict)
    read: dict[Var, None] = field(default_factory=dict)
    operations: float = 0


@dataclass(frozen=True)
class Rewritten:
    """A graph in which readers compute values again, and for each equation that was added, the reader's first one."""

    graph: Graph
    reader: dict[Eqn, Eqn]


def rematerialized(
    graph: Graph, candidates: Collection[Candidate], uses: Uses, views: Views, target: Target, never: Collection[Eqn]
) -> Rewritten | None:
    """The graph in which readers compute what is cheaper so, but for those whose first equation is one of `never`; None
    where nothing is."""
    choice = _Choice(graph, candidates, uses, views, target, never)
    for var in choice.stored():
        choice.decide(var)
    return _rewritten(graph, choice) if choice.copied else None


class _Choice:
    """Decides value by value, in the order of the program: what is not stored any more cannot be read by what comes after."""

    def __init__(
        self,
        graph: Graph,
        candidates: Collection[Candidate],
        uses: Uses,
        views: Views,
        target: Target,
        never: Collection[Eqn],
    ) -> None:
        self.graph, self.uses, self.views, self.target, self.never = graph, uses, views, target, never
        self.home = {v: c for c in candidates for v in c.produced}
        self.by_number = {n: c for c in candidates for n in c.numbers}
        self.maker = {v: eqn for eqn in graph.eqns for v in eqn.outvars}
        self.gone = set[Var]()
        self.extra: dict[Candidate, float] = {}
        self.copied: dict[Candidate, dict[Eqn, None]] = {}
        self.compared = {
            v for eqn in graph.eqns if eqn.primitive in (eq_p, ne_p) for v in (views(x).source for x in eqn.invars)
        }

    def stored(self) -> Iterable[Var]:
        """The values that lie in memory between generated kernels, and can be made of others."""
        for eqn in self.graph.eqns:
            for var in eqn.outvars:
                home = self.home.get(var)
                if home is not None and var in home.live_out and home.kind in FUSIBLE and self._repeatable(eqn):
                    yield var

    def decide(self, var: Var) -> None:
        """Choose the kernels that are to compute a value for themselves: all that read it, if it then need not be stored, or some."""
        home, numbers = self.home[var], self.uses.of.get(var, frozenset())
        outside = {id(c): c for n in numbers if n >= 0 and (c := self.by_number[n]) is not home}
        made = {key: again for key, c in outside.items() if (again := self._again(var, c)) is not None}
        if not made:
            return
        spent = {key: self._spent(outside[key], var, again) for key, again in made.items()}
        everywhere = -1 not in numbers and len(made) == len(outside)
        stored = self._seconds(home) - self._seconds(home, {var}) if everywhere else 0.0
        chosen = [key for key, seconds in spent.items() if everywhere or seconds < 0]
        if not self._pays(stored, [spent[key] for key in chosen]):
            return
        if everywhere:
            self.gone.add(var)
        for key in chosen:
            reader = outside[key]
            self.extra[reader] = self.extra.get(reader, 0) + made[key].operations
            self.copied.setdefault(reader, {}).update(made[key].eqns)

    def _spent(self, reader: Candidate, var: Var, again: _Again) -> float:
        """Seconds more that a reader takes, less than 0 where reading took longer."""
        return self._seconds(reader, {var}, again) - self._seconds(reader)

    def _pays(self, stored: float, spent: Iterable[float]) -> bool:
        seconds = list(spent)
        saved = stored - sum(s for s in seconds if s < 0)
        lost = sum(s for s in seconds if s > 0)
        return saved - self.target.margin * lost > self.target.least * self.target.launch

    def _repeatable(self, eqn: Eqn) -> bool:
        if len(eqn.outvars) != 1 or eqn.primitive.fusion is not Fusion.ELEMENTWISE:
            return False
        return eqn.outvars[0] not in self.compared or not is_inexact(eqn.outvars[0].aval.dtype)

    def _again(self, var: Var, reader: Candidate) -> _Again | None:
        """How a reader makes a value of what lies in memory; None where it cannot, or that is long."""
        if reader.kind not in FUSIBLE or reader.eqns[0] in self.never:
            return None
        if var in reader.opaque or len(reader.reads.get(var, ())) != 1:
            return None
        domain = math.prod(x.extent for x in reader.axes)
        again, stack = _Again(), [self.maker[var]]
        again.eqns[stack[0]] = None
        while stack:
            eqn = stack.pop()
            elements = eqn.outvars[0].aval.size  # of which a reader makes those of a row anew along it
            times = max(elements, domain) * max(reader.sweeps, 1) if elements > 1 else 1
            again.operations += cost(eqn, self.target) * times
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
                lies = source not in self.home or (source in self.home[source].live_out and source not in self.gone)
                small = source.aval.size <= 1 or 4 * source.aval.nbytes <= var.aval.nbytes
                if lies and (small or maker is None or not self._repeatable(maker)):
                    again.read[source] = None
                    continue
                if maker is None or not self._repeatable(maker) or len(again.eqns) >= MOST_EQNS:
                    return None
                again.eqns[maker] = None
                stack.append(maker)
        return again

    def _seconds(self, candidate: Candidate, without: Collection[Var] = (), again: _Again | None = None) -> float:
        """About what a candidate takes, without moving some of its values, and making one `again`."""
        moved = (
            (candidate.inputs | candidate.live_out | (again.read.keys() if again else set())) - set(without) - self.gone
        )
        work = candidate.cost * math.prod(x.extent for x in candidate.axes) + self.extra.get(candidate, 0)
        work += again.operations if again else 0
        moving = self.target.move(sum(v.aval.nbytes for v in moved - candidate.produced | moved & candidate.live_out))
        return max(moving, work / self.target.operations)


def _in_order(dimensions: DimensionMap | None) -> bool:
    """Whether an operand is read along the dimensions that it has, in their order."""
    kept = None if dimensions is None else [d for d in dimensions if d is not None]
    return kept is not None and kept == sorted(kept)


class _Copier:
    """Writes what makes a reader's values once more, before the equations that read them."""

    def __init__(self, reader: Candidate, choice: _Choice, scope: int) -> None:
        self.reader, self.choice, self.scope = reader, choice, scope
        self.copied = choice.copied[reader]
        self.known: dict[Operand, Operand] = {}
        self.made: list[Eqn] = []

    def operand(self, operand: Operand) -> Operand:
        """An operand of the reader's, or of what is copied for it."""
        if isinstance(operand, Literal) or operand in self.reader.produced:
            return operand
        if operand not in self.known:
            eqn = self.choice.maker.get(operand)
            self.known[operand] = operand
            if eqn is not None and (eqn in self.copied or is_view(eqn)):
                self._copy(eqn, eqn in self.copied)
            elif eqn is not None and operand not in self.reader.inputs:
                self.known[operand] = late = Var(operand.aval)
                self.made.append(Eqn(optimization_barrier_p, (operand,), {"scope": self.scope}, (late,), eqn.source))
        return self.known[operand]

    def _copy(self, eqn: Eqn, computed: bool) -> None:
        operands = tuple(self.operand(v) for v in eqn.invars)
        if computed or operands != eqn.invars:
            results = tuple(Var(v.aval) for v in eqn.outvars)
            self.known |= dict(zip(eqn.outvars, results, strict=True))
            self.made.append(replace(eqn, invars=operands, outvars=results))


def _rewritten(graph: Graph, choice: _Choice) -> Rewritten:
    """The graph with copies of what makes values before the readers' equations."""
    scope, eqns, reader = next(scopes), list[Eqn](), dict[Eqn, Eqn]()
    copiers = {eqn: copier for c in choice.copied for copier in [_Copier(c, choice, scope)] for eqn in c.eqns}
    for eqn in graph.eqns:
        copier = copiers.get(eqn)
        if copier is None:
            eqns.append(eqn)
            continue
        operands = tuple(copier.operand(v) for v in eqn.invars)
        eqns += copier.made
        reader |= {copy: copier.reader.eqns[0] for copy in copier.made if not is_view(copy)}
        copier.made.clear()
        eqns.append(eqn if operands == eqn.invars else replace(eqn, invars=operands))
    return Rewritten(drop_dead(replace(graph, eqns=tuple(eqns))), reader)
