"""Scalar types against JAX's, and what is an Array."""

from __future__ import annotations

import pickle
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import compare, precision

import fuser
import fuser.numpy as fnp
from fuser.typing import ArrayLike

NAMES = [
    "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "single", "double", "csingle", "int_", "uint",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_scalar_type_makes_arrays(name, x64):
    """Called, it gives an array of rank 0 that is not weak; of a list, a vector. NumPy's scalar types are another thing."""
    mine, theirs = getattr(fnp, name), getattr(jnp, name)
    with precision(x64):
        for value in (1, 0.0, True, [1, 2], np.ones((2, 1)), fnp.ones(2)):
            found = mine(value)
            assert type(found) is type(fnp.ones(1))
            compare(found, theirs(np.asarray(value) if isinstance(value, fuser.Array) else value))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_scalar_type_stands_for_its_dtype(name):
    mine, theirs = getattr(fnp, name), getattr(jnp, name)
    dtype = np.dtype(theirs)
    assert np.dtype(mine) == dtype == mine.dtype
    for other in (dtype, dtype.type, mine, np.dtype("int8"), np.float32, "float32", dtype.name, None, float):
        assert (mine == other) == (theirs == other if other is not mine else True), other
        assert (mine != other) is not (mine == other) and (other == mine) == (mine == other)
    assert hash(mine) == hash(theirs) == hash(dtype.type)
    assert isinstance(np.zeros((), dtype)[()], mine) and not isinstance(mine(1), mine)
    assert np.zeros(2, mine).dtype == dtype
    for group in (np.floating, np.inexact, np.integer, np.number, np.generic, np.complexfloating):
        assert fnp.issubdtype(mine, group) == jnp.issubdtype(theirs, group), group
    assert fnp.issubdtype(dtype, mine) and pickle.loads(pickle.dumps(mine)) is mine
    assert mine.__name__ == theirs.__name__


def test_dtypes_by_scalar_types():
    with precision(False):
        for dtype in (fnp.float16, fnp.int8, fnp.bfloat16, fnp.complex64):
            assert fnp.zeros(2, dtype).dtype == dtype == fnp.ones(2).astype(dtype).dtype
            assert fuser.jit(lambda x, d=dtype: x.astype(d) + d(1))(fnp.ones(2)).dtype == dtype
        assert fnp.result_type(fnp.int8, fnp.float16) == jnp.result_type(jnp.int8, jnp.float16)
        assert fnp.finfo(fnp.bfloat16).bits == 16 and fnp.iinfo(fnp.int8).max == 127
        with pytest.raises(OverflowError):
            fnp.int8(300)
        with pytest.raises(TypeError):
            fnp.float32()


def test_traced_values_are_arrays():
    """In jit, grad and vmap as outside; the class itself cannot be called."""
    seen = []

    def look(x):
        seen.append((isinstance(x, fuser.Array), isinstance(x, fnp.ndarray), isinstance(x, get_args(ArrayLike)[0])))
        return x.sum()

    x = fnp.ones((2, 3))
    for call in (look, fuser.jit(look), fuser.grad(look), fuser.vmap(look), fuser.jit(fuser.grad(look))):
        call(x)
    assert seen == [(True, True, True)] * 5
    assert isinstance(x, fuser.Array) and issubclass(type(x), fuser.Array)
    assert not isinstance(np.ones(2), fuser.Array) and not isinstance(1.0, fuser.Array)
    assert isinstance(jnp.ones(1), jax.Array)
    with pytest.raises(TypeError, match="cannot be instantiated"):
        fuser.Array((2,))


@pytest.mark.parametrize("name", ["left_shift", "bitwise_left_shift", "right_shift", "bitwise_right_shift"])
def test_functions_of_bits_have_their_own_names(name: str) -> None:
    mine, theirs = getattr(fnp, name), getattr(jnp, name)
    assert mine.__name__ == theirs.__name__ == name
    assert mine(np.int32(-9), 2) == theirs(np.int32(-9), 2)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"])
def test_operations_on_bits_have_their_own_names(name: str) -> None:
    assert getattr(fuser.lax, name).__name__ == getattr(jax.lax, name).__name__ == name
