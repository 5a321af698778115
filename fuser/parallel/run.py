"""Running one device's graph on all devices of a mesh: compiled once, a thread a device, each on its parts of the operands."""

from __future__ import annotations

import functools
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser import backends
from fuser.api import progress
from fuser.api.stages import Compiled, Lowered, Traced
from fuser.backends.base import Alike, KernelSource, Memory
from fuser.backends.c.backend import C
from fuser.backends.link import dense, evaluated
from fuser.compile import lower
from fuser.config import config
from fuser.errors import UnsupportedError
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph, graphs_in
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.ops.callback import pure_callback_p
from fuser.ops.collective import asked, combine, is_meeting
from fuser.ops.discharge import without_refs
from fuser.ops.movement import reshape_p
from fuser.ops.shard_map import Layout, Spec, Specs, shard_map_p
from fuser.parallel.arrays import from_parts, laid_out, relabelled, same_axes
from fuser.parallel.eager import divided
from fuser.parallel.mesh import Mesh, extent
from fuser.parallel.mesh_of_blocks import MeshOfBlocks, on_blocks
from fuser.parallel.nested import flattened
from fuser.parallel.network import LINKS
from fuser.parallel.partial_manual import divisible
from fuser.parallel.passes import fewer_collectives
from fuser.parallel.sharding import NamedSharding, Sharding
from fuser.parallel.spec import PartitionSpec, names, spec_of, split_axes
from fuser.parallel.transfers import in_transfers
from fuser.parallel.transport import Peers, in_turn
from fuser.partition.explain import moved_bytes
from fuser.partition.group import FusionGroup, Kind, Refusal
from fuser.passes.tokens import with_tokens
from fuser.runtime import cooperative, rendezvous
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.cooperative import Meeting
from fuser.runtime.executable import LibraryStep
from fuser.runtime.shards import Shards
from fuser.runtime.toolchain import thread_count
from fuser.trace import tree
from fuser.trace.tangent import as_array

MOST_NAMED = 3  # collectives of a program, in an error
SEQUENTIAL_FLOPS, SEQUENTIAL_BYTES = 1 << 16, 1 << 17  # about ten microseconds


class _Line(threading.local):
    """The user's line of the collective that a thread runs."""

    text = ""

    def get(self) -> str:
        return self.text


_line = _Line()


def _named(group: FusionGroup, memory: Memory) -> Callable[..., Any]:
    """A library step that says which of the user's lines runs, and over which devices it meets others where it is a collective."""
    run, eqn = evaluated(group, memory), group.graph.eqns[-1]
    text = str(eqn.source)

    def named(*arrays: Any) -> Any:
        _line.text = text
        return run(*arrays)

    if not is_meeting(eqn) or not set(group.graph.outvars) <= set(eqn.outvars):
        return named
    places = [eqn.outvars.index(v) for v in group.graph.outvars]
    return Meeting(*asked(eqn), combine, _operands(group), lambda results: dense([results[n] for n in places]), named)


def _operands(group: FusionGroup) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from a group's inputs to the operands of its last equation; those before it are few, reshapes mostly."""
    eqns, operands = group.graph.eqns[:-1], group.graph.eqns[-1].invars
    sources: dict[Any, Any] = {v: v for v in group.graph.invars}
    for eqn in eqns:
        if eqn.primitive is reshape_p and eqn.invars[0] in sources:
            sources[eqn.outvars[0]] = sources[eqn.invars[0]]
    if not all(v in sources for v in operands):
        return functools.partial(evaluate, replace(group.graph, eqns=eqns, outvars=operands))
    places = [(group.graph.invars.index(sources[v]), v.aval.shape) for v in operands]
    return lambda arrays: [arrays[n].reshape(shape) for n, shape in places]


class OneThread(C):
    """The C backend for devices that share the processors: their threads are all there are, so no kernel starts a team."""

    def _library(self, group: FusionGroup, memory: Memory) -> Callable[..., Any]:
        return _named(group, memory)

    def emit(self, group: FusionGroup, threads: bool = True, alike: Alike | None = None) -> KernelSource | Refusal:
        return super().emit(group, False, alike)


_ONE_THREAD = OneThread()


def backend_of_devices(mesh: Any = None) -> Any:
    """The backend that compiles for one of the devices of a mesh; of the CPU where none is given, or it has no devices."""
    platforms = {device.platform for device in mesh.flat} if isinstance(mesh, Mesh) else {"cpu"}
    name = config.backend or {"cuda": "triton", "cpu": "c"}.get(max(platforms), max(platforms))
    if platforms == {"cuda"} and name == "triton":
        from fuser.parallel.gpus import backend_of_gpus  # which imports the Triton backend

        return backend_of_gpus(mesh)
    if platforms == {"cpu"} and name == "c":
        return _ONE_THREAD
    if platforms == {"cpu"} and name == "reference":
        return backends.get(name)
    raise UnsupportedError(
        f"devices of {' and '.join(sorted(platforms))} in one mesh do not run programs of the {name} backend ({current_source().short}); "
        "those of the CPU run the c and reference backends, GPUs triton, and a mesh has devices of one platform"
    )


def collectives_of(graph: Graph, mesh: Any) -> Graph:
    """One device's graph with the collectives that the devices of the mesh run."""
    several = isinstance(mesh, Mesh) and mesh.is_multi_process
    if isinstance(mesh, Mesh) and mesh.flat and mesh.flat[0].platform == "cuda":
        link = LINKS["infiniband" if several else "nvlink"]  # GPUs of one process are of one machine
        return in_transfers(fewer_collectives(graph, mesh.shape, link), mesh)
    return fewer_collectives(graph, mesh.shape, LINKS["ethernet"] if several else None, in_steps=several)


@functools.lru_cache(maxsize=256)
def compiled(graph: Graph, mesh: Mesh, backend: Any) -> Compiled:
    """One device's program; where it has effects, a token is a further result."""
    with Layout(mesh, mesh.axis_names, False).scope():
        graph = with_tokens(without_refs(graph))
    graph = flattened(graph, mesh)
    structures = [tree.structure([0] * len(v)) for v in (graph.invars, graph.outvars)]
    traced = Traced(collectives_of(graph, mesh), structures[0], structures[1], (), backend)
    with in_turn():
        with progress.stage(progress.LOWERING, graph.name):
            lowering = lower(traced.graph, backend)  # of one device: not to be divided again
        return Lowered(traced, lowering).compile()


@functools.lru_cache(maxsize=256)
def fingerprint(graph: Graph) -> int:
    """A number by which processes know that they run the same program."""
    return zlib.crc32(re.sub(r" +#.*", "", str(graph)).encode())


@functools.lru_cache(maxsize=1024)
def by_turns(own: Compiled) -> bool:
    """Whether a thread can run several devices by turns: no collective in a branch or a loop, no function of the user's, which
    might wait for another device's.
    """
    eqns = list(_every_eqn(own.plan.graph))
    return meets(own) == sum(map(is_meeting, eqns)) and not any(
        e.primitive.effect or e.primitive is pure_callback_p for e in eqns
    )


@functools.lru_cache(maxsize=1024)
def meets(own: Compiled) -> int:
    """How many steps of the program are collectives."""
    return sum(isinstance(step, LibraryStep) and step.meets for step in own.executable.steps)


@functools.lru_cache(maxsize=1024)
def short(own: Compiled) -> bool:
    """Whether one device's work takes less time than to wake a thread for it."""
    groups = own.plan.groups
    if any(g.kind in (Kind.CONTROL, Kind.LOOP) for g in groups):
        return False
    return sum(g.flops for g in groups) <= SEQUENTIAL_FLOPS and sum(map(moved_bytes, groups)) <= SEQUENTIAL_BYTES


@functools.cache
def _threads(said: int) -> int:
    """`thread_count()`, which reads files, once for each setting."""
    return thread_count()


def _every_eqn(graph: Graph) -> Iterator[Eqn]:
    for eqn in graph.eqns:
        yield eqn
        for inner in graphs_in(eqn.params):
            yield from _every_eqn(inner)


@functools.lru_cache(maxsize=1024)
def sharding(mesh: Mesh, spec: Spec) -> NamedSharding:
    """The layout over a mesh that splits each dimension by these axes."""
    return NamedSharding(mesh, spec_of(spec))


@functools.lru_cache(maxsize=256)
def grid_of(mesh: Mesh) -> rendezvous.Grid:
    """The mesh as a grid of numbers."""
    return rendezvous.Grid(mesh.shape_tuple)


@functools.lru_cache(maxsize=4096)
def _alike(one: Sharding, other: Sharding, rank: int) -> bool:
    return one.same_parts(other, rank)


def parts(value: Any, target: NamedSharding) -> Sequence[np.ndarray | None]:
    """Each device's part of an operand; those that it has already are not copied."""
    data = value._present()
    if isinstance(data, Shards) and _alike(data.sharding, target, len(data.shape)):
        return data.arrays
    return laid_out(value, target)._present().arrays  # type: ignore[no-any-return]


def run(
    graph: Graph,
    mesh: Mesh,
    values: Sequence[Any],
    in_specs: Specs,
    out_specs: Specs,
    own: Compiled | None = None,
    layouts: Sequence[NamedSharding | None] = (),
) -> list[Array]:
    """The results of one device's graph, which `own` is compiled from, run on every device of the mesh, as arrays over it.

    `layouts` are the shardings of results that are known by more than `out_specs`.
    """
    own = own or compiled(graph, mesh, backend_of_devices(mesh))
    operands = [parts(v, sharding(mesh, s)) for v, s in zip(values, in_specs, strict=True)]
    results = _on_devices(graph, mesh, own, operands)
    found = []
    for number, (local, whole, dtype, weak, own_layout) in enumerate(_types(graph, mesh, out_specs)):
        layout = (layouts[number] if layouts else None) or own_layout
        pieces = [None if r is None else r[number].reshape(local) for r in results]
        found.append(from_parts(whole, dtype, layout, pieces, weak))
    return found


@functools.lru_cache(maxsize=1024)
def _types(graph: Graph, mesh: Mesh, out_specs: Specs) -> list[tuple[Any, ...]]:
    """Of each result the shape of a part and of the whole, the dtype, whether it is weak, and how it lies."""
    shapes = [
        tuple(e * extent(mesh, axes) for e, axes in zip(v.aval.shape, spec))
        for v, spec in zip(graph.outvars, out_specs, strict=True)
    ]
    avals = [v.aval for v in graph.outvars]
    return [(a.shape, s, a.dtype, a.weak_type, sharding(mesh, p)) for a, s, p in zip(avals, shapes, out_specs)]


def _on_devices(graph: Graph, mesh: Mesh, own: Compiled, operands: list[Sequence[Any]]) -> list[Any]:
    """For each device the list of its results, None for those of other processes; `operands` are lists of parts."""
    if mesh.flat[0].platform == "cuda":
        return _on_gpus(graph, mesh, own, operands)
    program, grid = own.executable, grid_of(mesh)
    whole = lambda rank: program.call(*[o[rank] for o in operands])
    if mesh.is_multi_process:
        return rendezvous.run(grid, whole, Peers(mesh.owners, fingerprint(graph), _line.get))
    if not by_turns(own):
        return rendezvous.run(grid, whole)
    if short(own) and not meets(own):
        return cooperative.run_apart(grid, whole)
    begin = lambda rank: program.suspended(*[o[rank] for o in operands])
    return cooperative.run(grid, begin, 1 if short(own) else min(_threads(config.threads), mesh.size))


def _on_gpus(graph: Graph, mesh: Mesh, own: Compiled, operands: list[Sequence[Any]]) -> list[Any]:
    from fuser.parallel import gpus

    peers = Peers(mesh.owners, fingerprint(graph), _line.get) if mesh.is_multi_process else None
    return gpus.run(mesh, gpus.executables(own, mesh), operands, _meeting_places(graph), peers)


@functools.lru_cache(maxsize=1024)
def _meeting_places(graph: Graph) -> str:
    """The program and the first of its collectives, with the user's lines; nothing where devices do not wait for one another."""
    found = [f"{asked(e)[2]} at {e.source}" for e in _every_eqn(graph) if is_meeting(e)]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{graph.name}, with {', '.join(found[:MOST_NAMED])}{more}" if found else ""


def _impl(*values: Any, jaxpr: Graph, mesh: Mesh, in_specs: Specs, out_specs: Specs, **params: Any) -> list[Array]:
    if rendezvous.current() is not None:
        raise UnsupportedError(
            f"a shard_map over {mesh} began while a device of another runs ({current_source().short}); call it in the "
            "function of the outer one, not in a callback"
        )
    arrays = [as_array(v) for v in values]
    if isinstance(mesh, MeshOfBlocks):
        whole = lambda mesh, arrays: run(jaxpr, mesh, arrays, in_specs, out_specs)
        return on_blocks(mesh, whole, arrays, in_specs, out_specs)
    if _divisible(jaxpr, params["manual_axes"], mesh):
        given = [_over(a, sharding(mesh, s)) for a, s in zip(arrays, in_specs)]
        own = {"jaxpr": jaxpr, "mesh": mesh, "in_specs": in_specs, "out_specs": out_specs}
        return divided(shard_map_p, given, {**params, **own})  # type: ignore[no-any-return]
    results = run(jaxpr, mesh, arrays, in_specs, out_specs)
    if not mesh.explicit_axes:
        return results
    layout = Layout(mesh, params["manual_axes"], params["check_vma"])
    return [_typed(r, layout.joined(a, s), mesh) for r, a, s in zip(results, jaxpr.out_avals, out_specs)]


@functools.lru_cache(maxsize=1024)
def _divisible(graph: Graph, manual: tuple[Any, ...], mesh: Mesh) -> bool:
    return divisible(graph, manual, mesh)


def _over(value: Array, target: NamedSharding) -> Array:
    """An operand that lies over the devices of `target`, or nowhere in particular."""
    data = value._present()
    return laid_out(value, target) if isinstance(data, Shards) and not same_axes(data.sharding, target) else value


def _typed(result: Array, aval: ArrayType, mesh: Mesh) -> Array:
    """A result laid out as its type says: parts of what all had, or terms of sums."""
    if aval.explicit is None:
        return result
    said, own = aval.explicit.spec, split_axes(result._data.sharding.spec, aval.ndim)
    entries = [(*a, *(n for n in names(e) if n not in a)) or None for a, e in zip(own, said.partitions)]
    spec = PartitionSpec(*entries, unreduced=said.unreduced, reduced=said.reduced)
    return relabelled(laid_out(result, NamedSharding(mesh, PartitionSpec(*entries))), NamedSharding(mesh, spec))


def _eval(*arrays: np.ndarray, **params: Any) -> list[np.ndarray]:
    """Within a program of one device: whole arrays in and out."""
    return [to_numpy(r) for r in _impl(*(Array(np.asarray(a)) for a in arrays), **params)]


shard_map_p.run = _impl
shard_map_p.eval = _eval
