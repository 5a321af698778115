"""Tracing for all sizes: twice, with two witnesses of the symbolic extents, so that what has used a witness is found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from fuser.api.shapes import ShapeDtypeStruct
from fuser.api.stages import Traced
from fuser.errors import InconclusiveDimensionOperation
from fuser.export.encode import Arrays, encode_graph
from fuser.export.symbolic import SymbolicScope
from fuser.ir.dim import Dim, evaluated, variables
from fuser.ir.graph import Eqn, Graph
from fuser.ir.types import ArrayType
from fuser.ops.remat import optimization_barrier_p
from fuser.passes.inline import inline_calls
from fuser.passes.loops.carries import in_bodies
from fuser.trace import tree


def traced_for_all_sizes(jitted: Any, args: Any, kwargs: Any) -> Traced:
    """`jitted.trace(*args, **kwargs)`. InconclusiveDimensionOperation where the graph depends on what symbolic extents are."""
    leaves, structure = tree.flatten((args, kwargs))
    dims = [d for leaf in leaves for d in getattr(leaf, "shape", ()) if isinstance(d, Dim)]
    if dims:
        _one_scope(getattr(jitted, "name", "the function"), leaves, args, kwargs)
    if not dims:
        return jitted.trace(*args, **kwargs)  # type: ignore[no-any-return]
    scope = dims[0].scope
    assert isinstance(scope, SymbolicScope)
    scope.check()
    first: Traced = jitted.trace(*args, **kwargs)
    _all_in_arguments(scope, dims)
    twin = scope.twin()
    own = {name: twin.variable(name) for name in (*scope.witness, *scope.defined)}
    args, kwargs = tree.unflatten(structure, [_moved(leaf, own) for leaf in leaves])
    second: Traced = jitted.trace(*args, **kwargs)
    texts = [_comparable(t.graph) for t in (first, second)]
    if texts[0] != texts[1]:
        raise InconclusiveDimensionOperation(
            f"{first.graph.name} does something else for other sizes of its symbolic dimensions"
            f"{_difference(*texts)}; compute with shapes as they are, without making plain integers or NumPy arrays of them "
            "(0.5 * n makes a number of the extent n, as Python asks 0.5 first; n * 0.5 does not)"
        )
    return first


def _all_in_arguments(scope: SymbolicScope, dims: Sequence[Any]) -> None:
    known = {*variables(dims)}
    for text, constraint, _ in scope.constraints:
        for name in variables([constraint]):
            if name not in known:
                raise ValueError(
                    f"Encountered dimension variable '{name}' in the constraint '{text}', and it is in no shape of an argument; give an "
                    "argument with it"
                )


def _one_scope(name: str, leaves: Iterable[Any], args: Any, kwargs: Any) -> None:
    paths = tree.paths((args, kwargs))
    known: tuple[Any, str] | None = None
    for leaf, path in zip(leaves, paths):
        place = f"{'args' if path.startswith('[0]') else 'kwargs'}{path[3:]}"
        for d in getattr(leaf, "shape", ()):
            if isinstance(d, Dim) and known is not None and d.scope is not known[0]:
                raise ValueError(
                    f"Invalid mixing of symbolic scopes when exporting {name}.\nExpected current (from {known[1]}) scope {known[0]}\n"
                    f"and found for '{d}' ({place}) scope {d.scope}; make all shapes with one scope"
                )
            if isinstance(d, Dim):
                known = known or (d.scope, place)


def _moved(leaf: Any, sizes: dict[str, Any]) -> Any:
    """The description of an argument with the extents of another scope."""
    if not any(isinstance(d, Dim) for d in getattr(leaf, "shape", ())):
        return leaf
    shape = tuple(evaluated(d, sizes) for d in leaf.shape)
    return ShapeDtypeStruct(shape, leaf.dtype, weak_type=bool(getattr(leaf, "weak_type", False)))


def _comparable(graph: Any) -> list[Any]:
    """A graph as data that knows no witness; functions of Python's are left to `serialize`."""
    arrays = Arrays()
    written = encode_graph(_with_counted_scopes(inline_calls(graph), {}), arrays, functions=True)
    return [
        written["in"],
        *written["eqns"],
        written["out"],
        arrays.headers(),
        [hash(a.tobytes()) for a in arrays.arrays],
    ]


def _with_counted_scopes(graph: Graph, counted: dict[Any, int]) -> Graph:
    """The graph with scopes of barriers counted through it: those of a process are counted from trace to trace."""

    def eqn(old: Eqn) -> Eqn:
        if old.primitive is not optimization_barrier_p:
            return old
        scope = old.params["scope"]
        return replace(old, params={**old.params, "scope": counted.setdefault(scope, len(counted))})

    found = replace(graph, eqns=tuple(map(eqn, graph.eqns)))
    return in_bodies(found, lambda body: _with_counted_scopes(body, counted))


def _difference(first: list[Any], second: list[Any]) -> str:
    """The equation in which two graphs differ first."""
    for a, b in zip(first, second):
        if a != b and isinstance(a, list) and a and isinstance(a[0], str):
            return f" (in {a[0]})"
    return ""


def constraints_of(avals: Iterable[ArrayType]) -> list[str]:
    """The constraints of the scope of symbolic extents, as they were said."""
    for aval in avals:
        for d in aval.shape:
            if isinstance(d, Dim) and isinstance(d.scope, SymbolicScope):
                return [*d.scope.said]
    return []
