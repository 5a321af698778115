"""Graphs as keys: two graphs have one key if they are the same equations, in the same order, from the same lines.

A function that is defined anew in every call is traced anew, and what was compiled for its graph is found again by the key.
Functions among the params, and constants, are compared by identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var


class Key:
    """A tree of tuples that compares by value, hashed once."""

    __slots__ = ("hash", "parts")

    def __init__(self, parts: Any) -> None:
        self.parts = parts
        self.hash = hash(parts)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.hash == other.hash and bool(self.parts == other.parts)


class _Same:
    """A value that equals itself alone; it is kept, so that no other takes its address."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def key_of(value: Any) -> Any:
    """A graph, or what params hold, as a key. TypeError for what cannot be hashed."""
    if isinstance(value, Graph):
        return _key_of_graph(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return tuple([key_of(v) for v in value])
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, (float, complex)):  # -0.0 is not 0.0, and nan is nan
        return type(value), repr(value)
    return type(value), value


def _key_of_graph(graph: Graph) -> Key:
    numbers: dict[Var, int] = {}
    for v in (*graph.invars, *graph.constvars):
        numbers[v] = len(numbers)
    heads = tuple([v.aval for v in (*graph.invars, *graph.constvars)])
    consts = tuple([_Same(c) for c in graph.consts])
    eqns = tuple([_key_of_eqn(eqn, numbers) for eqn in graph.eqns])
    results = tuple([_operand(v, numbers) for v in graph.outvars])
    return Key((len(graph.invars), heads, consts, eqns, results))


def _key_of_eqn(eqn: Eqn, numbers: dict[Var, int]) -> Any:
    reads = tuple([_operand(v, numbers) for v in eqn.invars])
    params = tuple([(name, key_of(eqn.params[name])) for name in sorted(eqn.params)])
    for v in eqn.outvars:
        numbers[v] = len(numbers)
    return _Same(eqn.primitive), reads, params, tuple([v.aval for v in eqn.outvars]), eqn.source


def _operand(operand: Operand, numbers: dict[Var, int]) -> Any:
    if isinstance(operand, Literal):
        return operand.aval, np.asarray(operand.val).tobytes()
    return numbers[operand]
