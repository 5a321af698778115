"""Attention: a program takes a block of rows, walks along what they are multiplied by, and keeps sums of weighted values.

Scores live in registers from the first `tl.dot` to the last. Where rows are reduced, maxima and sums are kept too, relative to the
largest score so far. Blocks that a test of positions hides from all of a program's rows are left out; where hidden scores are a
finite number, they are visited after all if some row has seen nothing larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fuser.backends.triton import spell
from fuser.backends.triton.block_sizes import FEW, AttentionTile, attention_tile, smaller_attention_tiles
from fuser.backends.triton.emitter import Dims, Emitter, Function, Launch, required
from fuser.backends.triton.long_rows import shifted
from fuser.backends.triton.reductions import identity, reduced
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.index import ZERO, Affine, Axis, linearise
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, bfloat16, is_inexact, short_dtype
from fuser.kernel.attention import Attention, Elements, Score, Side, Total, elements, is_transposed, scheduled
from fuser.kernel.attention_bounds import Bounds
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.lower import Demand, Sweeping, comments, params, results
from fuser.partition.attention_axes import layouts
from fuser.partition.group import FusionGroup, Layout
from fuser.partition.values import Index, Refused, deep_recursion

DTYPES = (FLOATS[0], bfloat16, FLOATS[2])
SHORTEST = 16  # the least extent that tl.dot takes
LONGEST = {2: 256, 4: 128}  # by itemsize, features of a key or of a value that a program's registers hold a block of
MOST_FEATURES = 256  # features of all sums together that a program's registers hold
WIDE = 1024  # walked positions whose maxima are looked at together
ROW, COLUMN, COLUMN_DOWN = "row", "column", "column_down"  # rows are held, columns walked along
FEATURE, DEPTH, DEPTH_DOWN = (
    "feature",
    "depth",
    "depth_down",
)  # each with the number of its product; depth is contracted
NEGATIVE = 'float("-inf")'


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
    return _size_refusal(parts)


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
        return kernel, AttentionKernel(kernel, parts, orders).write()


def _order(root: Scalar) -> tuple[Scalar, ...]:
    return Sweeping(()).cut([Store(0, ZERO, root)])[0].row


class AttentionKernel(Emitter):
    """Writes the function. What runs down a block's first dimension where another block has it along its second is `…_down`."""

    def __init__(self, kernel: Kernel, parts: Attention, orders: dict[Side, tuple[Scalar, ...]]) -> None:
        axes = (*kernel.parallel, *kernel.reduced)
        super().__init__(
            kernel,
            Loops(kernel.parallel, kernel.reduced, {axis: axis.extent for axis in axes}, frozenset(), None),
            kernel.name,
        )
        self.parts, self.orders = parts, orders
        self.counts = {kind: self.loops.count(found) for kind, found in parts.axes.items()}
        features = [self.loops.count(total.features) for total in parts.totals]
        depths = [score.depth[0].extent for score in parts.scores]
        self.tile: AttentionTile = attention_tile(self.counts["row"], features, depths, parts.itemsize)
        self.length = " * ".join(self.extents[axis] for axis in parts.walked[0])
        exact = (t for t in parts.totals if t.value.narrow is not None)
        self.rounds = parts.itemsize == 2 and all(t.parts(parts.stores, kernel.params) == 2 for t in exact)
        self.blocks = {ROW: "M_BLOCK", COLUMN: "N_BLOCK", COLUMN_DOWN: "N_BLOCK"}
        for number in range(len(features)):
            self.blocks[f"{FEATURE}{number}"] = f"D_BLOCK{number}"
        for number in range(len(depths)):
            self.blocks |= {f"{name}{number}": f"K_BLOCK{number}" for name in (DEPTH, DEPTH_DOWN)}

    def whole(self, number: int) -> bool:
        """Whether a program holds all contracted features of its rows in a score."""
        return self.tile.depths[number] >= self.parts.scores[number].depth[0].extent

    def write(self) -> Function:
        parts, tile = self.parts, self.tile
        self._place_block()
        for number, score in enumerate(parts.scores):
            if self.whole(number):
                self._contracted(number)
                self._held(number, score)
        self.define_all(n for n in parts.sweep.row if n.op != "reduction")
        self._start()
        if parts.bounds is None:
            self._walk(f"range(0, {self.length}, N_BLOCK)", "start")
        else:
            self._walk_seen(parts.bounds)
        self._end()
        self.define_all(parts.after)
        for store in parts.stores:
            self.store(store)
        constants = {"M_BLOCK": tile.m, "N_BLOCK": tile.n}
        constants |= {f"K_BLOCK{n}": extent for n, extent in enumerate(tile.depths)}
        constants |= {f"D_BLOCK{n}": extent for n, extent in enumerate(tile.features)}
        function = self.finish(constants, self._grid(tile), tile.warps, True, tile.stages)
        smaller = tuple(self._with_tile(function.launch, other) for other in smaller_attention_tiles(tile))
        return replace(function, launch=replace(function.launch, smaller=smaller))

    def _grid(self, tile: AttentionTile) -> int:
        return self.counts["batch"] * -(-self.counts["row"] // tile.m)

    def _with_tile(self, launch: Launch, tile: AttentionTile) -> Launch:
        constants = {**launch.constants, "M_BLOCK": tile.m, "N_BLOCK": tile.n}
        return replace(launch, constants=constants, grid=self._grid(tile), warps=tile.warps, stages=tile.stages)

    # Where a program stands.

    def _place_block(self) -> None:
        rows, batch, bounds = self.parts.axes["row"], self.parts.axes["batch"], self.parts.bounds
        total = " * ".join(self.extents[a] for a in rows) or "1"
        self.line(f"m_blocks = tl.cdiv({total}, M_BLOCK)")
        self.line(f"program = {self.program()}")
        block = "program % m_blocks"
        if bounds is not None and bounds.upper and not bounds.lower:  # rows that see most first
            block = f"m_blocks - 1 - {block}"
        self.line(f"row = ({block}) * M_BLOCK + tl.arange(0, M_BLOCK)[:, None]")
        self._dimension(ROW, rows, total)
        if batch:
            self.line("batch = program // m_blocks")
            self.split("batch", batch, frozenset())
        for number, found in enumerate(self.parts.totals):
            self.line(f"{FEATURE}{number} = tl.arange(0, D_BLOCK{number})[None, :]")
            self._dimension(
                f"{FEATURE}{number}", found.features, " * ".join(self.extents[a] for a in found.features) or "1"
            )

    def _contracted(self, number: int, start: str = "") -> None:
        """Name the contracted features of a score, all of them or those of a chunk."""
        depth = self.parts.scores[number].depth
        for axis, name, shape in zip(depth, (DEPTH, DEPTH_DOWN), ("[None, :]", "[:, None]"), strict=True):
            self.line(f"{name}{number} = {start}tl.arange(0, K_BLOCK{number}){shape}")
            self._dimension(f"{name}{number}", (axis,), self.extents[axis])

    def _dimension(self, name: str, axes: tuple[Axis, ...], total: str) -> None:
        """Axes along a block dimension that has a name in the text."""
        self.line(f"{name}_inside = {name} < {total}")
        self.masks[name] = f"{name}_inside"
        self.split(name, axes, frozenset((name,)))

    def zero(self, dim: str) -> str:
        down = dim == ROW or dim.startswith((COLUMN_DOWN, DEPTH_DOWN))
        block = self.blocks[dim]
        return f"tl.zeros({f'({block}, 1)' if down else f'(1, {block})'}, tl.int32)"

    def store_dims(self, store: Store) -> Dims:
        return self.spans(store.value) | {ROW}

    def operation(self, node: Scalar, args: list[str]) -> str:
        """Beside products of 16-bit numbers, to which weights are rounded: exponentials by the special function unit (their
        error is below 2⁻¹⁶), and one reciprocal a row."""
        if self.rounds and node.dtype.itemsize <= 4:
            if node.op == "exp":
                return f"tl.exp({args[0]})"
            if node.op == "div" and is_inexact(node.dtype) and self.spans(node.args[1]) < self.spans(node):
                return f"{args[0]} * tl.div_rn(1.0, {args[1]})"
        return super().operation(node, args)

    # Operands of the products.

    def _side(self, side: Side, dims: tuple[str, str], narrow: bool = True) -> str:
        """A block of an operand in the product's own dtype, or the `narrow` one that it was widened from; 0 beyond its ends."""
        root, dtype, order = side.element, side.dtype, self.orders[side]
        if side.narrow is not None and narrow:
            root, dtype, order = root.args[0], side.narrow, order[:-1]
        storage = spell.storage(dtype)
        self.define_all(n for n in order if n is not root)
        kept = root.op == "load" and root.dtype == dtype
        if kept:
            text = self.load_text(root, widen=False)
        else:
            self.define(root)
            text = f"{self.operand(root)}.to({storage})"
        if self.spans(root) != frozenset(dims):
            text, kept = f"tl.broadcast_to({text}, ({self.blocks[dims[0]]}, {self.blocks[dims[1]]}))", False
        if kept:
            return text
        inside = " & ".join(self.masks[d] for d in dims)
        return f"tl.where({inside}, {text}, 0).to({storage})"

    # The walk.

    def _start(self) -> None:
        parts = self.parts
        if parts.online is not None:
            self.line(f"largest = tl.full((M_BLOCK, 1), {identity(parts.online.maximum.attr)}, tl.float32)")
            self.line("shift = tl.zeros((M_BLOCK, 1), tl.float32)")
        totals = {total.node: number for number, total in enumerate(parts.totals)}
        for reduction in self._sums():
            shape = f"(M_BLOCK, D_BLOCK{totals[reduction]})" if reduction in totals else "(M_BLOCK, 1)"
            self.line(f"{self.name(reduction)} = tl.full({shape}, {identity(reduction.attr)}, tl.float32)")

    def _sums(self) -> list[Scalar]:
        online = self.parts.online
        return [r for r in self.parts.sweep.reductions if online is None or r is not online.maximum]

    def _walk_seen(self, bounds: Bounds) -> None:
        """Walk along what some row of the block sees; along the rest too where a row has seen nothing large."""
        step = " * ".join(["1", *(self.extents[a] for a in self.parts.walked[0][1:])])
        extent = self.extents[bounds.axis]
        self.line("first = 0")
        self.line(f"last = {extent}")
        for number, bound in enumerate(bounds.lower):
            text = self._bound(bound, f"lower{number}")
            self.line(f"first = tl.maximum(first, tl.min(tl.where(row_inside, {text}, {extent})))")
        for number, bound in enumerate(bounds.upper):
            text = self._bound(bound, f"upper{number}")
            self.line(f"last = tl.minimum(last, tl.max(tl.where(row_inside, {text}, -1)) + 1)")
        self.line(f"first = first * {step} // N_BLOCK * N_BLOCK")
        self.line(f"last = tl.maximum(first, tl.cdiv(last * {step}, N_BLOCK) * N_BLOCK)")
        self._walk("range(first, last, N_BLOCK)", "start")
        if self.parts.online is not None:
            if math.isinf(bounds.fill):
                return
            self.line(f"unsettled = tl.max(tl.where(row_inside & (largest <= {bounds.settled!r}), 1, 0))")
        elif bounds.shift is None:
            return
        else:
            self._unsettled(bounds)
        self.line(f"hidden = (first + tl.maximum({self.length} - last, 0)) * unsettled")
        self._walk("range(0, hidden, N_BLOCK)", "tl.where(start < first, start, start + last - first)")

    def _unsettled(self, bounds: Bounds) -> None:
        """Whether hidden weights count in some row: one that has seen nothing larger, or a nan."""
        assert bounds.shift is not None
        settled = NEGATIVE if math.isinf(bounds.fill) else repr(bounds.settled)
        test = lambda inside: f"tl.max(tl.where({inside} & ~({self.operand(bounds.shift)} > {settled}), 1, 0))"
        order = required([bounds.shift], self.parts.sweep.body)
        if not order:
            self.line(f"unsettled = {test('row_inside')}")
            return
        self.line("unsettled = 0")
        with self.scope():
            self.open(f"for begin in range(0, {self.length}, {WIDE}):")
            self.line(f"column = begin + tl.arange(0, {WIDE})[None, :]")
            self._dimension(COLUMN, self.parts.walked[0], self.length)
            self.define_all(order)
            self.line(f"unsettled = tl.maximum(unsettled, {test('column_inside')})")
            self.close()

    def _bound(self, bound: Affine, key: str) -> str:
        text, dims = self.offset(("bound", key), bound)
        return f"({text})" if dims else f"({text}) + {self.zero(ROW)}"

    def _walk(self, steps: str, begin: str) -> None:
        """Take what each step sees into the sums."""
        parts = self.parts
        with self.scope():
            self.open(f"for start in {steps}:")
            self.line(f"begin = {begin}")
            for axes, name, shape in zip(parts.walked, (COLUMN, COLUMN_DOWN), ("[None, :]", "[:, None]"), strict=True):
                self.line(f"{name} = begin + tl.arange(0, N_BLOCK){shape}")
                self._dimension(name, axes, self.length)
            for number, score in enumerate(parts.scores):
                self._score(number, score)
                self.env[score.node], self.varies[score.node] = f"score{number}", frozenset((ROW, COLUMN))
            self._step()
            self.close()

    def _score(self, number: int, score: Score) -> None:
        """A block of scores: in one product, or chunk by chunk of the contracted features."""
        dot = f"score{number} = tl.dot(held{number}, walked{number}"
        if self.whole(number):
            self._walked(number, score)
            self.line(f'{dot}, input_precision="ieee")')
            return
        self.line(f"score{number} = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)")
        with self.scope():
            self.open(f"for chunk in range(0, {self.extents[score.depth[0]]}, K_BLOCK{number}):")
            self._contracted(number, "chunk + ")
            self._held(number, score)
            self._walked(number, score)
            self.line(f'{dot}, score{number}, input_precision="ieee")')
            self.close()

    def _held(self, number: int, score: Score) -> None:
        self.line(f"held{number} = {self._side(score.held, (ROW, f'{DEPTH}{number}'), score.narrow)}")

    def _walked(self, number: int, score: Score) -> None:
        self.line(f"walked{number} = {self._side(score.walked, (f'{DEPTH_DOWN}{number}', COLUMN), score.narrow)}")

    def _step(self) -> None:
        """Take a block of scores into the maxima and the sums, which are relative to the largest so far."""
        parts, later = self.parts, set[Scalar]()
        roots = [r.args[0] for r in parts.sweep.reductions]
        scores = {score.node for score in parts.scores}
        if parts.online is not None:
            later = {node for relative in parts.relative.values() for node in relative.elements}
            self.define_all(n for n in required(roots, parts.sweep.body) if n not in later | scores)
            self._raise_maximum()
        self.define_all(n for n in required(roots, parts.sweep.body) if n not in scores)
        totals = {total.node: (number, total) for number, total in enumerate(parts.totals)}
        for reduction in self._sums():
            name, factor = self.name(reduction), " * factor" if reduction in parts.relative else ""
            empty = identity(reduction.attr)
            weight = f"tl.where(column_inside, {self.operand(reduction.args[0])}, {empty})"
            if reduction in totals:
                self._weigh(name, f"{name}{factor}", weight, *totals[reduction])
            elif reduction.attr.reduction == "sum":
                self.line(f"{name} = {name}{factor} + tl.sum({self._block(weight)}, axis=1, keep_dims=True)")
            else:
                found = reduced(reduction.attr, self._block(weight))
                self.line(f"{name} = combine_{reduction.attr.reduction}({name}, {found})")

    def _block(self, text: str) -> str:
        return f"tl.broadcast_to({text}, (M_BLOCK, N_BLOCK))"

    def _raise_maximum(self) -> None:
        """The largest score so far, and the factor of the sums up to here."""
        online = self.parts.online
        assert online is not None
        maximum = online.maximum
        found = f"tl.where(column_inside, {self.operand(maximum.args[0])}, {NEGATIVE})"
        self.line(f"next = combine_max(largest, {reduced(maximum.attr, self._block(found))})")
        following = shifted(self, online, "next", frozenset((ROW,)), "at")
        self.line(f"following = tl.where(next == {NEGATIVE}, 0.0, {following})")
        self.line(f"factor = tl.where(largest == {NEGATIVE}, 1.0, libdevice.exp(shift - following))")
        self.line("largest = next")
        self.line("shift = following")
        self.env[online.shift], self.varies[online.shift] = "following", frozenset((ROW,))

    def _weigh(self, name: str, before: str, weight: str, number: int, total: Total) -> None:
        """Add weighted values to a sum; weights of 32 bits beside values of 16 in parts, each what the last one left."""
        parts, dims = self.parts, (COLUMN_DOWN, f"{FEATURE}{number}")
        same = (n for n, score in enumerate(parts.scores) if is_transposed(total, score, parts.walked))
        dtype = total.value.narrow or total.value.dtype
        alike = lambda score: dtype == (score.walked.narrow if score.narrow else score.walked.dtype)
        loaded = next((n for n in same if self.whole(n) and alike(parts.scores[n])), None)
        value = f"tl.trans(walked{loaded})" if loaded is not None else self._side(total.value, dims)
        self.line(f"value{number} = {value}")
        self.line(f"rest{number} = {self._block(weight)}")
        narrow = spell.storage(dtype)
        count = 1 if total.value.narrow is None else total.parts(parts.stores, self.kernel.params)
        for part in range(count):
            self.line(f"weight{number} = rest{number}.to({narrow})")
            self.line(f'{name} = tl.dot(weight{number}, value{number}, {before}, input_precision="ieee")')
            if part < count - 1:
                self.line(f"rest{number} = rest{number} - weight{number}.to(tl.float32)")
            before = name

    def _end(self) -> None:
        """The sums of whole rows, whose maxima are there; of scores −∞ alone they are nan where the graph's own are."""
        parts, online = self.parts, self.parts.online
        if online is not None:
            self.env[online.maximum], self.varies[online.maximum] = "largest", frozenset((ROW,))
            self.define_all(online.chain)
            shift = self.operand(online.shift)
            self.line(f"nothing = tl.where(largest == {NEGATIVE}, libdevice.exp(largest - {shift}), 0.0)")
        totals = {total.node: f"{FEATURE}{number}" for number, total in enumerate(parts.totals)}
        for reduction in self._sums():
            name = self.name(reduction)
            if reduction in parts.relative:
                self.line(f"{name} = {name} + nothing")
            self.env[reduction] = name
            self.varies[reduction] = frozenset((ROW, totals[reduction]) if reduction in totals else (ROW,))
