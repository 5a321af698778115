"""Attention: a program takes a block of queries, walks along the keys, and keeps rows of the result with their maxima and sums.

Scores live in registers from the first `tl.dot` to the second. Blocks of keys that a test of positions hides from all of a
program's rows are left out; where hidden scores are a finite number, they are visited after all if some row has seen nothing larger.
"""

from __future__ import annotations

import math

from fuser.backends.triton import spell
from fuser.backends.triton.block_sizes import FEW, AttentionTile, attention_tile
from fuser.backends.triton.emitter import Dims, Emitter, Function, required
from fuser.backends.triton.reductions import identity, reduced, shifted
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.index import ZERO, Affine, Axis, linearise
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, bfloat16, short_dtype
from fuser.kernel.attention import Attention, Side, element, scheduled
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.lower import Demand, Sweeping, comments, params, results
from fuser.partition.group import FusionGroup, Layout
from fuser.partition.values import Index, Refused, deep_recursion

DTYPES = (FLOATS[0], bfloat16, FLOATS[2])
SHORTEST = 16  # the least extent that tl.dot takes
LONGEST = {2: 256, 4: 128}  # by itemsize, features of a key or of a value that a program's registers hold a block of
ROW, COLUMN, COLUMN_DOWN, FEATURE = "row", "column", "column_down", "feature"  # columns are keys
DEPTH, DEPTH_DOWN = "depth", "depth_down"  # the contracted features
SHAPES = {
    ROW: "(M_BLOCK, 1)",
    COLUMN: "(1, N_BLOCK)",
    COLUMN_DOWN: "(N_BLOCK, 1)",
    FEATURE: "(1, D_BLOCK)",
    DEPTH: "(1, K_BLOCK)",
    DEPTH_DOWN: "(K_BLOCK, 1)",
}
NEGATIVE = 'float("-inf")'


def refusal(eqn: Eqn) -> str | None:
    """Why attention runs as separate kernels; None if it becomes one."""
    graph = eqn.params["graph"]
    products = [e for e in graph.eqns if e.primitive.fusion is Fusion.DOT]
    dtypes = {v.aval.dtype for e in products for v in e.invars}
    if not dtypes <= set(DTYPES):
        return f"attention of {', '.join(sorted(map(short_dtype, dtypes)))} runs as separate kernels"
    labels = tuple(None if e == 1 else Axis(e) for e in eqn.outvars[0].aval.shape)
    try:
        with deep_recursion():
            parts = _of_graph(graph, labels)
    except Refused as reason:
        return str(reason)
    return _size_refusal(parts)


def _size_refusal(parts: Attention) -> str | None:
    features = math.prod(a.extent for a in parts.axes["feature"])
    longest = LONGEST[max(side.dtype.itemsize for side in (parts.query, parts.value))]
    for extent, what in ((features, "features of values"), (parts.depth[0].extent, "features of keys")):
        if not SHORTEST <= extent <= longest:
            return (
                f"attention over {extent} {what} runs as separate kernels; fused is that over {SHORTEST} to {longest}"
            )
    rows, batch = (math.prod(a.extent for a in parts.axes[kind]) for kind in ("row", "batch"))
    if parts.keys[0].extent < SHORTEST:
        return f"attention over {parts.keys[0].extent} keys runs as separate kernels"
    if rows < SHORTEST and batch < FEW and parts.keys[0].extent > 1024:
        return (
            f"{rows} queries of {batch} heads would leave most of the GPU idle while a few programs walk along the keys"
        )
    return None


def _of_graph(graph: Graph, layout: Layout) -> Attention:
    """The parts of an attention by itself, its inputs arrays in memory."""

    def read(number: int, index: Index, mask: Scalar | None) -> Scalar:
        aval = graph.invars[number].aval
        access = Access(number, linearise(index, aval.shape), index)
        return Scalar("load", () if mask is None else (mask,), aval.dtype, access)

    found = element(graph, layout, read)
    index = tuple(ZERO if axis is None else Affine.of(axis) for axis in layout)
    offset = linearise(index, graph.outvars[0].aval.shape)
    return scheduled(found, [Store(len(graph.invars), offset, found.value, index)], spell.TABLE.has)


class _Demand(Demand):
    """Values of a group around its attention, whose element is known at one index."""

    def __init__(self, group: FusionGroup) -> None:
        super().__init__(group)
        (self.eqn,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT)
        read = lambda number, index, mask: self.value(self.eqn.invars[number], index, mask)
        self.element = element(self.eqn.params["graph"], group.layout[self.eqn.outvars[0]], read)

    def other(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        return self.element.value if eqn is self.eqn else super().other(eqn, operand, index, mask)


def emit_attention(group: FusionGroup) -> tuple[Kernel, Function]:
    """The kernel of an attention with what follows it."""
    with deep_recursion():
        demand, stores = _Demand(group), []
        for number, var in enumerate(results(group)):
            index = tuple(ZERO if axis is None else Affine.of(axis) for axis in group.layout[var])
            offset = linearise(index, var.aval.shape)
            stores.append(Store(len(group.graph.invars) + number, offset, demand.value(var, index, None)))
        parts = scheduled(demand.element, stores, spell.TABLE.has)
        orders = [_order(side.element) for side in (parts.query, parts.key, parts.value)]
        inside = tuple(dict.fromkeys(node for order in orders for node in order))
        kernel = parts.kernel(group.name, params(group), comments(group), inside)
        return kernel, AttentionKernel(kernel, parts, orders).write()


def _order(root: Scalar) -> tuple[Scalar, ...]:
    return Sweeping(()).cut([Store(0, ZERO, root)])[0].row


class AttentionKernel(Emitter):
    """Writes the function. What runs down a block's first dimension where another block has it along its second is `…_down`."""

    def __init__(self, kernel: Kernel, parts: Attention, orders: list[tuple[Scalar, ...]]) -> None:
        axes = (*kernel.parallel, *kernel.reduced)
        super().__init__(
            kernel,
            Loops(kernel.parallel, kernel.reduced, {axis: axis.extent for axis in axes}, frozenset(), None),
            kernel.name,
        )
        self.parts, self.orders = parts, orders
        self.counts = {kind: self.loops.count(found) for kind, found in parts.axes.items()}
        wide = max(side.dtype.itemsize for side in (parts.query, parts.value))
        self.tile: AttentionTile = attention_tile(
            self.counts["row"], self.counts["feature"], parts.depth[0].extent, wide
        )

    @property
    def whole(self) -> bool:
        """Whether a program holds all contracted features of its queries."""
        return self.tile.depth >= self.parts.depth[0].extent

    def write(self) -> Function:
        parts, tile = self.parts, self.tile
        self._place_block()
        if self.whole:
            self._contracted()
            self._query()
        self.define_all(n for n in parts.sweep.row if n.op != "reduction")
        self._start()
        length = self.extents[parts.keys[0]]
        if parts.bounds is None:
            self._walk(f"range(0, {length}, N_BLOCK)", "start")
        else:
            self._walk_seen(length)
        self._end()
        self.define_all(parts.after)
        for store in parts.stores:
            self.store(store)
        constants = {"M_BLOCK": tile.m, "N_BLOCK": tile.n, "K_BLOCK": tile.depth, "D_BLOCK": tile.features}
        grid = self.counts["batch"] * -(-self.counts["row"] // tile.m)
        return self.finish(constants, grid, tile.warps, True, tile.stages)

    # Where a program stands.

    def _place_block(self) -> None:
        rows, batch, features = (self.parts.axes[kind] for kind in ("row", "batch", "feature"))
        total = " * ".join(self.extents[a] for a in rows) or "1"
        self.line(f"m_blocks = tl.cdiv({total}, M_BLOCK)")
        self.line(f"program = {self.program()}")
        block = "program % m_blocks"
        if self.parts.bounds is not None and self.parts.bounds.upper:  # rows that see most keys first
            block = f"m_blocks - 1 - {block}"
        self.line(f"row = ({block}) * M_BLOCK + tl.arange(0, M_BLOCK)[:, None]")
        self._dimension(ROW, rows, total)
        if batch:
            self.line("batch = program // m_blocks")
            self.split("batch", batch, frozenset())
        self.line("feature = tl.arange(0, D_BLOCK)[None, :]")
        self._dimension(FEATURE, features, " * ".join(self.extents[a] for a in features))

    def _contracted(self, start: str = "") -> None:
        """Name the contracted features, all of them or those of a chunk."""
        for axis, name, shape in zip(self.parts.depth, (DEPTH, DEPTH_DOWN), ("[None, :]", "[:, None]"), strict=True):
            self.line(f"{name} = {start}tl.arange(0, K_BLOCK){shape}")
            self._dimension(name, (axis,), self.extents[axis])

    def _dimension(self, name: str, axes: tuple[Axis, ...], total: str) -> None:
        """Axes along a block dimension that has a name in the text."""
        self.line(f"{name}_inside = {name} < {total}")
        self.masks[name] = f"{name}_inside"
        self.split(name, axes, frozenset(name))

    def zero(self, dim: str) -> str:
        return f"tl.zeros({SHAPES[dim]}, tl.int32)"

    def store_dims(self, store: Store) -> Dims:
        return self.spans(store.value) | {ROW}

    # Operands of the products.

    def _side(self, side: Side, order: tuple[Scalar, ...], dims: tuple[str, str], shape: str) -> str:
        """A block of an operand in the product's own dtype, 0 beyond its ends."""
        root, narrow = side.element, spell.storage(side.dtype)
        self.define_all(n for n in order if n is not root)
        kept = root.op == "load" and root.dtype == side.dtype
        if kept:
            text = self.load_text(root, widen=False)
        else:
            self.define(root)
            text = f"{self.operand(root)}.to({narrow})"
        if self.spans(root) != frozenset(dims):
            text, kept = f"tl.broadcast_to({text}, {shape})", False
        if kept:
            return text
        inside = " & ".join(self.masks[d] for d in dims)
        return f"tl.where({inside}, {text}, 0).to({narrow})"

    # The walk along the keys.

    def _start(self) -> None:
        parts = self.parts
        self.line(f"largest = tl.full((M_BLOCK, 1), {identity(parts.maximum.attr)}, tl.float32)")
        self.line("shift = tl.zeros((M_BLOCK, 1), tl.float32)")
        for reduction in self._sums():
            shape = "(M_BLOCK, D_BLOCK)" if reduction is parts.total else "(M_BLOCK, 1)"
            self.line(f"{self.name(reduction)} = tl.zeros({shape}, tl.float32)")

    def _sums(self) -> list[Scalar]:
        return [r for r in self.parts.sweep.reductions if r is not self.parts.maximum]

    def _walk_seen(self, length: str) -> None:
        """Walk along the keys that some row of the block sees; along the others too where a row has seen nothing large."""
        bounds = self.parts.bounds
        assert bounds is not None
        self.line("first = 0")
        self.line(f"last = {length}")
        for number, bound in enumerate(bounds.lower):
            text = self._bound(bound, f"lower{number}")
            self.line(f"first = tl.maximum(first, tl.min(tl.where(row_inside, {text}, {length})))")
        for number, bound in enumerate(bounds.upper):
            text = self._bound(bound, f"upper{number}")
            self.line(f"last = tl.minimum(last, tl.max(tl.where(row_inside, {text}, -1)) + 1)")
        self.line("first = first // N_BLOCK * N_BLOCK")
        self.line("last = tl.maximum(first, tl.cdiv(last, N_BLOCK) * N_BLOCK)")
        self._walk("range(first, last, N_BLOCK)", "start")
        if math.isinf(bounds.fill):
            return
        self.line(f"unsettled = tl.max(tl.where(row_inside & (largest <= {bounds.settled!r}), 1, 0))")
        self.line(f"hidden = (first + tl.maximum({length} - last, 0)) * unsettled")
        self._walk("range(0, hidden, N_BLOCK)", "tl.where(start < first, start, start + last - first)")

    def _bound(self, bound: Affine, key: str) -> str:
        text, dims = self.offset(("bound", key), bound)
        return f"({text})" if dims else f"({text}) + {self.zero(ROW)}"

    def _walk(self, steps: str, begin: str) -> None:
        """Take the keys of each step into the sums."""
        parts, length = self.parts, self.extents[self.parts.keys[0]]
        with self.scope():
            self.open(f"for start in {steps}:")
            self.line(f"begin = {begin}")
            for axis, name, shape in zip(parts.keys, (COLUMN, COLUMN_DOWN), ("[None, :]", "[:, None]"), strict=True):
                self.line(f"{name} = begin + tl.arange(0, N_BLOCK){shape}")
                self._dimension(name, (axis,), length)
            self._scores()
            self.env[parts.score], self.varies[parts.score] = "score", frozenset((ROW, COLUMN))
            self._step()
            self.close()

    def _scores(self) -> None:
        """A block of scores: in one product, or chunk by chunk of the contracted features."""
        if self.whole:
            self._key()
            self.line('score = tl.dot(query, key, input_precision="ieee")')
            return
        self.line("score = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)")
        with self.scope():
            self.open(f"for chunk in range(0, {self.extents[self.parts.depth[0]]}, K_BLOCK):")
            self._contracted("chunk + ")
            self._query()
            self._key()
            self.line('score = tl.dot(query, key, score, input_precision="ieee")')
            self.close()

    def _query(self) -> None:
        shape = "(M_BLOCK, K_BLOCK)"
        self.line(f"query = {self._side(self.parts.query, self.orders[0], (ROW, DEPTH), shape)}")

    def _key(self) -> None:
        shape = "(K_BLOCK, N_BLOCK)"
        self.line(f"key = {self._side(self.parts.key, self.orders[1], (DEPTH_DOWN, COLUMN), shape)}")

    def _step(self) -> None:
        """Take a block of scores into the maxima and the sums, which are relative to the largest so far."""
        parts = self.parts
        relative, maximum = parts.relative[parts.total], parts.maximum
        later = {node for r in self._sums() for node in parts.relative[r].elements}
        roots = [r.args[0] for r in parts.sweep.reductions]
        self.define_all(n for n in required(roots, parts.sweep.body) if n not in later and n is not parts.score)
        found = f"tl.where(column_inside, {self.operand(maximum.args[0])}, {NEGATIVE})"
        self.line(
            f"next = combine_max(largest, {reduced(maximum.attr, f'tl.broadcast_to({found}, (M_BLOCK, N_BLOCK))')})"
        )
        following = shifted(self, relative, "next", frozenset((ROW,)), "at")
        self.line(f"following = tl.where(next == {NEGATIVE}, 0.0, {following})")
        self.line(f"factor = tl.where(largest == {NEGATIVE}, 1.0, libdevice.exp(shift - following))")
        self.line("largest = next")
        self.line("shift = following")
        self.env[relative.shift], self.varies[relative.shift] = "following", frozenset((ROW,))
        self.define_all(n for n in required(roots, parts.sweep.body) if n in later)
        for reduction in self._sums():
            name, weight = self.name(reduction), f"tl.where(column_inside, {self.operand(reduction.args[0])}, 0.0)"
            if reduction is not parts.total:
                self.line(f"{name} = {name} * factor + tl.sum({weight}, axis=1, keep_dims=True)")
                continue
            self.line(
                f"value = {self._side(parts.value, self.orders[2], (COLUMN_DOWN, FEATURE), '(N_BLOCK, D_BLOCK)')}"
            )
            self.line(f"weight = ({weight}).to({spell.storage(parts.value.dtype)})")
            self.line(f'{name} = tl.dot(weight, value, {name} * factor, input_precision="ieee")')

    def _end(self) -> None:
        """The sums of whole rows, whose maxima are there; of scores −∞ alone they are nan where the graph's own are."""
        parts = self.parts
        relative = parts.relative[parts.total]
        self.env[parts.maximum], self.varies[parts.maximum] = "largest", frozenset((ROW,))
        self.define_all(relative.chain)
        self.line(
            f"nothing = tl.where(largest == {NEGATIVE}, libdevice.exp(largest - {self.operand(relative.shift)}), 0.0)"
        )
        for reduction in self._sums():
            name = self.name(reduction)
            self.line(f"{name} = {name} + nothing")
            self.env[reduction] = name
            self.varies[reduction] = frozenset((ROW, FEATURE)) if reduction is parts.total else frozenset((ROW,))
