"""What a node of a kernel is computed from: its arguments, and what its index holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuser.ir.index import Affine, Axis, Computed, Div
from fuser.ir.scalar import Scalar


def operands(node: Scalar) -> tuple[Scalar, ...]:
    """What a node needs: its arguments, and the computed integers inside its index."""
    if node.op == "load":
        return (*node.args, *computed(node.attr.offset))
    if node.op == "index":
        return computed(node.attr)
    return node.args


def computed(index: Affine) -> tuple[Scalar, ...]:
    """The scalar nodes that an index contains."""
    found: list[Scalar] = []
    for atom, _ in index.terms:
        if isinstance(atom, Computed):
            found.append(atom.value)
        elif isinstance(atom, Div):
            found += computed(atom.base)
    return tuple(found)


def index_axes(index: Affine) -> set[Axis]:
    """The loop axes that an index contains itself."""
    found: set[Axis] = set()
    for atom, _ in index.terms:
        if isinstance(atom, Axis):
            found.add(atom)
        elif isinstance(atom, Div):
            found |= index_axes(atom.base)
    return found


def needed(roots: Iterable[Scalar], nodes: Sequence[Scalar]) -> list[Scalar]:
    """Those of `nodes` that `roots` need, in order; what is needed by way of other nodes alone is not looked for."""
    inside, found, stack = set(nodes), set(), list(roots)
    while stack:
        node = stack.pop()
        if node in inside and node not in found:
            found.add(node)
            stack.extend(operands(node))
    return [n for n in nodes if n in found]
