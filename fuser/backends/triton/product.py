"""Kernels of products: a block of the result a program, by `tl.dot`, with elementwise work on operands and result.

On GPUs that copy blocks by themselves (TMA) arrays come by tensor maps, and a program takes one block of the result after another, so
that it reads the next while it writes the last. Where blocks do not fill the multiprocessors, alone or in their last round, the steps along
the contracted axis are shared out (`product_cost.Division`): a first launch writes partial sums too, a second one adds them up in a fixed
order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuser.backends.triton import spell
from fuser.backends.triton.emitter import Dims, Emitter, Function
from fuser.backends.triton.matmul import Parts
from fuser.backends.triton.product_cost import Choice, Division, DotTile, Extents, candidates
from fuser.backends.triton.split_reduction import Scratch
from fuser.backends.triton.tensor_maps import Copied, copied, text
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Store
from fuser.kernel.loops import Loops, arrange
from fuser.kernel.operands import own_axes
from fuser.kernel.schedule import NOTHING_ASKED, Schedule

TOGETHER = 8  # rows of blocks that run beside each other, so that operands stay in the second cache
MATRIX_BYTES = 2  # of numbers that matrix units multiply where they lie in shared memory
LARGEST_WIDENED = 128 * 128  # elements of a block whose sums registers hold twice, in int32 and of a step in float32
SUMMED = 16, 64, 4  # rows, columns and warps of a program that adds up partial sums


def product(parts: Parts, asked: Schedule = NOTHING_ASKED) -> tuple[list[Function], Scratch]:
    """The functions of a contraction, and the scratch memory between them; `asked` is what a user or a measurement wants."""
    loops = arrange(parts.kernel)
    counts = {name: loops.count(tuple(a for a in loops.parallel if a in axes)) for name, axes in parts.kinds.items()}
    narrow = min(loops.extents[k] for k in parts.k)
    out = min(parts.kernel.params[store.param].dtype.itemsize for store in parts.stores)
    extents = Extents(counts["batch"], counts["m"], counts["n"], narrow, parts.dtype.itemsize, out, parts.tensor_float)
    possible = [c for c in candidates(extents) if not parts.widened or c.tile.m * c.tile.n <= LARGEST_WIDENED]
    found = [choice for choice in possible if _is_asked(choice, asked)] or possible
    division = found[0].division
    tiles = list(dict.fromkeys(_asked(choice.tile, asked) for choice in found if _alike(choice, found[0])))
    if asked.tile and not division.streams:
        others = (choice.tile for choice in possible if _alike(choice, found[0]))
        tiles += [t for t in dict.fromkeys(others) if t not in tiles]
    cells = tiles[0].m * tiles[0].n * division.streams * division.pieces
    scratch: Scratch = {"partial": (cells, parts.sums)} if division.streams else {}
    name = f"{parts.kernel.name}_0" if scratch else parts.kernel.name
    functions = _variants(parts, loops, name, tiles, division)
    if scratch:
        streams, splits = found[0].streams or None, None if found[0].streams else found[0].splits
        functions = [replace(f, launch=replace(f.launch, stream_k=streams, split_k=splits)) for f in functions]
        functions.append(Summed(parts, loops, f"{parts.kernel.name}_1", tiles[0], division).write())
    return functions, scratch


def _is_asked(choice: Choice, asked: Schedule) -> bool:
    shape = choice.tile.m, choice.tile.n
    if asked.tile and shape != tuple(asked.tile):
        return False
    if asked.stream_k:
        return choice.streams == asked.stream_k
    return not asked.split_k or (choice.splits, choice.streams) == (asked.split_k, 0)


def _alike(choice: Choice, first: Choice) -> bool:
    """Whether a tile may be in the place of the first one: any where blocks are whole, else that one, of whose size partial sums are."""
    return choice.tile == first.tile if first.division.streams else not choice.division.streams


def _asked(tile: DotTile, asked: Schedule) -> DotTile:
    return replace(tile, warps=asked.warps or tile.warps, stages=asked.stages or tile.stages)


def _variants(parts: Parts, loops: Loops, name: str, tiles: list[DotTile], division: Division) -> list[Function]:
    """The function with copies by tensor maps, where arrays lie so, and the one without; the launch has all smaller tiles behind it, and
    those with fewer stages."""
    smaller = [t for t in tiles if t.m * t.n < tiles[0].m * tiles[0].n][:2]
    fewer = [replace(t, stages=2) for t in (tiles[0], *smaller)]
    mapped = [Mapped(parts, loops, f"{name}_mapped", tile, division) for tile in (tiles[0], *smaller)]
    made = [form.write() for form in mapped if form.copies]
    plain = [
        Product(parts, loops, name, tile, division).write() for tile in dict.fromkeys((tiles[0], *smaller, *fewer))
    ]
    first, *others = [function.launch for function in (*made, *plain)]
    texts = dict.fromkeys(function.text for function in (*made, *plain))
    return [Function("\n\n\n".join(texts), replace(first, smaller=tuple(others)))]


class Product(Emitter):
    """A block of the result a program, or a piece of one; blocks near each other run together."""

    block_names = "M_BLOCK", "N_BLOCK"  # constants: what a block's rows and columns are

    def __init__(self, parts: Parts, loops: Loops, name: str, tile: DotTile, division: Division) -> None:
        super().__init__(parts.kernel, loops, name)
        self.parts, self.tile = parts, tile
        self.kinds = {kind: [a for a in loops.parallel if a in axes] for kind, axes in parts.kinds.items()}
        self.counts = {kind: loops.count(tuple(axes)) for kind, axes in self.kinds.items()}
        whole = self.blocks
        self.division = division if division.streams else Division(whole, 0, division.steps, 0)
        if division.streams:
            self.scratch = {"partial": 0}

    @property
    def blocks(self) -> int:
        """Blocks of the result, of all matrices of a batch."""
        m, n = -(-self.counts["m"] // self.tile.m), -(-self.counts["n"] // self.tile.n)
        return self.counts["batch"] * m * n

    def write(self) -> Function:
        rows, columns = self.block_names
        self.line(f"m_blocks = tl.cdiv({self.total('m')}, {rows})")
        self.line(f"n_blocks = tl.cdiv({self.total('n')}, {columns})")
        if self.division.streams:
            self.line(f"steps = tl.cdiv({self.length}, K_BLOCK)")
        self._programs()
        tile = self.tile
        function = self.finish(self.constants(), self.division.items, tile.warps, True, tile.stages)
        steps = -(-self.loops.extents[self.parts.k[0]] // tile.k)
        elements = self.blocks * tile.m * tile.n * steps
        return replace(function, launch=replace(function.launch, elements=elements))

    def constants(self) -> dict[str, int]:
        tile = self.tile
        return {"M_BLOCK": tile.m, "N_BLOCK": tile.n, "K_BLOCK": tile.k, "TOGETHER": TOGETHER}

    @property
    def length(self) -> str:
        """The contracted axis's extent, as text."""
        return self.extents[self.parts.k[0]]

    def _programs(self) -> None:
        """What a program does of the blocks."""
        self.line(f"program = {self.program()}")
        self._block()

    def _block(self) -> None:
        """Block number `program` of the result, or what this is a piece of."""
        if not self.division.streams:
            self.place_block("program")
            self._products("0", self.length)
            self.finish_block()
            return
        self._piece()
        self.place_block("number")
        self._products("first", "last")
        if self.division.whole:
            self.open("if item < 0:")
            self.finish_block()
            self.close()
            self.open("else:")
        if self.division.pieces > 1:
            self.open("if first < last:")
        cell = "tl.arange(0, M_BLOCK)[:, None] * N_BLOCK + tl.arange(0, N_BLOCK)[None, :]"
        self.line(f"tl.store(partial + item * (M_BLOCK * N_BLOCK) + {cell}, total)")
        for _ in range((self.division.pieces > 1) + (self.division.whole > 0)):
            self.close()

    def _piece(self) -> None:
        """Name the block and its steps that item number `program` is: a whole block, or one of a stream's pieces."""
        self.division_sizes()
        whole = bool(self.division.whole)
        self.line(f"item = program{' - whole' if whole else ''}")  # below 0 for whole blocks
        self.line("begin = item % streams * share")
        self.line(f"end = tl.minimum(begin + share, {self.sizes(('shared',), self.division.shared)} * steps)")
        self.line("own = begin // steps + item // streams")
        for name, piece, block in (
            ("number", "whole + own" if whole else "own", "program"),
            ("first", "tl.maximum(begin - own * steps, 0) * K_BLOCK", "0"),
            ("last", f"tl.minimum((end - own * steps) * K_BLOCK, {self.length})", self.length),
        ):
            self.line(f"{name} = tl.where(item < 0, {block}, {piece})" if whole else f"{name} = {piece}")

    def division_sizes(self) -> None:
        """Name what says who does which steps."""
        for name in ("streams", "share", "whole"):
            if value := getattr(self.division, name):
                self.line(f"{name} = {self.sizes((name,), value)}")

    def finish_block(self) -> None:
        """The elementwise work on a block's sums, and its results."""
        result = self.parts.result
        other = self.parts.sums.kind == "i" and result.dtype != self.parts.sums
        self.env[result] = f"total.to({spell.local(result.dtype)})" if other else "total"
        self.varies[result] = frozenset("mn")
        self.define_all(n for n in self.parts.epilogue if n.op != "dot")
        for store in self.parts.stores:
            self.store(store)

    def total(self, kind: str) -> str:
        """The number of elements along the axes of one kind, as text."""
        return " * ".join(self.extents[a] for a in self.kinds[kind]) or "1"

    def place_block(self, number: str) -> None:
        """Name the axes of a block by its number."""
        self.line(f"block = {number} % (m_blocks * n_blocks)")
        self.line("strip = block // (TOGETHER * n_blocks) * TOGETHER")
        self.line("height = tl.minimum(m_blocks - strip, TOGETHER)")
        self.line("block = block % (TOGETHER * n_blocks)")
        for name, place, side in zip("mn", ("(strip + block % height)", "block // height"), self.block_names):
            self.line(f"first_{name} = {place} * {side}{self.corner(name)}")
        self.line("m = first_m + tl.arange(0, M_BLOCK)[:, None]")
        self.line("n = first_n + tl.arange(0, N_BLOCK)[None, :]")
        for name in ("m", "n"):
            self.line(f"{name}_inside = {name} < {self.total(name)}")
            self.masks[name] = f"{name}_inside"
            self.split(name, self.kinds[name], frozenset(name))
        if self.kinds["batch"]:
            self.line(f"batch = {number} // (m_blocks * n_blocks)")
            self.split("batch", self.kinds["batch"], frozenset())

    def corner(self, name: str) -> str:
        """What lies between a block's first row or column and the program's, as text."""
        return ""

    def _products(self, first: str, last: str) -> None:
        """Walk along the contracted axis, or a part of it."""
        self._no_sums()
        before = dict(self.env)
        for order in self.parts.orders:  # what does not vary along the contracted axis
            self.define_all(n for n in order if not self._walks(n))
        self.open(f"for start in range({first}, {last}, K_BLOCK):")
        texts = [self._side(number, self.length) for number in range(2)]
        if self.parts.widened:
            self.line(f"total += tl.dot({texts[0]}, {texts[1]}).to(tl.int32)")
        else:
            self.line(f"total = tl.dot({texts[0]}, {texts[1]}, total, {self._precision()})")
        self.close()
        self.env = before

    def _no_sums(self) -> None:
        self.line(f"total = tl.zeros((M_BLOCK, N_BLOCK), {spell.storage(self.parts.sums)})")

    def _precision(self) -> str:
        """How exactly products of numbers of the operands' kind are added up: those of 8 bits leave the tensor cores' own sums, which are
        of 14 bits, after each step."""
        if self.parts.as_bytes:
            return "out_dtype=tl.int32"
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
        halves = self.parts.dtype.itemsize == 1 and not self.parts.as_bytes
        if self.by_map(root):
            # Units multiply floats of 8 bits where both operands have them; one that is computed has 16.
            alike = not halves or (not self.parts.widened and all(map(self.by_map, self.parts.sides)))
            self.line(f"{target} = {self.load_text(root, widen=False)}" + ("" if alike else ".to(tl.float16)"))
            return target
        self.line(f"{name} = start + tl.arange(0, K_BLOCK){('[None, :]', '[:, None]')[number]}")
        self.line(f"{name}_inside = {name} < {length}")
        narrow = "tl.float16" if halves else spell.storage(self.parts.dtype)
        shape = "(M_BLOCK, K_BLOCK)" if number == 0 else "(K_BLOCK, N_BLOCK)"
        self.define_all(n for n in order if n is not root and self._walks(n))
        if root.op == "load":
            loaded, kept = self.load_text(root, widen=False), True
        else:
            self.define(root)
            value = self.operand(root)
            loaded, kept = (
                _halves(value, root.dtype) if root.dtype in spell.MATRIX_FLOATS else f"{value}.to({narrow})",
                False,
            )
        if self.spans(root) != whole:
            loaded = f"tl.broadcast_to({loaded}, {shape})"
        if not kept or dim not in self.spans(root):
            loaded = f"tl.where({name}_inside, {loaded}, 0).to({narrow})"
        elif self.parts.widened:
            loaded += ".to(tl.float16)"
        self.line(f"{target} = {loaded}")
        return target

    def by_map(self, node: Scalar) -> bool:
        """Whether an operand's element comes by a tensor map."""
        return False

    def load_text(self, node: Scalar, widen: bool = True) -> str:
        """The load of an element; an operand's of 8 bits as 16, which all GPUs multiply."""
        loaded = super().load_text(node, widen)
        multiplied = node in self.parts.sides and node.dtype in spell.MATRIX_FLOATS
        return _halves(loaded, node.dtype) if multiplied else loaded

    def zero(self, dim: str) -> str:
        shapes = {"m": "(M_BLOCK, 1)", "n": "(1, N_BLOCK)", "k0": "(1, K_BLOCK)", "k1": "(K_BLOCK, 1)"}
        return f"tl.zeros({shapes[dim]}, tl.int32)"

    def store_dims(self, store: Store) -> Dims:
        return frozenset("mn")


def _halves(bits: str, dtype: np.dtype) -> str:
    """Floats of 8 bits as float16."""
    return f"from_{spell.MATRIX_FLOATS[dtype]}({bits})"


class Mapped(Product):
    """The same with copies by tensor maps, a program taking one block after another."""

    def __init__(self, parts: Parts, loops: Loops, name: str, tile: DotTile, division: Division) -> None:
        super().__init__(parts, loops, name, tile, division)
        self.copies: dict[Scalar, tuple[Copied, int, str]] = {}  # and the side that reads it, and the map's name
        if self.wide or parts.dtype.itemsize > MATRIX_BYTES:
            return
        self._find_copies()
        # A float of 8 bits and one of 16 are not multiplied.
        if parts.dtype in spell.MATRIX_FLOATS and len(self.copies) < 2:
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
        matrices = [self.extents[a] for a in self.kinds["batch"]]
        count = " * ".join(["m_blocks", "n_blocks", *matrices])
        if self.division.streams:
            count = self.sizes(("items",), self.division.items)
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
    """The second launch of a product whose last blocks are shared out: sums of all pieces of one, and what is done with them."""

    block_names = "M_TILE", "N_TILE"

    def __init__(self, parts: Parts, loops: Loops, name: str, tile: DotTile, division: Division) -> None:
        super().__init__(parts, loops, name, tile, division)
        rows, columns, warps = SUMMED
        self.whole_tile, self.tile = tile, DotTile(min(rows, tile.m), min(columns, tile.n), tile.k, warps, 2)

    def write(self) -> Function:
        function = super().write()
        tile, sum_tile, division = self.whole_tile, self.tile, self.division
        programs = division.shared * (tile.m // sum_tile.m) * (tile.n // sum_tile.n)
        elements = division.written * tile.m * tile.n
        return replace(function, launch=replace(function.launch, grid=programs, elements=elements))

    def constants(self) -> dict[str, int]:
        return {**super().constants(), "M_TILE": self.whole_tile.m, "N_TILE": self.whole_tile.n}

    def corner(self, name: str) -> str:
        return f" + corner_{name}"

    def _programs(self) -> None:
        self.line(f"program = {self.program()}")
        self.division_sizes()
        self.line("own = program // ((M_TILE // M_BLOCK) * (N_TILE // N_BLOCK))")
        self.line("corner_m = program // (N_TILE // N_BLOCK) % (M_TILE // M_BLOCK) * M_BLOCK")
        self.line("corner_n = program % (N_TILE // N_BLOCK) * N_BLOCK")
        self.place_block("(whole + own)" if self.division.whole else "own")
        self.line(
            "cell = (corner_m + tl.arange(0, M_BLOCK)[:, None]) * N_TILE + corner_n + tl.arange(0, N_BLOCK)[None, :]"
        )
        self._no_sums()
        self.open("for stream in range(own * steps // share, tl.cdiv(own * steps + steps, share)):")
        self.line("item = (own - stream * share // steps) * streams + stream")
        self.line("total += tl.load(partial + item * (M_TILE * N_TILE) + cell)")
        self.close()
        self.finish_block()
