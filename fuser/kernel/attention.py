"""Attention taken apart for one kernel: the two products, and what stands between them as an online reduction along the keys.

In: the graph of an `attention` equation. Out: its `Attention`, or `Refused` with the reason. What the weights have as factors of
their row alone (1 / Σ) is taken out of the second product, so that this too is a sum relative to the row's maximum
(`kernel/online.py`): Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness" (2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.index import ZERO, Affine, Axis
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact, sum_dtype
from fuser.kernel.decompose import Decomposition, Has
from fuser.kernel.kernel import Kernel, Param, ReductionSpec, Store, Sweep
from fuser.kernel.lower import Sweeping
from fuser.kernel.online import Online, online
from fuser.kernel.operands import in_order, index_axes, own_axes, within_sweep
from fuser.ops.dot import free_dimensions
from fuser.partition.group import Layout
from fuser.partition.values import Index, Refused, Values

Read = Callable[
    [int, Index, Scalar | None], Scalar
]  # the element of the graph's input `number` at an index, under a mask
F32 = np.dtype("float32")
VANISHES = 128.0  # exp(−x) is 0 in float32 for such a distance from the maximum


@dataclass(frozen=True)
class Side:
    """An operand of a product: its element, and the dtype in which the product takes it."""

    element: Scalar
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class Bounds:
    """Which keys a row may see, by a test of positions: `lower` ≤ key ≤ `upper` for each; the others' scores are all `fill`."""

    lower: tuple[Affine, ...]
    upper: tuple[Affine, ...]
    fill: float

    @property
    def settled(self) -> float:
        """The maximum of a row above which the weights of scores `fill` are 0."""
        return self.fill + max(VANISHES, abs(self.fill) * 1e-6) if math.isfinite(self.fill) else self.fill


@dataclass(frozen=True, eq=False)
class Attention:
    """`axes` by kind: "batch" (of which the keys or the values are a function), "row" (queries), "feature" (of the values).

    `keys` is the axis of keys along scores and along values, `depth` the contracted axis of queries and of keys.
    `reductions` are the maximum, the sums relative to it, and among them `total`, which stands for the second product.
    """

    axes: dict[str, tuple[Axis, ...]]
    keys: tuple[Axis, Axis]
    depth: tuple[Axis, Axis]
    query: Side
    key: Side
    value: Side
    score: Scalar
    total: Scalar
    sweep: Sweep
    after: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    relative: dict[Scalar, Online]
    bounds: Bounds | None

    @property
    def maximum(self) -> Scalar:
        return self.relative[self.total].maximum

    def kernel(
        self, name: str, params: tuple[Param, ...], comments: tuple[str, ...], orders: tuple[Scalar, ...]
    ) -> Kernel:
        """All of it as one kernel, whose `orders` are the nodes of the products' operands."""
        parallel = tuple(axis for axes in self.axes.values() for axis in axes)
        whole = Sweep((*orders, *self.sweep.row, *self.after), self.stores, self.sweep.body, self.sweep.reductions, ())
        return Kernel(name, params, parallel, (*self.keys, *self.depth), (whole,), comments)


class Rows(Values):
    """Values of an attention's graph along its rows and keys; the first product's elements are one leaf, `score`."""

    def __init__(self, graph: Graph, keys: Axis, read: Read) -> None:
        super().__init__(graph)
        self.keys, self.read = keys, read
        self.number = {var: number for number, var in enumerate(graph.invars)}
        self.first: Eqn | None = None
        self.at: dict[Eqn, Index] = {}

    def input(self, var: Var, index: Index, mask: Scalar | None) -> Scalar:
        return self.read(self.number[var], index, mask)

    def other(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        fusion = eqn.primitive.fusion
        if self.at.setdefault(eqn, index) != index:
            raise Refused(f"{eqn.primitive} is read at two different indices")
        if fusion is Fusion.DOT:
            if self.first not in (None, eqn):
                raise Refused("its rows are made of two products")
            self.first = eqn
            return self.once((eqn, "score"), lambda: Scalar("score", (), eqn.outvars[0].aval.dtype))
        if fusion is Fusion.REDUCE:
            return self.once((eqn, "reduction"), lambda: self._reduction(eqn, index))
        raise Refused(f"{eqn.primitive} stands between its products")

    def _reduction(self, eqn: Eqn, index: Index) -> Scalar:
        reduction, axes = eqn.primitive.rule("lower")(**eqn.params)
        shape = eqn.invars[0].aval.shape
        long = [d for d in axes if shape[d] != 1]
        if len(long) != 1 or shape[long[0]] != self.keys.extent or any(self.keys in index_axes(i) for i in index):
            raise Refused(f"{eqn.primitive} does not reduce along the keys")
        kept = iter(index)
        inner = tuple(
            (Affine.of(self.keys) if d in long else ZERO) if d in axes else next(kept) for d in range(len(shape))
        )
        element = self.value(eqn.invars[0], inner, None)
        accumulator = sum_dtype(element.dtype)
        return Scalar("reduction", (element,), eqn.outvars[0].aval.dtype, ReductionSpec(reduction, accumulator))

    def side(self, eqn: Eqn, number: int, index: dict[int, Affine]) -> Side:
        """An operand of a product at the index that is known of each of its dimensions."""
        operand: Operand = eqn.invars[number]
        at = tuple(index[d] for d in range(operand.aval.ndim))
        return Side(self.value(operand, at, None), operand.aval.dtype)


def numbered(eqn: Eqn, number: int, result: Index, contracted: Affine) -> dict[int, Affine]:
    """By dimension the index at which operand `number` of a product is read for the element of its result at `result`."""
    (dims, batch) = (pair[number] for pair in eqn.params["dimension_numbers"])
    free = [
        free_dimensions(v.aval.ndim, *(pair[n] for pair in eqn.params["dimension_numbers"]))
        for n, v in enumerate(eqn.invars)
    ]
    skipped = len(batch) + (len(free[0]) if number else 0)
    own = result[skipped : skipped + len(free[number])]
    return dict(zip((*batch, *free[number], *dims), (*result[: len(batch)], *own, contracted), strict=True))


@dataclass(frozen=True, eq=False)
class Element:
    """An element of an attention's result, in terms of `total`, and what it is made of."""

    value: Scalar
    total: Scalar
    sides: tuple[Side, Side, Side]  # query, key, value
    score: Scalar
    keys: tuple[Axis, Axis]
    depth: tuple[Axis, Axis]
    axes: dict[str, tuple[Axis, ...]]


def element(graph: Graph, layout: Layout, read: Read) -> Element:
    """The element of the result whose dimensions run along `layout`. Raises Refused."""
    second = graph.eqns[-1]
    (contracted, _), (batch, _) = second.params["dimension_numbers"]
    if len(contracted) != 1 or second.params.get("precision") is not None:
        raise Refused("products over several or no dimensions, or of a given precision, are no attention")
    extent = second.invars[0].aval.shape[contracted[0]]
    keys = Axis(extent), Axis(extent)
    rows = Rows(graph, keys[0], read)
    result = tuple(ZERO if axis is None else Affine.of(axis) for axis in layout)
    weights = _weights(graph, second)
    index = numbered(second, weights, result, Affine.of(keys[0]))
    weight = rows.side(second, weights, index)
    value = rows.side(second, 1 - weights, numbered(second, 1 - weights, result, Affine.of(keys[1])))
    query, key, depth = _scores(rows, keys[0])
    inner, outer = factored(weight.element, keys[0])
    total = Scalar("reduction", (inner,), second.outvars[0].aval.dtype, ReductionSpec("sum", F32))
    free = [
        len(free_dimensions(v.aval.ndim, *dims)) for v, *dims in zip(second.invars, *second.params["dimension_numbers"])
    ]
    split = len(batch) + free[0]
    labels = [layout[len(batch) : split], layout[split:]]
    own = [a for a in (*layout[: len(batch)], *labels[weights]) if a is not None]
    shared = axes_of(key.element) | axes_of(value.element)
    axes = {
        "batch": tuple(a for a in own if a in shared),
        "row": tuple(a for a in own if a not in shared),
        "feature": tuple(a for a in labels[1 - weights] if a is not None),
    }
    score = rows.once((rows.first, "score"), lambda: Scalar("score", (), F32))
    return Element(_rebuilt(total, outer), total, (query, key, value), score, keys, depth, axes)


def _weights(graph: Graph, second: Eqn) -> int:
    """Which operand of the second product is made of the first one."""
    made = graph.producers

    def reaches(operand: Operand) -> bool:
        stack, seen = [operand], set[Operand]()
        while stack:
            eqn = made.get(stack.pop())  # type: ignore[arg-type]
            if eqn is None or eqn.outvars[0] in seen:
                continue
            if eqn.primitive.fusion is Fusion.REDUCE:
                return True
            seen.add(eqn.outvars[0])
            stack.extend(eqn.operands())
        return False

    return 0 if reaches(second.invars[0]) else 1


def _scores(rows: Rows, keys: Axis) -> tuple[Side, Side, tuple[Axis, Axis]]:
    """Queries, keys, and the contracted axis of each."""
    eqn = rows.first
    if eqn is None:
        raise Refused("its weights are made of no product")
    (contracted, _), _ = eqn.params["dimension_numbers"]
    if len(contracted) != 1 or eqn.params.get("precision") is not None:
        raise Refused("products over several or no dimensions, or of a given precision, are no attention")
    extent = eqn.invars[0].aval.shape[contracted[0]]
    depth = Axis(extent), Axis(extent)
    sides = [rows.side(eqn, n, numbered(eqn, n, rows.at[eqn], Affine.of(depth[n]))) for n in range(2)]
    along = [keys in axes_of(side.element) for side in sides]
    if along == [True, True] or along == [False, False]:
        raise Refused("each operand of the first product runs along the keys")
    query, key = (0, 1) if along[1] else (1, 0)
    return sides[query], sides[key], (depth[query], depth[key])


def axes_of(node: Scalar) -> set[Axis]:
    """The axes along which a value changes, those of reductions aside."""
    return {axis for needed in in_order([node]) for axis in own_axes(needed)}


Factored = tuple[Scalar, tuple[tuple[Scalar, int], ...]]


def factored(node: Scalar, keys: Axis, known: dict[Scalar, Factored] | None = None) -> Factored:
    """A weight without the factors that its row alone decides, and these: operations with the number of the operand that has
    the others. Conversions between floats are left out: they round. `known`: of nodes that were looked through already."""
    known = {} if known is None else known
    if node not in known:
        known[node] = _factored(node, keys, known)
    return known[node]


def _factored(node: Scalar, keys: Axis, known: dict[Scalar, Factored]) -> Factored:
    if node.op == "cast" and is_inexact(node.dtype) and is_inexact(node.args[0].dtype):
        return factored(node.args[0], keys, known)
    if node.op not in ("div", "mul"):
        return node, ()
    for number in range(1 if node.op == "div" else 2):
        if not _by_key(node.args[1 - number], keys):
            inner, outer = factored(node.args[number], keys, known)
            return inner, (*outer, (node, number))
    if node.op == "mul":
        for number in range(2):
            inner, outer = factored(node.args[number], keys, known)
            if outer:
                both = (inner, node.args[1]) if number == 0 else (node.args[0], inner)
                return Scalar("mul", both, node.dtype), outer
    return node, ()


def _by_key(node: Scalar, keys: Axis) -> bool:
    """Whether a value differs from key to key."""
    return any(n.op == "score" or keys in own_axes(n) for n in within_sweep([node]))


def _rebuilt(total: Scalar, outer: tuple[tuple[Scalar, int], ...]) -> Scalar:
    for node, number in outer:
        args = (total, node.args[1]) if number == 0 else (node.args[0], total)
        total = Scalar(node.op, args, node.dtype, node.attr)
    return total


def scheduled(element: Element, stores: list[Store], has: Has) -> Attention:
    """The kernel's parts for an element that `stores` write, in operations that a target `has`. Raises Refused."""
    new = Decomposition(has)
    query, key, value = (Side(new.node(side.element), side.dtype) for side in element.sides)
    total, score = new.node(element.total), new.node(element.score)
    stores = [new.store(store) for store in stores]
    sweeps = Sweeping(element.keys[:1]).cut(stores)
    if any(sweep.stores for sweep in sweeps):
        raise Refused("its weights are needed in memory")
    kernel, relative = online(Kernel("", (), (), element.keys[:1], sweeps))
    running = [sweep for sweep in kernel.sweeps if sweep.reductions]
    if total not in relative or len(running) != 1:
        raise Refused("what stands between its products is no sum of exponentials relative to the row's maximum")
    sums = [r for r in running[0].reductions if r is not relative[total].maximum]
    if any(r not in relative or relative[r].shift is not relative[total].shift for r in sums):
        raise Refused("its rows need reductions that are not relative to one maximum")
    after = tuple(n for sweep in kernel.sweeps if sweep is not running[0] for n in sweep.row if n.op != "reduction")
    row_stores = tuple(store for sweep in kernel.sweeps for store in sweep.row_stores)
    bounds = visible(relative[total].maximum.args[0], element.keys[0])
    parts = query, key, value, score, total, running[0], after, row_stores, relative, bounds
    return Attention(element.axes, element.keys, element.depth, *parts)


# Which keys a row may see.


def visible(score: Scalar, keys: Axis) -> Bounds | None:
    """The bounds of the keys that a row may see, where the scores of others are one number; None where there are none."""
    while score.op == "cast" and is_inexact(score.args[0].dtype):
        score = score.args[0]
    if score.op != "select":
        return None
    for number, seen in ((2, True), (1, False)):
        fill = score.args[number]
        if fill.op == "const" and float(fill.attr) < 0:
            slacks = [slack for test in _conjuncts(score.args[0], seen) if (slack := _slack(test)) is not None]
            lower = tuple(-rest for rest in _rests(slacks, keys, 1))
            upper = tuple(_rests(slacks, keys, -1))
            if lower or upper:
                return Bounds(lower, upper, float(fill.attr))
    return None


def _rests(slacks: list[Affine], keys: Axis, sign: int) -> list[Affine]:
    """What stands beside the key where that has this sign, and nothing else depends on it."""
    found = [slack - Affine.of(keys) * sign for slack in slacks if slack.coefficient(keys) == sign]
    return [rest for rest in found if keys not in index_axes(rest)]


_OPPOSITE = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le"}


def _conjuncts(test: Scalar, holds: bool) -> list[Scalar]:
    """Comparisons all of which hold where a test holds, or where it does not."""
    if test.op == "not":
        return _conjuncts(test.args[0], not holds)
    if test.op == ("and" if holds else "or"):
        return [c for arg in test.args for c in _conjuncts(arg, holds)]
    if test.op == "select" and all(a.op == "const" for a in test.args[1:]):
        yes, no = (bool(a.attr) for a in test.args[1:])
        return [] if yes == no else _conjuncts(test.args[0], holds == yes)
    if test.op in _OPPOSITE:
        return [test if holds else Scalar(_OPPOSITE[test.op], test.args, test.dtype)]
    return []


def _slack(test: Scalar) -> Affine | None:
    """What is not negative where a comparison of positions holds; None where it compares something else."""
    a, b = (_position(arg) for arg in test.args)
    if a is None or b is None:
        return None
    difference = b - a if test.op in ("le", "lt") else a - b
    return difference - 1 if test.op in ("lt", "gt") else difference


def _position(node: Scalar) -> Affine | None:
    """An integer as index arithmetic; None where it is none."""
    if node.dtype.kind != "i" or node.dtype.itemsize < 4:
        return None
    if node.op == "const":
        return Affine((), int(node.attr))
    if node.op == "index":
        return node.attr  # type: ignore[no-any-return]
    if node.op == "cast":
        return _position(node.args[0])
    if node.op in ("add", "sub"):
        a, b = (_position(arg) for arg in node.args)
        return None if a is None or b is None else a + b if node.op == "add" else a - b
    return None
