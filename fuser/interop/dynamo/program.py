"""`Program`: some operations of a graph as one fuser program, called with tensors.

The operations are traced by their rules when the program is made; where extents are symbolic, once for each set of sizes
(kernels do not depend on sizes, so new ones compile little or nothing).
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from fuser import backends
from fuser.api.stages import Traced
from fuser.backends.base import Backend
from fuser.compile import Lowering, load, lower
from fuser.config import config
from fuser.interop.dynamo.late_errors import examine
from fuser.interop.dynamo.layout import Layout, View, layout_of
from fuser.interop.dynamo.rules import TABLE, Refused, checking
from fuser.interop.torch.gradients import shared_results
from fuser.ir.graph import Graph
from fuser.ir.types import ArrayType
from fuser.lax.values import broadcast_to, convert, literal
from fuser.runtime.array import Array, numpy_dtype
from fuser.runtime.garbage_collection import no_collection
from fuser.trace.stage import stage

Sizes = dict[Any, int]  # of symbols


class RefusedNodes(Exception):
    """Operations that no rule expresses here, and why not."""

    def __init__(self, reasons: dict[Node, str]) -> None:
        super().__init__("; ".join(f"{node.target}: {reason}" for node, reason in reasons.items()))
        self.reasons = reasons


@dataclass(frozen=True)
class Tensor:
    """How a program reads or writes a tensor; one that is not `plain` may have a lazy conjugation or negation."""

    layout: Layout
    dtype: np.dtype
    plain: bool


@dataclass(frozen=True)
class Ends:
    """What stands around a program's graph for one set of sizes: its tensors, and errors of the flags at its end."""

    arguments: Sequence[Tensor]
    results: Sequence[Tensor]
    errors: Sequence[Exception]


def concrete(value: Any, sizes: Sizes) -> Any:
    """A size or number of a graph's node with the symbols' values put in."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        found = value.node.expr.xreplace(sizes)
        return (
            bool(found)
            if isinstance(value, torch.SymBool)
            else float(found)
            if isinstance(value, torch.SymFloat)
            else int(found)
        )
    return value


class Program:
    """Called with tensors (and the values of `symbols`), it gives the tensors that were asked for by `give`: those of `outputs`, and
    views of them."""

    def __init__(
        self,
        name: str,
        nodes: Sequence[Node],
        inputs: Sequence[Node],
        outputs: Sequence[Node],
        symbols: dict[Any, int | None],
        backend: str,
    ) -> None:
        """Traces the operations, where sizes are symbolic for those that `symbols` has as examples. Raises RefusedNodes."""
        self.__name__ = name
        self.nodes, self.inputs, self.outputs = tuple(nodes), tuple(inputs), tuple(outputs)
        self.given: list[tuple[int, View | None]] = []
        self.symbols = tuple(symbols)
        self.backend: Backend = backends.get(backend)
        self.count = len(self.inputs)
        self.lowerings: dict[tuple[int, ...], Lowering] = {}
        self._ends: dict[tuple[int, ...], Ends] = {}
        self._runs: dict[tuple[int, ...], Callable[..., list[torch.Tensor]]] = {}
        sizes = {symbol: hint for symbol, hint in symbols.items() if hint is not None}
        self._first_sizes = sizes
        self._first = self._staged(sizes) if len(sizes) == len(symbols) else None

    def give(self, output: int, view: View | None = None) -> int:
        """The place among the results for the tensor of an output, or for a view of it; to be called before `compile`."""
        self.given.append((output, view))
        return len(self.given) - 1

    def compile(self) -> None:
        """Makes the kernels for the sizes that the program was traced for."""
        if self._first is not None:
            self._compile(self._first, tuple(self._first_sizes.values()))

    def __call__(self, *arguments: Any) -> list[torch.Tensor]:
        count = self.count
        key = arguments[count:]
        run = self._runs.get(key)
        if run is None:
            run = self._compile(self._staged(dict(zip(self.symbols, key))), key)
        return run(*arguments[:count])

    def function(self) -> Callable[..., list[torch.Tensor]]:
        """What does the same as a call, at once where the program serves no sizes but its own."""
        return self if self.symbols else self._runs.get((), self)

    def __str__(self) -> str:
        return "\n".join(lowering.plan.explain() for lowering in self.lowerings.values())

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs to run the program: plans and kernel texts, of one that serves no sizes but its own."""
        if self.symbols:
            raise pickle.PicklingError(f"{self.__name__} is traced anew for other sizes, by torch's graph")
        kept = ("__name__", "given", "count", "lowerings", "_ends")
        return {name: self.__dict__[name] for name in kept} | {"backend": self.backend.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, backend=backends.get(state["backend"]), nodes=(), inputs=(), outputs=(), symbols=())
        self._runs, self._first = {}, None
        for key in self.lowerings:
            self._link(key)

    def _staged(self, sizes: Sizes) -> tuple[Graph, Ends]:
        arguments = [_tensor(node, sizes) for node in self.inputs]
        results = [_tensor(node, sizes) for node in self.outputs]
        avals = [ArrayType(x.layout.dense, x.dtype) for x in arguments]
        errors: list[Exception] = []
        refused: dict[Node, str] = {}

        def function(*dense: Any) -> list[Any]:
            env = {node: own.layout.value(x) for node, own, x in zip(self.inputs, arguments, dense)}
            with checking(self.backend.memory.platform) as checks:
                for node in self.nodes:
                    try:
                        env[node] = interpreted(node, env, sizes)
                    except Refused as error:
                        refused[node], env[node] = str(error), _stand_in(node.meta["val"], sizes)
                found = [own.layout.packed(env[node]) for own, node in zip(results, self.outputs)]
            errors.extend(error for _, error in checks)
            return found + [flag for flag, _ in checks]

        with config.using(enable_x64=True), no_collection():
            graph = stage(function, avals, self.__name__)
        if refused:
            raise RefusedNodes(refused)
        return graph, Ends(arguments, results, errors)

    def _compile(self, staged: tuple[Graph, Ends], key: tuple[int, ...]) -> Callable[..., list[torch.Tensor]]:
        graph, self._ends[key] = staged
        with config.using(enable_x64=True):
            self.lowerings[key] = lower(Traced(graph, None, None, (), self.backend).graph, self.backend)
        return self._link(key)

    def _link(self, key: tuple[int, ...]) -> Callable[..., list[torch.Tensor]]:
        lowering, ends = self.lowerings[key], self._ends[key]
        with config.using(enable_x64=True):
            program = load(lowering, self.backend)
        memory = self.backend.memory
        readers = [
            own.layout.reader(own.dtype, memory)
            if own.plain
            else lambda tensor, own=own: memory.place(own.layout.memory(tensor))
            for own in ends.arguments
        ]
        shared = shared_results(lowering, len(ends.results))
        writers = [(n, ends.results[n].layout.writer(ends.results[n].dtype, view)) for n, view in self.given]
        executable = program.executable
        call = executable.call if executable.native is None else executable.native.call
        run = _runner(call, readers, writers, ends.errors, len(ends.results), shared)
        if memory.platform == "cuda" and torch.cuda.is_available():
            run = _not_captured(run, torch.cuda.is_current_stream_capturing)
        self._runs[key] = run
        return run


def _runner(
    call: Any,
    readers: Sequence[Callable[[torch.Tensor], Any]],
    writers: Sequence[tuple[int, Callable[[Any], torch.Tensor]]],
    errors: Sequence[Exception],
    count: int,
    shared: Sequence[int],
) -> Callable[..., list[torch.Tensor]]:
    """From tensors to tensors; of `count` results, `shared` are those whose memory another result or an input has too."""

    def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
        found = call(*[read(tensor) for read, tensor in zip(readers, tensors)])
        if errors:
            examine(found[count:], errors)
        for n in shared:
            found[n] = _copied(found[n])
        return [write(found[n]) for n, write in writers]

    return run


def _not_captured(
    run: Callable[..., list[torch.Tensor]], capturing: Callable[[], bool]
) -> Callable[..., list[torch.Tensor]]:
    """RuntimeError where the user captures a CUDA graph, whose replays would write to memory that is others' by then."""

    def checked(*tensors: torch.Tensor) -> list[torch.Tensor]:
        if capturing():
            raise RuntimeError(
                'torch.compile(backend="fuser") was called while torch.cuda.graph captures, and its memory is not the graph\'s; '
                "call it without: programs that come back with the same memory are replayed as graphs anyway"
            )
        return run(*tensors)

    return checked


def _copied(data: Any) -> Any:
    return data.copy() if type(data) is np.ndarray else Array(data).torch().clone()


def _tensor(node: Node, sizes: Sizes) -> Tensor:
    """What guards hold of an input's layout, and what torch has said of a result's."""
    value = node.meta["val"]
    layout = layout_of([concrete(e, sizes) for e in value.shape], [concrete(s, sizes) for s in value.stride()])
    return Tensor(layout, numpy_dtype(value.dtype), not (value.is_conj() or value.is_neg()))


def interpreted(node: Node, env: dict[Node, Any], sizes: Sizes) -> Any:
    """The node's value by its rule, of torch's dtype and shape; Refused where the rule does not express it."""

    def argument(other: Node) -> Any:
        return env[other] if other in env else concrete(other.meta["val"], sizes)

    args: Any = torch.fx.map_arg(node.args, argument)
    expected = node.meta["val"]
    if node.target is operator.getitem:
        return args[0][args[1]]
    first = next(e for e in expected if e is not None) if isinstance(expected, (tuple, list)) else expected
    kwargs = {k: torch.fx.map_arg(v, argument) for k, v in node.kwargs.items() if k not in _PLACE}
    try:
        found = TABLE[str(node.target)](numpy_dtype(first.dtype), *args, **kwargs)
        return _fitted(found, expected, sizes)
    except (TypeError, ValueError, IndexError, NotImplementedError) as error:
        raise Refused(str(error)) from error


_PLACE = ("dtype", "device", "layout", "pin_memory", "memory_format", "non_blocking", "out_dtype")


def _stand_in(expected: Any, sizes: Sizes) -> Any:
    """A value of the types of a refused operation's, so that what comes after it is tried as well."""
    if isinstance(expected, (tuple, list)):
        return [None if e is None else _stand_in(e, sizes) for e in expected]
    shape = tuple(concrete(e, sizes) for e in expected.shape)
    return broadcast_to(literal(0, numpy_dtype(expected.dtype)), shape)


def _fitted(found: Any, expected: Any, sizes: Sizes) -> Any:
    if isinstance(expected, (tuple, list)):
        return [None if e is None or f is None else _fitted(f, e, sizes) for f, e in zip(found, expected)]
    shape = tuple(concrete(e, sizes) for e in expected.shape)
    if tuple(found.shape) != shape:
        raise Refused(f"a result of shape {tuple(found.shape)} where torch has {shape}")
    dtype = numpy_dtype(expected.dtype)
    return found if found.dtype == dtype else convert(found, dtype)
