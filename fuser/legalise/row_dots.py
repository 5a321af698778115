"""Row sums of weights × scores by the product of these weights that is there: Σⱼ wᵢⱼ (A Bᵀ)ᵢⱼ = Σ_d aᵢ_d (w B)ᵢ_d.

In the gradient of attention w are the weights P, B the values V, A the gradient of the result O = P V: one pass over O and dO
in the place of two products. Dao, "FlashAttention-2" (2023), section 3.1.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fuser.ir import scalar as S
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.index import ZERO, Affine, Axis, linearise
from fuser.ir.primitive import MOVES
from fuser.ir.rewrite import Rewriter
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.dot import free_dimensions
from fuser.ops.elementwise import div_p, mul_p, neg_p
from fuser.ops.movement import reshape_p, slice_p, transpose_p
from fuser.ops.reduce import reduce_sum_p
from fuser.partition.values import Index, Values

F32 = np.dtype("float32")


class _End(Protocol):
    @property
    def eqn(self) -> Eqn: ...
    @property
    def side(self) -> int: ...


class _Region(Protocol):
    @property
    def products(self) -> list[Eqn]: ...
    @property
    def ends(self) -> Iterable[_End]: ...
    @property
    def sums(self) -> Iterable[Eqn]: ...


@dataclass(frozen=True)
class _Factors:
    """A product taken apart: values that differ along the row, those that do not, and what it is divided by."""

    varying: Counter[Operand]
    row: Counter[Operand]
    under: Counter[Operand]
    negative: bool


@dataclass(frozen=True)
class _RowDot:
    """Σ_d a·result of the rows, both read along `axes` (by dimension of the result), where the sum over a row stands."""

    reduction: Eqn
    result: Var
    other: Operand
    permutation: tuple[int, ...]  # of the other operand to the result's dimensions, but for those of extent 1
    feature: int
    order: tuple[int, ...]  # of the remaining dimensions, in that of the reduction's result
    row: Counter[Operand]
    under: Counter[Operand]
    negative: bool


def with_row_dots(graph: Graph, maker: dict[Var, Eqn], regions: Iterable[_Region]) -> Graph:
    """The graph with each such sum of the regions' rows replaced; itself where there is none."""
    found: dict[Eqn, _RowDot] = {}
    for region in regions:
        for reduction in region.sums:
            for end in region.ends:
                dot = _row_dot(graph, maker, region, reduction, end)
                if dot is not None:
                    found[reduction] = dot
                    break
    if not found:
        return graph
    last = _last_needed(graph, found.values())
    rewriter = Rewriter(graph)
    for dot in last.get(None, ()):
        _written(rewriter, dot)
    for eqn in graph.eqns:
        if eqn not in found:
            rewriter.keep(eqn)
        for dot in last.get(eqn, ()):
            _written(rewriter, dot)
    return replace(rewriter.finish(), eqns=_defined_first(rewriter.eqns))


def _last_needed(graph: Graph, dots: Iterable[_RowDot]) -> dict[Eqn | None, list[_RowDot]]:
    """The sums by the equation that makes the last of what they read; by None those of inputs."""
    order = {v: number for number, eqn in enumerate(graph.eqns) for v in eqn.outvars}
    found: dict[Eqn | None, list[_RowDot]] = {}
    for dot in dots:
        needs = [v for v in (dot.result, dot.other, *dot.row, *dot.under) if isinstance(v, Var)]
        last = max(order.get(v, -1) for v in needs)
        found.setdefault(graph.eqns[last] if last >= 0 else None, []).append(dot)
    return found


def _written(rewriter: Rewriter, dot: _RowDot) -> None:
    """The sum by the product of the rows, in float32."""
    out = dot.reduction.outvars[0]
    rewriter.source = dot.reduction.source
    wide = lambda v: (
        v if v.aval.dtype == F32 else rewriter.add(convert_element_type_p, v, new_dtype=F32, weak_type=False)
    )
    (axis,) = dot.reduction.params["axes"]
    other = rewriter.add(transpose_p, dot.other, permutation=dot.permutation)
    other = rewriter.add(reshape_p, other, new_sizes=dot.result.aval.shape, dimensions=None)
    value = rewriter.add(mul_p, wide(dot.result), wide(other))
    value = rewriter.add(reduce_sum_p, value, axes=(dot.feature,))
    value = rewriter.add(transpose_p, value, permutation=dot.order)
    value = rewriter.add(reshape_p, value, new_sizes=out.aval.shape, dimensions=None)
    for primitive, factors in ((mul_p, dot.row), (div_p, dot.under)):
        for factor in factors.elements():
            value = rewriter.add(primitive, value, wide(_of_row(rewriter, factor, axis, out.aval.shape)))
    if dot.negative:
        value = rewriter.add(neg_p, value)
    last = rewriter.make(convert_element_type_p, value, new_dtype=out.aval.dtype, weak_type=False)
    rewriter.keep(replace(last, outvars=(out,)))


def _of_row(rewriter: Rewriter, factor: Operand, axis: int, shape: tuple[int, ...]) -> Operand:
    """A value that is the same along a row, once a row."""
    if isinstance(factor, Literal):
        return Literal(np.asarray(factor.val).astype(F32)[()], replace(factor.aval, dtype=F32))
    whole = factor.aval.shape
    limits = tuple(1 if d == axis else e for d, e in enumerate(whole))
    first = rewriter.add(slice_p, factor, start_indices=(0,) * len(whole), limit_indices=limits, strides=None)
    return rewriter.add(reshape_p, first, new_sizes=shape, dimensions=None)


def _defined_first(eqns: list[Eqn]) -> tuple[Eqn, ...]:
    """Equations each after what it reads, otherwise in their order."""
    maker = {v: eqn for eqn in eqns for v in eqn.outvars}
    done: dict[Eqn, None] = {}
    for root in eqns:
        stack = [root]
        while stack:
            eqn = stack[-1]
            needs = [m for v in eqn.operands() if (m := maker.get(v)) is not None and m not in done]
            if eqn in done or not needs:
                done[stack.pop()] = None
            else:
                stack.extend(needs)
    return tuple(done)


def _row_dot(graph: Graph, maker: dict[Var, Eqn], region: _Region, reduction: Eqn, end: _End) -> _RowDot | None:
    """How a sum of a row is a product of rows with the result of `end`; None where it is not."""
    operand = reduction.invars[0]
    if reduction.primitive is not reduce_sum_p or len(reduction.params["axes"]) != 1:
        return None
    (axis,) = reduction.params["axes"]
    weights = _unmoved(maker, end.eqn.invars[end.side])
    if weights.aval.shape != operand.aval.shape:
        return None
    summed, weighed = _factors(maker, operand, axis), _factors(maker, weights, axis)
    rest = summed.varying - weighed.varying
    if weighed.varying - summed.varying or rest.total() != 1:
        return None
    (score,) = rest
    product = maker.get(_unmoved(maker, score))  # type: ignore[arg-type]
    value = end.eqn.invars[1 - end.side]
    if product is None or product not in region.products or value not in product.invars:
        return None
    read = _read_alike(graph, reduction, end, weights, score, product)
    if read is None:
        return None
    permutation, feature, order = read
    common = (summed.row & weighed.row), (summed.under & weighed.under)
    up, down = summed.row - common[0], summed.under - common[1]
    up, down = up + (weighed.under - common[1]), down + (weighed.row - common[0])
    other = product.invars[1 - product.invars.index(value)]
    negative = summed.negative != weighed.negative
    return _RowDot(reduction, end.eqn.outvars[0], other, permutation, feature, order, up, down, negative)


def _unmoved(maker: dict[Var, Eqn], operand: Operand) -> Operand:
    """What an operand is but for movement and conversions between floats."""
    while (eqn := maker.get(operand)) is not None and (eqn.primitive.movement in MOVES or _converts(eqn)):  # type: ignore[arg-type]
        operand = eqn.invars[0]
    return operand


def _converts(eqn: Eqn) -> bool:
    floats = all(is_inexact(v.aval.dtype) for v in (*eqn.invars, *eqn.outvars))
    return eqn.primitive is convert_element_type_p and floats


def _factors(maker: dict[Var, Eqn], operand: Operand, axis: int) -> _Factors:
    varying, row, under = Counter[Operand](), Counter[Operand](), Counter[Operand]()
    negative, stack = False, [(operand, False)]
    while stack:
        value, divides = stack.pop()
        eqn = maker.get(value)  # type: ignore[arg-type]
        if isinstance(value, Literal) or _along_rows(maker, value, axis):
            (under if divides else row)[value] += 1
        elif eqn is not None and eqn.primitive is mul_p:
            stack += [(v, divides) for v in eqn.invars]
        elif eqn is not None and eqn.primitive is div_p and not divides:
            stack += [(eqn.invars[0], False), (eqn.invars[1], True)]
        elif eqn is not None and eqn.primitive is neg_p:
            negative = not negative
            stack.append((eqn.invars[0], divides))
        elif eqn is not None and _converts(eqn):
            stack.append((eqn.invars[0], divides))
        else:
            varying[value] += -1 if divides else 1
    return _Factors(varying, row, under, negative)


def _along_rows(maker: dict[Var, Eqn], operand: Operand, axis: int) -> bool:
    """Whether a value is the same along a dimension, along which it is broadcast."""
    eqn = maker.get(operand)  # type: ignore[arg-type]
    while eqn is not None and _converts(eqn):
        eqn = maker.get(eqn.invars[0])  # type: ignore[arg-type]
    if eqn is None or "broadcast_dimensions" not in eqn.params:
        return False
    dims = eqn.params["broadcast_dimensions"]
    return axis not in dims or eqn.invars[0].aval.shape[dims.index(axis)] == 1


class _Reading(Values):
    """At which index a value is read."""

    def __init__(self, graph: Graph, wanted: Operand) -> None:
        super().__init__(graph)
        self.wanted = wanted
        self.at: Index | None = None

    def value(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        if operand is self.wanted:
            self.at = index
            return S.constant(0, operand.aval.dtype)
        return super().value(operand, index, mask)


def _index(graph: Graph, operand: Operand, index: Index, wanted: Operand) -> Index | None:
    reading = _Reading(graph, wanted)
    reading.value(operand, index, None)
    return reading.at


def _read_alike(
    graph: Graph, reduction: Eqn, end: _End, weights: Operand, score: Operand, product: Eqn
) -> tuple[tuple[int, ...], int, tuple[int, ...]] | None:
    """Whether the score's product reads the values of `end` where that reads them, row by row: the permutation by which the
    other operand has the result's dimensions, but for those of extent 1; which of these is contracted; and the permutation by
    which the rest lie as in the reduction's result."""
    dimensions, side = end.eqn.params["dimension_numbers"], end.side
    (contracted, batch), own = (tuple(zip(*pair)) for pair in dimensions), end.eqn.invars[side].aval.shape
    axes = [None if e == 1 else Axis(e) for e in own]
    at = _index(graph, end.eqn.invars[side], tuple(ZERO if a is None else Affine.of(a) for a in axes), weights)
    where = None if at is None else _index(graph, score, at, product.outvars[0])
    if at is None or where is None or len(contracted) != 1 or any(i.terms and i.axis() is None for i in where):
        return None
    read = _dimensions(product, product.invars.index(end.eqn.invars[1 - side]), [i.axis() for i in where])
    mine = {pair[1 - side]: axes[pair[side]] for pair in (*contracted, *batch)}  # by dimension of the values
    feature = free_dimensions(end.eqn.invars[1 - side].aval.ndim, *(pair[1 - side] for pair in dimensions))
    if read is None or read[0] != mine or [*feature] != [read[2]]:
        return None
    rows = [axes[d] for d in free_dimensions(len(own), *(pair[side] for pair in dimensions))]
    result = [axes[pair[side]] for pair in batch] + ([*rows, FEATURE] if side == 0 else [FEATURE, *rows])
    other = {**read[1], read[3]: FEATURE}
    kept = [a for a in result if a is not FEATURE]
    order = _order(at, reduction, kept)
    if order is None or {a for a in other.values() if a} != {a for a in result if a}:
        return None
    found = {axis: d for d, axis in other.items() if axis is not None}
    ones = sorted(d for d, axis in other.items() if axis is None)
    permutation = (*(found[a] for a in result if a is not None), *ones)
    return permutation, result.index(FEATURE), order


FEATURE = Axis(2, "feature")  # stands for the contracted dimension


def _dimensions(
    product: Eqn, number: int, axes: list[Axis | None]
) -> tuple[dict[int, Axis | None], dict[int, Axis | None], int, int] | None:
    """Of a product whose result is read along `axes`: those of operand `number` and of the other one by dimension, and the
    contracted dimension of each."""
    contracted, batch = product.params["dimension_numbers"]
    if len(contracted[0]) != 1:
        return None
    found: list[dict[int, Axis | None]] = []
    start = len(batch[0])
    for side in range(2):
        free = free_dimensions(product.invars[side].aval.ndim, contracted[side], batch[side])
        own = (*axes[: len(batch[0])], *axes[start : start + len(free)])
        found.append(dict(zip((*batch[side], *free), own, strict=True)))
        start += len(free)
    return found[number], found[1 - number], contracted[number][0], contracted[1 - number][0]


def _order(at: Index, reduction: Eqn, axes: list[Axis | None]) -> tuple[int, ...] | None:
    """The order in which axes lie in the reduction's result, which is read at these indices of its operand."""
    (axis,) = reduction.params["axes"]
    position = linearise(tuple(i for d, i in enumerate(at) if d != axis), reduction.outvars[0].aval.shape)
    terms = sorted(position.terms, key=lambda term: -term[1])
    found = [axes.index(atom) for atom, _ in terms if atom in axes]  # type: ignore[arg-type]
    long = [a for n in found if (a := axes[n]) is not None]
    wanted = linearise(tuple(map(Affine.of, long)), tuple(a.extent for a in long))
    if wanted != position or len(found) != sum(a is not None for a in axes):
        return None
    return (*found, *(n for n, a in enumerate(axes) if a is None))
