"""The universal functions of fuser.numpy with their methods, against JAX."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.numpy.universal import NAMES

RNG = np.random.default_rng(0)
MASK = np.array([True, False, True, True])
BY_DTYPE = {
    np.float32: [n for n in NAMES if not n.startswith("bitwise")],
    np.int32: [n for n in NAMES if n != "negative"],
    np.bool_: ["add", "multiply", "bitwise_and", "logical_xor", "maximum"],
}


def cases(m: Any, function: Any, x: np.ndarray, y: np.ndarray, exponents: bool) -> dict[str, Any]:
    start = {} if exponents else {"initial": 1}  # JAX's logaddexp takes no initial value
    where = {**({} if function.identity is not None else {"initial": 1}), "where": MASK}
    return {
        "call": lambda: function(x, y),
        "reduce": lambda: function.reduce(x),
        "all": lambda: function.reduce(x, axis=None),
        "kept": lambda: function.reduce(x, axis=1, keepdims=True),
        "where": lambda: function.reduce(x, axis=1, **where),
        "initial": lambda: function.reduce(x, **start),
        "accumulate": lambda: function.accumulate(x, axis=1),
        "outer": lambda: function.outer(y, y),
        "vmap": lambda: m.vmap(function.reduce)(x),
    }


def test_they_are_those_of_jax() -> None:
    assert set(NAMES) == {n for n in dir(jnp) if isinstance(getattr(jnp, n), jnp.ufunc)}
    for name in NAMES:
        mine, theirs = getattr(fnp, name), getattr(jnp, name)
        assert isinstance(mine, fnp.ufunc) and pickle.loads(pickle.dumps(mine)) is mine
        assert (mine.nin, mine.nout, mine.nargs, mine.identity) == (
            theirs.nin, theirs.nout, theirs.nargs, theirs.identity,
        )  # fmt: skip


@pytest.mark.parametrize(("dtype", "name"), [(d, n) for d, names in BY_DTYPE.items() for n in names])
def test_methods(dtype: Any, name: str) -> None:
    x, y = (RNG.normal(size=(3, 4)) * 3).astype(dtype), (RNG.normal(size=4) * 3).astype(dtype)
    mine, theirs = getattr(fnp, name), getattr(jnp, name)
    if name == "negative":
        found, wanted = mine.at(x, np.array([0, 2]), inplace=False), theirs.at(x, np.array([0, 2]), inplace=False)
        np.testing.assert_array_equal(found, wanted)
        return
    exponents = name.startswith("logaddexp")
    expected = cases(jax, theirs, x, y, exponents)
    for what, call in cases(fuser, mine, x, y, exponents).items():
        found, wanted = call(), expected[what]()
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), what
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=what)


def test_masked_elements_are_left_out_of_a_reduction_without_identity() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = fnp.subtract.reduce(x, initial=2, where=x > 1)
    np.testing.assert_array_equal(found, jnp.subtract.reduce(x, initial=2, where=x > 1))


def test_updates_at_repeated_indices() -> None:
    x, places = np.arange(6, dtype=np.int32).reshape(3, 2), np.array([0, 2, 0])
    for name in ("add", "subtract", "multiply"):
        found = getattr(fnp, name).at(x, places, 3, inplace=False)
        np.testing.assert_array_equal(found, getattr(jnp, name).at(x, places, 3, inplace=False))


def test_errors_as_in_jax() -> None:
    x = np.ones(3, np.float32)
    for call, kind, words in (
        (lambda m: m.add(x, x, out=x), NotImplementedError, "out argument of"),
        (lambda m: m.maximum.reduce(x, where=x > 0), ValueError, "does not have an identity"),
        (lambda m: m.add.reduce(x, where=x), ValueError, "where argument must have dtype=bool"),
        (lambda m: m.bitwise_or.reduce(x), ValueError, "integer argument required; got dtype=float32"),
        (lambda m: m.negative.reduce(x), ValueError, "reduce only supported for binary ufuncs"),
        (lambda m: m.max(x[:0]), ValueError, "zero-size array to reduction operation max which has no identity"),
    ):
        for module in (fnp, jnp):
            with pytest.raises(kind, match=words):
                call(module)
