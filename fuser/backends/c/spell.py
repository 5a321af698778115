"""How C spells the scalar vocabulary: types, operations, and the helpers that functions may need.

`TABLE` has one entry an operation, a function's name or an expression; `{f}` is the suffix of libm's functions ("f" for
float). A helper is written into a text only where a function names it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from fuser.backends.c import half_precision, widening
from fuser.backends.c import math as maths
from fuser.backends.c.function import Code, Number, Part, Symbol, code
from fuser.backends.table import Spelling, Table
from fuser.ir.scalar import THREEFRY_TURNS, Scalar
from fuser.ir.types import BOOL, FLOATS, INTEGERS, KEY, bfloat16, is_complex, is_inexact

# dtype: (type in memory, type of a local variable)
TYPES: dict[np.dtype, tuple[str, str]] = {
    BOOL: ("_Bool", "_Bool"),
    **{np.dtype(f"int{b}"): (f"int{b}_t", f"int{b}_t") for b in (8, 16, 32, 64)},
    **{np.dtype(f"uint{b}"): (f"uint{b}_t", f"uint{b}_t") for b in (8, 16, 32, 64)},
    np.dtype("float16"): ("uint16_t", "float"),
    bfloat16: ("uint16_t", "float"),
    np.dtype("float32"): ("float", "float"),
    np.dtype("float64"): ("double", "double"),
    np.dtype("complex64"): ("float _Complex", "float _Complex"),
    np.dtype("complex128"): ("double _Complex", "double _Complex"),
    KEY: ("uint64_t", "uint64_t"),  # the first word in the low half
}

LIBM = [name for name in (*maths.UNARY, *maths.BINARY) if name not in ("lgamma", "nextafter")]

_LIBC_COMPLEX = ("exp", "log", "sqrt") + tuple(
    f"{a}{f}{h}" for a in ("", "a") for f in ("sin", "cos", "tan") for h in ("", "h")
)
INEXACT_COMPLEX = ("expm1", "log1p")  # of complex numbers C has forms that round twice
# A product is the plain formula, as in NumPy and XLA; the operator of C would look for infinities in each.
_COMPLEX_HELPERS = [
    line.replace("~", suffix).replace("float", kind)
    for suffix, kind in (("f", "float"), ("", "double"))
    for line in (
        "static inline float _Complex multiply_complex~(float _Complex a, float _Complex b) { return __builtin_complex("
        "__real__ a * __real__ b - __imag__ a * __imag__ b, __real__ a * __imag__ b + __imag__ a * __real__ b); }",
        "static inline float _Complex power_complex~(float _Complex a, float _Complex b) { "
        "return b == 0 ? 1 : a == 0 && __real__ b > 0 ? 0 : cpow~(a, b); }",
    )
]


# Processors have no vectors of integer quotients. Rounding towards zero, a quotient of two numbers of n bits is the one of floats
# of 2n bits and more: a / b is at least 1 / b from any other integer, and its distance to the float nearest it is less. The
# remainder is exact in them too. gcc makes no vectors of choices by a divisor that a loop does not change: what a divisor of 0
# gives comes of arithmetic, and -1 is no case apart. One number alone is divided as it is, which takes half as long.
ALONE = "_alone"


# The same of 64 bits, where a processor converts these in vectors: by way of doubles first the quotient and then that of what it
# leaves; what is left then is within two divisors of 0, and one step ends it.
_WIDE = """
  const int64_t by = b + (b == 0), none = -(int64_t)(b == 0), sign = a >> 63, up = by >> 63, size = (by ^ up) - up;
  const double inverse = 1.0 / (double)by;
  const int64_t first = (int64_t)((double)a * inverse), left = a - first * by;
  const int64_t second = (int64_t)((double)left * inverse), rest = left - second * by, along = (rest ^ sign) - sign;
  const int64_t below = along < 0, beyond = !below & ((uint64_t)along >= (uint64_t)size), step = (beyond - below) * ((sign ^ up) | 1);"""
# Of numbers without a sign both quotients are made a little too small, by more than all that is rounded, so that nothing is below 0.
_WIDE_UNSIGNED = """
  const uint64_t by = b + (b == 0), none = -(uint64_t)(b == 0);
  const double inverse = 1.0 / (double)by * (1 - 0x1p-50);
  const uint64_t first = (uint64_t)((double)a * inverse), left = a - first * by;
  const uint64_t second = (uint64_t)((double)left * inverse), rest = left - second * by, step = rest >= by;"""


def _integer_helpers(n: str, bits: int, alone: str) -> list[str]:
    """The quotient and the remainder as XLA has them: -1 and the dividend for divisors of 0."""
    t, signed = f"{n}_t", n[0] == "i"
    # the least number has no quotient by -1
    quotient, rest = (f"b == -1 ? ({t})-a : a / b", "b == -1 ? 0 : a % b") if signed else ("a / b", "a % b")
    bodies = [f"return b == 0 ? ({t})-1 : {quotient};", f"return b == 0 ? a : {rest};"]
    if bits < 64 and not alone:  # quotients by a constant have vectors, of bytes too; remainders of those have none
        bodies[1] = f"return b == 0 ? a : {rest.replace('a % b', f'({t})(a - a / b * b)')};"
    if bits < 64 and not alone:
        float_, w = ("double", "") if bits == 32 else ("float", "f")
        ratio, most = f"({float_})a / ({float_})(b + (b == 0))", f"{1 << (bits - 1)}.0{w}"
        near = f"({ratio} == {most} ? -{most} : {ratio})" if signed else f"({ratio})"
        found = [
            f"({t})(({t}){near} | -(b == 0))",
            f"({t})(({float_})a - ({float_})b * __builtin_trunc{w}({ratio}))",
        ]
        bodies = [f"if (__builtin_constant_p(b)) {{ {body} }} return {value};" for body, value in zip(bodies, found)]
    elif not alone:
        found = ["(first + second + step) | none", "(rest - step * by) | (a & none)"]
        bodies = [
            f"\n#ifdef __AVX512DQ__{_WIDE if signed else _WIDE_UNSIGNED}\n  return {value};\n#else\n  {body}\n#endif\n"
            for body, value in zip(bodies, found)
        ]
    return [
        f"static inline {t} {name}_{n}{alone}({t} a, {t} b) {{ {body} }}"
        for name, body in zip(("divide", "remainder"), bodies)
    ]


_INTEGER_HELPERS = [
    line
    for kind in ("int", "uint")
    for bits in (8, 16, 32, 64)
    for alone in ("", ALONE)
    for line in _integer_helpers(f"{kind}{bits}", bits, alone)
]

# Of equal numbers the bits of both: they differ for zeros alone. What is chosen are bits: gcc makes vectors of that, and takes a fifth of the time
# over a maximum of maxima that it takes over choices of numbers, each of which it looks for in all those before. Of a test that is itself chosen it makes a branch.
_EXTREMES = [
    f"static inline {t} {name}_of_{t}({t} a, {t} b) {{ union {{ {t} f; uint{bits}_t i; }} x = {{ a }}, y = {{ b }}; const uint{bits}_t "
    f"r = a {order} b ? x.i : y.i, e = r {sign} (a == b ? x.i : {neutral}); x.i = a != a ? x.i : e; return x.f; }}"
    for t, bits in (("float", 32), ("double", 64))
    for name, order, sign, neutral in (("maximum", ">", "&", f"~(uint{bits}_t)0"), ("minimum", "<", "|", "0"))
]

# The same of numbers alone, without branches on which of two is the greater, which nobody can predict. AVX-512's own instruction
# orders zeros, but prefers numbers to nan.
_EXTREMES += [
    f"static inline {t} {name}_of_{t}_alone({t} a, {t} b) {{\n#ifdef __AVX512DQ__\n"
    f'{t} r; __asm__("vrange{s} ${mode}, %2, %1, %0\\n\\tvcmp{s} $3, %2, %1, %%k1\\n\\tvadd{s} %2, %1, %0%{{%%k1%}}" '
    f': "=&v"(r) : "v"(a), "v"(b) : "k1"); return r;\n#else\n'
    f"typedef {t} f __attribute__((vector_size(16))); typedef int{bits}_t i __attribute__((vector_size(16))); "
    f"const f x = {{ a }}, y = {{ b }}; const i first = x {order} y, same = x == y, none = x != x; "
    f"i r = (i)x & first | (i)y & ~first; r = ((i)x {sign} (i)y) & same | r & ~same; r = (i)x & none | r & ~none; return ((f)r)[0];\n"
    "#endif\n}"
    for t, s, bits in (("float", "ss", 32), ("double", "sd", 64))
    for name, order, sign, mode in (("maximum", ">", "&", 5), ("minimum", "<", "|", 4))
]

# What a reduction holds after a value: nan once there was one. A choice by order alone is one instruction, made before that for nan.
_TAKEN_IN = [
    f"static inline {t} {name}_held_of_{t}({t} x, {t} held) {{ const {t} r = x {order} held ? x : held; return x != x ? x : r; }}"
    for t in ("float", "double")
    for name, order in (("maximum", ">"), ("minimum", "<"))
]

# What int32_t holds is converted by way of it, and brought within bounds before: gcc makes vectors of that, and of choices
# after it several for each. nan is 0.
_SATURATED = [
    f"static inline {n}{bits}_t {n}{bits}_of_{t}({t} x) {{ {known}x = x > {low} ? x : {low}; x = x < {high} ? x : {high}; "
    f"return ({n}{bits}_t)(int32_t)x; }}"
    for t in ("float", "double")
    for n, known in (("uint", ""), ("int", "x = x == x ? x : 0; "))
    for bits in (8, 16)
    for low, high in [(0, 2**bits - 1) if n == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)]
]

HELPERS: dict[str, str] = {
    line[: line.index("(")].split()[-1]: line  # by the name of the function
    for line in [
        *_INTEGER_HELPERS,
        *_COMPLEX_HELPERS,
        "static inline float float_of_bits(uint32_t x) { union { uint32_t i; float f; } u = { x }; return u.f; }",
        "static inline uint32_t bits_of_float(float x) { union { float f; uint32_t i; } u = { x }; return u.i; }",
        "static inline double double_of_bits(uint64_t x) { union { uint64_t i; double f; } u = { x }; return u.f; }",
        "static inline uint64_t bits_of_double(double x) { union { double f; uint64_t i; } u = { x }; return u.i; }",
        *_EXTREMES,
        *_TAKEN_IN,
        *_SATURATED,
    ]
}


def _threefry(word: int) -> str:
    """One word of Threefry-2x32 with 20 rounds; where a kernel needs both, gcc finds that they are computed together."""
    lines = [
        f"static inline __attribute__((always_inline)) uint32_t threefry{word}"
        "(uint32_t k0, uint32_t k1, uint32_t x0, uint32_t x1) {",
        "  const uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu;",
        "  x0 += k0; x1 += k1;",
    ]
    for number, turns in enumerate(THREEFRY_TURNS):
        for turn in turns:
            lines.append(f"  x0 += x1; x1 = (x1 << {turn} | x1 >> {32 - turn}) ^ x0;")
        lines.append(f"  x0 += k{(number + 1) % 3}; x1 += k{(number + 2) % 3} + {number + 1}u;")
    return "\n".join([*lines, f"  return x{word};", "}"])


HELPERS |= half_precision.HELPERS
HELPERS |= widening.HELPERS
HELPERS |= {f"threefry{word}": _threefry(word) for word in (0, 1)}

# Stores that go past the caches: memory that is only written need not be read first, a quarter or more of the traffic.
# The barrier at the end of a parallel loop makes them visible to other threads.
HELPERS["stream"] = """#if defined(__clang__) && defined(__SSE2__)
#define STREAMED 16
#define STREAM(place, value) __builtin_nontemporal_store(value, (whole *)(place))
#elif defined(__AVX512F__)
#define STREAMED 64
#define STREAM(place, value) __builtin_ia32_movntps512((float *)(place), value)
#elif defined(__AVX__)
#define STREAMED 32
#define STREAM(place, value) __builtin_ia32_movntps256((float *)(place), value)
#endif
static inline void stream(void *target, const void *source, int64_t bytes) {
#ifdef STREAMED
  typedef float whole __attribute__((vector_size(STREAMED)));
  typedef float loose __attribute__((vector_size(STREAMED), aligned(1), may_alias));
  char *t = target;
  const char *s = source;
  const int64_t gap = -(uintptr_t)t & (STREAMED - 1), head = gap < bytes ? gap : bytes;
  __builtin_memcpy(t, s, head);
  int64_t k = head;
  for (; k + STREAMED <= bytes; k += STREAMED) STREAM(t + k, (whole)*(const loose *)(s + k));
  __builtin_memcpy(t + k, s + k, bytes - k);
#else
  __builtin_memcpy(target, source, bytes);
#endif
}"""


def in_pairs(values: Sequence[Part]) -> Code:
    """The sum of values, a power of 2 of them, in pairs."""
    nodes = [code("{}", value) for value in values]
    while len(nodes) > 1:
        nodes = [code("({} + {})", a, b) for a, b in zip(nodes[::2], nodes[1::2], strict=True)]
    return nodes[0]


def _lane_sum(kind: str, count: int, itemsize: int) -> str:
    """The sum in pairs of the lanes of a vector: shuffles that swap neighbours take a quarter of the time of as many numbers alone."""
    steps = [1 << k for k in range(count.bit_length() - 1)]
    swaps = [", ".join(str(lane ^ step) for lane in range(count)) for step in steps]
    lines = [f"  v += __builtin_shufflevector(v, v, {swap});" for swap in swaps]
    alone = "".join(in_pairs([f"lanes[{number}]" for number in range(count)]))
    return "\n".join(
        [
            f"static inline __attribute__((always_inline)) {kind} {lane_sum(kind, count)}(const {kind} *lanes) {{",
            "#if defined(__clang__) || __GNUC__ >= 12",
            f"  typedef {kind} whole __attribute__((vector_size({count * itemsize}), may_alias));",
            "  whole v = *(const whole *)lanes;",
            *lines,
            "  return v[0];",
            "#else",
            f"  return {alone};",
            "#endif",
            "}",
        ]
    )


def lane_sum(kind: str, count: int) -> str:
    """The name of the helper that adds so many numbers, which are aligned as a vector."""
    return f"sum_of_{count}_{kind}s"


HELPERS |= {
    lane_sum(kind, count): _lane_sum(kind, count, size)
    for kind, size in (("float", 4), ("double", 8))
    for count in (8, 16)
}
_HALVES = {FLOATS[0]: "float16", bfloat16: "bfloat16"}


def header(used: Counter[str]) -> str:
    """What stands before the kernels: prototypes, maths and helpers, as far as `used` names them; how often each is named."""
    helpers, names = TABLE.used(used)
    lines = ["#include <stdint.h>"]
    lines += [_LIBC_PROTOTYPES[name] for name in sorted(names & _LIBC_PROTOTYPES.keys())]
    return "\n".join([*lines, *helpers, *maths.used(used)])


def _libc_prototype(name: str, suffix: str) -> str:
    kind = "float" if suffix else "double"
    arguments = f"{kind} _Complex" + (f", {kind} _Complex" if name == "pow" else "")
    return f"{kind if name == 'abs' else kind + ' _Complex'} c{name}{suffix}({arguments});"


_LIBC_PROTOTYPES = {
    f"c{n}{suffix}": _libc_prototype(n, suffix) for n in (*_LIBC_COMPLEX, "abs", "pow") for suffix in ("", "f")
}


def storage(dtype: np.dtype) -> str:
    """The C type of an element in memory."""
    return TYPES[dtype][0]


def local(dtype: np.dtype) -> str:
    """The C type of a variable that holds an element."""
    return TYPES[dtype][1]


def local_bytes(dtype: np.dtype) -> int:
    """Bytes of such a variable: halves and smaller floats are widened."""
    return {"float": 4, "double": 8}.get(local(dtype), dtype.itemsize)


def spread(kind: str, count: int) -> str:
    """The name of the helper that writes a value `count` times, as one vector of any alignment."""
    return f"spread_{count}_{kind}"


def _spread(kind: str, count: int, itemsize: int) -> str:
    vector = f"vector_size({count * itemsize}), aligned({itemsize}), may_alias"
    return (
        f"static inline __attribute__((always_inline)) void {spread(kind, count)}({kind} *to, {kind} v) {{\n"
        f"  typedef {kind} row __attribute__(({vector}));\n  *(row *)to = (row){{ {', '.join(['v'] * count)} }};\n}}"
    )


HELPERS |= {
    spread(local(dtype), 1 << k): _spread(local(dtype), 1 << k, dtype.itemsize)
    for dtype in (*INTEGERS, *FLOATS[2:])
    for k in range(2, 7)
    if dtype.itemsize << k <= 64
}


def load(dtype: np.dtype, place: Part) -> Code:
    """The value of an element in memory."""
    return code("{}({})", Symbol(f"{_HALVES[dtype]}_load"), place) if dtype in _HALVES else code(place)


def read(dtype: np.dtype, element: Part, lanes: bool = False) -> Code:
    """The value of an array's element. A bool is compared: gcc does not vectorise a choice by one that it loads as such. In a loop over
    the `lanes` of one vector it is made a wider number first: gcc would take as many lanes at once as there are bytes in a vector, which
    are more than the loop has, and then few."""
    if dtype != BOOL:
        return load(dtype, element)
    return code("(-(int)*(const unsigned char *)&{} < 0)" if lanes else "(*(const unsigned char *)&{} != 0)", element)


def store(dtype: np.dtype, value: Part) -> Code:
    """A value as it goes to memory."""
    return code("{}({})", Symbol(f"{_HALVES[dtype]}_round"), value) if dtype in _HALVES else code(value)


def held(dtype: np.dtype) -> str:
    """The type of a value in an array between loops. A bool takes 32 bits, the width of most of what it chooses."""
    return "int32_t" if dtype == BOOL else local(dtype)


def put(dtype: np.dtype, value: Part) -> Code:
    """A value as such an array holds it."""
    return code("{} ? 1 : 0" if dtype == BOOL else "{}", value)


def taken(dtype: np.dtype, element: Part) -> Part:
    """The value of an element of such an array."""
    return code("({} != 0)", element) if dtype == BOOL else element


def conversions(*dtypes: np.dtype) -> str:
    """The functions that `load` and `store` of these dtypes name."""
    names = [f"{_HALVES[d]}_{way}" for d in dict.fromkeys(dtypes) if d in _HALVES for way in ("load", "round")]
    texts = [HELPERS["float_of_bits"], HELPERS["bits_of_float"], *(half_precision.PORTABLE[n] for n in names)]
    return "".join(f"{text}\n" for text in (texts if names else []))


def literal(value: np.generic, dtype: np.dtype) -> Code:
    """A number as C reads it back as exactly the same number."""
    if dtype == BOOL:
        return Code(("1" if value else "0",))
    if is_complex(dtype):
        part = np.dtype(f"float{dtype.itemsize * 4}")
        kind = "float" if part.itemsize == 4 else "double"
        return code(
            f"__builtin_complex(({kind}){{}}, ({kind}){{}})", literal(value.real, part), literal(value.imag, part)
        )
    if is_inexact(dtype):
        return _floating(float(value), "" if dtype == FLOATS[3] else "f")
    number = int(value)
    if dtype.itemsize < 8:
        text = str(number) if number >= 0 else f"({number})"
    elif dtype.kind == "u":
        text = f"{number}ULL"
    else:
        text = f"(-{2**63 - 1}LL - 1)" if number == -(2**63) else f"({number}LL)" if number < 0 else f"{number}LL"
    return Code((text,))


def _floating(number: float, suffix: str) -> Code:
    if math.isnan(number):
        return Code((f'__builtin_nan{suffix}("")',))
    if math.isinf(number):
        return Code((f"{'-' if number < 0 else ''}__builtin_inf{suffix}()",))
    text = repr(float(np.float32(number))) if suffix else repr(number)
    kind = "float" if suffix else "double"
    if text.startswith("-"):
        return Code(("(-", Number(f"{text[1:]}{suffix}", kind), ")"))
    return Code((Number(f"{text}{suffix}", kind),))


def called(name: str, *args: Part) -> Code:
    """A call of a function that stands elsewhere."""
    return code(_CALLS[len(args)], Symbol(name), *args)


_CALLS = {count: f"{{}}({', '.join(['{}'] * count)})" for count in range(5)}


def extreme(node: Scalar, args: Sequence[Part], alone: bool = False) -> Code:
    """max and min: nan if either operand is, and 0.0 above -0.0; no test for zeros where a constant tells. `alone`: of single elements."""
    x, y = args
    if node.args[0].op == "const":
        x, y = y, x
    sign, zero = (">", "!") if node.op == "max" else ("<", "!!")
    known = [a.attr for a in node.args if a.op == "const"]
    ties = not known or any(n == 0 and np.signbit(np.float64(n)) == (node.op == "max") for n in known)
    if ties and local(dtype := node.args[0].dtype) in ("float", "double"):
        return called(f"{'maximum' if node.op == 'max' else 'minimum'}_of_{local(dtype)}{ALONE * alone}", x, y)
    if not ties and not any(np.isnan(np.float64(n)) for n in known):  # one comparison, which is false of nan
        return code(f"({{0}} {'<=' if node.op == 'max' else '>='} {{1}} ? {{1}} : {{0}})", x, y)
    tie = f" | (({{0}} == {{1}}) & {zero}__builtin_signbit({{0}}))" if ties else ""
    return code(f"(({{0}} {sign} {{1}}) | ({{0}} != {{0}}){tie} ? {{0}} : {{1}})", x, y)


def _equal(node: Scalar, args: Sequence[Part], sign: str) -> Code:
    """== and !=, of a low bit as a test of signs."""
    bit, number = node.args
    if not _is_low_bit(bit) or number.op != "const" or number.attr not in (0, 1):
        return code(f"{{}} {sign} {{}}", *args)
    return _low_bit(bit.dtype, args[0], set_=(sign == "!=") == (number.attr == 0))


def _select(node: Scalar, args: Sequence[Part]) -> Code:
    """A choice; between tests by logic, since gcc 12 has no vectors for a choice between tests of numbers of several sizes."""
    if node.dtype != BOOL:
        return code("{} ? {} : {}", *args)
    known = [bool(arg.attr) if arg.op == "const" else None for arg in node.args[1:]]
    if known in ([True, False], [False, True]):
        return code("{}" if known[0] else "!{}", args[0])
    if known[0] is not None:
        return code("({} | {})" if known[0] else "(!{} & {})", args[0], args[2])
    if known[1] is not None:
        return code("(!{} | {})" if known[1] else "({} & {})", args[0], args[1])
    return code("(({0} & {1}) | (!{0} & {2}))", *args)


def _is_low_bit(node: Scalar) -> bool:
    """Whether an integer is 0 or 1 by a mask."""
    return node.op == "and" and node.dtype.kind in "iu" and any(a.op == "const" and a.attr == 1 for a in node.args)


def _low_bit(dtype: np.dtype, bit: Part, set_: bool = True) -> Code:
    """Whether a low bit is set, or is not: gcc 12 makes a conversion to one bit of a comparison with 0, which it has no vectors for."""
    return code(f"(int{dtype.itemsize * 8}_t)-{{}} {'<' if set_ else '>='} 0", bit)


def _cast(node: Scalar, x: Part) -> Code:
    old, new = node.args[0].dtype, node.dtype
    if is_complex(old) and not is_complex(new):
        part = Scalar("input", (), np.dtype(f"float{old.itemsize * 4}"))
        return _cast(Scalar("cast", (part,), new), code("(__real__ {})", x))
    if new == BOOL:
        return _low_bit(old, x) if _is_low_bit(node.args[0]) else code("{} != 0", x)
    if old == BOOL:  # gcc vectorises a choice, not a conversion
        return code("{} ? {} : {}", x, literal(new.type(1), new), literal(new.type(0), new))
    if is_inexact(old) and new.kind in "iu":
        info = np.iinfo(new)
        wide = FLOATS[3] if old == FLOATS[3] else FLOATS[2]
        if new.itemsize < 4:
            return called(f"{new.name}_of_{local(wide)}", x)
        limits = literal(wide.type(info.max), wide), literal(wide.type(info.min), wide)
        ends = literal(new.type(info.max), new), literal(new.type(info.min), new)
        form = f"{{0}} != {{0}} ? 0 : {{0}} >= {{1}} ? {{3}} : {{0}} <= {{2}} ? {{4}} : ({storage(new)}){{0}}"
        return code(form, x, *limits, *ends)
    return _converted(node, x)


def _converted(node: Scalar, x: Part) -> Code:
    """A number that the new type holds, or a float of it."""
    old, new = node.args[0].dtype, node.dtype
    if new == FLOATS[0] and old == FLOATS[3]:
        return code("(float)(_Float16){}", x)  # by way of a float it would be rounded twice
    if new in _HALVES:
        return load(new, store(new, code("(float){}", x)))
    return code(f"({local(new)}){{}}", x)


_READERS = {
    FLOATS[2]: "bits_of_float",
    FLOATS[3]: "bits_of_double",
    FLOATS[0]: "float16_round",
    bfloat16: "bfloat16_round",
}
_MAKERS = {
    FLOATS[2]: "float_of_bits",
    FLOATS[3]: "double_of_bits",
    FLOATS[0]: "float16_load",
    bfloat16: "bfloat16_load",
}


def _bitcast(node: Scalar, x: Part) -> Code:
    old, new = node.args[0].dtype, node.dtype
    bits = called(_READERS[old], x) if old in _READERS else code(x)
    if new in _MAKERS:
        return called(_MAKERS[new], code(f"(uint{new.itemsize * 8}_t){{}}", bits))
    return code(f"({local(new)}){{}}", bits)


def _fields(dtype: np.dtype) -> dict[str, str]:
    """What depends on the type of an operation's operands."""
    suffix, bits = "" if dtype in (FLOATS[3], np.dtype("complex128")) else "f", dtype.itemsize * 8
    return {
        "f": suffix, "w": "f32" if suffix else "f64", "t": dtype.name, "t_": storage(dtype), "u": f"uint{bits}_t",
        "s": f"int{bits}_t", "bits": str(bits),
    }  # fmt: skip


def _filled(form: str, args: Sequence[Part]) -> Code:
    """A form without operands is the name of a function of them."""
    return code(form, *args) if "{" in form else called(form, *args)


def _rounded_twice(form: str, name: str) -> Spelling:
    """A function of complex numbers by another one of libc, which rounds as well."""
    return lambda node, args: code(form, Symbol(name + ("f" if node.dtype.itemsize == 8 else "")), *args)


_FLOAT: dict[str, Spelling] = {
    **{name: name + "_{w}" for name in (*maths.UNARY, *maths.BINARY, "exp_unchecked")},
    "neg": "-{0}",
    "abs": "__builtin_fabs{f}({0})",
    "floor": "__builtin_floor{f}({0})",
    "ceil": "__builtin_ceil{f}({0})",
    "trunc": "__builtin_trunc{f}({0})",
    "round": "__builtin_rint{f}({0})",
    "sqrt": "__builtin_sqrt{f}({0})",
    "fma": "__builtin_fma{f}({0}, {1}, {2})",
    "max": extreme,
    "min": extreme,
}
_INTEGER: dict[str, Spelling] = {
    "div_unchecked": "{0} / {1}",
    "shl_unchecked": "({t_})(({u}){0} << {1})",
    "shr_unchecked": "({t_})(({u}){0} >> {1})",
    "div": "divide_{t}",
    "rem": "remainder_{t}",
    "threefry0": "threefry0",
    "threefry1": "threefry1",
    "neg": "-{0}",
    "abs": "({0} < 0 ? -{0} : {0})",
    "max": "({0} > {1} ? {0} : {1})",
    "min": "({0} < {1} ? {0} : {1})",
    "not": "~{0}",
    "shl": "(({u}){1} < {bits} ? ({t_})(({u}){0} << {1}) : 0)",
    "shr": "(({u}){1} < {bits} ? ({t_})(({u}){0} >> {1}) : 0)",
    "sar": "(({t_})(({s}){0} >> (({u}){1} < {bits} ? {1} : {bits} - 1)))",
    "popcount": "__builtin_popcountll(({u}){0})",
    "clz": "({0} == 0 ? {bits} : __builtin_clzll(({u}){0}) - (64 - {bits}))",
}
_BOOL: dict[str, Spelling] = {"not": "!{0}", "max": "({0} | {1})", "min": "({0} & {1})"}
_COMPLEX: dict[str, Spelling] = {
    **{name: "c" + name + "{f}" for name in (*_LIBC_COMPLEX, "abs")},
    "pow": "power_complex{f}",
    "mul": "multiply_complex{f}",
    "expm1": _rounded_twice("({0}({1}) - 1)", "cexp"),
    "log1p": _rounded_twice("{0}(1 + {1})", "clog"),
    **{"neg": "-{0}", "conj": "~{0}", "real": "__real__ {0}", "imag": "__imag__ {0}"},
}
_ANY: dict[str, Spelling] = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"))},
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))},
    "eq": lambda node, args: _equal(node, args, "=="),
    "ne": lambda node, args: _equal(node, args, "!="),
    "select": lambda node, args: _select(node, args),
    "complex": "__builtin_complex({0}, {1})",
    "cast": lambda node, args: _cast(node, args[0]),
    "cast_unchecked": lambda node, args: _converted(node, args[0]),
    "bitcast": lambda node, args: _bitcast(node, args[0]),
}
TABLE = Table(
    "C",
    {"float": _FLOAT, "integer": _INTEGER, "bool": _BOOL, "complex": _COMPLEX, "any": _ANY},
    HELPERS,
    _fields,
    _filled,
)
