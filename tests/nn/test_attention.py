"""Attention against JAX: grouped heads, masks, lengths, windows, residuals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from agreement import agree, compare_values, numbers

import fuser
from fuser import nn
from fuser.errors import TypeRuleError, UnsupportedError

Q, K, V = numbers(np.float32, (2, 5, 4, 8)), numbers(np.float32, (2, 6, 2, 8), 1), numbers(np.float32, (2, 6, 2, 8), 2)
BIAS = numbers(np.float32, (4, 5, 6), 3)
LENGTHS = {"key_value_seq_lengths": np.array([3, 6]), "query_seq_lengths": np.array([4, 2])}
OPTIONS: list[dict[str, Any]] = [
    {}, {"is_causal": True}, {"bias": BIAS}, {"mask": BIAS > 0}, {"local_window_size": (1, 2)}, {"local_window_size": 1, "is_causal": True}, LENGTHS, {"scale": 0.3, "return_residual": True}, {"mask": BIAS}, {"bias": BIAS[:, :2]}, {"implementation": "fast"},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_attention(number: int) -> None:
    call = lambda m: lambda q, k, v: m.dot_product_attention(q, k, v, **OPTIONS[number])
    agree(call(nn), call(jax.nn), Q, K, V, tolerance=4)


def test_ranks_and_dtypes() -> None:
    agree(nn.dot_product_attention, jax.nn.dot_product_attention, Q[0], K[0], V[0], tolerance=4)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        agree(
            nn.dot_product_attention, jax.nn.dot_product_attention, *(x.astype(dtype) for x in (Q, K, V)), tolerance=4
        )
    for wrong in ((Q, K[:1], V), (Q, K, V[:, :3]), (Q[:, :, :3], K, V), (Q[0, 0], K, V)):
        agree(nn.dot_product_attention, jax.nn.dot_product_attention, *wrong)
    with pytest.raises(TypeRuleError, match="query heads must be a multiple of the key heads, got 3 for 2") as raised:
        nn.dot_product_attention(*map(fuser.numpy.asarray, (Q[:, :, :3], K, V)))
    assert raised.value.__context__ is None  # whether the call could be recorded is no concern of the caller's
    with pytest.raises(UnsupportedError, match="leave implementation as it is"):
        nn.dot_product_attention(Q, K, V, implementation="cudnn")


def test_gradients_and_one_compiled_program() -> None:
    total = lambda m, n: lambda q, k, v: (m.dot_product_attention(q, k, v, is_causal=True) * n.cos(n.arange(8))).sum()
    found = fuser.jit(fuser.grad(total(nn, fuser.numpy), (0, 1, 2)))(Q, K, V)
    expected = jax.jit(jax.grad(total(jax.nn, jnp), (0, 1, 2)))(Q, K, V)
    for f, e in zip(found, expected):
        compare_values(np.asarray(f), np.asarray(e), 8)
