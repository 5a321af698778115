"""Kernels of products: a block of the result a program, by `tl.dot`, with elementwise work on operands and result.

On GPUs that copy blocks by themselves (TMA) arrays come by tensor maps, and a program takes one block of the result after another, so
that it reads the next while it writes the last. Where a result has too few blocks for all multiprocessors, the contracted axis is shared
out too: a first launch writes partial sums, a second one adds them up in a fixed order.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fuser.backends.triton import spell
from fuser.backends.triton.emitter import Dims, Emitter, Function
from fuser.backends.triton.matmul import Parts
from fuser.backends.triton.product_cost import Choice, DotTile, Extents, candidates
from fuser.backends.triton.split_reduction import Scratch
from fuser.backends.triton.tensor_maps import Copied, copied, text
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Store
from fuser.kernel.loops import Loops, arrange
from fuser.kernel.operands import own_axes
from fuser.kernel.schedule import NOTHING_ASKED, Schedule

TOGETHER = 8  # rows of blocks that run beside each other, so that operands stay in the second cache
MATRIX_BYTES = 2  # of numbers that matrix units multiply where they lie in shared memory
SUMMED = DotTile(16, 64, 0, 4, 2)  # the block that adds up partial sums


def product(parts: Parts, asked: Schedule = NOTHING_ASKED) -> tuple[list[Function], Scratch]:
    """The functions of a contraction, and the scratch memory between them; `asked` is what a user or a measurement wants."""
    loops = arrange(parts.kernel)
    counts = {name: loops.count(tuple(a for a in loops.parallel if a in axes)) for name, axes in parts.kinds.items()}
    narrow = min(loops.extents[k] for k in parts.k)
    out = min(parts.kernel.params[store.param].dtype.itemsize for store in parts.stores)
    extents = Extents(counts["batch"], counts["m"], counts["n"], narrow, parts.dtype.itemsize, out, parts.tensor_float)
    found = [choice for choice in candidates(extents) if _is_asked(choice, asked)] or list(candidates(extents))
    splits = found[0].splits
    tiles = [_asked(t, asked) for t in dict.fromkeys(choice.tile for choice in found if choice.splits == splits)]
    if asked.tile:
        others = (choice.tile for choice in candidates(extents) if choice.splits == splits)
        tiles += [t for t in dict.fromkeys(others) if t not in tiles]
    cells = splits * math.prod(counts.values())
    scratch: Scratch = {"partial": (cells, np.dtype("float32"))} if splits > 1 else {}
    name = f"{parts.kernel.name}_0" if scratch else parts.kernel.name
    functions = _variants(parts, loops, name, tiles, splits)
    if scratch:
        functions.append(Summed(parts, loops, f"{parts.kernel.name}_1", SUMMED, splits).write())
    return functions, scratch


def _is_asked(choice: Choice, asked: Schedule) -> bool:
    shape = choice.tile.m, choice.tile.n
    return (not asked.tile or shape == tuple(asked.tile)) and (not asked.split_k or choice.splits == asked.split_k)


def _asked(tile: DotTile, asked: Schedule) -> DotTile:
    return replace(tile, warps=asked.warps or tile.warps, stages=asked.stages or tile.stages)


def _variants(parts: Parts, loops: Loops, name: str, tiles: list[DotTile], splits: int) -> list[Function]:
    """The function with copies by tensor maps, where arrays lie so, and the one without; the launch has all smaller tiles behind it."""
    smaller = [t for t in tiles if t.m * t.n < tiles[0].m * tiles[0].n][:2]
    fewer = [replace(t, stages=2) for t in (tiles[0], *smaller)]
    mapped = [Mapped(parts, loops, f"{name}_mapped", tile, splits) for tile in (tiles[0], *smaller)]
    made = [form.write() for form in mapped if form.copies]
    plain = [Product(parts, loops, name, tile, splits).write() for tile in dict.fromkeys((tiles[0], *smaller, *fewer))]
    first, *others = [function.launch for function in (*made, *plain)]
    texts = dict.fromkeys(function.text for function in (*made, *plain))
    return [Function("\n\n\n".join(texts), replace(first, smaller=tuple(others)))]


class Product(Emitter):
    """A block of the result a program, of one part of the contracted axis; blocks near each other run together."""

    def __init__(self, parts: Parts, loops: Loops, name: str, tile: DotTile, splits: int) -> None:
        super().__init__(parts.kernel, loops, name)
        self.parts, self.tile, self.splits = parts, tile, splits
        self.kinds = {kind: [a for a in loops.parallel if a in axes] for kind, axes in parts.kinds.items()}
        self.counts = {kind: loops.count(tuple(axes)) for kind, axes in self.kinds.items()}
        if splits > 1:
            self.scratch = {"partial": 0}

    @property
    def blocks(self) -> int:
        """Blocks of the result, of all matrices of a batch."""
        m, n = -(-self.counts["m"] // self.tile.m), -(-self.counts["n"] // self.tile.n)
        return self.counts["batch"] * m * n

    def write(self) -> Function:
        self.line(f"m_blocks = tl.cdiv({self.total('m')}, M_BLOCK)")
        self.line(f"n_blocks = tl.cdiv({self.total('n')}, N_BLOCK)")
        self._programs()
        tile = self.tile
        constants = {"M_BLOCK": tile.m, "N_BLOCK": tile.n, "K_BLOCK": tile.k, "TOGETHER": TOGETHER}
        function = self.finish(constants, self.programs, tile.warps, True, tile.stages)
        elements = self.programs * tile.m * tile.n * self.steps
        return replace(function, launch=replace(function.launch, elements=elements))

    @property
    def programs(self) -> int:
        return self.blocks * self.splits

    @property
    def steps(self) -> int:
        """Steps of a program's loop."""
        return -(-self.loops.extents[self.parts.k[0]] // (self.tile.k * self.splits))

    def _programs(self) -> None:
        """What a program does of the blocks."""
        self.line(f"program = {self.program()}")
        self._block()

    def _block(self) -> None:
        """One block of the result, number `program`."""
        self.place_block()
        self._products()
        if self.splits > 1:
            self.line(f"tl.store(partial + {self._cell('part')}, total, mask=m_inside & n_inside)")
        else:
            self.finish_block()

    def finish_block(self) -> None:
        """The elementwise work on a block's sums, and its results."""
        self.env[self.parts.result] = "total"
        self.varies[self.parts.result] = frozenset("mn")
        self.define_all(n for n in self.parts.epilogue if n.op != "dot")
        for store in self.parts.stores:
            self.store(store)

    def total(self, kind: str) -> str:
        """The number of elements along the axes of one kind, as text."""
        return " * ".join(self.extents[a] for a in self.kinds[kind]) or "1"

    def blocks_text(self) -> str:
        """`blocks` as text."""
        return " * ".join(["m_blocks", "n_blocks", *(self.extents[a] for a in self.kinds["batch"])])

    def _cell(self, part: str) -> str:
        """Where a block's partial sums lie."""
        rows, columns = self.total("m"), self.total("n")
        matrix = f"({part} * ({self.total('batch')}) + batch)" if self.kinds["batch"] else part
        return f"({matrix} * ({rows}) + m) * ({columns}) + n"

    def place_block(self) -> None:
        """Name the axes of block number `program`, the part of the contracted axis included."""
        number = "program"
        if self.splits > 1 and self.tile.k:
            number = "block_of_part"
            self.line(f"part = program // ({self.blocks_text()})")
            self.line(f"{number} = program % ({self.blocks_text()})")
        self.line(f"block = {number} % (m_blocks * n_blocks)")
        self.line("strip = block // (TOGETHER * n_blocks) * TOGETHER")
        self.line("height = tl.minimum(m_blocks - strip, TOGETHER)")
        self.line("block = block % (TOGETHER * n_blocks)")
        self.line("first_m = (strip + block % height) * M_BLOCK")
        self.line("first_n = block // height * N_BLOCK")
        self.line("m = first_m + tl.arange(0, M_BLOCK)[:, None]")
        self.line("n = first_n + tl.arange(0, N_BLOCK)[None, :]")
        for name in ("m", "n"):
            self.line(f"{name}_inside = {name} < {self.total(name)}")
            self.masks[name] = f"{name}_inside"
            self.split(name, self.kinds[name], frozenset(name))
        if self.kinds["batch"]:
            self.line(f"batch = {number} // (m_blocks * n_blocks)")
            self.split("batch", self.kinds["batch"], frozenset())

    def _products(self) -> None:
        """Walk along the contracted axis."""
        self.line("total = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)")
        before = dict(self.env)
        for order in self.parts.orders:  # what does not vary along the contracted axis
            self.define_all(n for n in order if not self._walks(n))
        length = self.extents[self.parts.k[0]]
        first, last = "0", length
        if self.splits > 1:
            share = self.sizes(("steps",), self.steps)
            self.line(f"first = part * ({share} * K_BLOCK)")
            self.line(f"last = tl.minimum(first + {share} * K_BLOCK, {length})")
            first, last = "first", "last"
        self.open(f"for start in range({first}, {last}, K_BLOCK):")
        texts = [self._side(number, length) for number in range(2)]
        self.line(f"total = tl.dot({texts[0]}, {texts[1]}, total, {self._precision()})")
        self.close()
        self.env = before

    def _precision(self) -> str:
        """How exactly products of numbers of the operands' kind are added up: those of 8 bits leave the tensor cores' own sums, which are
        of 14 bits, after each step."""
        small = self.parts.dtype.itemsize == 1 and all(map(self.by_map, self.parts.sides))
        exact = "tf32" if self.parts.tensor_float else "ieee"
        return "max_num_imprecise_acc=K_BLOCK" if small else f'input_precision="{exact}"'

    def _walks(self, node: Scalar) -> bool:
        """Whether a node of an operand varies along the contracted axis, or is the operand itself."""
        own = node in self.parts.sides or not own_axes(node).isdisjoint(self.parts.k)
        return own or any(map(self._walks, node.args))

    def _side(self, number: int, length: str) -> str:
        """The block of one operand, in its own dtype, 0 beyond the end."""
        axis, free, dim = self.parts.k[number], "mn"[number], f"k{number}"
        name = ("k_left", "k_right")[number]
        self.axis_names[axis] = name
        self.axis_dims[axis] = frozenset((dim,))
        self.masks[dim] = f"{name}_inside"
        root, order = self.parts.sides[number], self.parts.orders[number]
        whole: Dims = frozenset((free, dim))
        target = ("left", "right")[number]
        if self.by_map(root):
            self.line(f"{target} = {self.load_text(root, widen=False)}")
            return target
        self.line(f"{name} = start + tl.arange(0, K_BLOCK){('[None, :]', '[:, None]')[number]}")
        self.line(f"{name}_inside = {name} < {length}")
        narrow = "tl.float16" if self.parts.dtype.itemsize == 1 else spell.storage(self.parts.dtype)
        shape = "(M_BLOCK, K_BLOCK)" if number == 0 else "(K_BLOCK, N_BLOCK)"
        self.define_all(n for n in order if n is not root and self._walks(n))
        if root.op == "load":
            loaded, kept = self.load_text(root, widen=False), True
        else:
            self.define(root)
            loaded, kept = f"{self.operand(root)}.to({narrow})", False
        if self.spans(root) != whole:
            loaded = f"tl.broadcast_to({loaded}, {shape})"
        if not kept or dim not in self.spans(root):
            loaded = f"tl.where({name}_inside, {loaded}, 0).to({narrow})"
        self.line(f"{target} = {loaded}")
        return target

    def by_map(self, node: Scalar) -> bool:
        """Whether an operand's element comes by a tensor map."""
        return False

    def load_text(self, node: Scalar, widen: bool = True) -> str:
        """The load of an element; one of 8 bits as 16, which all GPUs multiply."""
        loaded = super().load_text(node, widen)
        small = spell.MATRIX_FLOATS.get(self.kernel.params[node.attr.param].dtype)
        return f"from_{small}({loaded})" if small else loaded

    def zero(self, dim: str) -> str:
        shapes = {"m": "(M_BLOCK, 1)", "n": "(1, N_BLOCK)", "k0": "(1, K_BLOCK)", "k1": "(K_BLOCK, 1)"}
        return f"tl.zeros({shapes[dim]}, tl.int32)"

    def store_dims(self, store: Store) -> Dims:
        return frozenset("mn")


class Mapped(Product):
    """The same with copies by tensor maps, a program taking one block after another."""

    def __init__(self, parts: Parts, loops: Loops, name: str, tile: DotTile, splits: int) -> None:
        super().__init__(parts, loops, name, tile, splits)
        self.copies: dict[Scalar, tuple[Copied, int, str]] = {}  # and the side that reads it, and the map's name
        if self.wide or parts.dtype.itemsize > MATRIX_BYTES:
            return
        self._find_copies()
        if parts.dtype.itemsize == 1 and len(self.copies) < 2:  # one of 8 bits and one of 16 are not multiplied
            self.copies, self.maps = {}, {}

    def _find_copies(self) -> None:
        parts, loops, tile = self.parts, self.loops, self.tile
        for number, order in enumerate(parts.orders):
            side = self.kinds["mn"[number]], parts.k[number], self.kinds["batch"]
            for node in (n for n in order if n.op == "load"):
                block = ((tile.m, tile.n)[number], tile.k)
                found = copied(parts.kernel, node, *side, loops.extents, loops.absorbed, block)
                if found is not None:
                    self.copies[node] = found, number, f"map{len(self.maps)}"
                    self.maps[f"map{len(self.maps)}"] = found.map

    def _programs(self) -> None:
        count = self.blocks_text()
        if self.splits > 1:
            count += f" * {self.sizes(('splits',), self.splits)}"
        self.open(f"for program in tl.range(tl.program_id(0), {count}, tl.num_programs(0), flatten=True):")
        self._block()
        self.close()

    def write(self) -> Function:
        function = super().write()
        return replace(function, launch=replace(function.launch, persistent=True))

    def by_map(self, node: Scalar) -> bool:
        return node in self.copies

    def load_text(self, node: Scalar, widen: bool = True) -> str:
        if node not in self.copies:
            return super().load_text(node, widen)
        copy, number, name = self.copies[node]
        self.varies[node] = frozenset(("mn"[number], f"k{number}"))
        coordinates = {"m": "first_m", "n": "first_n", "k": "start"}
        batch = [self.axis_names[axis] for axis in copy.batch]
        loaded = text(copy, name, coordinates, batch, ("mk", "kn")[number])
        return loaded + (spell.widened(self.kernel.params[node.attr.param].dtype) if widen else "")


class Summed(Product):
    """The second launch of a product whose contracted axis is shared out: sums of all parts, and what is done with them."""

    def _programs(self) -> None:
        self.line(f"program = {self.program()}")
        self.place_block()
        self.line("total = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)")
        self.open(f"for part in range({self.sizes(('splits',), self.splits)}):")
        self.line(f"total += tl.load(partial + {self._cell('part')}, mask=m_inside & n_inside, other=0)")
        self.close()
        self.finish_block()

    @property
    def programs(self) -> int:
        return self.blocks

    @property
    def steps(self) -> int:
        return self.splits
