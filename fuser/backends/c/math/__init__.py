"""The C backend's own maths: functions in line, for float and double, that compilers turn into vector code.

In: the names that kernels use. Out: the functions of these names, with all that they use. The files beside this one hold the
functions, one each for float and double and one, `width.h`, for both, whose placeholders are filled in here.
"""

from __future__ import annotations

import functools
import re
from collections import Counter

from fuser.backends.c.math.lanes import lanes
from fuser.backends.c.math.range_reduction import CONDITION, FAR, far, remainder
from fuser.runtime import sources

# The functions of one operand and of two that kernels may name, as `<name>_f32` and `<name>_f64`.
UNARY = (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "cbrt", "erf", "erfc", "lgamma",
)  # fmt: skip
BINARY = ("pow", "atan2", "nextafter", "rem")

# What stands in width.h for each of the two.
_COMMON = {
    "EXP_LEAST": ("-87.33654f", "-708.3964185322641"),  # log SMALLEST, rounded up
    "EXP_MOST": ("88.72283f", "709.782712893384"),  # the largest number whose exponential is finite
    "EXP2_MOST": ("0x1.fffffep6f", "0x1.fffffffffffffp9"),
    "EXP_LOW": ("-104.0f", "-746.0"),
    "EXP_HIGH": ("89.0f", "710.0"),
    "EXP2_LOW": ("-151.0f", "-1076.0"),
    "EXPM1_LOW": ("-18.0f", "-40.0"),
    "SINH_HIGH": ("89.5f", "710.5"),
    "EPSILON": ("0x1p-26f", "0x1p-55"),
    "MINUS_TWO": ("0xc0000000u", "0xc000000000000000u"),
    "LN2_HIGH": ("0x1.62e43p-1f", "0x1.62e42fefa39efp-1"),
    "LN2_LOW": ("-0x1.05c61p-29f", "0x1.abc9e3b39803fp-56"),
    "LOG2E_HIGH": ("0x1.715476p+0f", "0x1.71547652b82fep+0"),
    "LOG2E_LOW": ("0x1.4ae0c0p-26f", "0x1.777d0ffda0d24p-56"),
    "SMALLEST": ("0x1p-126f", "0x1p-1022"),
    "LOWEST": ("149", "1074"),  # the smallest number is 2^-LOWEST
    "LIFT": ("0x1p25f", "0x1p54"),
    "LIFTED": ("25", "54"),
    "ONE": ("0x3f800000u", "0x3ff0000000000000u"),
    "ROOT_HALF": ("0x3f3504f3u", "0x3fe6a09e667f3bcdu"),
    "MANTISSA": ("0x7fffffu", "0xfffffffffffffu"),
    "TWO_DIGITS_BITS": ("0x4b000000u", "0x4330000000000000u"),
    "TWO_DIGITS": ("0x1p23f", "0x1p52"),
    "HUGE_SUM": ("0x1p30f", "0x1p60"),
    "PI_HALF_HIGH": ("0x1.921fb6p+0f", "0x1.921fb54442d18p+0"),
    "PI_HALF_LOW": ("-0x1.777a5cp-25f", "0x1.1a62633145c07p-54"),
    "PI_HALF_LEAST": ("-0x1.ee59dap-50f", "-0x1.f1976b7ed8fbcp-110"),
    "ERFC_POLE": ("2.0f", "3.0"),
    "ERF_HIGH": ("4.0f", "6.0"),
    "ERFC_HIGH": ("10.5f", "28.0"),
    "SMALL_GAMMA": ("0x1p-40f", "0x1p-80"),
    "FAR": FAR,
    "MAGIC": ("0x1.8p23f", "0x1.8p52"),
    "BIAS": ("127", "1023"),
    "DIGITS": ("23", "52"),
    "WIDTH": ("32", "64"),
    "real": ("float", "double"),
    "word": ("uint32_t", "uint64_t"),
}
_PLACEHOLDER = re.compile(rf"(?<![A-Za-z_])(?:{'|'.join(sorted(_COMMON, key=len, reverse=True))})(?![A-Za-z_])")
_OURS = re.compile(r"\w+_f(?:32|64)\b")
_START = f"""#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || (defined(__FP_FAST_FMA) && defined(__FP_FAST_FMAF))
#define FAST_FMA
#endif
{CONDITION}
#define IN_LINE static inline __attribute__((always_inline))
#ifdef VECTOR_CALLS
#define APART static __attribute__((simd("notinbranch"), const, noinline))
#else
#define APART IN_LINE
#endif"""
LONG = 13  # coefficients of a polynomial that takes one step of Estrin's scheme; longer ones take two
MANY = 8  # calls in a text above which a function is compiled once, for scalars and for vectors, and called


def _filled(text: str, double: bool) -> str:
    """The text of width.h for one width."""
    values = {
        name: f"({pair[double]})" if pair[double].startswith("-") else pair[double] for name, pair in _COMMON.items()
    }
    text = _PLACEHOLDER.sub(lambda match: values[match[0]], text)
    text = re.sub(r"(?<=[\d.])w\b", "" if double else "f", text)
    return re.sub(r"_w\b", "_f64" if double else "_f32", text).replace("@", "" if double else "f")


def _polynomial(match: re.Match[str]) -> str:
    """A polynomial, its coefficients from the highest power on: one step of Estrin's scheme, or two, which makes chains of
    operations short, then Horner's in the square or the fourth power, which multiplies few powers. The last two steps, which
    decide the rounding, are Horner's in the variable itself."""
    variable, *coefficients = (part.strip() for part in match[2].split(","))
    suffix, letter = ("_f64", "") if match[1] == "64" else ("_f32", "f")

    def horner(terms: list[str], variable: str) -> str:
        return functools.reduce(lambda total, c: f"mad{suffix}({total}, {variable}, {c})", terms)

    def estrin(terms: list[str], variable: str, steps: int) -> str:
        if not steps or len(terms) < 3:
            return horner(terms, variable)
        odd = len(terms) % 2
        pairs = [horner(terms[k : k + 2], variable) for k in range(odd, len(terms), 2)]
        return estrin(terms[:odd] + pairs, f"({variable} * {variable})", steps - 1)

    terms = [c + letter for c in coefficients]
    return horner([estrin(terms[:-2], variable, 1 + (len(terms) > LONG)), *terms[-2:]], variable)


@functools.cache
def functions(double: bool) -> dict[str, str]:
    """Every function's text by its name, each after those that it calls: those for double, or those for float."""
    found: dict[str, str] = {}
    own = sources.read("math/float64.h" if double else "math/float32.h")
    text = _filled(own + "\n" + sources.read("math/width.h"), double)
    text = re.sub(r"\bPOLY\(", "POLY64(" if double else "POLY32(", text)
    text = re.sub(r"\bPOLY(32|64)\(([^)]*)\)", _polynomial, text)
    for part in text.split("\n\n"):
        lines = [line for line in part.splitlines() if not line.startswith("//")]
        if lines and lines[0].startswith("inline"):
            found[re.search(r"(\w+)\(", lines[0]).group(1)] = "\n".join(["IN_LINE" + lines[0][6:], *lines[1:]])  # type: ignore[union-attr]
    width = "f64" if double else "f32"
    return (
        found
        | {f"{name}_far_{width}": far(name, double) for name in ("sin", "cos", "tan")}
        | {f"rem_far_{width}": remainder(double)}
        | {f"pow_core_{width}": lanes("pow", double)}
    )


@functools.cache
def _calls(name: str) -> frozenset[str]:
    """The functions that one of these calls."""
    return frozenset(_OURS.findall(functions(name.endswith("_f64"))[name])) - {name}


def used(names: Counter[str]) -> list[str]:
    """What must stand before a text that calls functions of this package; nothing, where it calls none. `names` says how often
    the text names what stands elsewhere.

    A call costs a loop of few functions some 10 %; but in a long kernel a compiler spends all its time on what is in line.
    """
    wanted: set[str] = set()
    stack = [name for name in names if name.endswith(("_f32", "_f64"))]
    while stack:
        name = stack.pop()
        if name not in wanted and name in functions(name.endswith("_f64")):
            wanted.add(name)
            stack += _calls(name)
    if not wanted:
        return []
    both = [double for double in (True, False) if any(word.endswith("_f64") is double for word in wanted)]
    texts = {name: found for double in both for name, found in functions(double).items()}
    apart = [texts[name] for name in texts if name in wanted and texts[name].startswith("#")]
    inside = [
        texts[name].replace("IN_LINE", "IN_LINE" if names[name] <= MANY else "APART", 1)
        for name in texts
        if name in wanted and not texts[name].startswith("#")
    ]
    return [_START, *apart, *(text.split(" {")[0] + ";" for text in inside), *inside]
