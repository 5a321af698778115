"""Sines of numbers too large for the reduction in line, and remainders of quotients too large for an integer: libm's, one by one, behind a test of a whole vector.

A vectorised loop cannot branch for the few elements that need Payne and Hanek's reduction. It calls a function of vectors,
as it would call libmvec's, by a name of the x86 vector ABI; that function looks whether there is any such element.
"""

from __future__ import annotations

import re

# Where the reduction in line ends, for float and double.
FAR = ("0x1p17f", "0x1p45")

# Whether gcc knows vector functions; elsewhere the reduction in line serves all numbers.
CONDITION = """#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && (!defined(__AVX512F__) || defined(__AVX512DQ__))
#define VECTOR_CALLS
#define HIDDEN __attribute__((weak, visibility("hidden")))
#endif"""

# For float and double, the widest vectors first: the ABI's letter, their bytes, the feature they need, and the test whether
# any element is set.
_VECTORS = (
    (
        ("e", 64, "defined(__AVX512DQ__)", "__builtin_ia32_cvtd2mask512(beyond)"),
        ("d", 32, "defined(__AVX2__)", "__builtin_ia32_movmskps256((far_f32x8)beyond)"),
        ("c", 32, "defined(__AVX__)", "__builtin_ia32_movmskps256((far_f32x8)beyond)"),
        ("b", 16, "defined(__SSE2__)", "__builtin_ia32_movmskps((far_f32x4)beyond)"),
    ),
    (
        ("e", 64, "defined(__AVX512DQ__)", "__builtin_ia32_cvtq2mask512((far_i64x8)beyond)"),
        ("d", 32, "defined(__AVX2__)", "__builtin_ia32_movmskpd256((far_f64x4)beyond)"),
        ("c", 32, "defined(__AVX__)", "__builtin_ia32_movmskpd256((far_f64x4)beyond)"),
        ("b", 16, "defined(__SSE2__)", "__builtin_ia32_movmskpd((far_f64x2)beyond)"),
    ),
)


def far(name: str, double: bool) -> str:
    """`name`_far_f32 or _f64 (x, near): libm's result where x is beyond the reduction in line, else `near`."""
    limit = FAR[double]
    return _corrected(name, name, double, ("x",), f"(x > {limit}) | (x < -{limit})")


def remainder(double: bool) -> str:
    """`rem_far_f32` or `_f64` (x, y, near): libm's fmod where `near` is nan, as for quotients that no integer holds; else `near`."""
    return _corrected("rem", "fmod", double, ("x", "y"), "near != near")


def _corrected(name: str, libm: str, double: bool, operands: tuple[str, ...], beyond: str) -> str:
    """The function of operands and `near` that is libm's where `beyond`.

    One function serves the widest vectors that there are, and under other names the narrower ones: these lie in the lower
    part of the same registers, and what it makes of the upper part nobody reads.
    """
    real, libm, width = ("double", libm, 64) if double else ("float", libm + "f", 32)
    function, names = f"{name}_far_f{width}", (*operands, "near")
    given = lambda kind: ", ".join(f"{kind} {operand}" for operand in names)
    one = re.sub(r"\b(x|near)\b", r"\1[k]", beyond)
    elements = ", ".join(f"{operand}[k]" for operand in operands)
    lines = [
        "#ifdef VECTOR_CALLS",
        f"{real} {libm}({', '.join([real] * len(operands))});",
        f'__attribute__((simd("notinbranch"), const)) {real} {function}({given(real)});',
        f'HIDDEN {real} {function}_scalar({given(real)}) __asm__("{function}");',
        f"HIDDEN {real} {function}_scalar({given(real)}) {{ return {beyond} ? {libm}({', '.join(operands)}) : near; }}",
    ]
    vectors, kinds = _VECTORS[double], "v" * len(names)
    for number, (letter, size, feature, test) in enumerate(vectors):
        count = size * 8 // width
        vector = f"far_f{width}x{count}"
        entry = f"_ZGV{letter}N{count}{kinds}_{function}"
        lines += [
            f"#{'elif' if number else 'if'} {feature}",
            f"typedef {real} {vector} __attribute__((vector_size({size})));",
            *(["typedef long long far_i64x8 __attribute__((vector_size(64)));"] if size * double == 64 else []),
            # Code that seldom runs, in a function of its own: the test before it then needs no stack.
            f'static __attribute__((noinline, cold, optimize("O0"))) {vector} {function}_each({given(vector)}) {{',
            f"  for (int k = 0; k < {count}; ++k)",
            f"    if ({one}) near[k] = {libm}({elements});",
            "  return near;",
            "}",
            f"HIDDEN {vector} {entry}({given(vector)}) {{",
            f"  const __typeof__(x > x) beyond = {beyond};",
            f"  return __builtin_expect({test} != 0, 0) ? {function}_each({', '.join(names)}) : near;",
            "}",
        ]
        for narrow, length, _, _ in vectors[number + 1 :]:
            alias = f"_ZGV{narrow}N{length * 8 // width}{kinds}_{function}"
            lines.append(f'HIDDEN void {alias}(void) __attribute__((alias("{entry}")));')
    in_line = "near" if len(operands) == 1 else f"{beyond} ? {libm}({', '.join(operands)}) : near"
    declared = [f"{real} {libm}({', '.join([real] * len(operands))});"] if len(operands) > 1 else []
    lines += [
        "#endif",
        "#else",
        *declared,
        f"IN_LINE {real} {function}({given(real)}) {{ return {in_line}; }}",
        "#endif",
    ]
    return "\n".join(lines)
