"""Uniform numbers: bits, floats, integers, and what is a comparison away from them. Bit for bit those of JAX.

A float's mantissa is filled with random bits under the exponent of 1, which gives a number in [1, 2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import dtypes, lax
from fuser import numpy as fnp
from fuser.ir.types import FLOATS, HALVES, is_float, is_integer
from fuser.lax.values import as_value, broadcast_to, python_scalar
from fuser.lax.values import convert as converted
from fuser.numpy.creation import asarray
from fuser.ops.fma import fma_p
from fuser.random.generators import generator_of, threefry_bits, words_of
from fuser.random.keys import check_shape, common_shape, float_dtype, shape_of, split_key, typed
from fuser.random.large import compiled_when_large
from fuser.trace.core import bind


def random_bits(key: Any, width: int, shape: tuple[int, ...]) -> Any:
    """Unsigned integers of `width` bits, of a key that is known to be one."""
    generator = generator_of(key)
    if generator is None:
        return threefry_bits(key, width, shape)
    return generator.random_bits(words_of(key), width, shape)


@compiled_when_large
def bits(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Random bits as unsigned integers, uint32 by default (uint64 with `enable_x64`)."""
    key, _ = typed("bits", key)
    found = dtypes.canonical(np.uint64) if dtype is None else dtypes.requested(dtype, "bits")
    if found.kind != "u":
        raise ValueError(f"dtype argument to `bits` must be an unsigned int dtype, got {found.name}")
    return random_bits(key, found.itemsize * 8, shape_of(shape))


@compiled_when_large
def uniform(
    key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0, *, out_sharding: Any = None
) -> Any:
    """Real numbers in [minval, maxval), float32 by default; the bounds broadcast to `shape`."""
    key, _ = typed("uniform", key)
    return draw(key, shape_of(shape), float_dtype("uniform", dtype), minval, maxval)


def draw(key: Any, shape: tuple[int, ...], dtype: np.dtype, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """As `uniform`, of arguments that are known to be right."""
    floats = _unit(key, shape, dtype)
    if python_scalar(minval) and python_scalar(maxval) and (minval, maxval) == (0, 1):
        return floats
    low, high = (converted(as_value(v, "uniform"), dtype) for v in (minval, maxval))
    span = lax.sub(*(broadcast_to(v, shape) if low.shape != high.shape else v for v in (high, low)))
    low, span = (broadcast_to(v, shape) if v.shape else v for v in (low, span))
    return lax.max(low, _affine(floats, span, low, dtype))


def _unit(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Numbers in [0, 1)."""
    info = dtypes.finfo(dtype)
    width = 8 if info.nmant < 8 else info.bits
    unsigned = np.dtype(f"uint{info.bits}")
    mantissa = converted(random_bits(key, width, shape), unsigned)
    mantissa = lax.shift_right_logical(mantissa, unsigned.type(width - info.nmant))
    one = np.array(1.0, dtype)
    return lax.sub(lax.bitcast_convert_type(lax.bitwise_or(mantissa, one.view(unsigned)), dtype), one)


def _affine(x: Any, factor: Any, term: Any, dtype: np.dtype) -> Any:
    """x·factor + term: rounded once where processors do that, after each step in half precision."""
    if dtype in FLOATS[2:]:
        return bind(fma_p, x, factor, term)
    if dtype not in HALVES:
        return lax.add(lax.mul(x, factor), term)
    wide = lambda v: converted(v, FLOATS[2])  # kernels compute in float32 and round where they convert
    product = converted(lax.mul(wide(x), wide(factor)), dtype)
    return converted(lax.add(wide(product), wide(term)), dtype)


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Integers in [minval, maxval), int32 by default; the bounds broadcast to `shape`.

    A remainder of twice as many bits as the dtype has: all but unbiased.
    """
    key, _ = typed("randint", key)
    found = dtypes.requested(int if dtype is None else dtype, "randint")
    if not is_integer(found):
        raise TypeError(f"randint only accepts integer dtypes, got {found.name}")
    sampled, info = found, np.iinfo(found)
    if info.bits < 32:  # drawn with 32 bits, so that small ranges are not biased
        sampled = np.dtype("int32")
        minval = fnp.clip(asarray(minval).astype(sampled), int(info.min), int(info.max))
        maxval = fnp.clip(asarray(maxval).astype(sampled), int(info.min), int(info.max) + 1)
    return converted(_integers(key, shape_of(shape), minval, maxval, sampled), found)


def _integers(key: Any, shape: tuple[int, ...], minval: Any, maxval: Any, dtype: np.dtype) -> Any:
    check_shape("randint", shape, np.shape(minval), np.shape(maxval))
    low, high = (as_value(v, "randint") for v in (minval, maxval))
    low, high = (v if is_integer(v.dtype) else v.astype(int) for v in (low, high))
    beyond = lax.gt(high, _clipped(asarray(np.array(np.iinfo(dtype).max, dtype)), high.dtype))
    low, high = _clipped(low, dtype), _clipped(high, dtype)
    width = np.iinfo(dtype).bits
    unsigned = np.dtype(f"uint{width}")
    key_high, key_low = split_key(key)
    upper, lower = random_bits(key_high, width, shape), random_bits(key_low, width, shape)
    span = converted(high - low, unsigned)
    span = fnp.where(high <= low, unsigned.type(1), span)  # so that minval comes back
    span = fnp.where(beyond & (high > low), span + unsigned.type(1), span)
    multiplier = lax.rem(broadcast_to(asarray(unsigned.type(2 ** (width // 2))), span.shape), span)
    multiplier = lax.rem(multiplier * multiplier, span)
    span, multiplier = (broadcast_to(v, shape) for v in (span, multiplier))
    offset = lax.rem(upper, span) * multiplier + lax.rem(lower, span)
    return low + converted(lax.rem(offset, span), dtype)


def _clipped(x: Any, dtype: np.dtype) -> Any:
    """Integers in another integer dtype, those beyond its range at its ends."""
    if x.dtype == dtype:
        return x
    theirs, ours = np.iinfo(x.dtype), np.iinfo(dtype)
    return fnp.clip(x, x.dtype.type(max(ours.min, theirs.min)), x.dtype.type(min(ours.max, theirs.max))).astype(dtype)


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None) -> Any:
    """True with probability `p`; mode="high" draws twice the bits, for probabilities below 1e-7."""
    if mode not in ("high", "low"):
        raise ValueError(f"got mode={mode!r}, expected 'high' or 'low'")
    key, _ = typed("bernoulli", key)
    dtype, _ = dtypes.of(p)
    if not is_float(dtype):
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {dtype.name}.")
    shape = common_shape("bernoulli", shape, p)
    p = converted(as_value(p), dtype)
    if mode == "low":
        return draw(key, shape, dtype) < p
    both = draw(key, (2, *shape), dtype)
    fine = both[1] * dtype.type(2.0 ** -dtypes.finfo(dtype).nmant)
    return fine < p - both[0]


@compiled_when_large
def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """-1 or 1, int32 by default."""
    key, _ = typed("rademacher", key)
    found = dtypes.requested(int if dtype is None else dtype, "rademacher")
    positive = converted(bernoulli(key, 0.5, shape_of(shape)), found)
    return (2 * positive - 1).astype(found)
