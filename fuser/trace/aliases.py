"""What functions may not do with Refs: return one, take one twice, or take one and close over it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from typing import Any

from fuser.ir.graph import Graph, Var
from fuser.ir.names import function_name, printable
from fuser.ir.references import AbstractRef
from fuser.trace import tree
from fuser.trace.cells import is_ref
from fuser.trace.core import type_of


def check_results(
    graph: Graph, what: str, paths: Callable[[], Sequence[str]] = tuple, argument: Callable[[int], str] | None = None
) -> Graph:
    """The graph; ValueError where a Ref is among its results.

    `paths` gives where each result stands in the function's result, `argument` what the user calls an input of the graph.
    """
    for number, var in enumerate(graph.outvars):
        if type(var.aval) is AbstractRef:
            path = (
                f" at output tree path result{where}" if (where := ([*paths()] or [""] * (number + 1))[number]) else ""
            )
            raise ValueError(
                f"function {graph.name} traced for {what} returned a mutable array reference of type {var.aval.str_long()}{path}, but "  # type: ignore[attr-defined]
                f"mutable array references cannot be returned.{_origin(graph, var, argument)}"
            )
    return graph


def _origin(graph: Graph, var: Any, argument: Callable[[int], str] | None) -> str:
    made = next((e for e in graph.eqns if var in e.outvars), None)
    if made is not None:
        return f"\n\nThe returned mutable array was created on line {made.source.short}."
    if isinstance(var, Var) and var in graph.invars:
        number = graph.invars.index(var)
        name = f"argument {number}" if argument is None else f"the argument {argument(number)}"
        return f"\n\nThe returned mutable array was passed in as {name}."
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


def check_arguments(function: Any, what: str, arguments: Any, closed: Sequence[Any] = ()) -> None:
    """`check_aliases` of the leaves of `arguments`, a pair of those by position and by name, as `function` calls them."""
    leaves = tree.leaves(arguments)
    if any(map(is_ref, leaves)):
        path = lambda n: parameter_path(function, n, arguments)
        check_aliases(leaves, function_name(function), what, path, closed)


def parameters_of(function: Any) -> list[str]:
    """The names of a function's parameters; none where it does not tell them."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def parameter_path(
    function: Any, number: int, arguments: Any, positions: Container[int] = (), names: Container[str] = ()
) -> str:
    """What the user calls the leaf with this number of `arguments`, a pair of those by position and by name: `x[0]['w']`.

    `function` may be its parameters' names. Parameters at `positions`, or with `names`, are not among the arguments.
    """
    paths = tree.paths(arguments)
    if number >= len(paths):
        return "(a Ref that it closes over)"
    path = paths[number]
    parameters = function if isinstance(function, list) else parameters_of(function)
    if path.startswith("[0]["):
        position, _, rest = path[4:].partition("]")
        index = int(position)
        free = [n for i, n in enumerate(parameters) if i not in positions and n not in names]
        return (printable(free[index]) if index < len(free) else f"number {index}") + rest
    return path.removeprefix("[1]")
