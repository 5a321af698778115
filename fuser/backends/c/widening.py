"""Helpers of C that read a row of bools or narrow integers into numbers of 32 bits, a vector at a time.

gcc 12 takes conversions of vectors (`__builtin_convertvector`) apart to numbers where one is a quarter of the other, and makes vectors of
half the length of what a loop leaves over: AVX-512's own instruction reads 16 numbers wherever they begin, and what a row
leaves over under a mask. All vectors are stored where they are read as such again, since a load waits for two stores that it spans.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.types import BOOL, INTEGERS

LANES = 16  # numbers that are widened at once: a row has room for multiples of them
OUT = {np.dtype("int32"): "int32_t", np.dtype("uint32"): "uint32_t", np.dtype("float32"): "float"}


def widen(old: np.dtype, new: np.dtype) -> str:
    """The name of the helper: `helper(to, from, count)` reads `count` numbers, and may write zeros after them up to a multiple of `LANES`."""
    return f"widen_{old.name}_to_{new.name}"


def _helper(old: np.dtype, new: np.dtype) -> str:
    narrow, out = "_Bool" if old == BOOL else f"{old.name}_t", OUT[new]
    instruction = f"vpmov{'s' if old.kind == 'i' else 'z'}x{'b' if old.itemsize == 1 else 'w'}d"
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
            "    *(row *)(to + k) = __builtin_convertvector(w, row);",
            "  }",
            "  if (k < count) {",
            f'    wide w; __asm__("kmovw %2, %%k1\\n\\t{instruction} %1, %0%{{%%k1%}}%{{z%}}" : "=v"(w) : "m"(*(const narrow *)(from + k)), '
            '"r"((1 << (count - k)) - 1) : "k1");',
            "    *(row *)(to + k) = __builtin_convertvector(w, row);",
            "  }",
            "#else",
            "  for (int64_t k = 0; k < count; ++k) to[k] = from[k];",
            "#endif",
            "}",
        ]
    )


NARROW = (BOOL, *(dtype for dtype in INTEGERS if dtype.itemsize < 4))
HELPERS = {widen(old, new): _helper(old, new) for old in NARROW for new in OUT}
