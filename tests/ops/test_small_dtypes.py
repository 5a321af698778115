"""Integers and floats of fewer bits than any kernel computes with: their names, promotion, arithmetic and bits, as in JAX."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import dtypes, lax
from fuser.ir.types import FLOAT8, SMALL, SMALL_FLOATS, SMALL_INTEGERS, bits_of, short_dtype

INT4, UINT4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)


def same(ours: Any, theirs: Any) -> None:
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    wide = np.float32 if ours.dtype in SMALL else ours.dtype
    np.testing.assert_array_equal(np.asarray(ours).astype(wide), np.asarray(theirs).astype(wide))


@pytest.mark.parametrize("dtype", SMALL, ids=short_dtype)
def test_names_and_limits(dtype: np.dtype) -> None:
    assert getattr(fnp, dtype.name).dtype == dtype and fnp.dtype(dtype.name) == dtype
    assert dtypes.itemsize_bits(dtype) == bits_of(dtype) == jax.dtypes.itemsize_bits(dtype)
    for kind in (np.integer, np.signedinteger, np.unsignedinteger, np.floating, np.inexact, np.number, np.generic):
        assert fnp.issubdtype(dtype, kind) == jnp.issubdtype(dtype, kind), kind
    for kind in ("integral", "signed integer", "unsigned integer", "real floating", "numeric"):
        assert fnp.isdtype(dtype, kind) == jnp.isdtype(dtype, kind), kind
    limits = fnp.iinfo if dtype in SMALL_INTEGERS else fnp.finfo
    assert limits(dtype).max == (ml_dtypes.iinfo if dtype in SMALL_INTEGERS else ml_dtypes.finfo)(dtype).max


@pytest.mark.parametrize("dtype", SMALL, ids=short_dtype)
def test_promotion(dtype: np.dtype) -> None:
    x, theirs = fnp.ones(2, dtype), jnp.ones(2, "float32")
    assert (x + x).dtype == dtype and fnp.result_type(x, 1) == jnp.result_type(dtype, 1)
    bits, kind = bits_of(dtype), "floats" if dtype in SMALL_FLOATS else "integers"
    with pytest.raises(dtypes.TypePromotionError, match=f"{bits}-bit {kind} do not support implicit promotion"):
        x + np.asarray(theirs)


@pytest.mark.parametrize("dtype", [INT4, UINT4], ids=short_dtype)
def test_integer_arithmetic(dtype: np.dtype) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 16, 12).astype(dtype) for _ in range(2))
    y = np.where(y == 0, np.array(3, dtype), y)
    for name in ("add", "sub", "mul", "max", "min", "bitwise_and", "bitwise_xor", "eq", "lt", "div", "rem"):
        wide = getattr(np, {"sub": "subtract", "mul": "multiply", "max": "maximum", "min": "minimum"}.get(name, "add"))
        found = getattr(lax, name)(x, y)
        theirs = getattr(lax, name)(x.astype(np.int8), y.astype(np.int8))
        same(found, theirs.astype(dtype) if theirs.dtype == np.int8 else theirs)
        same(fuser.jit(getattr(lax, name))(x, y), found)
        if name in ("add", "sub", "mul"):
            np.testing.assert_array_equal(np.asarray(found), wide(x.astype(np.int8), y.astype(np.int8)).astype(dtype))
    with pytest.raises(TypeError, match=f"abs does not accept dtype {dtype.name}"):
        lax.abs(x)


def test_conversions() -> None:
    x = np.array([0.4, 1.5, -2.6, 7.9, 9.6, -20, 300, np.nan, np.inf], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (INT4, UINT4, *FLOAT8):
            same(lax.convert_element_type(x, dtype), jax.lax.convert_element_type(x, dtype))
            there_and_back = fuser.jit(lambda v, dtype=dtype: v.astype(dtype).astype("float32"))(x)
            same(there_and_back, jax.lax.convert_element_type(x, dtype).astype("float32"))
        same(
            lax.convert_element_type(np.arange(-20, 20), "int4"),
            jax.lax.convert_element_type(np.arange(-20, 20), "int4"),
        )


def test_bits() -> None:
    x = np.array([[0x12, 0x34], [-1, 5]], np.int8)
    for dtype in ("int4", "uint4"):
        halves = lax.bitcast_convert_type(x, dtype)
        same(halves, jax.lax.bitcast_convert_type(x, dtype))
        same(lax.bitcast_convert_type(halves, "int8"), jnp.asarray(x))
    same(
        lax.bitcast_convert_type(np.arange(8).astype(INT4), "uint4"),
        jax.lax.bitcast_convert_type(jnp.arange(8).astype("int4"), "uint4"),
    )


def test_within_programs() -> None:
    """Movement, choices, comparison and loops of small numbers, compiled and batched."""

    def program(m: Any, x: Any) -> Any:
        total, each = m.lax.scan(lambda c, v: (c + v, c * v), x[0], x)
        return m.numpy.where(x > 1, x, total)[::-1].reshape(2, -1), each

    x = np.array([1, 2, 3, 1], np.int8)
    for dtype in ("int4", "float8_e4m3fn", "float8_e3m4"):
        for found, wanted in zip(
            fuser.jit(lambda v: program(fuser, v))(fnp.asarray(x).astype(dtype)),
            program(jax, jnp.asarray(x).astype(dtype)),
        ):
            same(found, wanted)
    same(
        fuser.vmap(lambda v: v * v)(fnp.asarray(x, dtype="int4")),
        jax.vmap(lambda v: v * v)(jnp.asarray(x, dtype="int4")),
    )
