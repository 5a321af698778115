"""Loop order: axes sorted by how they lie in memory, neighbours joined where every access allows, and the vector axis.

In: a Kernel. Out: `Loops`, which the loop backends read; the kernel itself does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.ir.index import Affine, Axis, Div
from fuser.kernel.kernel import Kernel
from fuser.kernel.operands import computed, in_order, own_axes

SHORTEST_STRIP = 16  # elements between multiples of a divisor of the position, which are worth a loop of their own
LINE = 16  # elements of a line of memory, about
LITTLE = 16  # times as many bytes that lie apart, beside which those at unit stride do not count


@dataclass(frozen=True)
class Loops:
    """`parallel` and `reduced` axes outermost first, joined axes left out; `extents` of what is left; `vector` the axis along which
    neighbouring iterations touch neighbouring memory."""

    parallel: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    extents: dict[Axis, int]
    absorbed: frozenset[Axis]
    vector: Axis | None

    def count(self, axes: tuple[Axis, ...]) -> int:
        total = 1
        for axis in axes:
            total *= self.extents[axis]
        return total


def of_vector(division: Div, loops: Loops) -> bool:
    """Whether it divides the position along the vector, an offset beside it, and nothing else."""
    terms = [(atom, factor) for atom, factor in division.base.terms if atom not in loops.absorbed]
    return terms == [(loops.vector, 1)]


def arrange(kernel: Kernel) -> Loops:
    """The loops of a kernel."""
    weights = _accesses(kernel)
    accesses = [index for index, _ in weights]
    extents = {axis: axis.extent for axis in (*kernel.parallel, *kernel.reduced)}
    rows = _sorted(kernel.parallel, weights)
    cols = _sorted(kernel.reduced, weights)
    absorbed: set[Axis] = set()
    rows = _join(rows, accesses, extents, absorbed)
    cols = _join(cols, accesses, extents, absorbed)
    return Loops(tuple(rows), tuple(cols), extents, frozenset(absorbed), _vector(rows, cols, weights))


def _accesses(kernel: Kernel) -> list[tuple[Affine, int]]:
    """Every index expression of the kernel with its weight: bytes that it touches, 0 where it is no access."""
    found: list[tuple[Affine, int]] = []
    for node in kernel.nodes:
        if node.op == "load":
            found.append((node.attr.offset, node.dtype.itemsize * _places(node.attr.offset, kernel)))
        elif node.op == "index":
            found.append((node.attr, 0))
    for store in kernel.stores:
        itemsize = kernel.params[store.param].dtype.itemsize
        found.append((store.offset, 2 * itemsize * _places(store.offset, kernel)))
    return found


def _places(index: Affine, kernel: Kernel) -> int:
    """How many different values the index takes, about."""
    total, followed = 1, _followed(index)
    for axis in (*kernel.parallel, *kernel.reduced):
        if index.coefficient(axis) or axis in followed:
            total *= axis.extent
    return total


def _followed(index: Affine) -> set[Axis]:
    """The axes along which what is computed in an index changes."""
    return {axis for node in in_order(computed(index)) for axis in own_axes(node)}


def _stride(index: Affine, axis: Axis) -> int:
    return abs(index.coefficient(axis))


def _sorted(axes: tuple[Axis, ...], weights: list[tuple[Affine, int]]) -> list[Axis]:
    """Axes with the largest steps in memory first, as the heaviest access that tells them apart sees them."""
    heavy = sorted((w for w in weights if w[1]), key=lambda w: -w[1])

    def key(axis: Axis) -> tuple[int, ...]:
        return tuple(-_stride(index, axis) for index, _ in heavy[:4] if any(_stride(index, a) for a in axes))

    return sorted(axes, key=key)


def _join(axes: list[Axis], accesses: list[Affine], extents: dict[Axis, int], absorbed: set[Axis]) -> list[Axis]:
    """Neighbouring axes that always move together become one: the outer is absorbed by the inner."""
    result = list(axes)
    position = len(result) - 1
    while position > 0:
        outer, inner = result[position - 1], result[position]
        if all(_joint(index, outer, inner, extents[inner]) for index in accesses):
            extents[inner] *= extents.pop(outer)
            absorbed.add(outer)
            del result[position - 1]
        position -= 1
    return result


def _joint(index: Affine, outer: Axis, inner: Axis, extent: int) -> bool:
    if index.coefficient(outer) != index.coefficient(inner) * extent:
        return False
    return all(_joint(atom.base, outer, inner, extent) for atom, _ in index.terms if isinstance(atom, Div))


def _vector(rows: list[Axis], cols: list[Axis], weights: list[tuple[Affine, int]]) -> Axis | None:
    """The axis with the most bytes at unit stride; among equals the innermost reduced axis, then the innermost row. Where hardly any lie
    so, the one along which neighbours are in the fewest lines of memory."""
    best, score = None, 0.0
    followed = [_followed(index) for index, _ in weights]
    lines: dict[Axis, float] = {}
    little = False
    for axis in [*rows, *cols]:
        unit = sum(w for index, w in weights if _stride(index, axis) == 1)
        apart = [
            (index, w, axis in axes)
            for (index, w), axes in zip(weights, followed)
            if _stride(index, axis) > 1 or axis in axes
        ]
        far = sum(w for _, w, _ in apart)
        lines[axis] = sum(w * (LINE if computed else min(_stride(index, axis), LINE)) for index, w, computed in apart)
        value = unit - 0.5 * far
        if best is None or value >= score:
            best, score, little = axis, value, LITTLE * unit < far
    if not little or best is None:
        return best
    fewest = min(lines, key=lambda axis: lines[axis])
    return fewest if lines[fewest] < lines[best] else best
