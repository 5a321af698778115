"""How Triton spells the scalar vocabulary: types, operations, and the helper functions that a text may need.

`TABLE` has one entry an operation. float16 and bfloat16 are computed in float32 and rounded where they are stored or
converted. A helper is written into a file only where its name occurs. libdevice stands for NVIDIA's and AMD's device
libraries alike.
"""

from __future__ import annotations

import math

import numpy as np

from fuser.backends.table import Spelling, Table, words
from fuser.backends.triton import exact_packs, half_precision, half_row_buffers
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, FLOATS, KEY, bfloat16, float8_e4m3fn, float8_e5m2, is_inexact
from fuser.ops.float8 import FORMATS

F16, F32, F64 = FLOATS[0], FLOATS[2], FLOATS[3]

# dtype: (type in memory, type of a value in registers)
TYPES: dict[np.dtype, tuple[str, str]] = {
    BOOL: ("tl.int1", "tl.int1"),
    **{np.dtype(f"{s}int{b}"): (f"tl.{s}int{b}", f"tl.{s}int{b}") for s in ("", "u") for b in (8, 16, 32, 64)},
    F16: ("tl.float16", "tl.float32"),
    bfloat16: ("tl.bfloat16", "tl.float32"),
    F32: ("tl.float32", "tl.float32"),
    F64: ("tl.float64", "tl.float64"),
    KEY: ("tl.uint64", "tl.uint64"),  # the first word in the low half
    **dict.fromkeys(FORMATS, ("tl.uint8", "tl.uint8")),  # their bits
}

LIBDEVICE = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "lgamma",
    "trunc",
]

_FLOAT: dict[str, Spelling] = {
    **{name: f"libdevice.{name}({{0}})" for name in LIBDEVICE},
    "pow": "libdevice.pow({0}, {1})",
    "atan2": "libdevice.atan2({0}, {1})",
    "rem": "libdevice.fmod({0}, {1})",
    "nextafter": "libdevice.nextafter({0}, {1})",
    "round": "libdevice.rint({0})",
    "cbrt": "cube_root({0})",
    "fma": "tl.fma({0}, {1}, {2})",
    "neg": "{0} * -1.0",  # Triton negates by 0 - x, which loses the sign of zero
    "abs": "tl.abs({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "sqrt": "tl.sqrt_rn({0})",
    "div": "tl.div_rn({0}, {1})",
    "max": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "min": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
}
_DOUBLE: dict[str, Spelling] = {"sqrt": "tl.sqrt({0})", "div": "{0} / {1}"}
_HALF: dict[str, Spelling] = {"div": "{0} / {1}"}  # of float32, 2 ulp off
_INTEGER: dict[str, Spelling] = {
    "div_unchecked": "{0} // {1}",
    "shl_unchecked": "{0} << {1}",
    "shr_unchecked": "({0}.to({u}, bitcast=True) >> {1}.to({u}, bitcast=True)).to({t}, bitcast=True)",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "div": "divide_signed({0}, {1})",
    "rem": "remainder_signed({0}, {1})",
    "max": "tl.maximum({0}, {1})",
    "min": "tl.minimum({0}, {1})",
    "not": "~{0}",
    "shl": "shift_left({0}, {1}, {bits})",
    "shr": "shift_right({0}.to({u}, bitcast=True), {1}, {bits}).to({t}, bitcast=True)",
    "sar": "shift_right_signed({0}, {1}, {bits})",
    "popcount": "libdevice.popc({word}).to({t})",
    "clz": "(libdevice.clz({word}) - {spare}).to({t})",
}
_UNSIGNED: dict[str, Spelling] = {
    "not": "(~{0}.to({i}, bitcast=True)).to({t}, bitcast=True)",
    "div": "divide_unsigned({0}, {1})",
    "rem": "remainder_unsigned({0}, {1})",
    "shr": "shift_right({0}, {1}, {bits})",
    "sar": "shift_right({0}, {1}, {bits})",
    "threefry0": "threefry({0}, {1}, {2}, {3})[0]",
    "threefry1": "threefry({0}, {1}, {2}, {3})[1]",
}
_BOOL: dict[str, Spelling] = {
    "not": "{0} == 0",
    "max": "{0} | {1}",
    "min": "{0} & {1}",
    **{
        name: f"{{0}}.to(tl.int32) {sign} {{1}}.to(tl.int32)"
        for name, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    },
}
_ANY: dict[str, Spelling] = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    **{
        name: f"{{0}} {sign} {{1}}"
        for name, sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    },
    "select": "tl.where({0}, {1}, {2})",
    "cast": lambda node, args: _cast(node, args[0]),
    "cast_unchecked": lambda node, args: _converted(node, args[0]),
    "bitcast": lambda node, args: _bitcast(node, args[0]),
}
INFIX = frozenset(("add", "sub", "mul", "and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge"))

# Helper functions of generated files, in an order in which each comes after those that it calls.
HELPERS: dict[str, str] = {
    "from_fp8e4nv": """def from_fp8e4nv(x):
    bits = x.to(tl.uint16)
    half = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True) * 256.0
    return tl.where((bits & 0x7F) == 0x7F, float("nan"), half).to(tl.float16)""",
    "from_fp8e5": """def from_fp8e5(x):
    return (x.to(tl.uint16) << 8).to(tl.float16, bitcast=True)""",
    "opaque": """def opaque(x, MOVE: tl.constexpr, REGISTERS: tl.constexpr):
    # An int32 of which compilers know nothing: with a text of its own the branch that it is found in stays a branch.
    return tl.inline_asm_elementwise(MOVE, REGISTERS, [x], dtype=tl.int32, is_pure=False, pack=1)""",
    "scalar_of": """def scalar_of(x):
    # A number that is a parameter itself, or lies in memory.
    if x.dtype.is_ptr():
        x = tl.load(x)
    return x""",
    "floor_div": """def floor_div(a, b):
    # Rounded down, for a positive b; // rounds towards zero.
    return a // b - (a % b < 0).to(tl.int32)""",
    "divide_signed": """def divide_signed(a, b):
    # Towards zero; x / 0 is -1, and the lowest number / -1 wraps around.
    safe = tl.where((b == 0) | (b == -1), 1, b).to(b.dtype)
    return tl.where(b == 0, -1, tl.where(b == -1, -a, a // safe)).to(a.dtype)""",
    "remainder_signed": """def remainder_signed(a, b):
    # With the sign of a; x % 0 is x.
    safe = tl.where((b == 0) | (b == -1), 1, b).to(b.dtype)
    return tl.where(b == 0, a, tl.where(b == -1, 0, a % safe)).to(a.dtype)""",
    "divide_unsigned": """def divide_unsigned(a, b):
    # x / 0 is the largest number.
    safe = tl.where(b == 0, 1, b).to(b.dtype)
    return tl.where(b == 0, (a ^ a) - 1, a // safe)""",
    "remainder_unsigned": """def remainder_unsigned(a, b):
    # x % 0 is x.
    safe = tl.where(b == 0, 1, b).to(b.dtype)
    return tl.where(b == 0, a, a % safe)""",
    "shift_left": """def shift_left(a, b, BITS: tl.constexpr):
    # Counts below 0 or beyond the width give 0.
    return tl.where((b >= 0) & (b < BITS), a << b, a ^ a)""",
    "shift_right": """def shift_right(a, b, BITS: tl.constexpr):
    # Of unsigned numbers; counts below 0 or beyond the width give 0.
    inside = (b >= 0) & (b < BITS)
    return tl.where(inside, a >> tl.where(inside, b, b ^ b).to(a.dtype), a ^ a)""",
    "shift_right_signed": """def shift_right_signed(a, b, BITS: tl.constexpr):
    # Counts below 0 or beyond the width leave the sign.
    return a >> tl.where((b >= 0) & (b < BITS), b, BITS - 1).to(a.dtype)""",
    "turns": """def turns(x0, x1, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    x0 = x0 + x1
    x1 = ((x1 << A) | (x1 >> (32 - A))) ^ x0
    x0 = x0 + x1
    x1 = ((x1 << B) | (x1 >> (32 - B))) ^ x0
    x0 = x0 + x1
    x1 = ((x1 << C) | (x1 >> (32 - C))) ^ x0
    x0 = x0 + x1
    return x0, ((x1 << D) | (x1 >> (32 - D))) ^ x0""",
    "threefry": """def threefry(k0, k1, x0, x1):
    # Threefry-2x32 with 20 rounds, on unsigned words of 32 bits.
    k2 = k0 ^ k1 ^ 0x1BD11BDA
    x0, x1 = x0 + k0, x1 + k1
    x0, x1 = turns(x0, x1, 13, 15, 26, 6)
    x0, x1 = turns(x0 + k1, x1 + k2 + 1, 17, 29, 16, 24)
    x0, x1 = turns(x0 + k2, x1 + k0 + 2, 13, 15, 26, 6)
    x0, x1 = turns(x0 + k0, x1 + k1 + 3, 17, 29, 16, 24)
    x0, x1 = turns(x0 + k1, x1 + k2 + 4, 13, 15, 26, 6)
    return x0 + k2, x1 + k0 + 5""",
    "cube_root": """def cube_root(x):
    # A first guess by logarithms, then two steps of Newton's; 0, inf and nan stay as they are.
    size = tl.abs(x)
    usual = (size > 0) & (size < float("inf"))
    size = tl.where(usual, size, 1.0).to(x.dtype)
    y = libdevice.exp2(libdevice.log2(size) * (1.0 / 3.0))
    y = y - (y - size / (y * y)) * (1.0 / 3.0)
    y = y - (y - size / (y * y)) * (1.0 / 3.0)
    return tl.where(usual, tl.where(x < 0, y * -1.0, y), x)""",
    **half_precision.HELPERS,
    **half_row_buffers.HELPERS,
    **exact_packs.HELPERS,
    "scaled_divisor": """def scaled_divisor(y):
    # y by a power of two that keeps quotients by it in range, and that power.
    size = tl.abs(y)
    scale = tl.where(size < 2.0**-100, 2.0**30, tl.where(size > 2.0**100, 2.0**-30, 1.0)).to(y.dtype)
    return y * scale, scale""",
    "half_reciprocal": """def half_reciprocal(y):
    y, scale = scaled_divisor(y)
    return scale, 1.0 / y""",
    "reciprocal_parts": """def reciprocal_parts(y):
    # A power of two that keeps quotients by y in range, -y and 1 / y at that scale; -y is 0 where it is infinite.
    y, scale = scaled_divisor(y)
    return scale, tl.where(tl.abs(y) < float("inf"), y * -1.0, 0.0), tl.div_rn(1.0, y)""",
    "moderate_reciprocal": """def moderate_reciprocal(y):
    # The same of a number whose quotients stay in range.
    return tl.where(tl.abs(y) < float("inf"), y * -1.0, 0.0), tl.div_rn(1.0, y)""",
    "shared_quotient": """def shared_quotient(x, negated, reciprocal):
    # x / y at y's scale by the reciprocal of y, corrected by what remains (Markstein); rounded to nearest where that is
    # exact, which it is of x from 2**-102 on.
    q = x * reciprocal
    return tl.where(tl.abs(q) < float("inf"), tl.fma(tl.fma(q, negated, x), reciprocal, q), q)""",
    "log_add_exp": """def log_add_exp(a, b):
    # log(exp(a) + exp(b)) without overflow.
    high = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    low = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    sure = tl.where(high == low, 0.0, low - high).to(a.dtype)
    return high + libdevice.log1p(libdevice.exp(sure))""",
    "combine_sum": """def combine_sum(a, b):
    return a + b""",
    "two_sum": """def two_sum(total, lost, value):
    # total + value, and what that and all additions before it have rounded away (Knuth).
    next = total + value
    back = next - total
    return next, lost + ((total - (next - back)) + (value - back))""",
    "whole_sum": """def whole_sum(total, lost):
    return tl.where(lost == lost, total + lost, total)""",
    "combine_prod": """def combine_prod(a, b):
    return a * b""",
    "combine_max": """def combine_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)""",
    "combine_min": """def combine_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)""",
    "combine_and": """def combine_and(a, b):
    return a & b""",
    "combine_or": """def combine_or(a, b):
    return a | b""",
    "combine_xor": """def combine_xor(a, b):
    return a ^ b""",
    "word_of": """def word_of(value):
    # A value as a word of 64 bits that is never -1: numbers of 32 bits as their bits, of 64 as well, with one nan alone.
    if value.dtype == tl.float64:
        word = tl.where(value == value, value, float("nan")).to(tl.int64, bitcast=True)
    elif value.dtype == tl.float32:
        word = value.to(tl.uint32, bitcast=True).to(tl.int64)
    else:
        word = (value.to(tl.int64) & 0xFFFFFFFF)
    return word""",
    "value_of": """def value_of(word, DTYPE: tl.constexpr):
    if DTYPE == tl.float64:
        value = word.to(DTYPE, bitcast=True)
    elif DTYPE == tl.float32:
        value = word.to(tl.uint32).to(DTYPE, bitcast=True)
    else:
        value = word.to(DTYPE)
    return value""",
    "read_words": """def read_words(pointers, mask):
    # Words that other programs publish, as soon as all are there.
    words = tl.load(pointers, mask=mask, other=0, volatile=True)
    while tl.max((words == -1).to(tl.int32)) != 0:
        words = tl.load(pointers, mask=mask, other=0, volatile=True)
    return words""",
    "better_max": """def better_max(a, b, i, j):
    # Whether (b, j) goes before (a, i): larger, or equal and earlier; nan is the largest; -1 means nothing yet.
    greater = (b > a) | ((b != b) & (a == a))
    same = (b == a) | ((b != b) & (a != a))
    return (j >= 0) & ((i < 0) | greater | (same & (j < i)))""",
    "better_min": """def better_min(a, b, i, j):
    # Whether (b, j) goes before (a, i): smaller, or equal and earlier; nan is the smallest; -1 means nothing yet.
    less = (b < a) | ((b != b) & (a == a))
    same = (b == a) | ((b != b) & (a != a))
    return (j >= 0) & ((i < 0) | less | (same & (j < i)))""",
    "combine_argmax": """def combine_argmax(a, i, b, j):
    take = better_max(a, b, i, j)
    return tl.where(take, b, a), tl.where(take, j, i)""",
    "combine_argmin": """def combine_argmin(a, i, b, j):
    take = better_min(a, b, i, j)
    return tl.where(take, b, a), tl.where(take, j, i)""",
}


def header(text: str) -> str:
    """What stands before the kernels of a file: imports and the helpers that `text` uses."""
    helpers, names = TABLE.used(words(text))
    imports = ["import triton", "import triton.language as tl"]
    if "libdevice" in names:
        imports.append("from triton.language.extra import libdevice")
    return "\n\n\n".join(["\n".join(imports), *(f"@triton.jit\n{helper}" for helper in helpers)])


# Numbers of 8 bits that matrix units multiply, by Triton's names. Elsewhere a helper makes 16 bits of them, exactly.
MATRIX_FLOATS = {float8_e4m3fn: "fp8e4nv", float8_e5m2: "fp8e5"}


def storage(dtype: np.dtype) -> str:
    """The Triton type of an element in memory."""
    return TYPES[dtype][0]


def local(dtype: np.dtype) -> str:
    """The Triton type of a value in registers."""
    return TYPES[dtype][1]


def widened(dtype: np.dtype) -> str:
    """The method call that brings a loaded element to its type in registers; empty where it has it."""
    return "" if storage(dtype) == local(dtype) else f".to({local(dtype)})"


def literal(value: np.generic, dtype: np.dtype) -> str:
    """A number as Python text that reads back as exactly the same number."""
    if dtype == BOOL:
        return "True" if value else "False"
    if dtype in FORMATS:
        return str(int(value.view(np.uint8)))
    if is_inexact(dtype):
        number = float(value)
        if math.isnan(number):
            return 'float("nan")'
        if math.isinf(number):
            return 'float("inf")' if number > 0 else 'float("-inf")'
        return repr(number)
    return str(int(value))


def typed(value: np.generic, dtype: np.dtype) -> str:
    """A number as a value of exactly this type."""
    return f"tl.full((), {literal(value, dtype)}, {local(dtype)})"


def plain(value: np.generic, dtype: np.dtype) -> bool:
    """Whether a bare number beside a value of `dtype` means the same as a value of that type."""
    if dtype == F64:
        return float(np.float32(value)) == float(value)
    return dtype.kind not in "iu" or (dtype.itemsize <= 4 and abs(int(value)) < 2 ** (dtype.itemsize * 8 - 1))


def _fields(dtype: np.dtype) -> dict[str, str]:
    """What depends on the type of an operation's operands."""
    bits = dtype.itemsize * 8
    word = "tl.int64" if bits == 64 else "tl.int32"
    wide = f"{{0}}.to(tl.uint{bits}, bitcast=True).to({word})" if bits < 32 else f"{{0}}.to({word}, bitcast=True)"
    spare = str(max(32 - bits, 0))
    return {
        "t": local(dtype),
        "u": f"tl.uint{bits}",
        "i": f"tl.int{bits}",
        "bits": str(bits),
        "word": wide,
        "spare": spare,
    }


def _cast(node: Scalar, x: str) -> str:
    old, new = node.args[0].dtype, node.dtype
    if new == BOOL:
        return f"{x} != 0"
    if is_inexact(old) and new.kind in "iu":
        info = np.iinfo(new)
        wide = F64 if old == F64 else F32
        low, high = literal(wide.type(info.min), wide), literal(wide.type(info.max), wide)
        inside = f"tl.where(({x} > {low}) & ({x} < {high}), {x}, 0.0).to({local(new)})"
        top, bottom = typed(new.type(info.max), new), typed(new.type(info.min), new)
        return f"tl.where({x} >= {high}, {top}, tl.where({x} <= {low}, {bottom}, {inside}))"
    return _converted(node, x)


def _converted(node: Scalar, x: str) -> str:
    """A number that the new type holds, or a float of it."""
    old, new = node.args[0].dtype, node.dtype
    if new == bfloat16:
        wide_x = x if local(old) == "tl.float32" else f"{x}.to(tl.float32)"
        return f"{wide_x}.to(tl.bfloat16).to(tl.float32)"
    if new == F16:
        return f"{x}.to(tl.float16).to(tl.float32)"
    return f"{x}.to({local(new)})" if local(old) != local(new) else x


def _bitcast(node: Scalar, x: str) -> str:
    old, new = node.args[0].dtype, node.dtype
    narrow = f"{x}.to({storage(old)})" if widened(old) else x
    return f"{narrow}.to({storage(new)}, bitcast=True){widened(new)}"


TABLE = Table(
    "Triton",
    {
        "float": _FLOAT,
        "double": _DOUBLE,
        "half": _HALF,
        "integer": _INTEGER,
        "unsigned": _UNSIGNED,
        "bool": _BOOL,
        "any": _ANY,
    },
    HELPERS,
    _fields,
)
