"""Compiled graphs in torch's cache on disk: a process that compiles a model again only traces it with Dynamo.

torch keeps what AOTAutograd gives, forward and backward, by the graph that Dynamo recorded and by settings (`AOTAutogradCache`).
Its entry holds a divided graph as a list of nodes, and of each program the plan and the kernel texts; kernels come out of
fuser's cache. Graphs of the CPU with known sizes are kept, without operators of the user's, whose functions may change.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, GraphModule, Node

from fuser import backends
from fuser.config import config
from fuser.interop.dynamo.divide import Called
from fuser.interop.dynamo.internals import (
    AOTAutogradCache,
    BoxedCodeGen,
    BypassAOTAutogradCache,
    CustomGraphPass,
    OpOverload,
    OutputCode,
    autograd_settings,
    inductor_settings,
    tree_map,
)

_PACKAGE = pathlib.Path(__file__).resolve().parents[2]


class CompiledGraph(OutputCode):  # type: ignore[misc]
    """A divided graph, called with its inputs in a list, which it empties; one that may be kept if `kept`."""

    def __init__(self, module: GraphModule, kept: bool) -> None:
        super().__init__()
        self._boxed_call = True  # of the object: wrappers of torch's take it over from there
        self.module: GraphModule | None = _callable(module)
        self.content = b""
        self.kept = kept and config.cache
        # From 2.12 on torch keeps what has a key; `_bundled` sees to it that nothing is looked up by it.
        self._fx_graph_cache_key = "fuser" if self.kept else None

    def __call__(self, inputs: Sequence[Any]) -> Any:
        module = self.module or self._restored()
        return module.forward(inputs)

    def prepare_for_serialization(self) -> None:
        """The copy that torch is about to pickle becomes bytes; BypassAOTAutogradCache, with the reason, where that cannot be."""
        if not self.kept:
            raise BypassAOTAutogradCache("fuser: not a graph that is kept")
        assert self.module is not None
        try:
            self.content = pickle.dumps(_written(self.module), pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
            raise BypassAOTAutogradCache(f"fuser: {error}") from error
        self.module = None

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        """Nothing: the graph is made when it is first called, a backward one only where gradients are asked for."""

    def _restored(self) -> GraphModule:
        self.module, self.content = _callable(_read(pickle.loads(self.content))), b""
        return self.module


def _callable(module: GraphModule) -> GraphModule:
    """The module, whose `forward` takes its inputs in a list and calls programs without what torch does around a module's call."""
    module.graph.set_codegen(BoxedCodeGen())
    module.recompile()
    for name, part in module.named_children():
        if isinstance(part, Called):
            vars(module)[name] = part.program.function()
    return module


@dataclass(frozen=True)
class _Place:
    """A node, by its number in the graph."""

    number: int


@dataclass(frozen=True)
class _Operator:
    """An operator of torch's, by its names."""

    namespace: str
    name: str
    overload: str

    def found(self) -> Any:
        return getattr(getattr(getattr(torch.ops, self.namespace), self.name), self.overload)


def _written(module: GraphModule) -> tuple[list[Any], dict[str, Any]]:
    """The nodes of a graph, and what they call or read by name."""
    places: dict[Node, Any] = {node: _Place(number) for number, node in enumerate(module.graph.nodes)}
    nodes = []
    for node in module.graph.nodes:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), places.__getitem__)
        nodes.append((node.op, _target(node), tuple(args), dict(kwargs), node.name))
    named = {n.target: n for n in module.graph.nodes if n.op in ("call_module", "get_attr")}
    return nodes, {name: _attribute(module, name) for name in named}


def _target(node: Node) -> Any:
    if not isinstance(node.target, OpOverload):
        return node.target
    namespace, _, name = node.target._schema.name.partition("::")
    return _Operator(namespace, name, node.target._overloadname)


def _attribute(module: GraphModule, name: str) -> Any:
    found = dict(module.named_children()).get(name)
    found = getattr(module, name) if found is None else found
    if isinstance(found, GraphModule):
        raise pickle.PicklingError(f"{name} is a graph of its own")
    return found


def _read(written: tuple[list[Any], dict[str, Any]]) -> GraphModule:
    """The inverse of `_written`."""
    nodes, attributes = written
    graph, made = Graph(), []  # type: ignore[var-annotated]

    def known(value: Any) -> Any:
        return made[value.number] if isinstance(value, _Place) else value

    for op, target, args, kwargs, name in nodes:
        called = target.found() if isinstance(target, _Operator) else target
        args, kwargs = tree_map(known, (args, kwargs))
        made.append(graph.create_node(op, called, args, kwargs, name))
    return GraphModule(attributes, graph)


@contextlib.contextmanager
def key_of_settings() -> Iterator[None]:
    """While the block runs, keys of torch's cache hold what graphs depend on beside torch: this fuser, its settings, the machine."""
    with inductor_settings.patch(post_grad_custom_post_pass=_Settings()):
        yield


class _Settings(CustomGraphPass):  # type: ignore[misc]
    """A part of the key: inductor, which would run it, is not at work here."""

    def __call__(self, graph: Graph) -> None:
        raise AssertionError("inductor is not at work under the backend fuser")

    def uuid(self) -> str:
        machine = backends.get("c").limits.target
        return f"fuser {_sources()} {hashlib.sha256(repr((config.all_settings(), machine)).encode()).hexdigest()}"


@functools.cache
def _sources() -> str:
    """The sources of fuser, and the versions of what pickles depend on."""
    found = hashlib.sha256(repr((sys.version_info[:3], np.__version__)).encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        status = os.stat(path)
        found.update(f"{path.relative_to(_PACKAGE)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()


def _bundled(make_entry: Callable[..., Any]) -> Callable[..., Any]:
    """Entries of our graphs hold them; those of inductor's refer to another cache, unless the setting `bundled_autograd_cache` is on."""

    @functools.wraps(make_entry)
    def made(compiled_fw_func: Any, *rest: Any, **named: Any) -> Any:
        innermost = compiled_fw_func
        while hasattr(innermost, "__wrapped__"):
            innermost = innermost.__wrapped__
        ours = isinstance(innermost, CompiledGraph)
        with autograd_settings.patch(bundled_autograd_cache=True) if ours else contextlib.nullcontext():
            return make_entry(compiled_fw_func, *rest, **named)

    return made


AOTAutogradCache.make_entry = staticmethod(_bundled(AOTAutogradCache.make_entry))  # type: ignore[method-assign]
