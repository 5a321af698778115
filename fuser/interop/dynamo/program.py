"""`Program`: some operations of a graph as one fuser program, called with tensors.

The operations are traced by their rules when the program is made; where extents are symbolic, once for each set of sizes
(kernels do not depend on sizes, so new ones compile little or nothing).
"""

from __future__ import annotations

import operator
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
from fuser.interop.dynamo.layout import Layout, View, layout_of
from fuser.interop.dynamo.rules import TABLE, Refused, checking
from fuser.interop.torch.gradients import shared_results
from fuser.ir.graph import Graph
from fuser.ir.types import ArrayType
from fuser.lax.values import broadcast_to, convert, literal
from fuser.runtime.array import Array, numpy_dtype
from fuser.runtime.collection import no_collection
from fuser.trace.stage import stage

Sizes = dict[Any, int]  # of symbols


class RefusedNodes(Exception):
    """Operations that no rule expresses here, and why not."""

    def __init__(self, reasons: dict[Node, str]) -> None:
        super().__init__("; ".join(f"{node.target}: {reason}" for node, reason in reasons.items()))
        self.reasons = reasons


@dataclass(frozen=True)
class Staged:
    """A program's graph for one set of sizes, and what stands around it: layouts, and messages of the flags at its end."""

    graph: Graph
    layouts: Sequence[Layout]
    results: Sequence[Layout]
    messages: Sequence[str]


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
        self.lowerings: dict[tuple[int, ...], Lowering] = {}
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
            key = tuple(self._first_sizes.values())
            self._runs[key] = self._compiled(self._first, key)

    def __call__(self, *arguments: Any) -> list[torch.Tensor]:
        count = len(self.inputs)
        key = arguments[count:]
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = self._compiled(self._staged(dict(zip(self.symbols, key))), key)
        return run(arguments[:count])

    def __str__(self) -> str:
        return "\n".join(lowering.plan.explain() for lowering in self.lowerings.values())

    def _staged(self, sizes: Sizes) -> Staged:
        layouts = [_layout(node, sizes) for node in self.inputs]
        results = [_layout(node, sizes) for node in self.outputs]
        avals = [ArrayType(lay.dense, _dtype(node)) for lay, node in zip(layouts, self.inputs)]
        messages: list[str] = []
        refused: dict[Node, str] = {}

        def function(*dense: Any) -> list[Any]:
            env = {node: lay.value(x) for node, lay, x in zip(self.inputs, layouts, dense)}
            with checking() as checks:
                for node in self.nodes:
                    try:
                        env[node] = interpreted(node, env, sizes)
                    except Refused as error:
                        refused[node], env[node] = str(error), _stand_in(node.meta["val"], sizes)
                found = [lay.packed(env[node]) for lay, node in zip(results, self.outputs)]
            messages.extend(message for _, message in checks)
            return found + [flag for flag, _ in checks]

        with config.using(enable_x64=True), no_collection():
            graph = stage(function, avals, self.__name__)
        if refused:
            raise RefusedNodes(refused)
        return Staged(graph, layouts, results, messages)

    def _compiled(self, staged: Staged, key: tuple[int, ...]) -> Callable[..., list[torch.Tensor]]:
        with config.using(enable_x64=True):
            graph = Traced(staged.graph, None, None, (), self.backend).graph
            lowering = self.lowerings[key] = lower(graph, self.backend)
            program = load(lowering, self.backend)
        place = self.backend.memory.place
        readers = [
            lay.reader(_dtype(node), place) if _is_plain(node) else lambda tensor, lay=lay: place(lay.memory(tensor))
            for lay, node in zip(staged.layouts, self.inputs)
        ]
        shared = shared_results(lowering, len(staged.results))
        writers = [(n, staged.results[n].writer(_dtype(self.outputs[n]), view)) for n, view in self.given]
        return _runner(program.executable.call, readers, writers, staged.messages, len(self.outputs), shared)


def _runner(
    call: Any,
    readers: Sequence[Callable[[torch.Tensor], Any]],
    writers: Sequence[tuple[int, Callable[[Any], torch.Tensor]]],
    messages: Sequence[str],
    count: int,
    shared: Sequence[int],
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """From tensors to tensors; of `count` results, `shared` are those whose memory another result or an input has too."""

    def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        found = call(*[read(tensor) for read, tensor in zip(readers, tensors)])
        for flag, message in zip(found[count:], messages):
            if np.asarray(flag).any():
                raise IndexError(message)
        for n in shared:
            found[n] = _copied(found[n])
        return [write(found[n]) for n, write in writers]

    return run


def _copied(data: Any) -> Any:
    return data.copy() if type(data) is np.ndarray else Array(data).torch().clone()


def _dtype(node: Node) -> np.dtype:
    return numpy_dtype(node.meta["val"].dtype)


def _is_plain(node: Node) -> bool:
    """Whether a tensor's elements are those of its memory, without a lazy conjugation or negation (guards hold those of inputs)."""
    return not (node.meta["val"].is_conj() or node.meta["val"].is_neg())


def _layout(node: Node, sizes: Sizes) -> Layout:
    value = node.meta["val"]
    return layout_of([concrete(e, sizes) for e in value.shape], [concrete(s, sizes) for s in value.stride()])


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
