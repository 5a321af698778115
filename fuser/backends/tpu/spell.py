"""How the scalar vocabulary is spelled on arrays of JAX: in Pallas kernels, and in what XLA fuses by itself.

`TABLE` has one entry an operation. float16 and bfloat16 are computed in float32 and rounded
where they are stored or converted. A helper is written into a file only where its name occurs; it uses nothing that
Mosaic lacks, so that one table serves both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuser.backends.table import Spelling, Table, words
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, HALVES, is_complex, is_inexact

F32 = np.dtype("float32")
POSITION = np.dtype("int64")  # of positions in arrays, which other machines count in 64 bits and kernels here in 32


def _shift(form: str, inside: str) -> Spelling:
    """A shift; one by a constant that is below the width needs no test."""

    def spelling(node: Scalar, args: Sequence[str]) -> str:
        x, count = node.args
        known = count.op == "const" and 0 <= int(count.attr) < 8 * x.dtype.itemsize
        return (inside if known else form).format(*args)

    return spelling


_FLOAT: dict[str, Spelling] = {
    **{name: f"jnp.{name}({{0}})" for name in ("exp", "exp2", "log", "log1p", "sqrt", "sin", "cos", "tan", "tanh")},
    **{name: f"jnp.{name}({{0}})" for name in ("abs", "floor", "ceil", "round")},
    "neg": "-{0}",
    "trunc": "jnp.where({0} < 0, jnp.ceil({0}), jnp.floor({0}))",
    "log2": "jnp.log({0}) * 1.4426950408889634",
    "expm1": "expm1({0})",
    "cbrt": "cube_root({0})",
    "asin": "jnp.arctan2({0}, jnp.sqrt((1 - {0}) * (1 + {0})))",
    "acos": "jnp.arctan2(jnp.sqrt((1 - {0}) * (1 + {0})), {0})",
    "atan": "jnp.arctan2({0}, jnp.ones_like({0}))",
    "sinh": "sinh({0})",
    "cosh": "cosh({0})",
    "asinh": "asinh({0})",
    "acosh": "acosh({0})",
    "atanh": "atanh({0})",
    "erf": "lax.erf({0})",
    "erfc": "erfc({0})",
    "lgamma": "lgamma({0})",
    "pow": "lax.pow({0}, {1})",
    "atan2": "lax.atan2({0}, {1})",
    "rem": "lax.rem({0}, {1})",
    "nextafter": "lax.nextafter({0}, {1})",
    "div": "{0} / {1}",
    "max": "jnp.maximum({0}, {1})",
    "min": "jnp.minimum({0}, {1})",
    "fma": "fused({0}, {1}, {2})",
}
_COMPLEX: dict[str, Spelling] = {
    **{name: f"jnp.{name}({{0}})" for name in ("exp", "exp2", "log", "log1p", "log2", "expm1", "sqrt", "abs")},
    **{name: f"jnp.{name}({{0}})" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "real", "imag", "conj")},
    **{f"a{name}": f"jnp.arc{name}({{0}})" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "neg": "-{0}",
    "div": "{0} / {1}",
    "pow": "lax.pow({0}, {1})",
}
_INTEGER: dict[str, Spelling] = {
    "div_unchecked": "lax.div({0}, {1})",
    "shl_unchecked": "{0} << {1}",
    "shr_unchecked": "lax.shift_right_logical({0}, {1})",
    "neg": "-{0}",
    "abs": "jnp.abs({0})",
    "div": "divide({0}, {1})",
    "rem": "remainder({0}, {1})",
    "max": "jnp.maximum({0}, {1})",
    "min": "jnp.minimum({0}, {1})",
    "not": "~{0}",
    "shl": _shift("shift_left({0}, {1})", "{0} << {1}"),
    "shr": _shift("shift_right({0}, {1})", "lax.shift_right_logical({0}, {1})"),
    "sar": _shift("shift_right_signed({0}, {1})", "{0} >> {1}"),
    "popcount": "lax.population_count({0})",
    "clz": "lax.clz({0})",
    "threefry0": "threefry({0}, {1}, {2}, {3})[0]",
    "threefry1": "threefry({0}, {1}, {2}, {3})[1]",
}
_BOOL: dict[str, Spelling] = {
    "not": "~{0}",
    "max": "{0} | {1}",
    "min": "{0} & {1}",
    "add": "{0} | {1}",
    "mul": "{0} & {1}",
    "eq": "~({0} ^ {1})",
    "ne": "{0} ^ {1}",
    "lt": "~{0} & {1}",
    "le": "~{0} | {1}",
    "gt": "{0} & ~{1}",
    "ge": "{0} | ~{1}",
    "select": "({0} & {1}) | (~{0} & {2})",
}
_ANY: dict[str, Spelling] = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    **{name: f"{{0}} {sign} {{1}}" for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    **{
        name: f"{{0}} {sign} {{1}}"
        for name, sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    },
    "select": "jnp.where({0}, {1}, {2})",
    "complex": "lax.complex({0}, {1})",
    "real": "{0}",
    "imag": "jnp.zeros_like({0})",
    "conj": "{0}",
    "cast": lambda node, args: _cast(node, args[0]),
    "cast_unchecked": lambda node, args: _converted(node.args[0].dtype, node.dtype, args[0]),
    "bitcast": lambda node, args: _bitcast(node, args[0]),
}

# Helper functions of generated files, in an order in which each comes after those that it calls.
HELPERS: dict[str, str] = {
    "expm1": """def expm1(x):
    # exp(x) - 1 without cancellation near 0.
    half = jnp.tanh(jnp.where(jnp.abs(x) < 0.5, x, 0) * 0.5)
    return jnp.where(jnp.abs(x) < 0.5, 2 * half / (1 - half), jnp.exp(x) - 1)""",
    "sinh": """def sinh(x):
    half = jnp.exp(jnp.abs(x) * 0.5)
    small = expm1(jnp.where(jnp.abs(x) < 1, jnp.abs(x), 0))
    value = jnp.where(jnp.abs(x) < 1, 0.5 * (small + small / (small + 1)), 0.5 * half * half - 0.5 / half / half)
    return jnp.where(x < 0, -value, jnp.where(x == 0, x, value))""",
    "cosh": """def cosh(x):
    half = jnp.exp(jnp.abs(x) * 0.5)
    return 0.5 * half * half + 0.5 / half / half""",
    "asinh": """def asinh(x):
    size = jnp.abs(x)
    usual = jnp.where(size < 1e10, size, 1)
    value = jnp.log1p(usual + usual * usual / (1 + jnp.sqrt(usual * usual + 1)))
    value = jnp.where(size < 1e10, value, jnp.log(size) + 0.6931471805599453)
    return jnp.where(x < 0, -value, jnp.where(x == 0, x, value))""",
    "acosh": """def acosh(x):
    above = jnp.where(x < 1e10, x, 2) - 1
    return jnp.where(x < 1e10, jnp.log1p(above + jnp.sqrt(2 * above + above * above)), jnp.log(x) + 0.6931471805599453)""",
    "atanh": """def atanh(x):
    size = jnp.abs(x)
    value = 0.5 * jnp.log1p(2 * size / (1 - size))
    return jnp.where(x < 0, -value, jnp.where(x == 0, x, value))""",
    "erfc": """def erfc(x):
    # Press et al., Numerical Recipes (1992), chapter 6.2: relative error below 1.2e-7.
    size = jnp.abs(x)
    t = 1 / (1 + 0.5 * size)
    terms = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368)
    total = terms[0]
    for term in terms[1:]:
        total = total * t + term
    value = t * jnp.exp(-size * size - 1.26551223 + t * total)
    return jnp.where(x < 0, 2 - value, value)""",
    "lgamma": """def lgamma(x):
    # Lanczos' approximation with g = 7 and 9 terms; reflected below 1/2.
    terms = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
             12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)
    z = jnp.where(x < 0.5, 1 - x, x) - 1
    total = terms[0]
    for number, term in enumerate(terms[1:], 1):
        total = total + term / (z + number)
    value = (jnp.log((z + 7.5) / 2.718281828459045) * (z + 0.5) - 7) + (jnp.log(total) + 0.9189385332046727)
    part = jnp.abs(x) - jnp.floor(jnp.abs(x))
    sine = jnp.sin(jnp.where(part < 0.5, part, 1 - part) * 3.141592653589793)
    value = jnp.where(x < 0.5, 1.1447298858494002 - jnp.log(sine) - value, value)
    return jnp.where(jnp.abs(x) == jnp.inf, jnp.inf, value)""",
    "cube_root": """def cube_root(x):
    # A first guess by logarithms, then two steps of Newton's; 0, inf and nan stay as they are.
    size = jnp.abs(x)
    usual = (size > 0) & (size < jnp.inf)
    size = jnp.where(usual, size, 1)
    y = jnp.exp(jnp.log(size) * (1 / 3))
    y = y - (y - size / (y * y)) * (1 / 3)
    y = y - (y - size / (y * y)) * (1 / 3)
    return jnp.where(usual, jnp.where(x < 0, -y, y), x)""",
    "split_product": """def split_product(x, y):
    # The product, and its rounding error, by Dekker's algorithm.
    xh, yh = x * 4097, y * 4097
    xh, yh = xh - (xh - x), yh - (yh - y)
    xl, yl = x - xh, y - yh
    product = x * y
    return product, ((xh * yh - product) + xh * yl + xl * yh) + xl * yl""",
    "fused": """def fused(x, y, z):
    # x * y + z, rounded once but for numbers so large or small that Dekker's algorithm overflows or loses bits.
    product, low = split_product(x, y)
    total = product + z
    part = total - product
    exact = total + (((product - (total - part)) + (z - part)) + low)
    return jnp.where(jnp.abs(exact) < jnp.inf, exact, total)""",
    "divide": """def divide(a, b):
    # Towards zero; x / 0 is -1, or the largest unsigned number, and the lowest number / -1 wraps around.
    minus = -jnp.ones_like(b)
    safe = jnp.where((b == 0) | (b == minus), jnp.ones_like(b), b)
    quotient = lax.div(a, safe)
    if jnp.issubdtype(a.dtype, jnp.signedinteger):
        quotient = jnp.where(b == minus, -a, quotient)
    else:
        quotient = jnp.where(b == minus, (a == minus).astype(a.dtype), quotient)
    return jnp.where(b == 0, minus, quotient)""",
    "remainder": """def remainder(a, b):
    # With the sign of a; x % 0 is x.
    minus = -jnp.ones_like(b)
    safe = jnp.where((b == 0) | (b == minus), jnp.ones_like(b), b)
    rest = lax.rem(a, safe)
    if jnp.issubdtype(a.dtype, jnp.signedinteger):
        rest = jnp.where(b == minus, jnp.zeros_like(a), rest)
    else:
        rest = jnp.where(b == minus, jnp.where(a == minus, jnp.zeros_like(a), a), rest)
    return jnp.where(b == 0, a, rest)""",
    "floor_div": """def floor_div(a, b):
    # Rounded down, for a positive b.
    return lax.div(a, b) - (lax.rem(a, b) < 0).astype(a.dtype)""",
    "inside": """def inside(a, b):
    # Whether b is a count of bits below the width of a.
    return (b >= 0) & (b < 8 * a.dtype.itemsize)""",
    "shift_left": """def shift_left(a, b):
    return jnp.where(inside(a, b), a << jnp.where(inside(a, b), b, 0).astype(a.dtype), 0).astype(a.dtype)""",
    "shift_right": """def shift_right(a, b):
    count = jnp.where(inside(a, b), b, 0).astype(a.dtype)
    return jnp.where(inside(a, b), lax.shift_right_logical(a, count), 0).astype(a.dtype)""",
    "shift_right_signed": """def shift_right_signed(a, b):
    # Counts below 0 or beyond the width leave the sign; the top bit is the sign of unsigned integers too.
    count = jnp.where(inside(a, b), b, 8 * a.dtype.itemsize - 1).astype(a.dtype)
    return lax.shift_right_arithmetic(a, count)""",
    "turns": """def turns(x0, x1, counts):
    for count in counts:
        x0 = x0 + x1
        x1 = ((x1 << jnp.uint32(count)) | (x1 >> jnp.uint32(32 - count))) ^ x0
    return x0, x1""",
    "threefry": """def threefry(k0, k1, x0, x1):
    # Threefry-2x32 with 20 rounds, on unsigned words of 32 bits.
    k2 = k0 ^ k1 ^ jnp.uint32(0x1BD11BDA)
    x0, x1 = x0 + k0, x1 + k1
    x0, x1 = turns(x0, x1, (13, 15, 26, 6))
    x0, x1 = turns(x0 + k1, x1 + k2 + jnp.uint32(1), (17, 29, 16, 24))
    x0, x1 = turns(x0 + k2, x1 + k0 + jnp.uint32(2), (13, 15, 26, 6))
    x0, x1 = turns(x0 + k0, x1 + k1 + jnp.uint32(3), (17, 29, 16, 24))
    x0, x1 = turns(x0 + k1, x1 + k2 + jnp.uint32(4), (13, 15, 26, 6))
    return x0 + k2, x1 + k0 + jnp.uint32(5)""",
    "words": """def words(keys, ndim):
    # The two words of each key, with dimensions for what is drawn from them.
    shape = keys.shape[:-1] + (1,) * ndim
    return keys[..., 0].reshape(shape), keys[..., 1].reshape(shape)""",
    "counted": """def counted(keys, shape):
    # Threefry of the places of a shape, under each key.
    size = 1
    for extent in shape:
        size *= extent
    low = lax.iota(jnp.uint32, size).reshape(shape)
    return threefry(*words(keys, len(shape)), jnp.zeros_like(low), low)""",
    "random_bits": """def random_bits(keys, shape):
    first, second = counted(keys, shape)
    return first ^ second""",
    "random_split": """def random_split(keys, shape):
    return jnp.stack(counted(keys, shape), axis=-1)""",
    "hashed": """def hashed(keys, high, low):
    return jnp.stack(threefry(keys[..., 0], keys[..., 1], high, low), axis=-1)""",
    "fold_in": """def fold_in(keys, numbers):
    return hashed(keys, jnp.zeros_like(numbers), numbers)""",
    "seed": """def seed(numbers):
    words = numbers.astype(jnp.uint32)
    return jnp.stack([jnp.zeros_like(words), words], axis=-1)""",
    "log_add_exp": """def log_add_exp(a, b):
    # log(exp(a) + exp(b)) without overflow.
    high, low = jnp.maximum(a, b), jnp.minimum(a, b)
    return high + jnp.log1p(jnp.exp(jnp.where(high == low, 0, low - high)))""",
    "two_sum": """def two_sum(total, lost, value):
    # total + value, and what that and all additions before it have rounded away (Knuth).
    next = total + value
    back = next - total
    return next, lost + ((total - (next - back)) + (value - back))""",
    "whole_sum": """def whole_sum(total, lost):
    return jnp.where(lost == lost, total + lost, total)""",
    "block_sum": """def block_sum(x, axis, length):
    # The sum along an axis: of blocks, whose sums are added in pairs.
    cuts = range(0, x.shape[axis], length)
    blocks = [lax.slice_in_dim(x, at, min(at + length, x.shape[axis]), axis=axis) for at in cuts]
    parts = [jnp.sum(block, axis=axis, keepdims=True) for block in blocks]
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2])] + parts[len(parts) // 2 * 2 :]
    return parts[0]""",
    "running": """def running(x, combine, identity, axis, reverse):
    # The reduction of all elements up to each one, in as many steps as the extent has bits.
    extent, step = x.shape[axis], 1
    at = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    while step < extent:
        near = at < extent - step if reverse else at >= step
        x = combine(x, jnp.where(near, pltpu.roll(x, extent - step if reverse else step, axis), identity))
        step *= 2
    return x""",
    "place": """def place(x, best, at, axis):
    # The first position of an extreme along an axis; nan is the extreme of all.
    hit = (x == best) | (x != x)
    return jnp.min(jnp.where(hit, at, 2147483647), axis=axis, keepdims=True)""",
}


def header(text: str) -> str:
    """What stands before the functions of a file: imports and the helpers that `text` uses."""
    helpers, names = TABLE.used(words(text))
    imports = ["import jax", "import jax.numpy as jnp", "from jax import lax"]
    if "io_callback" in names:
        imports.append("import jax.experimental")
    if "pl" in names:
        imports.append("from jax.experimental import pallas as pl")
    if "pltpu" in names:
        imports.append("from jax.experimental.pallas import tpu as pltpu")
    if "INTERPRET" in names:
        imports.append("\nINTERPRET = False  # True: Pallas' interpreter, which runs anywhere, slowly")
    return "\n\n\n".join(["\n".join(imports), *helpers])


def storage(dtype: np.dtype) -> str:
    """The type of an element in memory."""
    return "jnp.bool_" if dtype == BOOL else "jnp.int32" if dtype == POSITION else f"jnp.{dtype.name}"


def local(dtype: np.dtype) -> np.dtype:
    """The dtype in which values are computed."""
    return F32 if dtype in HALVES else dtype


def literal(value: np.generic, dtype: np.dtype) -> str:
    """A number as Python text that reads back as exactly the same number beside a value of `dtype`."""
    if dtype == BOOL:
        return "True" if value else "False"
    if is_complex(dtype):
        return f"jnp.{dtype.name}(complex({float(value.real)!r}, {float(value.imag)!r}))"
    if is_inexact(dtype):
        number = float(value)
        if number != number:
            return "jnp.nan"
        if number in (float("inf"), float("-inf")):
            return "jnp.inf" if number > 0 else "-jnp.inf"
        return repr(float(str(np.float32(number))) if np.float32(number) == number else number)
    return str(int(value)) if dtype in (np.int32, POSITION) else f"{storage(dtype)}({int(value)})"


def typed(value: np.generic, dtype: np.dtype) -> str:
    """A number with exactly the type in which values of `dtype` are computed."""
    text = literal(value, dtype)
    return text if "(" in text else f"{storage(local(dtype))}({text})"


def _cast(node: Scalar, x: str) -> str:
    old, new = node.args[0].dtype, node.dtype
    if new == BOOL:
        return f"{x} != 0"
    if is_complex(old) and not is_complex(new):
        x, old = f"jnp.real({x})", F32
    if is_inexact(old) and new.kind in "iu":
        info = np.iinfo(new)
        low, high = literal(np.float32(info.min), F32), literal(np.float32(info.max), F32)
        inside = f"jnp.where(({x} > {low}) & ({x} < {high}), {x}, 0.0).astype({storage(new)})"
        top, bottom = literal(new.type(info.max), new), literal(new.type(info.min), new)
        return f"jnp.where({x} >= {high}, {top}, jnp.where({x} <= {low}, {bottom}, {inside}))"
    return _converted(old, new, x)


def _converted(old: np.dtype, new: np.dtype, x: str) -> str:
    """A number that the new type holds, or a float of it."""
    if new in HALVES:
        return f"{x}.astype({storage(new)}).astype(jnp.float32)"
    return f"{x}.astype({storage(local(new))})" if storage(local(old)) != storage(local(new)) else x


def _bitcast(node: Scalar, x: str) -> str:
    old, new = node.args[0].dtype, node.dtype
    narrow = f"{x}.astype({storage(old)})" if local(old) != old else x
    wide = f".astype({storage(local(new))})" if local(new) != new else ""
    return f"lax.bitcast_convert_type({narrow}, {storage(new)}){wide}"


TABLE = Table("JAX", {"float": _FLOAT, "complex": _COMPLEX, "integer": _INTEGER, "bool": _BOOL, "any": _ANY}, HELPERS)
