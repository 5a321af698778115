"""Refs that a jitted function takes or closes over: its program is one on values, and what it wrote is put back.

Out of a traced graph come one without Refs, which takes what they hold and gives what the written ones hold at last, and a
State, which knows the Refs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fuser.ir.graph import Graph
from fuser.ir.references import AbstractRef
from fuser.ops.discharge import discharged, has_state
from fuser.runtime.reference import Ref
from fuser.trace import tree


@dataclass(frozen=True, eq=False)
class State:
    """The Refs behind a program's inputs: those `closed` over follow the arguments; `written` are positions among all."""

    closed: tuple[Ref, ...]
    written: tuple[int, ...]

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """`run`, which takes arrays and gives (results, values of what is written), on arguments that may be Refs."""

        def call(values: list[Any], foreign: tuple[int, ...] = ()) -> Any:
            refs = [*values, *self.closed]
            arrays = [v.value if type(v) is Ref else v for v in refs]
            held = tuple(n for n, v in enumerate(refs) if type(v) is Ref)
            results, last = run(arrays, tuple(sorted({*foreign, *held})))
            for n, value in zip(self.written, last):
                refs[n].value = value
            return results

        return call


def without_state(graph: Graph, out_tree: Any) -> tuple[Graph, Any, State | None]:
    """The graph on values, the tree of its results, and the Refs that it takes or closes over; None where it has its own alone."""
    if not has_state(graph):
        return graph, out_tree, None
    refs = [n for n, v in enumerate(graph.constvars) if type(v.aval) is AbstractRef]
    rest = [n for n in range(len(graph.constvars)) if n not in refs]
    opened = replace(
        graph,
        invars=(*graph.invars, *(graph.constvars[n] for n in refs)),
        constvars=tuple(graph.constvars[n] for n in rest),
        consts=tuple(graph.consts[n] for n in rest),
    )
    made = discharged(opened)
    count = len(made.consts)
    pure = replace(
        made.graph, invars=made.graph.invars[count:], constvars=made.graph.invars[:count], consts=made.consts
    )
    if not refs and not any(type(v.aval) is AbstractRef for v in graph.invars):
        return pure, out_tree, None
    results = tree.unflatten(out_tree, range(out_tree.num_leaves))
    both = tree.structure((results, [0] * len(made.written)))
    return pure, both, State(tuple(graph.consts[n] for n in refs), made.written)
