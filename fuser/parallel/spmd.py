"""SPMD: a graph on whole arrays made the graph of one device of a mesh, with collectives where parts must meet.

Each equation is computed on parts along the links that most bytes of its operands and results already lie along; operands
that lie otherwise are moved before. A dimension that a reduction ends is reduced over the devices after; where the result is to be
split along the same axes, each device gets its part of the sum only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.errors import GraphError
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.source import current_source, replayed
from fuser.ir.types import ArrayType
from fuser.lax import parallel as collectives
from fuser.lax.control import cond
from fuser.lax.elementwise import eq, select
from fuser.lax.slicing import dynamic_slice_in_dim, dynamic_update_slice_in_dim
from fuser.ops.callback import loops as loops_of
from fuser.ops.callback import pure_callback_p
from fuser.ops.custom_partitioning import custom_partitioning_p
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.scatter import scatter_add_p
from fuser.ops.shard_map import Layout, Spec, shard_map_p, whole
from fuser.ops.sharding import inspect_sharding_p, sharding_constraint_p
from fuser.parallel import loops
from fuser.parallel.custom_partitioning import DIVIDED, partitioned
from fuser.parallel.links import Link, local_params
from fuser.parallel.mesh import Mesh, extent
from fuser.parallel.nested import replayed_flat
from fuser.parallel.other_axes import in_axes_of
from fuser.parallel.owners import localised
from fuser.parallel.partial_manual import outside, within
from fuser.parallel.propagate import Axes, Layouts, linked, propagate, unsummed
from fuser.parallel.sharding import NamedSharding
from fuser.parallel.spec import PartitionSpec
from fuser.parallel.uneven import cut, divides, even, masked, padded, part_size
from fuser.passes.inline import inline_calls
from fuser.runtime.array import Array
from fuser.trace.core import infer, type_of
from fuser.trace.stage import stage
from fuser.trace.tangent import full


@dataclass(frozen=True)
class Collective:
    """A collective that the compiler has placed: what it moves on each device, for which line, and why."""

    name: str
    axes: Axes
    nbytes: int  # of one device's operand
    source: str
    reason: str

    def __str__(self) -> str:
        where = ", ".join(map(str, self.axes))
        return f"{self.name} over {where}, {self.nbytes} bytes a device, for {self.source}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Spread:
    """One device's graph, how its inputs and results lie, and the collectives in it."""

    graph: Graph
    mesh: Mesh
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    collectives: tuple[Collective, ...]
    layouts: Layouts

    def explain(self) -> str:
        """How values lie and why, and the collectives, for a person."""
        lines = [f"{self.graph.name} over {dict(self.mesh.shape)}"]
        lines += [f"  argument {n}: {_shown(s)}" for n, s in enumerate(self.in_specs)]
        for var, spec in self.layouts.specs.items():
            if any(spec):
                lines.append(f"  {var.aval}: {_shown(spec)}, {self.layouts.reasons.get(var, '')}")
        lines += [f"  result {n}: {_shown(s)}" for n, s in enumerate(self.out_specs)]
        lines += [f"  {c}" for c in self.collectives] or ["  no collectives"]
        return "\n".join(lines)


def _shown(spec: Spec) -> str:
    return f"P({', '.join(repr(a[0] if len(a) == 1 else a) if a else 'None' for a in spec)})"


def spread(graph: Graph, mesh: Mesh, given: Sequence[Spec | None], wanted: Sequence[Spec | None]) -> Spread:
    """The graph of one device. `given` says how arguments lie, None where that is free; `wanted` the same of results."""
    graph = inline_calls(graph, DIVIDED)
    known = {v: s for v, s in zip(graph.invars, given) if s is not None}
    layouts = propagate(graph, mesh, known, wanted)
    in_specs = tuple(even(mesh, layouts.of(v), v.aval.shape) for v in graph.invars)
    parted = _Parts(mesh, layouts)
    out_specs: list[Spec] = []

    def function(*inputs: Any) -> list[Any]:
        return parted.run(graph, inputs, in_specs, wanted, out_specs, equal_parts=True)

    layout = Layout(mesh, mesh.axis_names, False)
    with layout.scope():
        local = stage(function, [layout.local(v.aval, s) for v, s in zip(graph.invars, in_specs)], graph.name)
    return Spread(local, mesh, in_specs, tuple(out_specs), tuple(parted.placed), layouts)


class _Parts:
    """The values of one device so far, and the specs of which they are parts."""

    def __init__(self, mesh: Mesh, layouts: Layouts) -> None:
        self.mesh, self.layouts = mesh, layouts
        self.values: dict[Var, tuple[Any, Spec]] = {}
        self.placed: list[Collective] = []
        self.zeros: set[Operand] = set()  # values that are known to be zero everywhere
        self.unsummed: dict[Var, frozenset[Any]] = {}  # the axes along which a value is to stay a sum of terms
        self.terms: dict[Var, frozenset[Any]] = {}  # and those along which it is one though its type does not say so

    def run(
        self,
        graph: Graph,
        inputs: Sequence[Any],
        given: Sequence[Spec],
        wanted: Sequence[Spec | None],
        ends: list[Spec],
        equal_parts: bool = False,
        preferred: Sequence[Spec | None] = (),
    ) -> list[Any]:
        """The graph's results on parts of inputs that lie as `given`; how they lie goes into `ends`, without padding for `equal_parts`.

        Results that are not `wanted` in some layout take the planned one for `equal_parts`, and where they are `preferred` in one, if devices have it.
        """
        self.unsummed = unsummed(graph, self.mesh)
        self.zeros |= {e.outvars[0] for e in graph.eqns if e.primitive is broadcast_in_dim_p and _is_zero(e.invars[0])}
        for var, value, spec in zip(graph.invars, inputs, given):
            self.put(var, value, spec)
        for var, const in zip(graph.constvars, graph.consts):
            self.put(var, const, whole(var.aval.ndim))
        for eqn in graph.eqns:
            with replayed(eqn.source):
                self.take(eqn)
        results = []
        for operand, target, kept in zip(graph.outvars, wanted, preferred or [None] * len(wanted)):
            if target is None:
                target = self.get(operand)[1]
                target = self.narrowed(operand, target) if equal_parts or kept else target
                target = even(self.mesh, target, operand.aval.shape) if equal_parts else target
            ends.append(target)
            results.append(self.taken(operand, target, "the result is wanted so"))
        self.values.clear()  # tracers do not outlive their trace
        return results

    def put(self, var: Var, value: Any, spec: Spec) -> None:
        self.values[var] = (value, spec)

    def get(self, operand: Operand) -> tuple[Any, Spec]:
        if isinstance(operand, Literal):
            return Array(np.asarray(operand.val), operand.aval.weak_type), whole(operand.aval.ndim)
        return self.values[operand]

    def narrowed(self, operand: Operand, spec: Spec) -> Spec:
        """The planned layout of a value where that only takes parts of what each device has; how it lies where not."""
        planned = self.layouts.of(operand)
        return planned if all(p[: len(s)] == s for p, s in zip(planned, spec)) else spec

    def taken(self, operand: Operand, target: Spec, reason: str) -> Any:
        """An operand's value, laid out so."""
        return self.moved(*self.get(operand), target, operand.aval.shape, reason)

    def note(self, name: str, axes: Axes, value: Any, reason: str) -> None:
        source = current_source()
        if extent(self.mesh, axes) == 1:
            return
        self.placed.append(Collective(name, axes, type_of(value).nbytes, str(source) or "the program", reason))

    def take(self, eqn: Eqn) -> None:
        """Compute an equation on parts."""
        if eqn.primitive is sharding_constraint_p and eqn.params["sharding"] is not None:
            self.constrained(eqn)
        elif eqn.primitive is shard_map_p:
            self.inlined(eqn)
        elif eqn.primitive is inspect_sharding_p:
            self.inspected(eqn)
        elif eqn.primitive is custom_partitioning_p:
            partitioned(self, eqn)
        elif eqn.primitive in loops.RULES:
            for var, (value, spec) in zip(eqn.outvars, loops.RULES[eqn.primitive](self, eqn)):
                self.put(var, value, spec)
        else:
            self.computed(eqn)

    def constrained(self, eqn: Eqn) -> None:
        """A value laid out as is said; sums are completed, or values made sums of terms, where that says so."""
        operand, target = eqn.invars[0], self.layouts.of(eqn.outvars[0])
        value, spec = self.get(operand)
        before = self.terms.get(operand, frozenset()) if isinstance(operand, Var) else frozenset()
        if operand.aval.explicit is not None:
            before |= in_axes_of(operand.aval.explicit, self.mesh).spec.unreduced
        after = in_axes_of(eqn.params["sharding"], self.mesh).spec.unreduced
        ordered = lambda axes: tuple(n for n in self.mesh.axis_names if n in axes)
        value, spec = self.summed(value, spec, target, ordered(before - after))
        value, spec = self.as_terms(value, spec, operand.aval.shape, ordered(after - before))
        self.put(eqn.outvars[0], self.moved(value, spec, target, operand.aval.shape, "a constraint"), target)

    def summed(self, value: Any, spec: Spec, target: Spec, axes: Axes) -> tuple[Any, Spec]:
        """The sum of the terms that the devices have along these axes; each device's part of it where it is to be split by them."""
        for dim, wanted in enumerate(target):
            more = wanted[len(spec[dim]) :]
            size = extent(self.mesh, more)
            if (
                more
                and set(more) <= set(axes)
                and wanted[: len(spec[dim])] == spec[dim]
                and value.shape[dim] % size == 0
            ):
                self.note("psum_scatter", more, value, "a sum is completed, and split")
                value = collectives.psum_scatter(value, more, scatter_dimension=dim, tiled=True)
                spec, axes = (*spec[:dim], wanted, *spec[dim + 1 :]), tuple(a for a in axes if a not in more)
        if axes:
            self.note("psum", axes, value, "a sum is completed")
            value = collectives.psum(value, axes)
        return value, spec

    def as_terms(self, value: Any, spec: Spec, extents: tuple[int, ...], axes: Axes) -> tuple[Any, Spec]:
        """The value as a sum of terms along these axes: its parts among zeros, or itself on the first device and zeros on others."""
        left = set(axes)
        for dim, own in enumerate(spec):
            tail = next((own[n:] for n, name in enumerate(own) if name in left), ())
            if not tail:
                continue
            kept = (*spec[:dim], own[: len(own) - len(tail)], *spec[dim + 1 :])
            if set(tail) <= left and divides(self.mesh, own, extents[dim]):
                aval = type_of(value)
                shape = (*aval.shape[:dim], aval.shape[dim] * extent(self.mesh, tail), *aval.shape[dim + 1 :])
                start = collectives.axis_index(tail) * np.int32(aval.shape[dim])
                value = dynamic_update_slice_in_dim(full(aval.update(shape=shape), 0), value, start, dim)
                left -= set(tail)
            else:
                value = self.moved(value, spec, kept, extents, "a value is made a sum of terms")
            spec = kept
        if left:
            value = self.on_first(value, tuple(n for n in self.mesh.axis_names if n in left))
        return value, spec

    def on_first(self, value: Any, axes: Axes) -> Any:
        """The value on the first device along these axes, and zeros on the others."""
        first = eq(collectives.axis_index(axes), np.int32(0))
        return select(first, value, full(type_of(value), 0))

    def inlined(self, eqn: Eqn) -> None:
        """A shard_map is the graph of one device already; along axes that it leaves free it is divided."""
        specs = eqn.params["in_specs"]
        if eqn in self.layouts.inner:
            self.divided(eqn, self.layouts.inner[eqn])
            return
        operands = [self.taken(v, s, "an operand of shard_map") for v, s in zip(eqn.invars, specs)]
        results = replayed_flat(eqn.params["jaxpr"], self.mesh, operands)
        for var, value, spec in zip(eqn.outvars, results, eqn.params["out_specs"]):
            self.put(var, value, spec)

    def divided(self, eqn: Eqn, graph: Graph) -> None:
        """The graph of a shard_map, which stands for all devices along the axes that are free, on parts."""
        given = [within(self.layouts.of(v), whole(v.aval.ndim), v.aval, self.mesh) for v in graph.invars]
        targets = map(outside, eqn.params["in_specs"], given)
        operands = [self.taken(v, s, "an operand of shard_map") for v, s in zip(eqn.invars, targets)]
        ends: list[Spec] = []
        parts = _Parts(self.mesh, self.layouts)
        results = parts.run(graph, operands, given, [None] * len(graph.outvars), ends, equal_parts=True)
        self.placed += parts.placed
        for var, value, manual, free in zip(eqn.outvars, results, eqn.params["out_specs"], ends):
            self.put(var, value, outside(manual, free))

    def inspected(self, eqn: Eqn) -> None:
        """How the operand lies is told, and nothing is left to do."""
        value, *token = eqn.invars
        entries = [axes[0] if len(axes) == 1 else axes or None for axes in self.get(value)[1]]
        eqn.params["inspection"].tell(lambda: NamedSharding(self.mesh, PartitionSpec(*entries)))
        for var, operand in zip(eqn.outvars, token):
            self.put(var, *self.get(operand))

    def computed(self, eqn: Eqn) -> None:
        chosen = self.chosen(eqn)
        in_specs, out_specs, params = self.local(eqn, chosen)
        asks_all = eqn.primitive is pure_callback_p and not chosen  # a function of the user's on whole arrays
        once = (eqn.params.get("threaded", False) or asks_all) and self.mesh.size > 1
        if once and eqn.params.get("partitioned", False):
            once, in_specs = False, self.as_they_lie(eqn)
        why = f"{eqn.primitive.name} takes it so"
        operands = [self.taken(v, s, why) for v, s in zip(eqn.invars, in_specs)]
        self.mask(eqn, chosen, operands)
        own = self.localised(eqn, chosen, operands, params)
        shared = tuple(a for link, axes in chosen if link.reduction == "sum" for a in axes)
        if eqn.primitive is scatter_add_p and shared and eqn.invars[0] not in self.zeros:
            operands[0] = self.on_first(operands[0], shared)  # what is added to counts once
        result = self.once(eqn, operands, params) if once else eqn.primitive.bind(*operands, **params)
        results = list(result) if eqn.primitive.multiple_results else [result]
        for finish in own:
            results[0] = finish(results[0])
        results[0], out_specs[0] = self.completed(eqn, chosen, results[0], out_specs[0])
        for var, value, spec in zip(eqn.outvars, results, out_specs):
            said = var.aval.explicit is not None and var in self.layouts.fixed
            target = self.layouts.of(var) if said else spec
            self.put(var, self.moved(value, spec, target, var.aval.shape, "its type says so"), target)

    def localised(
        self, eqn: Eqn, chosen: list[tuple[Link, Axes]], operands: list[Any], params: dict[str, Any]
    ) -> list[Callable[[Any], Any]]:
        """Let each device read or write in its own part where places are computed; what is to become of the result."""
        begins = {}
        for link, axes in chosen:
            if link.indexed is not None:
                part = part_size(eqn.invars[0].aval.shape[link.indexed], extent(self.mesh, axes))
                begins[link.indexed] = collectives.axis_index(axes) * np.int32(part)
        return localised(eqn, begins, operands, params) if begins else []

    def mask(self, eqn: Eqn, chosen: list[tuple[Link, Axes]], operands: list[Any]) -> None:
        """Replace padding along reduced dimensions by what changes no result."""
        for link, axes in chosen:
            for n, dim in link.operands:
                size = eqn.invars[n].aval.shape[dim]
                if link.reduction is not None and not divides(self.mesh, axes, size):
                    operands[n] = masked(operands[n], dim, axes, size, link.reduction)

    def as_they_lie(self, eqn: Eqn) -> list[Spec]:
        """How operands lie without padding, but for dimensions that are taken apart in loops, which are whole."""
        specs = [even(self.mesh, self.get(v)[1], v.aval.shape) for v in eqn.invars]
        apart = [loops_of(eqn.params["callback"], n) for n in range(len(specs) - 1)] + [0]
        return [(*whole(count), *spec[count:]) for spec, count in zip(specs, apart)]

    def once(self, eqn: Eqn, operands: list[Any], params: dict[str, Any]) -> list[Any]:
        """A function of the user's on the first device alone, which hands the results to the others: an effect of the whole
        program, or what is computed from whole arrays."""
        axes, threaded = self.mesh.axis_names, params.get("threaded", False)
        count = len(eqn.outvars) - threaded
        happens = lambda *given: tuple(eqn.primitive.bind(*given, **params))
        rests = lambda *given: (*(full(v.aval, 0) for v in eqn.outvars[:count]), *(given[-1:] if threaded else ()))
        first = eq(collectives.axis_index(axes), np.int32(0))
        found = cond(first, happens, rests, *operands)
        for value in found[:count]:
            self.note("all_gather", axes, value, f"{eqn.primitive.name} happens on the first device")
        return [*(collectives.all_gather(v, axes)[0] for v in found[:count]), *found[count:]]

    def to_sum(self, eqn: Eqn, reduction: str, axes: Axes) -> Axes:
        """Those of the axes along which a reduction of parts is to be completed: not where the sum is to stay in terms."""
        left = self.unsummed.get(eqn.outvars[0], frozenset()) & set(axes)
        if reduction != "sum" or not left:
            return axes
        self.terms[eqn.outvars[0]] = self.terms.get(eqn.outvars[0], frozenset()) | left
        return tuple(a for a in axes if a not in left)

    def local(self, eqn: Eqn, chosen: list[tuple[Link, Axes]]) -> tuple[list[Spec], list[Spec], dict[str, Any]]:
        """How operands and results lie along these links, and the params for parts; an error if they give other parts."""
        in_specs = [_split(chosen, n, v, True) for n, v in enumerate(eqn.invars)]
        out_specs = [_split(chosen, n, v, False) for n, v in enumerate(eqn.outvars)]
        operands = [self.part(v, s) for v, s in zip(eqn.invars, in_specs)]
        results = [self.part(v, s) for v, s in zip(eqn.outvars, out_specs)]
        params = local_params(eqn, [a.shape for a in operands], [a.shape for a in results])
        types = infer(eqn.primitive, tuple(operands), params)
        found = [t.shape for t in (types if eqn.primitive.multiple_results else [types])]
        if found != [a.shape for a in results]:
            raise GraphError(
                f"{eqn.primitive.name} of parts {operands} gives {found}, not {results}: its links are wrong"
            )
        return in_specs, out_specs, params

    def part(self, operand: Operand, spec: Spec) -> ArrayType:
        """The type of one device's part."""
        shape = tuple(part_size(size, extent(self.mesh, axes)) for size, axes in zip(operand.aval.shape, spec))
        return operand.aval.update(shape=shape)

    def chosen(self, eqn: Eqn) -> list[tuple[Link, Axes]]:
        """The links along which the equation is computed in parts, each with its axes: those that most bytes lie along."""
        weights: dict[tuple[Link, Axes], int] = defaultdict(int)
        for values, are_operands in ((eqn.invars, True), (eqn.outvars, False)):
            for number, var in enumerate(values):
                spec = self.get(var)[1] if are_operands else self.layouts.of(var)
                for dim, axes in enumerate(spec):
                    link = linked(eqn, number, dim, are_operands, extent(self.mesh, axes)) if axes else None
                    if link is not None:
                        weights[link, axes] += var.aval.nbytes
        used: set[Any] = set()
        taken: set[tuple[bool, int, int]] = set()
        found = []
        for (link, axes), _ in sorted(weights.items(), key=lambda item: -item[1]):
            places = {(True, *p) for p in link.operands} | {(False, *p) for p in link.results}
            if not used & set(axes) and not taken & places:
                found.append((link, axes))
                used |= set(axes)
                taken |= places
        return found

    def completed(self, eqn: Eqn, chosen: list[tuple[Link, Axes]], value: Any, spec: Spec) -> tuple[Any, Spec]:
        """The result of the reductions that devices complete: first sums whose parts are kept, which leave less to reduce, then one for all other axes."""
        reason = f"{eqn.primitive.name} reduces a dimension that is split"
        left: dict[str, Axes] = {}
        for link, axes in chosen:
            if link.reduction is None:
                continue
            axes = self.to_sum(eqn, link.reduction, axes)
            dim = self.scattered(eqn, axes, spec) if link.reduction == "sum" and axes else None
            if dim is None:
                left[link.reduction] = left.get(link.reduction, ()) + axes
                continue
            parts = extent(self.mesh, axes)
            value = padded(value, dim, part_size(value.shape[dim], parts) * parts)
            self.note("psum_scatter", axes, value, f"{reason}, and the result is split")
            value = collectives.psum_scatter(value, axes, scatter_dimension=dim, tiled=True)
            spec = (*spec[:dim], axes, *spec[dim + 1 :])
        functions = {"sum": collectives.psum, "max": collectives.pmax, "min": collectives.pmin}
        for reduction, found in left.items():
            axes = tuple(n for n in self.mesh.axis_names if n in found)
            if axes:
                self.note(f"p{reduction}", axes, value, reason)
                value = functions[reduction](value, axes)
        return value, spec

    def scattered(self, eqn: Eqn, axes: Axes, spec: Spec) -> int | None:
        """The dimension that is to be split along these axes; None where there is none."""
        planned = self.layouts.of(eqn.outvars[0])
        return next((dim for dim, wanted in enumerate(planned) if wanted == axes and not spec[dim]), None)

    def moved(self, value: Any, spec: Spec, target: Spec, extents: tuple[int, ...], reason: str) -> Any:
        """A value of these extents laid out otherwise: axes change dimensions, parts are put together, parts are taken."""
        if spec == target:
            return value
        value, own = self.exchanged(value, spec, target, extents, reason)
        for dim, (axes, wanted) in enumerate(zip(own, target)):
            kept = self.kept(axes, wanted, extents[dim])
            if kept != axes:
                self.note("all_gather", axes[len(kept) :], value, reason)
                value = collectives.all_gather(value, axes[len(kept) :], axis=dim, tiled=True)
                value = value if kept else cut(value, dim, extents[dim])
                own[dim] = kept
        for dim, (axes, wanted) in enumerate(zip(own, target)):
            if more := wanted[len(axes) :]:
                parts = extent(self.mesh, more)
                size = part_size(value.shape[dim], parts)
                start = collectives.axis_index(more) * np.int32(size)
                value = dynamic_slice_in_dim(padded(value, dim, size * parts), start, size, dim)
        return value

    def exchanged(
        self, value: Any, spec: Spec, target: Spec, extents: tuple[int, ...], reason: str
    ) -> tuple[Any, list[Axes]]:
        """The value with axes in the dimensions that they are wanted in, where an exchange brings them there."""
        own = list(spec)
        for source in range(len(own)):
            for to in range(len(own)):
                axes, rest = own[source][len(own[source]) - 1 :], own[source][:-1]
                fits = axes and rest == target[source][: len(rest)] and own[source] != target[source]
                wants = (*own[to], *axes) == target[to][: len(own[to]) + 1] and to != source
                if not fits or not wants:
                    continue
                parts, whole_source, whole_to = extent(self.mesh, axes), not rest, not own[to] and target[to] == axes
                if not (whole_source or divides(self.mesh, own[source], extents[source])):
                    continue  # padding lies otherwise with fewer parts
                if not (whole_to or divides(self.mesh, target[to], extents[to])):
                    continue
                value = padded(value, to, part_size(value.shape[to], parts) * parts)
                self.note("all_to_all", axes, value, reason)
                value = collectives.all_to_all(value, axes, to, source, tiled=True)
                value = cut(value, source, extents[source]) if whole_source else value
                own[source], own[to] = rest, (*own[to], *axes)
        return value, own

    def kept(self, axes: Axes, wanted: Axes, size: int) -> Axes:
        """The first axes that split a dimension both ways; none where padding lies otherwise with fewer of them."""
        both = divides(self.mesh, axes, size) and divides(self.mesh, wanted, size)
        return axes if axes == wanted else _common(axes, wanted) if both else ()


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, Literal) and not np.any(operand.val)


def _common(a: Axes, b: Axes) -> Axes:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return a[:count]


def _split(chosen: Sequence[tuple[Link, Axes]], number: int, operand: Operand, operands: bool) -> Spec:
    """The spec of an operand or result that is computed on in parts along these links."""
    spec = list(whole(operand.aval.ndim))
    for link, axes in chosen:
        for n, dim in link.operands if operands else link.results:
            if n == number:
                spec[dim] = axes
    return tuple(spec)
