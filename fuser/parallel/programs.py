"""`jit` over a mesh: a traced program whose arrays lie on several devices, divided, compiled and run on all of them."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser import backends
from fuser.api import progress
from fuser.api.jitted import jit
from fuser.api.placement import Placement, Said
from fuser.api.shapes import ShapeDtypeStruct
from fuser.api.stages import Compiled, Lowered, Traced
from fuser.backends.base import with_schedule
from fuser.compile import lower
from fuser.config import config
from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn, Graph, Var, graphs_in
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.ops.shard_map import Spec, shard_map_p
from fuser.ops.sharding import sharding_constraint_p
from fuser.parallel.arrays import as_sharding, from_parts, laid_out
from fuser.parallel.constraint import INNER_JIT
from fuser.parallel.custom_partitioning import DIVIDED
from fuser.parallel.mesh import Mesh, mesh_in_scope
from fuser.parallel.mesh_of_blocks import MeshOfBlocks
from fuser.parallel.network import described
from fuser.parallel.other_axes import finest, in_axes_of, over, said_by, with_axes_of
from fuser.parallel.places import only_part, working_on
from fuser.parallel.run import backend_of_devices, collectives_of, run
from fuser.parallel.sharding import NamedSharding, Sharding, SingleDeviceSharding
from fuser.parallel.spec import PartitionSpec, spec_of
from fuser.parallel.spmd import Spread, spread
from fuser.parallel.traffic import messages
from fuser.parallel.transport import in_turn
from fuser.parallel.uneven import even
from fuser.passes.inline import inline_calls
from fuser.runtime.array import Array
from fuser.runtime.device import Device
from fuser.runtime.shards import Shards
from fuser.trace import tree
from fuser.trace.body import close
from fuser.trace.core import infer


class SpreadLowered(Lowered):
    """A program divided among the devices of a mesh: `.graph`, `.plan` and `.sources` are those of one device.

    `.spread.explain()` says how values lie and why, and where collectives are; `.exchanges()` what they have become, and what that costs.
    """

    def __init__(
        self, traced: Traced, divided: Spread, consts: Sequence[Any], layouts: Sequence[NamedSharding | None]
    ) -> None:
        backend = with_schedule(backend_of_devices(divided.mesh), traced._backend.asked)
        with progress.stage(progress.LOWERING, traced.graph.name):
            lowering = lower(collectives_of(divided.graph, divided.mesh), backend)
        super().__init__(traced, lowering)
        self.spread = divided
        self.consts = consts
        self.layouts = layouts  # of results, where arguments of jit or types say them

    def exchanges(self) -> list[str]:
        """The collectives that run, those of the function itself too: what each device sends, and how long that takes."""
        found = [described(m) for m in messages(self.graph, dict(self.spread.mesh.shape))]
        return [f"  exchanges: {len(found) or 'none'}", *(f"    {text}" for text in found)]

    def compile(self, *, device_assignment: Sequence[Device] | None = None) -> Compiled:
        """The program over the devices of its mesh, or over these in the order of an AbstractMesh; RuntimeError without."""
        mesh = self.spread.mesh
        if isinstance(mesh, Mesh):
            return SpreadCompiled(self, self.spread)
        if device_assignment is None:
            raise RuntimeError(
                f"device_assignment cannot be `None` when compiling a program over {mesh}, which has no devices: give compile one device "
                "for each of its positions"
            )
        if len(device_assignment) != mesh.size:
            raise RuntimeError(
                f"Length of device_assignment {len(device_assignment)} is not equal to the number of devices of {mesh}, {mesh.size}; give "
                "compile one device for each of its positions"
            )
        grid = np.array(list(device_assignment), object).reshape(mesh.axis_sizes)
        return SpreadCompiled(self, replace(self.spread, mesh=Mesh(grid, mesh.axis_names, mesh.axis_types)))


class SpreadCompiled(Compiled):
    """A divided program, ready to run."""

    def __init__(self, lowered: SpreadLowered, divided: Spread) -> None:
        traced = lowered.traced
        structures = [tree.structure([0] * len(v)) for v in (divided.graph.invars, divided.graph.outvars)]
        local = Traced(divided.graph, structures[0], structures[1], (), backend_of_devices(divided.mesh))
        with in_turn():
            own = Lowered(local, lowered.lowering).compile()
        super().__init__(local, own.program)
        self.traced = traced
        self.spread = divided
        donated = _taken(divided.graph, traced.donated, len(lowered.consts))
        layouts = [_over_devices(s, divided.mesh) for s in lowered.layouts]
        self.layouts = [
            layout or NamedSharding(divided.mesh, spec_of(spec)) for layout, spec in zip(layouts, divided.out_specs)
        ]
        specs = divided.in_specs[len(lowered.consts) :]
        told = traced.placement.given if traced.placement is not None else (None,) * len(specs)
        placed = [_over_devices(s, divided.mesh) for s in told]
        self.given = [_written(spec, [s] if s else [], divided.mesh) for s, spec in zip(placed, specs)]

        def call(values: list[Any], foreign: tuple[int, ...] = ()) -> Any:
            given = [v.__copy__() if n in foreign else v for n, v in enumerate(values)]
            operands = [*lowered.consts, *given]
            results = run(divided.graph, divided.mesh, operands, divided.in_specs, divided.out_specs, own, layouts)
            for position in donated:
                if position not in foreign:
                    values[position].delete("it was donated to a jitted call")
            return tree.unflatten(traced.out_tree, results)

        self._run = call if traced.state is None else traced.state.around(call)

    @property
    def input_shardings(self) -> Any:
        """(args, kwargs) with how each leaf is to lie."""
        return tree.unflatten(self.in_tree, self.given[: self.in_tree.num_leaves])

    @property
    def output_shardings(self) -> Any:
        """The tree of the results, with how each leaf lies."""
        return tree.unflatten(self.out_tree, self.layouts[: self.out_tree.num_leaves])

    @property
    def out_info(self) -> Any:
        """The tree of the results' types, and how they lie."""
        infos = [ShapeDtypeStruct.of(a, s) for a, s in zip(self.traced.graph.out_avals, self.layouts)]
        return tree.unflatten(self.traced.out_tree, infos)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        wrong = [
            f"argument {self.traced.path(n)}: compiled for {wanted}, called with {leaf._data.sharding}"
            for n, (leaf, wanted) in enumerate(zip(tree.leaves((args, kwargs)), self.given))
            if isinstance(leaf, Array)
            and isinstance(leaf._data, Shards)
            and not leaf._data.sharding.is_equivalent_to(wanted, len(leaf.shape))
        ]
        if wrong:
            raise ValueError(
                "Computation was compiled for input shardings that disagree with the shardings of arguments passed to it. Here are "
                f"{len(wrong)} mismatches: {'; '.join(wrong)} ({current_source().short}); lay the arguments out with device_put"
            )
        return super().__call__(*args, **kwargs)


def _taken(graph: Graph, donated: Sequence[int], consts: int) -> list[int]:
    """The donated arguments whose parts' memory a result can take: one of as many bytes for each."""
    free = Counter(v.aval.nbytes for v in graph.outvars)
    found = []
    for position in donated:
        size = graph.in_avals[consts + position].nbytes
        if free[size]:
            free[size] -= 1
            found.append(position)
    return found


def resharded(x: Array, sharding: Sharding) -> Array:
    """The array laid out otherwise over devices of several processes, by collectives."""
    return jit(lambda a: sharding_constraint_p.bind(a, sharding=sharding))(x)  # type: ignore[no-any-return]


def divided(traced: Traced) -> Lowered | None:
    """The program for several devices; None where it lies on the first, and names no mesh."""
    if traced.placement is None and mesh_in_scope() is None and not any(_of_a_mesh(traced.graph)):
        return None
    graph, consts = close(inline_calls(traced.graph, DIVIDED))
    placement = traced.placement or Placement((None,) * len(traced.graph.invars), (None,) * len(graph.outvars))
    lying = [v._data.sharding if _decides(v) else None for v in consts]
    if config.meshes and not config.meshes[-1][1] and any(isinstance(s, Device) for s in placement.given):
        raise ValueError(
            "Mesh context manager should not be used with jit when backend or device is also specified as an argument to jit."
        )
    given = [_said(s, "in_shardings") for s in (*lying, *placement.given)]
    wanted = [_said(s, "out_shardings") for s in placement.wanted]
    _check_devices(traced, graph, given[len(consts) :], wanted)
    mesh = _mesh(graph, [*given, *wanted])
    if mesh is None:
        return _on_one(traced, [s for s in (*given[len(consts) :], *wanted) if s is not None])
    known = [_spec(s, v.aval.ndim, mesh) for s, v in zip(given, graph.invars)]
    _check_given(given[len(consts) :], placement)
    for sharding, var in zip(given, graph.invars):
        if isinstance(sharding, NamedSharding):
            _check_divides(sharding, var.aval.shape, "arguments")
    constrained = {
        e.outvars[0]: e.params["sharding"]
        for e in graph.eqns
        if e.primitive is sharding_constraint_p and mesh.are_all_axes_auto and _is_even(e)
    }
    through = dict(zip(graph.invars, given))  # arguments that are results lie as they do
    said = [s or constrained.get(v) or through.get(v) for s, v in zip(wanted, graph.outvars)]  # type: ignore[arg-type,call-overload]
    layouts = [_layout(s, v.aval, mesh) for s, v in zip(said, graph.outvars)]
    for layout, operand in zip(layouts, graph.outvars):
        if layout is not None:
            _check_divides(layout, operand.aval.shape, "outputs")
    targets = [_spec(s, v.aval.ndim, mesh) for s, v in zip(layouts, graph.outvars)]
    found = spread(with_axes_of(_summed(graph, layouts), mesh), mesh, known, targets)
    free = mesh.are_all_axes_auto and isinstance(mesh, Mesh)
    known_layouts = [s for s in given if isinstance(s, NamedSharding) and s.mesh == mesh]
    written = [
        _written(spec, known_layouts, mesh) if s is None and free else s for s, spec in zip(layouts, found.out_specs)
    ]
    return SpreadLowered(traced, found, consts, written)


def _decides(const: Any) -> bool:
    """Whether a value that a function closes over says where it runs, as one that a type or another process divides does.

    Arguments, results and constraints say it otherwise, and the value comes to them.
    """
    data = const._data if isinstance(const, Array) else None
    if not isinstance(data, Shards) or not isinstance(data.sharding, NamedSharding):
        return False
    return not data.sharding.mesh.are_all_axes_auto or not data.sharding.is_fully_addressable


def _said(sharding: Any, what: str) -> Sharding | None:
    return (
        None if sharding is None else as_sharding(PartitionSpec() if sharding is Said.WHOLE else sharding, "pjit", what)
    )


def _written(spec: Spec, arguments: Sequence[NamedSharding], mesh: Mesh) -> NamedSharding:
    """How a result lies of which nothing is said: in the words of an argument that lies so, or in the fewest."""
    for sharding in arguments:
        if len(sharding.spec) <= len(spec) and sharding.axes(len(spec)) == spec and not sharding.unreduced:
            return sharding
    entries = spec_of(spec).partitions
    while entries and entries[-1] is None:
        entries = entries[:-1]
    return NamedSharding(mesh, PartitionSpec(*entries))


def _over_devices(layout: Sharding | None, mesh: Mesh) -> NamedSharding | None:
    """A NamedSharding with the devices of `mesh` where its own has none; None for other layouts."""
    if not isinstance(layout, NamedSharding) or isinstance(layout.mesh, Mesh):
        return layout if isinstance(layout, NamedSharding) else None
    return NamedSharding(over(layout.mesh, mesh), layout.spec)


def _check_given(given: Sequence[Sharding | None], placement: Placement) -> None:
    """ValueError where an argument lies otherwise than `in_shardings` says."""
    for number, lying in placement.lying:
        wanted = given[number]
        if wanted is not None and not lying.is_equivalent_to(wanted, max(len(getattr(lying, "spec", ())), 1)):
            if isinstance(wanted, SingleDeviceSharding):  # of jit(device=)
                continue
            raise ValueError(
                f"Sharding passed to jit does not match the sharding on the respective arg. Got jit sharding: {wanted}, arg sharding: "
                f"{lying} ({current_source().short}); lay it out with device_put, or leave it free in in_shardings"
            )


def _check_divides(layout: NamedSharding, shape: tuple[int, ...], what: str) -> None:
    """ValueError where an argument or a result cannot lie so: outside of programs all parts are equal."""
    try:
        layout.shard_shape(shape)
    except ValueError as error:
        raise ValueError(
            f"One of pjit {what} was given a sharding that should evenly divide the shape: {error}"
        ) from None


def _is_even(eqn: Eqn) -> bool:
    """Whether the devices divide the dimensions of what a constraint lays out; results have no padding."""
    sharding, aval = eqn.params["sharding"], eqn.outvars[0].aval
    return sharding is None or even(sharding.mesh, sharding.axes(aval.ndim), aval.shape) == sharding.axes(aval.ndim)


def _layout(wanted: Sharding | None, aval: ArrayType, mesh: Mesh) -> NamedSharding | None:
    """How a result is to lie: as jit is told, or as its type says; None where that is free."""
    if isinstance(wanted, NamedSharding) and PartitionSpec.UNCONSTRAINED not in wanted.spec.partitions:
        return wanted if isinstance(wanted.mesh, Mesh) else NamedSharding(mesh, wanted.spec)
    explicit = aval.explicit
    if explicit is None:
        nothing = PartitionSpec(*[None] * aval.ndim)
        return NamedSharding(mesh, nothing) if mesh.are_all_axes_explicit and wanted is None else None
    if PartitionSpec.UNCONSTRAINED in explicit.spec.partitions or not mesh.are_all_axes_explicit:
        return None
    return NamedSharding(over(explicit.mesh, mesh), explicit.spec) if isinstance(mesh, Mesh) else None


def _summed(graph: Graph, layouts: Sequence[NamedSharding | None]) -> Graph:
    """The graph with results that are sums of terms, or are to be, laid out by constraints."""
    eqns, outvars = list(graph.eqns), list(graph.outvars)
    for n, (operand, layout) in enumerate(zip(graph.outvars, layouts)):
        own = operand.aval.explicit.spec.unreduced if operand.aval.explicit is not None else frozenset()
        if layout is not None and layout.spec.unreduced != own:
            params = {"sharding": layout}
            result = outvars[n] = Var(infer(sharding_constraint_p, (operand.aval,), params))
            eqns.append(Eqn(sharding_constraint_p, (operand,), params, (result,), current_source()))
    return replace(graph, eqns=tuple(eqns), outvars=tuple(outvars))


def _of_a_mesh(graph: Graph) -> Iterator[Any]:
    """The meshes that equations and constants name, those in calls too."""
    for value in graph.consts:
        if _decides(value):
            yield value._data.sharding.mesh
    for eqn in graph.eqns:
        if eqn.primitive is shard_map_p:
            yield _of_whole_arrays(eqn)
        elif eqn.primitive is sharding_constraint_p and eqn.params["sharding"] is not None:
            yield eqn.params["sharding"].mesh
        else:
            for inner in graphs_in(eqn.params):
                yield from _of_a_mesh(inner)


def _of_whole_arrays(eqn: Eqn) -> Any:
    """The mesh of a shard_map; UnsupportedError where each process has blocks of its own."""
    if isinstance(eqn.params["mesh"], MeshOfBlocks):
        raise UnsupportedError(
            f"pmap of {eqn.params['jaxpr'].name} over the devices of several processes stands in a jitted function ({eqn.source.short}); call it "
            "outside, or use shard_map over a mesh of all devices"
        )
    return eqn.params["mesh"]


def _mesh(graph: Graph, shardings: Sequence[Sharding | None]) -> Mesh | None:
    """The one mesh of a program; None where all lies on one device. ValueError where devices differ."""
    meshes: list[Any] = [*(s.mesh for s in shardings if isinstance(s, NamedSharding)), *_of_a_mesh(graph)]
    found = [m for m in meshes if isinstance(m, Mesh)]
    scope = mesh_in_scope()
    if found and scope is not None and not any(isinstance(s, NamedSharding) for s in shardings):
        same = (scope.flat, scope.shape_tuple) == (found[0].flat, found[0].shape_tuple)
        found = [scope, *found] if same else found
    single = any(isinstance(s, SingleDeviceSharding) for s in shardings)
    if not found and scope is not None and not single:
        found = [scope]
    automatic = all(m.are_all_axes_auto for m in found)
    if automatic and found:
        found = [finest(found)]
    for own in meshes if found else ():
        if not own.empty and own.size != found[0].size:
            raise ValueError(f"a program over {found[0]} names the axes of {own}, another number of devices")
    for own in (m for what, m in _places(graph) if what == "shard_map") if found else ():
        if own.shape_tuple != found[0].shape_tuple and not (automatic and said_by(own, found[0])):
            raise UnsupportedError(
                f"a program over {found[0]} holds a shard_map over {own}, other axes of the same devices, which is not supported where one "
                f"is of type Explicit, or where the axes of one are not neighbouring axes of the other together ({current_source().short}); "
                "name the axes of one mesh everywhere"
            )
    abstract = [m for m in meshes if not m.empty]
    if not found and abstract:  # no devices yet: compile is to be given them
        return abstract[0]  # type: ignore[no-any-return]
    return found[0] if found else None


def _check_devices(traced: Traced, graph: Graph, given: Sequence[Any], wanted: Sequence[Any]) -> None:
    """ValueError unless all that says where it lies is on the same devices in the same order."""
    named: list[tuple[str, tuple[Device, ...]]] = []
    for n, sharding in enumerate(given):
        if sharding is not None and sharding.devices:
            which = f"argument {traced.path(n)}".replace("argument argument", "argument")  # some have but a number
            shape = traced.graph.in_avals[n].str_long()
            named.append((f"{which} of {traced.graph.name} with shape {shape} and with", sharding.devices))
    named += [("explicit output sharding with", s.devices) for s in wanted if s is not None and s.devices]
    for what, mesh in _places(graph):
        if isinstance(mesh, Mesh):
            named.append((f"{what} inside jit with", mesh.flat))
    scope = mesh_in_scope()
    if scope is not None and not config.meshes[-1][1] and named:
        named.append(("the mesh context with", scope.flat))
    for what, devices in named[1:]:
        if devices != named[0][1]:
            raise ValueError(
                f"Received incompatible devices for jitted computation. Got {named[0][0]} {_ids(named[0][1])} and {what} {_ids(devices)} "
                f"({current_source().short}): a program runs on the devices of one mesh; lay all arrays out over it with device_put"
            )


def _ids(devices: Sequence[Device]) -> str:
    return f"device ids {[d.id for d in devices]} on platform {devices[0].platform.upper()}"


def _places(graph: Graph) -> Iterator[tuple[str, Any]]:
    """What among the equations names a mesh, and which."""
    for eqn in graph.eqns:
        if eqn.primitive is shard_map_p:
            yield "shard_map", eqn.params["mesh"]
        elif eqn.primitive is sharding_constraint_p and eqn.params["sharding"] is not None:
            yield INNER_JIT if INNER_JIT in eqn.source.via else eqn.primitive.name, eqn.params["sharding"].mesh
        else:
            for inner in graphs_in(eqn.params):
                yield from _places(inner)


def _spec(sharding: Sharding | None, rank: int, mesh: Mesh) -> Spec | None:
    """How a value lies over the mesh; None where it is free. ValueError where that does not fit."""
    if not isinstance(sharding, NamedSharding):
        return None
    try:
        return in_axes_of(sharding, mesh).axes(rank)
    except ValueError as error:
        raise ValueError(f"One of pjit arguments or results was given a sharding that does not fit: {error}") from None


def _on_one(traced: Traced, shardings: Sequence[Sharding]) -> Lowered | None:
    """The program of arrays that lie on one device that is not the first."""
    return OneLowered(traced, shardings[0]) if shardings else None


class OneLowered(Lowered):
    """A program whose arrays lie on one device, which is not the first."""

    def __init__(self, traced: Traced, place: Sharding) -> None:
        if place.devices[0].platform == "cuda":
            traced = copy.copy(traced)
            traced._backend = with_schedule(backends.get("triton"), traced._backend.asked)
        super().__init__(traced, lower(traced.graph, traced._backend))
        self.place = place

    def compile(self) -> Compiled:
        place = self.place
        with working_on(place):
            compiled = super().compile()
        program, donated = compiled._run, self.traced.donated

        def call(values: list[Any], foreign: tuple[int, ...] = ()) -> Any:
            plain = [Array(only_part(laid_out(v, place)), v.weak_type) for v in values]
            with working_on(place):
                results = program(plain, tuple(range(len(plain))))
            for position in donated:
                with contextlib.suppress(AttributeError):
                    values[position].delete("it was donated to a jitted call")
            return tree.map(lambda r: from_parts(r.shape, r.dtype, place, [only_part(r)], r.weak_type), results)

        compiled._run, compiled.place = call, place
        return compiled
