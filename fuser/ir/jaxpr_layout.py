"""Graphs in the layout in which JAX prints jaxprs: params in brackets, on one line where that is short, else one a line.

`Graph.pretty_print` gives it, for programs that read it; str of a graph is fuser.ir.text's, which can be read back. Lines are
broken as Wadler's "A prettier printer" (2003) does: a group goes on one line if it fits there, else all its breaks are lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Operand, Var, graphs_in
from fuser.ir.names import function_name
from fuser.ir.primitive import Primitive
from fuser.ir.text import Names

WIDTH = 80
# How a primitive's params are shown where that is not as they are: a function of them.
SHOWN: dict[Primitive, Callable[[dict[str, Any]], dict[str, Any]]] = {}


@dataclass(frozen=True)
class _Break:
    """A new line, or within a group that fits on one line this text."""

    flat: str


@dataclass(frozen=True)
class _Group:
    """What stands on one line if it fits; its lines are indented by so much."""

    parts: tuple[_Document, ...]
    indent: int = 0
    fits: bool = True  # whether it may be put on one line, apart from what is around it


_Document = str | _Break | _Group


class _Names(Names):
    """Names, with types that do not say whether they are weak."""

    def __getitem__(self, operand: Operand) -> str:
        return super().__getitem__(operand).replace("*", "")

    def typed(self, operand: Operand) -> str:
        return super().typed(operand).replace("*", "")


def pretty(graph: Graph, source_info: bool = False) -> str:
    """The graph's text; with `source_info` each equation's line of the user's program."""
    return "".join(_rendered(_graph(graph, _Names(), source_info)))


def _graph(graph: Graph, names: Names, source: bool) -> _Document:
    consts = " ".join(names.typed(v) for v in graph.constvars)
    inputs = " ".join(names.typed(v) for v in graph.invars)
    read: set[Operand] = {v for eqn in graph.eqns for v in eqn.invars if type(v) is Var}
    read |= {v for v in graph.outvars if type(v) is Var}
    eqns: list[_Document] = []
    for n, eqn in enumerate(graph.eqns):
        eqns += [_Break("; ")] * bool(n) + [_eqn(eqn, names, read, source)]
    results = ", ".join(names[v] for v in graph.outvars)
    head = f"{{ lambda {consts}; {inputs}. let" if consts else f"{{ lambda ; {inputs}. let"
    body = _Group((_Break(" "), *eqns), 2, fits=False)
    tail = f"in ({results}{',' if len(graph.outvars) == 1 else ''})"
    inside = _Group((head, body, _Break(" "), tail), 2, fits=False)
    return _Group((inside, " }"), fits=not (source and graph.eqns))  # a comment ends its line


def _eqn(eqn: Eqn, names: Names, read: set[Operand], source: bool) -> _Document:
    results = " ".join(names.typed(v) if v in read else f"_:{v.aval.plain()}".replace("*", "") for v in eqn.outvars)
    head = f"{results} = {eqn.primitive.name}" if results else eqn.primitive.name
    params = SHOWN.get(eqn.primitive, dict)(eqn.params)
    shown = {k: v for k, v in params.items() if not getattr(v, "implied", False)}
    parts: list[_Document] = []
    for key in sorted(shown, key=lambda k: (k != "name", k)):
        parts += [
            _Break(" ") if parts else _Break(""),
            _Group((f"{key}=", _value(shown[key], names, source)), fits=False),
        ]
    one_line = not source or not any(graphs_in(shown))
    brackets: tuple[_Document, ...] = (
        (_Group(("[", _Group(tuple(parts), 2, fits=False), _Break(""), "]"), fits=one_line),) if parts else ()
    )
    operands = "".join(f" {names[v]}" for v in eqn.invars)
    line = f"  # {eqn.source}" if source and eqn.source.file else ""
    return _Group((head, *brackets, operands, line), fits=False)


def _value(value: Any, names: Names, source: bool) -> _Document:
    if isinstance(value, Graph):
        return _graph(value, names, source)
    if isinstance(value, tuple) and value and all(isinstance(v, Graph) for v in value):
        parts: list[_Document] = []
        for graph in value:
            parts += [_Break(" ") if parts else _Break(""), _graph(graph, names, source)]
        return _Group(("(", _Group(tuple(parts), 2, fits=False), _Break(""), ")"), fits=not source)
    if isinstance(value, np.ndarray) and value.ndim:
        return f"<array{list(value.shape)}>"
    if callable(value) and not isinstance(value, type):
        return function_name(value)
    return str(value)


def _flat(document: _Document) -> str:
    """The document on one line."""
    if isinstance(document, str):
        return document
    return document.flat if isinstance(document, _Break) else "".join(map(_flat, document.parts))


def _rendered(document: _Document) -> list[str]:
    """The pieces of the text, breaks as lines where their group does not fit."""
    pieces: list[str] = []
    column = 0
    agenda: list[tuple[int, bool, _Document]] = [(0, False, document)]
    while agenda:
        indent, on_one_line, part = agenda.pop()
        if isinstance(part, _Group):
            within = indent + part.indent
            on_one_line = on_one_line or (part.fits and column + len(_flat(part)) <= WIDTH)
            agenda += [(within, on_one_line, p) for p in reversed(part.parts)]
        elif isinstance(part, _Break) and not on_one_line:
            pieces.append("\n" + " " * indent)
            column = indent
        else:
            text = part if isinstance(part, str) else part.flat
            pieces.append(text)
            column += len(text)
    return pieces
