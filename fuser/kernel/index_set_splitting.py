"""Index-set splitting: the points at which affine predicates of the position change value, and the kernel between two of them.

An array of which a part was replaced is one kernel with a predicate: does the element lie inside? Between two split points
the predicate is constant: the loop is cut there, and each piece computes only what it needs.
In: the stores of a kernel without reduced axes. Out: the same for a span of one axis, with constant predicates folded.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fuser.ir import scalar as S
from fuser.ir.index import Affine, Atom, Axis, Computed, Div
from fuser.ir.scalar import Scalar
from fuser.ir.span import Spans, ends, span
from fuser.kernel.kernel import Access, Store, reduction_identity
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, in_order, operands

MANY = 8  # pieces from which each thread goes through all of them for its own share of the iterations
NARROW = 4  # elements along the vector, for which vectors run across pieces instead

_TURNS = {"lt": (0,), "ge": (0,), "le": (1,), "gt": (1,), "eq": (0, 1), "ne": (0, 1)}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


@dataclass(frozen=True, eq=False)
class Cut:
    """A kernel's work in spans along `axis`, in order: (first, last, the piece); a whole piece has stores instead."""

    axis: Axis | None
    parts: tuple[tuple[int, int, Cut], ...]
    nodes: tuple[Scalar, ...]
    stores: tuple[Store, ...]

    @cached_property
    def key(self) -> Any:
        """Equal for pieces that do the same. What is computed before them (a reduction of an earlier sweep) stands for itself."""
        number: dict[Scalar, Any] = {node: n for n, node in enumerate(self.nodes)}
        nodes = tuple((n.op, n.dtype, attribute(n), *(number.get(a, a) for a in n.args)) for n in self.nodes)
        stores = tuple((s.param, s.offset, number.get(s.value, s.value)) for s in self.stores)
        return self.axis, tuple((first, last, part.key) for first, last, part in self.parts), nodes, stores

    @property
    def whole(self) -> list[Cut]:
        """The pieces that are not cut any more."""
        return [self] if self.axis is None else [leaf for _, _, part in self.parts for leaf in part.whole]

    @property
    def axes(self) -> set[Axis]:
        """The axes along which it is cut."""
        if self.axis is None:
            return set()
        return {self.axis}.union(*(part.axes for _, _, part in self.parts))


def attribute(node: Scalar) -> Any:
    """What a node has beside its operands, equal for nodes that do the same."""
    if node.op == "load":
        return node.attr.param, node.attr.offset
    return node.attr.tobytes() if node.op == "const" else node.attr


class _Exceeded(Exception):
    """The pieces have more nodes than are worth writing."""


def cut(
    nodes: Sequence[Scalar], stores: Sequence[Store], axes: Sequence[tuple[Axis, int]], most: int | None = None
) -> Cut | None:
    """The work of `nodes` and `stores` cut along `axes`, (axis, extent), from the outermost on; None where all pieces
    together have more than `most` nodes."""
    try:
        return _cut(tuple(nodes), tuple(stores), axes, {}, [sys.maxsize if most is None else most])
    except _Exceeded:
        return None


def _cut(
    nodes: tuple[Scalar, ...],
    stores: tuple[Store, ...],
    axes: Sequence[tuple[Axis, int]],
    spans: Spans,
    left: list[int],
) -> Cut:
    for number, (axis, extent) in enumerate(axes):
        points = turns(nodes, axis, extent, spans)
        if points:
            parts: list[tuple[int, int, Cut]] = []
            for first, end, inside, kept in _between(nodes, stores, axis, (0, *points, extent), spans):
                piece = _cut(inside, kept, axes[number + 1 :], {**spans, axis: (first, end - 1)}, left)
                if parts and parts[-1][2].key == piece.key:
                    parts[-1] = (parts[-1][0], end - 1, parts[-1][2])
                else:
                    parts.append((first, end - 1, piece))
            return Cut(axis, tuple(parts), (), ()) if len(parts) > 1 else parts[0][2]
    left[0] -= len(nodes) + 1
    if left[0] < 0:
        raise _Exceeded
    return Cut(None, (), nodes, stores)


def _between(
    nodes: tuple[Scalar, ...], stores: tuple[Store, ...], axis: Axis, edges: tuple[int, ...], spans: Spans
) -> Iterator[tuple[int, int, tuple[Scalar, ...], tuple[Store, ...]]]:
    """(first, end, nodes, stores) between neighbouring edges, by halves: what one half does not need is gone for all
    pieces in it."""
    nodes, stores = known(nodes, stores, {**spans, axis: (edges[0], edges[-1] - 1)})
    if len(edges) == 2:
        yield edges[0], edges[1], nodes, stores
        return
    half = len(edges) // 2
    yield from _between(nodes, stores, axis, edges[: half + 1], spans)
    yield from _between(nodes, stores, axis, edges[half:], spans)


def turns(nodes: Sequence[Scalar], axis: Axis, extent: int, spans: Spans | None = None) -> list[int]:
    """The positions along `axis` from which on a comparison of the position with a number has another answer; axes of which
    `spans` leave one position stand for that."""
    found: set[int] = set()
    fixed: dict[Atom, Affine] = {a: Affine.of(low) for a, (low, high) in (spans or {}).items() if low == high}
    for node in nodes:
        if node.op not in _TURNS:
            continue
        position, number, op = _position(node.args[0]), node.args[1], node.op
        if position is None:
            position, number, op = _position(node.args[1]), node.args[0], _MIRRORED[op]
        if position is None or number.op != "const":
            continue
        position = position.substitute(fixed) if fixed else position
        if len(position.terms) != 1 or position.terms[0][0] is not axis:
            continue
        step, rest = position.terms[0][1], int(number.attr) - position.offset
        # step·i + offset OP number turns where step·i passes `rest`
        for after in _TURNS[op]:
            found.add(-(-(rest + after) // step) if step > 0 else (rest + after - 1) // step + 1)
    return sorted(p for p in found if 0 < p < extent)


def _position(node: Scalar) -> Affine | None:
    """The index that a node is, through conversions that keep it."""
    while node.op == "cast" and _keeps(node):
        node = node.args[0]
    return node.attr if node.op == "index" else None


def _keeps(node: Scalar) -> bool:
    """Whether a conversion keeps each integer as it is."""
    before = span(node.args[0])
    if before is None or node.dtype.kind not in "iu":
        return False
    low, high = ends(node.dtype)
    return low <= before[0] and before[1] <= high


def known(
    nodes: Collection[Scalar], stores: Sequence[Store], spans: Spans, answers: Mapping[Scalar, bool] | None = None
) -> tuple[tuple[Scalar, ...], tuple[Store, ...]]:
    """The nodes and stores with the tests that `spans` decide folded in; nodes that nothing needs any more are gone.

    `answers` are tests whose answer is known besides. Only what the stores still need is looked at, so that all pieces of
    an array made of many take no longer than the pieces themselves; what is not among `nodes` stays as it is.
    """
    new: dict[Scalar, Scalar] = {node: S.constant(answer, node.dtype) for node, answer in (answers or {}).items()}
    inside = set(nodes)
    stack = [node for s in stores for node in (s.value, *computed(s.offset))]
    while stack:
        node = stack[-1]
        if node not in inside:
            new.setdefault(node, node)
        missing = [] if node in new else [n for n in _wanted(node, new) if n not in new]
        if missing:
            stack += missing
            continue
        if node not in new:
            new[node] = _folded(node, new, spans)
        stack.pop()
    changed = tuple(Store(s.param, _moved(s.offset, new), new.get(s.value, s.value)) for s in stores)
    roots = [n for s in changed for n in (s.value, *computed(s.offset))]
    return tuple(in_order(roots, known=new.keys() - inside)), changed


def _wanted(node: Scalar, new: Mapping[Scalar, Scalar]) -> tuple[Scalar, ...]:
    """What must be folded before a node: of a selection the test, and what it may choose."""
    if node.op == "select":
        test = new.get(node.args[0])
        if test is None:
            return node.args[:1]
        return node.args if test.op != "const" else (node.args[1] if test.attr else node.args[2],)
    if node.op == "load" and node.args:
        mask = new.get(node.args[0])
        if mask is None or (mask.op == "const" and not mask.attr):
            return node.args
    return operands(node)


def _folded(node: Scalar, new: Mapping[Scalar, Scalar], spans: Spans) -> Scalar:
    args = tuple(new.get(a, a) for a in node.args)
    if node.op == "load":
        return _load(node, args, new)
    if node.op == "index":
        index = _moved(node.attr, new)
        return node if index is node.attr else Scalar("index", (), node.dtype, index)
    if node.op in _TURNS:
        answer = _answer(node.op, span(args[0], spans), span(args[1], spans))
        if answer is not None:
            return S.constant(answer, node.dtype)
    if node.op in ("and", "or") and node.dtype.kind == "b":
        for a, b in (args, args[::-1]):
            if a.op == "const":
                return b if bool(a.attr) == (node.op == "and") else a
    if node.op == "not" and node.dtype.kind == "b" and args[0].op == "const":
        return S.constant(not args[0].attr, node.dtype)
    if node.op in ("max", "min") and node.dtype.kind != "c":
        for a, b in (args, args[::-1]):
            if a.op == "const" and a.attr == reduction_identity(node.op, node.dtype):
                return b  # of a window's places outside of the array
    if node.op == "select" and args[0].op == "const":
        return args[1] if args[0].attr else args[2]
    return node if args == node.args else Scalar(node.op, args, node.dtype, node.attr)


def _load(node: Scalar, args: tuple[Scalar, ...], new: Mapping[Scalar, Scalar]) -> Scalar:
    """A load whose mask may have become known: what a mask hides is not used."""
    if args and args[0].op == "const":
        if not args[0].attr:
            return S.constant(0, node.dtype) if node.dtype.names is None else node
        args = ()
    offset = _moved(node.attr.offset, new)
    if args == node.args and offset is node.attr.offset:
        return node
    return Scalar("load", args, node.dtype, Access(node.attr.param, offset))


def _moved(index: Affine, new: Mapping[Scalar, Scalar]) -> Affine:
    """An index whose computed integers are those of the piece."""
    replacement: dict[Atom, Affine] = {}
    for atom in _computed_atoms(index):
        value = new.get(atom.value, atom.value)
        if value.op == "const":
            replacement[atom] = Affine.of(int(value.attr))
        elif value is not atom.value:
            replacement[atom] = Affine.of(Computed(value, atom.bounds))
    return index.substitute(replacement) if replacement else index


def _computed_atoms(index: Affine) -> list[Computed]:
    found: list[Computed] = []
    for atom, _ in index.terms:
        if isinstance(atom, Computed):
            found.append(atom)
        elif isinstance(atom, Div):
            found += _computed_atoms(atom.base)
    return found


def _answer(op: str, a: tuple[int, int] | None, b: tuple[int, int] | None) -> bool | None:
    """The answer of a comparison that is the same for all values in these ranges."""
    if a is None or b is None:
        return None
    if op in ("gt", "ge"):
        a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
    if op == "lt":
        return True if a[1] < b[0] else False if a[0] >= b[1] else None
    if op == "le":
        return True if a[1] <= b[0] else False if a[0] > b[1] else None
    apart = a[1] < b[0] or b[1] < a[0]
    same = a[0] == a[1] == b[0] == b[1]
    return op == "ne" if apart else op == "eq" if same else None


def across_pieces(found: Cut, loops: Loops) -> Axis | None:
    """The axis that vectors run along instead, where the pieces are many, narrow and side by side along the usual one."""
    wide = [axis for axis in loops.parallel if axis is not loops.vector and loops.extents[axis] > NARROW]
    if not wide or loops.vector is None or found.axis is not loops.vector or len(found.parts) <= MANY:
        return None
    return wide[-1] if loops.extents[loops.vector] <= NARROW * len(found.parts) else None
