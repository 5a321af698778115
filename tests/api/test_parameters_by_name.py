"""Parameters by their names in JAX, and the rarer ones: each call against JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.sparse
import jax.lax.linalg
import numpy as np
import pytest
from agreement import agree

import fuser
import fuser.experimental.sparse
import fuser.lax.linalg

X = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
Y = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)
SQUARE = np.array([[4, 1, 0.5], [1, 3, 0.25], [0.5, 0.25, 2]], np.float32)
INTEGERS = np.array([12, 18, 7], np.int32)

CALLS: dict[str, Callable[[Any], Any]] = {
    "fmax": lambda m: m.numpy.fmax(x1=X, x2=Y),
    "fmin": lambda m: m.numpy.fmin(x2=X, x1=Y),
    "gcd": lambda m: m.numpy.gcd(x1=INTEGERS, x2=6),
    "lcm": lambda m: m.numpy.lcm(x1=INTEGERS, x2=6),
    "trunc": lambda m: m.numpy.trunc(x=X),
    "permute_dims": lambda m: m.numpy.permute_dims(X, axes=(1, 0)),
    "issubdtype": lambda m: m.numpy.issubdtype(arg1=np.float32, arg2=m.numpy.floating),
    "lax.add": lambda m: m.lax.add(x=X, y=Y),
    "lax.nextafter": lambda m: m.lax.nextafter(x1=X, x2=Y),
    "lax.exp": lambda m: m.lax.exp(x=X, accuracy=None),
    "lax.mul": lambda m: m.lax.mul(X, Y, out_dtype=np.dtype(np.float16)),
    "linalg.matmul": lambda m: m.numpy.linalg.matmul(X, Y.T),
    "linalg.tensordot": lambda m: m.numpy.linalg.tensordot(X, Y.T, axes=1),
    "linalg.svd, hermitian": lambda m: m.numpy.linalg.svd(SQUARE, hermitian=True)[1],
    "lax.linalg.qr": lambda m: m.numpy.abs(m.lax.linalg.qr(SQUARE, use_magma=False)[1]),
    "resize": lambda m: m.image.resize(X, (6, 2), "linear", precision=m.lax.Precision.HIGH),
    "tree_map": lambda m: m.tree_util.tree_map(f=lambda x: x + 1, tree={"a": X}),
    "dtypes.issubdtype": lambda m: m.dtypes.issubdtype(a=np.int8, b=np.integer),
    "random_bcoo": lambda m: m.experimental.sparse.random_bcoo(m.random.key(0), (3, 4), nse=5).dtype,
    "ds": lambda m: m.ds(2, 3, stride=None).stride,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str) -> None:
    mine, theirs = CALLS[name](fuser), CALLS[name](jax)
    if isinstance(theirs, (bool, int, np.dtype)):
        assert mine == theirs
    else:
        agree(mine, theirs)


def test_some_of_the_values_by_their_positions() -> None:
    """What JAX has on TPUs alone, against the values of all."""
    v, w = fuser.lax.linalg.eigh(SQUARE, subset_by_index=(1, 3), sort_eigenvalues=False)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(SQUARE)[1:3], rtol=1e-5)
    np.testing.assert_allclose(SQUARE @ v, v * w, rtol=1e-4, atol=1e-5)
    s = fuser.numpy.linalg.svd(X, full_matrices=False, subset_by_index=(0, 2))[1]
    np.testing.assert_allclose(s, np.linalg.svd(X.astype(np.float64))[1][:2], rtol=1e-5)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "grad": lambda m: m.grad(lambda x: x, reduce_axes=("i",)),
    "value_and_grad": lambda m: m.value_and_grad(lambda x: x, reduce_axes=("i",)),
    "vjp": lambda m: m.vjp(lambda x: x, 1.0, reduce_axes=("i",)),
    "eigh": lambda m: m.lax.linalg.eigh(SQUARE, implementation=m.lax.linalg.EighImplementation.QDWH),
    "lax.add": lambda m: m.lax.add(X, Y, accuracy=None),
    "lax.exp of two": lambda m: m.lax.exp(X, Y),
    "softmax": lambda m: m.nn.softmax(X, initial=0.0),
    "jit by name": lambda m: m.jit(fun=lambda x: x),
    "dtype of keys": lambda m: m.dtypes.canonicalize_dtype(m.random.key(0).dtype),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        REFUSED[name](jax)
    with pytest.raises(Exception) as mine:
        REFUSED[name](fuser)
    assert type(mine.value) in type(theirs.value).__mro__ or isinstance(mine.value, type(theirs.value))


def test_keys_are_no_dtype_that_arrays_of_numbers_get_and_yet_lie_anywhere() -> None:
    for m in (fuser, jax):
        keys = m.random.split(m.random.key(0), 4)
        place = m.sharding.SingleDeviceSharding(m.devices()[0])
        made = m.make_array_from_callback((4,), place, lambda index, keys=keys: keys[index])
        assert made.dtype == keys.dtype == m.dtypes.canonicalize_dtype(keys.dtype, allow_extended_dtype=True)
