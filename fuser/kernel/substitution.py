"""Nodes of a kernel with axes replaced by index expressions, each rebuilt once; what is unchanged stays the same node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fuser.ir.index import Affine, Atom, Axis, Computed
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Access, Carried, Store


class Substitution:
    """`known` maps nodes to what takes their place, and may be given some. `lanes`: the axes along which what loops carry
    differs afterwards, where it does at all."""

    def __init__(
        self,
        replacement: Mapping[Axis, Affine],
        lanes: frozenset[Axis] | None = None,
        known: Mapping[Scalar, Scalar] | None = None,
    ) -> None:
        self.replacement: dict[Atom, Affine] = dict(replacement.items())
        self.lanes = lanes
        self.known: dict[Scalar, Scalar] = dict(known or {})

    def nodes(self, nodes: Iterable[Scalar]) -> tuple[Scalar, ...]:
        return tuple(map(self.node, nodes))

    def node(self, node: Scalar) -> Scalar:
        if node not in self.known:
            self.known[node] = self._new(node)
        return self.known[node]

    def _new(self, node: Scalar) -> Scalar:
        args, attr = tuple(map(self.node, node.args)), node.attr
        if node.op == "load":
            attr = self._access(attr)
        elif node.op == "index":
            attr = self.index(attr)
        elif node.op in ("carry", "final") and self.lanes is not None:
            attr = Carried(attr.number, self.lanes if attr.axes else frozenset())
        return node if args == node.args and attr is node.attr else Scalar(node.op, args, node.dtype, attr)

    def _access(self, access: Access) -> Access:
        offset = self.index(access.offset)
        if offset is access.offset:
            return access
        return Access(access.param, offset, tuple(map(self.index, access.index)))

    def store(self, store: Store) -> Store:
        index = tuple(map(self.index, store.index))
        return Store(store.param, self.index(store.offset), self.node(store.value), index, store.total, store.over)

    def index(self, index: Affine) -> Affine:
        """An index with its axes replaced; the same object where it has none of them."""
        leaves = index.leaves
        replacement: dict[Atom, Affine] = {a: self.replacement[a] for a in leaves if a in self.replacement}
        for atom in leaves:
            if isinstance(atom, Computed) and atom not in replacement:
                value = self.node(atom.value)
                if value is not atom.value:
                    replacement[atom] = self.replacement[atom] = Affine.of(Computed(value, atom.bounds))
        return index.substitute(replacement) if replacement else index
