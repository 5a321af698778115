"""Quotients, reciprocals and roots of float32 numbers, rounded to nearest, of which a thread computes several with one branch for all.

NVIDIA's own sequences of instructions, with a test of their operands' range that nan passes: an approximation, Newton's step, and a correction by what
remains (Markstein). An instruction that rounds takes a branch for each number, between which nothing is moved; and its slow path for nan, and
for roots of negative numbers. Where a number of a pack lies outside of the range, all of them take these instructions.
"""

from __future__ import annotations

from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS

PACK = 4  # numbers of a pack
# Operations of float32 and how a kernel that has a constant PTX spells them.
QUOTIENT, RECIPROCAL, ROOT = "packed_quotient({0}, {1}, PTX)", "packed_reciprocal({1}, PTX)", "packed_root({0}, PTX)"

# PTX of one number, of which {o} is the result, {x} and {y} are the operands: predicate p says that the number lies outside of the range.
_DIVISION = (
    "rcp.approx.ftz.f32 r{n}, {y}",
    "neg.f32 m{n}, {y}",
    "mul.rn.f32 q{n}, {x}, r{n}",
    "abs.f32 a{n}, {x}",
    "abs.f32 b{n}, q{n}",
    "setp.lt.f32 p{n}, a{n}, 0f0D800000",  # 2**-100: what remains of smaller numbers is not exact
    "setp.lt.or.f32 p{n}, b{n}, 0f0D800000, p{n}",
    "setp.gt.or.f32 p{n}, b{n}, 0f7E800000, p{n}",  # 2**126
    "fma.rn.f32 e{n}, r{n}, m{n}, 0f3F800000",
    "fma.rn.f32 r{n}, r{n}, e{n}, r{n}",
    "mul.rn.f32 q{n}, {x}, r{n}",
    "fma.rn.f32 e{n}, q{n}, m{n}, {x}",
    "fma.rn.f32 {o}, r{n}, e{n}, q{n}",
)
_RECIPROCAL = (
    "rcp.approx.ftz.f32 r{n}, {x}",
    "neg.f32 m{n}, {x}",
    "abs.f32 a{n}, r{n}",
    "setp.lt.f32 p{n}, a{n}, 0f01000000",  # 2**-125
    "setp.gt.or.f32 p{n}, a{n}, 0f7E800000, p{n}",
    "fma.rn.f32 e{n}, r{n}, m{n}, 0f3F800000",
    "fma.rn.f32 {o}, r{n}, e{n}, r{n}",
)
_ROOT = (
    "rsqrt.approx.ftz.f32 r{n}, {x}",
    "abs.f32 a{n}, {x}",
    "setp.lt.f32 p{n}, a{n}, 0f0D800000",
    "setp.gt.or.f32 p{n}, {x}, 0f7F000000, p{n}",  # 2**127
    "mul.rn.f32 q{n}, {x}, r{n}",
    "mul.rn.f32 b{n}, r{n}, 0f3F000000",
    "neg.f32 m{n}, q{n}",
    "fma.rn.f32 e{n}, m{n}, q{n}, {x}",
    "fma.rn.f32 {o}, e{n}, b{n}, q{n}",
)


def _pack(steps: tuple[str, ...], rounding: str, operands: int) -> str:
    """The PTX of a pack, as lines of a string in Python."""
    names = [
        {"n": n, "o": f"${n}", "x": f"${PACK + n}", "y": f"${2 * PACK + n}" if operands == 2 else ""}
        for n in range(PACK)
    ]
    lines = [f".reg .pred p<{PACK}>; .reg .f32 r<{PACK}>, e<{PACK}>, q<{PACK}>, m<{PACK}>, a<{PACK}>, b<{PACK}>;"]
    lines += ["; ".join(step.format(**own) for step in steps) + ";" for own in names]
    lines += [" ".join(f"or.pred p0, p0, p{n};" for n in range(1, PACK)) + " @!p0 bra DONE;"]
    lines += [" ".join(rounding.format(**own) for own in names), "DONE:"]
    return "\n".join(f'            "{line} "' for line in ["{", *lines, "}"])


def _helper(name: str, operands: str, steps: tuple[str, ...], rounding: str, other: str) -> str:
    count = operands.count(",") + 1
    constraints = ",".join(["=&f"] * PACK + ["f"] * (PACK * count))
    return f"""def {name}({operands}, PTX: tl.constexpr):
    # Rounded to nearest: NVIDIA's sequence, for a pack of {PACK} numbers with one branch to its slow path.
    if PTX:
        x = tl.inline_asm_elementwise(
{_pack(steps, rounding, count)},
            "{constraints}", [{operands}], dtype=tl.float32, is_pure=True, pack={PACK}
        )
    else:
        x = {other}
    return x"""


HELPERS: dict[str, str] = {
    "packed_quotient": _helper("packed_quotient", "x, y", _DIVISION, "div.rn.f32 {o}, {x}, {y};", "tl.div_rn(x, y)"),
    "packed_reciprocal": _helper("packed_reciprocal", "x", _RECIPROCAL, "rcp.rn.f32 {o}, {x};", "tl.div_rn(1.0, x)"),
    "packed_root": _helper("packed_root", "x", _ROOT, "sqrt.rn.f32 {o}, {x};", "tl.sqrt_rn(x)"),
}


def packed(node: Scalar) -> str | None:
    """How an operation is spelt for a thread that has a pack of it or more; None where it is no quotient or root of float32 numbers."""
    if node.dtype != FLOATS[2] or node.op not in ("div", "sqrt"):
        return None
    if node.op == "sqrt":
        return ROOT
    numerator = node.args[0]
    return RECIPROCAL if numerator.op == "const" and numerator.attr == 1 else QUOTIENT
