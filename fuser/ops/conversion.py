"""Elementwise primitives that change what elements are kept in: conversion, bits read as another dtype, rounding, copies, stop_gradient.

Each statement holds a primitive's whole definition. Names and params are those of jax.lax.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import Scalar, evaluate
from fuser.ir.types import (
    ALL_DTYPES,
    BOOL,
    COMPLEX,
    FLOATS,
    SIGNED,
    SMALL,
    ArrayType,
    bfloat16,
    bits_of,
    is_complex,
    is_key,
    short_dtype,
)
from fuser.ops import float8
from fuser.ops.family import SHAPE, batch_elementwise, elementwise, sample
from fuser.trace.batch import moved
from fuser.trace.core import bind


def _convert_type(x: ArrayType, new_dtype: Any, weak_type: bool = False) -> ArrayType:
    if x.dtype != np.dtype(new_dtype) and (is_key(x.dtype) or is_key(np.dtype(new_dtype))):
        raise TypeRuleError(
            f"keys are no numbers: {x} cannot be converted to {short_dtype(np.dtype(new_dtype))}; "
            "see fuser.random.key_data and fuser.random.wrap_key_data"
        )
    return ArrayType(x.shape, np.dtype(new_dtype), weak_type)


def _convert_samples() -> Any:
    rng = np.random.default_rng(0)
    few = (BOOL, SIGNED[2], FLOATS[0], FLOATS[2], COMPLEX[0])
    for old in ALL_DTYPES:
        for new in ALL_DTYPES:
            if (old not in SMALL and new not in SMALL) or old in few or new in few:
                yield (sample(rng, SHAPE, old),), {"new_dtype": new, "weak_type": False}


def _convert_transpose(ct: Any, x: Any, new_dtype: Any, weak_type: bool = False) -> tuple[Any]:
    """The cotangent in the operand's dtype: a complex one loses its imaginary part, which meets zeros."""
    return (bind(convert_element_type_p, ct, new_dtype=x.aval.dtype, weak_type=False),)


# What gives a value of its dtype exactly: what stands in memory or was converted, and choices among such values.
_EXACT = frozenset(("load", "input", "const", "index", "lane", "cast", "bitcast"))
_CHOICES = frozenset(("select", "neg", "abs", "max", "min"))


def _exact(x: Scalar) -> bool:
    """Whether kernels, which compute float16 and bfloat16 in float32, hold no more digits of `x` than its dtype has."""
    seen, left = set(), [x]
    while left:
        node = left.pop()
        if id(node) in seen or node.dtype != x.dtype or node.op in _EXACT:  # a condition is of another dtype
            continue
        if node.op not in _CHOICES:
            return False
        seen.add(id(node))
        left += node.args
    return True


def _convert_lower(x: Scalar, new: np.dtype) -> Scalar:
    """A conversion sees the value rounded to the dtype that it is converted from."""
    if x.dtype in (FLOATS[0], bfloat16) and new != x.dtype and not _exact(x):
        x = S.cast(S.cast(x, FLOATS[2]), x.dtype)
    if x.dtype in float8.FORMATS and new != x.dtype:
        x = float8.decoded(x)
    return float8.encoded(S.cast(x, FLOATS[2]), new) if new in float8.FORMATS and new != x.dtype else S.cast(x, new)


convert_element_type_p: Primitive = register(
    Primitive(
        "convert_element_type",
        Fusion.ELEMENTWISE,
        linear=True,
        type=_convert_type,
        eval=lambda x, new_dtype, weak_type=False: S.convert(x, np.dtype(new_dtype)),
        lower=lambda x, new_dtype, weak_type=False: _convert_lower(x, np.dtype(new_dtype)),
        jvp=(lambda t, x, out, **params: bind(convert_element_type_p, t, **params),),
        transpose=_convert_transpose,
        samples=_convert_samples,
    )
)
convert_element_type_p.batch = batch_elementwise(convert_element_type_p)


def _bitcast_type(x: ArrayType, new_dtype: Any) -> ArrayType:
    new_dtype = np.dtype(new_dtype)
    old, new = bits_of(x.dtype), bits_of(new_dtype)
    if (x.dtype == BOOL) != (new_dtype == BOOL) or is_complex(x.dtype) != is_complex(new_dtype):
        raise TypeRuleError(f"bitcast_convert_type cannot read {x} as {short_dtype(new_dtype)}")
    if old == new:
        return ArrayType(x.shape, new_dtype)
    if old > new and not old % new:
        return ArrayType((*x.shape, old // new), new_dtype)
    if new % old or not x.shape or x.shape[-1] != new // old:
        raise TypeRuleError(
            f"bitcast_convert_type from {x} to {short_dtype(new_dtype)} needs a last dimension of {new // old}"
        )
    return ArrayType(x.shape[:-1], new_dtype)


def _bitcast_eval(x: np.ndarray, new_dtype: Any) -> np.ndarray:
    if x.dtype.itemsize == np.dtype(new_dtype).itemsize and x.dtype.kind in "iuf" and np.dtype(new_dtype).kind in "iuf":
        return np.ascontiguousarray(x).view(new_dtype) if x.ndim else np.array(x).view(new_dtype)
    aval = _bitcast_type(ArrayType(x.shape, x.dtype), new_dtype)
    if bits_of(x.dtype) % 8 or bits_of(aval.dtype) % 8:
        return _bits_as(x, aval)
    return np.frombuffer(np.ascontiguousarray(x).tobytes(), aval.dtype).reshape(aval.shape)


def _bits_as(x: np.ndarray, aval: ArrayType) -> np.ndarray:
    """The bits of `x`, low ones first, as elements of which some have fewer bits than the bytes that they lie in."""
    octets = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, x.dtype.itemsize)
    bits = np.unpackbits(octets, axis=-1, bitorder="little")[..., : bits_of(x.dtype)]
    packed = np.packbits(bits.reshape(*aval.shape, bits_of(aval.dtype)), axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view(aval.dtype)[..., 0]


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
        ("int16", "int4"),
        ("int4", "uint4"),
    ):
        yield (sample(rng, SHAPE, np.dtype(old)),), {"new_dtype": np.dtype(new)}


def _bitcast_batch(operands: Any, dims: Any, new_dtype: Any) -> tuple[Any, int]:
    """The batch goes in front, away from the last dimension, which may hold the parts of an element."""
    return bind(bitcast_convert_type_p, moved(operands[0], dims[0], 0), new_dtype=new_dtype), 0


bitcast_convert_type_p: Primitive = register(
    Primitive(
        "bitcast_convert_type",
        Fusion.ELEMENTWISE,
        type=_bitcast_type,
        eval=_bitcast_eval,
        lower=lambda x, new_dtype: S.bitcast(x, np.dtype(new_dtype)),
        jvp=(None,),
        batch=_bitcast_batch,
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


reduce_precision_p: Primitive = elementwise(
    "reduce_precision",
    FLOATS,
    linear=True,  # in JAX's sense: tangents and cotangents are rounded as the values are
    transpose=lambda ct, x, **p: (bind(reduce_precision_p, ct, **p),),
    eval=_reduce_precision_eval,
    lower=_reduce_precision,
    params=({"exponent_bits": 5, "mantissa_bits": 10}, {"exponent_bits": 8, "mantissa_bits": 7}),
)
copy_p: Primitive = register(
    Primitive(
        "copy",
        Fusion.ELEMENTWISE,
        linear=True,
        transpose=lambda ct, x: (bind(copy_p, ct),),
        type=lambda x: x,
        eval=lambda x: np.array(x),
        lower=lambda x: x,
        samples=lambda: (((sample(np.random.default_rng(0), SHAPE, d),), {}) for d in ALL_DTYPES),
    )
)
copy_p.batch = batch_elementwise(copy_p)
stop_gradient_p: Primitive = register(
    Primitive(
        "stop_gradient",
        Fusion.ELEMENTWISE,
        type=lambda x: x,
        eval=lambda x: np.array(x),
        lower=lambda x: x,
        jvp=(None,),
        samples=lambda: (((sample(np.random.default_rng(0), SHAPE, d),), {}) for d in ALL_DTYPES),
    )
)
stop_gradient_p.batch = batch_elementwise(stop_gradient_p)
