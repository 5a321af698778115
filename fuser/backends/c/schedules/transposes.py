"""The C functions that transpose blocks of arrays, and short rows that lie one after the other.

A round interleaves the vectors of the first half with those of the second; after log2(n) rounds n vectors are transposed.
Rows, and ends of rows, that are shorter than a vector share one, several side by side. Rows shorter than half a vector are
taken as they lie in memory: each vector gives each other one some of its elements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

TRANSPOSED = {8: 16, 16: 16, 32: 16, 64: 8}  # lanes by bits of an element
SIDES = ("in", "out")

_SHUFFLES = """#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES 1
#endif
#endif
#ifndef SHUFFLES
#define SHUFFLES 0
#endif
"""
_BLOCK = """static inline __attribute__((always_inline)) void {name}(const bits{bits} *from, int64_t step, bits{bits} *to, int64_t ld) {{
  lanes{bits}x{lanes} a[{width}], b[{width}];
{read}
  #pragma GCC unroll {rounds}
  for (int round = 0; round < {rounds}; ++round) {{
    #pragma GCC unroll {half}
    for (int i = 0; i < {half}; ++i) {{
      b[2 * i] = {low};
      b[2 * i + 1] = {high};
    }}
    #pragma GCC unroll {width}
    for (int i = 0; i < {width}; ++i) a[i] = b[i];
  }}
{write}
}}"""
_TRANSPOSE = """// to[b * ld + v] = from[v * step + b]; the last blocks reach back over their neighbours.
static void transpose{bits}(const void *source, int64_t step, void *target, int64_t ld, int64_t height, int64_t width) {{
  const bits{bits} *from = source;
  bits{bits} *to = target;
#if SHUFFLES
  for (int64_t b = 0; height >= {lanes} && width >= {lanes} && b < height; b += {lanes}) {{
    if (b + {lanes} > height) b = height - {lanes};
    for (int64_t v = 0; v < width; v += {lanes}) {{
      if (v + {lanes} > width) v = width - {lanes};
      block{bits}(from + v * step + b, step, to + b * ld + v, ld);
    }}
  }}
  if (height >= {lanes} && width >= {lanes}) return;
#endif
  for (int64_t b = 0; b < height; ++b)
    for (int64_t v = 0; v < width; ++v) to[b * ld + v] = from[v * step + b];
}}"""
_ROWS = """// {element} for e < {count}
static void {name}(const void *source, int64_t {read}, void *target, int64_t {written}, int64_t rows{counted}) {{
  const bits{bits} *from = source;
  bits{bits} *to = target;
  int64_t r = 0;
#if SHUFFLES
  for (; r + {lanes} <= rows; r += {lanes}) {{
{body}
  }}
#endif
  for (; r < rows; ++r)
    for (int64_t e = 0; e < {count}; ++e) {element};
}}"""
_ELEMENT = {"in": "to[e * ld + r] = from[r * step + e]", "out": "to[r * step + e] = from[e * ld + r]"}
# Whole vectors, then at most one half of one, and one more part, which reaches back over its neighbour.
_PARTS = """    int64_t e = 0;
    for (; e + {lanes} <= count; e += {lanes}) {whole};
    if (e + {half} < count) {{
      {halves};
      e += {half};
    }}
    if (e + {quarter} < count) {{
      e = count - {half};
      {halves};
    }} else if (e < count) {{
      e = count - {quarter};
      {quarters};
    }}"""


def rows_function(side: str, bits: int, stride: int) -> str:
    """The name of the function that takes rows into a tile (side "in"), or out of it ("out"): of dense rows of few elements by their
    `stride`, else one that is told how many elements a row has."""
    return f"rows_{side}{bits}" + (f"_{stride}" if 0 < stride < TRANSPOSED[bits] // 2 else "")


def helpers(used: Collection[str]) -> str:
    """The functions of these names, with what they call."""
    found = []
    for bits, lanes in TRANSPOSED.items():
        wide = [side for side in SIDES if f"rows_{side}{bits}" in used]
        narrow = [(side, n) for side in SIDES for n in range(2, lanes // 2) if f"rows_{side}{bits}_{n}" in used]
        square = f"transpose{bits}" in used
        if not (wide or narrow or square):
            continue
        found += [f"typedef uint{bits}_t __attribute__((may_alias)) bits{bits};", "#if SHUFFLES", _vectors(bits, lanes)]
        found += [_square(bits, lanes)] if wide or square else []
        found += [_part(bits, lanes, width, side) for side in wide for width in (lanes // 2, lanes // 4)]
        found += ["#endif"]
        found += [_TRANSPOSE.format(bits=bits, lanes=lanes)] if square else []
        found += [_wide(bits, lanes, side) for side in wide]
        found += [_narrow(bits, lanes, side, step) for side, step in narrow]
    return _SHUFFLES + "\n".join(found) if found else ""


def _vectors(bits: int, lanes: int) -> str:
    """The types of vectors, their halves and quarters."""
    size = bits // 8
    spelling = "typedef bits{} __attribute__((vector_size({}), aligned({}), may_alias)) lanes{}x{};"
    return "\n".join(spelling.format(bits, n * size, size, bits, n) for n in (lanes, lanes // 2, lanes // 4))


def _shuffled(a: str, b: str, lanes: Iterable[int]) -> str:
    return f"__builtin_shufflevector({a}, {b}, {', '.join(map(str, lanes))})"


def _joined(parts: Sequence[str], width: int) -> str:
    """Short vectors, each of `width` lanes, as one."""
    while len(parts) > 1:
        width *= 2
        parts = [_shuffled(a, b, range(width)) for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


def _block(name: str, bits: int, lanes: int, width: int, read: str, write: str) -> str:
    """The function of `width` vectors, transposed within each `width` of their lanes."""
    half, rows = width // 2, range(0, lanes, width)
    low, high = (
        _shuffled("a[i]", f"a[i + {half}]", (n for row in rows for k in part for n in (row + k, lanes + row + k)))
        for part in (range(half), range(half, width))
    )
    numbers = {"bits": bits, "lanes": lanes, "width": width, "half": half, "rounds": width.bit_length() - 1}
    return _BLOCK.format(name=name, read=read, write=write, low=low, high=high, **numbers)


def _square(bits: int, lanes: int) -> str:
    """The block of as many rows as a vector has lanes."""
    each, kind = f"  #pragma GCC unroll {lanes}\n  for (int i = 0; i < {lanes}; ++i) ", f"lanes{bits}x{lanes}"
    read = f"{each}a[i] = *(const {kind} *)(from + i * step);"
    return _block(f"block{bits}", bits, lanes, lanes, read, f"{each}*({kind} *)(to + i * ld) = a[i];")


def _part(bits: int, lanes: int, width: int, side: str) -> str:
    """The block of `lanes` rows of `width` elements."""
    whole, part = f"lanes{bits}x{lanes}", f"lanes{bits}x{width}"
    read, write = [], []
    for i in range(width):
        rows = range(i, lanes, width)
        if side == "in":
            read.append(f"  a[{i}] = {_joined([f'*(const {part} *)(from + {row} * step)' for row in rows], width)};")
            write.append(f"  *({whole} *)(to + {i} * ld) = a[{i}];")
        else:
            read.append(f"  a[{i}] = *(const {whole} *)(from + {i} * step);")
            parts = [_shuffled(f"a[{i}]", f"a[{i}]", range(row - i, row - i + width)) for row in rows]
            write += [f"  *({part} *)(to + {row} * ld) = {value};" for row, value in zip(rows, parts)]
    return _block(f"{side}{bits}x{width}", bits, lanes, width, "\n".join(read), "\n".join(write))


def _rows(name: str, bits: int, lanes: int, side: str, count: str, body: str) -> str:
    read, written = ("step", "ld") if side == "in" else ("ld", "step")
    numbers = {"name": name, "bits": bits, "lanes": lanes, "read": read, "written": written, "count": count}
    numbers["counted"] = ", int64_t count" if count == "count" else ""
    return _ROWS.format(element=_ELEMENT[side], body=body, **numbers)


def _wide(bits: int, lanes: int, side: str) -> str:
    """The function of rows of at least half a vector, taken in parts."""
    half, quarter = lanes // 2, lanes // 4
    apart, together = "r * step + e, step", "e * ld + r, ld"
    places = f"from + {apart}, to + {together}" if side == "in" else f"from + {together}, to + {apart}"
    blocks = {"whole": f"block{bits}", "halves": f"{side}{bits}x{half}", "quarters": f"{side}{bits}x{quarter}"}
    calls = {key: f"{name}({places})" for key, name in blocks.items()}
    body = _PARTS.format(lanes=lanes, half=half, quarter=quarter, **calls)
    return _rows(f"rows_{side}{bits}", bits, lanes, side, "count", body)


def _narrow(bits: int, lanes: int, side: str, step: int) -> str:
    """The function of rows of `step` elements: `lanes` of them fill `step` vectors."""
    kind, lines = f"lanes{bits}x{lanes}", []
    dense, column = f"r * {step} + {{}} * {lanes}", "{} * ld + r"
    source, target = (dense, column) if side == "in" else (column, dense)
    for n in range(step):
        lines.append(f"    const {kind} v{n} = *(const {kind} *)(from + {source.format(n)});")
    for n in range(step):
        if side == "in":
            origins = [divmod(row * step + n, lanes) for row in range(lanes)]
        else:
            origins = [divmod(n * lanes + k, step)[::-1] for k in range(lanes)]
        lines.append(f"    *({kind} *)(to + {target.format(n)}) = {_gathered(origins)};")
    return _rows(f"rows_{side}{bits}_{step}", bits, lanes, side, str(step), "\n".join(lines))


def _gathered(origins: Sequence[tuple[int, int]]) -> str:
    """The vector of these lanes, each given by the number of its vector and its lane there."""
    lanes, vectors = len(origins), list(dict.fromkeys(vector for vector, _ in origins))
    first, *others = vectors
    value, place = f"v{first}", [lane if vector == first else 0 for vector, lane in origins]
    for other in others:
        value = _shuffled(value, f"v{other}", [lanes + l if v == other else p for (v, l), p in zip(origins, place)])
        place = list(range(lanes))
    return value if others else _shuffled(value, value, place)
