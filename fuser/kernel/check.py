"""The checker of kernels: a kernel in, the same kernel out, or a KernelError that names the node.

Every node is computed before it is used; parameters exist, and those of results alone are written; and no load without a
mask, and no store, leaves its array: their offsets are computed at the corners of the loops and at random points.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

from fuser.errors import KernelError
from fuser.ir.index import Affine, Axis, Computed, Div
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.operands import computed, index_axes, operands

POINTS = 16  # random points at which offsets are computed, beside the corners
CORNERS = 5  # axes up to which all corners are tried
FREE = ("const", "index", "carry", "final")  # nodes that are there without being computed

Point = dict[Axis, int]


def check(kernel: Kernel) -> Kernel:
    """`kernel` itself; KernelError where it breaks a rule of the form."""
    written = {store.param for store in kernel.stores}
    results = {number for number, param in enumerate(kernel.params) if param.out}
    if written != results:
        raise KernelError(f"{kernel.name} writes the parameters {sorted(written)}; its results are {sorted(results)}")
    _check_order(kernel)
    reads = [n for n in kernel.nodes if n.op == "load" and not n.args]
    for access in {id(a): a for a in (*(n.attr for n in reads), *kernel.stores)}.values():
        _check_access(kernel, access)
    return kernel


def _check_order(kernel: Kernel) -> None:
    """Every node after its operands; what an earlier sweep computed for a whole row, and its reductions, stay known."""
    known: set[Scalar] = set()
    for number, sweep in enumerate(kernel.sweeps):
        if number == 1 and kernel.loop is not None:
            loop = kernel.loop
            inside = known | set(_ordered(kernel, loop.body, known))
            _required(kernel, [*loop.predicates, *(c.following for c in loop.carries), *_values(loop.stores)], inside)
        known |= set(_ordered(kernel, sweep.row, known))
        _required(kernel, _values(sweep.row_stores), known)
        body = set(_ordered(kernel, sweep.body, known))
        _required(kernel, [*(a for f in sweep.reductions for a in f.args), *_values(sweep.stores)], known | body)
        known |= set(sweep.reductions)
        if not kernel.reduced or kernel.loop is not None:
            known |= body
        known |= set(sweep.kept)


def _ordered(kernel: Kernel, nodes: Iterable[Scalar], known: set[Scalar]) -> Iterator[Scalar]:
    found = set(known)
    for node in nodes:
        _required(kernel, operands(node), found)
        found.add(node)
        yield node


def _values(stores: Iterable[Store]) -> Iterator[Scalar]:
    for store in stores:
        yield store.value
        yield from computed(store.offset)


def _required(kernel: Kernel, nodes: Iterable[Scalar], known: set[Scalar]) -> None:
    for node in nodes:
        if node not in known and node.op not in FREE:
            raise KernelError(f"{kernel.name} uses {node.op} of {node.dtype} before it is computed")


def _check_access(kernel: Kernel, access: Access | Store) -> None:
    """An access inside its array wherever the loops come, as far as the points that are tried tell."""
    param = kernel.params[access.param]
    size = 1
    for extent in param.shape:
        size *= extent
    axes = sorted(index_axes(access.offset), key=lambda axis: axis.order)
    if any(axis.extent == 0 for axis in (*axes, *kernel.parallel)):
        return
    for point in points(axes):
        found = value(access.offset, point)
        if found is not None and not 0 <= found < max(size, 1):
            where = ", ".join(f"{axis} = {position}" for axis, position in point.items())
            raise KernelError(
                f"{kernel.name} reads or writes {param.name}[{access.offset}], element {found} of {size}, at {where}"
            )


def points(axes: list[Axis]) -> Iterator[Point]:
    """Positions along the axes: the corners of the loops, as many as are few, and random ones, always the same."""
    ends = [(0, axis.extent - 1) if axis.extent > 1 else (0,) for axis in axes]
    for corner in itertools.islice(itertools.product(*ends), 1 << CORNERS):
        yield dict(zip(axes, corner))
    yield {axis: axis.extent - 1 for axis in axes}
    draw = random.Random(len(axes))
    for _ in range(POINTS):
        yield {axis: draw.randrange(axis.extent) for axis in axes}


def value(index: Affine, point: Point) -> int | None:
    """The index at a point; None where it depends on what the kernel computes."""
    total = index.offset
    for atom, step in index.terms:
        if isinstance(atom, Computed):
            return None
        if isinstance(atom, Div):
            base = value(atom.base, point)
            if base is None:
                return None
            total += step * (base // atom.divisor)
        else:
            total += step * point[atom]
    return total
