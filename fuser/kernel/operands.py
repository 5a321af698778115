"""What a node of a kernel is computed from: its arguments, and what its index holds; and walks over nodes by way of these."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from fuser.ir.index import ZERO, Affine, Axis, Computed
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
    return tuple([leaf.value for leaf in index.leaves if isinstance(leaf, Computed)])


def index_axes(index: Affine) -> set[Axis]:
    """The loop axes that an index contains itself."""
    return {leaf for leaf in index.leaves if isinstance(leaf, Axis)}


def index_of(node: Scalar) -> Affine:
    """The index of a load or of an index node; ZERO for other nodes, which have none."""
    if node.op == "load":
        offset: Affine = node.attr.offset
        return offset
    return node.attr if node.op == "index" else ZERO


def own_axes(node: Scalar) -> set[Axis]:
    """The loop axes that a node's own index contains."""
    return index_axes(index_of(node))


def needed(roots: Iterable[Scalar], nodes: Sequence[Scalar], stop: Container[Scalar] = ()) -> list[Scalar]:
    """Those of `nodes` that `roots` need, in order; not what is needed by way of others, or of those in `stop`, alone."""
    inside, found, stack = set(nodes), set(), list(roots)
    while stack:
        node = stack.pop()
        if node in inside and node not in found:
            found.add(node)
            stack.extend(() if node in stop else operands(node))
    return [n for n in nodes if n in found]


def within_sweep(roots: Iterable[Scalar], known: Container[Scalar] = ()) -> set[Scalar]:
    """All nodes that `roots` need beside those `known`, as far as to reductions, which an earlier sweep computes."""
    found, stack = set[Scalar](), list(roots)
    while stack:
        node = stack.pop()
        if node not in found and node not in known:
            found.add(node)
            stack.extend(() if node.op == "reduction" else operands(node))
    return found


def in_order(roots: Sequence[Scalar], known: Container[Scalar] = ()) -> list[Scalar]:
    """The same with reductions' operands, each node behind its operands."""
    found: dict[Scalar, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if node in found or node in known:
            continue
        if ready:
            found[node] = None
        else:
            stack.append((node, True))
            stack.extend((n, False) for n in reversed(operands(node)))
    return list(found)
