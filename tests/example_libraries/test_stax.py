"""stax' layers beside JAX's: the same parameters from the same key, the same outputs and gradients."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.example_libraries import stax as jstax

import fuser
from fuser import random
from fuser.example_libraries import stax
from fuser.trace import tree


def image_network(s: Any) -> Any:
    return s.serial(
        s.Conv(4, (3, 3), padding="SAME"), s.BatchNorm(), s.Relu, s.MaxPool((2, 2), (2, 2)),
        s.FanOut(2), s.parallel(s.AvgPool((3, 3), padding="SAME"), s.SumPool((3, 3), padding="SAME")), s.FanInSum,
        s.ConvTranspose(3, (3, 3), (2, 2), "SAME"), s.Gelu, s.Flatten, s.Dense(5), s.LogSoftmax,
    )  # fmt: skip


def line_network(s: Any) -> Any:
    return s.serial(
        s.shape_dependent(lambda shape: s.Dense(shape[-1])), s.Tanh, s.FanOut(3),
        s.parallel(s.Identity, s.Softplus, s.serial(s.Dense(2), s.Selu)), s.FanInConcat(), s.Elu, s.LeakyRelu,
        s.Sigmoid, s.Exp, s.Softmax, s.Dropout(0.7),
    )  # fmt: skip


@pytest.mark.parametrize("network, shape", [(image_network, (2, 8, 8, 3)), (line_network, (3, 6))])
def test_network(network: Any, shape: Any) -> None:
    key, x = random.PRNGKey(0), np.random.default_rng(0).normal(size=shape).astype(np.float32)
    (init, apply), (jinit, japply) = network(stax), network(jstax)
    (found_shape, params), (wanted_shape, jparams) = init(key, shape), jinit(jax.random.PRNGKey(0), shape)
    assert found_shape == wanted_shape
    leaves, jleaves = tree.leaves(params), jax.tree.leaves(jparams)
    for a, b in zip(leaves, jleaves, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    out = fuser.jit(lambda p, x: apply(p, x, rng=key))(params, x)
    wanted = japply(jparams, x, rng=jax.random.PRNGKey(0))
    assert out.shape == found_shape
    np.testing.assert_allclose(out, wanted, atol=1e-4)
    gradients = fuser.jit(fuser.grad(lambda p: (apply(p, x, rng=key)[..., 0]).sum()))(params)
    jgradients = jax.grad(lambda p: (japply(p, x, rng=jax.random.PRNGKey(0))[..., 0]).sum())(jparams)
    for a, b in zip(tree.leaves(gradients), jax.tree.leaves(jgradients), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3 * max(1, float(np.abs(b).max())))


def test_dropout_needs_a_key() -> None:
    _, apply = stax.Dropout(0.5)
    with pytest.raises(ValueError, match="PRNG key"):
        apply((), np.ones(3, np.float32))
