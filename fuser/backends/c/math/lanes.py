"""Functions written for the vectors of AVX-512, where it has instructions that no compiler makes of a function of scalars.

In: a function's name. Out: the text of `name_core_f32`, which calls `name_lanes_f32`: of vectors, by its name in the x86 vector ABI, in
vectorised loops, and of one number elsewhere, with the same bits. Where compiler or processor know no such vectors it is
`name_portable_f32`. Narrower vectors lie in the lower part of the same registers; what is made of the upper part nobody reads.
"""

from __future__ import annotations

from fuser.runtime import sources

_NARROWER = (("d", 8), ("c", 8), ("b", 4))


def lanes(name: str) -> str:
    """`name_core_f32` of two operands, by `runtime/kernels/math/<name>_avx512.h`."""
    arguments, entry = "float a, float y", f"_ZGVeN16vv_{name}_lanes_f32"
    aliases = (
        f'HIDDEN void _ZGV{letter}N{count}vv_{name}_lanes_f32(void) __attribute__((alias("{entry}")));'
        for letter, count in _NARROWER
    )
    lines = (
        "#if defined(VECTOR_CALLS) && defined(__AVX512DQ__)",
        sources.read(f"math/{name}_avx512.h"),
        *aliases,
        f'__attribute__((simd("notinbranch"), const)) float {name}_lanes_f32({arguments});',
        f'HIDDEN float {name}_lanes_f32_scalar({arguments}) __asm__("{name}_lanes_f32");',
        f"HIDDEN float {name}_lanes_f32_scalar({arguments}) {{ return {entry}(LANES(a), LANES(y))[0]; }}",
        f"IN_LINE float {name}_core_f32({arguments}) {{ return {name}_lanes_f32(a, y); }}",
        "#else",
        f"IN_LINE float {name}_portable_f32({arguments});",
        f"IN_LINE float {name}_core_f32({arguments}) {{ return {name}_portable_f32(a, y); }}",
        "#endif",
    )
    return "\n".join(lines)
