"""Rewriting a graph front to back: what a pass needs to replace equations by operands or by new equations.

A pass walks `graph.eqns`, asks `resolve` for each equation's operands as they now stand, and calls `keep`, `replace` or
`make`; `finish` gives the new graph. Each equation is seen once, so a pass is linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import MOVES, Primitive
from fuser.ir.source import UNKNOWN, Source


class Rewriter:
    """The new equations so far, the equation that makes each variable, and what replaced variables stand for now."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.eqns: list[Eqn] = []
        self.producers: dict[Var, Eqn] = {}
        self.replaced: dict[Var, Operand] = {}
        self.source: Source = UNKNOWN
        self.constants: dict[Var, Any] | None = None

    def resolve(self, eqn: Eqn) -> Eqn:
        """The equation on the operands that now stand for its own; equations made from here on get its source."""
        self.source = eqn.source
        replaced = self.replaced
        if not replaced or replaced.keys().isdisjoint(eqn.invars):
            return eqn
        return replace(eqn, invars=tuple(self.current(v) for v in eqn.invars))

    def current(self, operand: Operand) -> Operand:
        """What now stands for an operand of the old graph."""
        return self.replaced.get(operand, operand) if isinstance(operand, Var) else operand

    def keep(self, eqn: Eqn) -> None:
        """Take an equation into the new graph."""
        self.eqns.append(eqn)
        for var in eqn.outvars:
            self.producers[var] = eqn

    def replace(self, var: Var, operand: Operand) -> None:
        """Let `operand`, of the same shape and dtype, stand for `var`."""
        assert (operand.aval.shape, operand.aval.dtype) == (var.aval.shape, var.aval.dtype), (
            f"{operand.aval} for {var.aval}"
        )
        self.replaced[var] = operand

    def make(self, primitive: Primitive, *operands: Operand, **params: Any) -> Eqn:
        """A new equation with one result, not taken into the graph yet."""
        aval = primitive.rule("type")(*(v.aval for v in operands), **params)
        return Eqn(primitive, operands, params, (Var(aval),), self.source)

    def add(self, primitive: Primitive, *operands: Operand, **params: Any) -> Var:
        """The result of a new equation, which is taken into the graph."""
        eqn = self.make(primitive, *operands, **params)
        self.keep(eqn)
        return eqn.outvars[0]

    def splice(self, graph: Graph, operands: Sequence[Operand], source: Source | None = None) -> list[Operand]:
        """Take the equations of a graph without constants in, on these operands; gives its results.

        Variables are made anew, since a graph may be there twice; with `source` the equations come from that line.
        """
        assert not graph.constvars
        known: dict[Var, Operand] = dict(zip(graph.invars, operands, strict=True))
        current = lambda v: known[v] if isinstance(v, Var) else v
        for eqn in graph.eqns:
            outvars = tuple(Var(v.aval) for v in eqn.outvars)
            self.keep(Eqn(eqn.primitive, tuple(map(current, eqn.invars)), eqn.params, outvars, source or eqn.source))
            known.update(zip(eqn.outvars, outvars))
        return [current(v) for v in graph.outvars]

    def producer(self, operand: Operand, primitive: Primitive) -> Eqn | None:
        """The equation that makes `operand`, where it is one of that primitive."""
        eqn = self.producers.get(operand) if isinstance(operand, Var) else None
        return eqn if eqn is not None and eqn.primitive is primitive else None

    def number(self, operand: Operand) -> np.generic | None:
        """The one number that all elements of `operand` are known to be: a literal, or a literal broadcast."""
        if isinstance(operand, Literal):
            return operand.val
        moved = self.producers.get(operand)
        if moved is not None and moved.primitive.movement in MOVES and isinstance(moved.invars[0], Literal):
            return moved.invars[0].val
        return None

    def constant(self, operand: Operand) -> np.ndarray | None:
        """The value of a constant of the program."""
        if self.constants is None:
            self.constants = dict(zip(self.graph.constvars, self.graph.consts))
        value = self.constants.get(operand) if isinstance(operand, Var) else None
        return None if value is None else np.asarray(value)

    def finish(self) -> Graph:
        """The graph with the new equations."""
        outvars = tuple(self.current(v) for v in self.graph.outvars)
        return replace(self.graph, eqns=tuple(self.eqns), outvars=outvars)
