"""Initializers of networks against JAX: the same numbers from the same key."""

from __future__ import annotations

from typing import Any

import jax
import jax.nn.initializers
import numpy as np
import pytest
from agreement import compare

import fuser
from fuser.nn import initializers

SCALED = [
    "glorot_uniform",
    "glorot_normal",
    "lecun_uniform",
    "lecun_normal",
    "he_uniform",
    "he_normal",
    "xavier_normal",
    "kaiming_uniform",
]
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...], Any]] = [
    *((name, (), {}, (3, 4), None) for name in SCALED),
    ("glorot_normal", (0, 1), {}, (3, 4, 2), np.float16),
    ("variance_scaling", (2.0, "fan_geo_avg", "normal"), {"batch_axis": 0}, (2, 3, 4), None),
    *(("variance_scaling", (1.0, "fan_out", kind), {}, (3, 4), np.complex64) for kind in ("uniform", "normal", "truncated_normal")),
    ("variance_scaling", (1.0, "fan_mid", "normal"), {}, (3, 4), None),
    ("variance_scaling", (1.0, "fan_in", "cauchy"), {}, (3, 4), None),
    ("variance_scaling", (1.0, "fan_in", "normal"), {}, (3,), None),
    ("uniform", (0.5,), {}, (5,), None), ("normal", (), {"dtype": np.float16}, (5,), None), ("truncated_normal", (2.0,), {}, (5,), None),
    ("truncated_normal", (), {"lower": -1.0, "upper": 3.0}, (5,), None), ("constant", (3,), {}, (2, 2), np.int32), ("constant", (-7.5,), {}, (2,), None),
    ("orthogonal", (), {}, (3, 5), None), ("orthogonal", (2.0,), {}, (5, 3), None), ("orthogonal", (), {"column_axis": 0}, (2, 3, 4), None), ("orthogonal", (), {}, (3,), None),
    ("delta_orthogonal", (), {}, (3, 3, 4), None), ("delta_orthogonal", (), {}, (2, 3, 3, 3), None), ("delta_orthogonal", (), {}, (3, 5, 4), None), ("delta_orthogonal", (), {}, (5, 4), None),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{n}-{CASES[n][0]}")
def test_initializer(number: int) -> None:
    name, args, kwargs, shape, dtype = CASES[number]
    options = {} if dtype is None else {"dtype": dtype}
    mine, other = (getattr(m, name)(*args, **kwargs) for m in (initializers, jax.nn.initializers))
    try:
        with jax.disable_jit():
            expected = other(jax.random.key(3), shape, **options)
    except ValueError as error:
        with pytest.raises(ValueError) as caught:
            mine(fuser.random.key(3), shape, **options)
        assert str(caught.value).split(":")[0] == str(error).split(":")[0]
        return
    compare(mine(fuser.random.key(3), shape, **options), expected, 4)


def test_zeros_and_ones() -> None:
    for name in ("zeros", "ones"):
        for options in ({}, {"dtype": np.int8}):
            expected = getattr(jax.nn.initializers, name)(jax.random.key(0), (2, 3), **options)
            compare(getattr(initializers, name)(fuser.random.key(0), (2, 3), **options), expected)
