"""Unrolling along an axis by a small period: neighbours that do different things become stores of one iteration.

Stacked pieces, every other element, pairs: what an element is depends on its place modulo a small number. A loop over whole
periods knows each of its elements, shares what they have in common, and has no division and no test of the place. Along the vector axis gcc reads
and writes the neighbours of several iterations together and shuffles them in registers; along other axes (the phases of a
transposed convolution) each vector is of one phase.

In: a kernel without reduced axes. Out: the same work as one kernel, or as several where last periods are not whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import COSTS, Scalar
from fuser.ir.target import Target
from fuser.kernel.index_set_splitting import attribute, known, turns
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import arrange
from fuser.kernel.lower import Sweeping
from fuser.kernel.operands import index_axes
from fuser.kernel.substitution import Substitution

PERIODS = (2, 3, 4, 5, 6, 7, 8)
ROWS = 128  # of a tile
DEAR = 8  # additions an element that tiles are worth, where there are no divisions
MOST_ELEMENTS = 16  # of a matrix of two small axes
LONG_ENOUGH = 8  # elements side by side in all that is read, from which a loop along a small axis has vectors
MOST_NODES = 400  # of all elements of a period together
MOST_TESTED = 4000  # before the tests of the place are resolved


def unroll_residues(kernel: Kernel, target: Target) -> tuple[Kernel, ...]:
    """The kernel unrolled along the axes where that resolves divisions or tests; else the kernel itself."""
    if kernel.loop is not None or kernel.reduced or len(kernel.sweeps) != 1:
        return (kernel,)
    axis = arrange(kernel).vector
    if axis is None or any(store.param < 0 for store in kernel.stores):
        return (kernel,)
    if matrix := _small_matrices(kernel):
        for small in matrix:
            kernel = _unrolled(kernel, small, Axis(1, small.name), small.extent)
        return (kernel,)
    pieces = _along(kernel, axis, target)
    if len(pieces) == 1 and axis not in pieces[0].parallel:
        inner = arrange(pieces[0]).vector  # the vector runs along another axis now, if any
        pieces = pieces if inner is None else _along(pieces[0], inner, target)
    for other in kernel.parallel:
        if other is not axis:
            pieces = tuple(new for piece in pieces for new in _along(piece, other, target, tested=True))
    return pieces


def _small_matrices(kernel: Kernel) -> tuple[Axis, ...]:
    """The two small axes of matrices that lie one after the other, as transposes and outer products of 3 by 3 make them: no loop over
    two axes at once follows all that is read. None where there are no such matrices, or one of them has such a loop."""
    stores = [store.offset for store in kernel.stores]
    for along, across in itertools.permutations(kernel.parallel, 2):
        size = along.extent * across.extent
        if any((o.coefficient(along), o.coefficient(across)) != (1, along.extent) for o in stores):
            continue
        # What is asked of sizes, which programs for several hold on to, is asked last.
        rows = [row for row in kernel.parallel if all(o.coefficient(row) == size for o in stores)]
        small = rows and size <= MOST_ELEMENTS and size * len(kernel.nodes) <= MOST_NODES
        if not small or all(row.extent < ROWS for row in rows):
            continue
        read = [offset for offset in _indices(kernel) if index_axes(offset) & {along, across}]
        if along.extent >= LONG_ENOUGH and all(offset.coefficient(along) in (0, 1) for offset in read):
            return ()
        pairs = ((across, along), (rows[0], across))
        return () if any(all(_joint(o, outer, inner) for o in read) for outer, inner in pairs) else (along, across)
    return ()


def _joint(index: Affine, outer: Axis, inner: Axis) -> bool:
    """Whether one loop over two axes follows an index, of which the outer one begins where the inner one ends."""
    return index.coefficient(outer) == index.coefficient(inner) * inner.extent


def _along(kernel: Kernel, axis: Axis, target: Target, tested: bool = False) -> tuple[Kernel, ...]:
    """The kernel unrolled along one axis; with `tested` only where the place decides what is computed."""
    decides = any(_divides(node.attr, axis) for node in kernel.nodes if node.op == "index")
    if tested and not decides:
        return (kernel,)
    others = math.prod(a.extent for a in kernel.parallel if a is not axis)
    for period in PERIODS:
        whole, left = divmod(axis.extent, period)
        if whole * others < target.lanes or period * len(kernel.nodes) > (MOST_TESTED if decides else MOST_NODES):
            break
        if (period == axis.extent and not tested and _worth_all(kernel, axis, others, target)) or (
            whole >= 2 and _resolves(kernel, axis, period)
        ):
            main = _unrolled(kernel, axis, Axis(whole, axis.name), period)
            if len(main.nodes) > MOST_NODES:
                break
            return (main, _rest(kernel, axis, whole * period, left)) if left else (main,)
    return (kernel,)


def _worth_all(kernel: Kernel, axis: Axis, others: int, target: Target) -> bool:
    """Whether all of a small axis is worth unrolling: elements do different things, rows do not follow each other, or an array is dense
    along the rows that others have side by side."""
    if _crosses(kernel, axis, target.lanes) and others >= ROWS:
        return True
    if turns(kernel.nodes, axis, axis.extent):
        dear = any(COSTS.get(node.op, 1) >= DEAR for node in kernel.nodes)
        return axis.extent in target.interleaved or (others >= ROWS and dear)
    few = axis.extent in target.interleaved and others >= ROWS
    return few and any(_apart(i, axis, kernel, max(target.interleaved)) for i in _indices(kernel))


def _crosses(kernel: Kernel, axis: Axis, lanes: int) -> bool:
    """Whether some arrays have the elements of a small axis side by side, one row after the other, and others are dense along those
    rows, as in a pixel shuffle: unrolled, a vector takes the rows of both."""
    indices = list(_indices(kernel))
    for row in kernel.parallel:
        if row is axis:
            continue
        steps = {(abs(index.coefficient(axis)), abs(index.coefficient(row))) for index in indices}
        crosses = (1, axis.extent) in steps and any(own > 1 and dense == 1 for own, dense in steps)
        if crosses and row.extent >= lanes:
            return True
    return False


def _apart(index: Affine, axis: Axis, kernel: Kernel, most: int) -> bool:
    """Whether short rows lie a few elements apart, as three channels of four."""
    step = index.coefficient(axis)
    rows = [abs(index.coefficient(row)) for row in kernel.parallel if row is not axis]
    return bool(step) and step * axis.extent < min((r for r in rows if r), default=0) <= most


def _resolves(kernel: Kernel, axis: Axis, period: int) -> bool:
    """Whether divisions of the place are gone where it is known modulo the period, and there are some."""
    quotient = Axis(max(axis.extent // period, 2))
    divided = [index for index in _indices(kernel) if _divides(index, axis)]
    changed = (index.substitute({axis: Affine.of(quotient) * period + r}) for index in divided for r in range(period))
    return bool(divided) and not any(_divides(index, quotient) for index in changed)


def _indices(kernel: Kernel) -> Iterator[Affine]:
    for node in kernel.nodes:
        if node.op == "load":
            yield node.attr.offset
        elif node.op == "index":
            yield node.attr
    for store in kernel.stores:
        yield store.offset


def _divides(index: Affine, axis: Axis) -> bool:
    """Whether the index has a division of something that runs along the axis."""
    return any(isinstance(atom, Div) and _runs(atom.base, axis) for atom in index.atoms)


def _runs(index: Affine, axis: Axis) -> bool:
    return any(atom is axis or (isinstance(atom, Div) and _runs(atom.base, axis)) for atom in index.atoms)


def _unrolled(kernel: Kernel, axis: Axis, quotient: Axis, period: int) -> Kernel:
    """The kernel over whole periods, with a store for each element."""
    stores: list[Store] = []
    for residue in range(period):
        place = Substitution({axis: Affine.of(quotient) * period + residue})
        stores += map(place.store, kernel.stores)
    return _with(kernel, axis, quotient, stores)


def _rest(kernel: Kernel, axis: Axis, start: int, count: int) -> Kernel:
    """The kernel over the last elements along the axis."""
    rest = Axis(count, axis.name)
    place = Substitution({axis: Affine.of(rest) + start})
    return _with(kernel, axis, rest, list(map(place.store, kernel.stores)))


def _with(kernel: Kernel, axis: Axis, new: Axis, stores: list[Store]) -> Kernel:
    """The kernel with another axis in the place of one, and these stores, whose tests of the place are folded."""
    nodes = [node for sweep in Sweeping(()).cut(stores) for node in sweep.row]
    merged = _merged(*known(nodes, stores, {}))
    parallel = tuple(new if a is axis else a for a in kernel.parallel if a is not axis or new.extent > 1)
    return replace(kernel, parallel=parallel, sweeps=Sweeping(()).cut(merged))


def _merged(nodes: tuple[Scalar, ...], stores: tuple[Store, ...]) -> list[Store]:
    """The stores with what several elements of a period compute alike computed once."""
    same: dict[Any, Scalar] = {}
    new: dict[Scalar, Scalar] = {}
    for node in nodes:
        args = tuple(new[a] for a in node.args)
        made = node if args == node.args else Scalar(node.op, args, node.dtype, node.attr)
        new[node] = same.setdefault((node.op, node.dtype, attribute(node), args), made)
    return [Store(s.param, s.offset, new[s.value]) for s in stores]
