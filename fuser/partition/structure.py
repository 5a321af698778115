"""What a group is but for its name: groups of one structure get one text, so that layers of a network are written once.

In: a group, or a loop's equation, with its graphs. Out: a key that compares by value, of types, equations, loop axes and
the user's lines (an equation's key has none); None where a parameter is more than a value.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.index import Axis
from fuser.partition.group import FusionGroup

_VALUES = (int, float, str, bytes, bool, type(None), np.dtype, np.generic, enum.Enum)


def structure(group: FusionGroup) -> Hashable | None:
    """Equal for groups whose kernels have one text under different names."""
    try:
        return _Structure().of(group)
    except _NoValueError:
        return None


def loop_structure(eqn: Eqn) -> Hashable | None:
    """Equal for equations that compute the same of operands of the same types, whatever graphs they hold."""
    try:
        return _Structure(graphs=True).eqn(eqn)
    except _NoValueError:
        return None


class _NoValueError(Exception):
    """A parameter compares by identity."""


class _Structure:
    """Numbers for the values of a group, in the order in which they come."""

    def __init__(self, graphs: bool = False) -> None:
        self.numbers: dict[Var, int] = {}
        self.graphs = graphs  # whether parameters may be graphs

    def of(self, group: FusionGroup) -> Hashable:
        graph = group.graph
        if group.bodies or graph.consts:
            raise _NoValueError
        invars = tuple(map(self.operand, graph.invars))
        eqns = tuple(map(self.eqn, graph.eqns))
        outvars = tuple(map(self.operand, graph.outvars))
        layout = [(self.numbers[v], axes) for v, axes in group.layout.items() if v in self.numbers]
        every = {
            axis for axes in (group.parallel, group.reduced, *(axes for _, axes in layout)) for axis in axes if axis
        }
        ranked: dict[Axis | None, int] = {a: n for n, a in enumerate(sorted(every, key=lambda a: a.order))}
        ranked[None] = -1
        axes = (
            tuple((axis.extent, axis.name) for axis in ranked if axis),
            tuple(ranked[axis] for axis in group.parallel),
            tuple(ranked[axis] for axis in group.reduced),
            tuple((number, tuple(ranked[axis] for axis in own)) for number, own in sorted(layout, key=lambda e: e[0])),
        )
        parts = tuple(map(self.of, group.parts))
        return group.kind, group.reason, group.sources, invars, eqns, outvars, axes, parts

    def body(self, graph: Graph) -> Hashable:
        if graph.consts:
            raise _NoValueError
        invars, eqns = tuple(map(self.operand, graph.invars)), tuple(map(self.eqn, graph.eqns))
        return invars, eqns, tuple(map(self.operand, graph.outvars))

    def eqn(self, eqn: Eqn) -> Hashable:
        params = tuple((name, self.value(value)) for name, value in eqn.params.items())
        invars = tuple(map(self.operand, eqn.invars))
        return eqn.primitive, params, invars, tuple(map(self.operand, eqn.outvars))

    def operand(self, operand: Operand) -> Hashable:
        """A value by its number, with its type where it first comes."""
        if isinstance(operand, Literal):
            return operand.aval, operand.val.tobytes()
        number = self.numbers.get(operand)
        if number is not None:
            return number
        self.numbers[operand] = len(self.numbers)
        return operand.aval

    def value(self, value: Any) -> Hashable:
        """A parameter's value as one that compares by value; a type goes along, for 1 equals True."""
        if type(value) is tuple:
            return tuple(map(self.value, value))
        if isinstance(value, list):
            return "list", tuple(map(self.value, value))
        if isinstance(value, np.ndarray):
            return value.shape, value.dtype.str, value.tobytes()
        if isinstance(value, _VALUES):
            return type(value), value
        if isinstance(value, Graph) and self.graphs:
            return _Structure(graphs=True).body(value)
        raise _NoValueError
