"""Promotion against JAX: every pair of dtypes, every combination of weak types and Python scalars, 64-bit types on and off."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from agreement import Weak, agree, ours, precision, same, theirs

import fuser
import fuser.numpy as fnp
from fuser import dtypes
from fuser.ir.types import ALL_DTYPES, FLOAT4_6, SMALL, SMALL_INTEGERS

SCALARS = (bool, int, float, complex)


@pytest.mark.parametrize("x64", [False, True])
def test_promote_types_of_all_pairs(x64):
    with precision(x64):
        for a, b in itertools.product((*ALL_DTYPES, *SCALARS), repeat=2):
            agree(dtypes.promote_types, jnp.promote_types, a, b)


@pytest.mark.parametrize("x64", [False, True])
def test_result_types_with_weak_types(x64):
    """result_type over pairs of (dtype, weak): what any binary function gives."""
    with precision(x64):
        unknown = (*FLOAT4_6, *SMALL_INTEGERS)  # to JAX on the CPU
        known = [d for d in ALL_DTYPES if d not in unknown and (x64 or d.itemsize < 8 or d == np.complex64)]
        values = [(d, w) for d in known for w in (False, True)]
        for (a, weak_a), (b, weak_b) in itertools.product(values, repeat=2):
            x, y = _typed(a, weak_a), _typed(b, weak_b)
            try:
                expected = jax._src.dtypes.lattice_result_type(x, y)
            except Exception:
                with pytest.raises(dtypes.TypePromotionError):
                    dtypes.result_of((a, weak_a and a.kind != "b"), (b, weak_b and b.kind != "b"))
                continue
            found = dtypes.result_of((a, weak_a and a.kind != "b"), (b, weak_b and b.kind != "b"))
            assert found == expected, (a, weak_a, b, weak_b)


def _typed(dtype, weak):
    return jax._src.lax.lax._convert_element_type(jnp.ones((), dtype), dtype, weak and dtype.kind != "b")


@pytest.mark.parametrize("x64", [False, True])
def test_add_of_all_pairs(x64):
    """The arrays themselves: dtype and weak type of x + y, where JAX only infers the types."""
    with precision(x64):
        chosen = [d for d in ALL_DTYPES if d not in SMALL and (x64 or d.itemsize < 8 or d == np.complex64)]
        operands = [*(np.ones(2, d) for d in chosen), True, 2, 2.5, 2j, Weak(2), Weak(2.5)]
        for x, y in itertools.product(operands, repeat=2):
            expected = jax.eval_shape(lambda x=x, y=y: jnp.add(theirs(x), theirs(y)))
            found = fnp.add(ours(x), ours(y))
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (x, y)
            assert found.weak_type == expected.weak_type, (x, y)


def test_eight_bit_floats_promote_only_on_request():
    x = fnp.ones(3, ml_dtypes.float8_e4m3fn)
    with pytest.raises(dtypes.TypePromotionError, match="8-bit floats do not support implicit promotion"):
        x + fnp.ones(3)
    assert x.astype("float32").dtype == np.float32


@pytest.mark.parametrize("scalar", [True, 3, -1, 2.5, 1j, 300])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"])
def test_python_scalars(dtype, scalar):
    x = np.ones(3, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for name in ("add", "multiply", "maximum", "true_divide", "power", "equal"):
        if name == "power" and isinstance(scalar, int) and scalar < 0:
            continue
        same(name, x, scalar)
        same(name, scalar, x)


def test_numpy_scalars_are_strong_and_canonical():
    same("multiply", np.float64(2), np.ones(3, np.float16))
    same("add", np.int64(2), np.ones(3, np.int8))
    same("asarray", np.float64(1.5))


@pytest.mark.parametrize(
    "value", [True, 3, 2.5, 1j, [1, 2], [1, 2.5], [True, 1], [[1], [2]], [], (1, 2j), [np.float64(2), 1]]
)
@pytest.mark.parametrize("x64", [False, True])
def test_asarray_of_python_data(value, x64):
    with precision(x64):
        agree(fnp.asarray, jnp.asarray, value)
        agree(fnp.array, jnp.array, value)


def test_integers_that_do_not_fit():
    with pytest.raises(OverflowError, match="Python integer 1099511627776 out of bounds for int32"):
        fnp.asarray(2**40)
    with pytest.raises(OverflowError):
        fnp.asarray([2**40])
    with precision(True):
        assert fnp.asarray(2**40).dtype == np.int64


def test_lists_are_no_operands():
    with pytest.raises(
        TypeError,
        match=r"add requires ndarray or scalar arguments, got .* at position 0; make it an array with fuser\.numpy\.asarray",
    ):
        fnp.add([1, 2], 3)
    with pytest.raises(TypeError):
        fnp.ones(3) + [1, 2, 3]
    with pytest.raises(TypeError):
        fnp.ones(3) + None


def test_a_wide_dtype_asked_for_warns():
    with pytest.warns(UserWarning, match="float64 was asked for in zeros, but 64-bit types are off"):
        assert fnp.zeros(3, np.float64).dtype == np.float32
    assert fuser.numpy.ones(2, float).dtype == np.float32


def test_issubdtype():
    kinds = [
        np.floating,
        np.inexact,
        np.number,
        np.integer,
        np.signedinteger,
        np.unsignedinteger,
        np.complexfloating,
        np.generic,
        np.bool_,
    ]
    for dtype, kind in itertools.product(ALL_DTYPES, kinds):
        assert dtypes.issubdtype(dtype, kind) == jnp.issubdtype(dtype, kind), (dtype, kind)
    for a, b in itertools.product(ALL_DTYPES, repeat=2):
        assert dtypes.issubdtype(a, b) == jnp.issubdtype(a, b)
    for kind in (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
    ):
        for dtype in ALL_DTYPES:
            assert dtypes.isdtype(dtype, kind) == jnp.isdtype(dtype, kind), (dtype, kind)


def test_limits():
    for dtype in ALL_DTYPES:
        if dtypes.issubdtype(dtype, np.floating):
            assert float(dtypes.finfo(dtype).max) == float(jnp.finfo(dtype).max)
        elif dtypes.issubdtype(dtype, np.integer):
            assert dtypes.iinfo(dtype).max == jnp.iinfo(dtype).max


def test_bfloat16_of_the_dtypes_is_a_class_of_scalars():
    """Equinox asks `isinstance(leaf, jax.dtypes.bfloat16)` of each leaf that it reads back."""
    assert fuser.dtypes.bfloat16 is jax.dtypes.bfloat16 and isinstance(fuser.dtypes.bfloat16(1), fuser.dtypes.bfloat16)
