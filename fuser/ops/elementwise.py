"""Elementwise primitives: arithmetic, maths, bits, comparison and selection; conversion stands in conversion.py.

Each statement holds a primitive's whole definition. Names, params and derivatives (at ties and singular points too) are
those of jax.lax. A derivative is written as the tangent times what does not depend on it, which is a residual then.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.primitive import REGISTRY, Fusion, Primitive, register
from fuser.ir.scalar import VOCABULARY, Scalar
from fuser.ir.types import (
    BOOL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    KEY,
    SIGNED,
    SMALL,
    SMALL_FLOATS,
    ArrayType,
    is_complex,
    is_integer,
)
from fuser.ops.conversion import (  # noqa: F401  (elementwise primitives all)
    bitcast_convert_type_p,
    convert_element_type_p,
    copy_p,
    reduce_precision_p,
    stop_gradient_p,
)
from fuser.ops.family import (
    SHAPE,
    allow,
    batch_elementwise,
    boolean,
    common_shape,
    constant,
    elementwise,
    linear_in,
    not_both,
    real_part,
    sample,
    unbroadcast,
)
from fuser.trace.jvp import expanded
from fuser.trace.tangent import Zero, all_zero, zero_like

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
# The sum of what reaches a value from several sides in a gradient: the order in which such sums are taken is nobody's.
add_any_p = _plain(
    "add_any",
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
    not_both("mul", x, y)
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


def _rem_jvp(t: Any, x: Any, y: Any, out: Any) -> Any:
    quotient = x / y
    return t * -(sign_p.bind(quotient) * floor_p.bind(abs_p.bind(quotient)))


rem_p = _plain("rem", "rem", REALS, jvp=(lambda t, x, y, out: t, _rem_jvp))
max_p, min_p = (
    elementwise(
        n,
        ANY,
        arity=2,
        both=lambda x, y, m, n=n: _extreme(x, y, m, n),
        jvp=(lambda t, x, y, out: t * _share(x, y, out), lambda t, x, y, out: t * _share(y, x, out)),
    )
    for n in ("max", "min")
)
square_p = elementwise("square", NUMBERS, eval=np.square, lower=lambda x: x * x, jvp=(lambda t, x, out: t * (2 * x),))


def _abs_jvp(t: Any, x: Any, out: Any) -> Any:
    """The derivative at 0 is 1 for real numbers, 0 for complex ones."""
    if not is_complex(x.dtype):
        return select_n_p.bind(x >= 0, -t, t)
    size = convert_element_type_p.bind(_nonzero(out), new_dtype=x.dtype)
    return real_p.bind(t * (conj_p.bind(x) / size))


abs_p = elementwise(
    "abs",
    (*SIGNED, *INEXACT),
    result=real_part,
    eval=np.abs,
    lower=lambda x: S.apply("abs", x, dtype=real_part(x.dtype)),
    jvp=(_abs_jvp,),
    small=SMALL_FLOATS,
)


def _share(x: Any, y: Any, out: Any) -> Any:
    """The part of max or min's derivative that is x's: 1 where x alone is the result, 1/2 where y is too, else 0."""
    half, one, zero = (constant(c, out) for c in (0.5, 1, 0))
    return select_n_p.bind(x == out, zero, select_n_p.bind(y == out, one, half))


def _nonzero(x: Any) -> Any:
    """x, and 1 where it is 0."""
    return select_n_p.bind(x == 0, x, constant(1, x))


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
        unit = np.empty_like(x)
        unit.real, unit.imag = x.real / size, x.imag / size  # each by itself: sign(2 + inf i) is 0 + nan i, as in JAX
        return np.where(size == 0, x, unit)
    return np.where(x == 0, x, np.sign(x))


def _sign_lower(x: Scalar) -> Scalar:
    one = S.constant(1, x.dtype)
    if is_complex(x.dtype):
        size, real, imag = (S.apply(part, x, dtype=real_part(x.dtype)) for part in ("abs", "real", "imag"))
        return S.where(S.equal(size, 0), x, S.apply("complex", real / size, imag / size, dtype=x.dtype))
    if x.dtype.kind == "u":
        return S.where(x > 0, one, x)
    return S.where(x > 0, one, S.where(x < 0, -one, x))


sign_p: Primitive = elementwise("sign", NUMBERS, eval=_sign_eval, lower=_sign_lower, jvp=(None,))

# Rounding.
floor_p: Primitive = _plain("floor", "floor", FLOATS, jvp=(None,))
ceil_p = _plain("ceil", "ceil", FLOATS, jvp=(None,))


def _round(x: Any, m: Any, rounding_method: int) -> Any:
    """0: halves away from zero; 1: halves to even."""
    if rounding_method == 1:
        return m.rint(x) if m is np else S.rounded(x)
    whole = m.trunc(x) if m is np else S.truncated(x)
    up = m.where(x > 0, whole + 1, whole - 1)
    return m.where(m.absolute(x - whole) >= 0.5, up, whole)


round_p = elementwise(
    "round", FLOATS, both=_round, params=({"rounding_method": 0}, {"rounding_method": 1}), jvp=(None,)
)
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
    jvp=(lambda t, x, out: t * (math.log(2) * out),),
)
expm1_p = _plain("expm1", "expm1", INEXACT, jvp=(lambda t, x, out: t * (out + 1),))
log_p: Primitive = _plain("log", "log", INEXACT, domain=(0.1, 9.0), jvp=(lambda t, x, out: t / x,))
log1p_p = _plain("log1p", "log1p", INEXACT, domain=(-0.9, 9.0), jvp=(lambda t, x, out: t / (x + 1),))
sqrt_p = _plain("sqrt", "sqrt", INEXACT, domain=(0.0, 9.0), jvp=(lambda t, x, out: t * (0.5 / out),))
rsqrt_p: Primitive = elementwise(
    "rsqrt",
    INEXACT,
    both=lambda x, m: 1 / m.sqrt(x),
    domain=(0.1, 9.0),
    jvp=(lambda t, x, out: t * (-0.5 * (out / x)),),
)
cbrt_p = _plain("cbrt", "cbrt", FLOATS, jvp=(lambda t, x, out: t * (1 / 3 * integer_pow_p.bind(out, y=-2)),))


def _logistic(x: Any, m: Any) -> Any:
    """1 / (1 + exp(-x)); for real numbers from exp(-|x|), which does not overflow where the result is small."""
    if is_complex(x.dtype):
        return 1 / (1 + m.exp(-x))
    e = m.exp(-m.absolute(x))
    return m.where(x < 0, e, 1.0) / (1 + e)


logistic_p = elementwise("logistic", INEXACT, both=_logistic, jvp=(lambda t, x, out: t * (out * (1 - out)),))


def _pow_type(x: ArrayType, y: ArrayType) -> ArrayType:
    allow("pow", x, (*INEXACT, *SMALL_FLOATS))
    if y.dtype != x.dtype and not is_integer(y.dtype):
        raise TypeRuleError(
            f"pow needs an exponent of the same dtype or an integer, got {x} and {y}; convert one of them first"
        )
    return ArrayType(common_shape("pow", (x, y)), x.dtype, x.weak_type and y.weak_type)


def _pow_eval(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of complex64 in complex128: the exponent multiplies the error of a logarithm."""
    y = y.astype(x.dtype)
    if x.dtype != np.complex64:
        return np.power(x, y)
    with np.errstate(over="ignore", under="ignore"):
        return np.power(x.astype(np.complex128), y.astype(np.complex128)).astype(x.dtype)


def _pow_jvp_base(t: Any, x: Any, y: Any, out: Any) -> Any:
    """y·x^(y - 1); for an integer y of 0 it is 0 wherever x is."""
    if y.dtype.kind not in "iu":
        return t * (y * pow_p.bind(x, y - 1))
    exponent = convert_element_type_p.bind(y, new_dtype=x.dtype)
    slope = _nonzero(exponent) * pow_p.bind(x, exponent - 1)
    return t * select_n_p.bind(y == 0, slope, constant(0, x))


pow_p: Primitive = elementwise(
    "pow",
    INEXACT,
    arity=2,
    mixed=True,
    type=_pow_type,
    eval=_pow_eval,
    lower=lambda x, y: S.power(x, S.cast(y, x.dtype)),
    domain=(0.1, 3.0),
    jvp=(_pow_jvp_base, lambda t, x, y, out: t * (log_p.bind(_nonzero(x)) * out)),
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


def _integer_pow_jvp(t: Any, x: Any, out: Any, y: int) -> Any:
    if y == 0:
        return zero_like(out)
    if y in (1, 2):
        return t if y == 1 else t * (2 * x)
    return t * (y * integer_pow_p.bind(x, y=y - 1))


integer_pow_p: Primitive = elementwise(
    "integer_pow",
    NUMBERS,
    both=_integer_pow,
    params=tuple({"y": y} for y in (0, 1, 2, 3, 7)),
    domain=(0.5, 2.0),
    jvp=(_integer_pow_jvp,),
)

# Trigonometric and hyperbolic functions.
sin_p: Primitive = _plain("sin", "sin", INEXACT, jvp=(lambda t, x, out: t * cos_p.bind(x),))
cos_p: Primitive = _plain("cos", "cos", INEXACT, jvp=(lambda t, x, out: t * -sin_p.bind(x),))
tan_p = _plain("tan", "tan", INEXACT, jvp=(lambda t, x, out: t * (1 + out * out),))
asin_p = _plain("asin", "asin", INEXACT, domain=(-1.0, 1.0), jvp=(lambda t, x, out: t * rsqrt_p.bind(1 - x * x),))
acos_p = _plain("acos", "acos", INEXACT, domain=(-1.0, 1.0), jvp=(lambda t, x, out: t * -rsqrt_p.bind(1 - x * x),))
atan_p = _plain("atan", "atan", INEXACT, jvp=(lambda t, x, out: t / (1 + x * x),))
sinh_p: Primitive = _plain("sinh", "sinh", INEXACT, jvp=(lambda t, x, out: t * cosh_p.bind(x),))
cosh_p: Primitive = _plain("cosh", "cosh", INEXACT, jvp=(lambda t, x, out: t * sinh_p.bind(x),))
tanh_p = _plain("tanh", "tanh", INEXACT, jvp=(lambda t, x, out: t * ((1 + out) * (1 - out)),))
asinh_p = _plain("asinh", "asinh", INEXACT, jvp=(lambda t, x, out: t * rsqrt_p.bind(x * x + 1),))
acosh_p = _plain("acosh", "acosh", INEXACT, domain=(1.0, 9.0), jvp=(lambda t, x, out: t * rsqrt_p.bind(x * x - 1),))
atanh_p = _plain("atanh", "atanh", INEXACT, domain=(-0.9, 0.9), jvp=(lambda t, x, out: t / ((1 + x) * (1 - x)),))
atan2_p = _plain(
    "atan2",
    "atan2",
    FLOATS,
    jvp=(lambda t, x, y, out: t * (y / (x * x + y * y)), lambda t, x, y, out: t * (-x / (x * x + y * y))),
)


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
    jvp=(lambda t, x, y, out: t, None),
)

# Special functions.
_BELL = 2 / math.sqrt(math.pi)
erf_p = _plain("erf", "erf", FLOATS, jvp=(lambda t, x, out: t * (_BELL * exp_p.bind(-(x * x))),))
erfc_p = _plain("erfc", "erfc", FLOATS, jvp=(lambda t, x, out: t * (-_BELL * exp_p.bind(-(x * x))),))
lgamma_p = _plain(
    "lgamma", "lgamma", FLOATS, domain=(0.1, 9.0), jvp=(lambda t, x, out: t * REGISTRY["digamma"].bind(x),)
)


# Complex numbers.
def _complex_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    out = complex_p.bind(*primals)
    parts = [constant(0, p) if type(t) is Zero else t for p, t in zip(primals, tangents)]
    return out, expanded(complex_p.bind(*parts), out.shape)


# The cotangents of complex numbers are such that the real part of cotangent times tangent is what a function changes by.
complex_p: Primitive = elementwise(
    "complex",
    (FLOATS[2], FLOATS[3]),
    arity=2,
    result=lambda *d, **p: np.dtype(f"complex{d[0].itemsize * 16}"),
    eval=S.compose,
    lower=lambda x, y: S.apply("complex", x, y, dtype=np.dtype(f"complex{x.dtype.itemsize * 16}")),
    linear=True,
    jvp=_complex_jvp,
    transpose=lambda ct, x, y: (
        unbroadcast(real_p.bind(ct), x) if linear_in(x) else None,
        unbroadcast(-imag_p.bind(ct), y) if linear_in(y) else None,
    ),
)
real_p: Primitive = elementwise(
    "real",
    COMPLEX,
    result=real_part,
    eval=np.real,
    lower=lambda x: S.apply("real", x, dtype=real_part(x.dtype)),
    linear=True,
    transpose=lambda ct, x: (complex_p.bind(ct, constant(0, ct)),),
)
imag_p: Primitive = elementwise(
    "imag",
    COMPLEX,
    result=real_part,
    eval=np.imag,
    lower=lambda x: S.apply("imag", x, dtype=real_part(x.dtype)),
    linear=True,
    transpose=lambda ct, x: (complex_p.bind(constant(0, ct), -ct),),
)
conj_p: Primitive = elementwise(
    "conj",
    COMPLEX,
    eval=np.conj,
    lower=lambda x, **p: S.apply("conj", x),
    linear=True,
    transpose=lambda ct, x: (conj_p.bind(ct),),
)

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
    for dtype in (*ANY, *SMALL):
        yield (rng.random(SHAPE) < 0.5, sample(rng, SHAPE, dtype), sample(rng, SHAPE, dtype)), {}
    yield (rng.integers(0, 3, SHAPE).astype(np.int32), *(sample(rng, SHAPE, FLOATS[2]) for _ in range(3))), {}


def _select_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """The tangent of the case that is chosen; those of the others (nan, perhaps) leave no trace."""
    which, *cases = primals
    out = select_n_p.bind(which, *cases)
    if all_zero(tangents[1:]):
        return out, zero_like(out)
    given = [constant(0, c) if type(t) is Zero else t for c, t in zip(cases, tangents[1:])]
    return out, expanded(select_n_p.bind(which, *given), out.shape)


def _select_transpose(ct: Any, which: Any, *cases: Any) -> list[Any]:
    zero, last = constant(0, ct), len(cases) - 1
    found: list[Any] = [None]
    for number, case in enumerate(cases):
        if not linear_in(case):
            found.append(None)
        elif which.dtype == BOOL:
            found.append(select_n_p.bind(which, *((ct, zero) if number == 0 else (zero, ct))))
        else:  # a number beyond the cases chooses the nearest
            chosen = which <= 0 if number == 0 else which >= last if number == last else which == number
            found.append(select_n_p.bind(chosen, zero, ct))
    return [f if f is None else unbroadcast(f, c) for f, c in zip(found, (which, *cases))]


select_n_p: Primitive = register(
    Primitive(
        "select_n",
        Fusion.ELEMENTWISE,
        type=_select_type,
        eval=_select_eval,
        lower=_select_lower,
        jvp=_select_jvp,
        transpose=_select_transpose,
        samples=_select_samples,
    )
)
select_n_p.batch = batch_elementwise(select_n_p)


def _clamp_type(low: ArrayType, x: ArrayType, high: ArrayType) -> ArrayType:
    if not low.dtype == x.dtype == high.dtype:
        raise TypeRuleError(f"clamp needs equal dtypes, got {low}, {x} and {high}; convert one of them first")
    allow("clamp", x, (BOOL, *REALS, *SMALL))
    return ArrayType(common_shape("clamp", (low, x, high)), x.dtype, x.weak_type and low.weak_type and high.weak_type)


clamp_p = elementwise(
    "clamp",
    REALS,
    arity=3,
    type=_clamp_type,
    eval=lambda low, x, high: _extreme(_extreme(x, low, np, "max"), high, np, "min"),
    lower=lambda low, x, high: S.minimum(S.maximum(x, low), high),
    jvp=(  # where the operand equals a bound, all three are 0, as in JAX
        lambda t, low, x, high, out: select_n_p.bind((low > x) & (low < high), constant(0, t), t),
        lambda t, low, x, high, out: select_n_p.bind((x > low) & (x < high), constant(0, t), t),
        lambda t, low, x, high, out: select_n_p.bind(high < x, constant(0, t), t),
    ),
)
