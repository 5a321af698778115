"""The graph: variables, literals, equations; jaxpr's fields under jaxpr's names.

A `Graph` is immutable. `consts` are the values of `constvars`: arrays that the traced function closed over. They live
in the graph and reach kernels as inputs, never as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fuser.config import config
from fuser.ir.primitive import Primitive
from fuser.ir.source import UNKNOWN, Source
from fuser.ir.types import ArrayType


class Var:
    """A value in a graph. Identity is what counts; it gets a name only when printed."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({self.aval})"


class Literal:
    """A scalar written into the graph."""

    __slots__ = ("aval", "val")

    def __init__(self, val: Any, aval: ArrayType) -> None:
        self.val: Any = np.asarray(val).astype(aval.dtype)[()]
        self.aval = aval

    def __repr__(self) -> str:
        return f"{self.val}:{self.aval}"


Operand = Var | Literal


@dataclass(frozen=True, eq=False, slots=True)
class Eqn:
    """`outvars = primitive[params](*invars)`, and the user's line that it comes from."""

    primitive: Primitive
    invars: tuple[Operand, ...]
    params: dict[str, Any]
    outvars: tuple[Var, ...]
    source: Source = UNKNOWN

    @property
    def source_info(self) -> Source:
        """`source`, by its name in jaxprs."""
        return self.source

    def operands(self) -> Iterator[Var]:
        """The variables among the inputs."""
        return (v for v in self.invars if type(v) is Var)


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """A function on arrays: `outvars` from `invars` and `constvars` through `eqns`, in order."""

    invars: tuple[Var, ...]
    constvars: tuple[Var, ...]
    consts: tuple[Any, ...]
    eqns: tuple[Eqn, ...]
    outvars: tuple[Operand, ...]
    name: str = "main"
    history: tuple[str, ...] = field(default=())

    def updated(self, step: str, **fields: Any) -> Graph:
        """This graph with some fields replaced and `step` added to its history."""
        return replace(self, history=(*self.history, step), **fields)

    @property
    def jaxpr(self) -> Graph:
        return self

    @property
    def producers(self) -> dict[Any, Eqn]:
        """The equation that makes each value; none makes inputs and constants."""
        return {v: eqn for eqn in self.eqns for v in eqn.outvars}

    @property
    def literals(self) -> tuple[Any, ...]:
        """`consts`, by their other name in jaxprs."""
        return self.consts

    @property
    def in_avals(self) -> tuple[ArrayType, ...]:
        return tuple(v.aval for v in self.invars)

    @property
    def out_avals(self) -> tuple[ArrayType, ...]:
        return tuple(v.aval for v in self.outvars)

    @property
    def effects(self) -> frozenset[str]:
        """The names of the primitives, here or in graphs inside, that do more than compute their results."""
        own = (frozenset({e.primitive.name} if e.primitive.effect else ()) for e in self.eqns)
        return frozenset[str]().union(*own, *(g.effects for e in self.eqns for g in graphs_in(e.params)))

    def __str__(self) -> str:
        from fuser.ir.text import show

        return show(self, config.graph_sources)

    __repr__ = __str__

    def pretty_print(self, *, source_info: bool = False, use_color: bool = False, **_: Any) -> str:
        """The graph in the layout of a jaxpr, each equation with its line where `source_info`; JAX's other options change nothing.

        `str` of a graph can be read back, by fuser.ir.parse.
        """
        from fuser.ir.jaxpr_layout import pretty

        return pretty(self, source_info)


def graphs_in(params: dict[str, Any]) -> Iterator[Graph]:
    """The graphs among the params of a primitive."""
    for value in params.values():
        if isinstance(value, Graph):
            yield value
        elif isinstance(value, tuple):
            yield from (v for v in value if isinstance(v, Graph))


def has_effects(graph: Graph) -> bool:
    """Whether an equation, here or in a graph inside, does more than compute its results."""
    return any(effective(eqn) for eqn in graph.eqns)


def effective(eqn: Eqn) -> bool:
    """Whether the equation has an effect itself, or holds a graph that has."""
    return eqn.primitive.effect or any(has_effects(inner) for inner in graphs_in(eqn.params))
