"""Functions of numbers of 16 bits, computed in float32: no more digits than such results have, by the special function unit where PTX says so.

Errors are relative and below a quarter of float16's last digit (2**-13). Exponentials of which only sums are read have a form of their own, those
of float32 too.
"""

from __future__ import annotations

from fuser.ir.types import FLOATS, bfloat16

_BOTH = {name: f"half_{name}({{0}}, PTX)" for name in ("exp", "erf", "erfc")}
# Operations of 16-bit floats by their dtype: how a kernel that has a constant PTX spells them.
FUNCTIONS = {FLOATS[0]: _BOTH, bfloat16: {**_BOTH, "tanh": "half_tanh({0}, PTX)"}}


def _of_unit(instruction: str) -> str:
    """A function of x by one instruction where PTX says so."""
    return f'tl.inline_asm_elementwise("{instruction} $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)'


def by_pairs(
    name: str, about: str, assembly: str, constraints: str, otherwise: str, dtype: str = "float32", pure: bool = True
) -> str:
    """The text of a conversion of two elements at once by PTX, and as Triton has it elsewhere."""
    return f"""def {name}(x, PTX: tl.constexpr):
    # {about}
    if PTX:
        x = tl.inline_asm_elementwise(
            "{assembly}", "{constraints}", [x], dtype=tl.{dtype}, is_pure={pure}, pack=2
        )
    else:
        x = {otherwise}
    return x"""


# Helper functions of generated files, each after those that it calls.
HELPERS: dict[str, str] = {
    "power_of_two": f"""def power_of_two(x, PTX: tl.constexpr):
    # 2**x of the special function unit, below 2**-22 off; 0 where that is below 2**-126.
    if PTX:
        x = {_of_unit("ex2.approx.ftz.f32")}
    else:
        x = tl.exp2(x)
    return x""",
    "half_exp": """def half_exp(x, PTX: tl.constexpr):
    # exp for results of 16 bits, below 2**-16 off: the square of an exponential that is never subnormal.
    if PTX:
        root = power_of_two(x * 0.7213475204444817, PTX)
        x = root * root
    else:
        x = tl.exp(x)
    return x""",
    "summed_exp": """def summed_exp(x, PTX: tl.constexpr):
    # exp(x) of x up to 0 for sums of which one term is 1, 0 below 2**-126: its error, below 2**-22 + |x| 2**-24, adds at most log(n) 2**-24 to a
    # sum of n terms, as much as pairwise summation.
    if PTX:
        x = power_of_two(x * 1.4426950408889634, PTX)
    else:
        x = tl.exp(x)
    return x""",
    "half_exp_difference": """def half_exp_difference(x, shift, PTX: tl.constexpr):
    # exp(x - shift) of bfloat16 numbers: 16 bits of log2(e) times 8 are exact, so that the difference is rounded once; 2**-17 |x - shift| off.
    if PTX:
        root = power_of_two(tl.fma(x, 0.721343994140625, shift * -0.721343994140625), PTX)
        x = root * root
    else:
        x = tl.exp(x - shift)
    return x""",
    "summed_exp_difference": """def summed_exp_difference(x, shift, PTX: tl.constexpr):
    # The same for such sums. From a large shift other numbers are so far that no scale brings them near.
    if PTX:
        scale = tl.where(tl.abs(shift) > 2.0**100, 1.44268798828125 * 2.0**-10, 1.44268798828125)
        x = power_of_two(tl.fma(x, scale, shift * (scale * -1.0)), PTX)
    else:
        x = tl.exp(x - shift)
    return x""",
    "widened_bfloat16": by_pairs(
        "widened_bfloat16",
        "A bfloat16 as a float32; two elements of one register take two instructions where PTX says so, not three.",
        "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;",
        "=r,=r,r",
        "x.to(tl.float32)",
    ),
    "rounded_bfloat16": by_pairs(
        "rounded_bfloat16",
        "The nearest bfloat16 as a float32; of two elements at once where PTX says so.",
        "{ .reg .b32 pair; cvt.rn.bf16x2.f32 pair, $3, $2; shl.b32 $0, pair, 16; and.b32 $1, pair, 0xffff0000; }",
        "=r,=r,r,r",
        "x.to(tl.bfloat16).to(tl.float32)",
    ),
    "half_tanh": f"""def half_tanh(x, PTX: tl.constexpr):
    # For results of 8 bits, 2**-11 off.
    if PTX:
        x = {_of_unit("tanh.approx.f32")}
    else:
        x = libdevice.tanh(x)
    return x""",
    "reciprocal": f"""def reciprocal(x, PTX: tl.constexpr):
    # 1 / x of the special function unit, 1 ulp off, for x from 1 on.
    if PTX:
        x = {_of_unit("rcp.approx.ftz.f32")}
    else:
        x = 1.0 / x
    return x""",
    "erfc_above": """def erfc_above(x, PTX: tl.constexpr):
    # erfc(x) from 0 on: exp(-x**2) times a polynomial of 1 / (1 + 0.46 x), by minimax.
    t = reciprocal(tl.fma(x, 0.46, 1.0), PTX)
    p = tl.fma(t, -0.12635239, 0.24180234)
    p = tl.fma(t, p, 0.12545011)
    p = tl.fma(t, p, 0.24052432)
    p = tl.fma(t, p, 0.25903428)
    p = tl.fma(t, p, 0.25953172) * t
    root = power_of_two(x * -0.7213475204444817 * x, PTX)
    return p * root * root""",
    "half_erfc": """def half_erfc(x, PTX: tl.constexpr):
    above = erfc_above(tl.abs(x), PTX)
    return tl.where(x < 0, 2.0 - above, above)""",
    "half_erf": """def half_erf(x, PTX: tl.constexpr):
    # Near 0 an odd polynomial, by minimax.
    size = tl.abs(x)
    square = x * x
    near = tl.fma(square, tl.fma(square, 0.10328128, -0.37524197), 1.12836683) * size
    found = tl.where(size < 0.5, near, 1.0 - erfc_above(size, PTX))
    return tl.where(x < 0, found * -1.0, found)""",
}
