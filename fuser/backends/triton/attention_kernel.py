"""Attention: a program takes a block of rows, walks along what they are multiplied by, and keeps sums of weighted values.

Scores live in registers from the first `tl.dot` to the last. Where rows are reduced, maxima and sums are kept too, relative to the
largest score so far. Blocks that a test of positions hides from all of a program's rows are left out; where hidden scores are a
finite number, they are visited after all if some row has seen nothing larger. Blocks that all rows see run without such tests.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fuser.backends.triton import spell
from fuser.backends.triton.block_sizes import AttentionTile, attention_tile, smaller_attention_tiles
from fuser.backends.triton.emitter import NONE, Dims, Emitter, Function, Launch, required
from fuser.backends.triton.online_sums import shifted
from fuser.backends.triton.reductions import POSITIONS, identity, reduced
from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, bfloat16, is_inexact
from fuser.kernel.attention import Attention, Score, Side, Total, is_transposed
from fuser.kernel.attention_bounds import Bounds
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops

WIDE = 1024  # walked positions whose maxima are looked at together
ROW, COLUMN, COLUMN_DOWN = "row", "column", "column_down"  # rows are held, columns walked along
FEATURE, DEPTH, DEPTH_DOWN = "feature", "depth", "depth_down"  # with the number of their product; depth is contracted
NEGATIVE = 'float("-inf")'
LOG2_E = math.log2(math.e)
MATRIX_BYTES = 2  # of numbers that matrix units multiply where they lie in shared memory


class AttentionKernel(Emitter):
    """Writes the function. What runs down a block's first dimension where another block has it along its second is `…_down`.

    `behind`: where blocks are whole, what a step weighs is multiplied in the next one, behind that one's scores, so that matrix units work on it
    while the next weights are computed.
    """

    def __init__(
        self,
        kernel: Kernel,
        parts: Attention,
        orders: dict[Side, tuple[Scalar, ...]],
        name: str,
        behind: bool = False,
    ) -> None:
        axes = (*kernel.parallel, *kernel.reduced)
        super().__init__(
            kernel,
            Loops(kernel.parallel, kernel.reduced, {axis: axis.extent for axis in axes}, frozenset(), None),
            name,
        )
        self.parts, self.orders, self.behind = parts, orders, behind
        self.counts = {kind: self.loops.count(found) for kind, found in parts.axes.items()}
        features = [self.loops.count(total.features) for total in parts.totals]
        depths = [score.depth[0].extent for score in parts.scores]
        self.tile: AttentionTile = attention_tile(self.counts["row"], features, depths, parts.itemsize, parts.positions)
        self.length = " * ".join(self.extents[axis] for axis in parts.walked[0])
        exact = (t for t in parts.totals if t.value.narrow is not None)
        relative = bool(parts.totals) or parts.online is not None  # of which the largest exponent is 0
        self.rounds = relative and parts.itemsize == 2 and all(t.parts(parts.stores, kernel.params) == 2 for t in exact)
        self.exponents = _exponents(parts) if self.rounds else set()
        self.begin = "start"  # where a step begins
        self.decided: dict[Scalar, bool] = {}  # tests whose result is known where the text now stands
        self.blocks = {ROW: "M_BLOCK", COLUMN: "N_BLOCK", COLUMN_DOWN: "N_BLOCK"}
        for number in range(len(features)):
            self.blocks[f"{FEATURE}{number}"] = f"D_BLOCK{number}"
        for number in range(len(depths)):
            self.blocks |= {f"{name}{number}": f"K_BLOCK{number}" for name in (DEPTH, DEPTH_DOWN)}

    def whole(self, number: int) -> bool:
        """Whether a program holds all contracted features of its rows in a score."""
        return self.tile.depths[number] >= self.parts.scores[number].depth[0].extent

    @property
    def can_be_behind(self) -> bool:
        """Whether products of weights can be those of the step before: of numbers that matrix units take from registers."""
        shared = any(self._walked_by(total) is not None for total in self.parts.totals)
        whole = all(map(self.whole, range(len(self.parts.scores))))
        return (
            bool(self.parts.totals)
            and self.parts.itemsize == MATRIX_BYTES
            and whole
            and not shared
            and self._fills_blocks
        )

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
            self._walk_all()
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
        others = [
            other
            for other in smaller_attention_tiles(tile)
            if not self.behind or (other.m, other.n) == (tile.m, tile.n)
        ]
        smaller = tuple(self._with_tile(function.launch, other) for other in others)
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
            total = " * ".join(self.extents[a] for a in found.features) or "1"
            whole = self.tile.features[number] == self.loops.count(found.features)
            self._dimension(f"{FEATURE}{number}", found.features, total, whole)

    def _contracted(self, number: int, start: str = "") -> None:
        """Name the contracted features of a score, all of them or those of a chunk."""
        depth = self.parts.scores[number].depth
        for axis, name, shape in zip(depth, (DEPTH, DEPTH_DOWN), ("[None, :]", "[:, None]"), strict=True):
            self.line(f"{name}{number} = {start}tl.arange(0, K_BLOCK{number}){shape}")
            whole = axis.extent % self.tile.depths[number] == 0
            self._dimension(f"{name}{number}", (axis,), self.extents[axis], whole)

    def _dimension(self, name: str, axes: tuple[Axis, ...], total: str, inside: bool = False) -> None:
        """Axes along a block dimension that has a name in the text; `inside`: a block never reaches beyond their end."""
        if inside:
            self.masks.pop(name, None)
        else:
            self.line(f"{name}_inside = {name} < {total}")
            self.masks[name] = f"{name}_inside"
        for axis in axes:
            if axis.extent == 1:
                self.axis_dims[axis] = NONE
                self.line(f"{self.axis_names[axis]} = 0")
        self.split(name, [axis for axis in axes if axis.extent != 1], frozenset((name,)))

    def zero(self, dim: str) -> str:
        down = dim == ROW or dim.startswith((COLUMN_DOWN, DEPTH_DOWN))
        block = self.blocks[dim]
        return f"tl.zeros({f'({block}, 1)' if down else f'(1, {block})'}, tl.int32)"

    def store_dims(self, store: Store) -> Dims:
        return self.spans(store.value) | {ROW}

    def operation(self, node: Scalar, args: list[str]) -> str:
        """Beside products of 16-bit numbers, to which weights are rounded: exponentials by the special function unit (their
        error is below 2⁻¹⁶), and one reciprocal a row. Numbers are rounded to bfloat16 two at once."""
        if (
            node.op == "cast"
            and node.dtype == bfloat16
            and node.args[0].dtype == FLOATS[2]
            and {ROW, COLUMN} <= self.spans(node)
        ):
            return self._rounded(args[0])
        if self.rounds and node.dtype.itemsize <= 4:
            if node.op == "exp":
                return self._power(f"{args[0]} * {LOG2_E!r}")
            if node.op == "div" and is_inexact(node.dtype) and self.spans(node.args[1]) < self.spans(node):
                return f"{args[0]} * tl.div_rn(1.0, {args[1]})"
        return super().operation(node, args)

    def _rounded(self, text: str) -> str:
        """The nearest bfloat16 of each number of a block, as float32."""
        return self.by_ptx(f"rounded_bfloat16({text}, PTX)")

    def _power(self, exponent: str) -> str:
        return self.by_ptx(f"power_of_two({exponent}, PTX)")

    def define(self, node: Scalar) -> None:
        """Differences that only exponentials read become part of these; a choice that is decided is what it chooses."""
        if node in self.exponents:
            self.varies[node] = self.spans(node.args[0]) | self.spans(node.args[1])
        elif (chosen := self._chosen(node)) is not node:
            self.env[node], self.varies[node] = self.operand(chosen), self.spans(chosen)
        else:
            super().define(node)

    def expression(self, node: Scalar) -> str:
        if node.op == "exp" and node.args[0] in self.exponents:
            self.varies[node] = self.spans(node.args[0])
            return self._exponential(*node.args[0].args)
        text: str = super().expression(node)
        return text

    def _chosen(self, node: Scalar) -> Scalar:
        """What a node is where tests are decided."""
        while node.op == "select" and node.args[0] in self.decided:
            node = node.args[1 if self.decided[node.args[0]] else 2]
        return node

    def _exponential(self, number: Scalar, shift: Scalar) -> str:
        """exp(number − shift). Where a number is a product whose multiple by log₂ e is no larger than one factor, its own rounding and
        that of the difference are one, and nothing overflows that would not underflow else."""
        factor = _scaled(self._chosen(number))
        if factor is None or abs(factor[1]) * LOG2_E > 1:
            return self._power(f"({self.operand(number)} - {self.operand(shift)}) * {LOG2_E!r}")
        key = ("exponent", shift)
        if key not in self.env:
            self.env[key] = f"{self.operand(shift)}_exponent"
            self.line(f"{self.env[key]} = {self.operand(shift)} * {-LOG2_E!r}")
        return self._power(f"tl.fma({self.operand(factor[0])}, {factor[1] * LOG2_E!r}, {self.env[key]})")

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
        inside = " & ".join(self.masks[d] for d in dims if d in self.masks)
        return f"tl.where({inside}, {text}, 0).to({storage})" if inside else text

    # The walk.

    def _start(self) -> None:
        parts = self.parts
        if parts.online is not None:
            self.line(f"largest = tl.full((M_BLOCK, 1), {identity(parts.online.maximum.attr)}, tl.float32)")
            self.line("shift = tl.zeros((M_BLOCK, 1), tl.float32)")
        totals = {total.node: number for number, total in enumerate(parts.totals)}
        for reduction in self._sums():
            if reduction.attr.reduction in POSITIONS:
                self.line(
                    f"{self.name(reduction)}_value = tl.full((M_BLOCK, 1), {identity(reduction.attr)}, tl.float32)"
                )
                self.line(f"{self.name(reduction)}_at = tl.full((M_BLOCK, 1), -1, tl.int32)")
                continue
            shape = f"(M_BLOCK, D_BLOCK{totals[reduction]})" if reduction in totals else "(M_BLOCK, 1)"
            self.line(f"{self.name(reduction)} = tl.full({shape}, {identity(reduction.attr)}, tl.float32)")

    def _sums(self) -> list[Scalar]:
        online = self.parts.online
        return [r for r in self.parts.sweep.reductions if online is None or r is not online.maximum]

    def _walk_all(self) -> None:
        """Walk along everything, what fills no block last."""
        last = "0"
        if self._fills_blocks:
            last = "whole"
            self.line(f"whole = {self.length} // N_BLOCK * N_BLOCK")
            self._walk_whole("0", "whole")
        self._walk(f"range({last}, {self.length}, N_BLOCK)", "start")

    @property
    def _fills_blocks(self) -> bool:
        return self.loops.count(self.parts.walked[0]) >= self.tile.n

    def _walk_between(self, bounds: Bounds, step: str) -> None:
        """Walk from `first` to `last`: along the blocks that all rows see whole, then along those before and behind them."""
        if not self._fills_blocks:
            self._walk("range(first, last, N_BLOCK)", "start")
            return
        self.line("whole = first")
        self.line(f"whole_end = {self.length} // N_BLOCK * N_BLOCK")
        for number, bound in enumerate(bounds.lower):
            text = self._bound(bound, f"lower{number}")
            self.line(
                f"whole = tl.maximum(whole, tl.cdiv(tl.max(tl.where(row_inside, {text}, 0)) * {step}, N_BLOCK) * N_BLOCK)"
            )
        for number, bound in enumerate(bounds.upper):
            text = (
                f"tl.min(tl.where(row_inside, {self._bound(bound, f'upper{number}')}, {self.extents[bounds.axis]} - 1))"
            )
            self.line(f"whole_end = tl.minimum(whole_end, tl.maximum({text} + 1, 0) * {step} // N_BLOCK * N_BLOCK)")
        self.line("whole = tl.minimum(whole, last)")
        self.line("whole_end = tl.maximum(whole, tl.minimum(whole_end, last))")
        self._walk_whole("whole", "whole_end", dict(bounds.decided))
        self.line("before = whole - first")
        parts = "tl.where(start < before, first + start, whole_end + start - before)"
        self._walk("range(0, before + last - whole_end, N_BLOCK)", parts)

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
        self._walk_between(bounds, step)
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
            self.open(f"for piece in range(0, {self.length}, {WIDE}):")
            self.line(f"column = piece + tl.arange(0, {WIDE})[None, :]")
            self._dimension(COLUMN, self.parts.walked[0], self.length)
            self.define_all(order)
            self.line(f"unsettled = tl.maximum(unsettled, {test('column_inside')})")
            self.close()

    def _bound(self, bound: Affine, key: str) -> str:
        text, dims = self.offset(("bound", key), bound)
        return f"({text})" if dims else f"({text}) + {self.zero(ROW)}"

    def _walk_whole(self, first: str, end: str, decided: dict[Scalar, bool] | None = None) -> None:
        """Walk along blocks that are whole; `decided`: what tests say there."""
        steps = f"range({first}, {end}, N_BLOCK)"
        if not self.behind:
            self._walk(steps, "start", whole=True, decided=decided)
            return
        for number, total in enumerate(self.parts.totals):
            kind = spell.local(total.node.args[0].dtype)
            self.line(f"rest{number} = tl.zeros((M_BLOCK, N_BLOCK), {kind})")
        if self.parts.online is not None:
            self.line("factor = tl.full((M_BLOCK, 1), 1.0, tl.float32)")
        self._walk(steps, "start", whole=True, decided=decided, behind=first)
        with self.scope():
            self._weigh_behind(end, first)

    def _weigh_behind(self, start: str, first: str) -> None:
        """Multiply the weights of the step before the one that begins at `start`; none before `first`, where nothing is read."""
        self.line(f"last_begin = tl.where({start} > {first}, {start}, 0) - N_BLOCK")
        self.line("column_down = last_begin + tl.arange(0, N_BLOCK)[:, None]")
        begin, self.begin = self.begin, "last_begin"
        self._dimension(COLUMN_DOWN, self.parts.walked[1], self.length, inside=True)
        self.line("column_down_inside = column_down >= 0")
        self.masks[COLUMN_DOWN] = "column_down_inside"
        for number, total in enumerate(self.parts.totals):
            self._weigh(number, total, None)
        self.masks.pop(COLUMN_DOWN)
        self.begin = begin

    def _walk(
        self, steps: str, begin: str, whole: bool = False, decided: dict[Scalar, bool] | None = None, behind: str = ""
    ) -> None:
        """Take what each step sees into the sums; `whole`: steps do not reach beyond the end, `decided`: what tests say there, `behind`: where
        the first step begins, if products with weights are left to the step after."""
        parts = self.parts
        with self.scope():
            self.decided = decided or {}
            self.open(f"for start in {steps}:")
            if begin != "start":
                self.line(f"begin = {begin}")
            at = self.begin = "start" if begin == "start" else "begin"
            for axes, name, shape in zip(parts.walked, (COLUMN, COLUMN_DOWN), ("[None, :]", "[:, None]"), strict=True):
                self.line(f"{name} = {at} + tl.arange(0, N_BLOCK){shape}")
                self._dimension(name, axes, self.length, whole)
            for number, score in enumerate(parts.scores):
                self._score(number, score)
                self.env[score.node], self.varies[score.node] = f"score{number}", frozenset((ROW, COLUMN))
            if behind:
                self._weigh_behind("start", behind)
            self._step(bool(behind))
            self.close()
            self.decided = {}

    def _inside(self, text: str, other: str) -> str:
        """A block of values along the walked axis, with another number beyond its end."""
        return f"tl.where(column_inside, {text}, {other})" if COLUMN in self.masks else text

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

    def _step(self, behind: bool) -> None:
        """Take a block of scores into the maxima and the sums, which are relative to the largest so far; `behind`: but for products with
        weights, which are kept for the next step."""
        parts, later = self.parts, set[Scalar]()
        roots = [r.args[0] for r in parts.sweep.reductions]
        scores = {score.node for score in parts.scores}
        if parts.online is not None:
            later = {node for relative in parts.relative.values() for node in relative.elements}
            self.define_all(n for n in self._needed(roots) if n not in later | scores)
            self._raise_maximum()
        self.define_all(n for n in self._needed(roots) if n not in scores)
        totals = {total.node: (number, total) for number, total in enumerate(parts.totals)}
        for reduction in self._sums():
            name, empty = self.name(reduction), identity(reduction.attr)
            weight = self._inside(self.operand(reduction.args[0]), empty)
            if reduction in totals:
                number, total = totals[reduction]
                self.line(f"rest{number} = {self._block(weight)}")
                if not behind:
                    self._weigh(number, total, self._walked_by(total))
            elif reduction.attr.reduction in POSITIONS:
                self._extreme(reduction, weight)
            elif reduction.attr.reduction == "sum":
                self.line(
                    f"{name} = {self._factored(reduction)} + tl.sum({self._block(weight)}, axis=1, keep_dims=True)"
                )
            else:
                found = reduced(reduction.attr, self._block(weight))
                self.line(f"{name} = combine_{reduction.attr.reduction}({name}, {found})")

    def _extreme(self, reduction: Scalar, value: str) -> None:
        """Take a block into a row's extreme and its position: the block's extreme first, then where it is, which takes less than pairs."""
        name, kind = self.name(reduction), reduction.attr.reduction
        self.line(f"{name}_next = {self._block(value)}")
        self.line(f"next_value = tl.reduce({name}_next, 1, combine_{kind.removeprefix('arg')}, keep_dims=True)")
        found = f"({name}_next == next_value) | ({name}_next != {name}_next)"
        position = f"tl.where({self._inside(f'({found})', 'False')}, column, 0x7FFFFFFF)"
        self.line(f"next_at = tl.min({position}, axis=1, keep_dims=True)")
        self.line(f"{name}_value, {name}_at = combine_{kind}({name}_value, {name}_at, next_value, next_at)")

    def _needed(self, roots: list[Scalar]) -> list[Scalar]:
        return required(roots, self.parts.sweep.body, self.decided)

    def _block(self, text: str) -> str:
        return f"tl.broadcast_to({text}, (M_BLOCK, N_BLOCK))"

    def _raise_maximum(self) -> None:
        """The largest score so far, and the factor of the sums up to here."""
        online = self.parts.online
        assert online is not None
        maximum = online.maximum
        element, times = self._chosen(maximum.args[0]), ""
        scaled = _scaled(element)
        if scaled is not None and scaled[1] > 0:  # rounding keeps the order of numbers
            element, times = scaled[0], f" * {scaled[1]!r}"
        found = reduced(maximum.attr, self._block(self._inside(self.operand(element), NEGATIVE)))
        self.line(f"next = combine_max(largest, {found}{times})")
        following = shifted(self, online, "next", frozenset((ROW,)), "at")
        self.line(f"following = tl.where(next == {NEGATIVE}, 0.0, {following})")
        smaller = (
            self._power(f"(shift - following) * {LOG2_E!r}") if self.rounds else "libdevice.exp(shift - following)"
        )
        self.line(f"factor = tl.where(largest == {NEGATIVE}, 1.0, {smaller})")
        self.line("largest = next")
        self.line("shift = following")
        self.env[online.shift], self.varies[online.shift] = "following", frozenset((ROW,))

    def _factored(self, reduction: Scalar) -> str:
        """A sum up to here, relative to the largest score so far."""
        return self.name(reduction) + (" * factor" if reduction in self.parts.relative else "")

    def _walked_by(self, total: Total) -> int | None:
        """The score whose walked block is what a sum weighs, if any."""
        dtype = total.value.narrow or total.value.dtype
        for number, score in enumerate(self.parts.scores):
            alike = dtype == (score.walked.narrow if score.narrow else score.walked.dtype)
            if alike and self.whole(number) and is_transposed(total, score, self.parts.walked):
                return number
        return None

    def _weigh(self, number: int, total: Total, walked: int | None) -> None:
        """Add weighted values, or the walked block of a score, to a sum; weights of 32 bits beside values of 16 in parts, each what the last
        one left."""
        name, before = self.name(total.node), self._factored(total.node)
        dims = COLUMN_DOWN, f"{FEATURE}{number}"
        value = self._side(total.value, dims) if walked is None else f"tl.trans(walked{walked})"
        self.line(f"value{number} = {value}")
        narrow = spell.storage(total.value.narrow or total.value.dtype)
        count = 1 if total.value.narrow is None else total.parts(self.parts.stores, self.kernel.params)
        for part in range(count):
            weight = f"rest{number}"
            if part < count - 1:
                self.line(f"part{number} = {self._rounded(weight)}")
                weight = f"part{number}"
            self.line(f"weight{number} = {weight}.to({narrow})")
            self.line(f'{name} = tl.dot(weight{number}, value{number}, {before}, input_precision="ieee")')
            if part < count - 1:
                self.line(f"rest{number} = rest{number} - part{number}")
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
            if reduction.attr.reduction in POSITIONS:
                self.line(f"{name} = {name}_at.to({spell.local(reduction.dtype)})")
            self.env[reduction] = name
            self.varies[reduction] = frozenset((ROW, totals[reduction]) if reduction in totals else (ROW,))


def _scaled(node: Scalar) -> tuple[Scalar, float] | None:
    """A number of 32 bits that is another one times a finite constant: these two."""
    if node.op != "mul" or node.dtype != FLOATS[2]:
        return None
    for number, other in enumerate(node.args):
        if other.op == "const" and math.isfinite(other.attr) and other.attr != 0:
            return (node.args[1 - number], float(other.attr)) if node.args[1 - number].op != "const" else None
    return None


def _exponents(parts: Attention) -> set[Scalar]:
    """The differences of which nothing but an exponential is made."""
    readers: dict[Scalar, list[Scalar]] = {}
    for node in (*parts.sweep.body, *parts.sweep.reductions):
        for arg in node.args:
            readers.setdefault(arg, []).append(node)
    is_exponent = lambda node: (
        node.op == "sub" and node.dtype == FLOATS[2] and all(n.op == "exp" for n in readers[node])
    )
    return {node for node in parts.sweep.body if node in readers and is_exponent(node)}
