"""Elementwise primitives: arithmetic, maths, bits, comparison, selection and conversion.

Each statement holds a primitive's whole definition. Names and params are those of jax.lax.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import VOCABULARY, Scalar, evaluate
from fuser.ir.types import (
    ALL_DTYPES,
    BOOL,
    COMPLEX,
    FLOAT8,
    FLOATS,
    INTEGERS,
    KEY,
    SIGNED,
    ArrayType,
    is_complex,
    short_dtype,
)
from fuser.ops.family import SHAPE, allow, boolean, common_shape, elementwise, linear_in, real_part, sample, unbroadcast

INEXACT = (*FLOATS, *COMPLEX)
NUMBERS = (*INTEGERS, *INEXACT)
REALS = (*INTEGERS, *FLOATS)
BITS = (BOOL, *INTEGERS)
ANY = (BOOL, *NUMBERS)


def _plain(name: str, op: str, dtypes: tuple[np.dtype, ...], **more: Any) -> Primitive:
    """A primitive that is one operation of the scalar vocabulary."""
    operation = VOCABULARY[op]
    return elementwise(
        name, dtypes, arity=operation.arity, eval=operation.numpy, lower=lambda *x, **p: S.apply(op, *x), **more
    )


# Arithmetic.
neg_p = _plain("neg", "neg", NUMBERS, linear=True, jvp=(lambda t, x, out: -t,), transpose=lambda ct, x: (-ct,))
add_p = _plain(
    "add",
    "add",
    NUMBERS,
    linear=True,
    jvp=(lambda t, x, y, out: t, lambda t, x, y, out: t),
    transpose=lambda ct, x, y: (unbroadcast(ct, x), unbroadcast(ct, y)),
)
sub_p = _plain(
    "sub",
    "sub",
    NUMBERS,
    linear=True,
    jvp=(lambda t, x, y, out: t, lambda t, x, y, out: -t),
    transpose=lambda ct, x, y: (unbroadcast(ct, x), unbroadcast(-ct, y) if linear_in(y) else None),
)


def _mul_transpose(ct: Any, x: Any, y: Any) -> tuple[Any, Any]:
    if linear_in(x):
        return unbroadcast(mul_p.bind(ct, y), x), None
    return None, unbroadcast(mul_p.bind(x, ct), y)


mul_p: Primitive = _plain(
    "mul",
    "mul",
    NUMBERS,
    jvp=(lambda t, x, y, out: mul_p.bind(t, y), lambda t, x, y, out: mul_p.bind(x, t)),
    transpose=_mul_transpose,
)
div_p: Primitive = _plain(
    "div",
    "div",
    NUMBERS,
    jvp=(lambda t, x, y, out: div_p.bind(t, y), lambda t, x, y, out: -mul_p.bind(div_p.bind(out, y), t)),
    transpose=lambda ct, x, y: (unbroadcast(div_p.bind(ct, y), x), None),
)
rem_p = _plain("rem", "rem", REALS)
max_p, min_p = (elementwise(n, ANY, arity=2, both=lambda x, y, m, n=n: _extreme(x, y, m, n)) for n in ("max", "min"))
square_p = elementwise("square", NUMBERS, eval=np.square, lower=lambda x: x * x)
abs_p = elementwise(
    "abs",
    (*SIGNED, *INEXACT),
    result=real_part,
    eval=np.abs,
    lower=lambda x: S.apply("abs", x, dtype=real_part(x.dtype)),
)


def _extreme(x: Any, y: Any, m: Any, op: str) -> Any:
    """max and min; complex numbers compare by real part, then imaginary part, and `y` is taken where nothing compares."""
    operation: Any = VOCABULARY[op].numpy if m is np else lambda x, y: S.apply(op, x, y)
    if x.dtype == BOOL:
        return x | y if op == "max" else x & y
    if not is_complex(x.dtype):
        return operation(x, y)
    part: Any = (lambda f, v: getattr(v, f)) if m is np else (lambda f, v: S.apply(f, v, dtype=real_part(v.dtype)))
    xr, yr, xi, yi = (part(f, v) for f in ("real", "imag") for v in (x, y))
    first = m.where(m.equal(xr, yr), xi > yi, xr > yr) if op == "max" else m.where(m.equal(xr, yr), xi < yi, xr < yr)
    return m.where(first, x, y)


def _sign_eval(x: np.ndarray) -> np.ndarray:
    if is_complex(x.dtype):
        size = np.abs(x)
        return np.where(size == 0, x, x / size)
    return np.where(x == 0, x, np.sign(x))


def _sign_lower(x: Scalar) -> Scalar:
    one = S.constant(1, x.dtype)
    if is_complex(x.dtype):
        size = S.cast(S.apply("abs", x, dtype=real_part(x.dtype)), x.dtype)
        return S.where(S.equal(size, 0), x, x / size)
    if x.dtype.kind == "u":
        return S.where(x > 0, one, x)
    return S.where(x > 0, one, S.where(x < 0, -one, x))


sign_p = elementwise("sign", NUMBERS, eval=_sign_eval, lower=_sign_lower)

# Rounding.
floor_p = _plain("floor", "floor", FLOATS)
ceil_p = _plain("ceil", "ceil", FLOATS)


def _round(x: Any, m: Any, rounding_method: int) -> Any:
    """0: halves away from zero; 1: halves to even."""
    if rounding_method == 1:
        return m.rint(x) if m is np else S.rounded(x)
    whole = m.trunc(x) if m is np else S.truncated(x)
    up = m.where(x > 0, whole + 1, whole - 1)
    return m.where(m.absolute(x - whole) >= 0.5, up, whole)


round_p = elementwise("round", FLOATS, both=_round, params=({"rounding_method": 0}, {"rounding_method": 1}))
is_finite_p = elementwise(
    "is_finite", FLOATS, result=boolean, eval=np.isfinite, lower=lambda x: S.absolute(x) < math.inf
)

# Exponentials and roots.
exp_p = _plain("exp", "exp", INEXACT, jvp=(lambda t, x, out: t * out,))
exp2_p = elementwise(
    "exp2",
    INEXACT,
    eval=lambda x: np.exp2(x) if x.dtype.kind != "c" else np.exp(x * math.log(2)),
    lower=lambda x: S.exp(x * math.log(2)) if is_complex(x.dtype) else S.exp2(x),
)
expm1_p = _plain("expm1", "expm1", INEXACT)
log_p = _plain("log", "log", INEXACT, domain=(0.1, 9.0))
log1p_p = _plain("log1p", "log1p", INEXACT, domain=(-0.9, 9.0))
sqrt_p = _plain("sqrt", "sqrt", INEXACT, domain=(0.0, 9.0))
rsqrt_p = elementwise("rsqrt", INEXACT, both=lambda x, m: 1 / m.sqrt(x), domain=(0.1, 9.0))
cbrt_p = _plain("cbrt", "cbrt", FLOATS)
logistic_p = elementwise("logistic", INEXACT, both=lambda x, m: 1 / (1 + m.exp(-x)))


def _pow_type(x: ArrayType, y: ArrayType) -> ArrayType:
    allow("pow", x, INEXACT)
    if y.dtype != x.dtype and y.dtype.kind not in "iu":
        raise TypeRuleError(
            f"pow needs an exponent of the same dtype or an integer, got {x} and {y}; convert one of them first"
        )
    return ArrayType(common_shape("pow", (x, y)), x.dtype, x.weak_type and y.weak_type)


pow_p = elementwise(
    "pow",
    INEXACT,
    arity=2,
    mixed=True,
    type=_pow_type,
    eval=lambda x, y: np.power(x, y.astype(x.dtype)),
    lower=lambda x, y: S.power(x, S.cast(y, x.dtype)),
    domain=(0.1, 3.0),
)


def _integer_pow(x: Any, m: Any, y: int) -> Any:
    """Repeated squaring; a negative exponent inverts at the end."""
    if y == 0:
        return np.ones_like(x) if m is np else S.constant(1, x.dtype)
    result: Any = None
    square, exponent = x, abs(y)
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return 1 / result if y < 0 else result


integer_pow_p = elementwise(
    "integer_pow", NUMBERS, both=_integer_pow, params=tuple({"y": y} for y in (0, 1, 2, 3, 7)), domain=(0.5, 2.0)
)

# Trigonometric and hyperbolic functions.
sin_p: Primitive = _plain("sin", "sin", INEXACT, jvp=(lambda t, x, out: t * cos_p.bind(x),))
cos_p: Primitive = _plain("cos", "cos", INEXACT, jvp=(lambda t, x, out: -(t * sin_p.bind(x)),))
tan_p = _plain("tan", "tan", INEXACT, jvp=(lambda t, x, out: t * (1 + out * out),))
asin_p, acos_p = (_plain(n, n, INEXACT, domain=(-1.0, 1.0)) for n in ("asin", "acos"))
atan_p, sinh_p, cosh_p, tanh_p, asinh_p = (_plain(n, n, INEXACT) for n in ("atan", "sinh", "cosh", "tanh", "asinh"))
acosh_p = _plain("acosh", "acosh", INEXACT, domain=(1.0, 9.0))
atanh_p = _plain("atanh", "atanh", INEXACT, domain=(-0.9, 0.9))
atan2_p = _plain("atan2", "atan2", FLOATS)


def _nextafter(x: Scalar, y: Scalar) -> Scalar:
    """Half-precision numbers step by their bits, since kernels hold them as float32."""
    if x.dtype not in FLOATS[:2]:
        return S.nextafter(x, y)
    integer = np.dtype("int16")
    bits = S.bitcast(x, integer)
    outwards = S.equal(y > x, x > 0)
    stepped = S.bitcast(S.where(outwards, bits + 1, bits - 1), x.dtype)
    least = S.bitcast(S.where(y > 0, S.constant(1, integer), S.constant(-(2**15) + 1, integer)), x.dtype)
    away = S.where(S.equal(x, 0), least, stepped)
    return S.where(S.not_equal(x, x), x, S.where(S.not_equal(y, y) | S.equal(x, y), y, away))


nextafter_p = elementwise(
    "nextafter",
    FLOATS,
    arity=2,
    eval=lambda x, y: np.where(x == y, y, np.nextafter(x, y)),
    lower=_nextafter,
    rounded=False,
)

# Special functions.
erf_p = _plain("erf", "erf", FLOATS)
erfc_p = _plain("erfc", "erfc", FLOATS)
lgamma_p = _plain("lgamma", "lgamma", FLOATS, domain=(0.1, 9.0))

# Complex numbers.
complex_p = elementwise(
    "complex",
    (FLOATS[2], FLOATS[3]),
    arity=2,
    result=lambda *d, **p: np.dtype(f"complex{d[0].itemsize * 16}"),
    eval=S.compose,
    lower=lambda x, y: S.apply("complex", x, y, dtype=np.dtype(f"complex{x.dtype.itemsize * 16}")),
)
real_p = elementwise(
    "real", COMPLEX, result=real_part, eval=np.real, lower=lambda x: S.apply("real", x, dtype=real_part(x.dtype))
)
imag_p = elementwise(
    "imag", COMPLEX, result=real_part, eval=np.imag, lower=lambda x: S.apply("imag", x, dtype=real_part(x.dtype))
)
conj_p = elementwise("conj", COMPLEX, eval=np.conj, lower=lambda x, **p: S.apply("conj", x))

# Bits.
and_p = _plain("and", "and", BITS)
or_p = _plain("or", "or", BITS)
xor_p = _plain("xor", "xor", BITS)
not_p = _plain("not", "not", BITS)
shift_left_p = _plain("shift_left", "shl", INTEGERS)
shift_right_logical_p = _plain("shift_right_logical", "shr", INTEGERS)
shift_right_arithmetic_p = _plain("shift_right_arithmetic", "sar", INTEGERS)
population_count_p = _plain("population_count", "popcount", INTEGERS)
clz_p = _plain("clz", "clz", INTEGERS)

# Number theory: Euclid's loop runs in NumPy.
gcd_p = elementwise("gcd", INTEGERS, arity=2, eval=np.gcd)
lcm_p = elementwise("lcm", INTEGERS, arity=2, eval=np.lcm)

# Comparison.
eq_p, ne_p = (_plain(n, n, (*ANY, KEY), result=boolean) for n in ("eq", "ne"))
lt_p, le_p, gt_p, ge_p = (_plain(n, n, (BOOL, *REALS), result=boolean) for n in ("lt", "le", "gt", "ge"))


# Selection.
def _select_type(which: ArrayType, *cases: ArrayType) -> ArrayType:
    if not cases:
        raise TypeRuleError("select_n needs at least one case")
    if which.dtype not in (BOOL, np.dtype("int32")):
        raise TypeRuleError(f"select_n needs a bool or i32 selector, got {which}")
    if any(c.dtype != cases[0].dtype for c in cases):
        raise TypeRuleError(
            f"select_n needs cases of one dtype, got {' and '.join(map(str, cases))}; convert one of them first"
        )
    if which.dtype == BOOL and len(cases) > 2:
        raise TypeRuleError(f"select_n with a bool selector takes 2 cases, got {len(cases)}")
    shape = common_shape("select_n", (which, *cases))
    return ArrayType(shape, cases[0].dtype, all(c.weak_type for c in cases))


def _select_eval(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if which.dtype == BOOL:
        return np.where(which, cases[-1], cases[0])
    result = cases[0]
    for number, case in enumerate(cases[1:], 1):
        result = np.where(which >= number, case, result)
    return result


def _select_lower(which: Scalar, *cases: Scalar) -> Scalar:
    if which.dtype == BOOL:
        return S.where(which, cases[-1], cases[0])
    result = cases[0]
    for number, case in enumerate(cases[1:], 1):
        result = S.where(S.apply("ge", which, S.constant(number, which.dtype)), case, result)
    return result


def _select_samples() -> Any:
    rng = np.random.default_rng(0)
    for dtype in (*ANY, *FLOAT8):
        yield (rng.random(SHAPE) < 0.5, sample(rng, SHAPE, dtype), sample(rng, SHAPE, dtype)), {}
    yield (rng.integers(0, 3, SHAPE).astype(np.int32), *(sample(rng, SHAPE, FLOATS[2]) for _ in range(3))), {}


select_n_p = register(
    Primitive(
        "select_n",
        Fusion.ELEMENTWISE,
        type=_select_type,
        eval=_select_eval,
        lower=_select_lower,
        samples=_select_samples,
    )
)


def _clamp_type(low: ArrayType, x: ArrayType, high: ArrayType) -> ArrayType:
    if not low.dtype == x.dtype == high.dtype:
        raise TypeRuleError(f"clamp needs equal dtypes, got {low}, {x} and {high}; convert one of them first")
    allow("clamp", x, (BOOL, *REALS))
    return ArrayType(common_shape("clamp", (low, x, high)), x.dtype, x.weak_type and low.weak_type and high.weak_type)


clamp_p = elementwise(
    "clamp",
    REALS,
    arity=3,
    type=_clamp_type,
    eval=lambda low, x, high: _extreme(_extreme(x, low, np, "max"), high, np, "min"),
    lower=lambda low, x, high: S.minimum(S.maximum(x, low), high),
)


# Conversion.
def _convert_type(x: ArrayType, new_dtype: Any, weak_type: bool = False) -> ArrayType:
    if KEY in (x.dtype, np.dtype(new_dtype)) and x.dtype != np.dtype(new_dtype):
        raise TypeRuleError(
            f"keys are no numbers: {x} cannot be converted to {short_dtype(np.dtype(new_dtype))}; "
            "see fuser.random.key_data and fuser.random.wrap_key_data"
        )
    return ArrayType(x.shape, np.dtype(new_dtype), weak_type)


def _convert_samples() -> Any:
    rng = np.random.default_rng(0)
    for old in ALL_DTYPES:
        for new in ALL_DTYPES:
            yield (sample(rng, SHAPE, old),), {"new_dtype": new, "weak_type": False}


convert_element_type_p = register(
    Primitive(
        "convert_element_type",
        Fusion.ELEMENTWISE,
        linear=True,
        type=_convert_type,
        eval=lambda x, new_dtype, weak_type=False: S.convert(x, np.dtype(new_dtype)),
        lower=lambda x, new_dtype, weak_type=False: S.cast(x, np.dtype(new_dtype)),
        samples=_convert_samples,
    )
)


def _bitcast_type(x: ArrayType, new_dtype: Any) -> ArrayType:
    new_dtype = np.dtype(new_dtype)
    old, new = x.dtype.itemsize, new_dtype.itemsize
    if (x.dtype == BOOL) != (new_dtype == BOOL) or is_complex(x.dtype) != is_complex(new_dtype):
        raise TypeRuleError(f"bitcast_convert_type cannot read {x} as {short_dtype(new_dtype)}")
    if old == new:
        return ArrayType(x.shape, new_dtype)
    if old > new:
        return ArrayType((*x.shape, old // new), new_dtype)
    if not x.shape or x.shape[-1] != new // old:
        raise TypeRuleError(
            f"bitcast_convert_type from {x} to {short_dtype(new_dtype)} needs a last dimension of {new // old}"
        )
    return ArrayType(x.shape[:-1], new_dtype)


def _bitcast_eval(x: np.ndarray, new_dtype: Any) -> np.ndarray:
    aval = _bitcast_type(ArrayType(x.shape, x.dtype), new_dtype)
    return np.frombuffer(np.ascontiguousarray(x).tobytes(), aval.dtype).reshape(aval.shape)


def _bitcast_samples() -> Any:
    rng = np.random.default_rng(0)
    for old, new in (
        ("float32", "int32"),
        ("int32", "float32"),
        ("float64", "uint64"),
        ("float16", "int16"),
        ("uint32", "int32"),
        ("float32", "uint8"),
        ("int64", "float64"),
    ):
        yield (sample(rng, SHAPE, np.dtype(old)),), {"new_dtype": np.dtype(new)}


bitcast_convert_type_p = register(
    Primitive(
        "bitcast_convert_type",
        Fusion.ELEMENTWISE,
        type=_bitcast_type,
        eval=_bitcast_eval,
        lower=lambda x, new_dtype: S.bitcast(x, np.dtype(new_dtype)),
        samples=_bitcast_samples,
    )
)


def _reduce_precision(x: Scalar, exponent_bits: int, mantissa_bits: int) -> Scalar:
    """XLA's algorithm: round the mantissa to nearest even in integer arithmetic, then flush or overflow the exponent."""
    dtype = x.dtype
    if dtype in (FLOATS[0], FLOATS[1]):
        return S.cast(_reduce_precision(S.cast(x, FLOATS[2]), exponent_bits, mantissa_bits), dtype)
    bits = dtype.itemsize * 8
    mantissa, exponent = (23, 8) if bits == 32 else (52, 11)
    integer = np.dtype(f"uint{bits}")
    raw = S.bitcast(x, integer)
    drop = mantissa - mantissa_bits
    if drop > 0:
        last = S.shift_right_logical(raw, S.constant(drop, integer)) & 1
        raw = (raw + (last + ((1 << (drop - 1)) - 1))) & (((1 << bits) - 1) ^ ((1 << drop) - 1))
    if exponent_bits < exponent:
        sign_mask = 1 << (bits - 1)
        bias, small = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        magnitude_exponent = raw & (((1 << exponent) - 1) << mantissa)
        overflow = magnitude_exponent > ((bias + small) << mantissa)
        underflow = magnitude_exponent <= ((bias - small) << mantissa)
        signed = raw & sign_mask
        infinity = signed | (((1 << exponent) - 1) << mantissa)
        raw = S.where(underflow, signed, S.where(overflow, infinity, raw))
    return S.where(S.not_equal(x, x), x, S.bitcast(raw, dtype))


def _reduce_precision_eval(x: np.ndarray, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    hole = Scalar("input", (), x.dtype, 0)
    return evaluate(_reduce_precision(hole, exponent_bits, mantissa_bits), {0: x})


reduce_precision_p = elementwise(
    "reduce_precision",
    FLOATS,
    eval=_reduce_precision_eval,
    lower=_reduce_precision,
    params=({"exponent_bits": 5, "mantissa_bits": 10}, {"exponent_bits": 8, "mantissa_bits": 7}),
)
copy_p = register(
    Primitive(
        "copy",
        Fusion.ELEMENTWISE,
        linear=True,
        type=lambda x: x,
        eval=lambda x: np.array(x),
        lower=lambda x: x,
        samples=lambda: (((sample(np.random.default_rng(0), SHAPE, d),), {}) for d in ALL_DTYPES),
    )
)
