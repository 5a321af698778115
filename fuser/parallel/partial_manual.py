"""shard_maps that name some axes of a mesh only: their graphs, which the compiler divides along the other axes as it does the program around them.

A value within lies along the manual axes as `in_specs` and `out_specs` say, one part on each device, and along the free axes as
propagation finds; outside it lies along both, the manual axes first in each dimension.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fuser.ir.graph import Graph, Literal, Operand, Var, effective, graphs_in
from fuser.ir.types import ArrayType
from fuser.ops.shard_map import Spec
from fuser.ops.unreduced import PLAIN
from fuser.parallel.mesh import extent
from fuser.passes.inline import inline_calls

Axes = tuple[Any, ...]


def divisible(graph: Graph, manual: Axes, mesh: Any) -> bool:
    """Whether the graph of a shard_map with these axes is to be divided along the others.

    Not where it has effects, which each device has in order, or sums whose terms are on several devices.
    """
    free = extent(mesh, tuple(n for n in mesh.axis_names if n not in manual))
    return free > 1 and not any(map(effective, graph.eqns)) and not _in_terms(graph)


def _in_terms(graph: Graph) -> bool:
    values = (*graph.invars, *(v for e in graph.eqns for v in e.outvars))
    return any(v.aval.mat.unreduced or v.aval.mat.reduced for v in values) or any(
        _in_terms(inner) for e in graph.eqns for inner in graphs_in(e.params)
    )


def plain(graph: Graph) -> Graph:
    """A copy whose types do not say what varies from device to device, without what only changes such types."""
    known: dict[Var, Operand] = {}

    def fresh(var: Var) -> Var:
        found = known[var] = Var(var.aval.update(vma=frozenset()))
        return found

    def read(operand: Operand) -> Operand:
        return operand if isinstance(operand, Literal) else known[operand]

    invars, constvars = tuple(map(fresh, graph.invars)), tuple(map(fresh, graph.constvars))
    eqns = []
    for eqn in graph.eqns:
        primitive = PLAIN.get(eqn.primitive, eqn.primitive)
        operands = tuple(map(read, eqn.invars))
        if primitive is None:
            known[eqn.outvars[0]] = operands[0]
            continue
        params = {name: _plain(value) for name, value in eqn.params.items()}
        outvars = tuple(map(fresh, eqn.outvars))
        eqns.append(replace(eqn, primitive=primitive, invars=operands, params=params, outvars=outvars))
    return replace(graph, invars=invars, constvars=constvars, eqns=tuple(eqns), outvars=tuple(map(read, graph.outvars)))


def _plain(param: Any) -> Any:
    if isinstance(param, Graph):
        return plain(inline_calls(param))
    if isinstance(param, tuple) and any(isinstance(p, Graph) for p in param):
        return tuple(_plain(p) for p in param)
    return param


def within(spec: Spec, manual: Spec, aval: ArrayType, mesh: Any) -> Spec:
    """How a part of this type lies along the free axes, where the value outside lies as `spec` and its parts as `manual` say."""
    taken = {a for axes in manual for a in axes}
    free = (tuple(a for a in axes if a not in taken) for axes in spec)
    return tuple(axes if size % extent(mesh, axes) == 0 else () for axes, size in zip(free, aval.shape))


def outside(manual: Spec, free: Spec) -> Spec:
    """How a value lies whose parts lie so along the free axes."""
    return tuple((*a, *b) for a, b in zip(manual, free, strict=True))
