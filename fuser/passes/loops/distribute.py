"""Loop distribution: what iterations compute for results alone is done after the loop, for all of them at once.

A scan is cut in two (Allen and Kennedy, Optimizing Compilers for Modern Architectures, 2001, section 5.2): the recurrence, which
hands on the values that the rest reads as further results; and the rest, whose iterations need nothing of each other, so
that `parallelise_loops` writes it out. A recurrent network's outputs become one product of all states, which reads its matrix once,
and functions of maths of a few numbers a step run in vectors along the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fuser.ir.cost import cost
from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Control, Fusion
from fuser.ir.rewrite import Rewriter
from fuser.passes.dce import drop_dead
from fuser.passes.loops.parallelise import small

LANES = 16  # numbers of an iteration, from which a loop's own vectors are full
ROWS = 16  # of a product with a matrix that all iterations share, from which each reads it often enough
MATRIX = 1 << 10  # elements of such a matrix that are worth reading once
FEWEST = 64  # iterations
MOST_BYTES = 1 << 26  # of the values that the rest reads
CROSSING = 2  # additions that writing a value and reading it again takes
LATENCY = 8  # additions that begin until the result of the first is there


@dataclass(frozen=True)
class _Halves:
    """A scan's body in two: equations of the recurrence, those of the rest, and what these read of the recurrence."""

    recurrence: Sequence[Eqn]
    rest: Sequence[Eqn]
    crossing: Sequence[Var]


def distribute_loops(graph: Graph) -> Graph:
    """The graph with scans cut in two where the rest is worth more than what it reads."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        halves = _halves(eqn) if eqn.primitive.control is Control.SCAN and eqn.params["length"] >= FEWEST else None
        for part in (eqn,) if halves is None else _cut(eqn, halves):
            rewriter.keep(part)
    return rewriter.finish()


def _halves(eqn: Eqn) -> _Halves | None:
    """Where a scan is cut; None where it is better whole."""
    body: Graph = eqn.params["jaxpr"]
    consts, carried = eqn.params["num_consts"], eqn.params["num_carry"]
    if not carried:
        return None
    recurrence = _needed(body.outvars[:carried], body)
    rest = [e for e in body.eqns if e not in recurrence]
    made = {v for e in rest for v in e.outvars}
    results = [v for v in body.outvars[carried:] if v in made]
    state = {*body.invars[consts : consts + carried], *(v for e in recurrence for v in e.outvars)}
    crossing = [v for v in dict.fromkeys(v for e in rest for v in e.operands()) if v in state]
    if not results or eqn.params["length"] * sum(v.aval.nbytes for v in crossing) > MOST_BYTES:
        return None
    if not (_shares_matrices(rest, body, consts) or _fills_vectors(eqn, recurrence, rest, (*crossing, *results))):
        return None
    return _Halves([e for e in body.eqns if e in recurrence], rest, crossing)


def _needed(outputs: Iterable[Operand], body: Graph) -> set[Eqn]:
    """The equations that outputs need."""
    needed, found = set(outputs), set[Eqn]()
    for eqn in reversed(body.eqns):
        if not needed.isdisjoint(eqn.outvars):
            found.add(eqn)
            needed.update(eqn.operands())
    return found


def _shares_matrices(rest: Sequence[Eqn], body: Graph, consts: int) -> bool:
    """Whether the rest multiplies a few rows in each iteration by a matrix that is the same in all."""
    fixed: set[Operand] = {*body.invars[:consts], *body.constvars}
    for eqn in rest:
        if all(v in fixed for v in eqn.operands()):
            fixed.update(eqn.outvars)
        elif eqn.primitive.fusion is Fusion.DOT:
            matrices = [v for v in eqn.invars if v in fixed and v.aval.size >= MATRIX]
            if any(_rows(eqn, matrix) < ROWS for matrix in matrices):
                return True
    return False


def _rows(eqn: Eqn, matrix: Operand) -> int:
    """How often a product reads each element of one operand."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    depth = math.prod(eqn.invars[0].aval.shape[d] for d in contracted)
    return int(eqn.outvars[0].aval.size * depth // matrix.aval.size)


def _fills_vectors(eqn: Eqn, recurrence: set[Eqn], rest: Sequence[Eqn], kept: Sequence[Operand]) -> bool:
    """Whether the rest is elementwise work on so few numbers that a loop's vectors are not full, and takes less apart: whole, it may
    be done while the recurrence waits for itself; apart, what is `kept` is written and read again."""
    if any(e.primitive.fusion not in (Fusion.ELEMENTWISE, Fusion.MOVEMENT) for e in rest):
        return False
    body: Graph = eqn.params["jaxpr"]
    carries = body.invars[eqn.params["num_consts"] :][: eqn.params["num_carry"]]
    lanes = max(v.aval.size for e in rest for v in e.outvars)
    waiting, own, work = _chain(body, carries, recurrence), _work(recurrence), _work(rest)
    apart = max(waiting, own) + work * lanes / LANES + CROSSING * sum(v.aval.size for v in kept)
    return 1 < lanes < LANES and apart < max(waiting, own + work)


def _work(eqns: Iterable[Eqn]) -> int:
    """Additions of an iteration's elementwise equations, each in one vector."""
    return sum(cost(e) for e in eqns if e.primitive.fusion is Fusion.ELEMENTWISE)


def _chain(body: Graph, carries: Sequence[Var], recurrence: set[Eqn]) -> float:
    """Additions that begin while the longest chain of operations runs that an iteration's carries wait for."""
    ready: dict[Operand, float] = dict.fromkeys(carries, 0.0)
    for eqn in body.eqns:
        waited = [ready[v] for v in eqn.operands() if v in ready]
        if eqn in recurrence and waited:
            computed = eqn.primitive.fusion is not Fusion.MOVEMENT
            ready |= dict.fromkeys(eqn.outvars, max(waited) + computed * LATENCY * (1 + cost(eqn) / 4))
    return max(ready.values())


def _cut(eqn: Eqn, halves: _Halves) -> Sequence[Eqn]:
    """The recurrence and the rest as scans of their own; the scan as it is where the rest would stay one."""
    body: Graph = eqn.params["jaxpr"]
    consts, carried = eqn.params["num_consts"], eqn.params["num_carry"]
    made = {v for e in halves.rest for v in e.outvars}
    own = [n for n, v in enumerate(body.outvars[carried:], carried) if v in made]
    others = [n for n in range(len(body.outvars)) if n not in own]
    rows = tuple(Var(v.aval.update(shape=(eqn.params["length"], *v.aval.shape))) for v in halves.crossing)
    first = replace(
        body,
        eqns=tuple(halves.recurrence),
        outvars=(*(body.outvars[n] for n in others), *halves.crossing),
    )
    second = replace(
        body,
        invars=(*body.invars[:consts], *body.invars[consts + carried :], *halves.crossing),
        eqns=tuple(halves.rest),
        outvars=tuple(body.outvars[n] for n in own),
    )
    recurrence = replace(
        eqn,
        params={**eqn.params, "jaxpr": drop_dead(first)},
        outvars=(*(eqn.outvars[n] for n in others), *rows),
    )
    rest = replace(
        eqn,
        invars=(*eqn.invars[:consts], *eqn.invars[consts + carried :], *rows),
        params={**eqn.params, "jaxpr": drop_dead(second), "num_carry": 0},
        outvars=tuple(eqn.outvars[n] for n in own),
    )
    return (recurrence, rest) if small(rest) else (eqn,)
