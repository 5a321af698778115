"""Contractions: a tiled product by `tl.dot`, its operands read through any movement, elementwise work on its result.

Large products stay with cuBLAS, whose arithmetic is faster; where a product is short, what a fused kernel saves by not
writing and reading its result weighs more. float32 means float32: TF32 is never used unasked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fuser.backends.triton import spell
from fuser.backends.triton.block_sizes import DotTile, dot_tile
from fuser.backends.triton.emitter import Dims, Emitter, Function
from fuser.ir.graph import Eqn, Operand, Var
from fuser.ir.index import ZERO, Affine, Axis, linearise
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, bfloat16, short_dtype
from fuser.kernel.decompose import Decomposition
from fuser.kernel.kernel import Kernel, Param, Store, Sweep
from fuser.kernel.loops import arrange
from fuser.kernel.lower import Demand, Index, Sweeping
from fuser.kernel.operands import own_axes
from fuser.ops.dot import free_dimensions, window_product_p
from fuser.partition.group import FusionGroup, Layout

# dtype: the contracted extent up to which a product is generated
LONGEST = {FLOATS[0]: 1024, bfloat16: 1024, FLOATS[2]: 64}
SHORTEST = 16  # the least extent that tl.dot takes


def refusal(eqn: Eqn) -> str | None:
    """Why a contraction runs as a library call; None if it becomes a kernel."""
    x = eqn.invars[0].aval
    (contracted, _), _ = eqn.params["dimension_numbers"]
    dtype, out = x.dtype, eqn.outvars[0].aval
    if dtype not in LONGEST or out.dtype not in (dtype, FLOATS[2]):
        return f"products of {short_dtype(dtype)} run in a library"
    if len(contracted) != 1 or out.size == 0 or eqn.params.get("precision") is not None:
        return "products over several or no dimensions, or of a given precision, run in a library"
    length = x.shape[contracted[0]]
    windowed = eqn.primitive is window_product_p  # which a library would copy
    if (length > LONGEST[dtype] and not windowed) or length < SHORTEST:
        return (
            f"a product over {length} elements runs in a library; fused are those over {SHORTEST} to {LONGEST[dtype]}"
        )
    return None


@dataclass(frozen=True)
class Parts:
    """A contraction taken apart: the axes of its result by kind, its operands' elements, and the kernel around them."""

    kernel: Kernel
    kinds: dict[str, frozenset[Axis]]  # of the result's axes: "batch", "m" (left operand), "n" (right)
    k: tuple[Axis, Axis]  # the contracted axis, as each side reads along it
    sides: tuple[Scalar, Scalar]
    orders: tuple[tuple[Scalar, ...], tuple[Scalar, ...]]
    epilogue: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    result: Scalar
    dtype: np.dtype  # of the operands


class _Demand(Demand):
    """Values of a contraction's group; the product itself is a leaf."""

    def __init__(self, group: FusionGroup) -> None:
        super().__init__(group)
        (self.dot,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT)
        self.result = Scalar("dot", (), self.dot.outvars[0].aval.dtype)

    def _compute(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        return self.result if operand is self.dot.outvars[0] else super()._compute(operand, index, mask)

    def side(self, number: int, contracted: Axis, others: Layout) -> Scalar:
        """The element of one operand: `others` are the axes along its batch and free dimensions, in order."""
        numbers = self.dot.params["dimension_numbers"]
        dims, batch = numbers[0][number], numbers[1][number]
        operand = self.dot.invars[number]
        free = free_dimensions(operand.aval.ndim, dims, batch)
        axes = dict(zip((*batch, *free, *dims), (*others, contracted), strict=True))
        index = tuple(ZERO if axes[d] is None else Affine.of(axes[d]) for d in range(operand.aval.ndim))  # type: ignore[arg-type]
        return self.value(operand, index, None)


def lower_product(group: FusionGroup) -> Parts:
    """The parts of a contraction group."""
    demand = _Demand(group)
    eqn, graph = demand.dot, group.graph
    labels = group.layout[eqn.outvars[0]]
    k = (_contracted(eqn, 0), _contracted(eqn, 1))
    batch, m, n = _kinds(eqn, labels)
    new = Decomposition(spell.TABLE.has)
    sides = (new.node(demand.side(0, k[0], (*batch, *m))), new.node(demand.side(1, k[1], (*batch, *n))))
    stores = [new.store(store) for store in _stores(demand, group)]
    orders = (_order([Store(0, ZERO, sides[0])]), _order([Store(0, ZERO, sides[1])]))
    epilogue = _order(stores)
    sweep = Sweep((*orders[0], *orders[1], *epilogue), tuple(stores), (), (), ())
    params = [Param(f"in{i}", v.aval.dtype, v.aval.shape, False) for i, v in enumerate(graph.invars)]
    params += [Param(f"out{i}", v.aval.dtype, v.aval.shape, True) for i, v in enumerate(dict.fromkeys(graph.outvars))]
    comments = tuple(dict.fromkeys(str(source) for source in group.sources if source.file))
    kernel = Kernel(group.name, tuple(params), group.parallel, k, (sweep,), comments)
    kinds = {"batch": _axes(batch), "m": _axes(m), "n": _axes(n)}
    return Parts(kernel, kinds, k, sides, orders, epilogue, tuple(stores), demand.result, eqn.invars[0].aval.dtype)


def _contracted(eqn: Eqn, side: int) -> Axis:
    return Axis(eqn.invars[side].aval.shape[eqn.params["dimension_numbers"][0][side][0]])


def _kinds(eqn: Eqn, labels: Layout) -> tuple[Layout, Layout, Layout]:
    """The result's labels apart: batch, from the left operand, from the right one."""
    (contracted, _), (batch, _) = eqn.params["dimension_numbers"]
    left = len(batch) + len(free_dimensions(eqn.invars[0].aval.ndim, contracted, batch))
    return labels[: len(batch)], labels[len(batch) : left], labels[left:]


def _axes(labels: Layout) -> frozenset[Axis]:
    return frozenset(a for a in labels if a is not None)


def _stores(demand: _Demand, group: FusionGroup) -> list[Store]:
    stores = []
    for number, var in enumerate(dict.fromkeys(group.graph.outvars)):
        assert isinstance(var, Var)
        index = tuple(ZERO if axis is None else Affine.of(axis) for axis in group.layout[var])
        offset = linearise(index, var.aval.shape)
        stores.append(Store(len(group.graph.invars) + number, offset, demand.value(var, index, None)))
    return stores


def _order(stores: list[Store]) -> tuple[Scalar, ...]:
    return Sweeping(()).cut(stores)[0].row


class Product(Emitter):
    """One block of the result a program; blocks near each other run together, so that operands stay in the L2 cache."""

    def __init__(self, parts: Parts) -> None:
        loops = arrange(parts.kernel)
        super().__init__(parts.kernel, loops, parts.kernel.name)
        self.parts = parts
        self.kinds = {name: [a for a in loops.parallel if a in axes] for name, axes in parts.kinds.items()}
        self.counts = {name: loops.count(tuple(axes)) for name, axes in self.kinds.items()}
        self.tile: DotTile = dot_tile(self.counts["m"], self.counts["n"], parts.dtype.itemsize)

    def write(self) -> Function:
        tile = self.tile
        self._place_block()
        self._products()
        self.env[self.parts.result] = "total"
        self.varies[self.parts.result] = frozenset("mn")
        self.define_all(n for n in self.parts.epilogue if n.op != "dot")
        for store in self.parts.stores:
            self.store(store)
        constants = {"M_BLOCK": tile.m, "N_BLOCK": tile.n, "K_BLOCK": tile.k, "TOGETHER": 8}
        grid = self.counts["batch"] * -(-self.counts["m"] // tile.m) * -(-self.counts["n"] // tile.n)
        return self.finish(constants, grid, tile.warps, True, tile.stages)

    def _total(self, name: str) -> str:
        return " * ".join(self.extents[a] for a in self.kinds[name]) or "1"

    def _place_block(self) -> None:
        """Name the axes of the program's block of the result."""
        self.line(f"m_blocks = tl.cdiv({self._total('m')}, M_BLOCK)")
        self.line(f"n_blocks = tl.cdiv({self._total('n')}, N_BLOCK)")
        self.line(f"program = {self.program()}")
        self.line("block = program % (m_blocks * n_blocks)")
        self.line("strip = block // (TOGETHER * n_blocks) * TOGETHER")
        self.line("height = tl.minimum(m_blocks - strip, TOGETHER)")
        self.line("block = block % (TOGETHER * n_blocks)")
        self.line("m = (strip + block % height) * M_BLOCK + tl.arange(0, M_BLOCK)[:, None]")
        self.line("n = block // height * N_BLOCK + tl.arange(0, N_BLOCK)[None, :]")
        for name in ("m", "n"):
            self.line(f"{name}_inside = {name} < {self._total(name)}")
            self.masks[name] = f"{name}_inside"
            self.split(name, self.kinds[name], frozenset(name))
        if self.kinds["batch"]:
            self.line("batch = program // (m_blocks * n_blocks)")
            self.split("batch", self.kinds["batch"], frozenset())

    def _products(self) -> None:
        """Walk along the contracted axis."""
        self.line("total = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)")
        before = dict(self.env)
        for order in self.parts.orders:  # what does not vary along the contracted axis
            self.define_all(n for n in order if not self._walks(n))
        length = self.extents[self.parts.k[0]]
        self.open(f"for start in range(0, {length}, K_BLOCK):")
        texts = [self._side(number, length) for number in range(2)]
        self.line(f'total = tl.dot({texts[0]}, {texts[1]}, total, input_precision="ieee")')
        self.close()
        self.env = before

    def _walks(self, node: Scalar) -> bool:
        """Whether a node of an operand varies along the contracted axis, or is the operand itself."""
        own = node in self.parts.sides or not own_axes(node).isdisjoint(self.parts.k)
        return own or any(map(self._walks, node.args))

    def _side(self, number: int, length: str) -> str:
        """The block of one operand, in its own dtype, 0 beyond the end."""
        axis, free, dim = self.parts.k[number], "mn"[number], f"k{number}"
        name = ("k_left", "k_right")[number]
        self.line(f"{name} = start + tl.arange(0, K_BLOCK){('[None, :]', '[:, None]')[number]}")
        self.line(f"{name}_inside = {name} < {length}")
        self.axis_names[axis] = name
        self.axis_dims[axis] = frozenset((dim,))
        self.masks[dim] = f"{name}_inside"
        root, order = self.parts.sides[number], self.parts.orders[number]
        narrow = spell.storage(self.parts.dtype)
        shape = "(M_BLOCK, K_BLOCK)" if number == 0 else "(K_BLOCK, N_BLOCK)"
        self.define_all(n for n in order if n is not root and self._walks(n))
        full: Dims = frozenset((free, dim))
        if root.op == "load":
            text = self.load_text(root, widen=False)
            kept = True
        else:
            self.define(root)
            text = f"{self.operand(root)}.to({narrow})"
            kept = False
        if self.spans(root) != full:
            text = f"tl.broadcast_to({text}, {shape})"
        if not kept or dim not in self.spans(root):
            text = f"tl.where({name}_inside, {text}, 0).to({narrow})"
        target = ("left", "right")[number]
        self.line(f"{target} = {text}")
        return target

    def zero(self, dim: str) -> str:
        shapes = {"m": "(M_BLOCK, 1)", "n": "(1, N_BLOCK)", "k0": "(1, K_BLOCK)", "k1": "(K_BLOCK, 1)"}
        return f"tl.zeros({shapes[dim]}, tl.int32)"

    def store_dims(self, store: Store) -> Dims:
        return frozenset("mn")
