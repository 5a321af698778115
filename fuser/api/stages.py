"""The stages that a user can look into: Traced (a graph), Lowered (a plan and kernel texts), Compiled (ready to run)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from fuser import backends
from fuser.api import compiler, progress
from fuser.api.advice import LEAST_DONATED, held
from fuser.api.layout import Format, row_major
from fuser.api.placement import Placement, with_refs
from fuser.api.shapes import ShapeDtypeStruct
from fuser.api.stateful import State, without_state
from fuser.ir.graph import Graph, Var
from fuser.lax.values import as_value
from fuser.ops.discharge import made_for
from fuser.runtime.array import CARRIED, Array
from fuser.runtime.core import native
from fuser.trace import tree
from fuser.trace.core import Tracer, type_of

if TYPE_CHECKING:
    from fuser.backends.base import Backend, KernelSource
    from fuser.compile import Lowering, Program
    from fuser.partition.group import Plan

CompilerOptions = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ArgInfo:
    """An argument of a compiled function: its type, and whether it is donated."""

    _aval: Any
    donated: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        return self._aval.dtype


@dataclasses.dataclass(frozen=True)
class MemoryStats:
    """Bytes of a compiled function's arguments and results, and of results that take over donated arguments (`alias_size`); bytes
    that one call takes at its worst moment with nothing donated (`peak_memory`), and how many of them are no results
    (`temp_size`). What a loop driven from Python takes inside comes on top.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    peak_memory_in_bytes: int


class Wrapped(Protocol):
    """A jitted function: it is called, traced and lowered with the function's arguments."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def trace(self, *args: Any, **kwargs: Any) -> Traced: ...

    def lower(self, *args: Any, **kwargs: Any) -> Lowered: ...


class Traced:
    """A function traced for one signature. `.graph` is what was recorded; `.lower()` goes on."""

    # Set by fuser.parallel, which stands above: what several devices run, or None where one does.
    spread: ClassVar[Callable[[Traced], Lowered | None] | None] = None

    def __init__(
        self,
        graph: Graph,
        in_tree: Any,
        out_tree: Any,
        donated: tuple[int, ...],
        backend: Backend,
        path: Callable[[int], str] = "argument {}".format,
        placement: Placement | None = None,
        state: State | None = None,
    ) -> None:
        self.graph = graph
        self.jaxpr = graph
        self.in_tree = in_tree
        self.out_tree = out_tree
        self.donated = donated
        self.path = path  # what the user calls an argument, by its position among the leaves
        self.state = state  # the Refs behind inputs, once the graph has none
        self.placement = placement  # how arguments and results lie over devices
        self._backend = backend
        self._recorded: Traced | None = None

    @property
    def recorded(self) -> Traced:
        """What the function did, which is differentiated and batched: before Refs and effects became arrays for compilation."""
        return self._recorded or self

    def _rewritten(self, graph: Graph, out_tree: Any, donated: tuple[int, ...], placement: Any, state: Any) -> Traced:
        made = Traced(graph, self.in_tree, out_tree, donated, self._backend, self.path, placement, state)
        made._recorded = self.recorded
        return made

    @property
    def out_info(self) -> Any:
        """The tree of the results' ShapeDtypeStructs."""
        return tree.unflatten(self.out_tree, map(ShapeDtypeStruct.of, self.graph.out_avals))

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """Optimise, partition and generate the kernels' text; needs neither device nor compiler.

        `lowering_platforms` names one platform, "cpu", "cuda" or "tpu", whose kernels are generated in place of the default's.
        ValueError for several, or for another.
        """
        if lowering_platforms is not None:
            return self._for_platform(tuple(lowering_platforms)).lower()
        traced = self._without_state()._with_token()
        divided = Traced.spread(traced) if Traced.spread is not None else None
        if divided is not None:
            return divided
        progress.compiling(traced.graph.name, [v.aval for v in traced.graph.invars])
        with progress.stage(progress.LOWERING, traced.graph.name):
            return Lowered(traced, compiler.lower(traced.graph, self._backend, self.donated))

    def _for_platform(self, platforms: tuple[str, ...]) -> Traced:
        names = {"cpu": "c", "cuda": "triton", "gpu": "triton", "tpu": "tpu"}
        if len(platforms) != 1 or platforms[0] not in names:
            raise ValueError(f"lower takes one platform of {', '.join(names)} as lowering_platforms, got {platforms}")
        backend = compiler.with_schedule(backends.get(names[platforms[0]]), self._backend.asked)
        return Traced(self.graph, self.in_tree, self.out_tree, self.donated, backend, self.path, self.placement)

    def _without_state(self) -> Traced:
        """The same on what its Refs hold; their new values are results that no caller sees."""
        with made_for(self._backend):
            graph, out_tree, state = without_state(self.graph, self.out_tree)
        if graph is self.graph:
            return self
        placement = self.placement if state is None else with_refs(self.placement, graph, state.closed, state.written)
        donated = self.donated if state is None else ()
        return self._rewritten(graph, out_tree, donated, placement, state)

    def _with_token(self) -> Traced:
        """The same with its effects in order (passes/tokens.py): the last token is a result that no caller sees."""
        graph = compiler.with_tokens(self.graph)
        if graph is self.graph:
            return self
        results = tree.unflatten(self.out_tree, range(self.out_tree.num_leaves))
        out_tree = tree.structure(_BesidesToken(results, 0))
        placement = self.placement and self.placement.widened(graph)
        return self._rewritten(graph, out_tree, self.donated, placement, self.state)


class _BesidesToken:
    """A tree of results with a token as one leaf more; made of leaves again, it is the results alone."""

    def __init__(self, results: Any, token: Any) -> None:
        self.results, self.token = results, token


tree.register_pytree_node(
    _BesidesToken, lambda both: ((both.results, both.token), None), lambda _, children: children[0]
)


class Stage:
    """What the stages after tracing say of the function's arguments and results."""

    traced: Traced

    @property
    def in_tree(self) -> Any:
        """The structure of (args, kwargs)."""
        return self.traced.in_tree

    @property
    def out_tree(self) -> Any:
        """The structure of the result."""
        return self.traced.out_tree

    @property
    def in_avals(self) -> Any:
        """(args, kwargs) with the ArrayType of each leaf."""
        return tree.unflatten(self.traced.in_tree, self.traced.graph.in_avals)

    @property
    def out_avals(self) -> Any:
        """The tree of the results' ArrayTypes."""
        return self.traced.out_info

    @property
    def out_info(self) -> Any:
        """The tree of the results' types, as ShapeDtypeStructs."""
        return tree.map(ShapeDtypeStruct.of, self.out_avals)

    @property
    def args_info(self) -> Any:
        """(args, kwargs) with an ArgInfo a leaf: its type, and whether it is donated."""
        infos = [ArgInfo(a, n in self.traced.donated) for n, a in enumerate(self.traced.graph.in_avals)]
        return tree.unflatten(self.traced.in_tree, infos)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The numbers of the leaves that are donated."""
        return self.traced.donated


class Lowered(Stage):
    """A program as a plan and kernel texts: `.plan`, `.plan.explain()`, `.sources[0].text`."""

    def __init__(self, traced: Traced, lowering: Lowering) -> None:
        self.traced = traced
        self.lowering = lowering

    @property
    def graph(self) -> Graph:
        """The optimised graph."""
        return self.lowering.graph

    @property
    def plan(self) -> Plan:
        return self.lowering.plan

    @property
    def sources(self) -> tuple[KernelSource, ...]:
        return self.lowering.sources

    def as_text(self) -> str:
        """All kernels' text."""
        return "\n\n".join(source.text for source in self.sources)

    def cost_analysis(self) -> dict[str, float]:
        """`flops` and `bytes accessed` of one call as planned, and `optimal bytes`: inputs and outputs moved once."""
        return cost_analysis(self.plan)

    def compile(self) -> Compiled:
        """Compile the kernels and link the steps."""
        with progress.stage(progress.COMPILATION, self.traced.graph.name):
            return Compiled(self.traced, compiler.load(self.lowering, self.traced._backend))


class Compiled(Stage):
    """A program ready to run on arrays of the types that it was traced for."""

    home: ClassVar[Callable[[], Any]]  # the sharding of what lies on the first device; set by fuser.parallel
    place: Any = None  # the sharding of all arguments and results; None for that

    def __init__(self, traced: Traced, program: Program) -> None:
        self.traced = traced
        self.program = program
        self.executable = program.executable
        self._run = _runner(traced, program)
        if traced.state is not None:
            self._run = traced.state.around(self._run)

    @property
    def input_shardings(self) -> Any:
        """(args, kwargs) with how each leaf is to lie."""
        return tree.unflatten(self.in_tree, [self.place or Compiled.home()] * self.in_tree.num_leaves)

    @property
    def output_shardings(self) -> Any:
        """The tree of the results, with how each leaf lies."""
        return tree.unflatten(self.out_tree, [self.place or Compiled.home()] * self.out_tree.num_leaves)

    @property
    def input_formats(self) -> Any:
        """(args, kwargs) with the layout in memory and the sharding of each leaf."""
        return self._formats(self.input_shardings, self.in_tree, self.traced.graph.in_avals)

    @property
    def output_formats(self) -> Any:
        """The tree of the results, with the layout in memory and the sharding of each leaf."""
        return self._formats(self.output_shardings, self.out_tree, self.traced.graph.out_avals)

    def _formats(self, shardings: Any, structure: Any, avals: Sequence[Any]) -> Any:
        leaves = structure.flatten_up_to(shardings)
        return tree.unflatten(structure, [Format(row_major(len(a.shape)), s) for a, s in zip(avals, leaves)])

    @property
    def plan(self) -> Plan:
        return self.program.lowering.plan

    @property
    def sources(self) -> tuple[KernelSource, ...]:
        return self.program.lowering.sources

    def as_text(self) -> str:
        """All kernels' text."""
        return "\n\n".join(source.text for source in self.sources)

    def cost_analysis(self) -> dict[str, float]:
        """As `Lowered.cost_analysis`."""
        return cost_analysis(self.plan)

    def memory_analysis(self) -> MemoryStats:
        """What one call takes."""
        plan, executable = self.plan, self.executable
        results = {plan.slot_of[plan.aliases.get(v, v)]: v.aval.nbytes for v in plan.outputs if isinstance(v, Var)}
        given = {executable.inputs[position]: 0 for position in self.traced.donated}
        for output in executable.allocations():
            if output.reuse in given:
                given[output.slot] = output.nbytes
        peak = executable.planned_peak(others={slot.index: slot.aval.nbytes for slot in plan.slots})
        return MemoryStats(
            argument_size_in_bytes=sum(v.aval.nbytes for v in plan.graph.invars),
            output_size_in_bytes=sum(v.aval.nbytes for v in plan.outputs),
            alias_size_in_bytes=sum(given.get(slot, 0) for slot in results),
            temp_size_in_bytes=max(peak - sum(results.values()), 0),
            peak_memory_in_bytes=peak,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.flatten((args, kwargs))
        if tracers := [leaf for leaf in leaves if isinstance(leaf, Tracer)]:
            raise TypeError(
                "Cannot apply JAX transformations to a function lowered and compiled for a particular signature. Detected "
                f"argument of Tracer type {type(tracers[0]).__name__}; call the jitted function itself."
            )
        values = [as_value(leaf) for leaf in leaves]
        found = tuple(type_of(v) for v in values)
        wanted = self.traced.graph.in_avals[: self.traced.in_tree.num_leaves]
        if structure != self.traced.in_tree or [(a.shape, a.dtype) for a in found] != [
            (a.shape, a.dtype) for a in wanted
        ]:
            difference = (
                "Function compiled with input pytree does not match the input pytree it was called with."
                if structure != self.traced.in_tree
                else "Argument types differ from the types for which this computation was compiled."
            )
            raise TypeError(
                f"{difference} {self.traced.graph.name} was compiled for "
                f"({', '.join(map(str, wanted))}), got ({', '.join(map(str, found))}); "
                "call the jitted function itself, which compiles for new types"
            )
        return self._run(values, tuple(n for n, leaf in enumerate(leaves) if type(leaf) is not Array))


def _runner(traced: Traced, program: Program) -> Callable[..., Any]:
    """A function `(values, foreign=())` from a list of Arrays to the results' tree.

    `foreign` are the positions of those over memory that others may write: no result shares it, and it is not donated.
    """
    if program.executable.native is not None:
        return _native_runner(traced, program)
    run = program.executable.call
    weak = [v.aval.weak_type for v in traced.graph.outvars]
    dtypes = [v.aval.dtype for v in traced.graph.outvars]
    shapes = [v.aval.shape for v in traced.graph.outvars]
    views = [v in program.lowering.plan.aliases for v in program.lowering.plan.outputs]
    out_tree, donated, place = traced.out_tree, traced.donated, traced._backend.memory.place

    watched = set(_watched(traced, program))

    def wrap(data: Any, shape: tuple[int, ...], view: bool, is_weak: bool, dtype: Any) -> Array:
        return Array(data.reshape(shape) if view else data, is_weak, dtype)

    def call(values: list[Any], foreign: tuple[int, ...] = ()) -> Any:
        writable = []
        arrays = []
        for position, value in enumerate(values):
            if position in donated and position not in foreign and isinstance(value, Array):
                data, owned = value.donate()
                if owned:
                    writable.append(position)
                elif position in watched:
                    watched.discard(position)
                    held(traced, position)
                arrays.append(place(data))
            else:
                arrays.append(place(value._data))
        outputs = run(*arrays, writable=writable, foreign=foreign) if writable or foreign else run(*arrays)
        return tree.unflatten(out_tree, map(wrap, outputs, shapes, views, weak, dtypes))

    return call


def _native_runner(traced: Traced, program: Program) -> Any:
    return native.Program(program.executable.native, *around(traced, program))


def around(traced: Traced, program: Program) -> tuple[Any, ...]:
    """What the native core needs besides the executable, to take operands and to build the tree of results."""
    plan, backend = program.lowering.plan, traced._backend
    results = tuple(
        (v.aval.weak_type, mine in plan.aliases, v.aval.shape, v.aval.dtype if v.aval.dtype in CARRIED else None)
        for v, mine in zip(traced.graph.outvars, plan.outputs)
    )
    unflatten = functools.partial(tree.unflatten, traced.out_tree)
    whole = traced.out_tree.num_leaves == len(results)  # an accelerated function's tree has constants too
    template = tree.unflatten(traced.out_tree, range(len(results))) if whole else unflatten
    host = isinstance(backend.memory, compiler.HostMemory)
    watched = _watched(traced, program)
    tell = functools.partial(held, traced) if watched else None
    return traced.donated, results, template, unflatten, backend.memory.place, host, watched, tell


def _watched(traced: Traced, program: Program) -> tuple[int, ...]:
    """Donated arguments that are worth a warning where somebody else still holds them: those that results take over."""
    plan = program.lowering.plan
    if traced._backend.limits.whole:  # results are its compiler's to place
        return ()
    taken = set(plan.reuse.values())
    large = (n for n in traced.donated if plan.graph.invars[n].aval.nbytes >= LEAST_DONATED)
    return tuple(n for n in large if plan.slot_of[plan.graph.invars[n]] in taken)


def cost_analysis(plan: Plan) -> dict[str, float]:
    """What one run of a plan costs by count: `flops`, `bytes accessed`, `optimal bytes`."""
    moved = float(sum(map(compiler.moved_bytes, plan.groups)))
    graph = plan.graph
    ends = sum(v.aval.nbytes for v in (*graph.invars, *graph.constvars, *plan.outputs))
    return {
        "flops": float(sum(group.flops for group in plan.groups)),
        "bytes accessed": moved,
        "optimal bytes": float(ends),
    }
