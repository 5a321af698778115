"""Index wrapping and clamping fused into scatters: the kernel that combines rows reads the raw indices.

`x.at[i].add(u)` is `where(i < 0, i + n, i)` as words, and a histogram counts at `max(i, 0)`. Kernels that combine rows would read what a kernel
before them had written of nothing but that. Graph → Graph; `scatter_rows` has the parameter `negative`, and i32 targets.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import MOVES
from fuser.legalise.index_wrapping import unwrapped
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.elementwise import max_p
from fuser.ops.scatter_rows import INDEX, WORD, scatter_rows_p
from fuser.partition.axes import Views
from fuser.passes.dce import drop_dead


def with_raw_indices(graph: Graph) -> Graph:
    """The graph whose combinations of rows read indices of 32 bits, where their targets are these as words, wrapped or limited to 0."""
    if not any(eqn.primitive is scatter_rows_p for eqn in graph.eqns):
        return graph
    makers, views = graph.producers, Views(graph.eqns)
    eqns: list[Eqn] = []
    for eqn in graph.eqns:
        if eqn.primitive is scatter_rows_p and (found := _reading(eqn, makers, views)) is not None:
            indices, path, negative = found
            for step in path:
                moved = Var(replace(step.outvars[0].aval, dtype=INDEX))
                eqns.append(Eqn(step.primitive, (indices,), step.params, (moved,), step.source))
                indices = moved
            invars = eqn.invars[0], indices, eqn.invars[2]
            eqn = replace(eqn, invars=invars, params={**eqn.params, "negative": negative})
        eqns.append(eqn)
    return drop_dead(replace(graph, eqns=tuple(eqns)))


def _reading(eqn: Eqn, makers: dict[Var, Eqn], views: Views) -> tuple[Operand, list[Eqn], str] | None:
    """Indices, the movements that bring them to the combination, and what negative ones are."""
    made = _source(eqn.invars[1], views)
    if eqn.invars[1].aval.dtype != WORD or made is None or (conversion := makers.get(made[0])) is None:
        return None
    if conversion.primitive is not convert_element_type_p or conversion.invars[0].aval.dtype != INDEX:
        return None
    if (inner := _source(conversion.invars[0], views)) is None:
        return None
    (index, path), negative = inner, "beyond"
    wrapped = unwrapped(index, makers)
    if wrapped is not None and isinstance(wrapped[0], Var):
        limited = _limited(wrapped[0], makers)
        if wrapped[1] != eqn.invars[0].aval.shape[0] and limited is None:
            return None
        index, negative = (wrapped[0], "from the end") if limited is None else (limited, "first")
    elif (limited := _limited(index, makers)) is not None:
        index, negative = limited, "first"
    return (index, [*path, *made[1]], negative) if index.aval.dtype == INDEX else None


def _source(operand: Operand, views: Views) -> tuple[Var, list[Eqn]] | None:
    """The array of which an operand is moved elements, and the movements."""
    view = views(operand)
    if view.source is None or any(step.primitive.movement not in MOVES for step in view.path):
        return None
    return view.source, list(view.path)


def _limited(var: Var, makers: dict[Var, Eqn]) -> Var | None:
    """`i` of a value that is max(i, 0)."""
    eqn = makers.get(var)
    if eqn is None or eqn.primitive is not max_p:
        return None
    numbers = [v for v in eqn.invars if isinstance(v, Literal) and np.all(np.asarray(v.val) == 0)]
    others = [v for v in eqn.invars if isinstance(v, Var) and v.aval.shape == var.aval.shape]
    return others[0] if len(numbers) == len(others) == 1 else None
