"""Conversions of float16 and bfloat16 from and to float, as functions of C.

gcc makes no vectors of the processor's conversion to float16, which integer operations take 18 for. As for sines of large
numbers, a vectorised loop calls a function of vectors by a name of the x86 vector ABI: here it is that instruction, and one
that widens its result, since gcc passes no vectors of 16 bits. From float16, seven operations in line take less than a call.
"""

from __future__ import annotations

from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, HALVES
from fuser.kernel.kernel import Store

# By name, each after float_of_bits and bits_of_float. Functions of the library have these.
PORTABLE = {
    # A half's exponent and digits, moved to a float's places, are 2**112 times too small; nan and infinity are told by size.
    "float16_load": "static inline float float16_load(uint16_t x) { uint32_t m = (uint32_t)(x & 0x7fff) << 13; "
    "uint32_t i = bits_of_float(float_of_bits(m) * 0x1p112f) | (m >= 0x0f800000u ? 0x7f800000u : 0); "
    "return float_of_bits(i | (uint32_t)(x & 0x8000) << 16); }",
    # Below 2**-14 the digits of 0.5 + |x| begin where a half's end; above, they are rounded to even as integers.
    "float16_round": "static inline uint16_t float16_round(float x) { uint32_t i = bits_of_float(x), m = i & 0x7fffffff; "
    "uint32_t small = bits_of_float(float_of_bits(m) + 0.5f) - 0x3f000000u; "
    "uint32_t normal = (m - 0x38000000u + 0xfff + (m >> 13 & 1)) >> 13; "
    "uint32_t h = m < 0x38800000u ? small : m < 0x47800000u ? normal : m > 0x7f800000u ? 0x7e00 | (m >> 13 & 0x3ff) : 0x7c00; "
    "return h | (i >> 16 & 0x8000); }",
    "bfloat16_load": "static inline float bfloat16_load(uint16_t x) { return float_of_bits((uint32_t)x << 16); }",
    "bfloat16_round": "static inline uint16_t bfloat16_round(float x) { uint32_t i = bits_of_float(x); return x != x ? (uint16_t)((i >> 16) | 64) "
    ": (uint16_t)((i + 0x7fff + ((i >> 16) & 1)) >> 16); }",
}

# Sign, exponent and digits are moved at once; of infinity and nan the exponent is all ones.
_LOAD = (
    "static inline float float16_load(uint16_t x) { uint32_t m = (uint32_t)((int32_t)(int16_t)x << 13) & 0x8fffe000u; "
    "uint32_t i = bits_of_float(float_of_bits(m) * 0x1p112f); "
    "return float_of_bits((m & 0x0f800000u) == 0x0f800000u ? i | 0x7f800000u : i); }"
)
# Whether a loop can call functions of vectors, as gcc does, and the processor has the instruction.
_CONDITION = "defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__AVX2__) && defined(__F16C__)"
_HIDDEN = '__attribute__((weak, visibility("hidden")))'
# The widest vectors first: the ABI's letter, their length, the feature they need, and the instruction, which rounds to even.
_VECTORS = (
    ("e", 16, "defined(__AVX512F__)", "__builtin_ia32_vcvtps2ph512_mask(x, 0, (half_i16x16){0}, -1)"),
    ("d", 8, "1", "__builtin_ia32_vcvtps2ph256(x, 0)"),
)
_SHORTEST = (("c", 4), ("b", 4))  # without AVX2 vectors of integers, and so of the results, are of 16 bytes
_TYPES = [
    f"typedef {element} half_{kind}x{length} __attribute__((vector_size({length * size})));"
    for length in (4, 8, 16)
    for element, kind, size in (
        ("float", "f32", 4),
        ("uint32_t", "u32", 4),
        ("short", "i16", 2),
        ("uint16_t", "u16", 2),
    )
]


def _entry(number: int) -> list[str]:
    """The function of vectors of one length, under other names that of shorter ones too: these lie in the lower part of the
    same registers, and what it makes of the upper part nobody reads."""
    letter, length, feature, instruction = _VECTORS[number]
    entry = f"_ZGV{letter}N{length}v_float16_bits"
    value = f"__builtin_convertvector((half_u16x{length}){instruction}, half_u32x{length})"
    shorter = [*(vector[:2] for vector in _VECTORS[number + 1 :]), *_SHORTEST]
    return [
        f"#{'elif' if number else 'if'} {feature}",
        f"{_HIDDEN} half_u32x{length} {entry}(half_f32x{length} x) {{ return {value}; }}",
        *(
            f'{_HIDDEN} void _ZGV{narrow}N{count}v_float16_bits(void) __attribute__((alias("{entry}")));'
            for narrow, count in shorter
        ),
    ]


def _round() -> str:
    """float16_round by calls of `float16_bits`, which has a function for one number and for vectors."""
    one = "(uint16_t)__builtin_ia32_vcvtps2ph((half_f32x4){x}, 0)[0]"
    lines = [
        f"#if {_CONDITION}",
        *_TYPES,
        '__attribute__((simd("notinbranch"), const)) uint32_t float16_bits(float x);',
        f'{_HIDDEN} uint32_t float16_bits_scalar(float x) __asm__("float16_bits");',
        f"{_HIDDEN} uint32_t float16_bits_scalar(float x) {{ return {one}; }}",
        *(line for number in range(len(_VECTORS)) for line in _entry(number)),
        "#endif",
        "static inline uint16_t float16_round(float x) { return float16_bits(x); }",
        "#else",
        PORTABLE["float16_round"],
        "#endif",
    ]
    return "\n".join(lines)


# What generated kernels have.
HELPERS = PORTABLE | {"float16_load": _LOAD, "float16_round": _round()}


def unrounded(store: Store) -> Scalar:
    """What a store of halves writes before it is rounded to one; else its value."""
    value = store.value
    rounds = value.op == "cast" and value.dtype in HALVES and value.args[0].dtype == FLOATS[2]
    return value.args[0] if rounds else value
