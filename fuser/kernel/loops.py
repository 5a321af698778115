"""Loop order: axes sorted by how they lie in memory, neighbours joined where every access allows, and the vector axis.

In: a Kernel. Out: `Loops`, which the loop backends read; the kernel itself does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.ir.index import Affine, Axis, Div
from fuser.kernel.kernel import Kernel
from fuser.kernel.operands import computed, in_order, own_axes

SHORTEST_VECTOR = 16  # elements along an axis that vectors run along though others are longer
SHORTEST_STRIP = 16  # elements between multiples of a divisor of the position, which are worth a loop of their own
ELEMENTS_OF_LINE = 16  # of a cache line, in elements of four bytes


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


def arrange(kernel: Kernel, joined: bool = True) -> Loops:
    """The loops of a kernel; neighbouring axes that always move together are one, if they are to be `joined`."""
    weights = _accesses(kernel)
    accesses = [index for index, _ in weights]
    extents = {axis: axis.extent for axis in (*kernel.parallel, *kernel.reduced)}
    rows = _sorted(kernel.parallel, weights)
    cols = _sorted(kernel.reduced, weights)
    absorbed: set[Axis] = set()
    if joined:
        rows = _join(rows, accesses, extents, absorbed)
        cols = _join(cols, accesses, extents, absorbed)
    return Loops(tuple(rows), tuple(cols), extents, frozenset(absorbed), _vector(rows, cols, weights, extents))


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


def _apart(index: Affine, axis: Axis) -> float:
    """The share of a cache line that lies between elements of neighbouring iterations: 0 at unit stride, at most 1."""
    stride = _stride(index, axis)
    return 0.0 if stride <= 1 else min(1.0, stride / ELEMENTS_OF_LINE)


def _vector(
    rows: list[Axis], cols: list[Axis], weights: list[tuple[Affine, int]], extents: dict[Axis, int]
) -> Axis | None:
    """The axis with the most bytes at unit stride, and the fewest far apart; among equals the innermost reduced axis, then the innermost row.

    Numbers that lie apart along it are read one by one, at each place anew, however few bytes they are in all: it gives way to
    an axis of some length along which all accesses have unit stride or stand still."""
    followed = [_followed(index) for index, _ in weights]

    def bytes_at(axis: Axis) -> tuple[int, float]:
        unit = sum(w for index, w in weights if _stride(index, axis) == 1)
        far = sum(w * (1.0 if axis in axes else _apart(index, axis)) for (index, w), axes in zip(weights, followed))
        return unit, far

    def best(axes: list[Axis]) -> Axis | None:
        return max(reversed(axes), key=lambda axis: found[axis][0] - 0.5 * found[axis][1], default=None)

    axes = [*rows, *cols]
    found = {axis: bytes_at(axis) for axis in axes}
    chosen = best(axes)
    if chosen is None or not found[chosen][1]:
        return chosen
    near = [axis for axis in axes if found[axis][0] and not found[axis][1] and extents[axis] >= SHORTEST_VECTOR]
    return best(near) or chosen
