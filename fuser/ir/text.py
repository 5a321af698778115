"""Graphs as text: one line an equation, types at the definitions, the user's line behind each. `parse` reads it back."""

from __future__ import annotations

import enum
import itertools
import textwrap
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var, graphs_in
from fuser.ir.names import function_name
from fuser.ir.types import short_dtype

PARAM_TYPES: dict[str, Any] = {}  # by name the enumerations and named tuples that params may be
_Kind = TypeVar("_Kind", bound=type)


def param_type(kind: _Kind) -> _Kind:
    """A class decorator: values of an enumeration or a named tuple can be written as params and read back."""
    PARAM_TYPES[kind.__name__] = kind
    return kind


def _names() -> Iterator[str]:
    for length in itertools.count(1):
        for letters in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=length):
            yield "".join(letters)


class Names:
    """Names for variables, given in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._fresh = _names()
        self._known: dict[Var, str] = {}

    def __getitem__(self, operand: Operand) -> str:
        if isinstance(operand, Literal):
            return f"{_number(operand.val)}:{operand.aval.plain()}"
        if operand not in self._known:
            self._known[operand] = next(self._fresh)
        return self._known[operand]

    def typed(self, operand: Operand) -> str:
        return f"{self[operand]}:{operand.aval.plain()}" if isinstance(operand, Var) else self[operand]


def _number(value: Any) -> str:
    """A literal's value, every digit that its dtype tells apart, without spaces."""
    return str(value).replace(" ", "")


def show_param(value: Any, source: bool = True) -> str:
    """A parameter of an equation as text. Functions, and arrays past one element, are shown but cannot be read back."""
    if isinstance(value, np.dtype):
        return short_dtype(value)
    if isinstance(value, Graph):
        return f"\n{textwrap.indent(show(value, source), ' ' * 8)}"
    if isinstance(value, np.ndarray):
        return f"<array{list(value.shape)}>"
    if isinstance(value, tuple) and value and isinstance(value[0], Graph):
        return f"({''.join(show_param(v, source) for v in value)}\n        )"
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}({', '.join(f'{k}={show_param(v)}' for k, v in zip(value._fields, value))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(show_param, value))}{',' if len(value) == 1 else ''})"
    if callable(value):
        return f"<{function_name(value)}>"
    return repr(value.item() if isinstance(value, np.generic) else value)


def show_eqn(eqn: Eqn, names: Names, source: bool = True) -> str:
    """`c:f32[3] = add a b   # model.py:4 (loss)`."""
    shown = {key: value for key, value in eqn.params.items() if not getattr(value, "implied", False)}
    plain = {key: value for key, value in shown.items() if not list(graphs_in({key: value}))}
    inner = "".join(f"\n      {key}={show_param(shown[key], source)}" for key in shown if key not in plain)
    params = " ".join(f"{key}={show_param(value)}" for key, value in plain.items())
    operands = " ".join(names[v] for v in eqn.invars)
    results = " ".join(names.typed(v) for v in eqn.outvars)
    text = f"{results} = {eqn.primitive.name}{f'[{params}]' if params else ''} {operands}".rstrip()
    return (f"{text:<64}  # {eqn.source}" if source and eqn.source.file else text) + inner


def show(graph: Graph, source: bool = True) -> str:
    """The whole graph, in the shape of a jaxpr."""
    names = Names()
    consts = " ".join(names.typed(v) for v in graph.constvars)
    inputs = " ".join(names.typed(v) for v in graph.invars)
    lines = [f"{{ lambda {consts} ; {inputs} . let" if consts else f"{{ lambda ; {inputs} . let"]
    lines += ["    " + show_eqn(eqn, names, source) for eqn in graph.eqns]
    results = ", ".join(names[v] for v in graph.outvars)
    lines.append(f"  in ({results}{',' if len(graph.outvars) == 1 else ''}) }}")
    return "\n".join(lines)
