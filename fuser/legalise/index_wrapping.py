"""Scatters that add the extent to negative indices themselves, where a program does so in a pass over memory of its own.

`x.at[i].add(u)` wraps its indices by `where(i < 0, i + n, i)`; a library call cannot take that in as a kernel would, but
scatter.c wraps each index as it reads it. Graph → Graph; the equation's parameter `wraps` holds n.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import MOVES, Primitive
from fuser.ops.elementwise import add_p, lt_p, select_n_p
from fuser.ops.scatter import SCATTERS
from fuser.partition.axes import Views
from fuser.passes.dce import drop_dead


def with_index_wrapping(graph: Graph, calls: frozenset[Primitive]) -> Graph:
    """The graph with `wraps` of one number on the scatters among the `calls` whose indices are one wrapped component."""
    if not any(eqn.primitive in SCATTERS for eqn in graph.eqns):
        return graph
    makers = graph.producers
    views, eqns, changed = Views(graph.eqns), [], False
    for eqn in graph.eqns:
        found = None
        if eqn.primitive in SCATTERS and eqn.primitive in calls and "wraps" not in eqn.params:
            found = _wrapped(eqn, makers, views)
        if found is not None:
            before, eqn = found
            eqns += before
            changed = True
        eqns.append(eqn)
    return drop_dead(replace(graph, eqns=tuple(eqns))) if changed else graph


def _wrapped(eqn: Eqn, makers: dict[Var, Eqn], views: Views) -> tuple[list[Eqn], Eqn] | None:
    """The scatter on indices that are not wrapped yet, and the movement that brings those to it."""
    indices = eqn.invars[1]
    if indices.aval.shape[-1:] != (1,) or indices.aval.dtype.kind != "i":
        return None
    view = views(indices)
    if view.source is None or any(step.primitive.movement not in MOVES for step in view.path):
        return None
    found = unwrapped(view.source, makers)
    if found is None:
        return None
    operand, number = found
    steps: list[Eqn] = []
    for step in view.path:
        moved = Var(step.outvars[0].aval)
        steps.append(Eqn(step.primitive, (operand,), step.params, (moved,), step.source))
        operand = moved
    x, _, updates = eqn.invars
    return steps, replace(eqn, invars=(x, operand, updates), params={**eqn.params, "wraps": (number,)})


def unwrapped(var: Var, makers: dict[Var, Eqn]) -> tuple[Operand, int] | None:
    """`i` and n, of a value that is `select_n(i < 0, i, i + n)`."""
    chosen = makers.get(var)
    if chosen is None or chosen.primitive is not select_n_p or len(chosen.invars) != 3:
        return None
    which, index, wrapped = chosen.invars
    test, plus = (makers.get(v) if isinstance(v, Var) else None for v in (which, wrapped))
    if test is None or test.primitive is not lt_p or test.invars[0] is not index or not _is_zero(test.invars[1]):
        return None
    if plus is None or plus.primitive is not add_p or plus.invars[0] is not index:
        return None
    number = plus.invars[1]
    if not isinstance(index, Var) or not isinstance(number, Literal) or number.aval.shape:
        return None
    # A sum of a negative index and a number that is not negative does not wrap around in the indices' own type.
    return (index, int(number.val)) if int(number.val) >= 0 else None


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, Literal) and operand.val == 0
