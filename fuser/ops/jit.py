"""`jit` under transforms that end in evaluation: a call of a compiled graph, whose transforms are compiled graphs again.

A Program is a graph that is compiled when it first runs, with what transforms have made of it so far, so that a second
call neither traces nor compiles. Within staging a jitted function is simply traced: nested jit inlines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array
from fuser.runtime.single_flight import once
from fuser.trace.batch import moved, size_of
from fuser.trace.cells import is_ref
from fuser.trace.core import Trace, type_of, using
from fuser.trace.graphs import batch_graph, jvp_graph, split, transpose_graph
from fuser.trace.hoisting import calls_kept, number
from fuser.trace.linear import LinearTrace, pushes
from fuser.trace.replay import replay
from fuser.trace.stage import StageTrace
from fuser.trace.tangent import Undefined, Zero


class Program:
    """A graph to be compiled for a backend, the positions of inputs whose memory may be taken over, and its transforms."""

    # Set by fuser.api.jitted, which stands above: makes a graph a function from Arrays to a list of Arrays.
    compiler: ClassVar[Callable[[Graph, tuple[int, ...], Any], Callable[[list[Any]], list[Any]]]]
    implied = True  # by the graph that stands beside it in params: texts leave it out

    def __init__(self, graph: Graph, donated: Sequence[int] = (), backend: Any = None) -> None:
        self.graph = graph
        self.donated = tuple(donated)
        self.backend = backend
        self._run: Callable[[list[Any]], list[Any]] | None = None
        self._derived: dict[Any, Any] = {}

    def __str__(self) -> str:
        return self.graph.name

    def __call__(self, *values: Any) -> list[Any]:
        run = self._run
        if run is None:
            run = self._run = once(self, lambda: self._run, self._compiled)
        return run(list(values))

    def _compiled(self) -> Callable[[list[Any]], list[Any]]:
        self._run = Program.compiler(self.graph, self.donated, self.backend)
        return self._run

    def bind(self, *operands: Any) -> list[Any]:
        """The program applied under the current trace."""
        return jit_p.bind(*operands, name=self.graph.name, jaxpr=self.graph, program=self)  # type: ignore[no-any-return]

    def _known(self, key: Any, make: Callable[[], Any]) -> Any:
        """What is derived from the program once, whatever number of threads ask for it."""

        def keep() -> Any:
            self._derived[key] = made = make()
            return made

        known = self._derived.get(key)
        return once((self, key), lambda: self._derived.get(key), keep) if known is None else known

    def jvp(self, active: tuple[bool, ...]) -> tuple[Program, list[bool]]:
        """As `jvp_graph`."""

        def make() -> tuple[Program, list[bool]]:
            graph, present = jvp_graph(self.graph, active)
            tangents = [n for n, use in enumerate(active) if use]
            also = [len(active) + place for place, n in enumerate(tangents) if n in self.donated]
            return Program(graph, (*self.donated, *also), self.backend), present

        return self._known(("jvp", active), make)  # type: ignore[no-any-return]

    def batch(self, batched: tuple[bool, ...], size: int, axis: Any) -> tuple[Program, list[bool]]:
        """As `batch_graph`."""

        def make() -> tuple[Program, list[bool]]:
            graph, present = batch_graph(self.graph, batched, size, axis=axis)
            return Program(graph, self.donated, self.backend), present

        return self._known(("batch", batched, size, axis), make)  # type: ignore[no-any-return]

    def split(self, linear: tuple[bool, ...]) -> Parts:
        """As `graphs.split`, with residuals that the caller has already left out of the known part's results."""
        return self._known(("split", linear, pushes()), lambda: _parts(self, linear))  # type: ignore[no-any-return]

    def transpose(self, linear: tuple[bool, ...], active: tuple[bool, ...]) -> tuple[Program, list[bool]]:
        """As `transpose_graph`."""

        def make() -> tuple[Program, list[bool]]:
            graph, present = transpose_graph(self.graph, linear, active)
            return Program(graph, (), self.backend), present

        return self._known(("transpose", linear, active), make)  # type: ignore[no-any-return]


class Parts(NamedTuple):
    """A program in two: the known part, the linear part, which results are linear, and where the residuals come from."""

    known: Program
    linear: Program
    is_linear: list[bool]
    sources: list[tuple[str, Any]]  # of each residual: ("result", n), ("input", n) or ("value", array)

    def residuals(self, results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """The residuals, from the results and the inputs of the known part."""
        places = {"result": results, "input": inputs}
        return [at if kind == "value" else places[kind][at] for kind, at in self.sources]


def _parts(program: Program, linear: tuple[bool, ...]) -> Parts:
    known, linear_graph, is_linear, _ = split(program.graph, linear)
    count = sum(not use for use in is_linear)
    inputs = {v: n for n, v in enumerate(known.invars)}
    constants = dict(zip(known.constvars, known.consts))
    kept: list[Operand] = list(known.outvars[:count])
    places: dict[Var, int] = {}

    def source(operand: Operand) -> tuple[str, Any]:
        if isinstance(operand, Literal):
            return "value", number(Array(np.asarray(operand.val), operand.aval.weak_type))
        if operand in inputs:
            return "input", inputs[operand]
        if operand in constants:
            return "value", constants[operand]
        if operand not in places:
            places[operand] = len(kept)
            kept.append(operand)
        return "result", places[operand]

    sources = [source(operand) for operand in known.outvars[count:]]
    held = {at for kind, at in sources if kind == "input"}
    positions = [n for n, use in enumerate(linear) if not use]
    donated = [place for place, n in enumerate(positions) if n in program.donated and place not in held]
    first = Program(replace(known, outvars=tuple(kept)), donated, program.backend)
    return Parts(first, Program(linear_graph, (), program.backend), is_linear, sources)


# The rules.


def _program_of(jaxpr: Graph, program: Program | None) -> Program:
    """What a call runs: its program, or one of the graph where somebody else has put that into the params."""
    return program if program is not None and program.graph is jaxpr else Program(jaxpr)


def _impl(*values: Any, jaxpr: Graph, program: Program | None = None, **params: Any) -> list[Any]:
    return _program_of(jaxpr, program)(*[_operand(v, of.aval) for v, of in zip(values, jaxpr.invars, strict=True)])


def _operand(value: Any, aval: ArrayType) -> Any:
    """The operand as an Array; TypeError where it has not the type that the program was made for."""
    if is_ref(value):
        return value
    array = value if isinstance(value, Array) else Array(np.asarray(value, aval.dtype), aval.weak_type)
    if array.dtype != aval.dtype or array.shape != aval.shape:
        raise TypeError(f"jit needs an operand of type {aval}, got {type_of(array)} ({current_source().short})")
    return array


def _eval(*arrays: np.ndarray, jaxpr: Graph, **params: Any) -> list[np.ndarray]:
    return evaluate(jaxpr, arrays)


def _type(*avals: ArrayType, jaxpr: Graph, **params: Any) -> tuple[ArrayType, ...]:
    return jaxpr.out_avals


def _stage(trace: StageTrace, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    if calls_kept():
        return trace.record(jit_p, tuple(args), params)  # type: ignore[no-any-return]
    with using(trace):
        return replay(params["jaxpr"], *args)


def _partial(trace: Trace, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    assert isinstance(trace, LinearTrace)
    linear = tuple(trace.follows(a) for a in args)
    known = [a for a, use in zip(args, linear) if not use]
    parts = _program_of(params["jaxpr"], params.get("program")).split(linear)
    with using(trace.parent):
        results = parts.known.bind(*known) if parts.known.graph.outvars else []
    residuals = parts.residuals(results, known)
    second = parts.linear
    operands = (*residuals, *(a for a, use in zip(args, linear) if use))
    tangents = iter(
        trace.record(jit_p, operands, {"name": second.graph.name, "jaxpr": second.graph, "program": second})
        if second.graph.outvars
        else ()
    )
    values = iter(results)
    return [next(tangents) if use else next(values) for use in parts.is_linear]


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], jaxpr: Graph, program: Program | None = None, **params: Any
) -> tuple[Any, Any]:
    active = tuple(type(t) is not Zero for t in tangents)
    derived, present = _program_of(jaxpr, program).jvp(active)
    results = derived.bind(*primals, *(t for t in tangents if type(t) is not Zero))
    outs, rest = results[: len(present)], iter(results[len(present) :])
    return outs, [next(rest) if use else Zero(v.aval) for use, v in zip(present, jaxpr.outvars)]


def _transpose(
    cotangents: Sequence[Any], *operands: Any, jaxpr: Graph, program: Program | None = None, **params: Any
) -> list[Any]:
    linear = tuple(type(o) is Undefined for o in operands)
    active = tuple(type(c) is not Zero for c in cotangents)
    derived, present = _program_of(jaxpr, program).transpose(linear, active)
    known = [o for o, use in zip(operands, linear) if not use]
    found = iter(derived.bind(*known, *(c for c in cotangents if type(c) is not Zero)))
    wanted = iter(present)
    return [next(found) if use and next(wanted) else None for use in linear]


def _batch(
    operands: Sequence[Any],
    dims: Sequence[int | None],
    jaxpr: Graph,
    program: Program | None = None,
    axis: Any = None,
    **params: Any,
) -> tuple[Any, Any]:
    size = size_of(operands, dims) if any(d is not None for d in dims) else axis[1]
    derived, present = _program_of(jaxpr, program).batch(tuple(d is not None for d in dims), size, axis)
    results = derived.bind(*(moved(v, d, 0) for v, d in zip(operands, dims)))
    return results, [0 if use else None for use in present]


jit_p: Primitive = register(
    Primitive(
        "jit",
        Fusion.CONTROL,
        multiple_results=True,
        type=_type,
        eval=_eval,
        run=_impl,
        stage=_stage,
        partial=_partial,
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
    )
)
