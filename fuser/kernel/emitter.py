"""What the emitters of all backends share: which name holds a node, and in which order nodes become variables.

In: a kernel. A backend's emitter is a subclass that says how its language writes a number, a load, an index, a store and a
variable; operations come from its table. `BlockEmitter` is for languages whose values are blocks of elements, in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fuser.ir.index import Affine, Axis, Computed, Div
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.operands import operands, own_axes

Span = frozenset[Any]
NOWHERE: Span = frozenset()
_LETTERS = "ijklmnpq"


class Emitter:
    """Writes one kernel. `env` maps nodes to what holds them where the text now stands."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.names: dict[Scalar, str] = {}
        self.env: dict[Any, Any] = {}

    # How the language writes things.

    def constant(self, node: Scalar) -> Any:
        """A number where it is used."""
        raise NotImplementedError

    def load(self, node: Scalar) -> Any:
        """The element of an array, in the type in which values are computed."""
        raise NotImplementedError

    def position(self, node: Scalar) -> Any:
        """An index as a number."""
        raise NotImplementedError

    def operation(self, node: Scalar, args: list[Any]) -> Any:
        """An operation of the vocabulary, by the backend's table."""
        raise NotImplementedError

    def bind(self, node: Scalar, value: Any) -> Any:
        """A variable of the node's name with this value; what holds it."""
        raise NotImplementedError

    def store(self, store: Store) -> None:
        """Write a value to memory."""
        raise NotImplementedError

    # Nodes.

    def name(self, node: Scalar) -> str:
        return self.names.setdefault(node, f"v{len(self.names)}")

    def operand(self, node: Scalar) -> Any:
        """A node where it is used."""
        return self.constant(node) if node.op == "const" else self.env[node]

    def arguments(self, node: Scalar) -> list[Any]:
        """The operands of an operation."""
        return [self.operand(a) for a in node.args]

    def expression(self, node: Scalar) -> Any:
        """The value of a node, once what it needs is there."""
        if node.op == "load":
            return self.load(node)
        if node.op == "index":
            return self.position(node)
        return self.operation(node, self.arguments(node))

    def define(self, node: Scalar) -> None:
        """Compute a node into a variable of its own, if it is not there."""
        if node.op != "const" and node not in self.env:
            self.env[node] = self.bind(node, self.expression(node))

    def define_all(self, nodes: Iterable[Scalar]) -> None:
        for node in nodes:
            self.define(node)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is defined inside is forgotten after: the variables of a loop's body."""
        saved = dict(self.env)
        try:
            yield
        finally:
            self.env = saved


class BlockEmitter(Emitter):
    """Writes lines of Python whose values are blocks. `varies` maps nodes to what they vary along, as `span_of` says it."""

    depth = 1

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.lines: list[str] = []
        self.varies: dict[Scalar, Span] = {}

    def span_of(self, axis: Axis) -> Span:
        """What a value that follows an axis varies along."""
        raise NotImplementedError

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def open(self, *texts: str) -> None:
        """Lines of which the last begins a block."""
        for text in texts:
            self.line(text)
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1

    def bind(self, node: Scalar, value: str) -> str:
        name = self.name(node)
        self.line(f"{name} = {value}")
        return name

    def expression(self, node: Scalar) -> Any:
        if node.op not in ("load", "index"):
            self.varies[node] = frozenset().union(*(self.spans(a) for a in node.args))
        return super().expression(node)

    def spans(self, node: Scalar) -> Span:
        """What a node varies along."""
        return self.varies.get(node, NOWHERE)

    def index_spans(self, index: Affine) -> Span:
        """What an index varies along."""
        found: set[Any] = set()
        for atom in index.atoms:
            if isinstance(atom, Axis):
                found |= self.span_of(atom)
            elif isinstance(atom, Div):
                found |= self.index_spans(atom.base)
            else:
                assert isinstance(atom, Computed)
                found |= self.spans(atom.value)
        return frozenset(found)


def axis_names(axes: Iterable[Axis]) -> dict[Axis, str]:
    """A name for each loop axis, as textbooks name them."""
    return {axis: _LETTERS[n] if n < len(_LETTERS) else f"i{n}" for n, axis in enumerate(axes)}


def invariants(kernel: Kernel) -> list[Scalar]:
    """What no axis and no reduction changes, in order: it can be computed once, before all loops."""
    moving: set[Scalar] = set()
    found = []
    for node in dict.fromkeys(n for sweep in kernel.sweeps for n in (*sweep.row, *sweep.body)):
        if (
            node.op in ("reduction", "scan", "final")
            or own_axes(node)
            or any(n in moving or n.op in ("reduction", "final") for n in operands(node))
        ):
            moving.add(node)
        else:
            found.append(node)
    return found
