"""Updates of an array hoisted out of branches: a `cond` in a loop whose branches write windows of a carry. Graph → Graph.

Each branch gives what it writes and where, and the updates follow the `cond`, so that the loop can make them in place: with the
array as a result of the `cond`, each step would copy it. A branch that writes less than another gives its last window again,
or, where it writes nothing, one of the array as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.types import ArrayType
from fuser.ops.control import cond_p, scan_p, while_p
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.passes.dce import drop_dead
from fuser.passes.indexing.branch_reads import with_writes_in_branches
from fuser.passes.indexing.scatter_to_update import LEAST, by_window, readers, writes_from, writes_window


def hoist_updates(graph: Graph) -> Graph:
    """The graph with the conditional updates in the bodies of its loops hoisted."""
    return replace(graph, eqns=tuple(map(_of_loop, graph.eqns)))


def _of_loop(eqn: Eqn) -> Eqn:
    name = "jaxpr" if eqn.primitive is scan_p else "body_jaxpr"
    if eqn.primitive not in (scan_p, while_p):
        return eqn
    return replace(eqn, params={**eqn.params, name: _hoisted(eqn.params[name])})


def _hoisted(body: Graph) -> Graph:
    """A body, or a branch within it, with the updates in its branches after them."""
    if not any(eqn.primitive is cond_p for eqn in body.eqns):
        return body
    return replace(body, eqns=tuple(new for eqn in body.eqns for new in _after(eqn)))


def _after(eqn: Eqn) -> Sequence[Eqn]:
    if eqn.primitive is not cond_p:
        return [eqn]
    branches = tuple(map(_hoisted, eqn.params["branches"]))
    eqn = replace(eqn, params={**eqn.params, "branches": branches})
    updates: list[Eqn] = []
    for out in eqn.outvars:
        if out.aval.size >= LEAST:
            eqn, found = _without(eqn, out)
            updates += found
    return [eqn, *updates]


def _without(eqn: Eqn, out: Var) -> tuple[Eqn, Sequence[Eqn]]:
    """The `cond` without a result that its branches update, and the updates; as it is where there are none."""
    number = eqn.outvars.index(out)
    branches = eqn.params["branches"]
    position, chains = _chains(branches, number)
    if position is None:
        return eqn, []
    types = [[_types(write) for write in chain] for chain in chains]
    longest = max(types, key=len)
    if any(own != longest[: len(own)] for own in types):
        return eqn, []
    made = [_given(graph, number, position, chain, longest) for graph, chain in zip(branches, chains)]
    results = [Var(aval) for part in longest for aval in part]
    kept = [v for v in eqn.outvars if v is not out]
    smaller = replace(eqn, params={**eqn.params, "branches": tuple(made)}, outvars=(*kept, *results))
    return smaller, _written(eqn, eqn.invars[1 + position], out, results, len(longest))


def _chains(branches: Sequence[Graph], number: int) -> tuple[int | None, list[list[Eqn]]]:
    """The operand that all branches hand on as this result, and the writes of each to it; None where there is none such."""
    made = [graph.producers.get(graph.outvars[number]) for graph in branches]
    if not any(eqn is not None and writes_window(eqn) for eqn in made):
        return None, []
    chains, positions = [], set()
    for graph in branches:
        chain = writes_from(graph.outvars[number], graph.producers, readers(graph))
        first = chain[0].invars[0] if chain else graph.outvars[number]
        positions.add(next((n for n, v in enumerate(graph.invars) if v is first), None))
        chains.append(chain)
    return (positions.pop() if len(positions) == 1 and any(chains) else None), chains


def _types(write: Eqn) -> list[ArrayType]:
    """Of the window that is written, and of where it begins in each dimension."""
    return [ArrayType(v.aval.shape, v.aval.dtype) for v in by_window(write)[-1].invars[1:]]


def _given(
    graph: Graph, number: int, position: int, chain: Sequence[Eqn], types: Sequence[Sequence[ArrayType]]
) -> Graph:
    """A branch that gives what it writes, a window and where it begins for each of these types, for a result."""
    eqns: list[Eqn] = []
    parts: list[tuple[Operand, ...]] = []
    for eqn in graph.eqns:
        new = by_window(eqn) if eqn in chain else [eqn]
        eqns += new
        if eqn in chain:
            parts.append(new[-1].invars[1:])
    if not parts:
        window, *places = types[0]
        starts, made = [Literal(0, place) for place in places], Var(window)
        params = {"slice_sizes": window.shape}
        eqns.append(Eqn(dynamic_slice_p, (graph.invars[position], *starts), params, (made,)))
        parts.append((made, *starts))
    parts += [parts[-1]] * (len(types) - len(parts))
    kept = [v for n, v in enumerate(graph.outvars) if n != number]
    given = replace(graph, eqns=tuple(eqns), outvars=(*kept, *(v for part in parts for v in part)))
    return drop_dead(with_writes_in_branches(given, {v for eqn in chain for v in eqn.outvars}))


def _written(eqn: Eqn, array: Operand, out: Var, results: Sequence[Var], count: int) -> list[Eqn]:
    """The updates of an array by windows and starts that a `cond` gives."""
    made = []
    width = len(results) // count
    for n in range(count):
        target = out if n == count - 1 else Var(out.aval)
        made.append(
            Eqn(dynamic_update_slice_p, (array, *results[n * width : (n + 1) * width]), {}, (target,), eqn.source)
        )
        array = target
    return made
