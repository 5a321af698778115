"""Attention taken apart for one kernel: scores, what stands between them and further products, and these as sums along an axis.

In: the graph of an `attention` equation. Out: its `Attention`, or `Refused` with the reason. A program *holds* a block of rows
and *walks* along another axis: along the keys with queries held (forwards, and for the gradient of queries), along queries with
keys held (for the gradients of keys and values). What weights have as factors of their row alone (1 / Σ) is taken out of the
products; where rows are reduced, these too are sums relative to the row's maximum (`kernel/online.py`). Dao, "FlashAttention-2:
faster attention with better parallelism and work partitioning" (2023).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.index import ZERO, Affine, Atom, Axis, linearise
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.types import bfloat16, is_inexact, sum_dtype
from fuser.kernel.attention_bounds import Bounds, common, visible_scores, visible_weights
from fuser.kernel.decompose import Decomposition, Has
from fuser.kernel.kernel import Kernel, Param, ReductionSpec, Store, Sweep
from fuser.kernel.lower import Sweeping
from fuser.kernel.online import Online, online
from fuser.kernel.operands import in_order, index_axes, own_axes, within_sweep
from fuser.ops.dot import free_dimensions
from fuser.partition.attention_axes import is_reduction, weights_of
from fuser.partition.group import Layout
from fuser.partition.values import Index, Refused, Values

Read = Callable[
    [int, Index, Scalar | None], Scalar
]  # the element of the graph's input `number` at an index, under a mask
F32 = np.dtype("float32")
POSITIONS = ("argmax", "argmin")
PLAIN = ("sum", "max", "min", *POSITIONS)  # reductions of rows that need no maximum


@dataclass(frozen=True)
class Side:
    """An operand of a product: its element, and the dtype in which the product takes it."""

    element: Scalar
    dtype: np.dtype

    @property
    def narrow(self) -> np.dtype | None:
        """The 16-bit dtype that an element of 32 bits was widened from, and fits without loss."""
        wide = self.element.op == "cast" and self.dtype == F32 and self.element.args[0].dtype == bfloat16
        return self.element.args[0].dtype if wide else None


@dataclass(frozen=True, eq=False)
class Score:
    """A first product: the node that stands for its elements, its operands along the held and the walked rows, and the
    contracted axis of each."""

    node: Scalar
    held: Side
    walked: Side
    depth: tuple[Axis, Axis]

    @property
    def narrow(self) -> bool:
        """Whether it is computed of 16-bit operands, that both sides were widened from."""
        return self.held.narrow is not None and self.walked.narrow is not None


@dataclass(frozen=True, eq=False)
class Total:
    """A second product: its node, a sum of weights; the values that these weigh, and the axes of their features."""

    node: Scalar
    value: Side
    features: tuple[Axis, ...]

    def parts(self, stores: Sequence[Store], params: Sequence[Param]) -> int:
        """In how many numbers of 16 bits a weight of 32 is multiplied: as many as the result has bits of."""
        wide = any(params[s.param].dtype.itemsize > 2 for s in stores if self.node in in_order([s.value]))
        return 3 if wide else 2


@dataclass(frozen=True, eq=False)
class Attention:
    """`axes` by kind: "batch" (of which what is walked along is a function), "row" (held).

    `walked` are the walked axes along scores and along values. `sweep.reductions` are the maximum, the sums relative to it,
    those that are plain, and among them the nodes of `totals`.
    """

    axes: dict[str, tuple[Axis, ...]]
    walked: tuple[tuple[Axis, ...], tuple[Axis, ...]]
    scores: tuple[Score, ...]
    totals: tuple[Total, ...]
    sweep: Sweep
    after: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    relative: dict[Scalar, Online]
    bounds: Bounds | None

    @property
    def online(self) -> Online | None:
        """How the sums are relative to a maximum; None where there is none."""
        return next(iter(self.relative.values()), None)

    @property
    def positions(self) -> bool:
        """Whether positions of extremes are among the results."""
        return any(r.attr.reduction in POSITIONS for r in self.sweep.reductions)

    @property
    def itemsize(self) -> int:
        """Bytes of the widest number that is multiplied."""
        sizes = [2 if s.narrow else max(s.held.dtype.itemsize, s.walked.dtype.itemsize) for s in self.scores]
        return max([*sizes, *((t.value.narrow or t.value.dtype).itemsize for t in self.totals)])

    @property
    def sides(self) -> tuple[Side, ...]:
        """The operands of the products in memory."""
        return (*(side for s in self.scores for side in (s.held, s.walked)), *(t.value for t in self.totals))

    @property
    def features(self) -> tuple[Axis, ...]:
        return tuple(axis for total in self.totals for axis in total.features)

    def kernel(
        self, name: str, params: tuple[Param, ...], comments: tuple[str, ...], orders: tuple[Scalar, ...]
    ) -> Kernel:
        """All of it as one kernel, whose `orders` are the nodes of the products' operands."""
        parallel = (*self.axes["batch"], *self.axes["row"], *self.features)
        whole = Sweep((*orders, *self.sweep.row, *self.after), self.stores, self.sweep.body, self.sweep.reductions, ())
        depth = tuple(axis for score in self.scores for axis in score.depth)
        return Kernel(name, params, parallel, (*self.walked[0], *self.walked[1], *depth), (whole,), comments)


@dataclass(frozen=True, eq=False)
class Elements:
    """What a kernel of an attention computes: of each result the element and, of reductions, where it is."""

    values: tuple[Scalar, ...]
    index: tuple[Index | None, ...]
    scores: tuple[Score, ...]
    totals: tuple[Total, ...]
    walked: tuple[tuple[Axis, ...], tuple[Axis, ...]]
    axes: dict[str, tuple[Axis, ...]]


def elements(graph: Graph, layouts: Sequence[Layout | None], read: Read) -> Elements:
    """The elements of results whose dimensions run along `layouts`. Raises Refused."""
    rows = _Rows(graph, read)
    index = [
        None if layout is None else tuple(ZERO if a is None else Affine.of(a) for a in layout) for layout in layouts
    ]
    values: list[Scalar | None] = [
        None if at is None else rows.value(v, at, None) for v, at in zip(graph.outvars, index, strict=True)
    ]
    reduced = [is_reduction(graph, v) for v in graph.outvars]
    for number, result in enumerate(graph.outvars):
        if values[number] is None:
            if result not in rows.reduced:
                raise Refused("its rows are reduced to what its products do not need")
            values[number], index[number] = rows.reduced[result], rows.at[rows.producers[result]]  # type: ignore[index]
    scores = tuple(rows.score(eqn) for eqn in rows.firsts)
    axes = _axes(rows, [layout for layout in layouts if layout is not None], scores)
    at = tuple(i if r else None for i, r in zip(index, reduced))
    for i, result in zip(at, graph.outvars):
        if i is not None:
            _covers(i, result, axes)
    return Elements(tuple(values), at, scores, tuple(rows.totals), rows.axes_walked, axes)  # type: ignore[arg-type]


def _axes(rows: _Rows, layouts: Sequence[Layout], scores: tuple[Score, ...]) -> dict[str, tuple[Axis, ...]]:
    """The axes of results by kind."""
    features = {axis for total in rows.totals for axis in total.features}
    own = dict.fromkeys(a for layout in layouts for a in layout if a is not None and a not in features)
    sides = [score.walked for score in scores] + [total.value for total in rows.totals]
    shared = {axis for side in sides for axis in axes_of(side.element)}
    return {"batch": tuple(a for a in own if a in shared), "row": tuple(a for a in own if a not in shared)}


def _covers(index: Index, result: Operand, axes: dict[str, tuple[Axis, ...]]) -> None:
    """Refused where a reduction of rows is not written at each of its elements exactly once."""
    position = linearise(index, result.aval.shape)
    wanted = {a for kind in axes.values() for a in kind if a.extent != 1}
    step = 1
    for atom, coefficient in sorted(position.terms, key=lambda term: term[1]):
        if atom not in wanted or coefficient != step:
            raise Refused("its rows are reduced to what other rows share")
        wanted.discard(atom)
        step *= atom.extent  # type: ignore[union-attr]
    if wanted or position.offset:
        raise Refused("its rows are reduced to what other rows share")


class _Rows(Values):
    """Values of an attention's graph along its rows; elements of first products are leaves, `score`."""

    def __init__(self, graph: Graph, read: Read) -> None:
        super().__init__(graph)
        self.read = read
        self.ends = weights_of(graph)
        self.number = {var: number for number, var in enumerate(graph.invars)}
        self.firsts: list[Eqn] = []
        self.at: dict[Eqn, Index] = {}
        self.walked: tuple[tuple[Axis, ...], tuple[Axis, ...]] | None = None
        self.totals: list[Total] = []
        self.reduced: dict[Operand, Scalar] = {}

    @property
    def axes_walked(self) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        if self.walked is None:
            raise Refused("no rows are reduced")
        return self.walked

    def input(self, var: Var, index: Index, mask: Scalar | None) -> Scalar:
        return self.read(self.number[var], index, mask)

    def other(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        fusion = eqn.primitive.fusion
        if self.at.setdefault(eqn, index) != index:
            raise Refused(f"{eqn.primitive} is read at two different indices")
        if eqn in self.ends:
            return self.once((eqn, "total"), lambda: self._total(eqn, index))
        if fusion is Fusion.DOT:
            if eqn not in self.firsts:
                self.firsts.append(eqn)
            return self.once((eqn, "score"), lambda: Scalar("score", (), eqn.outvars[0].aval.dtype, len(self.firsts)))
        if fusion is Fusion.REDUCE:
            return self.once((eqn, "reduction"), lambda: self._reduction(eqn, index))
        raise Refused(f"{eqn.primitive} stands between its products")

    def _reduction(self, eqn: Eqn, index: Index) -> Scalar:
        reduction, axes = eqn.primitive.rule("lower")(**eqn.params)
        shape = eqn.invars[0].aval.shape
        long = [d for d in axes if shape[d] != 1]
        if self.walked is None:
            self.walked = tuple(tuple(Axis(shape[d]) for d in long) for _ in range(2))  # type: ignore[assignment]
        walked = self.axes_walked[0]
        if len(long) != 1 or shape[long[0]] != walked[0].extent or any(set(walked) & index_axes(i) for i in index):
            raise Refused(f"{eqn.primitive} does not reduce along the keys")
        kept, along = iter(index), dict(zip(long, walked))
        inner = tuple(
            (Affine.of(along[d]) if d in along else ZERO) if d in axes else next(kept) for d in range(len(shape))
        )
        element = self.value(eqn.invars[0], inner, None)
        if reduction in POSITIONS and element.dtype != F32:  # scores are not rounded, which would make some equal
            raise Refused(f"{eqn.primitive} of scores of 16 bits")
        outer: tuple[tuple[Scalar, int], ...] = ()
        if reduction == "sum":
            element, outer = factored(element, walked)
        accumulator = sum_dtype(element.dtype)
        node = Scalar("reduction", (element,), eqn.outvars[0].aval.dtype, ReductionSpec(reduction, accumulator))
        found = self.reduced[eqn.outvars[0]] = _rebuilt(node, outer)
        return found

    # Products.

    def _total(self, eqn: Eqn, index: Index) -> Scalar:
        """The element of a second product: a sum of weights along the walked axes, and the factors of its row."""
        (contracted, _), _ = eqn.params["dimension_numbers"]
        if eqn.params.get("precision") is not None:
            raise Refused("products of a given precision are no attention")
        extents = [eqn.invars[0].aval.shape[d] for d in contracted]
        if self.walked is None:
            self.walked = tuple(tuple(Axis(e) for e in extents) for _ in range(2))  # type: ignore[assignment]
        weights = self.ends[eqn]
        order = self._order(eqn, index, extents)
        along = [[Affine.of(axes[n]) for n in order] for axes in self.axes_walked]
        weight = self._side(eqn, weights, index, along[0])
        value = self._side(eqn, 1 - weights, index, along[1])
        inner, outer = factored(weight.element, self.axes_walked[0])
        node = Scalar("reduction", (inner,), eqn.outvars[0].aval.dtype, ReductionSpec("sum", F32))
        _, (batch, _) = eqn.params["dimension_numbers"]
        free = [len(_free(eqn, n)) for n in range(2)]
        start = len(batch) + (free[0] if weights == 0 else 0)
        features = tuple(a for i in index[start : start + free[1 - weights]] if (a := i.axis()) is not None)
        self.totals.append(Total(node, value, features))
        return _rebuilt(node, outer)

    def _order(self, eqn: Eqn, index: Index, extents: list[int]) -> tuple[int, ...]:
        """Which walked axis each contracted dimension runs along: those for which scores are read where they were."""
        axes = self.axes_walked[0]
        orders = [
            order for order in itertools.permutations(range(len(axes))) if [axes[n].extent for n in order] == extents
        ]
        if not orders or len(axes) != len(extents):
            raise Refused("its products run along different axes")
        if not self.at.keys() & set(self.firsts) or len(orders) == 1:
            return orders[0]
        weights = self.ends[eqn]
        for order in orders:
            trial = _Trial(self)
            along = [Affine.of(axes[n]) for n in order]
            try:
                trial.value(eqn.invars[weights], _at(eqn, weights, index, along), None)
            except Refused:
                continue
            return order
        raise Refused("its products run along different axes")

    def _side(self, eqn: Eqn, number: int, index: Index, contracted: list[Affine]) -> Side:
        """An operand of a product, for the element of its result at an index."""
        operand = eqn.invars[number]
        return Side(self.value(operand, _at(eqn, number, index, contracted), None), operand.aval.dtype)

    def score(self, eqn: Eqn) -> Score:
        """A first product, at the index at which it was read."""
        (contracted, _), _ = eqn.params["dimension_numbers"]
        if len(contracted) != 1 or eqn.params.get("precision") is not None:
            raise Refused("products over several or no dimensions, or of a given precision, are no attention")
        extent = eqn.invars[0].aval.shape[contracted[0]]
        depth = Axis(extent), Axis(extent)
        sides = [self._side(eqn, n, self.at[eqn], [Affine.of(depth[n])]) for n in range(2)]
        walked = set(self.axes_walked[0])
        along = [
            any(walked & index_axes(i) for i in _at(eqn, n, self.at[eqn], [Affine.of(depth[n])])) for n in range(2)
        ]
        if along == [True, True] or along == [False, False]:
            raise Refused("each operand of the first product runs along the keys")
        held = 0 if along[1] else 1
        return Score(self.known[eqn, "score"], sides[held], sides[1 - held], (depth[held], depth[1 - held]))


class _Trial(_Rows):
    """Values of the same graph, which are forgotten after."""

    def __init__(self, rows: _Rows) -> None:
        self.producers, self.known, self.read = rows.producers, dict(rows.known), rows.read
        self.ends, self.number, self.firsts = rows.ends, rows.number, list(rows.firsts)
        self.at, self.walked, self.totals, self.reduced = dict(rows.at), rows.walked, [], dict(rows.reduced)


def _free(eqn: Eqn, number: int) -> tuple[int, ...]:
    return tuple(free_dimensions(eqn.invars[number].aval.ndim, *(p[number] for p in eqn.params["dimension_numbers"])))


def _at(eqn: Eqn, number: int, result: Index, contracted: list[Affine]) -> Index:
    """The index at which operand `number` of a product is read for the element of its result at `result`."""
    (dims, batch) = (pair[number] for pair in eqn.params["dimension_numbers"])
    free = [_free(eqn, n) for n in range(2)]
    skipped = len(batch) + (len(free[0]) if number else 0)
    own = result[skipped : skipped + len(free[number])]
    found = dict(zip((*batch, *free[number], *dims), (*result[: len(batch)], *own, *contracted), strict=True))
    return tuple(found[d] for d in range(eqn.invars[number].aval.ndim))


def axes_of(node: Scalar) -> set[Axis]:
    """The axes along which a value changes, those of reductions aside."""
    return {axis for needed in in_order([node]) for axis in own_axes(needed)}


Factored = tuple[Scalar, tuple[tuple[Scalar, int], ...]]


def factored(node: Scalar, walked: tuple[Axis, ...], known: dict[Scalar, Factored] | None = None) -> Factored:
    """A weight without the factors that its row alone decides, and these: operations with the number of the operand that has
    the others. Conversions between floats are left out: they round. `known`: of nodes that were looked through already."""
    known = {} if known is None else known
    if node not in known:
        known[node] = _factored(node, walked, known)
    return known[node]


def _factored(node: Scalar, walked: tuple[Axis, ...], known: dict[Scalar, Factored]) -> Factored:
    if node.op == "cast" and is_inexact(node.dtype) and is_inexact(node.args[0].dtype):
        return factored(node.args[0], walked, known)
    if node.op == "neg":
        inner, outer = factored(node.args[0], walked, known)
        return inner, (*outer, (node, 0))
    if node.op not in ("div", "mul"):
        return node, ()
    for number in range(1 if node.op == "div" else 2):
        if not _by_key(node.args[1 - number], walked):
            inner, outer = factored(node.args[number], walked, known)
            return inner, (*outer, (node, number))
    if node.op == "mul":
        for number in range(2):
            inner, outer = factored(node.args[number], walked, known)
            if outer:
                both = (inner, node.args[1]) if number == 0 else (node.args[0], inner)
                return Scalar("mul", both, node.dtype), outer
    return node, ()


def _by_key(node: Scalar, walked: tuple[Axis, ...]) -> bool:
    """Whether a value differs along the walked axes."""
    return any(n.op == "score" or own_axes(n) & set(walked) for n in within_sweep([node]))


def _rebuilt(total: Scalar, outer: tuple[tuple[Scalar, int], ...]) -> Scalar:
    for node, number in outer:
        args = tuple(total if n == number else arg for n, arg in enumerate(node.args))
        total = Scalar(node.op, args, node.dtype, node.attr)
    return total


def scheduled(found: Elements, stores: list[Store], has: Has) -> Attention:
    """The kernel's parts for elements that `stores` write, in operations that a target `has`. Raises Refused."""
    new = Decomposition(has)
    side = lambda s: Side(new.node(s.element), s.dtype)
    scores = tuple(Score(new.node(s.node), side(s.held), side(s.walked), s.depth) for s in found.scores)
    totals = tuple(Total(new.node(t.node), side(t.value), t.features) for t in found.totals)
    stores = [new.store(store) for store in stores]
    sweeps = Sweeping(found.walked[0]).cut(stores)
    if any(sweep.stores for sweep in sweeps):
        raise Refused("its weights are needed in memory")
    kernel, relative = online(Kernel("", (), (), found.walked[0], sweeps))
    running = [sweep for sweep in kernel.sweeps if sweep.reductions]
    if len(running) != 1:
        raise Refused("what stands between its products is no sum of exponentials relative to the row's maximum")
    sums = running[0].reductions
    maxima = {r.maximum for r in relative.values()}
    if len({r.shift for r in relative.values()}) > 1 or any(
        r not in relative for t in totals for r in [t.node] if maxima
    ):
        raise Refused("its rows need reductions that are not relative to one maximum")
    if any(r.attr.reduction not in PLAIN or r.attr.accumulator != F32 for r in sums if r not in relative):
        raise Refused("its rows need reductions that are not sums, maxima and minima of floats")
    after = tuple(n for sweep in kernel.sweeps if sweep is not running[0] for n in sweep.row if n.op != "reduction")
    row_stores = tuple(store for sweep in kernel.sweeps for store in sweep.row_stores)
    bounds = _bounds(relative, sums, found.walked[0])
    walked = _bounded_first(found.walked, bounds)
    return Attention(found.axes, walked, scores, totals, running[0], after, row_stores, relative, bounds)


def _bounds(relative: dict[Scalar, Online], sums: tuple[Scalar, ...], walked: tuple[Axis, ...]) -> Bounds | None:
    """Between which positions along one of the walked axes anything is to be added."""
    for axis in walked:
        if relative:
            alone = all(r in relative or any(r is o.maximum for o in relative.values()) for r in sums)
            maximum = next(iter(relative.values())).maximum
            found = visible_scores(maximum.args[0], axis) if alone else None
        else:
            summed = all(r.attr.reduction == "sum" for r in sums)
            found = common([visible_weights(r.args[0], axis) for r in sums]) if summed else None
        others = {a for a in walked if a is not axis}
        if found is not None and not any(index_axes(b) & others for b in (*found.lower, *found.upper)):
            return found
    return None


def _bounded_first(
    walked: tuple[tuple[Axis, ...], tuple[Axis, ...]], bounds: Bounds | None
) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The walked axes with that of the bounds first, so that what it shows lies together."""
    if bounds is None:
        return walked
    number = walked[0].index(bounds.axis)
    return tuple((axes[number], *axes[:number], *axes[number + 1 :]) for axes in walked)  # type: ignore[return-value]


def is_transposed(value: Total, score: Score, walked: tuple[tuple[Axis, ...], tuple[Axis, ...]]) -> bool:
    """Whether the values of a product are the walked operand of a score, which a program then loads once."""
    a, b = _loaded(score.walked.element), _loaded(value.value.element)
    if a is None or b is None or a.attr.param != b.attr.param or len(value.features) != 1:
        return False
    replaced: dict[Atom, Affine] = {v: Affine.of(s) for s, v in zip(*walked)}
    replaced[value.features[0]] = Affine.of(score.depth[1])
    return b.attr.offset.substitute(replaced) == a.attr.offset  # type: ignore[no-any-return]


def _loaded(element: Scalar) -> Scalar | None:
    """The load that an element is, widened at most."""
    while element.op == "cast" and is_inexact(element.args[0].dtype):
        element = element.args[0]
    return element if element.op == "load" and not element.args else None
