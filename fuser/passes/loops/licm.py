"""Loop-invariant code motion: what a scan's or a while's body computes from its constants alone is computed before the loop.

All values are pure and no operation can fail, so it is always right; it is done where a load in each iteration is cheaper
than the arithmetic. Movement stays in the body, where it is index arithmetic, but for what library calls read, which each iteration
would copy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from fuser.ir.cost import cost
from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Control, Fusion
from fuser.ir.rewrite import Rewriter

CHEAP = 8  # additions an element that are no dearer than a load
MOST_BYTES = 1 << 26  # a larger value is only kept where it is not much more than what it is made of
DEAR = 1000


def hoist_invariants(graph: Graph) -> Graph:
    """The graph with invariant work of its loops in front of them; inner loops have had their turn."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        rule = _RULES.get(eqn.primitive.control)
        rewriter.keep(eqn if rule is None else rule(eqn, rewriter))
    return rewriter.finish()


def _scan(eqn: Eqn, rewriter: Rewriter) -> Eqn:
    params = eqn.params
    consts = params["num_consts"]
    if params["length"] < 2:
        return eqn
    body, made = _split(params["jaxpr"], consts, eqn.invars[:consts], rewriter)
    if not made:
        return eqn
    params = {**params, "jaxpr": body, "num_consts": consts + len(made)}
    return replace(eqn, invars=(*eqn.invars[:consts], *made, *eqn.invars[consts:]), params=params)


def _while(eqn: Eqn, rewriter: Rewriter) -> Eqn:
    params = eqn.params
    tests, consts = params["cond_nconsts"], params["body_nconsts"]
    of_test, of_body, initial = eqn.invars[:tests], eqn.invars[tests : tests + consts], eqn.invars[tests + consts :]
    test, for_test = _split(params["cond_jaxpr"], tests, of_test, rewriter)
    body, for_body = _split(params["body_jaxpr"], consts, of_body, rewriter)
    if not for_test and not for_body:
        return eqn
    params = {
        "cond_jaxpr": test,
        "cond_nconsts": tests + len(for_test),
        "body_jaxpr": body,
        "body_nconsts": consts + len(for_body),
    }
    return replace(eqn, invars=(*of_test, *for_test, *of_body, *for_body, *initial), params=params)


_RULES: dict[Control | None, Any] = {Control.SCAN: _scan, Control.WHILE: _while}


def _split(body: Graph, consts: int, operands: tuple[Operand, ...], rewriter: Rewriter) -> tuple[Graph, list[Operand]]:
    """The body with further constants behind its own, and their values, which are computed in the outer graph from here."""
    work = Invariants(body, body.invars[:consts])
    chosen = work.worth_hoisting()
    if not chosen:
        return body, []
    moved = work.needed_by(chosen)
    kept, new = _boundary(body, moved, work.copied)
    before = Graph(body.invars[:consts], (), (), tuple(eqn for eqn in body.eqns if eqn in moved), tuple(new))
    values = rewriter.splice(before, operands)
    invars = (*body.invars[:consts], *new, *body.invars[consts:])
    return replace(body, invars=invars, eqns=kept), values


def _boundary(body: Graph, moved: set[Eqn], copied: Collection[Var]) -> tuple[tuple[Eqn, ...], list[Var]]:
    """The equations that stay, movement among them that moves too unless its result is to be `copied`, and the moved values that they read."""
    needed = {v for v in body.outvars if isinstance(v, Var)}
    made: dict[Var, None] = {}
    kept = []
    for eqn in reversed(body.eqns):
        index_only = eqn.primitive.fusion is Fusion.MOVEMENT and not any(v in copied for v in eqn.outvars)
        if eqn not in moved or (index_only and any(v in needed for v in eqn.outvars)):
            kept.append(eqn)
            needed.update(eqn.operands())
        else:
            made.update((v, None) for v in reversed(eqn.outvars) if v in needed)
    return tuple(reversed(kept)), list(reversed(made))


@dataclass(frozen=True)
class _Made:
    """What is known of an invariant value: additions an element to compute it, and the constants that it is made of."""

    price: int
    leaves: frozenset[Var]


class Invariants:
    """The values of a body that depend on nothing but `fixed` inputs."""

    def __init__(self, body: Graph, fixed: Iterable[Var]) -> None:
        self.body = body
        self.made: dict[Operand, _Made] = {v: _Made(0, frozenset((v,))) for v in fixed}
        self.producers: dict[Var, Eqn] = {}
        self.wanted: dict[Var, None] = {}  # invariant values that the rest of the body reads
        self.stored: dict[
            Var, None
        ] = {}  # those of them that products and library calls read, which have their operands in memory
        self.copied: dict[Var, None] = {}  # those that are parts of others, and that library calls read
        for eqn in body.eqns:
            if all(v in self.made for v in eqn.operands()):
                self._note(eqn)
            else:
                read = {v: None for v in eqn.operands() if v in self.made}
                self.wanted.update(read)
                if eqn.primitive.fusion in (Fusion.DOT, Fusion.LIBRARY):
                    self.stored.update(read)
                if eqn.primitive.fusion is Fusion.LIBRARY:
                    self.copied.update((v, None) for v in read if self._is_part(v))
        self.wanted.update((v, None) for v in body.outvars if isinstance(v, Var) and v in self.made)

    def _note(self, eqn: Eqn) -> None:
        operands = [self.made[v] for v in eqn.operands()]
        leaves = frozenset[Var]().union(*(o.leaves for o in operands))
        inner = max((o.price for o in operands), default=0)
        if eqn.primitive.fusion is not Fusion.MOVEMENT:
            inner = min(_price(eqn, sum(o.price for o in operands)), DEAR)
        for var in eqn.outvars:
            self.made[var] = _Made(inner, leaves)
            self.producers[var] = eqn

    def worth_hoisting(self) -> list[Var]:
        """The values to be computed before the loop: dear ones, those that each iteration would compute and store, and those that
        spare the body a load."""
        sources = dict.fromkeys(s for v in self.wanted for s in self._behind_movement(v))
        stored = {s for v in self.stored for s in self._behind_movement(v) if s in self.producers and s.aval.shape}
        dear = [v for v in sources if (self.made[v].price > CHEAP or v in stored) and self._fits(v)]
        chosen = dict.fromkeys(dear)
        still = [s for s in sources if s not in chosen]
        for var in still:
            others = frozenset[Var]().union(*(self.made[s].leaves for s in still if s is not var))
            spared = sum(v.aval.nbytes for v in self.made[var].leaves - others)
            if var in self.producers and var.aval.shape and spared > var.aval.nbytes:
                chosen[var] = None
        chosen.update((v, None) for v in self.copied if self._fits(v))
        return list(chosen)

    def _is_part(self, var: Var) -> bool:
        """Whether a value is moved from others and is not all of one of them, which might be a view of its memory."""
        eqn = self.producers.get(var)
        if eqn is None or eqn.primitive.fusion is not Fusion.MOVEMENT:
            return False
        operands = list(eqn.operands())
        return all(v.aval.size != var.aval.size for v in operands) or any(self._is_part(v) for v in operands)

    def _behind_movement(self, var: Var) -> list[Var]:
        """The computed values and constants that a value is only another view of."""
        eqn = self.producers.get(var)
        if eqn is None or eqn.primitive.fusion is not Fusion.MOVEMENT:
            return [var]
        return [s for v in eqn.operands() for s in self._behind_movement(v)]

    def _fits(self, var: Var) -> bool:
        whole = sum(v.aval.nbytes for v in self.made[var].leaves)
        return var.aval.nbytes <= max(MOST_BYTES, 4 * whole)

    def needed_by(self, chosen: Iterable[Var]) -> set[Eqn]:
        """The equations that compute the values."""
        found: set[Eqn] = set()
        stack = list(chosen)
        while stack:
            eqn = self.producers.get(stack.pop())
            if eqn is not None and eqn not in found:
                found.add(eqn)
                stack.extend(eqn.operands())
        return found


def _price(eqn: Eqn, operands: int) -> int:
    """Additions for one element of the result, those of its operands included."""
    fusion = eqn.primitive.fusion
    if fusion is Fusion.ELEMENTWISE:
        return operands + cost(eqn)
    if fusion in (Fusion.REDUCE, Fusion.SCAN):
        count = eqn.invars[0].aval.size // max(eqn.outvars[0].aval.size, 1)
        return max(count, 1) * (1 + operands)
    if fusion is Fusion.DOT:
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * math.prod(eqn.invars[0].aval.shape[d] for d in contracted) + operands
    return DEAR
