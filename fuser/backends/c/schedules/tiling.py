"""The loop form for transposed accesses: what is dense along another axis than the vector goes through square tiles.

A tile is transposed in registers as it is read, so that whole cache lines move on both sides, and lies in the core's own
cache while the block is computed. Results with a transposed access are computed into tiles and leave through them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fuser.backends.c import spell
from fuser.backends.c.emitter import Emitter
from fuser.backends.c.function import Code, Element, Part, Symbol, Variable, code
from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Access, Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.lower import computed, index_axes

ALONG = 512  # bytes of a tile along the axis that is dense in memory: shorter runs lose a third, longer ones the cache
WIDTH = 64  # elements of a tile along the vector
LEAST = 16  # iterations along both axes from which tiles pay
MOST_TILES = 8

# Each round interleaves the rows of the first half with those of the second; after log2(lanes) rounds the block is transposed.
_BLOCK = """typedef uint{bits}_t __attribute__((may_alias)) bits{bits};
typedef bits{bits} __attribute__((vector_size({bytes}), aligned({size}), may_alias)) lanes{bits};
static inline __attribute__((always_inline)) void block{bits}(const bits{bits} *from, int64_t step, bits{bits} *to, int64_t ld) {{
  lanes{bits} a[{lanes}], b[{lanes}];
  #pragma GCC unroll {lanes}
  for (int i = 0; i < {lanes}; ++i) a[i] = *(const lanes{bits} *)(from + i * step);
  #pragma GCC unroll {rounds}
  for (int round = 0; round < {rounds}; ++round) {{
    #pragma GCC unroll {half}
    for (int i = 0; i < {half}; ++i) {{
      b[2 * i] = __builtin_shufflevector(a[i], a[i + {half}], {low});
      b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + {half}], {high});
    }}
    #pragma GCC unroll {lanes}
    for (int i = 0; i < {lanes}; ++i) a[i] = b[i];
  }}
  #pragma GCC unroll {lanes}
  for (int i = 0; i < {lanes}; ++i) *(lanes{bits} *)(to + i * ld) = a[i];
}}"""
_TRANSPOSE = """// to[b * ld + v] = from[v * step + b]; the last blocks reach back over their neighbours.
static void transpose{bits}(const void *source, int64_t step, void *target, int64_t ld, int64_t height, int64_t width) {{
  const bits{bits} *from = source;
  bits{bits} *to = target;
  if (height < {lanes} || width < {lanes} || !SHUFFLES) {{
    for (int64_t b = 0; b < height; ++b)
      for (int64_t v = 0; v < width; ++v) to[b * ld + v] = from[v * step + b];
    return;
  }}
  for (int64_t v = 0; v < width; v += {lanes}) {{
    if (v + {lanes} > width) v = width - {lanes};
    for (int64_t b = 0; b < height; b += {lanes}) {{
      if (b + {lanes} > height) b = height - {lanes};
      block{bits}(from + v * step + b, step, to + b * ld + v, ld);
    }}
  }}
}}"""
# Rows of a few numbers: what is read or written beyond a row belongs to the next one, which comes after it.
_ROWS = """// to[e * ld + r] = from[r * step + e] for e < step
static void rows_in{bits}(const void *source, int64_t step, void *target, int64_t ld, int64_t rows) {{
  const bits{bits} *from = source;
  bits{bits} *to = target;
  const int64_t last = step > {lanes} ? step - {lanes} : 0;
  int64_t r = 0;
  for (; SHUFFLES && r + {lanes} <= rows && (r + {lanes} - 1) * step + last + {lanes} <= rows * step; r += {lanes}) {{
    for (int64_t e = 0; e < last; e += {lanes}) block{bits}(from + r * step + e, step, to + e * ld + r, ld);
    block{bits}(from + r * step + last, step, to + last * ld + r, ld);
  }}
  for (; r < rows; ++r)
    for (int64_t e = 0; e < step; ++e) to[e * ld + r] = from[r * step + e];
}}
// to[r * step + e] = from[e * ld + r] for e < step
static void rows_out{bits}(const void *source, int64_t ld, void *target, int64_t step, int64_t rows) {{
  const bits{bits} *from = source;
  bits{bits} *to = target;
  const int64_t last = step > {lanes} ? step - {lanes} : 0;
  int64_t r = 0;
  for (; SHUFFLES && r + {lanes} <= rows && (r + {lanes} - 1) * step + last + {lanes} <= rows * step; r += {lanes}) {{
    for (int64_t e = 0; e < last; e += {lanes}) block{bits}(from + e * ld + r, ld, to + r * step + e, step);
    block{bits}(from + last * ld + r, ld, to + r * step + last, step);
  }}
  for (; r < rows; ++r)
    for (int64_t e = 0; e < step; ++e) to[r * step + e] = from[e * ld + r];
}}"""
_SHUFFLES = """#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES 1
#endif
#endif
#ifndef SHUFFLES
#define SHUFFLES 0
#define __builtin_shufflevector(a, b, ...) (a)
#endif
"""
_FUNCTIONS = {"transpose": _TRANSPOSE, "rows_in": _ROWS, "rows_out": _ROWS}
TRANSPOSED = {8: 16, 16: 16, 32: 16, 64: 8}  # lanes by bits of an element


def helpers(used: Collection[str]) -> str:
    """The functions of these names that transpose blocks."""
    found = []
    for bits, lanes in TRANSPOSED.items():
        kinds = [text for name, text in _FUNCTIONS.items() if f"{name}{bits}" in used]
        found += [_spelt(text, bits, lanes) for text in (_BLOCK, *dict.fromkeys(kinds))] if kinds else []
    return _SHUFFLES + "\n".join(found) if found else ""


def _spelt(text: str, bits: int, lanes: int) -> str:
    half = lanes // 2
    pairs = [n for k in range(lanes) for n in (k, lanes + k)]
    low, high = (", ".join(map(str, part)) for part in (pairs[:lanes], pairs[lanes:]))
    sizes = {"bits": bits, "size": bits // 8, "bytes": lanes * bits // 8, "lanes": lanes, "half": half}
    return text.format(**sizes, rounds=lanes.bit_length() - 1, low=low, high=high)


@dataclass(frozen=True)
class TransposedAccess:
    """What lies dense along `axis` and apart along the vector."""

    axis: Axis
    loads: tuple[Scalar, ...]
    stores: tuple[Store, ...]


def transposed_accesses(kernel: Kernel, loops: Loops) -> TransposedAccess | None:
    """The accesses that are worth tiles, all along one axis; None where there are none."""
    vector = loops.vector
    if vector is None or kernel.reduced or loops.extents[vector] < LEAST:
        return None
    free = [n for n in kernel.nodes if n.op == "load" and not n.args]  # what is read under a mask may not be there
    best: TransposedAccess | None = None
    for axis in loops.parallel:
        if axis is vector or loops.extents[axis] < LEAST:
            continue
        loads = tuple(n for n in free if _crosses(n.attr, kernel, vector, axis, loops))
        stores = tuple(s for s in kernel.stores if _crosses(s, kernel, vector, axis, loops))
        if best is None or len(loads) + len(stores) > len(best.loads) + len(best.stores):
            best = TransposedAccess(axis, loads[:MOST_TILES], stores)
    return best if best is not None and (best.loads or best.stores) else None


def _crosses(access: Access | Store, kernel: Kernel, vector: Axis, axis: Axis, loops: Loops) -> bool:
    """Whether an access is dense along `axis` and strided along the vector, by plain strides."""
    offset = access.offset
    plain = all(isinstance(atom, Axis) or not _inside(atom, vector, axis, loops) for atom, _ in offset.terms)
    known = kernel.params[access.param].dtype.itemsize * 8 in TRANSPOSED
    return known and plain and offset.coefficient(axis) == 1 and offset.coefficient(vector) > 1


def _inside(atom: object, vector: Axis, axis: Axis, loops: Loops) -> bool:
    """Whether a floor division or a computed integer changes within a tile."""
    if isinstance(atom, Div):
        return bool(index_axes(atom.base) & {vector, axis, *loops.absorbed}) or bool(computed(atom.base))
    return True


class Tiled(Emitter):
    """Parallel over tiles; inside one, over its rows, with the vector along the axis of most accesses."""

    team = True

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True) -> None:
        super().__init__(kernel, loops, threads)
        found = transposed_accesses(kernel, loops)
        assert found is not None and loops.vector is not None
        self.crossing, self.vector, self.across = found, loops.vector, found.axis
        self.tiles: dict[Scalar, Variable] = {}
        self.leaving: dict[Store, Variable] = {}
        sizes = [n.dtype.itemsize for n in found.loads] + [kernel.params[s.param].dtype.itemsize for s in found.stores]
        self.width = WIDTH * (2 if max(sizes) < 4 else 1)
        self.height = ALONG // max(sizes)

    def form(self) -> None:
        vector, across = self.vector, self.across
        outer = [a for a in self.loops.parallel if a not in (vector, across)]
        self.shared(len(outer) + 2)
        for axis in outer:
            self.loop(axis)
        axes = dict(self.axes)
        sides = ((across, "height", self.height), (vector, "width", self.width))
        corners = {
            axis: self.count(f"{count}_from", "0", self.extents[axis], f"{{}} += {side}") for axis, count, side in sides
        }
        for axis, count, side in sides:
            rest = code("{} - {}", self.extents[axis], corners[axis])
            self.let("int64_t", count, f"{{0}} < {side} ? {{0}} : {side}", rest)
        self.axes |= corners
        for load in self.crossing.loads:
            self._read(load)
        for store in self.crossing.stores:
            self.leaving[store] = self._tile(store.param, f"tile_{self.params[store.param].name}")
        self.axes |= axes
        self._compute(corners)
        self.axes |= corners
        for store, tile in self.leaving.items():
            place, step = code("&{}", self.target(store)), self._step(store.param, store.offset)
            self._transpose(store.param, tile, self.width, place, step, "{width}, {height}")
        for _ in (*outer, vector, across):
            self.close()

    def _compute(self, corners: dict[Axis, Variable]) -> None:
        sweep = self.kernel.sweeps[0]
        y = self.count("y", "0", self.named("height"))
        self.let("int64_t", self.axis_names[self.across], "{} + {}", corners[self.across], y)
        self.pragma("omp simd")
        x = self.count("x", "0", self.named("width"))
        self.let("int64_t", self.axis_names[self.vector], "{} + {}", corners[self.vector], x)
        self.define_all(sweep.row)
        for store in sweep.row_stores:
            if store in self.leaving:
                value = spell.store(self.kernel.params[store.param].dtype, self.operand(store.value))
                self.set(self._in_tile(self.leaving[store]), value)
            else:
                self.store(store)
        self.close()
        self.close()

    def _in_tile(self, tile: Variable) -> Element:
        return self.at(tile, self.code(f"{{y}} * {self.width}"), self.named("x"))

    def _read(self, load: Scalar) -> None:
        """Fill the tile of a load."""
        number, offset = load.attr.param, load.attr.offset
        self.tiles[load] = self._tile(number, f"tile{len(self.tiles)}")
        place = code("&{}", Element(self.params[number], self._offset(number, offset)))
        self._transpose(number, place, self._step(number, offset), self.tiles[load], self.width, "{height}, {width}")

    def _tile(self, number: int, name: str) -> Variable:
        return self.buffer(self.params[number].type, name, self.height * self.width)

    def _transpose(self, number: int, source: Part, step: Part, target: Part, ld: Part, counts: str) -> None:
        bits = self.kernel.params[number].dtype.itemsize * 8
        self.do(f"{{}}({{}}, {{}}, {{}}, {{}}, {counts});", Symbol(f"transpose{bits}"), source, step, target, ld)

    def _step(self, number: int, offset: Affine) -> Code:
        """The stride along the vector; the same size argument as in the place."""
        coefficient = offset.coefficient(self.vector)
        return self.sizes(("factor", number, self.vector, coefficient), coefficient)

    def expression(self, node: Scalar) -> Code:
        if node in self.tiles:
            return spell.load(self.kernel.params[node.attr.param].dtype, self._in_tile(self.tiles[node]))
        return super().expression(node)


def move_rows(writer: Emitter, function: str, param: int, source: Part, step: Part, target: Part, ld: Part) -> None:
    """Take the rows of a block of `width` rows into a tile ("rows_in"), or out of it ("rows_out")."""
    bits = writer.kernel.params[param].dtype.itemsize * 8
    writer.do("{}({}, {}, {}, {}, {width});", Symbol(f"{function}{bits}"), source, step, target, ld)
