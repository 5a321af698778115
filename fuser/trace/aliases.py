"""What functions may not do with Refs: return one, take one twice, or take one and close over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.ir.graph import Graph, Var
from fuser.ir.references import AbstractRef
from fuser.trace.cells import is_ref
from fuser.trace.core import type_of


def check_results(graph: Graph, what: str, paths: Sequence[str] = ()) -> Graph:
    """The graph; ValueError where a Ref is among its results."""
    for number, var in enumerate(graph.outvars):
        if type(var.aval) is AbstractRef:
            path = f" at output tree path {paths[number]}" if paths and paths[number] else ""
            raise ValueError(
                f"function {graph.name} traced for {what} returned a mutable array reference of type {var.aval.str_long()}{path}, but "  # type: ignore[attr-defined]
                f"mutable array references cannot be returned.{_origin(graph, var)}"
            )
    return graph


def _origin(graph: Graph, var: Any) -> str:
    made = next((e for e in graph.eqns if var in e.outvars), None)
    if made is not None:
        return f"\n\nThe returned mutable array was created on line {made.source.short}."
    if isinstance(var, Var) and var in graph.invars:
        return f"\n\nThe returned mutable array was passed in as argument {graph.invars.index(var)}."
    return ""


def check_aliases(
    values: Sequence[Any], name: str, what: str, path: Callable[[int], str], closed: Sequence[Any] = ()
) -> None:
    """ValueError where one Ref is passed twice, or passed and closed over."""
    seen: dict[int, int] = {}
    over = {id(c) for c in closed if is_ref(c)}
    for n, value in enumerate(values):
        if not is_ref(value):
            continue
        aval = type_of(value).str_long()
        if id(value) in seen:
            raise ValueError(
                "only one reference to a mutable array may be passed as an argument to a function, but when tracing "
                f"{name} for {what} the mutable array reference of type {aval} appeared at both {path(seen[id(value)])} and {path(n)}."
            )
        if id(value) in over:
            raise ValueError(
                f"when tracing {name} for {what}, a mutable array reference of type {aval} was both closed over and passed as "
                f"the argument {path(n)}"
            )
        seen[id(value)] = n
