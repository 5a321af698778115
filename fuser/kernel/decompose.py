"""Scalar operations by simpler ones: what a backend's table lacks is written in what it has. Kernel → Kernel.

`DECOMPOSITIONS` says for floats, integers and truth values what each operation is made of. What is not there every table must
have: `BASE`. A table keeps what its target computes faster or more exactly; where it has everything, the kernel stays
as it is. float16 and bfloat16 are computed in float32. The errors of floating-point functions are below some ten ulp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fuser.ir import scalar as S
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, HALVES, bfloat16, is_complex, is_inexact
from fuser.kernel.kernel import Carry, Kernel, Loop, Store
from fuser.kernel.lower import Sweeping
from fuser.kernel.lower_loop import with_loop
from fuser.kernel.ranges import known_count
from fuser.kernel.substitution import Substitution
from fuser.partition.values import deep_recursion

Has = Callable[[Scalar], bool]
Rule = Callable[..., Scalar]

F32 = np.dtype("float32")

# What each table must have, by class of operands.
BASE: Mapping[str, tuple[str, ...]] = {
    "float": ("add", "mul", "div", "rem", "sqrt", "exp", "log", "sin", "cos", "atan2", "pow", "lt", "eq", "select"),
    "integer": (
        "add",
        "mul",
        "and",
        "or",
        "xor",
        "lt",
        "eq",
        "select",
        "div_unchecked",
        "shl_unchecked",
        "shr_unchecked",
    ),
    "bool": ("and", "or", "xor"),
    "any": ("cast_unchecked", "bitcast"),
}


def decompose(kernel: Kernel, has: Has) -> Kernel:
    """The kernel in operations that a target `has`; the same kernel where it has them all."""
    if all(map(has, kernel.nodes)):
        return kernel
    with deep_recursion():
        return _rebuilt(kernel, Decomposition(has))


def _rebuilt(kernel: Kernel, new: Decomposition) -> Kernel:
    inside = kernel.loop.stores if kernel.loop else ()
    after: list[Store] = [new.store(s) for s in kernel.stores if not any(s is other for other in inside)]
    if kernel.loop is None:
        return replace(kernel, sweeps=Sweeping(kernel.reduced).cut(after))
    loop = kernel.loop
    carries = tuple(Carry(new.node(c.node), new.node(c.initial), new.node(c.following), c.guard) for c in loop.carries)
    written = Loop(loop.time, carries, new.nodes(loop.predicates), (), tuple(map(new.store, inside)))
    return with_loop(kernel, written, after)


class Decomposition(Substitution):
    """Nodes with all that a target lacks decomposed; what has no decomposition stays, for the table to refuse."""

    def __init__(self, has: Has) -> None:
        super().__init__({})
        self.has = has

    def _new(self, node: Scalar) -> Scalar:
        node = super()._new(node)
        if node not in self.known:
            simpler = None if self.has(node) else decomposed(node)
            self.known[node] = node if simpler is None else self.node(simpler)
        return self.known[node]


def decomposed(node: Scalar) -> Scalar | None:
    """The value of a node by simpler operations; None where there are none."""
    dtype = node.args[1].dtype if node.op == "select" else node.args[0].dtype
    if node.op == "cast":
        return None if is_complex(dtype) or is_complex(node.dtype) else _cast(node.args[0], node.dtype)
    kind = "bool" if dtype == BOOL else "" if is_complex(dtype) else "float" if is_inexact(dtype) else "integer"
    rule = DECOMPOSITIONS.get(kind, {}).get(node.op)
    if rule is None:
        return None
    if dtype in HALVES and node.op not in _OF_BITS:
        wide = rule(*(S.cast(a, F32) if a.dtype == dtype else a for a in node.args))
        return S.cast(wide, node.dtype)
    return rule(*node.args)


# Bits.


def _signed(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"int{dtype.itemsize * 8}")


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"uint{dtype.itemsize * 8}")


def _bits(x: Scalar) -> Scalar:
    return S.bitcast(x, _unsigned(x.dtype))


def _digits(dtype: np.dtype) -> int:
    """Bits of a float's significand that are stored."""
    return {2: 10, 4: 23, 8: 52}[dtype.itemsize] if dtype != bfloat16 else 7


def _with_sign(size: Scalar, x: Scalar) -> Scalar:
    """A `size` that is not negative with the sign of `x`; `x` itself where that is a zero."""
    return S.where(x < 0, -size, S.where(x.equals(0), x, size))


# Floats: arithmetic.


def _negative(x: Scalar) -> Scalar:
    return x * -1


def _absolute(x: Scalar) -> Scalar:
    mask = S.constant((1 << (x.dtype.itemsize * 8 - 1)) - 1, _unsigned(x.dtype))
    return S.bitcast(_bits(x) & mask, x.dtype)


def _maximum(a: Scalar, b: Scalar) -> Scalar:
    """nan if either is; of zeros the positive one, whose sign bit is that of both."""
    both = S.bitcast(_bits(a) & _bits(b), a.dtype)
    return S.where(S.not_equal(a, a), a, S.where(a > b, a, S.where(S.equal(a, b), both, b)))


def _minimum(a: Scalar, b: Scalar) -> Scalar:
    either = S.bitcast(_bits(a) | _bits(b), a.dtype)
    return S.where(S.not_equal(a, a), a, S.where(a < b, a, S.where(S.equal(a, b), either, b)))


def _rounded(x: Scalar) -> Scalar:
    """To the nearest integer, of two the even one; from 2**digits on all floats are integers."""
    size, integer = S.absolute(x), _signed(x.dtype)
    few = size < float(1 << _digits(x.dtype))
    below = S.apply("cast_unchecked", S.where(few, size, 0), dtype=integer)
    whole = S.apply("cast_unchecked", below, dtype=x.dtype)
    rest = size - whole
    up = (rest > 0.5) | (rest.equals(0.5) & (below & 1).equals(1))
    return S.where(few, _with_sign(S.where(up, whole + 1, whole), x), x)


def _floor(x: Scalar) -> Scalar:
    near = S.rounded(x)
    return S.where(near > x, near - 1, near)


def _truncated(x: Scalar) -> Scalar:
    return S.where(x < 0, S.ceil(x), S.floor(x))


def _polynomial(x: Scalar, terms: list[float]) -> Scalar:
    """Σ terms[n] xⁿ, by Horner's scheme."""
    total = S.constant(terms[-1], x.dtype)
    for term in terms[-2::-1]:
        total = total * x + term
    return total


def _power_of_two(n: Scalar) -> Scalar:
    """2**n of an integer in a float, which a normal number holds."""
    digits, integer = _digits(n.dtype), _signed(n.dtype)
    bias = (1 << (n.dtype.itemsize * 8 - digits - 2)) - 1
    biased = S.cast(n, integer) + bias
    return S.bitcast(S.shift_left(biased, S.constant(digits, integer)), n.dtype)


def _exp2(x: Scalar) -> Scalar:
    most = 150.0 if x.dtype == F32 else 1100.0
    near = S.minimum(S.maximum(x, -most), most)
    whole = S.rounded(near)
    half = S.floor(whole * 0.5)  # in two steps, so that subnormal results are rounded once
    return S.exp((near - whole) * math.log(2)) * _power_of_two(half) * _power_of_two(whole - half)


def _expm1(x: Scalar) -> Scalar:
    """Σ xⁿ / n! near 0, where exp(x) - 1 would cancel."""
    near = S.absolute(x) < 0.5
    small = S.where(near, x, 0)
    series = _polynomial(small, [1 / math.factorial(n) for n in range(1, 15)]) * small
    return S.where(near, S.where(x.equals(0), x, series), S.exp(x) - 1)


def _log1p(x: Scalar) -> Scalar:
    """2 artanh(x / (2 + x)) near 0, by its series, where 1 + x would be rounded."""
    near = (x > math.sqrt(0.5) - 1) & (x < math.sqrt(2) - 1)
    s = S.where(near, x, 0)
    s = s / (s + 2)
    series = _polynomial(s * s, [2 / (2 * n + 1) for n in range(12)]) * s
    return S.where(near, S.where(x.equals(0), x, series), S.log(x + 1))


def _sinh(x: Scalar) -> Scalar:
    size = S.absolute(x)
    half = S.exp(size * 0.5)
    small = S.expm1(S.where(size < 1, size, 0))
    value = S.where(size < 1, (small + small / (small + 1)) * 0.5, half * 0.5 * half - 0.5 / half / half)
    return _with_sign(value, x)


def _cosh(x: Scalar) -> Scalar:
    half = S.exp(S.absolute(x) * 0.5)
    return half * 0.5 * half + 0.5 / half / half


def _tanh(x: Scalar) -> Scalar:
    e = S.expm1(S.absolute(x) * -2)
    return _with_sign(-e / (e + 2), x)


def _asin(x: Scalar) -> Scalar:
    return S.atan2(x, S.sqrt((1 - x) * (1 + x)))


def _acos(x: Scalar) -> Scalar:
    return S.atan2(S.sqrt((1 - x) * (1 + x)), x)


def _atan(x: Scalar) -> Scalar:
    return S.atan2(x, S.constant(1, x.dtype))


_FAR = 1e10  # from which on x² + 1 is x²
_LN2 = math.log(2)


def _asinh(x: Scalar) -> Scalar:
    size = S.absolute(x)
    near = S.where(size < _FAR, size, 1)
    value = S.log1p(near + near * near / (S.sqrt(near * near + 1) + 1))
    return _with_sign(S.where(size < _FAR, value, S.log(size) + _LN2), x)


def _acosh(x: Scalar) -> Scalar:
    above = S.where(x < _FAR, x, 2) - 1
    value = S.where(x < _FAR, S.log1p(above + S.sqrt(above * 2 + above * above)), S.log(x) + _LN2)
    return S.where(x < 1, math.nan, value)


def _atanh(x: Scalar) -> Scalar:
    size = S.absolute(x)
    return _with_sign(S.log1p(size * 2 / (1 - size)) * 0.5, x)


def _cbrt(x: Scalar) -> Scalar:
    """A first guess by logarithms, then two steps of Newton's; 0, inf and nan stay as they are."""
    size = S.absolute(x)
    usual = (size > 0) & (size < math.inf)
    size = S.where(usual, size, 1)
    y = S.exp(S.log(size) * (1 / 3))
    for _ in range(2):
        y = y - (y - size / (y * y)) * (1 / 3)
    return S.where(usual, S.where(x < 0, -y, y), x)


# log(erfc(z) / t) + z² as a series of Chebyshev polynomials of 2t - 1, where t = 2 / (2 + z): the form of Press et al., Numerical
# Recipes (2007), 6.2.2, interpolated anew.
_ERFC = (
    -0.6513268598908547, 0.6419697923564901, 0.0194764732041859, -0.009561514786808912, -0.0009465953444819655,
    0.0003668394978524889, 4.252332480684891e-05, -2.0278578112804594e-05, -1.624290004385956e-06,
    1.3036558351416763e-06, 1.562644236487422e-08, -8.523809671747336e-08, 6.5290551961829894e-09,
    5.059342736424277e-09, -9.913633820750282e-10, -2.2736617783987085e-10, 9.646919220242091e-11,
    2.3927088448421144e-12, -6.884850007491559e-12, 8.93363829414908e-13, 3.1399175954767074e-13,
    -1.1369557558801354e-13, 1.3286696845629768e-15, 6.315421436837638e-15, -8.838094865013688e-16,
)  # fmt: skip
_FLOAT32_TERMS = 13
_SERIES_TERMS = 13  # of erf below 1/2, from 2/√π on


def _erf_series(x: Scalar) -> Scalar:
    """erf on [-1/2, 1/2]: 2/√π · Σ (-1)ⁿ x²ⁿ⁺¹ / (n! (2n+1))."""
    terms = [(-1) ** n * 2 / math.sqrt(math.pi) / (math.factorial(n) * (2 * n + 1)) for n in range(_SERIES_TERMS)]
    return _polynomial(x * x, terms) * x


def _erfc_above(z: Scalar) -> Scalar:
    """erfc from 0 on; the square in two parts, of which the first is exact."""
    t = 2 / (z + 2)
    u = t * 2 - 1
    later, last = S.constant(0, z.dtype), S.constant(0, z.dtype)
    for term in reversed(_ERFC[1 : _FLOAT32_TERMS if z.dtype == F32 else None]):  # Clenshaw's recurrence
        later, last = u * 2 * later - last + term, later
    total = u * later - last + _ERFC[0]
    head = S.rounded(S.minimum(z, 40.0) * 16) * (1 / 16)
    return t * S.exp(-head * head) * S.exp(total - (z - head) * (z + head))


def _erfc(x: Scalar) -> Scalar:
    size = S.absolute(x)
    above = _erfc_above(size)
    near = size < 0.5
    return S.where(near, 1 - _erf_series(S.where(near, x, 0)), S.where(x < 0, 2 - above, above))


def _erf(x: Scalar) -> Scalar:
    size = S.absolute(x)
    near = size < 0.5
    return S.where(near, _erf_series(S.where(near, x, 0)), _with_sign(1 - _erfc_above(size), x))


_LANCZOS = (  # g = 7, 9 terms
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def _lgamma(x: Scalar) -> Scalar:
    """Lanczos' approximation, reflected below 1/2; its error is absolute near the zeros at 1 and 2."""
    below = x < 0.5
    z = S.where(below, 1 - x, x) - 1
    total = S.constant(_LANCZOS[0], x.dtype)
    for number, term in enumerate(_LANCZOS[1:], 1):
        total = total + term / (z + number)
    value = (S.log((z + 7.5) / math.e) * (z + 0.5) - 7) + (S.log(total) + 0.5 * math.log(2 * math.pi))
    part = S.absolute(x) - S.floor(S.absolute(x))
    sine = S.sin(S.where(part < 0.5, part, 1 - part) * math.pi)
    value = S.where(below, math.log(math.pi) - S.log(sine) - value, value)
    return S.where(S.absolute(x).equals(math.inf), math.inf, value)


def _next_after(a: Scalar, b: Scalar) -> Scalar:
    """The next float from `a` towards `b`: one unit of its bits, which are ordered as sizes are."""
    word = _unsigned(a.dtype)
    sign = S.constant(1 << (a.dtype.itemsize * 8 - 1), word)
    outwards = (a < b).equals(a > 0)
    moved = S.where(outwards, _bits(a) + 1, _bits(a) - 1)
    least = (_bits(b) & sign) | 1
    found = S.bitcast(S.where(a.equals(0), least, moved), a.dtype)
    same = S.where(S.equal(a, b), b, found)
    return S.where(S.not_equal(a, a), a, S.where(S.not_equal(b, b), b, same))


def _fma(x: Scalar, y: Scalar, z: Scalar) -> Scalar:
    """x·y + z by Dekker's product and Knuth's sum, rounded once but for numbers so large or small that these lose bits."""
    splitter = float((1 << (_digits(x.dtype) + 2) // 2) + 1)

    def split(v: Scalar) -> tuple[Scalar, Scalar]:
        big = v * splitter
        head = big - (big - v)
        return head, v - head

    (xh, xl), (yh, yl) = split(x), split(y)
    product = x * y
    low = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
    total = product + z
    part = total - product
    exact = total + (((product - (total - part)) + (z - part)) + low)
    return S.where(S.absolute(exact) < math.inf, exact, total)


# Integers.


def _in_range(a: Scalar, count: Scalar) -> Scalar:
    """Whether a count of bits is one of a shift: below the width, and not negative."""
    return _bits(count) < S.constant(a.dtype.itemsize * 8, _unsigned(count.dtype))


def _shift(op: str) -> Rule:
    """Counts below 0 or beyond the width give 0."""

    def rule(a: Scalar, count: Scalar) -> Scalar:
        if known_count(count, a.dtype.itemsize * 8):
            return S.apply(op, a, count)
        inside = _in_range(a, count)
        return S.where(inside, S.apply(op, a, S.where(inside, count, 0)), 0)

    return rule


def _shift_right_arithmetic(a: Scalar, count: Scalar) -> Scalar:
    """Counts below 0 or beyond the width leave the sign; the top bit is the sign of unsigned integers too."""
    steps = S.where(_in_range(a, count), count, a.dtype.itemsize * 8 - 1)
    negative = S.bitcast(a, _signed(a.dtype)) < 0
    return S.where(negative, ~S.apply("shr_unchecked", ~a, steps), S.apply("shr_unchecked", a, steps))


def _divide(a: Scalar, b: Scalar) -> Scalar:
    """Towards zero; x / 0 is -1, the largest number where there are no negative ones; the lowest number / -1 wraps around."""
    if a.dtype.kind == "u":
        return S.where(b.equals(0), -1, S.apply("div_unchecked", a, S.where(b.equals(0), 1, b)))
    unsafe = b.equals(0) | b.equals(-1)
    quotient = S.apply("div_unchecked", a, S.where(unsafe, 1, b))
    return S.where(b.equals(0), -1, S.where(b.equals(-1), -a, quotient))


def _ones(x: Scalar) -> Scalar:
    """The number of ones: sums of pairs of bits, of fours, of bytes, then of all bytes."""
    width, value = x.dtype.itemsize * 8, _bits(x)
    number = lambda byte: S.constant(int.from_bytes(bytes([byte]) * x.dtype.itemsize, "big"), value.dtype)
    right = lambda v, by: S.shift_right_logical(v, S.constant(by, v.dtype))
    value = value - (right(value, 1) & number(0x55))
    value = (value & number(0x33)) + (right(value, 2) & number(0x33))
    value = (value + right(value, 4)) & number(0x0F)
    return S.bitcast(right(value * number(0x01), width - 8), x.dtype)


def _leading_zeros(x: Scalar) -> Scalar:
    """Zeros above the highest one: all bits below it set, the others counted."""
    width, value = x.dtype.itemsize * 8, _bits(x)
    step = 1
    while step < width:
        value = value | S.shift_right_logical(value, S.constant(step, value.dtype))
        step *= 2
    return S.bitcast(S.popcount(~value), x.dtype)


def _cast(x: Scalar, dtype: np.dtype) -> Scalar:
    """A conversion: to truth values by ≠ 0, of floats to integers towards zero, at most to the ends of their range; nan is 0."""
    if dtype == BOOL:
        return S.not_equal(x, S.constant(0, x.dtype))
    if x.dtype == BOOL:
        return S.where(x, S.constant(1, dtype), S.constant(0, dtype))
    convert = lambda value: S.apply("cast_unchecked", value, dtype=dtype)
    if not (is_inexact(x.dtype) and dtype.kind in "iu"):
        return convert(x)
    if x.dtype in HALVES:
        x = S.cast(x, F32)
    ends = np.iinfo(dtype)
    low, high = (S.constant(end, x.dtype) for end in (ends.min, ends.max))
    above, below = x >= high, x <= low
    inside = convert(S.where((x < high) & (x > low), x, 0))
    return S.where(above, S.constant(ends.max, dtype), S.where(below, S.constant(ends.min, dtype), inside))


_ORDER: dict[str, Rule] = {  # comparisons by < and =
    "ne": lambda a, b: ~S.equal(a, b),
    "gt": lambda a, b: b < a,
    "le": lambda a, b: (a < b) | S.equal(a, b),
    "ge": lambda a, b: (b < a) | S.equal(a, b),
    "sub": lambda a, b: a + -b,
}
DECOMPOSITIONS: Mapping[str, Mapping[str, Rule]] = {
    "float": {
        **_ORDER,
        **{"neg": _negative, "abs": _absolute, "max": _maximum, "min": _minimum, "fma": _fma, "nextafter": _next_after},
        **{"round": _rounded, "floor": _floor, "ceil": lambda x: -S.floor(-x), "trunc": _truncated},
        **{"exp2": _exp2, "expm1": _expm1, "log1p": _log1p, "log2": lambda x: S.log(x) * (1 / _LN2), "cbrt": _cbrt},
        **{"tan": lambda x: S.sin(x) / S.cos(x), "asin": _asin, "acos": _acos, "atan": _atan},
        **{"sinh": _sinh, "cosh": _cosh, "tanh": _tanh, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh},
        **{"erf": _erf, "erfc": _erfc, "lgamma": _lgamma},
    },
    "integer": {
        **_ORDER,
        **{"neg": lambda x: x * -1, "not": lambda x: x ^ -1, "popcount": _ones, "clz": _leading_zeros},
        "abs": lambda x: x if x.dtype.kind == "u" else S.where(x < 0, -x, x),
        "max": lambda a, b: S.where(a > b, a, b),
        "min": lambda a, b: S.where(a < b, a, b),
        **{"div": _divide, "rem": lambda a, b: a - (a / b) * b},
        **{"shl": _shift("shl_unchecked"), "shr": _shift("shr_unchecked"), "sar": _shift_right_arithmetic},
        "threefry0": lambda *words: S.threefry(*words)[0],
        "threefry1": lambda *words: S.threefry(*words)[1],
    },
    "bool": {
        **{"not": lambda x: x ^ True, "max": lambda a, b: a | b, "min": lambda a, b: a & b},
        **{"add": lambda a, b: a | b, "mul": lambda a, b: a & b},
        **{"eq": lambda a, b: ~(a ^ b), "ne": lambda a, b: a ^ b},
        **{"lt": lambda a, b: ~a & b, "le": lambda a, b: ~a | b, "gt": lambda a, b: a & ~b, "ge": lambda a, b: a | ~b},
        "select": lambda condition, a, b: (condition & a) | (~condition & b),
    },
}
_OF_BITS = ("nextafter", "abs")  # of a half by its own bits
