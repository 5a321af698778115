"""Helpers of C that read a row of bools, narrow integers or halves into numbers of 32 bits, a vector at a time.

gcc 12 takes conversions of vectors (`__builtin_convertvector`) apart to numbers where one is a quarter of the other, and makes vectors of
half the length of what a loop leaves over: AVX-512's own instruction reads 16 numbers wherever they begin, and what a row
leaves over under a mask. All vectors are stored where they are read as such again, since a load waits for two stores that it spans.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.types import BOOL, FLOATS, HALVES, INTEGERS, bfloat16

LANES = 16  # numbers that are widened at once: a row has room for multiples of them
HALF = 2  # bytes
OUT = {np.dtype("int32"): "int32_t", np.dtype("uint32"): "uint32_t", np.dtype("float32"): "float"}
WIDER = {BOOL: np.dtype("int32"), **dict.fromkeys(HALVES, FLOATS[2])}  # what stands for them; integers are converted


def widen(old: np.dtype, new: np.dtype) -> str:
    """The name of the helper: `helper(to, from, count)` reads `count` numbers, and may write zeros after them up to a multiple of `LANES`."""
    return f"widen_{old.name}_to_{new.name}"


def _helper(old: np.dtype, new: np.dtype) -> str:
    out, narrow = OUT[new], "uint16_t" if old in HALVES else "_Bool" if old == BOOL else f"{old.name}_t"
    instruction = f"vpmov{'s' if old.kind == 'i' else 'z'}x{'b' if old.itemsize == 1 else 'w'}d"
    value, one = "__builtin_convertvector(w, row)", "from[k]"
    if old in HALVES:
        instruction = instruction if old == bfloat16 else "vcvtph2ps"
        value, one = "(row)(w << 16)" if old == bfloat16 else "(row)w", f"{old.name}_load(from[k])"
    vector = "  typedef {} {} __attribute__((vector_size({}), aligned({}), may_alias));"
    return "\n".join(
        [
            f"static inline __attribute__((always_inline)) void {widen(old, new)}({out} *restrict to, const {narrow} *from, int64_t count) {{",
            "#ifdef __AVX512F__",
            vector.format("uint8_t", "narrow", LANES * old.itemsize, 1),
            vector.format("int32_t", "wide", LANES * 4, 4),
            vector.format(out, "row", LANES * 4, 4),
            "  int64_t k = 0;",
            f"  for (; k + {LANES} <= count; k += {LANES}) {{",
            f'    wide w; __asm__("{instruction} %1, %0" : "=v"(w) : "m"(*(const narrow *)(from + k)));',
            f"    *(row *)(to + k) = {value};",
            "  }",
            "  if (k < count) {",
            f'    wide w; __asm__("kmovw %2, %%k1\\n\\t{instruction} %1, %0%{{%%k1%}}%{{z%}}" : "=v"(w) : "m"(*(const narrow *)(from + k)), '
            '"r"((1 << (count - k)) - 1) : "k1");',
            f"    *(row *)(to + k) = {value};",
            "  }",
            "#else",
            f"  for (int64_t k = 0; k < count; ++k) to[k] = {one};",
            "#endif",
            "}",
        ]
    )


def narrow(new: np.dtype) -> str:
    """The name of the helper: `helper(to, from, count)` rounds `count` floats to halves."""
    return f"narrow_float_to_{new.name}"


def _narrowing(new: np.dtype) -> str:
    convert, rounded = "vcvtps2ph $0, %1, %0", "row r = x;"
    if new == bfloat16:  # to even; of nan the upper digits are kept, one of them set
        convert = "vpmovdw %1, %0"
        rounded = (
            "wide i = (wide)x, r = (i + 0x7fff + (i >> 16 & 1)) >> 16, quiet = i >> 16 | 64; "
            '__asm__("vcmpps $3, %2, %2, %%k2\\n\\tvmovdqa32 %1, %0%{%%k2%}" : "+v"(r) : "v"(quiet), "v"(x) : "k2");'
        )
    vector = "  typedef {} {} __attribute__((vector_size({}), aligned({}), may_alias));"
    one = f'    row x = *(row *)(from + k); {rounded} narrow h; __asm__("{convert}" : "=v"(h) : "v"(r));'
    return "\n".join(
        [
            f"static inline __attribute__((always_inline)) void {narrow(new)}(uint16_t *to, const float *restrict from, int64_t count) {{",
            "#ifdef __AVX512BW__",
            vector.format("uint16_t", "narrow", LANES * HALF, HALF),
            vector.format("uint32_t", "wide", LANES * 4, 4),
            vector.format("float", "row", LANES * 4, 4),
            "  int64_t k = 0;",
            f"  for (; k + {LANES} <= count; k += {LANES}) {{",
            one,
            "    *(narrow *)(to + k) = h;",
            "  }",
            "  if (k < count) {",
            one,
            '    __asm__("kmovw %2, %%k1\\n\\tvmovdqu16 %1, %0%{%%k1%}" : "+m"(*(narrow *)(to + k)) : "v"(h), "r"((1 << (count - k)) - 1) : "k1");',
            "  }",
            "#else",
            f"  for (int64_t k = 0; k < count; ++k) to[k] = {new.name}_round(from[k]);",
            "#endif",
            "}",
        ]
    )


NARROW = (BOOL, *(dtype for dtype in INTEGERS if dtype.itemsize < 4))
HELPERS = {widen(old, new): _helper(old, new) for old in NARROW for new in OUT}
HELPERS |= {widen(old, FLOATS[2]): _helper(old, FLOATS[2]) for old in HALVES}
HELPERS |= {narrow(new): _narrowing(new) for new in HALVES}
