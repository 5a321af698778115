"""Functions written for the vectors of AVX-512, where it has instructions that no compiler makes of a function of scalars.

In: a function's name. Out: the text of `name_core_f32` or `_f64`, which calls `name_lanes_f32`: of vectors, by its name in the x86 vector ABI, in
vectorised loops, and of one number elsewhere, with the same bits. Where compiler or processor know no such vectors it is
`name_portable_f32`. Narrower vectors lie in the lower part of the same registers; what is made of the upper part nobody reads.
"""

from __future__ import annotations

import re

from fuser.runtime import sources

_NARROWER = (("d", 32), ("c", 32), ("b", 16))  # letters of the ABI, bytes


def lanes(name: str, double: bool) -> str:
    """`name_core_f32` or `_f64` of two operands, by `runtime/kernels/math/<name>_avx512.h` and what it has of its own for each width."""
    real, width = ("double", 64) if double else ("float", 32)
    arguments, function = f"{real} a, {real} y", f"{name}_lanes_f{width}"
    entry = lambda letter, size: f"_ZGV{letter}N{size * 8 // width}vv_{function}"
    aliases = (
        f'HIDDEN void {entry(letter, size)}(void) __attribute__((alias("{entry("e", 64)}")));'
        for letter, size in _NARROWER
    )
    lines = (
        "#if defined(VECTOR_CALLS) && defined(__AVX512DQ__)",
        _vectors(name, double, entry("e", 64)),
        *aliases,
        f'__attribute__((simd("notinbranch"), const)) {real} {function}({arguments});',
        f"IN_LINE {real} {name}_core_f{width}({arguments}) {{ return {function}(a, y); }}",
        "#else",
        f"IN_LINE {real} {name}_portable_f{width}({arguments});",
        f"IN_LINE {real} {name}_core_f{width}({arguments}) {{ return {name}_portable_f{width}(a, y); }}",
        "#endif",
    )
    return "\n".join(lines)


def _vectors(name: str, double: bool, entry: str) -> str:
    """The function of whole vectors under the name `entry`, and of one number; its macros end with it."""
    values = {"REAL": ("float", "double"), "INTEGER": ("int", "long long"), "SUFFIX": ("ps", "pd")}
    width = f"float{64 if double else 32}"
    text = "\n".join(
        sources.read(f"math/{file}.h") for file in ("lanes_avx512", f"{name}_{width}_avx512", f"{name}_avx512")
    )
    for placeholder, pair in values.items():
        text = text.replace(placeholder, pair[double])
    text = re.sub(r"_w\b", "_f64" if double else "_f32", text).replace("ENTRY", entry)
    macros = re.findall(r"^#define (\w+)", text, re.MULTILINE)
    return "\n".join([text, *(f"#undef {macro}" for macro in macros)])
