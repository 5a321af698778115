"""A graph of core ATen operations divided into fused programs and the operations that torch runs between them.

Each operation that has a rule goes to fuser; operations join one program unless torch must run something in between (`levels`).
Views and arrays that are made cost nothing in a kernel, so each program computes those that it reads by itself.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fuser.interop.dynamo.internals import free_symbols
from fuser.interop.dynamo.layout import View, layout_of
from fuser.interop.dynamo.program import Program, RefusedNodes
from fuser.interop.dynamo.rules import TABLE
from fuser.interop.dynamo.rules.movement import MADE, VIEWS

_DTYPES = frozenset(
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
        *("complex64", "complex128"),
    )
)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_log = logging.getLogger("fuser")
_told: set[tuple[str, str]] = set()


class Division:
    """Which nodes of a graph fuser computes, and at which level. A level's fused nodes need results of torch's of lower levels alone."""

    def __init__(self, graph: Graph, device: str, refused: dict[Node, str]) -> None:
        self.graph, self.device, self.refused = graph, device, refused
        self.symbols = set(symbols_of(graph))
        self.fused: dict[Node, int] = {}
        self.torch: dict[Node, int] = {}
        last = 0  # what has effects, as drawing random numbers has, stays in order
        for node in graph.nodes:
            if node.op != "call_function" or is_size(node) or self.cheap(node):
                continue
            fused = self.reason(node) is None
            same, other = (self.fused, self.torch) if fused else (self.torch, self.fused)
            roots = self.roots(node)
            level = max([same.get(r, 0) for r in roots] + [other[r] + 1 for r in roots if r in other] + [0])
            if (not fused and node.is_impure()) or _random(node):
                level = last = max(level, last)
            same[node] = level

    def reason(self, node: Node) -> str | None:
        """Why torch runs the node, or None."""
        if node in self.refused:
            return self.refused[node]
        if node.target is operator.getitem:
            source = node.args[0]
            return self.reason(source) if isinstance(source, Node) else "of no operation"
        if str(node.target) not in TABLE:
            return "no rule"
        results = _values([node])
        for place, value in enumerate(results + _values(node.all_input_nodes)):
            if isinstance(value, _SYMBOLIC) and self.beyond(value):
                return "of a number that depends on values"
            if isinstance(value, torch.Tensor):
                if self.beyond(value):
                    return "of a size that depends on values"
                if value.dtype not in _DTYPES:
                    return f"of dtype {value.dtype}"
                number = (
                    place >= len(results) and value.dim() == 0
                )  # which torch takes from the host among a GPU's tensors
                if value.device.type != self.device and not (number and value.device.type == "cpu"):
                    return f"on {value.device}"
        return None

    def beyond(self, value: Any) -> bool:
        """Whether a tensor's sizes, or a number, are not known from the sizes of the graph's inputs."""
        return not free_symbols(value) <= self.symbols

    def cheap(self, node: Node) -> bool:
        """Whether each program that reads the node computes it by itself."""
        if node.op != "call_function" or (node.target is not operator.getitem and self.reason(node) is not None):
            return False
        return node.target is operator.getitem or str(node.target) in VIEWS or str(node.target) in MADE

    def roots(self, node: Node) -> list[Node]:
        """The nodes that are no views, parts or sizes whose values the node is made of."""
        found: dict[Node, None] = {}
        stack = list(node.all_input_nodes)
        while stack:
            other = stack.pop()
            if self.cheap(other) or is_size(other):
                stack.extend(other.all_input_nodes)
            else:
                found[other] = None
        return list(found)


def symbols_of(graph: Graph) -> dict[Any, Node]:
    """The graph's inputs that are sizes, by the symbols that they give values to."""
    return {
        n.meta["val"].node.expr: n
        for n in graph.nodes
        if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.SymInt) and n.meta["val"].node.expr.is_symbol
    }


def is_size(node: Node) -> bool:
    """Whether a node is a Python number: one that the sizes of the graph's inputs say, or that is read from a tensor."""
    return isinstance(node.meta.get("val"), (*_SYMBOLIC, int, float, bool))


def _values(nodes: Sequence[Node]) -> list[Any]:
    """What the nodes stand for, one by one where that is a tuple."""
    values = [node.meta.get("val") for node in nodes]
    return [v for found in values for v in (found if isinstance(found, (list, tuple)) else [found])]


def _random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def divided(module: GraphModule, device: str, backend: str) -> GraphModule:
    """The module with each group of operations as one Program; what the rules refuse, torch runs."""
    refused: dict[Node, str] = {}
    _describe(module.graph)
    while True:
        division = Division(module.graph, device, refused)
        try:
            assembly = _Assembly(module, division, backend)
            found = assembly.module()
        except RefusedNodes as refusal:
            refused.update(refusal.reasons)
            continue
        for called in assembly.attributes.values():
            called.program.compile()
        _tell(division)
        return found


def _describe(graph: Graph) -> None:
    """Gives the operations of checkpoints, which keep or restore the generator's state, the values that torch leaves out."""
    for node in graph.nodes:
        if node.op != "call_function" or "val" in node.meta:
            continue
        name = str(node.target)
        if name in ("run_and_save_rng_state", "run_with_rng_state"):
            kept = 0 if name == "run_and_save_rng_state" else 1
            function, *inner = node.args[kept:]
            args, kwargs = torch.fx.map_arg((inner, node.kwargs), lambda n: n.meta["val"])
            [first, *_] = [n.meta["val"] for n in node.all_input_nodes if "val" in n.meta]
            with first.fake_mode:
                found = function(*args, **kwargs)
                node.meta["val"] = found if kept else (torch.get_rng_state(), found)
        elif node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), tuple):
            node.meta["val"] = node.args[0].meta["val"][node.args[1]]


def _tell(division: Division) -> None:
    """Notes, once each, which operations torch runs."""
    for node in division.torch:
        note = (str(node.target), str(division.reason(node)))
        if note not in _told:
            _told.add(note)
            _log.info("%s runs in torch: %s", *note)


class _Assembly:
    """The new graph, step by step."""

    def __init__(self, module: GraphModule, division: Division, backend: str) -> None:
        self.source, self.division, self.backend = module, division, backend
        self.new = Graph()
        self.made: dict[Node, Node] = {}
        self.filled: dict[Node, _Filled] = {}
        self.attributes: dict[str, Called] = {}
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.symbols = symbols_of(module.graph)

    def module(self) -> GraphModule:
        """Inputs, then the steps level by level, then the outputs."""
        for node in self.placeholders:
            self.made[node] = self.new.placeholder(node.name)
        fused, others = _by_level(self.division.fused), _by_level(self.division.torch)
        for level in sorted({*fused, *others}):
            self.program(fused.get(level, []), level)
            for node in others.get(level, []):
                self.copied(node)
        [output] = [n for n in self.source.graph.nodes if n.op == "output"]
        self.new.output(torch.fx.map_arg(output.args[0], self.copied))
        self.new.lint()
        return GraphModule({**dict(self.source.named_modules()), **_tensors(self.source), **self.attributes}, self.new)

    def copied(self, node: Node) -> Node:
        """The node of the new graph for one of the old; torch runs it where no program has made its value."""
        if node not in self.made:
            given = self.given(node)
            if given is None:
                for other in node.all_input_nodes:
                    self.copied(other)
                given = self.new.node_copy(node, lambda n: self.made[n])
            self.made[node] = given
        return self.made[node]

    def given(self, node: Node) -> Node | None:
        """The result of a program's call that is the node's tensor, where that lies in memory that a program fills; None elsewhere."""
        base = node
        while base not in self.filled and _is_view(base):
            base = base.args[0]  # type: ignore[assignment]
        filled = self.filled.get(base)
        view = None if filled is None or base is node else _view(node, base)
        if filled is None or (view is None and base is not node):
            return None
        with self.new.inserting_after(filled.last):
            filled.last = self.new.call_function(
                operator.getitem, (filled.call, filled.program.give(filled.output, view))
            )
        return filled.last

    def program(self, nodes: Sequence[Node], level: int) -> None:
        """One call of a Program that computes `nodes`, and its results one by one."""
        results = [n for n in nodes if self.read_outside(n, set(nodes))]
        if not results:
            return
        inside, inputs = self.closure(results, set(nodes))
        outputs = [n for r in results for n in self.tensors(r)]
        inside += [n for n in outputs if n not in inside]
        program = Program(
            f"{self.source.__class__.__name__.lower()}_{level}",
            inside,
            inputs,
            outputs,
            {symbol: _hint(placeholder) for symbol, placeholder in self.symbols.items()},
            self.backend,
        )
        arguments = (*[self.copied(n) for n in inputs], *[self.made[n] for n in self.symbols.values()])
        name = f"program_{level}"
        self.attributes[name] = Called(program)
        call = self.new.call_module(name, arguments)
        for number, node in enumerate(outputs):
            self.filled[node] = _Filled(program, call, number, call)

    def tensors(self, node: Node) -> list[Node]:
        """The tensors that a node gives to others: itself, or the parts of its tuple that somebody reads."""
        if isinstance(node.meta["val"], torch.Tensor):
            return [node]
        return [u for u in node.users if u.target is operator.getitem and isinstance(u.meta.get("val"), torch.Tensor)]

    def read_outside(self, node: Node, inside: set[Node]) -> bool:
        """Whether something outside of the program reads the node, through views of it too."""
        stack = list(node.users)
        while stack:
            user = stack.pop()
            if self.division.cheap(user):
                stack.extend(user.users)
            elif user not in inside and (not is_size(user) or self.division.beyond(user.meta["val"])):
                return True
        return False

    def closure(self, results: Sequence[Node], inside: set[Node]) -> tuple[list[Node], list[Node]]:
        """What the program computes, in order, and the tensors that it reads."""
        needed: set[Node] = set()
        inputs: dict[Node, None] = {}
        stack = list(results)
        while stack:
            node = stack.pop()
            if node in needed or node in inputs or is_size(node):
                continue
            known = node in self.made or node in self.filled
            here = not (known and isinstance(node.meta["val"], torch.Tensor))
            if node in inside or (self.division.cheap(node) and here and not self.of_torch(node)):
                needed.add(node)
                stack.extend(node.all_input_nodes)
            else:
                inputs[node] = None
        return [n for n in self.source.graph.nodes if n in needed], list(inputs)

    def of_torch(self, node: Node) -> bool:
        """Whether a node is a part of what torch gives as a tuple."""
        if node.target is not operator.getitem:
            return False
        source = node.args[0]
        return source not in self.division.fused and not (isinstance(source, Node) and self.division.cheap(source))


@dataclass
class _Filled:
    """Memory that a program fills: its call in the new graph, the number of the output, and the last of its results that is read."""

    program: Program
    call: Node
    output: int
    last: Node


def _is_view(node: Node) -> bool:
    """Whether a node's tensor lies in the memory of its first argument."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or len(schema.returns) != 1 or not isinstance(node.args[0], Node):
        return False
    alias = schema.returns[0].alias_info
    return alias is not None and not alias.is_write and isinstance(node.meta.get("val"), torch.Tensor)


def _view(node: Node, base: Node) -> View | None:
    """Where a view lies in the memory of its base, which has no gaps; None where the sizes are symbolic, or it reads in another way."""
    value, of = node.meta["val"], base.meta["val"]
    if free_symbols(value) or free_symbols(of) or not value.numel() or value.dtype != of.dtype:
        return None
    if value.is_conj() or value.is_neg() or not _is_whole(of):
        return None
    offset = value.storage_offset() - of.storage_offset()
    return View(tuple(value.shape), tuple(value.stride()), offset)


def _is_whole(value: torch.Tensor) -> bool:
    """Whether the tensor that a program gives has these strides, where they matter."""
    strides = layout_of(value.shape, value.stride()).strides
    return all(e == 1 or own == s for e, own, s in zip(value.shape, strides, value.stride()))


def _hint(placeholder: Node) -> int | None:
    """The size that a symbol stood for when torch traced, where there was one."""
    size = placeholder.meta["val"].node
    return int(size.hint) if size.has_hint() else None


class Called(torch.nn.Module):
    """A Program where a graph calls it."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.forward = program.__call__


def _tensors(module: GraphModule) -> dict[str, Any]:
    """What the graph reads from the module itself."""
    names = [str(n.target) for n in module.graph.nodes if n.op == "get_attr"]
    return {name: operator.attrgetter(name)(module) for name in names}


def _by_level(levels: dict[Node, int]) -> dict[int, list[Node]]:
    found: dict[int, list[Node]] = {}
    for node, level in levels.items():
        found.setdefault(level, []).append(node)
    return found
