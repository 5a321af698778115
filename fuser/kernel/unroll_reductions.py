"""Full unrolling of short reduced axes: a reduction over a few elements becomes an expression of each row.

In: a kernel whose reduced axes have few elements together. Out: one without reduced axes, which runs along its rows in
vectors; gcc reads and writes the neighbours of several rows together and shuffles them in registers.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from fuser.ir import scalar as S
from fuser.ir.index import Affine
from fuser.ir.scalar import Scalar
from fuser.ir.target import Target
from fuser.kernel.kernel import Kernel, ReductionSpec, Store, Sweep
from fuser.kernel.loops import arrange
from fuser.kernel.lower import Sweeping
from fuser.kernel.substitution import Substitution
from fuser.partition.values import extreme_index, reduce_terms, reduces_terms

MOST_ELEMENTS = 16  # of a row
MOST_NODES = 2400  # of the unrolled expression: its vectors must be compiled, and held in registers or near them
MOST_INTERLEAVED_NODES = 400
ORDERLESS = ("max", "min", "and", "or", "sum")


def unroll_reductions(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with its reduced axes unrolled, where they are short; else the same kernel.

    A row that lies in memory one element after the other and whose widest elements fill a vector is left as it is, and so are
    prefix scans along it, which write all that they read.
    """
    extent = math.prod(axis.extent for axis in kernel.reduced)
    if kernel.loop is None and extent > MOST_ELEMENTS and len(kernel.reduced) > 1:
        return _along_short_axis(kernel, target)
    if kernel.loop is not None or not kernel.reduced or not 1 < extent <= MOST_ELEMENTS:
        return kernel
    if arrange(kernel).vector in kernel.reduced:
        widest = max((n.dtype.itemsize for n in kernel.nodes if n.op == "load"), default=target.vector)
        if extent * widest >= target.vector or any(n.op == "scan" for n in kernel.nodes):
            return kernel
    rows = math.prod(axis.extent for axis in kernel.parallel)
    nodes = sum(len(sweep.body) + len(sweep.reductions) for sweep in kernel.sweeps)
    specs = [n.attr for n in kernel.nodes if n.op == "scan"] + [f.attr for s in kernel.sweeps for f in s.reductions]
    if rows < target.lanes or nodes * extent > MOST_NODES or not all(reduces_terms(spec.reduction) for spec in specs):
        return kernel
    indices = [
        dict(zip(kernel.reduced, map(Affine.of, index), strict=True))
        for index in itertools.product(*(range(axis.extent) for axis in kernel.reduced))
    ]
    row = Substitution({})
    columns = [Substitution(index) for index in indices]
    stores: list[Store] = []
    for sweep in kernel.sweeps:
        for node in sweep.row:
            row.node(node)
        stores += map(row.store, sweep.row_stores)
        for column in columns:
            column.known = row.known | column.known
        _scan(sweep, columns)
        for node in sweep.reductions:
            row.known[node] = _reduced(node, [column.node(node.args[0]) for column in columns])
        stores += [column.store(store) for store in sweep.stores for column in columns]
    return replace(kernel, reduced=(), sweeps=Sweeping(()).cut(stores))


def _along_short_axis(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with the last of several reduced axes unrolled, where it is short: the vector runs along the others.

    Channels of pixels that share something are such an axis; one that is joined with another in memory is a part of a long run. Sums
    that round keep their order.
    """
    loops = arrange(kernel)
    short = loops.vector
    specs = [n.attr for n in kernel.nodes if n.op in ("reduction", "scan")]
    specs += [f.attr for s in kernel.sweeps for f in s.reductions]
    if short not in kernel.reduced or short.extent not in target.interleaved or loops.extents[short] != short.extent:
        return kernel
    if any(spec.compensated or spec.reduction not in ORDERLESS for spec in specs):
        return kernel
    others = tuple(axis for axis in kernel.reduced if axis is not short)
    nodes = sum(len(sweep.body) + len(sweep.reductions) for sweep in kernel.sweeps) * short.extent
    if math.prod(axis.extent for axis in others) < target.lanes or nodes > MOST_INTERLEAVED_NODES:
        return kernel
    columns = [Substitution({short: Affine.of(place)}) for place in range(short.extent)]
    row = Substitution({})
    stores: list[Store] = []
    for sweep in kernel.sweeps:
        stores += map(row.store, sweep.row_stores)
        for column in columns:
            column.known = row.known | column.known
        for node in sweep.reductions:
            spec: ReductionSpec = node.attr
            terms = [S.cast(column.node(node.args[0]), spec.accumulator) for column in columns]
            row.known[node] = Scalar(node.op, (reduce_terms(spec.reduction, terms),), node.dtype, spec)
        stores += [column.store(store) for store in sweep.stores for column in columns]
    return replace(kernel, reduced=others, sweeps=Sweeping(others).cut(stores))


def _scan(sweep: Sweep, columns: list[Substitution]) -> None:
    """Give the scans of a sweep their value at each index."""
    for node in sweep.body:
        if node.op == "scan":
            spec: ReductionSpec = node.attr
            terms = [S.cast(column.node(node.args[0]), spec.accumulator) for column in columns]
            order = range(len(terms) - 1, -1, -1) if spec.reverse else range(len(terms))
            total: Scalar | None = None
            for number in order:
                total = terms[number] if total is None else reduce_terms(spec.reduction, [total, terms[number]], True)
                columns[number].known[node] = S.cast(total, node.dtype)


def _reduced(node: Scalar, terms: list[Scalar]) -> Scalar:
    spec: ReductionSpec = node.attr
    if spec.positional:
        return extreme_index(spec.reduction, terms, node.dtype)
    return S.cast(reduce_terms(spec.reduction, [S.cast(term, spec.accumulator) for term in terms]), node.dtype)
