"""Distributions of real numbers that are a formula of uniform or normal ones, in the steps that JAX computes them in."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import dtypes, lax
from fuser import numpy as fnp
from fuser.config import config
from fuser.ir.types import is_complex
from fuser.lax.values import as_value, broadcast_shapes, broadcast_to
from fuser.lax.values import convert as converted
from fuser.random.keys import (
    castable,
    common_shape,
    float_dtype,
    inexact_dtype,
    shape_of,
    split_key,
    typed,
)
from fuser.random.large import compiled_when_large
from fuser.random.uniform import draw, rademacher, random_bits

WORD = np.dtype("uint32")
ONE = np.float32(1)


def _start(name: str, key: Any, shape: Any, dtype: Any) -> tuple[Any, tuple[int, ...], np.dtype]:
    """The checked arguments of a distribution without parameters."""
    key, _ = typed(name, key)
    found = float_dtype(name, dtype)
    return key, shape_of(shape), found


def _start_with(
    name: str, key: Any, shape: Any, dtype: Any, *parameters: Any
) -> tuple[Any, tuple[int, ...], np.dtype, list[Any]]:
    """The same with parameters, which come back in the result's dtype."""
    key, _ = typed(name, key)
    found = float_dtype(name, dtype)
    whole = common_shape(name, shape, *parameters)
    castable(name, found, *parameters)
    return key, whole, found, [converted(as_value(p, name), found) for p in parameters]


@compiled_when_large
def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Standard normal numbers; complex ones have both parts of variance 1/2."""
    key, _ = typed("normal", key)
    return standard(key, shape_of(shape), inexact_dtype("normal", dtype))


def standard(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """As `normal`, of arguments that are known to be right."""
    if is_complex(dtype):
        part = np.dtype(f"float{dtype.itemsize * 4}")
        real, imag = (standard(k, shape, part) for k in split_key(key))
        return lax.div(lax.complex(real, imag), dtype.type(np.sqrt(2)))
    low = np.nextafter(np.array(-1.0, dtype), np.array(0.0, dtype), dtype=dtype)
    u = draw(key, shape, dtype, low, np.array(1.0, dtype))
    return lax.mul(np.array(np.sqrt(2), dtype), lax.erf_inv(u))


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Standard normal numbers that lie in (lower, upper)."""
    key, _ = typed("truncated_normal", key)
    found = float_dtype("truncated_normal", dtype)
    whole = common_shape("truncated_normal", shape, lower, upper)
    low, high = (converted(as_value(v, "truncated_normal"), found) for v in (lower, upper))
    root = np.array(np.sqrt(2), found)
    u = draw(key, whole, found, lax.erf(low / root), lax.erf(high / root))
    out = root * lax.erf_inv(u)
    inside = (np.array(end, found) for end in (np.inf, -np.inf))
    return fnp.clip(out, *(fnp.nextafter(v, end) for v, end in zip((low, high), inside)))


@compiled_when_large
def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the density exp(-x), x ≥ 0."""
    key, shape, found = _start("exponential", key, shape, dtype)
    return lax.neg(lax.log1p(lax.neg(draw(key, shape, found))))


@compiled_when_large
def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the density exp(-|x|) / 2."""
    key, shape, found = _start("laplace", key, shape, dtype)
    u = draw(key, shape, found, -1.0 + float(dtypes.finfo(found).epsneg), 1.0)
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


@compiled_when_large
def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the density exp(-x) / (1 + exp(-x))²."""
    key, shape, found = _start("logistic", key, shape, dtype)
    x = draw(key, shape, found, dtypes.finfo(found).tiny, 1.0)
    return lax.sub(lax.log(x), lax.log1p(lax.neg(x)))


@compiled_when_large
def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of a density proportional to 1 / (x² + 1)."""
    key, shape, found = _start("cauchy", key, shape, dtype)
    u = draw(key, shape, found, dtypes.finfo(found).eps, 1.0)
    return lax.tan(lax.mul(found.type(np.pi), lax.sub(u, found.type(0.5))))


@compiled_when_large
def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the density exp(-(x + exp(-x))). Mode "low" ends at about 16, "high" at about 32; the default is "low",
    or "high" with the setting `high_dynamic_range_gumbel`."""
    key, shape, found = _start("gumbel", key, shape, dtype)
    mode = mode or ("high" if config.high_dynamic_range_gumbel else "low")
    if mode not in ("highest", "high", "low"):
        raise ValueError(f"Must provide valid mode for gumbel got: {mode}")
    tiny = dtypes.finfo(found).tiny
    if mode == "low":
        return -lax.log(-lax.log(draw(key, shape, found, tiny, 1.0)))
    if mode == "highest" and found == np.dtype("float32"):
        return _gumbel_of_64_bits(key, shape)
    both = draw(key, (2, *shape), found)
    high, low = both[0], both[1]
    x = fnp.where(high >= 0.5, high, high + found.type(2.0 ** -dtypes.finfo(found).nmant) * low + tiny)
    return -lax.log(-lax.log1p(-x))


def _gumbel_of_64_bits(key: Any, shape: tuple[int, ...]) -> Any:
    """log1p below 1/2 and log above, on numbers with 64 bits behind the point."""
    drawn = random_bits(key, 32, (2, *shape))
    flipped = lax.bitwise_not(drawn)
    carry = (flipped[1] == WORD.type(0xFFFFFFFF)).astype(WORD)
    small = drawn[0] < WORD.type(1 << 31)
    upper = fnp.where(small, drawn[0], flipped[0] + carry)
    lower = fnp.where(small, drawn[1], flipped[1] + WORD.type(1))
    x = _fraction(upper, lower)
    return fnp.where(small, -lax.log(-lax.log1p(-x)), -lax.log(-lax.log(x)))


def _fraction(upper: Any, lower: Any) -> Any:
    """The float32 nearest below 0.(upper)(lower), two words behind the binary point."""
    zeros, more = lax.clz(upper), lax.clz(lower)
    word = WORD.type
    empty = zeros == word(32)
    shifted = fnp.where(empty, lax.shift_left(lower, more), lax.shift_right_logical(lower, word(32) - zeros))
    mantissa = lax.shift_right_logical(lax.shift_left(upper, zeros) | shifted, word(32 - 23 - 1)) & word((1 << 23) - 1)
    exponent = lax.shift_left(word(126) - fnp.where(empty, word(32) + more, zeros), word(23))
    exponent = exponent & word((1 << 30) - (1 << 22))
    return lax.bitcast_convert_type(exponent | mantissa, np.float32)


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the density b / x^(b + 1), x ≥ 1."""
    key, whole, found, (b,) = _start_with("pareto", key, shape, dtype, b)
    return lax.exp(exponential(key, whole, found) / b)


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of a density proportional to x·exp(-x² / (2·scale²)), x ≥ 0."""
    key, whole, found, (scale,) = _start_with("rayleigh", key, shape, dtype, scale)
    root = lax.sqrt(lax.mul(lax.log(draw(key, whole, found)), found.type(-2)))
    return lax.mul(broadcast_to(scale, whole), root)


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the density exp(-(x - mean)² / (2·mean²·x)) / √(2π·x³)."""
    key, whole, found, (mean,) = _start_with("wald", key, shape, dtype, mean)
    key_v, key_z = split_key(key)
    mean = broadcast_to(mean, whole)
    y = lax.integer_pow(standard(key_v, whole, found), 2)
    z = draw(key_z, whole, found)
    mean_squared = lax.integer_pow(mean, 2)
    root = lax.sqrt(4 * mean * y + mean_squared * lax.integer_pow(y, 2))
    x = mean + mean_squared * y / 2 - mean / 2 * root
    return fnp.where(z <= mean / (mean + x), x, mean_squared / x)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers whose density rises from `left` to `mode` and falls to `right`."""
    key, whole, found, bounds = _start_with("triangular", key, shape, dtype, left, mode, right)
    left, mode, right = (broadcast_to(v, whole) for v in bounds)
    u = draw(key, whole, found)
    rising = left + lax.sqrt(u * (right - left) * (mode - left))
    falling = right - lax.sqrt((1 - u) * (right - left) * (right - mode))
    return fnp.where(u < (mode - left) / (right - left), rising, falling)


def lognormal(key: Any, sigma: Any = ONE, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """exp of normal numbers with the standard deviation `sigma`."""
    key, _ = typed("lognormal", key)
    found = inexact_dtype("lognormal", dtype)
    whole = common_shape("lognormal", shape, sigma)
    castable("lognormal", found, sigma)
    return lax.exp(standard(key, whole, found) * converted(as_value(sigma), found))


@compiled_when_large
def maxwell(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Lengths of normal vectors in three dimensions."""
    key, shape, found = _start("maxwell", key, shape, dtype)
    vectors = standard(key, (*shape, 3), found)
    return lax.sqrt(fnp.sum(vectors * vectors, axis=-1))


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Any:
    """loc ± scale·maxwell; the parameters' shape is added to `shape` (and used twice where that is empty, as in JAX)."""
    key, shape, found = _start("double_sided_maxwell", key, shape, dtype)
    parameters = broadcast_shapes(np.shape(loc), np.shape(scale))
    whole = (shape or parameters) + parameters
    key_size, key_sign = split_key(key)
    return rademacher(key_sign, whole, found) * maxwell(key_size, whole, found) * scale + loc


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Numbers of a density proportional to x^(c - 1)·exp(-(x / scale)^c), c being the concentration."""
    key, shape, found = _start("weibull_min", key, shape, dtype)
    return fnp.power(-fnp.log1p(-draw(key, shape, found)), 1.0 / concentration) * scale
