"""Groups around an attention: whether they become one kernel, and its parts with what follows it (`attention_kernel.py` writes it)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuser.backends.triton import spell
from fuser.backends.triton.attention_forms import attention
from fuser.backends.triton.block_sizes import FEW, attention_tile
from fuser.backends.triton.emitter import Function
from fuser.backends.triton.product_cost import (
    CACHE_BANDWIDTH,
    LATENCY,
    REFERENCE,
    START,
    Extents,
    choose,
    library_seconds,
)
from fuser.backends.triton.target import TARGET
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.index import ZERO, Affine, linearise
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.target import duration
from fuser.ir.types import FLOATS, bfloat16, short_dtype
from fuser.kernel.attention import Attention, Elements, elements, scheduled
from fuser.kernel.cost import iteration
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.lower import Demand, Sweeping, comments, params, results
from fuser.partition.attention_axes import layouts
from fuser.partition.group import FusionGroup, Layout
from fuser.partition.values import Index, Refused, deep_recursion

DTYPES = (FLOATS[0], bfloat16, FLOATS[2])
SHORTEST = 16  # the least extent that tl.dot takes
LONGEST = {2: 256, 4: 128}  # by itemsize, features of a key or of a value that a program's registers hold a block of
# Shares of the stated rates that kernels of attention reached on an H200, in 16 bits and in float32.
SHARE, SINGLE_SHARE = 0.45, 0.085
REDUCED = 5  # operations that a reduction of rows takes of each score, its position and mask included
MOST_FEATURES = 256  # features of all sums together that a program's registers hold


def refusal(eqn: Eqn) -> str | None:
    """Why attention runs as separate kernels; None if it becomes one."""
    graph = eqn.params["graph"]
    products = [e for e in graph.eqns if e.primitive.fusion is Fusion.DOT]
    dtypes = {v.aval.dtype for e in products for v in e.invars}
    if not dtypes <= set(DTYPES):
        return f"attention of {', '.join(sorted(map(short_dtype, dtypes)))} runs as separate kernels"
    try:
        with deep_recursion():
            parts = _of_graph(graph, layouts(graph))
    except Refused as reason:
        return str(reason)
    return _size_refusal(parts) or _slower(parts, products)


def _size_refusal(parts: Attention) -> str | None:
    features = [math.prod(a.extent for a in total.features) for total in parts.totals]
    longest = LONGEST[parts.itemsize]
    sizes = [(extent, "features of values") for extent in features]
    sizes += [(score.depth[0].extent, "features of keys") for score in parts.scores]
    for extent, what in sizes:
        if not SHORTEST <= extent <= longest:
            return (
                f"attention over {extent} {what} runs as separate kernels; fused is that over {SHORTEST} to {longest}"
            )
    if len(features) > 1 and sum(features) > MOST_FEATURES:
        return f"its sums have {sum(features)} features, and at most {MOST_FEATURES} fit into registers"
    rows, batch = (math.prod(a.extent for a in parts.axes[kind]) for kind in ("row", "batch"))
    walked = math.prod(a.extent for a in parts.walked[0])
    if walked < SHORTEST:
        return f"attention over {walked} keys runs as separate kernels"
    if rows < SHORTEST and batch < FEW and walked > 1024:
        return (
            f"{rows} queries of {batch} heads would leave most of the GPU idle while a few programs walk along the keys"
        )
    return None


def _slower(parts: Attention, products: Sequence[Eqn]) -> str | None:
    """Why a product whose rows are only reduced is faster beside a kernel that reads it; None where it is not."""
    if parts.totals:
        return None
    rows, batch = (math.prod(a.extent for a in parts.axes[kind]) for kind in ("row", "batch"))
    walked = math.prod(a.extent for a in parts.walked[0])
    depths = [score.depth[0].extent for score in parts.scores]
    apart, machine = 0.0, REFERENCE
    for depth, eqn in zip(depths, products, strict=True):
        size = Extents(batch, rows, walked, depth, parts.itemsize, eqn.outvars[0].aval.dtype.itemsize)
        apart += min(choose(size).seconds, library_seconds(size)) + size.out * batch * rows * walked / machine.copy
    tile = attention_tile(rows, [], depths, parts.itemsize, parts.positions)
    programs = batch * -(-rows // tile.m)
    at_once = machine.units * (8 // tile.warps)
    full = -(-programs // at_once) * at_once * tile.m / (batch * rows)  # with what is idle in the last round
    rate = machine.products(parts.itemsize) * (SHARE if parts.itemsize == 2 else SINGLE_SHARE)
    arithmetic = 2 * batch * rows * walked * sum(tile.depths) * full / rate
    cache = programs * walked * sum(depths) * parts.itemsize / CACHE_BANDWIDTH
    elementwise = batch * rows * walked * iteration(parts.sweep.body, (), TARGET)
    elementwise += batch * rows * walked * len(parts.sweep.reductions) * REDUCED / TARGET.operations
    together = START + max(arithmetic, elementwise, cache, -(-walked // tile.n) * LATENCY / tile.stages)
    if together < apart + START:
        return None
    return f"with its reductions it is expected to take {duration(together)}, beside them {duration(apart + START)}"


def _stores(found: Elements, graph: Graph, layout: Sequence[Layout | None], first: int) -> list[Store]:
    """What writes the results of a graph into parameters from `first` on."""
    stores = []
    for number, (value, index) in enumerate(zip(found.values, found.index)):
        own = layout[number]
        if index is None:
            assert own is not None
            index = tuple(ZERO if axis is None else Affine.of(axis) for axis in own)
        stores.append(Store(first + number, linearise(index, graph.outvars[number].aval.shape), value, index))
    return stores


def _of_graph(graph: Graph, layout: Sequence[Layout | None]) -> Attention:
    """The parts of an attention by itself, its inputs arrays in memory."""

    def read(number: int, index: Index, mask: Scalar | None) -> Scalar:
        aval = graph.invars[number].aval
        access = Access(number, linearise(index, aval.shape), index)
        return Scalar("load", () if mask is None else (mask,), aval.dtype, access)

    found = elements(graph, layout, read)
    return scheduled(found, _stores(found, graph, layout, len(graph.invars)), spell.TABLE.has)


class _Demand(Demand):
    """Values of a group around its attention, whose elements are known at one index each."""

    def __init__(self, group: FusionGroup) -> None:
        super().__init__(group)
        (self.eqn,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT)
        read = lambda number, index, mask: self.value(self.eqn.invars[number], index, mask)
        inner = self.eqn.params["graph"]
        self.elements = elements(inner, [group.layout.get(v) for v in self.eqn.outvars], read)

    def other(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        if eqn is not self.eqn:
            return super().other(eqn, operand, index, mask)
        return self.elements.values[eqn.outvars.index(operand)]

    def store(self, number: int, var: Var) -> Store:
        """What writes a result of the group."""
        layout = self.group.layout.get(var)
        if layout is None:  # a reduction of rows
            index = self.elements.index[self.eqn.outvars.index(var)]
            assert index is not None
        else:
            index = tuple(ZERO if axis is None else Affine.of(axis) for axis in layout)
        value = self.value(var, index, None)
        return Store(len(self.group.graph.invars) + number, linearise(index, var.aval.shape), value)


def emit_attention(group: FusionGroup) -> tuple[Kernel, Function]:
    """The kernel of an attention with what follows it."""
    with deep_recursion():
        demand = _Demand(group)
        stores = [demand.store(number, var) for number, var in enumerate(results(group))]
        parts = scheduled(demand.elements, stores, spell.TABLE.has)
        orders = {side: _order(side.element) for side in parts.sides}
        inside = tuple(dict.fromkeys(node for order in orders.values() for node in order))
        kernel = parts.kernel(group.name, params(group), comments(group), inside)
        return kernel, attention(kernel, parts, orders)


def _order(root: Scalar) -> tuple[Scalar, ...]:
    return Sweeping(()).cut([Store(0, ZERO, root)])[0].row
