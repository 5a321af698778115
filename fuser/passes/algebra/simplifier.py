"""Algebraic simplification: the rules of all families, tried on each equation once its operands are simplified."""

from __future__ import annotations

from collections.abc import Iterable

from fuser.ir.graph import Eqn, Graph
from fuser.ir.primitive import Primitive
from fuser.ir.rewrite import Rewriter
from fuser.passes.algebra.arithmetic import ARITHMETIC
from fuser.passes.algebra.division import DIVISION
from fuser.passes.algebra.exact_sums import EXACT_SUMS
from fuser.passes.algebra.movement import MOVEMENT
from fuser.passes.algebra.one_hot import ONE_HOT
from fuser.passes.algebra.rule import Rule
from fuser.passes.algebra.selection import SELECTION
from fuser.passes.algebra.windows import WINDOWS

RULES: tuple[Rule, ...] = (*ARITHMETIC, *DIVISION, *SELECTION, *ONE_HOT, *MOVEMENT, *EXACT_SUMS, *WINDOWS)
MOST_REWRITES = 16  # of one equation; each makes it simpler, so this is only a guard

Table = dict[Primitive, tuple[Rule, ...]]


def table(rules: Iterable[Rule]) -> Table:
    """The rules by the primitives that they look at; a rewrite shared by several rules is there once."""
    found: dict[Primitive, dict[object, Rule]] = {}
    for rule in rules:
        for primitive in rule.primitives:
            found.setdefault(primitive, {}).setdefault(rule.rewrite, rule)
    return {primitive: tuple(by_rewrite.values()) for primitive, by_rewrite in found.items()}


_ALL = table(RULES)


def simplify(graph: Graph, rules: Table = _ALL) -> Graph:
    """The graph after the rules; equations that lose their last use stay, for dead code elimination."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        if eqn.primitive in rules:
            _simplify(rewriter.resolve(eqn), rewriter, rules)
        else:
            rewriter.keep(rewriter.resolve(eqn))
    return rewriter.finish()


def _simplify(eqn: Eqn, rewriter: Rewriter, rules: Table) -> None:
    """Rewrite one equation until no rule applies, and take what is left into the graph."""
    var = eqn.outvars[0]
    for _ in range(MOST_REWRITES):
        results = (rule.rewrite(eqn, rewriter) for rule in rules.get(eqn.primitive, ()))
        result = next((r for r in results if r is not None), None)
        if result is None:
            break
        if not isinstance(result, Eqn):
            rewriter.replace(var, result)
            return
        eqn = Eqn(result.primitive, result.invars, result.params, (var,), eqn.source)
    rewriter.keep(eqn)
