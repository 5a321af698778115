"""Sinks linear operations out of a scan's accumulators: they are applied once, to the sum, after the loop.

The gradient of a constant of a scan is a sum over the iterations (`add_any` onto a carry), whose order no program sets. Linear
operations with invariant operands are done to the sum; a sum over lanes is summed by lane first; and outer products
become one product of stacked rows. So the body keeps neither reductions nor products, and often is one kernel.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.params import freeze
from fuser.ir.primitive import Control, Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ops.dot import dot_general_p
from fuser.ops.elementwise import add_any_p, add_p, mul_p, neg_p
from fuser.ops.movement import broadcast_in_dim_p, pad_p, reshape_p, slice_p, squeeze_p, transpose_p
from fuser.ops.reduce import reduce_sum_p
from fuser.passes.dce import drop_dead

LANES = 64  # numbers that a loop's kernel reduces in each iteration as it is
MOST_BYTES = 1 << 28  # of rows that are stacked
_MOVEMENT = (transpose_p, reshape_p, broadcast_in_dim_p, squeeze_p)
_LANE_MOVEMENT = (*_MOVEMENT, slice_p)

# How a sum is found: ("total", v), ("sum", *trees), ("apply", eqn, position, tree), ("product", eqn).
Tree = tuple[Any, ...]


def sink_accumulations(graph: Graph) -> Graph:
    """The graph with sums of cotangents taken out of its scans; `add_any` is `add` from here on."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        if eqn.primitive.control is Control.SCAN and eqn.params["length"] > 1:
            sums = _Sums(eqn, rewriter)
            if sums.found:
                sums.rewrite()
                continue
            eqn = replace(eqn, params={**eqn.params, "jaxpr": _plain_sums(eqn.params["jaxpr"])})
        rewriter.keep(eqn)
    return rewriter.finish()


def _plain_sums(body: Graph) -> Graph:
    if not any(eqn.primitive is add_any_p for eqn in body.eqns):
        return body
    eqns = (replace(e, primitive=add_p) if e.primitive is add_any_p else e for e in body.eqns)
    return replace(body, eqns=tuple(eqns))


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, Literal) and operand.val == 0


class _Sums:
    """One scan. `found` says for each carry that is such a sum how it is found after the loop."""

    def __init__(self, eqn: Eqn, rewriter: Rewriter) -> None:
        self.eqn, self.rewriter = eqn, rewriter
        params = eqn.params
        self.body: Graph = params["jaxpr"]
        self.consts, self.carries, self.length = params["num_consts"], params["num_carry"], params["length"]
        self.first = self.consts + self.carries
        self.producers = self.body.producers
        self.fixed = dict(zip(self.body.invars[: self.consts], eqn.invars[: self.consts]))
        self.xs = dict(zip(self.body.invars[self.first :], eqn.invars[self.first :]))
        self.moving: set[Operand] = set(self.body.invars[self.consts :])
        for inner in self.body.eqns:
            if any(v in self.moving for v in inner.operands()):
                self.moving.update(inner.outvars)
        self.added: list[Eqn] = []  # equations that the body does not have yet
        self.sums: dict[tuple[Operand, ...], Operand] = {}
        self.stacks: dict[Var, None] = {}  # values of which every iteration's is kept
        self.lanes = True
        self.found = self._trees()
        if self.found and not self._only_lanes():
            self.lanes = False
            self.stacks = {}
            self.found = self._trees()
        if self.length * sum(v.aval.nbytes for v in self.stacks) > MOST_BYTES:
            self.found = {}

    # How each sum is found.

    def _trees(self) -> dict[int, Tree]:
        uses = Counter(v for e in self.body.eqns for v in e.operands())
        uses.update(v for v in self.body.outvars if isinstance(v, Var))
        found = {}
        for n in range(self.carries):
            carry, out = self.body.invars[self.consts + n], self.body.outvars[n]
            eqn = self.producers.get(out) if isinstance(out, Var) else None
            if eqn is None or eqn.primitive is not add_any_p or uses[carry] != 1 or uses[eqn.outvars[0]] != 1:
                continue
            terms = [v for v in eqn.invars if v is not carry]
            if len(terms) == 1 and isinstance(terms[0], Var) and terms[0] in self.moving:
                tree, gain = self._tree(terms[0])
                if gain:
                    found[n] = tree
        return found

    def _tree(self, var: Operand) -> tuple[Tree, bool]:
        """How the sum of a value over all iterations is found, and whether that spares the iterations anything."""
        total: tuple[Tree, bool] = (("total", var), False)
        eqn = self.producers.get(var) if isinstance(var, Var) else None
        if eqn is None or len(eqn.outvars) != 1:
            return total
        primitive = eqn.primitive
        if primitive in (add_p, add_any_p):
            return self._sum(eqn, total)
        if self._linear(eqn):
            reduced = eqn.invars[0].aval.size // max(eqn.outvars[0].aval.size, 1)
            return self._applied(eqn, 0, primitive is reduce_sum_p and self.lanes and reduced > LANES, total)
        if primitive in (mul_p, dot_general_p):
            return self._product(eqn, total)
        return total

    def _sum(self, eqn: Eqn, total: tuple[Tree, bool]) -> tuple[Tree, bool]:
        """The terms of a sum apart, those that are made alike together, and those without gain as one."""
        terms = self._terms(eqn)
        if not all(v in self.moving and v.aval.shape == eqn.outvars[0].aval.shape for v in terms):
            return total
        trees = [self._tree(v) for v in self._merged(terms)]
        if not any(gain for _, gain in trees):
            return total
        rest = [tree[1] for tree, gain in trees if not gain]
        parts = [tree for tree, gain in trees if gain]
        return ("sum", *parts, *([("total", self._added(rest))] if rest else [])), True

    def _terms(self, eqn: Eqn) -> list[Operand]:
        found: list[Operand] = []
        stack: list[Operand] = list(reversed(eqn.invars))
        while stack:
            operand = stack.pop()
            made = self.producers.get(operand) if isinstance(operand, Var) else None
            if made is not None and made.primitive in (add_p, add_any_p):
                stack += reversed(made.invars)
            else:
                found.append(operand)
        return found

    def _merged(self, terms: list[Operand]) -> list[Operand]:
        """The terms, with one for all that a linear operation makes alike of others: that operation on their sum."""
        alike: dict[Any, list[Operand]] = {}
        for term in terms:
            eqn = self.producers.get(term) if isinstance(term, Var) else None
            key: Any = term
            if eqn is not None and self._linear(eqn):
                params = tuple((k, freeze(v)) for k, v in sorted(eqn.params.items()))
                key = (eqn.primitive, params, eqn.invars[0].aval.shape)
            alike.setdefault(key, []).append(term)
        return [self._once(found) for found in alike.values()]

    def _once(self, terms: list[Operand]) -> Operand:
        if len(terms) == 1:
            return terms[0]
        eqns = [self.producers[v] for v in terms if v in self.producers]
        if len(eqns) < len(terms) or not all(map(self._linear, eqns)):
            return self._added(terms)
        first = eqns[0]
        inner = self._added([eqn.invars[0] for eqn in eqns])
        return self._made(replace(first, invars=(inner, *first.invars[1:]), outvars=(Var(first.outvars[0].aval),)))

    def _added(self, terms: list[Operand]) -> Operand:
        """The sum of values, as the body will compute it."""
        key = tuple(terms)
        if key not in self.sums:
            result = terms[0]
            for term in terms[1:]:
                result = self._made(Eqn(add_p, (result, term), {}, (Var(term.aval),), self.eqn.source))
            self.sums[key] = result
        return self.sums[key]

    def _made(self, eqn: Eqn) -> Operand:
        """The result of an equation that the body does not have yet."""
        self.added.append(eqn)
        self.producers[eqn.outvars[0]] = eqn
        self.moving.add(eqn.outvars[0])
        return eqn.outvars[0]

    @staticmethod
    def _linear(eqn: Eqn) -> bool:
        """Whether the equation is linear in its first operand, and has no other."""
        primitive = eqn.primitive
        return primitive in (*_MOVEMENT, neg_p, reduce_sum_p) or (primitive is pad_p and _is_zero(eqn.invars[1]))

    def _applied(self, eqn: Eqn, position: int, gain: bool, total: tuple[Tree, bool]) -> tuple[Tree, bool]:
        inner, more = self._tree(eqn.invars[position])
        return (("apply", eqn, position, inner), True) if gain or more else total

    def _product(self, eqn: Eqn, total: tuple[Tree, bool]) -> tuple[Tree, bool]:
        """A product with an invariant operand is taken of the sum; one of two rows becomes one of stacked rows."""
        moving = [n for n, v in enumerate(eqn.invars) if v in self.moving]
        dot = eqn.primitive.fusion is Fusion.DOT
        out = eqn.outvars[0].aval
        if len(moving) == 1:
            [position] = moving
            if not self._outside_known(eqn.invars[1 - position]):
                return total
            return self._applied(eqn, position, dot and eqn.invars[position].aval.size <= 2 * out.size, total)
        if not dot or len(moving) != 2 or out.dtype.kind not in "f":
            return total
        new = [v for v in dict.fromkeys(eqn.invars) if v not in self.xs]
        if sum(v.aval.nbytes for v in new) > out.nbytes:
            return total
        self.stacks.update((v, None) for v in new if isinstance(v, Var))
        return ("product", eqn), True

    def _outside_known(self, operand: Operand) -> bool:
        """Whether an invariant value can be had outside."""
        if isinstance(operand, Literal) or operand in self.fixed:
            return True
        eqn = self.producers.get(operand)
        return eqn is not None and len(eqn.outvars) == 1 and all(map(self._outside_known, eqn.invars))

    def _only_lanes(self) -> bool:
        """Whether without the sums each lane could run by itself; else their reductions may as well stay."""
        body, _ = self._new_body()
        return all(
            e.primitive.fusion is Fusion.ELEMENTWISE
            or e.primitive in _LANE_MOVEMENT
            or (e.primitive.fusion is not Fusion.MOVEMENT and e.invars[0].aval.size <= LANES)
            for e in body.eqns
        )

    # The scan without them, and what comes after it.

    def _totals(self) -> list[Var]:
        """The values that are still summed in the loop."""
        found: dict[Var, None] = {}
        stack = list(self.found.values())
        while stack:
            tree = stack.pop()
            if tree[0] == "total":
                found[tree[1]] = None
            stack += [part for part in tree[1:] if isinstance(part, tuple)]
        return list(found)

    def _new_body(self) -> tuple[Graph, list[Var]]:
        """The body with a carry for each total first and the stacked values last; and the totals."""
        totals = self._totals()
        gone = set(self.found)
        carried = [Var(v.aval.update(weak_type=False)) for v in totals]
        sums = [Var(v.aval.update(weak_type=False)) for v in totals]
        adds = [Eqn(add_p, (c, v), {}, (s,), self.eqn.source) for c, v, s in zip(carried, totals, sums)]
        kept = [n for n in range(self.carries) if n not in gone]
        invars = self.body.invars
        inputs = (*invars[: self.consts], *carried, *(invars[self.consts + n] for n in kept), *invars[self.first :])
        outvars = self.body.outvars
        outputs = (*sums, *(outvars[n] for n in kept), *outvars[self.carries :], *self.stacks)
        body = replace(self.body, invars=inputs, eqns=(*self.body.eqns, *self.added, *adds), outvars=outputs)
        return _plain_sums(drop_dead(body)), totals

    def rewrite(self) -> None:
        """Take the smaller scan and what follows it into the new graph."""
        eqn, rewriter = self.eqn, self.rewriter
        body, totals = self._new_body()
        kept = [n for n in range(self.carries) if n not in self.found]
        starts = [self._zeros(v) for v in totals]
        consts, initial = eqn.invars[: self.consts], eqn.invars[self.consts : self.first]
        operands = (*consts, *starts, *(initial[n] for n in kept), *eqn.invars[self.first :])
        summed = [Var(v.aval.update(weak_type=False)) for v in totals]
        rows = [Var(v.aval.update(shape=(self.length, *v.aval.shape), weak_type=False)) for v in self.stacks]
        results = (*summed, *(eqn.outvars[n] for n in kept), *eqn.outvars[self.carries :], *rows)
        params = {**eqn.params, "jaxpr": body, "num_carry": len(totals) + len(kept)}
        rewriter.keep(replace(eqn, invars=operands, params=params, outvars=results))
        self.outside: dict[Operand, Operand] = dict(zip(totals, summed))
        self.stacked: dict[Operand, Operand] = {**self.xs, **dict(zip(self.stacks, rows))}
        for n, tree in self.found.items():
            value = self._after(tree)
            if rewriter.number(initial[n]) != 0:
                value = self.rewriter.add(add_p, initial[n], value)
            rewriter.replace(eqn.outvars[n], value)

    def _zeros(self, var: Var) -> Operand:
        zero = Literal(np.zeros((), var.aval.dtype), var.aval.update(shape=(), weak_type=False))
        return self._spread(zero, var.aval.shape)

    def _spread(self, value: Literal, shape: tuple[int, ...]) -> Operand:
        return self.rewriter.add(broadcast_in_dim_p, value, shape=shape, broadcast_dimensions=()) if shape else value

    def _after(self, tree: Tree) -> Operand:
        """The sum over all iterations, computed behind the loop."""
        if tree[0] == "total":
            return self.outside[tree[1]]
        if tree[0] == "sum":
            first, *rest = map(self._after, tree[1:])
            return functools.reduce(functools.partial(self.rewriter.add, add_p), rest, first)
        eqn: Eqn = tree[1]
        if tree[0] == "product":
            return self._stacked_product(eqn)
        operands = [self._after(tree[3]) if n == tree[2] else self._invariant(v) for n, v in enumerate(eqn.invars)]
        return self.rewriter.add(eqn.primitive, *operands, **eqn.params)

    def _invariant(self, operand: Operand) -> Operand:
        """An invariant value of the body outside of it."""
        if isinstance(operand, Literal):
            return operand
        if operand in self.fixed:
            return self.fixed[operand]
        if operand not in self.outside:
            eqn = self.producers[operand]
            self.outside[operand] = self.rewriter.add(eqn.primitive, *map(self._invariant, eqn.invars), **eqn.params)
        return self.outside[operand]

    def _stacked_product(self, eqn: Eqn) -> Operand:
        """The sum of a product over all iterations: one product that contracts the iterations too."""
        (xc, yc), (xb, yb) = eqn.params["dimension_numbers"]
        x, y = (self.stacked[v] for v in eqn.invars)
        merged = tuple(xc) == tuple(yc) == tuple(range(len(xc))) and not xb
        if merged and xc:
            x, y = self._flat(x, len(xc) + 1), self._flat(y, len(xc) + 1)
        later = lambda dims: tuple(d + 1 for d in dims)
        contracted = ((0,), (0,)) if merged else ((0, *later(xc)), (0, *later(yc)))
        numbers = (contracted, (later(xb), later(yb)))
        return self.rewriter.add(eqn.primitive, x, y, **{**eqn.params, "dimension_numbers": numbers})

    def _flat(self, rows: Operand, dimensions: int) -> Operand:
        shape: Sequence[int] = rows.aval.shape
        sizes = (math.prod(shape[:dimensions]), *shape[dimensions:])
        return self.rewriter.add(reshape_p, rows, new_sizes=sizes, dimensions=None)
