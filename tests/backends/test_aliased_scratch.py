"""Values of an earlier sweep across columns that wait in a result's memory, against JAX; and when they do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp

RNG = np.random.default_rng(0)


def standardised(xp: Any, x: Any) -> Any:
    y = xp.tanh(x)
    return (y - y.mean(0)) / y.std(0)


PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "softmax": lambda lib, xp, x: lib.nn.softmax(x, 0),
    "softmax, and its square": lambda lib, xp, x: ((y := lib.nn.softmax(x, 0)), y * y),
    "of the middle": lambda lib, xp, x: lib.nn.softmax(x.reshape(6, -1, x.shape[1]), 1),
    "standardised": lambda lib, xp, x: standardised(xp, x),
    "other type": lambda lib, xp, x: lib.nn.softmax(x, 0).astype("bfloat16"),
    "shifted": lambda lib, xp, x: xp.pad(lib.nn.softmax(x, 0), 1),
}


@pytest.mark.parametrize("shape", [(12, 40), (300, 70), (36, 3000), (6000, 33)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_that_wait_in_results(name: str, shape: tuple[int, int]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    found = fuser.jit(lambda x: PROGRAMS[name](fuser, fnp, x))(x)
    expected = jax.jit(lambda x: PROGRAMS[name](jax, jnp, x))(x)
    tolerance = 1e-2 if name == "other type" else 3e-5
    for f, e in zip(fuser.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(f, float), np.asarray(e, float), rtol=tolerance, atol=1e-6)


def exponentials(function: Callable[..., Any], *args: Any) -> int:
    texts = [source.text for source in fuser.jit(function).lower(*args).sources]
    return sum(len(re.findall(r"= exp(?:_unchecked)?_f32\(", text)) for text in texts)


def test_each_exponential_is_computed_once() -> None:
    x = np.zeros((300, 300), np.float32)
    once = exponentials(lambda x: fnp.exp(x).sum(0), x)  # rows are reduced several at once
    assert exponentials(lambda x: fuser.nn.softmax(x, 0), x) == once


def test_an_argument_that_is_given_away_is_not_overwritten_early() -> None:
    x = RNG.standard_normal((300, 300)).astype(np.float32)
    given = fuser.jit(lambda x: fuser.nn.softmax(x, 0), donate_argnums=0)(fnp.asarray(x) + 0)
    np.testing.assert_allclose(given, jax.nn.softmax(x, 0), rtol=3e-6)
