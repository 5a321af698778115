"""Propagation: how each value of a graph is to lie over a mesh, from how some of them must.

Axes go along the links of equations, forwards and backwards, until nothing changes; of two that want the same dimension or
the same axis, the larger value's wins. What stays unsplit is on every device. Last, results of what is computed whole take the layout of an
operand, from where axes go on along links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ops.custom_partitioning import custom_partitioning_p
from fuser.ops.shard_map import Spec, shard_map_p, whole
from fuser.ops.sharding import sharding_constraint_p
from fuser.parallel.custom_partitioning import offered
from fuser.parallel.links import Link, links
from fuser.parallel.mesh import Mesh, extent
from fuser.parallel.other_axes import in_axes_of
from fuser.parallel.partial_manual import divisible, outside, plain, within
from fuser.parallel.sharding import NamedSharding
from fuser.parallel.spec import PartitionSpec
from fuser.passes.inline import inline_calls

Axes = tuple[Any, ...]
MOST_ROUNDS = 8  # forwards and backwards; two or three are usual


@dataclass
class Layouts:
    """How values lie: `specs`, and for each why (`reasons`). `fixed` are those that propagation does not change.

    `inner` are the graphs of shard_maps that leave axes free, whose values are laid out too.
    """

    mesh: Mesh
    specs: dict[Var, Spec] = field(default_factory=dict)
    reasons: dict[Var, str] = field(default_factory=dict)
    fixed: set[Var] = field(default_factory=set)
    inner: dict[Eqn, Graph] = field(default_factory=dict)

    def of(self, operand: Operand) -> Spec:
        """The spec of a value; that of one on every device where nothing is known."""
        found = self.specs.get(operand) if isinstance(operand, Var) else None
        return whole(operand.aval.ndim) if found is None else found

    def fix(self, var: Operand, spec: Spec, reason: str) -> None:
        """Say how a value lies once and for all."""
        if isinstance(var, Var) and var not in self.fixed:
            self.specs[var], self.reasons[var] = spec, reason
            self.fixed.add(var)

    def offer(self, var: Operand, dim: int, axes: Axes, reason: str) -> bool:
        """Split a dimension by these axes, where it is free and they are; whether it is so now."""
        spec = self.of(var)
        if not isinstance(var, Var) or var in self.fixed or spec[dim]:
            return False
        if any(a in each for each in spec for a in axes):
            return False
        self.specs[var] = (*spec[:dim], axes, *spec[dim + 1 :])
        self.reasons.setdefault(var, reason)
        return True

    def lay(self, var: Operand, sharding: NamedSharding, closed: bool, reason: str) -> None:
        """Say how a value lies; where not `closed`, or along dimensions that are free, propagation adds to it."""
        spec = in_axes_of(sharding, self.mesh).axes(var.aval.ndim)
        self.say(var, spec, closed and PartitionSpec.UNCONSTRAINED not in sharding.spec.partitions, reason)

    def say(self, var: Operand, spec: Spec, closed: bool, reason: str) -> None:
        """The same of a spec over the mesh."""
        if closed:
            self.fix(var, spec, reason)
        elif isinstance(var, Var) and var not in self.fixed:
            self.specs[var], self.reasons[var] = spec, reason


def constrained(graph: Graph, layouts: Layouts) -> None:
    """Say how values lie by what equations and types say of it."""
    for eqn in graph.eqns:
        if eqn.primitive is sharding_constraint_p and eqn.params["sharding"] is not None:
            sharding = eqn.params["sharding"]
            closed = not (sharding.mesh.explicit_axes and sharding.mesh.auto_axes)
            layouts.lay(eqn.outvars[0], sharding, closed, f"{eqn.primitive.name} at {eqn.source.short}")
        elif eqn.primitive is shard_map_p:
            divided = divisible(eqn.params["jaxpr"], eqn.params["manual_axes"], layouts.mesh)
            if divided:
                layouts.inner[eqn] = plain(inline_calls(eqn.params["jaxpr"]))
                constrained(layouts.inner[eqn], layouts)
            for var, spec in zip(eqn.outvars, eqn.params["out_specs"]):
                layouts.say(var, spec, not divided, f"{eqn.primitive.name} at {eqn.source.short}")
    for var in (*graph.invars, *graph.constvars, *(v for eqn in graph.eqns for v in eqn.outvars)):
        if var.aval.explicit is not None:
            layouts.lay(var, var.aval.explicit, var.aval.explicit.mesh.are_all_axes_explicit, "its type")


def unsummed(graph: Graph, mesh: Mesh) -> dict[Var, frozenset[Any]]:
    """The values whose only use is to be left unreduced along some axes, and those."""
    uses = Counter(v for eqn in graph.eqns for v in eqn.operands())
    uses.update(v for v in graph.outvars if isinstance(v, Var))
    found = {}
    for eqn in graph.eqns:
        if eqn.primitive is sharding_constraint_p and eqn.params["sharding"] is not None:
            axes, operand = in_axes_of(eqn.params["sharding"], mesh).spec.unreduced, eqn.invars[0]
            if axes and isinstance(operand, Var) and uses[operand] == 1:
                found[operand] = axes
    return found


def propagate(graph: Graph, mesh: Mesh, known: Mapping[Var, Spec], wanted: Sequence[Spec | None]) -> Layouts:
    """How the graph's values are to lie: `known` ones do so, and results are `wanted` so where that is said."""
    layouts = Layouts(mesh)
    for var, spec in known.items():
        layouts.fix(var, spec, "as the argument lies")
    constrained(graph, layouts)
    for operand, target in zip(graph.outvars, wanted):
        for dim, axes in enumerate(target or ()):
            if axes:
                layouts.offer(operand, dim, axes, "as the result is wanted")
    _settle(graph, layouts)
    if sum(_keep(eqn, layouts) for eqn in graph.eqns):
        _settle(graph, layouts)
    return layouts


def _settle(graph: Graph, layouts: Layouts) -> None:
    for _ in range(MOST_ROUNDS):
        changed = [_step(eqn, layouts, True) for eqn in graph.eqns]
        changed += [_step(eqn, layouts, False) for eqn in reversed(graph.eqns)]
        if not any(changed):
            break


def _keep(eqn: Eqn, layouts: Layouts) -> bool:
    """Let the results of what is computed whole lie as an operand that is no longer does: each device keeps its part."""
    if eqn in layouts.inner:
        return sum(_keep(e, layouts) for e in layouts.inner[eqn].eqns) > 0
    if eqn.primitive.fusion is Fusion.CONTROL or eqn.primitive in (sharding_constraint_p, shard_map_p):
        return False
    changed = False
    for number, operand in enumerate(eqn.invars):
        for dim, axes in enumerate(layouts.of(operand)):
            parts = extent(layouts.mesh, axes)
            if not axes or linked(eqn, number, dim, True, parts) is not None:
                continue
            reason = f"as an operand of {eqn.primitive.name} at {eqn.source.short}, which is computed whole"
            for result in eqn.outvars:
                shape, size = result.aval.shape, operand.aval.shape[dim]
                if len(shape) == operand.aval.ndim and shape[dim] >= size and shape[dim] % parts == 0:
                    changed |= layouts.offer(result, dim, axes, reason)
    return changed


def _step(eqn: Eqn, layouts: Layouts, forwards: bool) -> bool:
    """Let axes go from an equation's operands to its results and each other, or from its results to its operands."""
    if eqn in layouts.inner:
        return _through(eqn, layouts, forwards)
    if eqn.primitive is sharding_constraint_p and forwards and eqn.params["sharding"] is not None:
        entries, mesh = eqn.params["sharding"].spec.partitions, eqn.params["sharding"].mesh
        auto = set(mesh.auto_axes) if mesh.explicit_axes else set()  # of which the types of explicit axes say nothing
        free = lambda d, axes: entries[d] is PartitionSpec.UNCONSTRAINED or auto.issuperset(axes)
        own = enumerate(layouts.of(eqn.invars[0]))
        lying = [(d, axes) for d, axes in own if axes and d < len(entries) and free(d, axes)]
        return sum(layouts.offer(eqn.outvars[0], d, axes, "from what is constrained") for d, axes in lying) > 0
    if eqn.primitive is sharding_constraint_p or eqn.primitive is shard_map_p:
        if forwards:
            return False
        specs = eqn.params["in_specs"] if eqn.primitive is shard_map_p else [layouts.of(eqn.outvars[0])]
        pairs = [(v, d, axes) for v, spec in zip(eqn.invars, specs) for d, axes in enumerate(spec) if axes]
        reason = f"{eqn.primitive.name} at {eqn.source.short}"
        return sum(layouts.offer(v, d, axes, reason) for v, d, axes in pairs) > 0
    if eqn.primitive is custom_partitioning_p and eqn.params["partitioning"].rule(eqn) is None:
        return offered(eqn, layouts, forwards)
    sources = eqn.invars if forwards else eqn.outvars
    order = sorted(range(len(sources)), key=lambda n: -sources[n].aval.nbytes)
    changed = False
    for number in order:
        for dim, axes in enumerate(layouts.of(sources[number])):
            link = linked(eqn, number, dim, forwards, extent(layouts.mesh, axes)) if axes else None
            if link is None:
                continue
            reason = f"from {'an operand' if forwards else 'a result'} of {eqn.primitive.name} at {eqn.source.short}"
            for n, d in link.operands:
                changed |= layouts.offer(eqn.invars[n], d, axes, reason)
            for n, d in link.results if forwards else ():
                changed |= layouts.offer(eqn.outvars[n], d, axes, reason)
    return changed


def _through(eqn: Eqn, layouts: Layouts, forwards: bool) -> bool:
    """Let the axes that a shard_map leaves free go into its graph, through it, and out of it."""
    graph, reason = layouts.inner[eqn], f"{eqn.primitive.name} at {eqn.source.short}"
    ends = (
        tuple(zip(eqn.invars, graph.invars, eqn.params["in_specs"])),
        tuple(zip(eqn.outvars, graph.outvars, eqn.params["out_specs"])),
    )
    before, after = ends if forwards else ends[::-1]
    changed = False
    for out, own, manual in before:
        for dim, axes in enumerate(within(layouts.of(out), manual, own.aval, layouts.mesh)):
            changed |= bool(axes) and layouts.offer(own, dim, axes, reason)
    for each in graph.eqns if forwards else reversed(graph.eqns):
        changed |= _step(each, layouts, forwards)
    for out, own, manual in after:
        free = within(layouts.of(own), whole(own.aval.ndim), own.aval, layouts.mesh)
        for dim, axes in enumerate(outside(manual, free)):
            changed |= bool(axes) and layouts.offer(out, dim, axes, reason)
    return changed


def linked(eqn: Eqn, number: int, dim: int, operand: bool, parts: int) -> Link | None:
    """The link of a dimension of an operand or result, split into so many parts."""
    for link in links(eqn, parts):
        if (number, dim) in (link.operands if operand else link.results):
            return link
    return None
